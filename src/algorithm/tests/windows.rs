//! Windows: no window of that length holds more than the capacity; for fixed windows, no aligned one.

use super::{Algorithm, Answer, Limiter, MINUTE, Random, Rule, SECOND};

/// Admissions, by instant.
type Log = Vec<(u64, u64)>;

/// Returns the largest sum of admissions in any window of the length; a fullest window begins at one of them.
fn fullest(log: &Log, window: u64) -> u64 {
    let in_window = |from: u64| log.iter().filter(move |(at, _)| (from..from + window).contains(at));
    log.iter().map(|(from, _)| in_window(*from).map(|(_, units)| units).sum()).max().unwrap_or(0)
}

/// Returns when an exact log of admissions would admit `amount`.
fn exact_later(log: &Log, rule: &Rule, now: u64, amount: u64) -> u64 {
    let counted = |at: u64| -> u64 {
        log.iter().filter(|(then, _)| then + rule.window_nanos() > at).map(|(_, units)| units).sum()
    };
    let fits = |at: &u64| *at >= now && counted(*at) + amount <= rule.capacity();
    log.iter().map(|(then, _)| then + rule.window_nanos()).chain([now]).filter(fits).min().unwrap()
}

fn sliding_rules() -> Vec<Rule> {
    let numbers = [
        (5, 100, 1),
        (5, 100, 10),
        (20, 97, 7),
        (3, 10, 10),
        (4, 10, 500),
        (100, 1_000, 3),
        (50, SECOND, 60),
    ];
    let rule = |(capacity, window, resolution)| {
        Rule::new(Algorithm::SlidingWindow, capacity, window).with_resolution(resolution)
    };
    numbers.into_iter().map(rule).collect()
}

#[test]
fn a_sliding_window_never_holds_more_than_its_capacity_wherever_it_begins() {
    for rule in sliding_rules() {
        for seed in 0..10 {
            let mut random = Random(seed);
            let (mut now, mut limiter, mut log) = (seed * 31, Limiter::new(rule, seed * 31), Log::new());
            for step in 0..400 {
                let amount = random.up_to(rule.capacity()).max(1);
                match limiter.acquire(now, amount) {
                    Answer::Yes => log.push((now, amount)),
                    // Half of the time, the request is repeated at the earliest instant given, where an
                    // excess would show.
                    Answer::Later(at) if random.one_in(2) => now = at,
                    _ => now += random.up_to(rule.window_nanos() / 3),
                }
                if step % 50 == 49 {
                    // Debt must not open a gap either.
                    limiter.adjust(now, random.up_to(2 * rule.capacity()).cast_signed());
                }
            }
            assert!(log.len() > 50, "{rule:?} admitted only {}", log.len());
            assert!(fullest(&log, rule.window_nanos()) <= rule.capacity(), "{rule:?}, seed {seed}: {log:?}");
        }
    }
}

#[test]
fn a_sliding_window_is_later_than_an_exact_log_by_less_than_a_sub_window() {
    for rule in sliding_rules() {
        let sub_window = rule.window_nanos().div_ceil(rule.resolution().into());
        let mut latest = 0;
        for seed in 0..10 {
            let mut random = Random(seed);
            let (mut now, mut limiter, mut log) = (seed * 31, Limiter::new(rule, seed * 31), Log::new());
            for _ in 0..300 {
                let amount = random.up_to(rule.capacity()).max(1);
                let exact = exact_later(&log, &rule, now, amount);
                match limiter.acquire(now, amount) {
                    Answer::Yes => {
                        assert_eq!(exact, now, "{rule:?} at {now}: more than an exact log would admit");
                        log.push((now, amount));
                    }
                    Answer::Later(at) => {
                        assert!((exact..exact + sub_window).contains(&at), "{rule:?}: {at}, exact {exact}");
                        latest = latest.max(at - exact);
                        now = if random.one_in(4) { at } else { now + random.up_to(sub_window * 2) };
                    }
                    Answer::Never => panic!("{rule:?}"),
                }
            }
        }
        let exact_anyway = sub_window == 1;
        assert!(exact_anyway || latest > 0, "{rule:?}: the schedules never show the difference");
    }
}

