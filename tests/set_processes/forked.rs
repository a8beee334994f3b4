//! Sets and acquisitions that a forked child inherits. Each test runs in a process with one thread.

use std::time::Duration;

use limitset::error::AttachError;
use limitset::{
    AcquireError, CallLimit, LimitSet, ManageError, OnUnavailable, Stats, Unavailable, UsageError,
};

use crate::forks::Forked;
use crate::support::{self, TempName, Worker, say};
use crate::{builder, limit, options};

pub(crate) fn in_a_worker(what: &str) {
    let name = TempName::new();
    let mut worker = Worker::start("forked", &[&name.0, what]);
    worker.expect("done");
    assert!(worker.finish().success());
    support::proof("4", &format!("a set over a fork: {}", what.replace('_', " ")), "held");
}

pub(crate) fn role(arguments: &[String]) {
    let name = arguments[0].as_str();
    let by_name = || builder().open(name).unwrap();
    let anonymous = || builder().open_anonymous().unwrap();
    match arguments[1].as_str() {
        "inert" => inert(&by_name()),
        "inert_anonymous" => inert(&anonymous()),
        "own" => own(&by_name()),
        "own_anonymous" => own(&anonymous()),
        "dead_child" => dead_child(),
        "private" => private(),
        "no_slot" => no_slot(name),
        "item" => crate::work::forked(name),
        other => panic!("{other}"),
    }
    say("done");
}

/// What a child must not have changed: limits, and what the parent holds and owes.
fn parents_part(set: &LimitSet) -> (Stats, limitset::ParticipantStats) {
    let mut stats = set.stats().unwrap();
    let me = set.segment().participant().unwrap();
    let place = stats.participants.iter().position(|it| it.participant == me).unwrap();
    let mine = stats.participants.swap_remove(place);
    stats.participants.clear();
    // That the dead were looked for is no change.
    stats.sweeps = 0;
    stats.reaped_participants = 0;
    (stats, mine)
}

fn inert(set: &LimitSet) {
    let take = || set.try_acquire([("tokens", 10)]).unwrap();
    let mut held = [take(), take(), take()].map(Some);
    let mut calls = Some(set.try_acquire([("connections", 0)]).unwrap());
    let before = parents_part(set);
    Forked::new(|| {
        let [first, second, third] = &mut held;
        let mine = first.as_mut().unwrap();
        for answer in [mine.update("tokens", 3), mine.adjust("tokens", 50), mine.settle("tokens", 0)] {
            assert!(matches!(answer, Err(UsageError::Forked)), "{answer:?}");
        }
        let more = mine.acquire_more([("tokens", 1)]).unwrap_err();
        assert!(matches!(more, AcquireError::Forked), "{more}");
        assert_eq!(
            more.to_string(),
            "this acquisition was made before a fork and belongs to the parent process: acquire anew"
        );
        assert!(matches!(first.take().unwrap().release(), Err(UsageError::Forked)));
        assert!(matches!(second.take().unwrap().cancel(), Err(UsageError::Forked)));
        drop(third.take());
        let nothing_held = calls.take().unwrap().release();
        assert!(matches!(nothing_held, Err(UsageError::Forked)), "{nothing_held:?}");
    })
    .join();
    assert_eq!(parents_part(set), before);
    // Nor does it matter that the child has a name of its own when it lets go.
    Forked::new(|| {
        set.try_acquire([("tokens", 0), ("call_count", 0), ("connections", 0)]).unwrap().release().unwrap();
        held.iter_mut().for_each(|it| drop(it.take()));
    })
    .join();
    set.reap().unwrap();
    assert_eq!(parents_part(set), before);
    for held in held {
        let mut held = held.unwrap();
        assert_eq!(held.update("tokens", 4).unwrap(), 6);
        held.release().unwrap();
    }
    assert_eq!((limit(set, "tokens").consumed, limit(set, "connections").in_use), (12, 0));
}

