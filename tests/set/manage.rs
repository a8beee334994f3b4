//! Changing a set as a whole: new numbers, a reset, a moved clock, an end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::limit::BadLimit;
use limitset::protocol::NEVER;
use limitset::{
    AcquireError, Algorithm, CallLimit, Clock, Limit, LimitSet, ManageError, RateLimit, Report,
    ResourceLimit, Segment, UsageError,
};

use crate::worlds::{HOUR, MINUTE, World, denial, manual, pairs, rules};

rules![
    reconfiguring_changes_the_numbers_and_counts_it,
    what_is_available_is_cut_to_a_lower_capacity,
    debt_outlives_a_reconfiguration,
    permits_above_a_lower_capacity_drain,
    a_higher_capacity_of_permits_is_there_at_once,
    a_request_above_the_new_capacity_is_never,
    several_limits_change_together_or_not_at_all,
    only_numbers_can_change,
    what_was_declared_is_remembered_beside_what_is,
    a_reset_makes_rates_fresh_and_leaves_permits_and_counters,
    what_was_charged_before_a_reset_cannot_be_given_back_after_it,
    a_manual_clock_moves_only_by_hand,
    a_clock_moved_as_far_as_it_goes_admits_no_more_than_before,
    a_clock_that_moves_itself_cannot_be_moved,
    time_that_passes_gives_what_the_rate_says,
    decisions_and_looks_never_go_back_behind_the_last_decision,
    who_waited_for_the_lock_decides_by_the_time_it_is_then,
    a_removed_set_answers_removed_to_everything,
    nobody_dead_means_nothing_to_reap,
];

const SECOND: Duration = Duration::from_secs(1);
/// The word of the set that keeps the instant of the last decision; see docs/format.md.
const LAST_NOW: usize = 0;

fn reconfiguring_changes_the_numbers_and_counts_it(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = |capacity, window| RateLimit::new("tokens", capacity, window).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate(60, MINUTE)));
        set.reconfigure([rate(20, 10 * SECOND)]).unwrap();
        let now = set.limit("tokens");
        let numbers = (now.capacity, now.window, now.burst, now.revision);
        assert_eq!(numbers, (20, Some(10 * SECOND), 20, 1), "{algorithm}");
        set.reconfigure([rate(600, HOUR)]).unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.capacity, now.window, now.burst, now.revision), (600, Some(HOUR), 600, 2));
        // In time it gives what the new numbers say.
        set.advance(3 * HOUR).unwrap();
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        held.update("tokens", 600).unwrap();
        denial(set.try_acquire([("tokens", 1)]));
        held.release().unwrap();
    }
    let burst = |burst| RateLimit::per_minute("tokens", 60).burst(burst);
    let set = world.open(&manual().limit(burst(10)));
    set.reconfigure([burst(30)]).unwrap();
    assert_eq!((set.limit("tokens").capacity, set.limit("tokens").burst), (60, 30));
}

fn what_is_available_is_cut_to_a_lower_capacity(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = |capacity| RateLimit::per_minute("tokens", capacity).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate(100)));
        set.reconfigure([rate(40)]).unwrap();
        assert_eq!(set.limit("tokens").available, 40, "{algorithm}");
        assert!(matches!(set.try_acquire([("tokens", 41)]), Err(AcquireError::Never { .. })));
        let mut held = set.try_acquire([("tokens", 40)]).unwrap();
        held.update("tokens", 40).unwrap();
        denial(set.try_acquire([("tokens", 1)]));
        held.release().unwrap();
    }
}

fn debt_outlives_a_reconfiguration(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = |capacity| RateLimit::per_minute("tokens", capacity).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate(100)));
        let mut held = set.try_acquire([("tokens", 100)]).unwrap();
        held.adjust("tokens", 30).unwrap();
        held.release().unwrap();
        set.reconfigure([rate(50)]).unwrap();
        let now = set.limit("tokens");
        assert!(now.debt >= 30 && now.available == 0, "{algorithm}: {now:?}");
        assert_eq!(now.consumed, 130);
        denial(set.try_acquire([("tokens", 1)]));
    }
}

fn permits_above_a_lower_capacity_drain(world: World) {
    let set = world.open(&manual().limit(ResourceLimit::new("connections", 4)));
    let mut held: Vec<_> = (0..4).map(|_| set.try_acquire(()).unwrap()).collect();
    set.reconfigure([ResourceLimit::new("connections", 2)]).unwrap();
    assert_eq!(set.holds(), pairs([("connections", 4)]), "nobody loses what it holds");
    let now = set.limit("connections");
    assert_eq!((now.capacity, now.available, now.in_use, now.debt), (2, 0, 4, 0));
    for left in [3, 2] {
        held.pop().unwrap().release().unwrap();
        assert_eq!(set.limit("connections").in_use, left);
        denial(set.try_acquire(()));
    }
    held.pop().unwrap().release().unwrap();
    held.push(set.try_acquire(()).unwrap());
    denial(set.try_acquire(()));
    drop(held);
    assert_eq!(set.limit("connections").available, 2);
}

