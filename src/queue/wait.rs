//! Waiting at a work queue: poll under the lock, and sleep until there is a reason to poll again.
//!
//! A caller that waits has no entry in the segment: it notes the value of the doorbell, polls, and sleeps unless that
//! value has changed in the meantime. Nothing is reserved for it, so nothing has to be returned when it stops waiting.

use std::time::Duration;

use super::op::{Op, Step};
use super::{QueueError, WorkQueue};
use crate::engine::{Watch, WorkBell};
use crate::protocol::{AT_ONCE, NEVER};
use crate::shared::interrupt::Interrupt;
use crate::sys::clock;

/// How long a caller waits.
#[derive(Clone, Copy)]
pub(super) enum Timeout {
    Now,
    After(Duration),
    Never,
}

/// The result of one poll.
pub(super) enum Polled<T> {
    Ready(T),
    Pending {
        /// The value of the doorbell before the poll.
        seen: u32,
        /// The instant at which to poll again in any case.
        until: u64,
    },
}

impl WorkQueue {
    /// Polls, and sleeps until there is a reason to poll again. None: it was not to wait.
    pub(super) fn wait<O: Op>(&self, op: &O, timeout: Timeout) -> Result<Option<O::Output>, QueueError> {
        op.check(self)?;
        let deadline = match timeout {
            Timeout::After(timeout) => clock::deadline(timeout),
            Timeout::Now => AT_ONCE,
            Timeout::Never => NEVER,
        };
        let mut watch = Watch { deadline, alarm: None };
        let interrupt = Interrupt::current();
        let waited = loop {
            let (seen, until) = match self.poll(op, &mut watch) {
                Ok(Polled::Ready(output)) => break Ok(Some(output)),
                Ok(Polled::Pending { .. }) if matches!(timeout, Timeout::Now) => break Ok(None),
                Ok(Polled::Pending { seen, until }) => (seen, until),
                Err(error) => break Err(error),
            };
            if interrupt.is_some_and(Interrupt::is_raised) {
                break Err(QueueError::Interrupted);
            }
            if let Err(error) = self.set.shared().sleep_for_work((O::BELL, seen), until, interrupt) {
                break Err(error.into());
            }
        };
        if let Err(error) = &waited {
            self.leave(O::BELL, &watch, error);
        }
        waited
    }

    /// Rings on for others, if a waiter that leaves with an error may have been woken or kept the alarm in their place.
    pub(super) fn leave(&self, bell: WorkBell, watch: &Watch, error: &QueueError) {
        // These two come after a poll.
        let has_polled = matches!(error, QueueError::TimedOut | QueueError::Interrupted);
        if !has_polled || watch.alarm.is_some() {
            self.set.shared().ring_on(bell, watch);
        }
    }

    /// Polls once. Time is up at the deadline, if nothing is there by then.
    pub(super) fn poll<O: Op>(&self, op: &O, watch: &mut Watch) -> Result<Polled<O::Output>, QueueError> {
        // A poll that is not to wait has the same lock timeout as others.
        let deadline = if watch.deadline == AT_ONCE { NEVER } else { watch.deadline };
        let set = self.set.shared();
        // A dead participant may have what this caller lacks.
        set.sweep_for_work()?;
        // Before the poll: a later change rings the doorbell.
        let seen = set.work_bell(O::BELL);
        match op.poll(set, watch, set.work_lock_timeout(deadline))? {
            Step::Ready(found) => O::output(self, found).map(Polled::Ready),
            Step::Pending(_) if deadline != NEVER && clock::monotonic() >= deadline => {
                Err(QueueError::TimedOut)
            }
            Step::Pending(look_at) => Ok(Polled::Pending { seen, until: deadline.min(look_at) }),
        }
    }
}
