//! The operations that a caller can wait for at a work queue: how each polls the queue, and the value it returns.
//! Threads and futures share this implementation.

use std::borrow::Cow;

use super::{Finished, QueueError, WorkItem, WorkQueue, check_length};
use crate::engine::{Finishes, Lease, Pushed, Taken, Watch, WorkBell};
use crate::protocol::NEVER;
use crate::shared::SharedSet;
use crate::shared::error::SetError;

/// The result of polling the queue.
pub(super) enum Step<T> {
    Ready(T),
    /// Nothing yet; poll again at this instant in any case.
    Pending(u64),
}

/// An operation that a caller can wait for.
pub(super) trait Op {
    /// The value that a poll finds in the segment.
    type Found;
    /// The value that the caller gets.
    type Output;
    /// The doorbell that rings when a poll may succeed.
    const BELL: WorkBell;

    /// Checks the arguments before the queue is polled.
    fn check(&self, _: &WorkQueue) -> Result<(), QueueError> {
        Ok(())
    }

    /// Polls the queue. Takes the item that it finds.
    fn poll(
        &self,
        set: &SharedSet,
        watch: &mut Watch,
        lock_timeout: u64,
    ) -> Result<Step<Self::Found>, SetError>;

    /// Makes the caller's value from the one that was found.
    fn output(queue: &WorkQueue, found: Self::Found) -> Result<Self::Output, QueueError>;
}

/// Pushes an item when there is room.
pub(super) struct Push<'a> {
    pub(super) id: u64,
    pub(super) payload: Cow<'a, [u8]>,
}

/// Takes an item to work on; `None` if the queue is closed and no item will come.
pub(super) struct Take;

/// Takes a finished item; `None` if the queue is closed and no finished item will come.
pub(super) struct Collect(pub(super) Finishes);

/// Waits until everything is finished.
pub(super) struct Drain;

impl Op for Push<'_> {
    type Found = Pushed;
    type Output = ();
    const BELL: WorkBell = WorkBell::Pushers;

    fn check(&self, queue: &WorkQueue) -> Result<(), QueueError> {
        check_length("an item", &self.payload, queue.shape.payload_bytes)
    }

    fn poll(&self, set: &SharedSet, _: &mut Watch, lock_timeout: u64) -> Result<Step<Pushed>, SetError> {
        Ok(match set.push_item(self.id, &self.payload, lock_timeout)? {
            Pushed::Full => Step::Pending(NEVER),
            done => Step::Ready(done),
        })
    }

    fn output(_: &WorkQueue, pushed: Pushed) -> Result<(), QueueError> {
        if pushed == Pushed::Pushed { Ok(()) } else { Err(QueueError::Closed) }
    }
}

impl Op for Take {
    type Found = Option<Lease>;
    type Output = Option<WorkItem>;
    const BELL: WorkBell = WorkBell::Takers;

    fn poll(
        &self,
        set: &SharedSet,
        watch: &mut Watch,
        lock_timeout: u64,
    ) -> Result<Step<Option<Lease>>, SetError> {
        set.take_item(watch, lock_timeout).map(step)
    }

    fn output(queue: &WorkQueue, found: Option<Lease>) -> Result<Option<WorkItem>, QueueError> {
        found.map(|lease| WorkItem::new(queue.set.clone(), lease)).transpose()
    }
}

impl Op for Collect {
    type Found = Option<Lease>;
    type Output = Option<Finished>;
    const BELL: WorkBell = WorkBell::Collectors;

    fn poll(
        &self,
        set: &SharedSet,
        _: &mut Watch,
        lock_timeout: u64,
    ) -> Result<Step<Option<Lease>>, SetError> {
        set.collect_item(self.0, lock_timeout).map(step)
    }

    fn output(queue: &WorkQueue, found: Option<Lease>) -> Result<Option<Finished>, QueueError> {
        found.map(|lease| Finished::new(queue.set.clone(), lease)).transpose()
    }
}

impl Op for Drain {
    type Found = ();
    type Output = ();
    const BELL: WorkBell = WorkBell::Drainers;

    fn poll(&self, set: &SharedSet, _: &mut Watch, lock_timeout: u64) -> Result<Step<()>, SetError> {
        let is_over = set.unfinished_items(lock_timeout)? == 0;
        Ok(if is_over { Step::Ready(()) } else { Step::Pending(NEVER) })
    }

    fn output(_: &WorkQueue, (): ()) -> Result<(), QueueError> {
        Ok(())
    }
}

fn step(taken: Taken) -> Step<Option<Lease>> {
    match taken {
        Taken::Item(lease) => Step::Ready(Some(lease)),
        Taken::Over => Step::Ready(None),
        Taken::NotNow { look_at, .. } => Step::Pending(look_at),
    }
}
