//! Work queues: a bounded queue of items in the segment of a set, which survive the death of their worker.

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
/// An item is some bytes and a number chosen by the program. The queue hands it out to one worker at a time, which
/// records the outcome. If the worker is killed instead, the item goes to another one. No item is lost, no two workers
/// hold an item at the same time, and its outcome is recorded once. But a killed worker may already have done part of
/// the work, so **an item may be worked on more than once**.
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
    /// Returns the work queue of the set.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoQueue`] if the set was created without a queue.
    pub fn queue(&self) -> Result<WorkQueue, QueueError> {
        match self.shared().queue_shape() {
            Some(shape) => Ok(WorkQueue { set: self.clone(), shape }),
            None => Err(QueueError::NoQueue),
        }
    }
}

impl WorkQueue {
    /// Returns the set that the queue belongs to.
    pub fn set(&self) -> &LimitSet {
        &self.set
    }

    /// Adds an item; waits while all places are taken. The queue does not interpret `id`.
    ///
    /// # Errors
    ///
    /// [`QueueError::TooLong`] or [`QueueError::Closed`], or [`QueueError::Unavailable`]; nothing was added then.
    pub fn push(&self, id: u64, payload: &[u8]) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::Never)
    }

    /// Adds an item, as [`push`](Self::push); waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and [`QueueError::TimedOut`].
    pub fn push_timeout(&self, id: u64, payload: &[u8], timeout: Duration) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::After(timeout))
    }

    /// Adds an item, as [`push`](Self::push), without waiting.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and [`QueueError::Full`].
    pub fn try_push(&self, id: u64, payload: &[u8]) -> Result<(), QueueError> {
        self.push_within(id, payload, Timeout::Now)
    }

    fn push_within(&self, id: u64, payload: &[u8], timeout: Timeout) -> Result<(), QueueError> {
        let pushed = self.wait(&Push { id, payload: payload.into() }, timeout)?;
        pushed.ok_or(QueueError::Full { items: self.shape.items })
    }

    /// Takes the next item; waits while there is none. Returns `None` if the queue is [closed](Self::close) and all its
    /// items are finished.
    ///
    /// Parked items come first, once their pause is over; then delayed items whose time has come; then the others in
    /// the order in which they were pushed.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn take(&self) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::Never)
    }

    /// Takes the next item, as [`take`](Self::take); waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take), and [`QueueError::TimedOut`].
    pub fn take_timeout(&self, timeout: Duration) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::After(timeout))
    }

    /// Takes the next item, as [`take`](Self::take), without waiting.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take), and [`QueueError::Empty`].
    pub fn try_take(&self) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Timeout::Now)
    }

    fn take_within(&self, timeout: Timeout) -> Result<Option<WorkItem>, QueueError> {
        self.wait(&Take, timeout)?.ok_or(QueueError::Empty)
    }

    /// Takes the oldest result that was not collected yet; waits while there is none. Returns `None` if the queue is
    /// [closed](Self::close) and no result is left or will come. The place of a result is free once it is
    /// [forgotten](Finished::forget); if the collector is killed before that, another collector gets it. So forget or
    /// drop a result before taking the next one: a result that is held may still be put back.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn collect(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::Never)
    }

    /// Takes the oldest result, as [`collect`](Self::collect); waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`collect`](Self::collect), and [`QueueError::TimedOut`].
    pub fn collect_timeout(&self, timeout: Duration) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::After(timeout))
    }

    /// Takes the oldest result, as [`collect`](Self::collect), without waiting.
    ///
    /// # Errors
    ///
    /// As [`collect`](Self::collect), and [`QueueError::Empty`].
    pub fn try_collect(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Timeout::Now)
    }

    /// Takes the oldest dead letter (an item that was given up), without waiting. The caller may
    /// [forget](Finished::forget) or [revive](Finished::revive) it. Returns `None` if the queue is closed and all its
    /// items are finished.
    ///
    /// # Errors
    ///
    /// [`QueueError::Empty`] if there is no dead letter now, but there may be one later; [`QueueError::Unavailable`] or
    /// [`QueueError::Removed`].
    pub fn collect_dead(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::DeadLetters, Timeout::Now)
    }

    fn collect_within(&self, from: Finishes, timeout: Timeout) -> Result<Option<Finished>, QueueError> {
        self.wait(&Collect(from), timeout)?.ok_or(QueueError::Empty)
    }

    /// Closes the queue: from now on no process can push items. Workers go on until all items are finished.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn close(&self) -> Result<(), QueueError> {
        Ok(self.set.shared().close_queue()?)
    }

    /// Waits until all items that were pushed are finished: done, or dead letters.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn drain(&self) -> Result<(), QueueError> {
        self.drain_within(Timeout::Never)
    }

    /// Waits until all items are finished, as [`drain`](Self::drain), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`drain`](Self::drain), and [`QueueError::TimedOut`].
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), QueueError> {
        self.drain_within(Timeout::After(timeout))
    }

    fn drain_within(&self, timeout: Timeout) -> Result<(), QueueError> {
        // `drain` always waits, so `wait` never returns `None`.
        self.wait(&Drain, timeout).map(drop)
    }

    /// Returns the statistics of the queue at one instant.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unavailable`] or [`QueueError::Removed`] if the set cannot be read.
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
