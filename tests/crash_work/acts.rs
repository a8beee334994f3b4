//! What victims do to a pause and to a work queue, and what they need for it.

use std::time::Duration;

use limitset::{Acquisition, Finished, LimitSet, QueueError, WorkItem};

use crate::stage::{Ask, NO_SLICE, PERMITS, Stage, builder, payload_of, result_of, why_of};
use crate::support::Random;

/// What a late report asks for, how long a pause by hand lasts, and when an item is tried again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(500);
pub(crate) const BY_HAND: Duration = Duration::from_secs(300);
pub(crate) const PUT_OFF: Duration = Duration::from_secs(700);

/// What a victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Says that the other side wants less: a pause begins.
    Report,
    /// The same about the time before a pause, which becomes longer.
    Late,
    PauseByHand,
    /// Ends a pause that somebody waits for.
    Resume,
    /// Releases something that went well after a pause.
    Success,
    /// Acquires in a slow start.
    Admission,
    Push,
    TakeReady,
    TakeParked,
    TakeDelayed,
    Done,
    DoneWith,
    Retry,
    /// The attempt was the last one.
    RetryLast,
    Park,
    /// The 429 was the last one.
    ParkLast,
    GiveBack,
    DeadLetter,
    Drop,
    Collect,
    Forget,
    /// Drops what was collected.
    PutBack,
    Revive,
    Close,
    /// Cleans up after a worker; after one whose attempt was the last; after a collector.
    Reap,
    ReapLast,
    ReapCollector,
    /// Attaches, in the slot of a dead worker.
    Enrol,
}

impl Act {
    pub(crate) const ALL: [(Self, &'static str); 28] = [
        (Self::Report, "rate_limited"),
        (Self::Late, "rate_limited, late"),
        (Self::PauseByHand, "pause"),
        (Self::Resume, "resume with one waiting"),
        (Self::Success, "release that is a success"),
        (Self::Admission, "try_acquire in a slow start"),
        (Self::Push, "push"),
        (Self::TakeReady, "take"),
        (Self::TakeParked, "take of a parked item"),
        (Self::TakeDelayed, "take of a delayed item"),
        (Self::Done, "done"),
        (Self::DoneWith, "done_with"),
        (Self::Retry, "retry"),
        (Self::RetryLast, "retry, the last attempt"),
        (Self::Park, "parking an item"),
        (Self::ParkLast, "parking an item, the last 429"),
        (Self::GiveBack, "give_back"),
        (Self::DeadLetter, "dead_letter"),
        (Self::Drop, "drop of an item"),
        (Self::Collect, "collect"),
        (Self::Forget, "forget"),
        (Self::PutBack, "drop of a result"),
        (Self::Revive, "revive"),
        (Self::Close, "close"),
        (Self::Reap, "reaping a worker"),
        (Self::ReapLast, "reaping a worker, the last attempt"),
        (Self::ReapCollector, "reaping a collector"),
        (Self::Enrol, "attaching in the slot of a worker"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(act, _)| *act == self).unwrap().1
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|(_, it)| *it == name).unwrap().0
    }

    /// Whether it is about the pause; the others are about items.
    pub(crate) fn is_of_the_pause(self) -> bool {
        use Act::{Admission, Late, PauseByHand, Report, Resume, Success};
        matches!(self, Report | Late | PauseByHand | Resume | Success | Admission)
    }