fn a_higher_capacity_of_permits_is_there_at_once(world: World) {
    let set = world.open(&manual().limit(ResourceLimit::new("connections", 1)));
    let first = set.try_acquire(()).unwrap();
    denial(set.try_acquire(()));
    set.reconfigure([ResourceLimit::new("connections", 2)]).unwrap();
    let second = set.try_acquire(()).unwrap();
    denial(set.try_acquire(()));
    drop((first, second));
}

fn a_request_above_the_new_capacity_is_never(world: World) {
    let set = world.three_kinds();
    let resolved = set.request().amount("tokens", 500).build().unwrap();
    set.reconfigure([RateLimit::per_minute("tokens", 499).report(Report::Optional)]).unwrap();
    let answer = set.try_acquire(&resolved);
    assert!(matches!(answer, Err(AcquireError::Never { requested: 500, most: 499, .. })));
}

fn several_limits_change_together_or_not_at_all(world: World) {
    let set = world.three_kinds();
    let tokens = || Limit::from(RateLimit::per_minute("tokens", 5).report(Report::Optional));
    let before = set.stats().unwrap();
    let bad: [(Limit, &str); 5] = [
        (CallLimit::per_minute(0).into(), "limit \"call_count\" has capacity 0"),
        (ResourceLimit::new("connection", 1).into(), "there is no limit \"connection\" in this set"),
        (CallLimit::per_minute(5).algorithm(Algorithm::Gcra).into(), "only numbers can be changed"),
        (ResourceLimit::new("call_count", 1).into(), "only numbers can be changed"),
        (tokens(), "two limits have the key \"tokens\""),
    ];
    for (bad, message) in bad {
        for limits in [[tokens(), bad.clone()], [bad, tokens()]] {
            let error = set.reconfigure(limits).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert_eq!(set.stats().unwrap(), before);
        }
    }
    set.reconfigure([tokens(), CallLimit::per_second(3).into(), ResourceLimit::new("connections", 9).into()])
        .unwrap();
    let now = set.stats().unwrap().limits;
    assert_eq!(now.iter().map(|it| it.capacity).collect::<Vec<_>>(), [3, 5, 9]);
    assert_eq!(now.iter().map(|it| it.revision).collect::<Vec<_>>(), [1, 1, 1]);
    set.reconfigure([CallLimit::per_second(4)]).unwrap();
    let now = set.stats().unwrap().limits;
    assert_eq!(now.iter().map(|it| it.revision).collect::<Vec<_>>(), [2, 1, 1]);
    set.reconfigure::<Limit>([]).unwrap();
}

fn only_numbers_can_change(world: World) {
    let sliding = |n| RateLimit::per_minute("rows", 10).algorithm(Algorithm::SlidingWindow).resolution(n);
    let set = world.open(&manual().limit(sliding(6)).limit(RateLimit::per_minute("tokens", 10)));
    let wrong: [Limit; 5] = [
        sliding(7).into(),
        sliding(6).report(Report::Optional).into(),
        RateLimit::per_minute("rows", 10).into(),
        RateLimit::per_minute("tokens", 10).algorithm(Algorithm::LeakyBucket).into(),
        CallLimit::per_minute(10).key("tokens").into(),
    ];
    for wrong in wrong {
        let text = wrong.to_string();
        let error = set.reconfigure([wrong]).unwrap_err();
        assert!(matches!(error, ManageError::NotNumbers { .. }));
        assert!(error.to_string().contains(&text), "{error}");
    }
    let bad = set.reconfigure([RateLimit::per_minute("tokens", 0)]);
    assert!(matches!(bad, Err(ManageError::Limit(BadLimit::Capacity { .. }))));
    assert!(set.stats().unwrap().limits.iter().all(|it| it.revision == 0));
}

fn what_was_declared_is_remembered_beside_what_is(world: World) {
    let set = world.three_kinds();
    set.reconfigure([CallLimit::per_minute(99)]).unwrap();
    let declared: Vec<_> = set.limits().iter().map(ToString::to_string).collect();
    let expected = [
        "calls \"call_count\": 10 per 60s by token_bucket",
        "rate \"tokens\": 1000 per 60s by token_bucket, report optional",
        "resource \"connections\": 4",
    ];
    assert_eq!(declared, expected);
    assert!(format!("{:?}", set.limits).contains("resource"), "{:?}", set.limits);
    assert_eq!(set.limit("call_count").capacity, 99);
}

