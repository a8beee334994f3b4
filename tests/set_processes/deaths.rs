//! Processes that are killed while they hold something, or in the middle of an update.

use std::time::Duration;

use limitset::error::SyncError;
use limitset::{AcquireError, LimitSet, RateLimit, ResourceLimit};

use crate::others::{acquires, user};
use crate::support::TempName;
use crate::{HOUR, builder, limit, options};

/// Somebody who took 30 tokens and held 3 connections is dead, and all that is left of it is the charge.
fn is_cleaned_up(set: &LimitSet) {
    let stats = set.stats().unwrap();
    let [tokens, calls, connections] = stats.limits.as_slice() else { panic!("{stats:?}") };
    assert_eq!(
        (tokens.consumed, tokens.available, tokens.unreported),
        (30, 70, 1),
        "its charge stays, counted"
    );
    assert_eq!((calls.available, connections.denied), (8, 1), "its call, and ours");
    assert_eq!((stats.reaped_participants, stats.reaped_permits), (1, 3));
    assert_eq!(stats.participants.len(), 1);
    assert_eq!((stats.steals, stats.recoveries, stats.deposed), (0, 0, 0));
}

pub(crate) fn next_denial() {
    let name = TempName::new();
    // A sweep is always due.
    let set = builder().segment(options().doorbell_slice(Duration::ZERO)).open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    acquires(&mut worker, 30, 3);
    let alive = set.try_acquire([("connections", 4)]).unwrap_err();
    assert!(matches!(alive, AcquireError::Denied(_)), "{alive}");
    let sweeps = set.stats().unwrap().sweeps;
    worker.kill();
    let held = set.try_acquire([("connections", 4)]).unwrap();
    assert_eq!(set.stats().unwrap().sweeps, sweeps + 1);
    is_cleaned_up(&set);
    held.release().unwrap();
}

pub(crate) fn reaping() {
    let name = TempName::new();
    let set = builder().segment(options().doorbell_slice(HOUR)).open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    acquires(&mut worker, 30, 3);
    let denied = set.try_acquire([("connections", 4)]).unwrap_err();
    assert!(matches!(denied, AcquireError::Denied(_)), "{denied}");
    worker.kill();
    let stats = set.stats().unwrap();
    let dead = stats.participants.iter().find(|it| it.info.is_none()).unwrap();
    assert_eq!((dead.holds[0].1, dead.owes_reports[0].1), (3, 1));
    assert_eq!(LimitSet::observe(&name).unwrap().stats().unwrap(), stats, "observers tell the dead too");
    assert_eq!(set.reap().unwrap(), 3);
    let held = set.try_acquire([("connections", 4)]).unwrap();
    is_cleaned_up(&set);
    assert_eq!(set.reap().unwrap(), 0);
    held.release().unwrap();
}

/// A slice of an hour is what sleepers look after. A caller that is about to be refused looks much sooner: here it asks
/// until it may look again, and that look is all it takes.
pub(crate) fn within_a_slice() {
    let name = TempName::new();
    let set = builder().segment(options().doorbell_slice(HOUR)).open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    acquires(&mut worker, 30, 3);
    let sweeps = || set.stats().unwrap().sweeps;
    // Until a sweep has found that the holder lives: the next one is not due at once.
    let before = sweeps();
    while sweeps() == before {
        assert!(set.try_acquire([("connections", 4)]).is_err());
    }
    worker.kill();
    let before = sweeps();
    let held = loop {
        let answer = set.try_acquire([("connections", 4)]);
        match answer {
            Ok(held) => break held,
            Err(refused) => assert_eq!(sweeps(), before, "{refused}, after a sweep"),
        }
    };
    assert_eq!(sweeps(), before + 1, "the first sweep after the death returns everything");
    assert_eq!(set.stats().unwrap().reaped_permits, 3);
    held.release().unwrap();
}

/// A waiter whose time is up looks once more at the holders of what it misses, whenever the last sweep was.
pub(crate) fn at_the_last_moment() {
    let name = TempName::new();
    let set = builder().segment(options().doorbell_slice(HOUR)).open(&name).unwrap();
    for _ in 0..3 {
        let mut worker = user(&name.0, "attach");
        acquires(&mut worker, 1, 3);
        let late = set.acquire_timeout([("connections", 4)], Duration::ZERO).unwrap_err();
        let AcquireError::TimedOut(late) = late else { panic!("{late}") };
        let pid = u64::try_from(worker.pid().as_raw()).unwrap();
        assert_eq!(late.holders.iter().map(|it| (it.pid, it.amount)).collect::<Vec<_>>(), [(pid, 3)]);
        worker.kill();
        set.acquire_timeout([("connections", 4)], Duration::ZERO).unwrap().release().unwrap();
    }
    assert_eq!(set.stats().unwrap().waiters, 0);
}

pub(crate) fn checking() {
    let name = TempName::new();
    let set = builder().segment(options().doorbell_slice(Duration::ZERO)).open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    acquires(&mut worker, 30, 3);
    assert!(set.check([("connections", 4)]).is_err());
    worker.kill();
    set.check([("connections", 4)]).unwrap();
    assert_eq!(limit(&set, "connections").denied, 0, "a dry run is no denial");
}

pub(crate) fn successor() {
    let name = TempName::new();
    let set = builder().segment(options().slots(2)).open(&name).unwrap();
    for round in 1..=3 {
        let mut worker = user(&name.0, "attach");
        acquires(&mut worker, 10, 4);
        let stats = set.stats().unwrap();
        assert_eq!((stats.reaped_participants, stats.reaped_permits), (round - 1, 4 * (round - 1)));
        assert_eq!(stats.limit("tokens").unwrap().unreported, round - 1);
        worker.kill();
    }
    assert_eq!(limit(&set, "connections").in_use, 4);
}

pub(crate) fn in_mid_update() {
    let name = TempName::new();
    let set = builder().open(&name).unwrap();
    let held = set.try_acquire([("tokens", 30), ("connections", 2)]).unwrap();
    let observer = LimitSet::observe(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    let before = set.stats().unwrap();
    worker.tell("half");
    worker.expect("in the middle");
    // As long as the writer lives, nobody knows what it will come to.
    let busy = observer.stats().unwrap_err();
    assert!(matches!(busy, SyncError::Busy { slot: 2, .. }), "{busy}");
    worker.kill();
    let seen = observer.stats().unwrap();
    assert_eq!(seen.limits, before.limits);
    assert_eq!(seen.participants, before.participants[..1]);
    assert_eq!(set.stats().unwrap(), seen, "looking repairs nothing");
    assert_eq!((seen.steals, seen.recoveries), (0, 0));
    // The next to take the lock does.
    held.cancel().unwrap();
    let after = set.stats().unwrap();
    assert_eq!((after.steals, after.recoveries), (1, 1));
    assert_eq!(after.limits.iter().map(|it| it.available).collect::<Vec<_>>(), [100, 10, 4]);
    assert_eq!(observer.stats().unwrap(), after);
    set.reconfigure([ResourceLimit::new("connections", 5)]).unwrap();
    set.reconfigure([RateLimit::per_minute("tokens", 50)]).unwrap();
}