    /// Whether it hands out an item that others want, too.
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::TakeReady | Self::TakeParked | Self::TakeDelayed)
    }

    /// Whether it needs an item that is ready.
    pub(crate) fn needs_ready(self) -> bool {
        use Act::{
            DeadLetter, Done, DoneWith, Drop, Enrol, GiveBack, Park, Reap, ReapLast, Retry, RetryLast,
        };
        matches!(self, Done | DoneWith | Retry | RetryLast | Park | GiveBack | DeadLetter | Drop)
            || matches!(self, Self::TakeReady | Reap | ReapLast | Enrol)
    }

    /// Whether that item has been tried once before.
    pub(crate) fn takes_second_attempt(self) -> bool {
        matches!(self, Self::RetryLast | Self::ReapLast)
    }

    /// Whether somebody else has something and dies before the victim acts on it.
    pub(crate) fn reaps(self) -> bool {
        matches!(self, Self::Reap | Self::ReapLast | Self::ReapCollector | Self::Enrol)
    }

    /// Gets the victim to where it acts.
    pub(crate) fn prepare(self, set: &LimitSet) -> Has {
        // From here on it has a row.
        set.try_acquire(Ask(0, 0, 0).request()).unwrap().release().unwrap();
        let queue = set.queue().unwrap();
        let item = || queue.try_take().unwrap().unwrap();
        let held = |ask: Ask| set.try_acquire(ask.request()).unwrap();
        match self {
            Self::Report => Has::Held(held(Ask(1, 7, PERMITS))),
            Self::Late => Has::Held(held(Ask(1, 7, 1))),
            Self::Success => {
                let mut held = held(Ask(1, 7, PERMITS));
                held.settle("tokens", 7).unwrap();
                Has::Held(held)
            }
            Self::Park | Self::ParkLast => Has::Item(item(), Some(held(Ask(1, 7, 1)))),
            Self::Done | Self::DoneWith | Self::Retry | Self::RetryLast => Has::Item(item(), None),
            Self::GiveBack | Self::DeadLetter | Self::Drop => Has::Item(item(), None),
            Self::Forget | Self::PutBack => Has::Finished(queue.try_collect().unwrap().unwrap()),
            Self::Revive => Has::Finished(queue.collect_dead().unwrap().unwrap()),
            _ => Has::Nothing,
        }
    }

    /// Does it. Nothing is given back afterwards. `id` is that of a new item.
    pub(crate) fn perform(self, set: &LimitSet, id: u64, has: Has) {
        let queue = || set.queue().unwrap();
        match (self, has) {
            (Self::Report, Has::Held(held)) => assert!(!held.rate_limited(None).unwrap().absorbed),
            (Self::Late, Has::Held(held)) => assert!(held.rate_limited(Some(RETRY_AFTER)).unwrap().absorbed),
            (Self::PauseByHand, _) => assert!(!set.pause(BY_HAND).unwrap().absorbed),
            (Self::Resume, _) => assert!(set.resume().unwrap()),
            (Self::Success, Has::Held(held)) => held.release().unwrap(),
            (Self::Admission, _) => std::mem::forget(set.try_acquire(ADMITTED.request()).unwrap()),
            (Self::Push, _) => queue().push(id, &payload_of(id)).unwrap(),
            (act, _) if act.takes() => std::mem::forget(queue().take().unwrap().unwrap()),
            (Self::Collect, _) => std::mem::forget(queue().collect().unwrap().unwrap()),
            (Self::Close, _) => queue().close().unwrap(),
            (Self::Reap | Self::ReapLast | Self::ReapCollector, _) => {
                set.reap().unwrap();
            }
            (Self::Drop, Has::Item(item, _)) => drop(item),
            (act, Has::Item(mut item, held)) => act.end(&mut item, held).unwrap(),
            (Self::Forget, Has::Finished(mut finished)) => finished.forget().unwrap(),
            (Self::Revive, Has::Finished(mut finished)) => finished.revive().unwrap(),
            (Self::PutBack, Has::Finished(finished)) => drop(finished),
            (act, _) => panic!("{act:?} was prepared otherwise"),
        }
    }

    /// Says what became of an item.
    fn end(self, item: &mut WorkItem, held: Option<Acquisition>) -> Result<(), QueueError> {
        let id = item.id();
        match self {
            Self::Done => item.done(),
            Self::DoneWith => item.done_with(&result_of(id)),
            Self::Retry | Self::RetryLast => item.retry(PUT_OFF),
            Self::Park | Self::ParkLast => item.rate_limited(held.unwrap(), None).map(drop),
            Self::GiveBack => item.give_back(),
            Self::DeadLetter => item.dead_letter(&why_of(id)),
            act => panic!("{act:?} says nothing of an item"),
        }
    }
}

/// What is asked for in a slow start.
pub(crate) const ADMITTED: Ask = Ask(1, 7, 0);

/// What a victim has before it acts.
pub(crate) enum Has {
    Nothing,
    Held(Acquisition),
    Item(WorkItem, Option<Acquisition>),
    Finished(Finished),
}

/// Does the act elsewhere, so that later there is no first-time work of loader and runtime.
pub(crate) fn rehearse(act: Act) {
    let set = builder(NO_SLICE).in_memory().unwrap();
    let mut random = Random::new(3);
    let mut stage = Stage { set: &set, random: &mut random, is_bare: true };
    let mut mine = stage.set_up(act);
    let has = act.prepare(&set);
    stage.set_up_around(act, &mut mine, |_| {});
    act.perform(&set, 1, has);
}
