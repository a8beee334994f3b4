//! Numbers that change at any moment, while another process moves the clock and the rest hammer.
//!
//! Here nothing waits for anything, so what was granted is bounded, not known. Snapshots must show the numbers of
//! all limits from before a change or from after it, never some of each.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{AcquireError, Algorithm, Clock, Limit, LimitSet, LimitStats, ResourceLimit};

use crate::reference::{Numbers, Rates};
use crate::support::{TempName, Worker, depth, proof};
use crate::{
    CALLS, CHANGES, CLOCK, Case, MOST_INSIDE, STOP, UNITS, attach, check_end, check_whole, for_each_case,
    ready, shared, stats,
};

/// Two sets of numbers, to and fro: those the set was made with, and others that are twice to thrice as large.
fn larger(numbers: Numbers) -> Numbers {
    let (capacity, burst) = (2 * numbers.capacity + 1, 3 * numbers.burst);
    let burst = if numbers.algorithm.has_burst() { burst } else { capacity };
    // The bounds below count windows of one length.
    let window = if numbers.algorithm.has_burst() { numbers.window - 10_007 } else { numbers.window };
    Numbers { capacity, window, burst, ..numbers }
}

impl Case {
    fn larger(&self) -> Self {
        let (units, calls) = (larger(self.units), larger(self.calls));
        Self { units, calls, permits: self.processes + 1, ..*self }
    }

    fn limits(&self) -> [Limit; 3] {
        let permits = ResourceLimit::new("permits", self.permits);
        [self.units.units().into(), self.calls.calls().into(), permits.into()]
    }
}

/// Permits that are fewer than the threads, before a change and after it.
fn for_each_small_case(mut test: impl FnMut(Case)) {
    for_each_case(|case| test(Case { permits: case.processes / 2, ..case }));
}

/// In a worker: changes all numbers to and fro until told to stop.
pub(crate) fn change_role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    let mut case = None;
    for_each_small_case(|it| case = if it.limits()[..] == *set.limits() { Some(it) } else { case });
    let small = case.unwrap();
    let large = small.larger();
    ready();
    while shared(&set)[STOP].load(SeqCst) == 0 {
        shared(&set)[CHANGES].fetch_add(1, SeqCst);
        // Nobody else changes them. A predecessor may have been killed before it did what it had announced.
        let revision = stats(&set).limits[0].revision;
        set.reconfigure(if revision.is_multiple_of(2) { large } else { small }.limits()).unwrap();
        std::thread::yield_now();
    }
}

/// In a worker: moves the clock until told to stop.
pub(crate) fn clock_role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    let step: u64 = arguments[1].parse().unwrap();
    ready();
    while shared(&set)[STOP].load(SeqCst) == 0 {
        shared(&set)[CLOCK].fetch_add(step, SeqCst);
        set.advance(Duration::from_nanos(step)).unwrap();
        std::thread::yield_now();
    }
}

/// The most that can be granted by an instant, however often the numbers changed before it: what the larger ones
/// allow.
fn most(large: Numbers, clock: u64) -> u64 {
    let flow = |numbers: Numbers| {
        let flown = u128::from(numbers.capacity) * u128::from(clock) / u128::from(numbers.window);
        numbers.burst + u64::try_from(flown).unwrap()
    };
    let windows = large.capacity * (clock / large.window + 1);
    match large.algorithm {
        Algorithm::SlidingWindow | Algorithm::FixedWindow => windows,
        _ => flow(large),
    }
}

fn has_numbers(found: &LimitStats, numbers: Numbers) -> bool {
    let window = Some(Duration::from_nanos(numbers.window));
    (found.capacity, found.burst, found.window) == (numbers.capacity, numbers.burst, window)
}

pub(crate) fn unordered() {
    let (mut looks, mut changes, mut kills, mut grants, mut both) = (0, 0, 0, 0, [0, 0]);
    for_each_small_case(|small| {
        let large = small.larger();
        let name = TempName::new();
        let set = small.create(&name, Clock::Manual, 1);
        let step = small.units.window / 16;
        let mut workers = small.start("hammer", &name);
        workers.push(Worker::start("clock", &[&name.0, &step.to_string()]));
        let mut changer = Worker::start("change", &[&name.0]);
        changer.expect("ready");
        let kills_before = kills;
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        let (goal, clock_goal) = (depth(200, 4_000), depth(40, 600) * small.units.window);
        loop {
            let stats = stats(&set);
            // Announced before they are done: read afterwards, they are not less than what the snapshot knows.
            let words = shared(&set);
            let (clock, announced) = (words[CLOCK].load(SeqCst), words[CHANGES].load(SeqCst));
            check_whole(&stats);
            let [units, calls, permits] = &stats.limits[..] else { panic!("{stats:?}") };
            assert_eq!([calls.revision, permits.revision], [units.revision; 2], "changed in part");
            let revision = units.revision;
            assert!(revision <= announced);
            let now = if revision.is_multiple_of(2) { small } else { large };
            let is_whole = has_numbers(units, now.units)
                && has_numbers(calls, now.calls)
                && permits.capacity == now.permits;
            assert!(is_whole, "numbers of different times at revision {revision}: {:?}", stats.limits);
            assert!(permits.in_use <= large.permits, "{} of {} permits", permits.in_use, large.permits);
            for (found, numbers) in [(units, large.units), (calls, large.calls)] {
                let most = most(numbers, clock);
                assert!(found.consumed <= most, "{} used, at most {most}: {small:?}", found.consumed);
            }
            looks += 1;
            both[usize::from(revision % 2 == 1)] += 1;
            if revision >= goal && clock >= clock_goal && looks % 50 == 0 {
                break;
            }
            if looks % 25 == 0 {
                changer.kill();
                changer = Worker::start("change", &[&name.0]);
                changer.expect("ready");
                kills += 1;
            }
            std::thread::yield_now();
        }
        workers.push(changer);
        crate::stop(&set, &mut workers);
        let end = stats(&set);
        grants += check_whole(&end);
        check_end(&end);
        let (revision, announced) = (end.limits[0].revision, shared(&set)[CHANGES].load(SeqCst));
        assert_eq!(end.limits.iter().map(|limit| limit.revision).collect::<Vec<_>>(), [revision; 3]);
        let undone = kills - kills_before;
        assert!((revision..=revision + undone).contains(&announced), "{revision} of {announced} changes");
        assert!(shared(&set)[MOST_INSIDE].load(SeqCst) <= large.permits);
        changes += revision;
        check_full_after_a_rest(&set, if revision.is_multiple_of(2) { small } else { large });
        set.remove().unwrap();
    });
    assert!(both[0] > 0 && both[1] > 0, "only one of the two was ever seen");
    let result = format!(
        "{changes} changes, {kills} kills of who makes them, {grants} grants, {looks} snapshots: 0 with numbers of different times, 0 in part, 0 above \
         the larger numbers"
    );
    proof("1,2", "the same while another process changes all numbers and a third moves the clock", &result);
}

/// After a long rest everything is there again, and no more.
fn check_full_after_a_rest(set: &LimitSet, case: Case) {
    set.advance(Duration::from_nanos(20 * case.units.window)).unwrap();
    let (expected, _) = Rates::new(case.units, case.calls).drain(UNITS, CALLS);
    let mut found = 0;
    loop {
        match set.try_acquire([("units", UNITS)]) {
            Ok(held) => drop(held),
            Err(AcquireError::Denied(_)) => break,
            Err(other) => panic!("{other}"),
        }
        found += 1;
    }
    assert_eq!(found, expected, "{case:?}");
}
