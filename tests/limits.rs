//! Definitions of limits: what is accepted, and what the refusal of the others says.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop at the first surprise, like the tests")]

use std::time::Duration;

use limitset::limit::{
    Algorithm, BadLimit, CallLimit, Limit, MAX_CAPACITY, MAX_RESOLUTION, MAX_WINDOW, RateLimit, Report,
    ResourceLimit, validate,
};

const WINDOWED: [Algorithm; 2] = [Algorithm::FixedWindow, Algorithm::SlidingWindow];

fn refusal(limit: impl Into<Limit>) -> BadLimit {
    validate(&[ResourceLimit::new("fine", 1).into(), limit.into()]).unwrap_err()
}

#[test]
fn the_largest_and_smallest_numbers_are_accepted() {
    for algorithm in Algorithm::ALL {
        let rate = |capacity, window| RateLimit::new("rate", capacity, window).algorithm(*algorithm);
        for capacity in [1, MAX_CAPACITY] {
            for window in [Duration::from_nanos(1), MAX_WINDOW] {
                assert_eq!(validate(&[rate(capacity, window).into()]), Ok(()), "{capacity} per {window:?}");
            }
        }
    }
    assert_eq!(validate(&[ResourceLimit::new("k".repeat(64), MAX_CAPACITY).into()]), Ok(()));
    assert_eq!(validate(&[]), Ok(()), "a set may be empty");
}

#[test]
fn zero_is_no_capacity_window_burst_or_resolution() {
    let found = refusal(RateLimit::per_second("tokens", 0)).to_string();
    assert_eq!(found, "limit \"tokens\" has capacity 0; it must be 1 to 4611686018427387904");
    assert!(matches!(refusal(CallLimit::per_day(0)), BadLimit::Capacity { key, .. } if key == "call_count"));
    assert!(matches!(refusal(ResourceLimit::new("db", 0)), BadLimit::Capacity { key, .. } if key == "db"));
    let found = refusal(RateLimit::new("tokens", 1, Duration::ZERO)).to_string();
    assert!(found.starts_with("limit \"tokens\" has a window of 0ns; it must be 1 ns to "), "{found}");
    let found = refusal(CallLimit::per_second(1).burst(0)).to_string();
    assert!(found.starts_with("limit \"call_count\" has burst 0; it must be 1 to "), "{found}");
    let sliding = CallLimit::per_second(1).algorithm(Algorithm::SlidingWindow).resolution(0);
    assert_eq!(refusal(sliding).to_string(), "limit \"call_count\" has 0 sub-windows; it must be 1 to 500");
}

#[test]
fn numbers_that_would_overflow_are_refused() {
    let too_many = MAX_CAPACITY + 1;
    assert!(matches!(refusal(RateLimit::per_day("t", too_many)), BadLimit::Capacity { .. }));
    assert!(matches!(refusal(ResourceLimit::new("t", u64::MAX)), BadLimit::Capacity { .. }));
    let too_long = MAX_WINDOW + Duration::from_nanos(1);
    assert!(matches!(refusal(RateLimit::new("t", 1, too_long)), BadLimit::Window { .. }));
    assert!(matches!(refusal(RateLimit::new("t", 1, Duration::MAX)), BadLimit::Window { .. }));
    assert!(matches!(refusal(RateLimit::per_day("t", 1).burst(too_many)), BadLimit::Burst { .. }));
    let sliding = CallLimit::per_second(1).algorithm(Algorithm::SlidingWindow);
    assert!(matches!(refusal(sliding.resolution(MAX_RESOLUTION + 1)), BadLimit::Resolution { .. }));
}

#[test]
fn a_burst_must_fill_within_a_lifetime() {
    let per_year = |burst| RateLimit::new("t", 1, Duration::from_secs(365 * 86_400)).burst(burst);
    assert_eq!(validate(&[per_year(146).into()]), Ok(()));
    let found = refusal(per_year(147));
    assert!(matches!(found, BadLimit::BurstTooSlow { burst: 147, .. }), "{found}");
    assert!(matches!(
        refusal(RateLimit::new("t", 1, MAX_WINDOW).burst(MAX_CAPACITY)),
        BadLimit::BurstTooSlow { .. }
    ));
}

#[test]
fn a_setting_that_the_algorithm_does_not_know_is_refused() {
    for algorithm in WINDOWED {
        let found = refusal(RateLimit::per_day("t", 10).burst(5).algorithm(algorithm)).to_string();
        assert!(found.contains(&format!("a burst of 5, which {algorithm} does not support")), "{found}");
    }
    for algorithm in Algorithm::ALL {
        let outcome = validate(&[CallLimit::per_day(10).resolution(5).algorithm(*algorithm).into()]);
        assert_eq!(outcome.is_ok(), *algorithm == Algorithm::SlidingWindow, "{outcome:?}");
    }
}

#[test]
fn keys_are_short_unique_and_not_empty() {
    assert_eq!(refusal(ResourceLimit::new("", 1)), BadLimit::KeyEmpty { number: 2, most: 64 });
    assert!(matches!(refusal(ResourceLimit::new("k".repeat(65), 1)), BadLimit::KeyTooLong { found: 65, .. }));
    assert!(matches!(refusal(ResourceLimit::new("é".repeat(33), 1)), BadLimit::KeyTooLong { found: 66, .. }));
    assert!(matches!(refusal(ResourceLimit::new("a\0b", 1)), BadLimit::KeyZeroByte { .. }));
    assert_eq!(refusal(RateLimit::per_day("fine", 1)), BadLimit::KeyTwice { key: "fine".to_owned() });
    let calls = [CallLimit::per_minute(1).into(), CallLimit::per_day(1).into()];
    assert_eq!(validate(&calls), Err(BadLimit::KeyTwice { key: "call_count".to_owned() }));
    let apart = [CallLimit::per_minute(1).into(), CallLimit::per_day(1).key("rpd").into()];
    assert_eq!(validate(&apart), Ok(()));
}

#[test]
fn a_set_has_at_most_64_limits() {
    let limits =
        |count| (0..count).map(|it| ResourceLimit::new(format!("r{it}"), 1).into()).collect::<Vec<Limit>>();
    assert_eq!(validate(&limits(64)), Ok(()));
    let found = validate(&limits(66)).unwrap_err().to_string();
    assert_eq!(found, "too many limits: 66, \"r64\" is the first beyond 64; use several sets");
}

#[test]
fn only_rates_must_be_reported_and_only_unless_set() {
    let must = |limit: Limit| limit.must_report();
    assert!(must(RateLimit::per_day("t", 1).into()));
    assert!(!must(RateLimit::per_day("t", 1).report(Report::Optional).into()));
    assert!(!must(CallLimit::per_day(1).into()));
    assert!(!must(ResourceLimit::new("db", 1).into()));
}

#[test]
fn constructors_are_of_the_time_they_name() {
    let window = |limit: CallLimit| limit.window().as_secs();
    let windows =
        [CallLimit::per_second(1), CallLimit::per_minute(1), CallLimit::per_hour(1), CallLimit::per_day(1)];
    assert_eq!(windows.map(window), [1, 60, 3_600, 86_400]);
    let window = |limit: RateLimit| limit.window().as_secs();
    let windows = [RateLimit::per_second("t", 1), RateLimit::per_minute("t", 1), RateLimit::per_hour("t", 1)];
    assert_eq!(windows.map(window), [1, 60, 3_600]);
    assert_eq!(window(RateLimit::per_day("t", 1)), 86_400);
}
