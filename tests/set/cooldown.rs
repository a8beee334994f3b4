//! Pausing together after "too many requests", and resuming slowly.

use std::time::Duration;

use limitset::{AcquireError, CallLimit, Cooldown, LimitSetBuilder, RateLimit, ResourceLimit, UsageError};

use crate::worlds::{MINUTE, Set, World, manual, rules, three_kinds};

rules![
    a_report_pauses_the_whole_set_until_the_backoff_is_over,
    retry_after_is_a_floor,
    a_report_from_before_the_pause_begins_no_second_one,
    a_late_report_makes_the_pause_that_lasts_as_long_as_it_asks,
    pauses_in_a_row_grow_and_a_success_makes_them_short_again,
    a_success_from_before_the_pause_says_nothing_about_it,
    a_cancel_or_a_mere_charge_is_no_success,
    what_ends_by_a_report_returns_permits_and_owes_nothing,
    the_slow_start_spaces_admissions_by_gaps_that_fall,
    the_slow_start_holds_up_those_who_queue_too,
    a_pause_by_hand_is_at_least_as_long_as_asked,
    resuming_ends_a_pause_and_begins_the_slow_start,
    resuming_ends_a_pause_also_at_the_first_instant_of_a_clock,
    who_takes_nothing_is_not_held_up,
    what_can_never_be_is_said_also_during_a_pause,
    a_dry_run_says_that_the_set_is_cooling_down,
    a_pause_outlives_everybody_who_knows_of_it,
    an_endless_retry_after_ends_by_hand_only,
    a_timeout_says_that_the_set_is_cooling_down,
    charges_are_held_up_like_acquisitions,
    a_pause_in_a_slow_start_lets_nobody_in_earlier,
    taking_nothing_in_a_pause_is_no_success,
    more_that_was_acquired_after_a_pause_is_stamped_after_it,
    resuming_ends_whatever_is_answered_as_cooling_down,
];

const SECOND: Duration = Duration::from_secs(1);

/// Exact pauses of 10 s, 20 s, 40 s, 60 s; no slow start.
fn pausing() -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(10 * SECOND).longest(MINUTE).jitter(0.0);
    three_kinds().cooldown(cooldown.slow_start(0, SECOND, SECOND))
}

/// Returns how long the set is paused.
fn closed_for(set: &Set) -> Duration {
    match set.try_acquire([("tokens", 1)]) {
        Err(AcquireError::CoolingDown { remaining, .. }) => remaining,
        Ok(held) => {
            held.cancel().unwrap();
            Duration::ZERO
        }
        other => panic!("{other:?}"),
    }
}

fn a_report_pauses_the_whole_set_until_the_backoff_is_over(world: World) {
    let set = world.open(&pausing());
    let pause = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    assert_eq!((pause.remaining, pause.generation, pause.absorbed), (Some(10 * SECOND), 1, false));
    assert_eq!(closed_for(&set), 10 * SECOND);
    set.advance(10 * SECOND - Duration::from_nanos(1)).unwrap();
    assert_eq!(closed_for(&set), Duration::from_nanos(1));
    let stats = set.stats().unwrap().cooldown;
    assert_eq!((stats.generation, stats.consecutive, stats.participants, stats.absorbed), (1, 1, 1, 0));
    assert_eq!((stats.remaining, stats.next_admission), (Some(Duration::from_nanos(1)), stats.remaining));
    set.advance_nanos(1);
    set.try_acquire([("tokens", 1)]).unwrap().release().unwrap();
    assert_eq!(set.stats().unwrap().cooldown.remaining, None);
}

fn retry_after_is_a_floor(world: World) {
    let set = world.open(&pausing());
    let long = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(Some(90 * SECOND)).unwrap();
    assert_eq!(long.remaining, Some(90 * SECOND), "also beyond the longest pause");
    set.advance(90 * SECOND).unwrap();
    let short = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(Some(SECOND)).unwrap();
    assert_eq!(short.remaining, Some(20 * SECOND), "the second in a row");
}

