//! Rates over simulated years: the error is zero units for clock steps of any size.

use super::{Algorithm, Answer, DAY, Limiter, Random, Rule, SECOND, rules};

const BUCKETS: [Algorithm; 3] = [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra];
const YEAR: u64 = 365 * DAY;

/// Units that have flown since the start, exactly.
fn flown(rule: &Rule, elapsed: u64) -> u128 {
    u128::from(elapsed) * u128::from(rule.capacity()) / u128::from(rule.window_nanos())
}

#[test]
fn a_greedy_client_gets_the_burst_and_the_rate_to_the_unit_over_years() {
    for algorithm in BUCKETS {
        for rule in rules(algorithm) {
            // Polls so often that the bucket is never full again, with any remainder.
            let fill =
                u128::from(rule.burst() - 1) * u128::from(rule.window_nanos()) / u128::from(rule.capacity());
            let stride = u64::try_from(fill).unwrap().min(DAY);
            if stride < 2 {
                continue;
            }
            let mut random = Random(rule.capacity());
            let start = 123_456_789;
            let (mut now, mut limiter) = (start, Limiter::new(rule, start));
            let mut taken = u128::from(limiter.take_all(now));
            let mut polls = 0;
            while now - start < 5 * YEAR && polls < 20_000 {
                now += 1 + random.up_to(stride - 2);
                taken += u128::from(limiter.take_all(now));
                polls += 1;
                assert_eq!(taken, u128::from(rule.burst()) + flown(&rule, now - start), "{rule:?} at {now}");
            }
        }
    }
}

#[test]
fn a_client_that_waits_as_told_gets_the_rate_to_the_unit() {
    for algorithm in BUCKETS {
        for (capacity, window) in [(7, 3 * SECOND), (100_000, 60 * SECOND), (86_399, DAY), (3, 7), (999, DAY)]
        {
            let rule = Rule::new(algorithm, capacity, window);
            let (mut now, mut limiter) = (0, Limiter::new(rule, 0));
            let mut random = Random(capacity);
            let mut taken = 0;
            for _ in 0..20_000 {
                // Less than the bucket holds: a full one would have no room for the part of a unit that comes
                // between the instant it is full and the next nanosecond.
                let amount = random.up_to(capacity - 1).max(1);
                if let Answer::Later(at) = limiter.acquire(now, amount) {
                    now = at;
                    assert_eq!(limiter.acquire(now, amount), Answer::Yes);
                }
                taken += u128::from(amount);
                let left = u128::try_from(limiter.available(now)).unwrap();
                assert_eq!(taken + left, u128::from(capacity) + flown(&rule, now), "{rule:?} at {now}");
            }
        }
    }
}

#[test]
fn polling_every_nanosecond_loses_nothing() {
    for algorithm in BUCKETS {
        let rule = Rule::new(algorithm, 3, 100_003);
        let mut limiter = Limiter::new(rule, 0);
        let mut taken = limiter.take_all(0);
        for now in 1..=100_003 {
            taken += limiter.take_all(now);
            // Charges an amount that changes the state at every step, and refunds it where the algorithm can.
            if rule.algorithm().refunds() {
                limiter.adjust(now, 1);
                assert_eq!(limiter.refund(now, 1), 1);
            }
        }
        assert_eq!(taken, 6, "{algorithm}");
    }
}

#[test]
fn a_thousand_years_of_idleness_fill_a_bucket_and_no_more() {
    for algorithm in Algorithm::ALL {
        for rule in rules(*algorithm) {
            let mut limiter = Limiter::new(rule, 0);
            limiter.take_all(0);
            let most = i64::try_from(limiter.most()).unwrap();
            assert_eq!(limiter.available(u64::MAX), most, "{rule:?}");
            assert_eq!(limiter.acquire(u64::MAX, limiter.most()), Answer::Yes, "{rule:?}");
        }
    }
}

#[test]
fn debt_is_paid_at_the_rate_to_the_nanosecond() {
    for algorithm in BUCKETS {
        for rule in rules(algorithm) {
            let mut limiter = Limiter::new(rule, 0);
            limiter.take_all(0);
            let debt = rule.burst().min(1 << 60) * 2 + 1;
            limiter.adjust(0, i64::try_from(debt).unwrap());
            assert_eq!(limiter.available(0), -i64::try_from(debt).unwrap(), "{rule:?}");
            let exact = (u128::from(debt) + 1) * u128::from(rule.window_nanos());
            let at = u64::try_from(exact.div_ceil(u128::from(rule.capacity()))).unwrap();
            assert_eq!(limiter.acquire(0, 1), Answer::Later(at), "{rule:?}");
        }
    }
}

#[test]
fn windows_admit_their_capacity_in_each_window_for_years() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let rule = Rule::new(algorithm, 1_000, DAY);
        let (mut now, mut limiter) = (0, Limiter::new(rule, 0));
        for day in 0..20 * 365 {
            assert_eq!(now, day * DAY, "{algorithm}");
            for _ in 0..4 {
                assert_eq!(limiter.acquire(now, 250), Answer::Yes);
            }
            let Answer::Later(at) = limiter.acquire(now, 1) else { panic!("{algorithm} admits too much") };
            now = at;
        }
    }
}

#[test]
fn steady_overshoot_lowers_the_rate_by_as_much() {
    // Every request turns out to have used a tenth more than its amount. The actual use keeps the rate.
    for algorithm in Algorithm::ALL {
        let rule = Rule::new(*algorithm, 1_000, SECOND).with_resolution(20);
        let (mut now, mut limiter) = (0, Limiter::new(rule, 0));
        let (mut used, mut unreported) = (0, 0);
        while now < 2_000 * SECOND {
            match limiter.acquire(now, 100) {
                Answer::Yes => unreported += 10,
                Answer::Later(_) if unreported > 0 => {
                    limiter.adjust(now, unreported);
                    used += 11 * u64::try_from(unreported).unwrap();
                    unreported = 0;
                }
                Answer::Later(at) => {
                    assert!(at > now, "{algorithm}");
                    now = at;
                }
                Answer::Never => panic!("{algorithm}"),
            }
        }
        let allowed = 1_000 * (now / SECOND);
        assert!(used <= allowed + 2 * 1_000, "{algorithm}: {used} used of {allowed}");
        assert!(used + 2 * 1_000 >= allowed, "{algorithm}: only {used} used of {allowed}");
    }
}
