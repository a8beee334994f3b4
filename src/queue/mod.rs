//! Work that survives its worker: a bounded queue of items in the segment of a set.

mod error;
mod future;
mod item;
mod op;
mod wait;

use std::fmt;
use std::time::Duration;

pub use self::error::QueueError;
pub use self::future::{CollectFuture, DrainFuture, PushFuture, TakeFuture};
pub use self::item::{Finished, WorkItem};
use self::op::{Collect, Drain, Push, Take};
use self::wait::Timeout;
use crate::api::set::LimitSet;
use crate::engine::Finishes;
pub use crate::shared::stats::QueueStats;
use crate::shared::work::QueueShape;

/// A queue of work, shared by every process that opens the set.
///
/// An item is some bytes and a number of the program's own. It is handed out to one worker at a time, which says what
/// became of it. If the worker is killed instead, the item goes to another one. Nothing is lost, nothing is with two
/// workers at one time, and the end of an item is recorded once; but what a worker has done before it was killed may be
/// done again, so **an item may be worked on more than once**.
///
/// ```
/// use limitset::{CallLimit, LimitSet, QueueOptions};
///
/// let limits = LimitSet::builder()
///     .limit(CallLimit::per_minute(600))
///     .queue(QueueOptions::new(1_000, 64))
///     .in_memory()?;
///
/// let queue = limits.queue()?;
/// for (id, city) in [(1, "Oslo"), (2, "Lima")] {
///     queue.push(id, city.as_bytes())?;
/// }
/// queue.close()?;
///
/// while let Some(mut item) = queue.take()? {          // in any number of workers
///     let held = limits.acquire(())?;
///     let answer = String::from_utf8_lossy(item.payload()).to_uppercase();
///     held.release()?;
///     item.done_with(answer.as_bytes())?;             // or retry, rate_limited, dead_letter; or be killed
/// }
///
/// while let Some(mut result) = queue.collect()? {
///     println!("{}: {}", result.id(), String::from_utf8_lossy(result.result()));
///     result.forget()?;                               // makes room for another item
/// }
/// # assert_eq!(queue.stats()?.done, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An item whose request was answered with "too many requests" is [parked](WorkItem::rate_limited) until the set's
/// pause is over, and then handed out before all others. An item that fails or loses its worker too often becomes a
/// [dead letter](Self::collect_dead).
#[derive(Clone)]
pub struct WorkQueue {
    set: LimitSet,
    shape: QueueShape,
}

impl LimitSet {
    /// The work queue of the set.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoQueue`] if the set was created without one.
    pub fn queue(&self) -> Result<WorkQueue, QueueError> {
        match self.shared().queue_shape() {
            Some(shape) => Ok(WorkQueue { set: self.clone(), shape }),
            None => Err(QueueError::NoQueue),
        }
    }
}

impl WorkQueue {
    /// The set that the queue belongs to.
    pub fn set(&self) -> &LimitSet {
        &self.set
    }

    /// Adds an item; waits while all places are taken. `id` means nothing to the queue.
    ///
    /// # Errors
    ///
    /// [`QueueError::TooLong`] or [`QueueError::Closed`]; nothing was added then.
    pub fn push(&self, id: u64, payload: &[u8]) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::Never)
    }

    /// As [`push`](Self::push), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `push`, and [`QueueError::TimedOut`].
    pub fn push_timeout(&self, id: u64, payload: &[u8], timeout: Duration) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::After(timeout))
    }

    /// As [`push`](Self::push), without waiting.
    ///
    /// # Errors
    ///
    /// As `push`, and [`QueueError::Full`].
    pub fn try_push(&self, id: u64, payload: &[u8]) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::Now)
    }

    fn push_within(&self, id: u64, payload: &[u8], timeout: Timeout) -> Result<(), QueueError> {
        let pushed = self.wait(&Push { id, payload: payload.into() }, timeout)?;
        pushed.ok_or_else(|| QueueError::Full { items: self.shape.items })
    }

    /// Takes the next item; waits while there is none. None: the queue is [closed](Self::close), and all that was in it
    /// is finished.
    ///
    /// First come the items that were parked, once their pause is over, then those to be tried again whose time has come,
    /// then the others in the order in which they were pushed.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn take(&self) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::Never)
    }

    /// As [`take`](Self::take), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `take`, and [`QueueError::TimedOut`].
    pub fn take_timeout(&self, timeout: Duration) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::After(timeout))
    }

    /// As [`take`](Self::take), without waiting.
    ///
    /// # Errors
    ///
    /// As `take`, and [`QueueError::Empty`].
    pub fn try_take(&self) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::Now)
    }

    fn take_within(&self, timeout: Timeout) -> Result<Option<WorkItem>, QueueError> {
        self.wait(&Take, timeout)?.ok_or(QueueError::Empty)
    }

    /// Takes the oldest result that nobody has collected; waits while there is none. None: the queue is
    /// [closed](Self::close), and no result is left or will come. Its place is free once it is
    /// [forgotten](Finished::forget); if the collector is killed before that, somebody else gets it. So forget, or drop,
    /// one before asking for the next: what is held may still be put back.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn collect(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::Never)
    }

    /// As [`collect`](Self::collect), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `collect`, and [`QueueError::TimedOut`].
    pub fn collect_timeout(&self, timeout: Duration) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::After(timeout))
    }

    /// As [`collect`](Self::collect), without waiting.
    ///
    /// # Errors
    ///
    /// As `collect`, and [`QueueError::Empty`].
    pub fn try_collect(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::Now)
    }

    /// Takes the oldest dead letter, without waiting: an item that was given up. It may be [forgotten](Finished::forget)
    /// or [tried again](Finished::revive).
    ///
    /// # Errors
    ///
    /// [`QueueError::Empty`] if there is none but may be one later; none is given if the queue is closed and all is
    /// finished.
    pub fn collect_dead(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::DeadLetters, Timeout::Now)
    }

    fn collect_within(&self, from: Finishes, timeout: Timeout) -> Result<Option<Finished>, QueueError> {
        self.wait(&Collect(from), timeout)?.ok_or(QueueError::Empty)
    }

    /// From now on nothing can be pushed, by anybody. Workers go on until all is finished.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn close(&self) -> Result<(), QueueError> {
        Ok(self.set.shared().close_queue()?)
    }

    /// Waits until everything that was pushed is finished: done, or a dead letter.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn drain(&self) -> Result<(), QueueError> {
        self.drain_within(Timeout::Never)
    }

    /// As [`drain`](Self::drain), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `drain`, and [`QueueError::TimedOut`].
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), QueueError> {
        self.drain_within(Timeout::After(timeout))
    }

    fn drain_within(&self, timeout: Timeout) -> Result<(), QueueError> {
        // It always waits, so that there is an answer.
        self.wait(&Drain, timeout).map(drop)
    }

    /// The queue at one instant.
    ///
    /// # Errors
    ///
    /// If the set cannot be read.
    pub fn stats(&self) -> Result<QueueStats, QueueError> {
        self.set.stats()?.queue.ok_or(QueueError::NoQueue)
    }
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("set", &self.set).finish()
    }
}

fn check_length(what: &'static str, bytes: &[u8], most: u32) -> Result<(), QueueError> {
    if bytes.len() > most as usize {
        return Err(QueueError::TooLong { what, found: bytes.len(), most });
    }
    Ok(())
}
