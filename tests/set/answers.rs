//! What a refusal says, and that a dry run says the same.

use std::time::Duration;

use limitset::{AcquireError, Algorithm, CallLimit, RateLimit, Report, ResourceLimit};

use crate::support::Random;
use crate::worlds::{MINUTE, Set, World, denial, manual, rules};

rules![
    all_limits_are_charged_or_none,
    a_denial_names_every_limit_in_order,
    violations_are_the_limits_in_the_way_and_only_they_count_the_denial,
    more_than_a_limit_ever_gives_is_never_and_not_later,
    never_comes_before_later,
    the_bottleneck_is_the_rate_that_takes_longest,
    held_permits_are_the_bottleneck_and_nobody_knows_for_how_long,
    waiting_for_retry_after_succeeds_and_one_nanosecond_less_does_not,
    with_several_rates_retry_after_is_the_longest_and_exact,
    other_errors_have_no_retry_after,
    a_denial_says_what_to_do,
    a_check_changes_nothing_and_answers_what_acquiring_does,
    a_check_that_passes_gives_every_status,
    tickets_count_grants_in_order,
];

const SECOND: Duration = Duration::from_secs(1);

/// Two rates, calls and permits, of different sizes.
fn four(world: World) -> Set {
    world.open(
        &manual()
            .limit(RateLimit::per_second("input", 100).report(Report::Optional))
            .limit(RateLimit::per_minute("output", 60).report(Report::Optional))
            .limit(CallLimit::per_minute(30))
            .limit(ResourceLimit::new("connections", 3)),
    )
}

fn all_limits_are_charged_or_none(world: World) {
    // One after the other is used up; then a request for a bit of everything leaves no trace but its denial.
    for used_up in ["input", "output", "call_count", "connections"] {
        let set = four(world);
        let most = set.limit(used_up).burst;
        let none = [("input", 0), ("output", 0), ("call_count", 0), ("connections", 0)];
        let all_of_one = none.map(|(key, _)| (key, if key == used_up { most } else { 0 }));
        let held = set.try_acquire(all_of_one).unwrap();
        let before = set.stats().unwrap();
        let denial = denial(set.try_acquire([("input", 1), ("output", 1)]));
        assert_eq!(denial.violations().map(|it| it.key).collect::<Vec<_>>(), [used_up]);
        let mut after = set.stats().unwrap();
        after.sweeps = before.sweeps;
        for limit in &mut after.limits {
            assert_eq!(limit.denied, u64::from(limit.key == used_up));
            limit.denied = 0;
        }
        assert_eq!(after, before, "{used_up}");
        held.release().unwrap();
    }
}

fn a_denial_names_every_limit_in_order(world: World) {
    let set = four(world);
    let held = set.try_acquire([("output", 50), ("connections", 2)]).unwrap();
    let denial = denial(set.try_acquire([("output", 20), ("connections", 2)]));
    let all: Vec<_> = denial
        .statuses()
        .iter()
        .map(|it| (it.key, it.requested, it.available, it.most, it.passed, it.retry_after))
        .collect();
    let expected = [
        ("input", 0, 100, 100, true, None),
        ("output", 20, 10, 60, false, Some(10 * SECOND)),
        ("call_count", 1, 29, 30, true, None),
        ("connections", 2, 1, 3, false, None),
    ];
    assert_eq!(all, expected);
    assert_eq!(denial.statuses().get("output").unwrap().requested, 20);
    assert_eq!(denial.statuses().get("outputs"), None);
    drop(held);
}

fn violations_are_the_limits_in_the_way_and_only_they_count_the_denial(world: World) {
    let set = four(world);
    let held = set.try_acquire([("output", 60), ("input", 100), ("connections", 1)]).unwrap();
    let denial = denial(set.try_acquire([("input", 1), ("output", 1)]));
    assert_eq!(denial.violations().map(|it| it.key).collect::<Vec<_>>(), ["input", "output"]);
    let denied = ["input", "output", "call_count", "connections"].map(|key| set.limit(key).denied);
    assert_eq!(denied, [1, 1, 0, 0]);
    drop(held);
}

