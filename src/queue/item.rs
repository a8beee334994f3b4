//! A work item in the hands of a worker or a collector: its outcome is recorded once, or it goes to another worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{QueueError, check_length};
use crate::api::acquisition::Acquisition;
use crate::api::set::LimitSet;
use crate::engine::{Collected, Lease, Part, Reason, Verdict};
use crate::limit::GivingUp;
use crate::segment::grantee::Grantee;
use crate::shared::admin::Pause;
use crate::shared::deferred::DROP_LOCK_TIMEOUT;
use crate::shared::events;
use crate::sys::clock;

/// A work item, held by this process until it records the outcome. If the item is dropped, or lost by a panic, or if
/// the process is killed, the item goes to another worker and the attempt counts. In a forked child it is inert.
///
/// A call with a bad argument (a result that is too long) changes nothing: the item is still held.
#[must_use = "dropped, the item goes to another worker"]
pub struct WorkItem {
    held: Held,
    payload: Vec<u8>,
}

/// A finished item, held by this process until it is [forgotten](Self::forget). If it is dropped, or if the process is
/// killed, it can be collected again.
#[must_use = "dropped, it can be collected again"]
pub struct Finished {
    held: Held,
    payload: Vec<u8>,
    result: Vec<u8>,
}

/// The common part of a [`WorkItem`] and a [`Finished`] item.
struct Held {
    set: LimitSet,
    lease: Lease,
    /// The participant that it was handed out to.
    to: Grantee,
    is_spent: bool,
}

impl Held {
    fn new(set: LimitSet, lease: Lease) -> Self {
        Self { set, lease, to: Grantee::new(lease.owner), is_spent: false }
    }

    fn read(&self, part: Part, bytes: usize) -> Result<Vec<u8>, QueueError> {
        Ok(self.set.shared().read_item(&self.lease, part, bytes)?)
    }

    fn check(&self) -> Result<(), QueueError> {
        self.to.check(self.set.segment())?;
        if self.is_spent { Err(QueueError::Spent) } else { Ok(()) }
    }

    fn end(&mut self, verdict: Verdict, patience: u64) -> Result<(), QueueError> {
        self.check()?;
        self.is_spent = true;
        let is_held = self.set.shared().end_lease(self.lease, verdict, patience)?;
        if is_held { Ok(()) } else { Err(QueueError::NotHeld) }
    }

    fn end_collecting(&mut self, what: Collected, patience: u64) -> Result<(), QueueError> {
        self.check()?;
        self.is_spent = true;
        let is_held = self.set.shared().end_collecting(self.lease, what, patience)?;
        if is_held { Ok(()) } else { Err(QueueError::NotHeld) }
    }

    fn patience(&self) -> u64 {
        self.set.shared().lock_timeout()
    }
}

impl WorkItem {
    pub(super) fn new(set: LimitSet, lease: Lease) -> Result<Self, QueueError> {
        // From here on, dropping the item returns it to the queue.
        let mut item = Self { held: Held::new(set, lease), payload: Vec::new() };
        item.payload = item.held.read(Part::Payload, lease.payload_bytes)?;
        Ok(item)
    }

    /// Returns the number that the program gave the item.
    pub fn id(&self) -> u64 {
        self.held.lease.id
    }

    /// Returns the payload that was pushed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns how often the item was handed out, including this time, without the times that ended with "too many
    /// requests".
    pub fn attempts(&self) -> u64 {
        self.held.lease.attempts
    }

    /// Returns how often the other side answered the item's request with "too many requests".
    pub fn rate_limits(&self) -> u64 {
        self.held.lease.rate_limits
    }

    /// Records that the item is done, and frees its place.
    ///
    /// # Errors
    ///
    /// [`QueueError::Spent`] if an outcome was recorded before; [`QueueError::Unavailable`] if the lock stays busy, and
    /// then the outcome is recorded as soon as the lock is free.
    pub fn done(&mut self) -> Result<(), QueueError> {
        self.held.end(Verdict::Done { result_bytes: None }, self.held.patience())
    }

    /// Records that the item is done, with a result. It keeps its place until a process has
    /// [collected](super::WorkQueue::collect) the result.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done), and [`QueueError::TooLong`].
    pub fn done_with(&mut self, result: &[u8]) -> Result<(), QueueError> {
        self.write("a result", result)?;
        self.held.end(Verdict::Done { result_bytes: Some(result.len()) }, self.held.patience())
    }

    /// Returns the item to the queue, for a retry by any worker, not before `after` has passed. After too many attempts
    /// it becomes a dead letter instead.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done).
    pub fn retry(&mut self, after: Duration) -> Result<(), QueueError> {
        let ended = self.held.end(Verdict::Retry { after: clock::nanos(after) }, self.held.patience());
        self.tell_if_dead(ended.is_ok() && self.is_last_attempt());
        ended
    }

