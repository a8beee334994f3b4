//! Waiting at a work queue: poll under the lock, and sleep until there is a reason to poll again.
//!
//! A caller that waits has no entry in the segment: it notes the value of the doorbell, polls, and sleeps unless that
//! value has changed in the meantime. Nothing is reserved for it, so nothing has to be returned when it stops waiting.

use std::time::Duration;

use super::op::{Op, Step};
use super::{QueueError, WorkQueue};
use crate::protocol::NEVER;
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
    /// Polls, and sleeps until there is a reason to poll again. Returns `None` if the caller does not wait and the poll
    /// found nothing.
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

    /// Polls once. Returns [`QueueError::TimedOut`] if the poll finds nothing and `deadline` has passed.
    pub(super) fn poll<O: Op>(&self, op: &O, deadline: u64) -> Result<Polled<O::Output>, QueueError> {
        let set = self.set.shared();
        // A dead participant may hold the item that this caller needs.
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
