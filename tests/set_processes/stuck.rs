//! A process that is stopped while it holds the set's lock: alive, so nobody may take it away.

use std::time::Duration;

use limitset::error::AttachError;
use limitset::{
    AcquireError, CallLimit, LimitSet, ManageError, OnUnavailable, OpenError, ResourceLimit, Unavailable,
    UsageError,
};
use nix::sys::signal::Signal;

use crate::others::user;
use crate::support::{TempName, Worker, listen, say};
use crate::{builder, limit, options};

/// How the stop ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    GoesOn,
    Dies,
}

/// Stops a process that holds the lock.
pub(crate) fn stop_inside(name: &TempName) -> Worker {
    let mut worker = user(&name.0, "attach");
    worker.tell("lock");
    worker.expect("locked");
    worker.signal(Signal::SIGSTOP);
    worker
}

pub(crate) fn go_on(worker: &mut Worker) {
    worker.signal(Signal::SIGCONT);
    worker.tell("go on");
    worker.expect("unlocked");
}

fn impatient(policy: OnUnavailable) -> limitset::LimitSetBuilder {
    builder().segment(options().patience(Duration::from_millis(20))).on_unavailable(policy)
}

/// Whether this is the stopped process holding the lock.
fn is_busy(why: &Unavailable, worker: &Worker) -> bool {
    let pid = u64::try_from(worker.pid().as_raw()).unwrap();
    matches!(why, Unavailable::LockTimeout(holder) if (holder.slot, holder.pid) == (2, pid))
}

pub(crate) fn denied() {
    let name = TempName::new();
    let set = impatient(OnUnavailable::Deny).open(&name).unwrap();
    let before = set.stats().unwrap().limits;
    let mut worker = stop_inside(&name);
    for error in [set.try_acquire([("tokens", 1)]).map(drop), set.check([("tokens", 1)]).map(drop)] {
        let error = error.unwrap_err();
        let AcquireError::Unavailable(why) = &error else { panic!("{error}") };
        assert!(is_busy(why, &worker), "{error}");
        assert_eq!(error.retry_after(), None);
        assert!(
            error.to_string().starts_with("the limits could not be asked: another process held the lock"),
            "{error}"
        );
    }
    for error in [set.reset(), set.reconfigure([CallLimit::per_minute(1)]), set.advance(Duration::ZERO)] {
        let Err(ManageError::Unavailable(why)) = error else { panic!("{error:?}") };
        assert!(is_busy(&why, &worker), "{why}");
    }
    assert_eq!(set.stats().unwrap().limits, before, "who looks needs no lock");
    go_on(&mut worker);
    set.try_acquire([("tokens", 1)]).unwrap().cancel().unwrap();
    let stats = set.stats().unwrap();
    assert_eq!((stats.steals, stats.recoveries, stats.deposed, stats.unenforced), (0, 0, 0, 0));
}

pub(crate) fn allowed() {
    let name = TempName::new();
    let set = impatient(OnUnavailable::Allow).open(&name).unwrap();
    let mut worker = stop_inside(&name);
    let mut held = set.try_acquire([("tokens", 50), ("connections", 4)]).unwrap();
    assert!(!held.enforced());
    // Nothing is charged, so nothing can be told or given back; whoever does is not punished for it.
    assert_eq!((held.charged("tokens"), held.charged("connections")), (None, None));
    assert_eq!(held.update("tokens", 10).unwrap(), 0);
    assert_eq!(held.adjust("tokens", 10).unwrap(), 0);
    assert_eq!(held.settle("tokens", 10).unwrap(), 0);
    held.acquire_more([("tokens", 10)]).unwrap();
    assert_eq!(held.config()["region"], "eu");
    assert!(!set.run([("tokens", 5)], |held| Ok::<_, ()>(held.enforced())).unwrap());
    held.release().unwrap();
    drop(set.try_acquire([("tokens", 5)]).unwrap());
    // A request that makes no sense is not let through, nor is the policy one for opening.
    assert!(matches!(set.try_acquire(()), Err(AcquireError::BadRequest(_))));
    let stuck = impatient(OnUnavailable::Allow).open(&name).unwrap_err();
    assert!(matches!(stuck, OpenError::Segment(_)), "{stuck}");
    let attached = impatient(OnUnavailable::Allow).attach(&name).unwrap_err();
    assert!(matches!(attached, AttachError::Busy { .. }), "{attached}");
    go_on(&mut worker);

    let stats = set.stats().unwrap();
    assert_eq!(stats.unenforced, 3);
    assert_eq!(LimitSet::observe(&name).unwrap().stats().unwrap().unenforced, 3);
    assert!(stats.limits.iter().all(|it| (it.granted, it.consumed, it.in_use) == (0, 0, 0)), "{stats:?}");
    let held = set.try_acquire([("tokens", 5)]).unwrap();
    assert!(held.enforced());
    held.cancel().unwrap();
    // Being refused is no trouble, and removal is somebody's wish.
    assert!(matches!(set.try_acquire([("tokens", 101)]), Err(AcquireError::Never { .. })));
    set.remove().unwrap();
    assert!(matches!(set.try_acquire([("tokens", 1)]), Err(AcquireError::Removed)));
}