    /// Records that the other side answered "too many requests". Ends the acquisition that the request was made with,
    /// as
    /// [`Acquisition::rate_limited`] does, pauses its set, and parks the item until the pause is over, all at one
    /// instant. This does not count as an attempt. After too many such answers the item becomes a dead letter.
    ///
    /// If `held` belongs to another set than the queue, that set is paused, and the item is delayed for as long. If it
    /// belongs to another opening of the same set, the set is paused first and the item is parked after that.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done).
    pub fn rate_limited(
        &mut self,
        held: Acquisition,
        retry_after: Option<Duration>,
    ) -> Result<Pause, QueueError> {
        if let Err(error) = self.held.check() {
            // The answer of the other side counts all the same.
            held.rate_limited(retry_after)?;
            return Err(error);
        }
        let is_last = self.rate_limits().saturating_add(1) >= self.giving_up().rate_limits.into();
        let (set, lease) = (self.held.set.shared().clone(), self.held.lease);
        let pause = if Arc::ptr_eq(held.set().shared(), &set) {
            let (charges, report) = held.into_report(retry_after)?;
            self.held.is_spent = true;
            set.park(lease, charges, report)?.ok_or(QueueError::NotHeld)?
        } else if held.set().shared().is_same_segment(&set) {
            let pause = held.rate_limited(retry_after)?;
            self.held.is_spent = true;
            if set.park_item(lease)? { pause } else { return Err(QueueError::NotHeld) }
        } else {
            let paused = held.rate_limited(retry_after);
            // If that set is unavailable now, the report is made later. The item waits as long as the other side
            // asked for.
            let asked = retry_after.unwrap_or_default();
            let after = paused.as_ref().map_or(asked, |pause| pause.remaining.unwrap_or_default());
            self.held.end(Verdict::Deferred { after: clock::nanos(after) }, self.held.patience())?;
            paused?
        };
        let lease = &mut self.held.lease;
        (lease.attempts, lease.rate_limits) =
            (lease.attempts.saturating_sub(1), lease.rate_limits.saturating_add(1));
        self.tell_if_dead(is_last);
        Ok(pause)
    }

    /// Gives the item up, so that it becomes a dead letter. `why` is stored as its result.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done), and [`QueueError::TooLong`].
    pub fn dead_letter(&mut self, why: &[u8]) -> Result<(), QueueError> {
        self.write("a reason", why)?;
        let ended = self.held.end(Verdict::GivenUp { result_bytes: why.len() }, self.held.patience());
        self.tell_if_dead(ended.is_ok());
        ended
    }

    /// Returns the item to the queue immediately, as if it had not been taken: for a worker that has to stop. This does
    /// not count as an attempt.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done).
    pub fn give_back(&mut self) -> Result<(), QueueError> {
        self.held.end(Verdict::GivenBack, self.held.patience())
    }

    /// Writes a result, which takes effect when the item is finished.
    fn write(&self, what: &'static str, result: &[u8]) -> Result<(), QueueError> {
        self.held.check()?;
        let set = self.held.set.shared();
        check_length(what, result, set.queue_shape().map_or(0, |shape| shape.result_bytes))?;
        Ok(set.write_result(&self.held.lease, result)?)
    }

    fn giving_up(&self) -> GivingUp {
        self.held.set.shared().giving_up()
    }

    fn is_last_attempt(&self) -> bool {
        self.attempts() >= self.giving_up().attempts.into()
    }

    fn tell_if_dead(&self, is_dead: bool) {
        if is_dead {
            events::dead_letter(self.held.set.shared(), &self.held.lease);
        }
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        // A destructor must not block for long, and cannot return an error.
        let ended = self.held.end(Verdict::Abandoned, clock::nanos(DROP_LOCK_TIMEOUT));
        self.tell_if_dead(ended.is_ok() && self.is_last_attempt());
    }
}

impl Finished {
    pub(super) fn new(set: LimitSet, lease: Lease) -> Result<Self, QueueError> {
        let mut finished = Self { held: Held::new(set, lease), payload: Vec::new(), result: Vec::new() };
        finished.payload = finished.held.read(Part::Payload, lease.payload_bytes)?;
        finished.result = finished.held.read(Part::Result, lease.result_bytes)?;
        Ok(finished)
    }

    /// Returns the number that the program gave the item.
    pub fn id(&self) -> u64 {
        self.held.lease.id
    }

    /// Returns the payload that was pushed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the result; for a dead letter that a worker gave up, the reason that it gave.
    pub fn result(&self) -> &[u8] {
        &self.result
    }

    /// Returns how often the item was handed out, without the times that ended with "too many requests".
    pub fn attempts(&self) -> u64 {
        self.held.lease.attempts
    }

    /// Returns how often the other side answered the item's request with "too many requests".
    pub fn rate_limits(&self) -> u64 {
        self.held.lease.rate_limits
    }

    /// Returns why the item is a dead letter; `None` if it is done.
    pub fn reason(&self) -> Option<Reason> {
        self.held.lease.reason
    }

    /// Removes the finished item from the queue, and frees its place.
    ///
    /// # Errors
    ///
    /// As [`WorkItem::done`].
    pub fn forget(&mut self) -> Result<(), QueueError> {
        self.held.end_collecting(Collected::Forgotten, self.held.patience())
    }

    /// Returns the finished item to the queue, to be collected again, as dropping it does.
    ///
    /// # Errors
    ///
    /// As [`WorkItem::done`].
    pub fn put_back(&mut self) -> Result<(), QueueError> {
        self.held.end_collecting(Collected::PutBack, self.held.patience())
    }

    /// Returns the item to the queue to be worked on again, with all counts at zero, behind all waiting items. Works
    /// also in a closed queue.
    ///
    /// # Errors
    ///
    /// As [`WorkItem::done`].
    pub fn revive(&mut self) -> Result<(), QueueError> {
        self.held.end_collecting(Collected::Revived, self.held.patience())
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        // A destructor must not block for long, and cannot return an error.
        let _ = self.held.end_collecting(Collected::PutBack, clock::nanos(DROP_LOCK_TIMEOUT));
    }
}

impl fmt::Debug for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, attempts, rate_limits) = (self.id(), self.attempts(), self.rate_limits());
        write!(f, "WorkItem {{ id: {id}, attempts: {attempts}, rate_limits: {rate_limits} }}")
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, attempts, rate_limits) = (self.id(), self.attempts(), self.rate_limits());
        let reason = self.reason();
        write!(
            f,
            "Finished {{ id: {id}, attempts: {attempts}, rate_limits: {rate_limits}, reason: {reason:?} }}"
        )
    }
}