fn a_report_from_before_the_pause_begins_no_second_one(world: World) {
    let set = world.open(&pausing());
    let [first, second, third] = [(); 3].map(|()| set.try_acquire([("tokens", 1)]).unwrap());
    first.rate_limited(None).unwrap();
    set.advance(4 * SECOND).unwrap();
    let pause = second.rate_limited(None).unwrap();
    assert_eq!((pause.remaining, pause.generation, pause.absorbed), (Some(6 * SECOND), 1, true));
    set.advance(6 * SECOND).unwrap();
    let pause = third.rate_limited(Some(MINUTE)).unwrap();
    assert_eq!((pause.remaining, pause.absorbed), (None, true), "also when the pause is over");
    assert_eq!(closed_for(&set), Duration::ZERO);
    let stats = set.stats().unwrap().cooldown;
    assert_eq!((stats.generation, stats.consecutive, stats.participants, stats.absorbed), (1, 1, 3, 2));
}

fn a_late_report_makes_the_pause_that_lasts_as_long_as_it_asks(world: World) {
    let set = world.open(&pausing());
    let [first, second, third] = [(); 3].map(|()| set.try_acquire([("tokens", 1)]).unwrap());
    first.rate_limited(None).unwrap();
    set.advance(5 * SECOND).unwrap();
    let pause = second.rate_limited(Some(30 * SECOND)).unwrap();
    assert_eq!((pause.remaining, pause.generation, pause.absorbed), (Some(30 * SECOND), 1, true));
    let pause = third.rate_limited(Some(2 * SECOND)).unwrap();
    assert_eq!(pause.remaining, Some(30 * SECOND), "never shorter");
    assert_eq!(closed_for(&set), 30 * SECOND);
}

fn pauses_in_a_row_grow_and_a_success_makes_them_short_again(world: World) {
    let set = world.open(&pausing());
    for expected in [10, 20, 40, 60, 60] {
        let pause = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
        assert_eq!(pause.remaining, Some(expected * SECOND));
        set.advance(expected * SECOND).unwrap();
    }
    set.try_acquire([("tokens", 1)]).unwrap().release().unwrap();
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 0);
    let pause = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    assert_eq!(pause.remaining, Some(10 * SECOND));

    // Also where a release has nothing to return.
    let set = world.open(&pausing_calls());
    for _ in 0..3 {
        set.try_acquire(()).unwrap().rate_limited(None).unwrap();
        set.advance(MINUTE).unwrap();
    }
    drop(set.try_acquire(()).unwrap());
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 0, "dropping is releasing");
}

fn pausing_calls() -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(10 * SECOND).longest(MINUTE).jitter(0.0);
    manual().limit(CallLimit::per_second(100)).cooldown(cooldown.slow_start(0, SECOND, SECOND))
}

fn a_success_from_before_the_pause_says_nothing_about_it(world: World) {
    let set = world.open(&pausing());
    let early = set.try_acquire([("tokens", 1)]).unwrap();
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    early.release().unwrap();
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 1);
    set.advance(10 * SECOND).unwrap();
    let pause = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    assert_eq!(pause.remaining, Some(20 * SECOND));
}

fn a_cancel_or_a_mere_charge_is_no_success(world: World) {
    let set = world.open(&pausing());
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    set.advance(10 * SECOND).unwrap();
    set.try_acquire([("tokens", 1)]).unwrap().cancel().unwrap();
    set.try_charge([("tokens", 1)]).unwrap();
    set.charge([("tokens", 1)]).unwrap();
    let failed = set.run([("tokens", 1)], |_| Err::<(), _>("no"));
    assert!(failed.is_err());
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 1);
    set.run([("tokens", 1)], |_| Ok::<_, ()>(())).unwrap();
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 0);
}