fn own(set: &LimitSet) {
    let parent = set.segment().participant().unwrap();
    let held = set.try_acquire([("tokens", 10)]).unwrap();
    Forked::new(|| {
        let mut mine = set.try_acquire([("tokens", 20), ("connections", 2)]).unwrap();
        let stats = set.stats().unwrap();
        let [theirs, ours] = stats.participants.as_slice() else { panic!("{stats:?}") };
        assert_eq!((theirs.participant, theirs.holds[0].1), (parent, 1));
        assert_eq!(ours.participant, set.segment().participant().unwrap());
        assert_eq!((ours.holds[0].1, ours.owes_reports[0].1), (2, 1));
        assert_eq!(ours.info.as_ref().unwrap().pid, u64::from(std::process::id()));
        assert!(matches!(set.try_acquire([("connections", 2)]), Err(AcquireError::Denied(_))));
        mine.update("tokens", 15).unwrap();
        mine.release().unwrap();
        assert_eq!(set.config()["region"], "eu");
        set.advance(Duration::from_secs(60)).unwrap();
    })
    .join();
    assert_eq!(set.segment().participant().unwrap(), parent);
    let tokens = limit(set, "tokens");
    assert_eq!(
        (tokens.consumed, tokens.available, tokens.unreported),
        (25, 100, 0),
        "the clock moved for us too"
    );
    assert_eq!(limit(set, "connections").in_use, 1);
    held.cancel().unwrap();
}

fn dead_child() {
    let set = builder().segment(options().doorbell_slice(Duration::ZERO)).open_anonymous().unwrap();
    Forked::new(|| std::mem::forget(set.try_acquire([("tokens", 10), ("connections", 4)]).unwrap())).join();
    assert_eq!(limit(&set, "connections").in_use, 4);
    let held = set.try_acquire([("connections", 4)]).unwrap();
    assert_eq!((limit(&set, "tokens").consumed, limit(&set, "tokens").unreported), (10, 1));
    held.release().unwrap();
}

fn private() {
    let set = builder().in_memory().unwrap();
    let resolved = set.request().amount("tokens", 1).build().unwrap();
    let mut held = Some(set.try_acquire(&resolved).unwrap());
    let before = set.stats().unwrap();
    Forked::new(|| {
        for answer in [
            set.try_acquire([("tokens", 1)]).map(drop),
            set.try_acquire(&resolved).map(drop),
            set.check([("tokens", 1)]).map(drop),
        ] {
            assert!(matches!(answer, Err(AcquireError::NotShared)), "{answer:?}");
        }
        for answer in [
            set.stats().map(drop),
            set.reset(),
            set.reconfigure([CallLimit::per_minute(1)]),
            set.advance(Duration::ZERO),
            set.reap().map(drop),
        ] {
            assert!(matches!(answer, Err(ManageError::NotShared)), "{answer:?}");
        }
        let mut held = held.take().unwrap();
        assert!(matches!(held.update("tokens", 0), Err(UsageError::Forked)));
        assert!(matches!(held.release(), Err(UsageError::Forked)));
        // What is fixed can be read, and a set of the child's own made from it.
        let again = LimitSet::builder().limits(set.limits().to_vec()).in_memory().unwrap();
        again.try_acquire([("tokens", 100)]).unwrap().cancel().unwrap();
    })
    .join();
    assert_eq!(set.stats().unwrap(), before);
    // The policy for trouble is none for this.
    let open = builder().on_unavailable(OnUnavailable::Allow).in_memory().unwrap();
    Forked::new(|| assert!(matches!(open.try_acquire([("tokens", 1)]), Err(AcquireError::NotShared)))).join();
    held.take().unwrap().cancel().unwrap();
}

fn no_slot(name: &str) {
    let set = builder().segment(options().slots(1)).open(name).unwrap();
    Forked::new(|| {
        let error = set.try_acquire([("tokens", 1)]).unwrap_err();
        let AcquireError::Unavailable(why) = &error else { panic!("{error}") };
        assert!(
            matches!(**why, Unavailable::Enrol(AttachError::TooManyParticipants { slots: 1, .. })),
            "{why}"
        );
    })
    .join();
    set.remove().unwrap();
    let open = builder().segment(options().slots(1)).on_unavailable(OnUnavailable::Allow).open(name).unwrap();
    Forked::new(|| {
        let held = open.try_acquire([("tokens", 1)]).unwrap();
        assert!(!held.enforced());
        held.release().unwrap();
    })
    .join();
    let stats = open.stats().unwrap();
    assert_eq!((stats.unenforced, stats.limit("tokens").unwrap().granted), (1, 0));
    open.remove().unwrap();
}
