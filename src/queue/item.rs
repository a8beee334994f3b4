//! An item of work that somebody has: what became of it is said once, or it goes to somebody else.

use std::fmt;
use std::time::Duration;

use super::{QueueError, WorkQueue};
use crate::acquisition::Acquisition;
use crate::background::DROP_PATIENCE;
use crate::cooldown::Pause;
use crate::engine::{Collected, Lease, Part, Reason, Verdict};
use crate::events;
use crate::grantee::Grantee;
use crate::limit::GivingUp;
use crate::set::LimitSet;
use crate::sys::clock;

/// An item of work, held by this process until it says what became of it. Dropped, or lost by a panic, it goes to
/// somebody else, and the attempt counts; so it does if the process is killed. In a forked child, and after this process
/// [took a lent slot lock back](crate::LentLife::release), dropping it does nothing.
///
/// What cannot be done for a reason of the caller's own (a result that is too long) changes nothing: the item is still
/// held.
#[must_use = "dropped, the item goes to another worker"]
pub struct WorkItem {
    held: Held,
    payload: Vec<u8>,
}

/// A finished item, held by this process until it is [forgotten](Self::forget). Dropped, or if the process is killed, it
/// can be collected again.
#[must_use = "dropped, it can be collected again"]
pub struct Finished {
    held: Held,
    payload: Vec<u8>,
    result: Vec<u8>,
}

/// What both have in common.
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
        let engine = self.set.engine();
        let read = engine.read_bytes(self.lease.item, part, bytes);
        Ok(read.map_err(|fault| self.set.trouble(fault))?)
    }

    fn check(&self) -> Result<(), QueueError> {
        self.to.check(self.set.segment())?;
        if self.is_spent { Err(QueueError::Spent) } else { Ok(()) }
    }

    fn end(&mut self, verdict: Verdict, patience: u64) -> Result<(), QueueError> {
        self.check()?;
        self.is_spent = true;
        let lease = self.lease;
        let is_held = self.set.or_in_background_within(patience, move |set, patience| {
            set.locked_within(patience, |engine, guard, now| engine.end_lease(guard, &lease, verdict, now))
        })?;
        if is_held { Ok(()) } else { Err(QueueError::NotHeld) }
    }

    fn end_collecting(&mut self, what: Collected, patience: u64) -> Result<(), QueueError> {
        self.check()?;
        self.is_spent = true;
        let lease = self.lease;
        let is_held = self.set.or_in_background_within(patience, move |set, patience| {
            set.locked_within(patience, |engine, guard, _| engine.end_collecting(guard, &lease, what))
        })?;
        if is_held { Ok(()) } else { Err(QueueError::NotHeld) }
    }

    fn patience(&self) -> u64 {
        self.set.segment().patience()
    }
}

impl WorkItem {
    pub(super) fn new(set: LimitSet, lease: Lease) -> Result<Self, QueueError> {
        // From here on it goes back when it is dropped.
        let mut item = Self { held: Held::new(set, lease), payload: Vec::new() };
        item.payload = item.held.read(Part::Payload, lease.payload_bytes)?;
        Ok(item)
    }

    /// The program's own number.
    pub fn id(&self) -> u64 {
        self.held.lease.id
    }

    /// What was pushed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// How often it was handed out, this time included, without the times that ended with "too many requests".
    pub fn attempts(&self) -> u64 {
        self.held.lease.attempts
    }

    /// How often the other side said "too many requests" to it.
    pub fn rate_limits(&self) -> u64 {
        self.held.lease.rate_limits
    }

    /// Records that the item is done; its place is free.
    ///
    /// # Errors
    ///
    /// [`QueueError::Spent`] if something was said before; [`QueueError::Unavailable`] if the lock stays busy, and then it
    /// is recorded as soon as it is free.
    pub fn done(&mut self) -> Result<(), QueueError> {
        self.held.end(Verdict::Done { result_bytes: None }, self.held.patience())
    }

    /// Records that the item is done, with a result for whoever [collects](WorkQueue::collect) it; until then it keeps its
    /// place.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done), and [`QueueError::TooLong`].
    pub fn done_with(&mut self, result: &[u8]) -> Result<(), QueueError> {
        self.write("a result", result)?;
        self.held.end(Verdict::Done { result_bytes: Some(result.len()) }, self.held.patience())
    }

    /// Lets the item be tried again, by whomever, not before `after` has passed. Tried often enough, it becomes a dead
    /// letter instead.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done).
    pub fn retry(&mut self, after: Duration) -> Result<(), QueueError> {
        let ended = self.held.end(Verdict::Retry { after: clock::nanos(after) }, self.held.patience());
        self.tell_if_dead(ended.is_ok() && self.is_last_attempt());
        ended
    }