pub(crate) fn ending(end: End) {
    let name = TempName::new();
    let set = impatient(OnUnavailable::Deny).open(&name).unwrap();
    let take = || set.try_acquire([("tokens", 10)]).unwrap();
    let (mut released, dropped, cancelled, mut updated) = (take(), take(), take(), take());
    released.update("tokens", 10).unwrap();
    let mut worker = stop_inside(&name);
    assert!(matches!(updated.update("tokens", 4), Err(UsageError::Unavailable(_))));
    assert!(matches!(released.release(), Err(UsageError::Unavailable(_))));
    assert!(matches!(cancelled.cancel(), Err(UsageError::Unavailable(_))));
    drop(dropped);
    assert_eq!(limit(&set, "connections").in_use, 4);
    match end {
        End::GoesOn => go_on(&mut worker),
        End::Dies => worker.kill(),
    }
    // The background thread waits for the lock in our place.
    while limit(&set, "connections").in_use > 1 {
        std::thread::yield_now();
    }
    let tokens = limit(&set, "tokens");
    assert_eq!(
        (tokens.consumed, tokens.refunded, tokens.unreported),
        (30, 10, 1),
        "one cancelled, one dropped"
    );
    assert_eq!(updated.charged("tokens"), Some(10), "an update that failed can be tried again");
    assert_eq!(updated.update("tokens", 4).unwrap(), 6);
    updated.release().unwrap();
    let stats = set.stats().unwrap();
    assert_eq!(stats.participants[0].holds, []);
    assert_eq!(stats.participants[0].owes_reports, []);
    assert_eq!(stats.limit("tokens").unwrap().consumed, 24);
    assert_eq!((stats.steals, stats.deposed), (u64::from(end == End::Dies), 0));
}

const HELD: u64 = 400;

/// A process that ends many acquisitions behind the stuck lock, several at a time.
pub(crate) fn one_thread() {
    let name = TempName::new();
    let connections = LimitSet::builder().segment(options()).limit(ResourceLimit::new("connections", HELD));
    let set = connections.open(&name).unwrap();
    let mut dropper = Worker::start("dropper", &[&name.0]);
    dropper.expect("held");
    let mut worker = stop_inside(&name);
    dropper.tell("drop");
    dropper.expect("1 thread");
    assert_eq!(limit(&set, "connections").in_use, HELD);
    go_on(&mut worker);
    dropper.expect("no thread");
    assert_eq!(limit(&set, "connections").in_use, 0, "all are returned before the thread ends");
    set.remove().unwrap();
}

pub(crate) fn dropper_role(arguments: &[String]) {
    let set = LimitSet::attach(&arguments[0]).unwrap();
    let mut held: Vec<_> = (0..HELD).map(|_| set.try_acquire(()).unwrap()).collect();
    say("held");
    assert_eq!(listen(), "drop");
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|it| std::fs::read_to_string(it.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim_end() == "limitset-return").count()
    };
    std::thread::scope(|scope| {
        while !held.is_empty() {
            let some: Vec<_> = held.drain(..held.len().min(10)).collect();
            scope.spawn(move || drop(some));
        }
    });
    match threads() {
        1 => say("1 thread"),
        more => panic!("{more} threads for {HELD} drops"),
    }
    while threads() > 0 {
        std::thread::yield_now();
    }
    say("no thread");
    listen();
}