fn what_ends_by_a_report_returns_permits_and_owes_nothing(world: World) {
    let must_report = RateLimit::per_minute("tokens", 1_000);
    let set = world.open(&manual().limit(must_report).limit(ResourceLimit::new("connections", 2)));
    let held = set.try_acquire([("tokens", 300)]).unwrap();
    held.rate_limited(None).unwrap();
    let (tokens, connections) = (set.limit("tokens"), set.limit("connections"));
    assert_eq!((tokens.consumed, tokens.unreported, connections.in_use), (300, 0, 0));
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
}

/// Gaps of 100, 75, 50 and 25 ms, after pauses of a second.
fn slow() -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(SECOND).jitter(0.0);
    let ms = Duration::from_millis;
    manual().limit(CallLimit::per_second(1_000)).cooldown(cooldown.slow_start(4, ms(100), ms(25)))
}

fn the_slow_start_spaces_admissions_by_gaps_that_fall(world: World) {
    let set = world.open(&slow());
    let closed_for = || match set.try_acquire(()) {
        Err(AcquireError::CoolingDown { remaining, .. }) => Some(remaining.as_millis()),
        admitted => {
            admitted.unwrap().release().unwrap();
            None
        }
    };
    set.try_acquire(()).unwrap().rate_limited(None).unwrap();
    set.advance(SECOND).unwrap();
    assert_eq!(set.stats().unwrap().cooldown.slow_admissions, 4);
    for gap in [100, 75, 50, 25] {
        assert_eq!(closed_for(), None, "admitted");
        assert_eq!(closed_for(), Some(gap), "and not the next one");
        set.advance(Duration::from_millis(10)).unwrap();
        assert_eq!(closed_for(), Some(gap - 10));
        set.advance(Duration::from_millis(u64::try_from(gap - 10).unwrap())).unwrap();
    }
    assert_eq!([(); 9].map(|()| closed_for()), [None; 9], "then everybody");
    let stats = set.stats().unwrap().cooldown;
    assert_eq!((stats.slow_admissions, stats.next_admission), (0, None));
}

fn the_slow_start_holds_up_those_who_queue_too(world: World) {
    let set = world.open(&slow().segment(limitset::Segment::options().slots(4).waiters(8)));
    set.try_acquire(()).unwrap().rate_limited(None).unwrap();
    // Five wait; who they are is told by the order of their tickets.
    let limits = set.limits.clone();
    let waiting: Vec<_> = (0..5)
        .map(|place| {
            let limits = limits.clone();
            let waiter = std::thread::spawn(move || limits.acquire(()).map(|held| held.ticket()).unwrap());
            while set.stats().unwrap().waiters <= place {
                std::thread::yield_now();
            }
            waiter
        })
        .collect();
    set.advance(SECOND - Duration::from_nanos(1)).unwrap();
    assert_eq!(set.stats().unwrap().waiters, 5, "all sleep through the pause");
    set.advance_nanos(1);
    for (left, gap) in [(4, 100), (3, 75), (2, 50), (1, 25)] {
        assert_eq!(set.stats().unwrap().waiters, left, "one is admitted");
        assert!(matches!(set.try_acquire(()), Err(AcquireError::Queued { .. })), "nobody overtakes");
        set.advance(Duration::from_millis(gap) - Duration::from_nanos(1)).unwrap();
        assert_eq!(set.stats().unwrap().waiters, left, "and nobody in between");
        set.advance_nanos(1);
    }
    let tickets: Vec<_> = waiting.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    assert!(tickets.is_sorted());
}

fn a_pause_by_hand_is_at_least_as_long_as_asked(world: World) {
    let set = world.open(&pausing());
    let held = set.try_acquire([("tokens", 1)]).unwrap();
    assert_eq!(set.pause(30 * SECOND).unwrap().remaining, Some(30 * SECOND));
    assert_eq!(set.pause(5 * SECOND).unwrap().remaining, Some(30 * SECOND), "not shorter");
    assert_eq!(set.pause(MINUTE).unwrap().remaining, Some(MINUTE));
    let stats = set.stats().unwrap().cooldown;
    assert_eq!((stats.generation, stats.consecutive, stats.participants), (1, 0, 0));
    let late = held.rate_limited(None).unwrap();
    assert_eq!((late.remaining, late.absorbed), (Some(MINUTE), true), "sent before the pause");
    set.advance(MINUTE).unwrap();
    let pause = set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    assert_eq!((pause.remaining, pause.generation), (Some(10 * SECOND), 2));
}