    /// The other side answered "too many requests": ends the acquisition that the request was made with, as
    /// [`Acquisition::rate_limited`] does, pauses its set, and parks the item until the pause is over, all at one
    /// instant. That was no attempt. If the other side says so too often, the item becomes a dead letter.
    ///
    /// If `held` is of another set than the queue, that one is paused, and the item is put off for as long. If it is of
    /// another opening of the same set, the two happen one after the other.
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
            // What the other side said is true all the same.
            held.rate_limited(retry_after)?;
            return Err(error);
        }
        let is_last = self.rate_limits().saturating_add(1) >= self.giving_up().rate_limits.into();
        let (set, lease) = (self.held.set.clone(), self.held.lease);
        let pause = if held.set().is_same(&set) {
            let (charges, report) = held.into_report(retry_after)?;
            self.held.is_spent = true;
            let pause = set.or_in_background(move |set, patience| {
                set.locked_within(patience, |engine, guard, now| {
                    let paused = engine.park(guard, &lease, &charges, report, now)?;
                    Ok(paused.map(|paused| Pause::new(&paused, now)))
                })
            })?;
            let pause = pause.ok_or(QueueError::NotHeld)?;
            events::paused(&set, &pause);
            pause
        } else if held.set().is_same_segment(&set) {
            let pause = held.rate_limited(retry_after)?;
            self.held.is_spent = true;
            let is_held = set.or_in_background(move |set, patience| {
                set.locked_within(patience, |engine, guard, _| engine.park_item(guard, &lease))
            })?;
            if is_held { pause } else { return Err(QueueError::NotHeld) }
        } else {
            let paused = held.rate_limited(retry_after);
            // If that set cannot be told now, it will be: the item waits as long as the other side asked for.
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

    /// Gives the item up: it becomes a dead letter. `why` is kept as its result.
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

    /// Gives the item to another worker, at once, as if it had not been taken: for a worker that has to stop. That was no
    /// attempt.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done).
    pub fn give_back(&mut self) -> Result<(), QueueError> {
        self.held.end(Verdict::GivenBack, self.held.patience())
    }

    /// Writes a result, which counts once the item is finished.
    fn write(&self, what: &'static str, result: &[u8]) -> Result<(), QueueError> {
        self.held.check()?;
        let queue = WorkQueue { set: self.held.set.clone() };
        queue.check_length(what, result, queue.header().result_bytes)?;
        let written = self.held.set.engine().write_bytes(self.held.lease.item, Part::Result, result);
        Ok(written.map_err(|fault| self.held.set.trouble(fault))?)
    }

    fn giving_up(&self) -> GivingUp {
        self.held.set.keys().table.giving_up
    }

    fn is_last_attempt(&self) -> bool {
        self.attempts() >= self.giving_up().attempts.into()
    }

    fn tell_if_dead(&self, is_dead: bool) {
        if is_dead {
            events::dead_letter(&self.held.set, &self.held.lease);
        }
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        // A destructor must not hang, and has nobody to tell.
        let ended = self.held.end(Verdict::Abandoned, clock::nanos(DROP_PATIENCE));
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

    /// The program's own number.
    pub fn id(&self) -> u64 {
        self.held.lease.id
    }

    /// What was pushed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// What came of it; of a dead letter that a worker gave up, why.
    pub fn result(&self) -> &[u8] {
        &self.result
    }

    /// How often it was handed out, without the times that ended with "too many requests".
    pub fn attempts(&self) -> u64 {
        self.held.lease.attempts
    }

    /// How often the other side said "too many requests" to it.
    pub fn rate_limits(&self) -> u64 {
        self.held.lease.rate_limits
    }

    /// Why it is a dead letter; none if it is done.
    pub fn reason(&self) -> Option<Reason> {
        self.held.lease.reason
    }

    /// It is not needed any more; its place is free.
    ///
    /// # Errors
    ///
    /// As [`WorkItem::done`].
    pub fn forget(&mut self) -> Result<(), QueueError> {
        self.held.end_collecting(Collected::Forgotten, self.held.patience())
    }

    /// Lets it be collected again, as dropping it does.
    ///
    /// # Errors
    ///
    /// As [`WorkItem::done`].
    pub fn put_back(&mut self) -> Result<(), QueueError> {
        self.held.end_collecting(Collected::PutBack, self.held.patience())
    }

    /// Lets it be worked on again, with all counts at zero, behind all that wait; also in a queue that is closed.
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
        // A destructor must not hang, and has nobody to tell.
        let _ = self.held.end_collecting(Collected::PutBack, clock::nanos(DROP_PATIENCE));
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
