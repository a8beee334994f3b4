//! What can be waited for at a queue: how one looks for it under the lock, and what it is to whoever asked. The same for
//! threads and for futures.

use std::borrow::Cow;

use super::{Finished, QueueError, WorkItem, WorkQueue};
use crate::core::{Fault, Guard, NEVER};
use crate::engine::{Engine, Finishes, Lease, Pushed, Taken, Watch, WorkBell};
use crate::sys::machine::Machine;

/// What came of a look at the queue.
pub(super) enum Step<T> {
    Here(T),
    /// Not now; look again at this instant in any case.
    NotNow(u64),
}

/// Something that can be waited for.
pub(super) trait Wish {
    /// What it is under the lock.
    type Found;
    /// What it is to whoever asked.
    type Got;
    /// What rings when there may be more of it.
    const BELL: WorkBell;

    /// Whether it makes sense to look at all.
    fn check(&self, _: &WorkQueue) -> Result<(), QueueError> {
        Ok(())
    }

    /// Looks for it. What is found is taken.
    fn look(
        &self,
        queue: &WorkQueue,
        engine: &Engine<'_, Machine>,
        guard: &mut Guard<'_, Machine>,
        watch: &mut Watch,
        now: u64,
    ) -> Result<Step<Self::Found>, Fault>;

    /// Makes something of what was found.
    fn get(queue: &WorkQueue, found: Self::Found) -> Result<Self::Got, QueueError>;
}

/// Room for one more item, which is pushed.
pub(super) struct Push<'a> {
    pub(super) id: u64,
    pub(super) payload: Cow<'a, [u8]>,
}

/// An item to work on; none, if none will come.
pub(super) struct Take;

/// A finished item; none, if none will come.
pub(super) struct Collect(pub(super) Finishes);

/// That everything is finished.
pub(super) struct Drain;

impl Wish for Push<'_> {
    type Found = Pushed;
    type Got = ();
    const BELL: WorkBell = WorkBell::Pushers;

    fn check(&self, queue: &WorkQueue) -> Result<(), QueueError> {
        queue.check_length("an item", &self.payload, queue.header().payload_bytes)
    }

    fn look(
        &self,
        _: &WorkQueue,
        engine: &Engine<'_, Machine>,
        guard: &mut Guard<'_, Machine>,
        _: &mut Watch,
        _: u64,
    ) -> Result<Step<Pushed>, Fault> {
        Ok(match engine.push_item(guard, self.id, &self.payload)? {
            Pushed::Full => Step::NotNow(NEVER),
            done => Step::Here(done),
        })
    }

    fn get(_: &WorkQueue, pushed: Pushed) -> Result<(), QueueError> {
        if pushed == Pushed::Pushed { Ok(()) } else { Err(QueueError::Closed) }
    }
}

impl Wish for Take {
    type Found = Option<Lease>;
    type Got = Option<WorkItem>;
    const BELL: WorkBell = WorkBell::Takers;

    fn look(
        &self,
        queue: &WorkQueue,
        engine: &Engine<'_, Machine>,
        guard: &mut Guard<'_, Machine>,
        watch: &mut Watch,
        now: u64,
    ) -> Result<Step<Option<Lease>>, Fault> {
        Ok(step(engine.take_or_watch(guard, &queue.set.clock(), watch, now)?))
    }

    fn get(queue: &WorkQueue, found: Option<Lease>) -> Result<Option<WorkItem>, QueueError> {
        found.map(|lease| WorkItem::new(queue.set.clone(), lease)).transpose()
    }
}

impl Wish for Collect {
    type Found = Option<Lease>;
    type Got = Option<Finished>;
    const BELL: WorkBell = WorkBell::Collectors;

    fn look(
        &self,
        _: &WorkQueue,
        engine: &Engine<'_, Machine>,
        guard: &mut Guard<'_, Machine>,
        _: &mut Watch,
        _: u64,
    ) -> Result<Step<Option<Lease>>, Fault> {
        Ok(step(engine.collect_item(guard, self.0)?))
    }

    fn get(queue: &WorkQueue, found: Option<Lease>) -> Result<Option<Finished>, QueueError> {
        found.map(|lease| Finished::new(queue.set.clone(), lease)).transpose()
    }
}

impl Wish for Drain {
    type Found = ();
    type Got = ();
    const BELL: WorkBell = WorkBell::Drainers;

    fn look(
        &self,
        _: &WorkQueue,
        engine: &Engine<'_, Machine>,
        guard: &mut Guard<'_, Machine>,
        _: &mut Watch,
        _: u64,
    ) -> Result<Step<()>, Fault> {
        Ok(if engine.unfinished(guard)? == 0 { Step::Here(()) } else { Step::NotNow(NEVER) })
    }

    fn get(_: &WorkQueue, (): ()) -> Result<(), QueueError> {
        Ok(())
    }
}

fn step(taken: Taken) -> Step<Option<Lease>> {
    match taken {
        Taken::Item(lease) => Step::Here(Some(lease)),
        Taken::Over => Step::Here(None),
        Taken::NotNow { look_at, .. } => Step::NotNow(look_at),
    }
}