fn a_reset_makes_rates_fresh_and_leaves_permits_and_counters(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = RateLimit::per_minute("tokens", 100).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate).limit(ResourceLimit::new("connections", 4)));
        let mut held = set.try_acquire([("tokens", 90), ("connections", 3)]).unwrap();
        held.adjust("tokens", 60).unwrap();
        set.reset().unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.available, now.debt, now.consumed, now.granted), (100, 0, 150, 1), "{algorithm}");
        assert_eq!(set.holds(), pairs([("connections", 3)]));
        let mut again = set.try_acquire([("tokens", 100)]).unwrap();
        again.update("tokens", 100).unwrap();
        denial(set.try_acquire([("tokens", 1), ("connections", 0)]));
        // Charges before the reset are forgotten.
        held.cancel().unwrap();
        assert_eq!(set.limit("tokens").available, 0);
        again.release().unwrap();
    }
}

fn what_was_charged_before_a_reset_cannot_be_given_back_after_it(world: World) {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let rate = RateLimit::per_minute("tokens", 1_000).algorithm(algorithm);
        let set = world.open(&manual().limit(rate).limit(ResourceLimit::new("db", 9)));
        let take = |amount| set.try_acquire([("tokens", amount)]).unwrap();
        let [first, mut second, mut third, fourth] = [100, 200, 300, 400].map(take);
        set.reset().unwrap();
        // After the reset the full capacity is available, and no more.
        let all = take(1_000);
        first.cancel().unwrap();
        assert_eq!(second.update("tokens", 0).unwrap(), 0);
        assert_eq!(third.adjust("tokens", -300).unwrap(), 0);
        drop(fourth);
        assert_eq!(set.stats().unwrap().limit("tokens").unwrap().available, 0, "{algorithm}");
        assert!(matches!(set.try_acquire([("tokens", 1)]), Err(AcquireError::Denied(_))));
        // Charges after the reset can be refunded.
        all.cancel().unwrap();
        assert_eq!(set.stats().unwrap().limit("tokens").unwrap().available, 1_000, "{algorithm}");
        assert_eq!(set.stats().unwrap().limit("db").unwrap().in_use, 2, "permits are another thing");
    }
}

fn a_manual_clock_moves_only_by_hand(world: World) {
    let set = world.open(&manual().limit(CallLimit::new(1, Duration::from_nanos(10))));
    set.try_acquire(()).unwrap().release().unwrap();
    for _ in 0..1_000 {
        denial(set.try_acquire(()));
    }
    set.advance_nanos(9);
    denial(set.try_acquire(()));
    set.advance(Duration::ZERO).unwrap();
    denial(set.try_acquire(()));
    set.advance_nanos(1);
    set.try_acquire(()).unwrap().release().unwrap();
    assert_eq!(set.clock(), Clock::Manual);
    // To the end of time, and no further.
    set.advance(Duration::MAX).unwrap();
    set.try_acquire(()).unwrap().release().unwrap();
    set.advance(Duration::MAX).unwrap();
    denial(set.try_acquire(()));
}

fn a_clock_moved_as_far_as_it_goes_admits_no_more_than_before(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = RateLimit::per_minute("tokens", 10).algorithm(*algorithm).report(Report::Optional);
        let set = world.open(&manual().limit(rate));
        for _ in 0..2 {
            set.advance(Duration::MAX).unwrap();
        }
        set.try_acquire([("tokens", 10)]).unwrap().release().unwrap();
        assert!(denial(set.try_acquire([("tokens", 1)])).retry_after() > Some(Duration::ZERO), "{algorithm}");
    }
}

fn a_clock_that_moves_itself_cannot_be_moved(world: World) {
    for clock in [Clock::Monotonic, Clock::Coarse] {
        let set = world.open(&LimitSet::builder().limit(CallLimit::per_day(2)).clock(clock));
        let error = set.advance(SECOND).unwrap_err();
        assert!(matches!(error, ManageError::ClockMovesItself { .. }));
        assert!(error.to_string().contains(&format!("the {} clock", clock.name())), "{error}");
        assert_eq!(set.clock(), clock);
        set.try_acquire(()).unwrap().release().unwrap();
        set.try_acquire(()).unwrap().release().unwrap();
        let wait = denial(set.try_acquire(())).retry_after().unwrap();
        // A coarse clock may be a step behind, and whoever waits by another has to wait for that too.
        assert!(wait < 12 * HOUR + SECOND && wait > 11 * HOUR, "{wait:?}");
    }
}

