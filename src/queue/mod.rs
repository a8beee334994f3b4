//! Work that survives its worker: a bounded queue of items in the segment of a set.

mod error;
mod item;
mod stats;

use std::fmt;
use std::time::Duration;

pub use self::error::QueueError;
pub use self::item::{Finished, WorkItem};
pub use self::stats::QueueStats;
use crate::answer::{Trouble, Unavailable};
use crate::core::{Fault, Guard, NEVER};
use crate::engine::{Engine, Finishes, Lease, Pushed, Taken};
use crate::enter::attach_trouble;
use crate::events;
use crate::set::LimitSet;
use crate::sys::clock;
use crate::sys::machine::Machine;
use crate::wait::LAST_LOCK;

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
}

/// How long to wait.
#[derive(Clone, Copy)]
enum Patience {
    Not,
    For(Duration),
    Forever,
}

/// What came of a look at the queue.
enum Step<T> {
    Here(T),
    /// Not now; look again at this instant in any case.
    NotNow(u64),
}

impl LimitSet {
    /// The work queue of the set.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoQueue`] if the set was created without one.
    pub fn queue(&self) -> Result<WorkQueue, QueueError> {
        match self.segment().view().checked.items {
            Some(_) => Ok(WorkQueue { set: self.clone() }),
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
        self.push_within(id, payload, Patience::Forever)
    }

    /// As [`push`](Self::push), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `push`, and [`QueueError::TimedOut`].
    pub fn push_timeout(&self, id: u64, payload: &[u8], timeout: Duration) -> Result<(), QueueError> {
        self.push_within(id, payload, Patience::For(timeout))
    }

    /// As [`push`](Self::push), without waiting.
    ///
    /// # Errors
    ///
    /// As `push`, and [`QueueError::Full`].
    pub fn try_push(&self, id: u64, payload: &[u8]) -> Result<(), QueueError> {
        self.push_within(id, payload, Patience::Not)
    }

    fn push_within(&self, id: u64, payload: &[u8], patience: Patience) -> Result<(), QueueError> {
        self.check_length("an item", payload, self.header().payload_bytes)?;
        let pushed = self.wait(patience, |engine, guard, _| {
            Ok(match engine.push_item(guard, id, payload)? {
                Pushed::Full => Step::NotNow(NEVER),
                done => Step::Here(done),
            })
        })?;
        match pushed {
            Some(Pushed::Pushed) => Ok(()),
            Some(_) => Err(QueueError::Closed),
            None => Err(QueueError::Full { items: self.header().items }),
        }
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
        self.take_within(Patience::Forever)
    }

    /// As [`take`](Self::take), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `take`, and [`QueueError::TimedOut`].
    pub fn take_timeout(&self, timeout: Duration) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Patience::For(timeout))
    }

    /// As [`take`](Self::take), without waiting.
    ///
    /// # Errors
    ///
    /// As `take`, and [`QueueError::Empty`].
    pub fn try_take(&self) -> Result<Option<WorkItem>, QueueError> {
        self.take_within(Patience::Not)
    }

    fn take_within(&self, patience: Patience) -> Result<Option<WorkItem>, QueueError> {
        let time = self.set.clock();
        let taken =
            self.wait(patience, |engine, guard, now| Ok(step(engine.take_item(guard, &time, now)?)))?;
        match taken {
            Some(Some(lease)) => WorkItem::new(self.set.clone(), lease).map(Some),
            Some(None) => Ok(None),
            None => Err(QueueError::Empty),
        }
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
        self.collect_within(Finishes::Results, Patience::Forever)
    }

    /// As [`collect`](Self::collect), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `collect`, and [`QueueError::TimedOut`].
    pub fn collect_timeout(&self, timeout: Duration) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Patience::For(timeout))
    }

    /// As [`collect`](Self::collect), without waiting.
    ///
    /// # Errors
    ///
    /// As `collect`, and [`QueueError::Empty`].
    pub fn try_collect(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::Results, Patience::Not)
    }

    /// Takes the oldest dead letter, without waiting: an item that was given up. It may be [forgotten](Finished::forget)
    /// or [tried again](Finished::revive).
    ///
    /// # Errors
    ///
    /// [`QueueError::Empty`] if there is none but may be one later; none is given if the queue is closed and all is
    /// finished.
    pub fn collect_dead(&self) -> Result<Option<Finished>, QueueError> {
        self.collect_within(Finishes::DeadLetters, Patience::Not)
    }

    fn collect_within(&self, from: Finishes, patience: Patience) -> Result<Option<Finished>, QueueError> {
        let taken = self.wait(patience, |engine, guard, _| Ok(step(engine.collect_item(guard, from)?)))?;
        match taken {
            Some(Some(lease)) => Finished::new(self.set.clone(), lease).map(Some),
            Some(None) => Ok(None),
            None => Err(QueueError::Empty),
        }
    }

    /// From now on nothing can be pushed, by anybody. Workers go on until all is finished.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn close(&self) -> Result<(), QueueError> {
        Ok(self.set.locked(|engine, guard, _| engine.close_work(guard))?)
    }

    /// Waits until everything that was pushed is finished: done, or a dead letter.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn drain(&self) -> Result<(), QueueError> {
        self.drain_within(Patience::Forever)
    }

    /// As [`drain`](Self::drain), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As `drain`, and [`QueueError::TimedOut`].
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), QueueError> {
        self.drain_within(Patience::For(timeout))
    }

    fn drain_within(&self, patience: Patience) -> Result<(), QueueError> {
        self.wait(patience, |engine, guard, _| {
            Ok(if engine.unfinished(guard)? == 0 { Step::Here(()) } else { Step::NotNow(NEVER) })
        })?;
        Ok(())
    }

    /// The queue at one instant.
    ///
    /// # Errors
    ///
    /// If the set cannot be read.
    pub fn stats(&self) -> Result<QueueStats, QueueError> {
        self.set.stats()?.queue.ok_or(QueueError::NoQueue)
    }

    fn header(&self) -> &crate::layout::header::Header {
        &self.set.segment().view().checked.header
    }

    fn check_length(&self, what: &'static str, bytes: &[u8], most: u32) -> Result<(), QueueError> {
        if bytes.len() > most as usize {
            return Err(QueueError::TooLong { what, found: bytes.len(), most });
        }
        Ok(())
    }

    /// Looks, and sleeps until there is a reason to look again. None: it was not to wait.
    fn wait<T>(
        &self,
        patience: Patience,
        mut look: impl FnMut(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<Step<T>, Fault>,
    ) -> Result<Option<T>, QueueError> {
        let set = &self.set;
        let deadline = match patience {
            Patience::For(timeout) => clock::deadline(timeout),
            Patience::Not | Patience::Forever => NEVER,
        };
        // The dead may have what is missing, or what nobody misses because there is always something else to do.
        if set.is_time_to_sweep(set.engine()) {
            match set.sweep_within(clock::nanos(LAST_LOCK)) {
                Ok(_) | Err(Trouble::Unavailable(Unavailable::Busy { .. })) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        loop {
            // Before the look: what changes after it changes the doorbell.
            let seen = set.engine().work_bell();
            let left = deadline.saturating_sub(clock::monotonic()).max(clock::nanos(LAST_LOCK));
            let looked = set.locked_within(left.min(set.segment().patience()), &mut look)?;
            let look_at = match looked {
                Step::Here(value) => return Ok(Some(value)),
                Step::NotNow(look_at) => look_at,
            };
            if let Patience::Not = patience {
                return Ok(None);
            }
            if deadline != NEVER && clock::monotonic() >= deadline {
                return Err(QueueError::TimedOut);
            }
            let me = set.segment().participant().map_err(attach_trouble)?;
            let view = set.segment().view();
            let until = deadline.min(look_at);
            let engine = set.engine();
            let slept = engine.sleep_for_work(me, seen, until, set.vigil(), &set.clock(), |swept| {
                events::swept(set, &swept);
                view.look_at_name()
            });
            slept.map_err(|fault| set.trouble(fault))?;
        }
    }
}

fn step(taken: Taken) -> Step<Option<Lease>> {
    match taken {
        Taken::Item(lease) => Step::Here(Some(lease)),
        Taken::Over => Step::Here(None),
        Taken::NotNow { look_at } => Step::NotNow(look_at),
    }
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("set", &self.set).finish()
    }
}