fn more_than_a_limit_ever_gives_is_never_and_not_later(world: World) {
    let set = four(world);
    for (key, most) in [("input", 100), ("output", 60), ("call_count", 30), ("connections", 3)] {
        let answer = set.try_acquire([(key, most + 1)]).unwrap_err();
        let AcquireError::Never { key: named, requested, most: found } = &answer else { panic!("{answer}") };
        assert_eq!((&**named, *requested, *found), (key, most + 1, most));
        let message =
            format!("{} of {key:?} can never be had: at most {most} at once; ask for less", most + 1);
        assert_eq!(answer.to_string(), message);
        assert_eq!(answer.retry_after(), None);
        assert!(matches!(set.check([(key, u64::MAX)]), Err(AcquireError::Never { requested: u64::MAX, .. })));
        set.try_acquire([(key, most)]).unwrap().cancel().unwrap();
    }
    // A burst is the most at once, be it less than the capacity or more.
    for burst in [5, 500] {
        let limit = RateLimit::per_minute("tokens", 50).burst(burst).report(Report::Optional);
        let set = world.open(&manual().limit(limit));
        let answer = set.try_acquire([("tokens", burst + 1)]);
        assert!(matches!(answer, Err(AcquireError::Never { most, .. }) if most == burst));
        set.try_acquire([("tokens", burst)]).unwrap().release().unwrap();
        denial(set.try_acquire([("tokens", burst)]));
    }
}

fn never_comes_before_later(world: World) {
    let set = four(world);
    let held = set.try_acquire([("input", 100), ("connections", 3)]).unwrap();
    let answer = set.try_acquire([("input", 1), ("output", 61)]);
    assert!(matches!(answer, Err(AcquireError::Never { key, .. }) if *key == *"output"));
    drop(held);
}

fn the_bottleneck_is_the_rate_that_takes_longest(world: World) {
    let set = four(world);
    let held = set.try_acquire([("input", 100), ("output", 60), ("connections", 0)]).unwrap();
    let slow_output = denial(set.try_acquire([("input", 100), ("output", 2)]));
    assert_eq!(slow_output.bottleneck().unwrap().key, "output");
    assert_eq!(slow_output.retry_after(), Some(2 * SECOND));
    let slow_input = denial(set.try_acquire([("input", 100), ("output", 0)]));
    assert_eq!(slow_input.bottleneck().unwrap().key, "input");
    assert_eq!(slow_input.retry_after(), Some(SECOND));
    held.release().unwrap();
}

fn held_permits_are_the_bottleneck_and_nobody_knows_for_how_long(world: World) {
    let set = four(world);
    let held = set.try_acquire([("output", 60), ("connections", 3)]).unwrap();
    let answer = set.try_acquire([("output", 60)]).unwrap_err();
    assert_eq!(answer.retry_after(), None);
    let denial = denial(Err::<(), _>(answer));
    assert_eq!(denial.bottleneck().unwrap().key, "connections");
    assert_eq!(denial.retry_after(), None);
    let output = denial.statuses().get("output").unwrap();
    assert_eq!(output.retry_after, Some(MINUTE), "of the rate alone it is known");
    drop(held);
}

/// Asks; if denied, shows that it is the wait to the nanosecond, and takes it then.
fn takes_exactly_then(set: &Set, amount: u64) {
    let Err(answer) = set.try_acquire([("tokens", amount)]).map(drop) else { return };
    let wait = answer.retry_after().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(denial(set.check([("tokens", amount)])).retry_after(), Some(wait));
    assert!(wait > Duration::ZERO, "{answer}");
    set.advance(wait - Duration::from_nanos(1)).unwrap();
    let early = denial(set.try_acquire([("tokens", amount)]));
    assert_eq!(early.retry_after(), Some(Duration::from_nanos(1)), "{amount} after {wait:?}");
    set.advance_nanos(1);
    set.check([("tokens", amount)]).unwrap();
    set.try_acquire([("tokens", amount)]).unwrap().release().unwrap();
}

fn waiting_for_retry_after_succeeds_and_one_nanosecond_less_does_not(world: World) {
    for algorithm in Algorithm::ALL {
        for (seed, (capacity, window)) in
            [(7, 3_000_000_001), (1_000, 60_000_000_000), (3, 1_000), (1, 1)].into_iter().enumerate()
        {
            let limit = RateLimit::new("tokens", capacity, Duration::from_nanos(window))
                .algorithm(*algorithm)
                .report(Report::Optional);
            let set = world.open(&manual().limit(limit));
            let mut random = Random::new(seed as u64 + 1);
            for _ in 0..40 {
                takes_exactly_then(&set, 1 + random.below(capacity));
                set.advance_nanos(random.below(window / 3 + 1));
            }
            assert!(set.limit("tokens").denied > 0, "it was never made to wait");
        }
    }
}