#[test]
fn a_sliding_window_of_one_sub_window_forgets_everything_at_once() {
    let rule = Rule::new(Algorithm::SlidingWindow, 10, 100).with_resolution(1);
    let mut limiter = Limiter::new(rule, 1_000);
    assert_eq!(limiter.acquire(1_000, 5), Answer::Yes);
    assert_eq!(limiter.acquire(1_099, 5), Answer::Yes);
    assert_eq!(limiter.acquire(1_099, 1), Answer::Later(1_199));
}

#[test]
fn a_sliding_window_pays_debt_out_of_the_windows_that_follow() {
    let rule = Rule::new(Algorithm::SlidingWindow, 10, 100);
    let mut limiter = Limiter::new(rule, 1_000);
    assert_eq!(limiter.acquire(1_000, 10), Answer::Yes);
    limiter.adjust(1_000, 25);
    assert_eq!(limiter.available(1_000), -25);
    // Two and a half windows of debt, then one window for the admitted units.
    assert_eq!(limiter.available(1_249), -1);
    assert_eq!(limiter.available(1_250), 0);
    assert_eq!(limiter.acquire(1_000, 1), Answer::Later(1_350));
    assert_eq!(limiter.available(1_350), 10);
}

#[test]
fn a_fixed_window_holds_no_more_than_its_capacity_between_aligned_edges() {
    for (capacity, window, offset) in [(5, 100, 0), (7, 97, 31), (50, SECOND, 1_753_000_000_123_456_789)] {
        let rule = Rule::new(Algorithm::FixedWindow, capacity, window).with_wall_offset(offset);
        let mut random = Random(capacity);
        let (mut now, mut limiter) = (1_000, Limiter::new(rule, 1_000));
        let (mut in_window, mut units_in_window, mut full_windows) = (0, 0, 0);
        for _ in 0..5_000 {
            let number = (now + offset) / window;
            if number != in_window {
                (in_window, units_in_window) = (number, 0);
            }
            let amount = random.up_to(capacity).max(1);
            match limiter.acquire(now, amount) {
                Answer::Yes => units_in_window += amount,
                Answer::Later(at) => {
                    assert_eq!((at + offset) % window, 0, "a window begins at a multiple of its length");
                    assert_eq!((at + offset) / window, number + 1, "the next window has room for anything");
                    now += random.up_to(window / 2);
                }
                Answer::Never => panic!("{rule:?}"),
            }
            assert!(units_in_window <= capacity, "{rule:?}, window {number}");
            full_windows += u32::from(units_in_window == capacity);
        }
        assert!(full_windows > 20, "{rule:?}: the capacity was reached only {full_windows} times");
    }
}

#[test]
fn a_fixed_window_admits_twice_its_capacity_around_an_edge_and_a_sliding_one_does_not() {
    let log = |algorithm| {
        let mut limiter = Limiter::new(Rule::new(algorithm, 100, MINUTE), 0);
        let (before, after) = (MINUTE - SECOND, MINUTE);
        let mut log = vec![(before, limiter.take_all(before))];
        log.push((after, limiter.take_all(after)));
        log
    };
    assert_eq!(fullest(&log(Algorithm::FixedWindow), MINUTE), 200);
    assert_eq!(fullest(&log(Algorithm::SlidingWindow), MINUTE), 100);
}

#[test]
fn fixed_windows_are_those_of_the_wall_clock() {
    // Set time began at 1 000 s on the wall; the minute that began at 960 s ends at 1 020 s.
    let rule = Rule::new(Algorithm::FixedWindow, 10, MINUTE).with_wall_offset(1_000 * SECOND);
    let mut limiter = Limiter::new(rule, 0);
    assert_eq!(limiter.acquire(0, 10), Answer::Yes);
    assert_eq!(limiter.acquire(5 * SECOND, 1), Answer::Later(20 * SECOND));
}

#[test]
fn a_fixed_window_pays_debt_out_of_the_windows_that_follow() {
    let mut limiter = Limiter::new(Rule::new(Algorithm::FixedWindow, 10, 100), 0);
    assert_eq!(limiter.acquire(0, 10), Answer::Yes);
    limiter.adjust(0, 25);
    assert_eq!(limiter.available(0), -25);
    assert_eq!([100, 199, 200, 300].map(|now| limiter.available(now)), [-15, -15, -5, 5]);
    assert_eq!(limiter.acquire(0, 5), Answer::Later(300));
    assert_eq!(limiter.acquire(0, 6), Answer::Later(400));
}
