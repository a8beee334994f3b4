//! New parameters for a limit in use: the units left are clamped, debt is not.

use super::{Algorithm, Answer, Limiter, MINUTE, Random, Rule};

const KEEPS_WHAT_IS_LEFT: [Algorithm; 2] = [Algorithm::TokenBucket, Algorithm::Gcra];
const KEEPS_WHAT_IS_USED: [Algorithm; 3] =
    [Algorithm::LeakyBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow];

/// A limit of 100 per minute with `amount` used.
fn used(algorithm: Algorithm, amount: u64) -> Limiter<'static> {
    let mut limiter = Limiter::new(Rule::new(algorithm, 100, MINUTE), 0);
    assert_eq!(limiter.acquire(0, amount), Answer::Yes);
    limiter
}

fn left_after(mut limiter: Limiter<'_>, capacity: u64) -> i64 {
    limiter.reconfigure(Rule::new(limiter.rule.algorithm(), capacity, MINUTE), 0);
    limiter.available(0)
}

#[test]
fn tokens_stay_and_are_clamped_to_a_lower_capacity() {
    for algorithm in KEEPS_WHAT_IS_LEFT {
        assert_eq!(left_after(used(algorithm, 30), 50), 50, "{algorithm}");
        assert_eq!(left_after(used(algorithm, 70), 50), 30, "{algorithm}");
        assert_eq!(left_after(used(algorithm, 30), 200), 70, "{algorithm}");
    }
}

#[test]
fn what_was_used_stays_used_and_a_lower_capacity_makes_no_debt() {
    for algorithm in KEEPS_WHAT_IS_USED {
        assert_eq!(left_after(used(algorithm, 30), 50), 20, "{algorithm}");
        let is_log = algorithm == Algorithm::SlidingWindow;
        assert_eq!(left_after(used(algorithm, 30), 200), if is_log { 170 } else { 70 }, "{algorithm}");
        let mut limiter = used(algorithm, 70);
        limiter.reconfigure(Rule::new(algorithm, 50, MINUTE), 0);
        assert!(limiter.available(0) <= 0, "{algorithm}");
        assert_eq!(limiter.available(MINUTE), 50, "{algorithm}: a window later it is forgotten");
    }
}

#[test]
fn going_down_and_up_again_makes_no_room() {
    for algorithm in Algorithm::ALL {
        for amount in [1, 30, 70, 100] {
            let mut limiter = used(*algorithm, amount);
            for capacity in [10, 100, 50, 60, 100] {
                let before = limiter.available(0);
                limiter.reconfigure(Rule::new(*algorithm, capacity, MINUTE), 0);
                let is_log = *algorithm == Algorithm::SlidingWindow;
                assert!(is_log || limiter.available(0) <= before, "{algorithm}: {amount} used, {capacity}");
            }
            let left = limiter.available(0);
            assert!(
                left <= i64::try_from(100 - amount).unwrap(),
                "{algorithm}: {left} left of {amount} used"
            );
        }
    }
}

#[test]
fn debt_survives_new_numbers() {
    for algorithm in Algorithm::ALL {
        let mut limiter = used(*algorithm, 100);
        limiter.adjust(0, 40);
        assert_eq!(limiter.available(0), -40);
        limiter.reconfigure(Rule::new(*algorithm, 50, MINUTE), 0);
        assert!(limiter.available(0) <= -40, "{algorithm} in debt, clamped to {}", limiter.available(0));
        limiter.reconfigure(Rule::new(*algorithm, 100, MINUTE), 0);
        assert!(limiter.available(0) <= -40 + 50, "{algorithm}, clamped to {}", limiter.available(0));
        assert_ne!(limiter.acquire(0, 100), Answer::Yes, "{algorithm}");
    }
}

