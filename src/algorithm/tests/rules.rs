//! Rules that hold for every algorithm. The sixth one, in `sixth.rs`, must keep them too.

use super::{Algorithm, Answer, Limiter, Operations, Random, Rule, Table, Verdict, rules};

#[test]
fn every_algorithm_keeps_the_common_rules() {
    for algorithm in Algorithm::ALL {
        keeps_the_common_rules(&Table, &rules(*algorithm));
    }
}

pub(super) fn keeps_the_common_rules(operations: &dyn Operations, rules: &[Rule]) {
    for (index, rule) in rules.iter().enumerate() {
        for seed in 0..8 {
            let mut random = Random(seed * 7_919 + index as u64);
            let now = 2_000_000_000_000_000 + random.up_to(1 << 50);
            live(Limiter::with(operations, *rule, now), now, &mut random);
        }
    }
}

/// Runs one limit through random steps, and checks the rules after each.
fn live(mut limiter: Limiter<'_>, mut now: u64, random: &mut Random) {
    let most = i64::try_from(limiter.most()).unwrap();
    assert_eq!(limiter.available(now), most, "a new limit is unused: {:?}", limiter.rule);
    let mut latest_change = now;
    for _ in 0..150 {
        now = random.step(now, &limiter.rule);
        let before = limiter.words.clone();
        let had = limiter.available(now);
        let amount = random.up_to(limiter.most());
        match random.next() % 8 {
            0..=4 => {
                let admitted = limiter.acquire(now, amount) == Answer::Yes;
                let taken = had - limiter.available(now);
                assert!(!admitted || taken >= signed(amount), "an admission charges at least its amount");
            }
            5 => {
                let refunded = limiter.refund(now, amount);
                assert!(refunded == 0 || refunded == amount, "a refund is of all or nothing");
                let more = limiter.available(now) - had;
                assert!((0..=signed(refunded)).contains(&more), "{more} more by a refund of {refunded}");
            }
            6 if had > -(1 << 60) => {
                let amount = amount.min(1 << 60);
                limiter.adjust(now, signed(amount));
                assert!(had - limiter.available(now) >= signed(amount), "a charge is never refused");
            }
            7 if random.one_in(16) => {
                limiter.reset(now);
                assert_eq!(limiter.available(now), most, "a reset limit is unused: {:?}", limiter.rule);
                latest_change = now;
            }
            _ => {}
        }
        if limiter.words != before {
            latest_change = latest_change.max(now);
        }
        judge(&limiter, now, latest_change, random);
    }
}

fn judge(limiter: &Limiter<'_>, now: u64, latest_change: u64, random: &mut Random) {
    let context = || format!("{:?} at {now}: {:?}", limiter.rule, limiter.words);
    let (most, available) = (limiter.most(), limiter.available(now));
    assert!(available <= signed(most), "never more than the most: {}", context());

    assert_eq!(limiter.ask(now, 0), Verdict::Admit(super::Changes::NONE), "0 changes nothing");
    assert_eq!(limiter.ask(now, most + 1), Verdict::Never, "more than the most is never");
    assert_eq!(limiter.ask(now, u64::MAX), Verdict::Never, "more than the most is never");

    for amount in [1, most, random.up_to(most).max(1)] {
        match limiter.ask(now, amount).into() {
            Answer::Yes => assert!(signed(amount) <= available, "{amount} is not available: {}", context()),
            Answer::Never => panic!("{amount} is possible, later: {}", context()),
            Answer::Later(at) => {
                assert!(signed(amount) > available, "{amount} is available: {}", context());
                assert!(at > now, "a later instant is after now: {}", context());
                let then: Answer = limiter.ask(at, amount).into();
                assert_eq!(then, Answer::Yes, "{amount} at {at}: the wait was too short: {}", context());
                let just_before: Answer = limiter.ask(at - 1, amount).into();
                assert_eq!(just_before, Answer::Later(at), "{amount}: the wait is too long: {}", context());
            }
        }
    }

    let later = random.step(now, &limiter.rule).max(now);
    assert!(limiter.available(later) >= available, "time only adds units, until {later}: {}", context());
    let earlier = latest_change - random.up_to(latest_change);
    let seen = (limiter.available(earlier), limiter.ask(earlier, 1));
    let at_change = (limiter.available(latest_change), limiter.ask(latest_change, 1));
    assert_eq!(seen, at_change, "a clock that is behind, at {earlier}, changes nothing: {}", context());
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap()
}

#[test]
fn names_and_numbers_are_unique_and_lead_back() {
    let numbers: Vec<u32> = Algorithm::ALL.iter().map(|it| it.number()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5], "numbers are in segments: never change one");
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_number(algorithm.number()), Some(*algorithm));
        assert_eq!(algorithm.name().parse(), Ok(*algorithm));
        assert_eq!(algorithm.to_string().replace('_', "-").to_uppercase().parse(), Ok(*algorithm));
    }
    assert_eq!(Algorithm::from_number(0), None);
    let wrong = "leaky".parse::<Algorithm>().unwrap_err().to_string();
    assert_eq!(
        wrong,
        "unknown algorithm \"leaky\"; use one of token_bucket, leaky_bucket, sliding_window, fixed_window, gcra"
    );
}