fn time_that_passes_gives_what_the_rate_says(world: World) {
    // Seven units in three seconds, taken one by one for a simulated hour: not one too many, not one too few.
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra] {
        let rate = RateLimit::new("tokens", 7, 3 * SECOND).algorithm(algorithm).report(Report::Optional);
        let set = world.open(&manual().limit(rate));
        let mut taken = 0;
        for _ in 0..1_200 {
            while let Ok(held) = set.try_acquire([("tokens", 1)]) {
                taken += 1;
                held.release().unwrap();
            }
            set.advance(SECOND).unwrap();
        }
        assert_eq!(taken, 7 + 1_199 * 7 / 3, "{algorithm}");
        assert_eq!(set.limit("tokens").consumed, taken);
    }
}

fn decisions_and_looks_never_go_back_behind_the_last_decision(world: World) {
    let set = world.open(&LimitSet::builder().limit(CallLimit::new(2, HOUR)));
    set.try_acquire([("call_count", 2)]).unwrap().release().unwrap();
    assert_eq!(set.limit("call_count").available, 0);
    // A process whose clock is an hour ahead has made a decision.
    let (block, _) = set.segment().state_block().unwrap();
    let ahead = block.words[LAST_NOW].load(Relaxed) + u64::try_from(HOUR.as_nanos()).unwrap();
    block.words[LAST_NOW].store(ahead, Relaxed);
    assert_eq!(set.limit("call_count").available, 2);
    set.try_acquire([("call_count", 2)]).unwrap().release().unwrap();
    let wait = denial(set.try_acquire(())).retry_after().unwrap();
    assert_eq!(wait, HOUR / 2, "time stands still until the clock has caught up");
    assert_eq!(block.words[LAST_NOW].load(Relaxed), ahead);
}

fn who_waited_for_the_lock_decides_by_the_time_it_is_then(world: World) {
    let window = Duration::from_millis(30);
    let patient = Segment::options().patience(HOUR);
    let set = world.open(&LimitSet::builder().limit(CallLimit::new(1, window)).segment(patient));
    let (block, _) = set.segment().state_block().unwrap();
    set.try_acquire(()).unwrap().release().unwrap();
    // None is left before the wait, and one is there after it.
    let guard = block.lock(set.segment().participant().unwrap(), NEVER).unwrap().guard();
    let since = std::time::Instant::now();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| set.try_acquire(()).map(drop));
        while since.elapsed() < 2 * window {
            std::thread::yield_now();
        }
        drop(guard);
        call.join().unwrap().unwrap();
    });
}

fn a_removed_set_answers_removed_to_everything(world: World) {
    let set = world.three_kinds();
    let clone = set.limits.clone();
    let (held, cancelled) =
        (set.try_acquire([("tokens", 1)]).unwrap(), set.try_acquire([("tokens", 1)]).unwrap());
    let mut updated = set.try_acquire([("tokens", 5)]).unwrap();
    set.remove().unwrap();
    for set in [&set.limits, &clone] {
        assert!(matches!(set.try_acquire([("tokens", 1)]), Err(AcquireError::Removed)));
        assert!(matches!(set.check([("tokens", 1)]), Err(AcquireError::Removed)));
        assert!(matches!(set.reconfigure([CallLimit::per_minute(1)]), Err(ManageError::Removed)));
        assert!(matches!(set.reset(), Err(ManageError::Removed)));
        assert!(matches!(set.advance(SECOND), Err(ManageError::Removed)));
    }
    assert!(matches!(updated.update("tokens", 1), Err(UsageError::Removed)));
    assert!(matches!(updated.acquire_more([("tokens", 1)]), Err(AcquireError::Removed)));
    drop(updated);
    assert!(matches!(held.release(), Err(UsageError::Removed)));
    assert!(matches!(cancelled.cancel(), Err(UsageError::Removed)));
    if world == World::Process {
        let new = world.three_kinds();
        assert_eq!(new.limit("tokens").consumed, 0);
    }
}

fn nobody_dead_means_nothing_to_reap(world: World) {
    let set = world.three_kinds();
    let held = set.try_acquire([("connections", 3)]).unwrap();
    let before = set.stats().unwrap();
    assert_eq!(set.reap().unwrap(), 0);
    let after = set.stats().unwrap();
    assert_eq!(after.sweeps, before.sweeps + 1);
    assert_eq!((after.limits, after.participants), (before.limits, before.participants));
    drop(held);
}
