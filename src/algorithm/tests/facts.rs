//! Single facts, by hand: differences between the algorithms, and properties they share.

use super::{Algorithm, Answer, Limiter, MINUTE, Random, Rule, SECOND, rules};
use crate::limit::{CallLimit, DEFAULT_RESOLUTION, Limit, RateLimit, ResourceLimit};

#[test]
fn three_ways_to_keep_a_bucket_admit_the_same() {
    for rule in rules(Algorithm::TokenBucket) {
        let of = |algorithm| {
            let rule = Rule::new(algorithm, rule.capacity(), rule.window_nanos()).with_burst(rule.burst());
            Limiter::new(rule, 1_000)
        };
        let mut tokens = of(Algorithm::TokenBucket);
        let mut others = [of(Algorithm::LeakyBucket), of(Algorithm::Gcra)];
        let mut random = Random(rule.burst());
        let mut now = 1_000;
        for _ in 0..2_000 {
            now = random.step(now, &rule);
            let amount = random.up_to(rule.burst());
            let answer = tokens.acquire(now, amount);
            for other in &mut others {
                assert_eq!(other.acquire(now, amount), answer, "{:?} at {now}", other.rule);
            }
        }
    }
}

#[test]
fn a_leaky_bucket_of_one_spaces_units_strictly() {
    for (capacity, window) in [(10, SECOND), (7, 3 * SECOND), (3, 10)] {
        let rule = Rule::new(Algorithm::LeakyBucket, capacity, window).with_burst(1);
        let (mut now, mut limiter) = (0, Limiter::new(rule, 0));
        for _ in 0..1_000 {
            assert_eq!(limiter.acquire(now, 1), Answer::Yes, "{rule:?}");
            let spaced = now + window.div_ceil(capacity);
            assert_eq!(limiter.acquire(now, 1), Answer::Later(spaced), "{rule:?}");
            now = spaced;
        }
        // After any idle time, two units do not pass together.
        assert_eq!(limiter.acquire(now + 1_000 * window, 1), Answer::Yes);
        assert_ne!(limiter.acquire(now + 1_000 * window, 1), Answer::Yes);
    }
}

#[test]
fn unused_units_return_to_token_bucket_and_gcra_only() {
    for algorithm in Algorithm::ALL {
        let mut limiter = Limiter::new(Rule::new(*algorithm, 10, MINUTE), 0);
        assert_eq!(limiter.acquire(0, 6), Answer::Yes);
        let returns = matches!(algorithm, Algorithm::TokenBucket | Algorithm::Gcra);
        assert_eq!(limiter.refund(0, 4), if returns { 4 } else { 0 }, "{algorithm}");
        assert_eq!(limiter.available(0), if returns { 8 } else { 4 }, "{algorithm}");
        assert_eq!(algorithm.refunds(), returns);
        limiter.adjust(0, -2);
        assert_eq!(limiter.available(0), if returns { 10 } else { 4 }, "{algorithm}: used less is a refund");
        limiter.refund(0, 5);
        assert!(limiter.available(0) <= 10, "{algorithm}: never above the capacity");
        if *algorithm == Algorithm::TokenBucket {
            assert_eq!(limiter.words.three[0], 10, "the written value is clamped, not only the value read");
        }
    }
}

#[test]
fn every_algorithm_goes_into_debt_and_comes_out_of_it() {
    for algorithm in Algorithm::ALL {
        let mut limiter = Limiter::new(Rule::new(*algorithm, 10, MINUTE), 0);
        assert_eq!(limiter.acquire(0, 4), Answer::Yes);
        limiter.adjust(0, 21);
        assert_eq!(limiter.available(0), -15, "{algorithm}");
        let Answer::Later(at) = limiter.acquire(0, 1) else { panic!("{algorithm} admits in debt") };
        assert!(at > MINUTE, "{algorithm}: the next window pays, until {at}");
        assert_eq!(limiter.available(10 * MINUTE), 10, "{algorithm}: and then it is paid");
    }
}

#[test]
fn a_burst_can_be_less_or_more_than_the_capacity() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra] {
        let rule = Rule::new(algorithm, 60, MINUTE);
        let mut low = Limiter::new(rule.with_burst(2), 0);
        assert_eq!(low.acquire(0, 3), Answer::Never, "{algorithm}");
        assert_eq!(low.acquire(0, 2), Answer::Yes, "{algorithm}");
        assert_eq!(low.acquire(0, 1), Answer::Later(SECOND), "{algorithm}");
        let mut high = Limiter::new(rule.with_burst(100), 0);
        assert_eq!(high.acquire(0, 100), Answer::Yes, "{algorithm}");
        assert_eq!(high.acquire(0, 100), Answer::Later(100 * SECOND), "{algorithm}");
    }
}

#[test]
fn the_interval_of_gcra_is_a_fraction() {
    // Three units in ten nanoseconds: 3 1/3 apart.
    let mut limiter = Limiter::new(Rule::new(Algorithm::Gcra, 3, 10), 0);
    let arrivals = [(3, 1), (6, 2), (10, 0)];
    for (nanos, thirds) in arrivals {
        assert_eq!(limiter.acquire(0, 1), Answer::Yes);
        assert_eq!((limiter.words.three[0], limiter.words.three[2]), (nanos, thirds));
    }
    assert_eq!([1, 2, 3].map(|amount| limiter.acquire(0, amount)), [4, 7, 10].map(Answer::Later));
}

#[test]
fn a_sliding_window_takes_two_words_a_sub_window_and_three_more() {
    for algorithm in Algorithm::ALL {
        for resolution in [1, 10, 500] {
            let cells = Rule::new(*algorithm, 1, 1).with_resolution(resolution).cells();
            let expected = if algorithm.has_resolution() { 2 * resolution + 3 } else { 0 };
            assert_eq!(cells, expected, "{algorithm}");
        }
    }
    let most = Rule::new(Algorithm::SlidingWindow, 1, 1).with_resolution(u32::MAX).cells();
    assert!(most * crate::format::state::MAX_LIMITS <= crate::format::state::MAX_CELLS);
}

#[test]
fn numbers_out_of_bounds_are_brought_within() {
    for algorithm in Algorithm::ALL {
        let rule = Rule::new(*algorithm, 0, 0).with_burst(0).with_resolution(0);
        assert_eq!((rule.capacity(), rule.window_nanos(), rule.burst(), rule.resolution()), (1, 1, 1, 1));
        let rule = Rule::new(*algorithm, u64::MAX, u64::MAX).with_burst(u64::MAX).with_resolution(u32::MAX);
        assert_eq!((rule.capacity(), rule.window_nanos(), rule.burst()), (1 << 62, 1 << 62, 1 << 62));
        assert_eq!(rule.resolution(), 500);
    }
}

#[test]
fn a_definition_becomes_the_rule_it_says() {
    let rule = |limit: Limit| limit.rule(77).unwrap();
    let plain = rule(RateLimit::per_minute("tokens", 200).into());
    assert_eq!(plain, Rule::new(Algorithm::TokenBucket, 200, MINUTE).with_wall_offset(77));
    let set = rule(CallLimit::per_second(7).algorithm(Algorithm::Gcra).burst(3).into());
    assert_eq!(set, Rule::new(Algorithm::Gcra, 7, SECOND).with_burst(3).with_wall_offset(77));
    let sliding = rule(CallLimit::per_second(7).algorithm(Algorithm::SlidingWindow).resolution(60).into());
    assert_eq!((sliding.resolution(), plain.resolution()), (60, DEFAULT_RESOLUTION));
    assert_eq!(Limit::from(ResourceLimit::new("connections", 8)).rule(77), None);
}