fn resuming_ends_a_pause_and_begins_the_slow_start(world: World) {
    let set = world.open(&slow());
    assert!(!set.resume().unwrap(), "there is none");
    for _ in 0..3 {
        let pause = set.try_acquire(()).unwrap().rate_limited(None).unwrap();
        set.advance(pause.remaining.unwrap()).unwrap();
    }
    set.pause(MINUTE).unwrap();
    assert!(set.resume().unwrap());
    set.try_acquire(()).unwrap().release().unwrap();
    assert!(matches!(set.try_acquire(()), Err(AcquireError::CoolingDown { .. })), "slowly");
    set.advance(SECOND).unwrap();
    let pause = set.try_acquire(()).unwrap().rate_limited(None).unwrap();
    assert_eq!(pause.remaining, Some(SECOND), "and the count begins anew");
}

fn resuming_ends_a_pause_also_at_the_first_instant_of_a_clock(world: World) {
    let set = world.open(&pausing());
    set.pause(MINUTE).unwrap();
    assert!(set.resume().unwrap());
    assert_eq!(closed_for(&set), Duration::ZERO);
    let set = world.open(&slow());
    set.pause(MINUTE).unwrap();
    assert!(set.resume().unwrap());
    set.try_acquire(()).unwrap().release().unwrap();
    let refused = set.try_acquire(()).unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)), "slowly");
}

fn who_takes_nothing_is_not_held_up(world: World) {
    let set = world.open(&pausing());
    set.pause(MINUTE).unwrap();
    let nothing = [("tokens", 0), ("call_count", 0), ("connections", 0)];
    set.try_acquire(nothing).unwrap().release().unwrap();
    set.acquire(nothing).unwrap().release().unwrap();
    set.check(nothing).unwrap();
}

fn what_can_never_be_is_said_also_during_a_pause(world: World) {
    let set = world.open(&pausing());
    set.pause(MINUTE).unwrap();
    assert!(matches!(set.try_acquire([("tokens", 1_001)]), Err(AcquireError::Never { .. })));
    assert!(matches!(set.acquire([("tokens", 1_001)]), Err(AcquireError::Never { .. })));
    assert!(matches!(set.check([("tokens", 1_001)]), Err(AcquireError::Never { .. })));
}

fn a_dry_run_says_that_the_set_is_cooling_down(world: World) {
    let set = world.open(&pausing());
    set.pause(MINUTE).unwrap();
    let refused = set.check([("tokens", 1)]).unwrap_err();
    assert_eq!(refused.retry_after(), Some(MINUTE));
    assert_eq!(refused.to_string(), "the set is cooling down for another 60s: wait, or try again then");
    set.advance(MINUTE).unwrap();
    set.check([("tokens", 1)]).unwrap();
}

fn a_pause_outlives_everybody_who_knows_of_it(world: World) {
    let set = world.open(&pausing());
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(Some(MINUTE)).unwrap();
    if world == World::Process {
        let Set { limits, name } = set;
        drop(limits);
        let limits = limitset::LimitSet::attach(&name).unwrap();
        let set = Set { limits, name };
        assert_eq!(closed_for(&set), MINUTE);
        assert_eq!(set.stats().unwrap().cooldown.generation, 1);
    }
}

fn an_endless_retry_after_ends_by_hand_only(world: World) {
    let set = world.open(&pausing());
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(Some(Duration::MAX)).unwrap();
    set.advance(1_000_000 * MINUTE).unwrap();
    assert!(closed_for(&set) > 1_000_000 * MINUTE);
    assert!(set.resume().unwrap());
    assert_eq!(closed_for(&set), Duration::ZERO);
}

