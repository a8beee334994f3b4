//! Waiting at a work queue: poll under the lock, and sleep until there is a reason to poll again.
//!
//! A caller that waits has no entry in the segment: it notes what the doorbell says, polls, and sleeps unless the doorbell
//! says something else by then. Nothing is set aside for it, so nothing has to be given back when it stops waiting.

use std::time::Duration;

use super::op::{Op, Step};
use super::{QueueError, WorkQueue};
use crate::protocol::NEVER;
use crate::shared::interrupt::Interrupt;
use crate::sys::clock;

/// How long to wait.
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
        /// What the doorbell said before the poll.
        seen: u32,
        /// When to poll again in any case.
        until: u64,
    },
}

impl WorkQueue {
    /// Polls, and sleeps until there is a reason to poll again. None: it was not to wait.
    pub(super) fn wait<O: Op>(&self, op: &O, timeout: Timeout) -> Result<Option<O::Output>, QueueError> {
        op.check(self)?;
        let deadline = match timeout {
            Timeout::After(timeout) => clock::deadline(timeout),
            Timeout::Now | Timeout::Never => NEVER,
        };
        let interrupt = Interrupt::current();
        loop {
            let (seen, until) = match self.poll(op, deadline)? {
                Polled::Ready(output) => return Ok(Some(output)),
                Polled::Pending { seen, until } => (seen, until),
            };
            if let Timeout::Now = timeout {
                return Ok(None);
            }
            if interrupt.is_some_and(Interrupt::is_raised) {
                return Err(QueueError::Interrupted);
            }
            self.set.shared().sleep_for_work(seen, until, interrupt)?;
        }
    }

    /// Polls once. Time is up at `deadline`, if nothing is there by then.
    pub(super) fn poll<O: Op>(&self, op: &O, deadline: u64) -> Result<Polled<O::Output>, QueueError> {
        let set = self.set.shared();
        // A dead participant may have what this caller lacks.
        set.sweep_for_work()?;
        // Before the poll: a later change rings the doorbell.
        let seen = set.work_bell();
        match op.poll(set, set.work_lock_timeout(deadline))? {
            Step::Ready(found) => O::output(self, found).map(Polled::Ready),
            Step::Pending(_) if deadline != NEVER && clock::monotonic() >= deadline => {
                Err(QueueError::TimedOut)
            }
            Step::Pending(look_at) => Ok(Polled::Pending { seen, until: deadline.min(look_at) }),
        }
    }
}