fn with_several_rates_retry_after_is_the_longest_and_exact(world: World) {
    for slow in Algorithm::ALL {
        let tokens = RateLimit::new("tokens", 11, 7 * SECOND).algorithm(*slow).report(Report::Optional);
        let set = world.open(&manual().limit(tokens).limit(CallLimit::new(3, 5 * SECOND)));
        for amount in [11, 4, 11, 1, 2, 1, 1, 1, 11] {
            takes_exactly_then(&set, amount);
        }
    }
}

fn other_errors_have_no_retry_after(world: World) {
    let set = four(world);
    assert_eq!(set.try_acquire(()).unwrap_err().retry_after(), None);
    set.remove().unwrap();
    let removed = set.try_acquire([("input", 1)]).unwrap_err();
    assert!(matches!(removed, AcquireError::Removed));
    assert_eq!(removed.retry_after(), None);
}

fn a_denial_says_what_to_do(world: World) {
    let set = four(world);
    let held = set.try_acquire([("output", 60), ("connections", 2)]).unwrap();
    let rate = set.try_acquire([("output", 30)]).unwrap_err().to_string();
    assert_eq!(rate, "30 of \"output\" wanted, 0 available: try again in 30s");
    let permits = set.try_acquire([("connections", 2)]).unwrap_err().to_string();
    let expected = "2 of \"connections\" wanted, 1 available: try again when others have given theirs back";
    assert_eq!(permits, expected);
    drop(held);
}

fn a_check_changes_nothing_and_answers_what_acquiring_does(world: World) {
    for algorithm in Algorithm::ALL {
        let input = RateLimit::per_second("input", 100).algorithm(*algorithm).report(Report::Optional);
        let set = world.open(&manual().limit(input).limit(ResourceLimit::new("connections", 3)));
        let mut random = Random::new(9);
        let (mut granted, mut denied, mut held) = (0, 0, Vec::new());
        for _ in 0..200 {
            let asked = [("input", random.below(110)), ("connections", random.below(3))];
            let before = set.stats().unwrap();
            let checked = set.check(asked);
            let after = set.stats().unwrap();
            assert_eq!((after.limits, after.participants), (before.limits, before.participants));
            match (checked, set.try_acquire(asked)) {
                (Ok(statuses), Ok(taken)) => {
                    assert!(statuses.iter().all(|it| it.passed));
                    granted += 1;
                    held.push(taken);
                }
                (Err(checked), Err(refused)) => {
                    assert_eq!(checked.to_string(), refused.to_string());
                    assert_eq!(checked.retry_after(), refused.retry_after());
                    denied += 1;
                }
                (checked, taken) => panic!("{checked:?} but {taken:?}"),
            }
            if random.below(2) == 0 {
                held.clear();
            }
            set.advance_nanos(random.below(1_000_000_000));
        }
        assert!(granted > 20 && denied > 20, "{granted} granted, {denied} denied");
    }
}

fn a_check_that_passes_gives_every_status(world: World) {
    let set = four(world);
    let held = set.try_acquire([("input", 40)]).unwrap();
    let statuses = set.check([("input", 60)]).unwrap();
    let found: Vec<_> = statuses.iter().map(|it| (it.key, it.requested, it.available, it.passed)).collect();
    let expected = [
        ("input", 60, 60, true),
        ("output", 0, 60, true),
        ("call_count", 1, 29, true),
        ("connections", 1, 2, true),
    ];
    assert_eq!(found, expected);
    assert!(statuses.iter().all(|it| it.retry_after.is_none()));
    held.release().unwrap();
}

fn tickets_count_grants_in_order(world: World) {
    let set = four(world);
    let first = set.try_acquire([("input", 1)]).unwrap();
    assert!(set.try_acquire([("connections", 3)]).is_err());
    let second = set.try_acquire([("input", 1)]).unwrap();
    assert_eq!(second.ticket(), first.ticket() + 1, "a refusal gets no number");
}