fn a_timeout_says_that_the_set_is_cooling_down(world: World) {
    let set = world.open(&pausing());
    set.pause(MINUTE).unwrap();
    let Err(AcquireError::TimedOut(late)) = set.acquire_timeout([("tokens", 1)], Duration::from_millis(1))
    else {
        panic!("granted in a pause")
    };
    assert_eq!((late.cooling_down, late.bottleneck()), (Some(MINUTE), None));
    assert!(late.to_string().contains("the set is cooling down for another 60s"), "{late}");
}

fn charges_are_held_up_like_acquisitions(world: World) {
    let set = world.open(&pausing());
    let mut held = set.try_acquire([("tokens", 1)]).unwrap();
    set.pause(MINUTE).unwrap();
    assert!(matches!(set.try_charge([("tokens", 1)]), Err(AcquireError::CoolingDown { .. })));
    assert!(matches!(held.acquire_more([("tokens", 1)]), Err(AcquireError::CoolingDown { .. })));
    let late = set.charge_timeout([("tokens", 1)], Duration::from_millis(1));
    assert!(matches!(late, Err(AcquireError::TimedOut(_))));
    assert!(matches!(held.update("connections", 7), Err(UsageError::AboveRequested { .. })));
    held.release().unwrap();
    assert_eq!(set.limit("tokens").consumed, 1);
}

fn a_pause_in_a_slow_start_lets_nobody_in_earlier(world: World) {
    let next = |set: &Set| set.stats().unwrap().cooldown.next_admission;
    let gap = Duration::from_millis(100);
    let set = world.open(&slow());
    set.pause(SECOND).unwrap();
    set.advance(SECOND).unwrap();
    let held = set.try_acquire(()).unwrap();
    assert_eq!(next(&set), Some(gap));
    set.pause(Duration::from_millis(1)).unwrap();
    assert_eq!(next(&set), Some(gap), "by hand");
    set.advance(gap).unwrap();
    held.release().unwrap();
    // Nor does a 429, where the pause is shorter than the gap.
    let cooldown = Cooldown::default().first(Duration::from_millis(10)).jitter(0.0);
    let set =
        world.open(&manual().limit(CallLimit::per_second(1_000)).cooldown(cooldown.slow_start(4, gap, gap)));
    set.try_acquire(()).unwrap().rate_limited(None).unwrap();
    set.advance(Duration::from_millis(10)).unwrap();
    set.try_acquire(()).unwrap().rate_limited(None).unwrap();
    assert_eq!(next(&set), Some(gap));
}

fn taking_nothing_in_a_pause_is_no_success(world: World) {
    let set = world.open(&pausing());
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    set.try_acquire([("tokens", 0), ("call_count", 0), ("connections", 0)]).unwrap().release().unwrap();
    assert_eq!(set.stats().unwrap().cooldown.consecutive, 1);
}

fn more_that_was_acquired_after_a_pause_is_stamped_after_it(world: World) {
    let set = world.open(&pausing());
    let mut held = set.try_acquire([("tokens", 1)]).unwrap();
    set.try_acquire([("tokens", 1)]).unwrap().rate_limited(None).unwrap();
    set.advance(10 * SECOND).unwrap();
    held.acquire_more([("tokens", 1)]).unwrap();
    let pause = held.rate_limited(Some(MINUTE)).unwrap();
    assert_eq!((pause.absorbed, pause.remaining, pause.generation), (false, Some(MINUTE), 2));
}

fn resuming_ends_whatever_is_answered_as_cooling_down(world: World) {
    let set = world.open(&slow());
    set.pause(SECOND).unwrap();
    set.advance(SECOND).unwrap();
    set.try_acquire(()).unwrap().release().unwrap();
    assert!(matches!(set.try_acquire(()), Err(AcquireError::CoolingDown { .. })), "a gap");
    assert!(set.resume().unwrap());
    set.try_acquire(()).unwrap().release().unwrap();
    let left = set.stats().unwrap().cooldown.slow_admissions;
    assert_eq!(left, 2, "the slow start goes on");
}
