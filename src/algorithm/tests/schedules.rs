//! Each algorithm against its exact model, over random schedules: clocks that stand still, creep, jump by
//! years and step back; requests, reports, refunds, resets and new parameters.

use super::{Algorithm, Limiter, Random, Rule, model, rules};

#[test]
fn token_bucket_equals_a_bucket_of_fractions() {
    equals_its_model(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_equals_a_bucket_of_fractions() {
    equals_its_model(Algorithm::LeakyBucket);
}

#[test]
fn gcra_equals_a_bucket_of_fractions() {
    equals_its_model(Algorithm::Gcra);
}

#[test]
fn fixed_window_equals_a_counter_that_walks_from_window_to_window() {
    equals_its_model(Algorithm::FixedWindow);
}

#[test]
fn sliding_window_equals_a_log_in_groups_beside_a_clock_that_debt_stops() {
    equals_its_model(Algorithm::SlidingWindow);
}

fn equals_its_model(algorithm: Algorithm) {
    for (index, rule) in rules(algorithm).into_iter().enumerate() {
        for seed in 0..8 {
            follow(rule, &mut Random(seed * 1_000 + index as u64));
        }
    }
}

fn follow(rule: Rule, random: &mut Random) {
    let mut now = 1_000_000_000_000_000 + random.up_to(1 << 50);
    let mut limiter = Limiter::new(rule, now);
    let mut model = model::of(rule, now);
    for step in 0..250 {
        now = random.step(now, &limiter.rule);
        let most = limiter.most();
        let context = format!("step {step} of {rule:?} at {now}: {:?}", limiter.words);
        match random.next() % 16 {
            0..=9 => {
                let amount = random.up_to(most + 1);
                assert_eq!(limiter.acquire(now, amount), model.acquire(now, amount), "{amount}, {context}");
            }
            10 | 11 => {
                let amount = random.up_to(most);
                assert_eq!(limiter.refund(now, amount), model.refund(now, amount), "{amount}, {context}");
            }
            12 | 13 if limiter.available(now) > -(1 << 61) => {
                let amount = random.up_to(most.saturating_mul(3).min(1 << 60));
                limiter.adjust(now, i64::try_from(amount).unwrap());
                if amount > 0 {
                    model.charge(now, amount);
                }
            }
            14 => {
                let amount = random.up_to(most);
                limiter.adjust(now, -i64::try_from(amount).unwrap());
                model.refund(now, amount);
            }
            15 if random.one_in(8) => {
                limiter.reset(now);
                model.reset(now);
            }
            15 => {
                let new = other_numbers(rule, random);
                limiter.reconfigure(new, now);
                model.reconfigure(new, now);
            }
            _ => {}
        }
        assert_eq!(limiter.available(now), model.available(now), "{context}, then {:?}", limiter.words);
    }
}

/// Returns another capacity and burst; another window too, except for algorithms that number their windows.
fn other_numbers(rule: Rule, random: &mut Random) -> Rule {
    let capacity =
        random.pick(&[rule.capacity(), rule.capacity() / 2 + 1, (rule.capacity() * 2).min(1 << 62)]);
    let window = if rule.algorithm().has_burst() {
        random.pick(&[1, 2, 3]) * rule.window_nanos()
    } else {
        rule.window_nanos()
    };
    let burst =
        if rule.algorithm().has_burst() { random.pick(&[capacity, 1, capacity / 3 + 1]) } else { capacity };
    let new = Rule::new(rule.algorithm(), capacity, window).with_burst(burst);
    new.with_resolution(rule.resolution()).with_wall_offset(rule.wall_offset)
}