#[test]
fn the_new_rate_holds_from_the_change_on() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra] {
        let mut limiter = used(algorithm, 100);
        // A part of the next unit has flown; it is lost with the old window.
        let now = 1_000;
        limiter.reconfigure(Rule::new(algorithm, 100, 10 * MINUTE), now);
        assert_eq!(limiter.acquire(now, 1), Answer::Later(now + MINUTE / 10), "{algorithm}");
    }
}

#[test]
fn a_sliding_window_of_another_length_still_never_holds_too_much() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let resolution = random.pick(&[1, 2, 10, 40]);
        let rule = |capacity, window| {
            Rule::new(Algorithm::SlidingWindow, capacity, window).with_resolution(resolution)
        };
        let (mut now, mut log) = (10_000, Vec::new());
        let mut limiter = Limiter::new(rule(20, 1_000), now);
        for _ in 0..12 {
            let since = now;
            log.clear();
            for _ in 0..60 {
                let amount = random.up_to(limiter.most() / 2).max(1);
                match limiter.acquire(now, amount) {
                    Answer::Yes => log.push((now, amount)),
                    Answer::Later(at) if random.one_in(2) => now = at,
                    _ => now += random.up_to(limiter.rule.window_nanos() / 5),
                }
            }
            // Windows that begin after the change hold the new capacity.
            let (window, capacity) = (limiter.rule.window_nanos(), limiter.rule.capacity());
            for (from, _) in &log {
                let within = log.iter().filter(|(at, _)| (*from..from + window).contains(at));
                let sum: u64 = within.map(|(_, units)| units).sum();
                assert!(sum <= capacity, "seed {seed}: {sum} of {capacity} in {window} since {since}");
            }
            let new = rule(random.pick(&[5, 20, 33]), random.pick(&[100, 1_000, 1_003, 5_000]));
            limiter.reconfigure(new, now);
        }
    }
}

#[test]
fn a_longer_window_still_counts_what_it_can_see() {
    let rule = |window| Rule::new(Algorithm::SlidingWindow, 10, window);
    let mut limiter = Limiter::new(rule(100), 0);
    assert_eq!(limiter.acquire(1_000, 4), Answer::Yes);
    assert_eq!(limiter.acquire(1_050, 4), Answer::Yes);
    limiter.reconfigure(rule(1_000), 1_060);
    assert_eq!(limiter.available(1_060), 2);
    assert_eq!(limiter.acquire(1_060, 3), Answer::Later(2_000));
}

#[test]
fn a_longer_window_loses_nothing_though_its_ring_is_full() {
    let rule = |window| Rule::new(Algorithm::SlidingWindow, 20, window);
    let mut limiter = Limiter::new(rule(100), 1_000);
    let admissions: Vec<u64> = (0..11).map(|it| 1_000 + 10 * it).collect();
    for now in &admissions {
        assert_eq!(limiter.acquire(*now, 1), Answer::Yes);
    }
    assert_eq!(limiter.available(1_105), 10);
    limiter.reconfigure(rule(1_000), 1_105);
    assert_eq!(limiter.available(1_105), 9, "the eleventh is in the window again");
    for now in [1_105, 1_200, 1_300, 1_400] {
        let left = limiter.available(now);
        assert_eq!(limiter.acquire(now, 1), Answer::Yes);
        assert_eq!(limiter.available(now), left - 1, "at {now}");
    }
}

#[test]
fn a_fixed_window_of_another_length_counts_on_in_its_own_windows() {
    let rule = |window| Rule::new(Algorithm::FixedWindow, 10, window);
    let mut limiter = Limiter::new(rule(100), 0);
    assert_eq!(limiter.acquire(250, 7), Answer::Yes);
    limiter.reconfigure(rule(1_000), 260);
    assert_eq!(limiter.available(260), 3);
    assert_eq!(limiter.acquire(260, 4), Answer::Later(1_000));
    // Also when the clock has stepped back behind the window.
    limiter.reconfigure(rule(10), 5);
    assert_eq!(limiter.available(5), 3);
}
