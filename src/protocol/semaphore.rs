//! A semaphore with many permits, which return when their holder dies.
//!
//! | word      | meaning                                    |
//! | --------- | ------------------------------------------ |
//! | 0         | capacity                                   |
//! | 1         | permits taken                              |
//! | 2 s       | generation of the holder in slot s         |
//! | 2 s + 1   | permits it holds                           |
//!
//! A waiter notes the value of the block's doorbell, tries under the lock, sets the doorbell's sleepers' bit
//! and sleeps on exactly that value. A participant that returns permits changes the doorbell after its
//! commit, so a waiter that tried too early does not fall asleep. All waiters are woken, because any of them
//! may be the one whose request now fits; no order is promised here.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::block::{Block, Fault, Until};
use super::env::{Env, Waited, Waiting};
use super::holdings::Holdings;
use super::owner::Participant;
use super::sweep::Reach;

/// The index of the word with the number of permits.
pub const CAPACITY: usize = 0;
/// Where a semaphore keeps the holdings of each participant.
pub const HOLDINGS: Holdings = Holdings { totals: 1, stride: 1, rows: 2, limits: 1, permits: 1 };

/// The answer to a request for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The caller holds the permits.
    Taken,
    /// Too few permits are free now.
    NotNow {
        /// The number of free permits.
        available: u64,
    },
    /// The amount exceeds the capacity of the semaphore.
    Never {
        /// The capacity.
        capacity: u64,
    },
}

/// The semaphore in a block.
pub struct Semaphore<'a, E: Env>(pub &'a Block<'a, E>);

impl<E: Env> Clone for Semaphore<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Semaphore<'_, E> {}

impl<E: Env> Semaphore<'_, E> {
    /// Takes `amount` permits if they are free. Waits for the lock only.
    pub fn try_take(&self, me: Participant, amount: u64, until: impl Into<Until>) -> Result<Take, Fault> {
        let mut guard = self.0.lock(me, until)?.guard();
        HOLDINGS.adopt(&mut guard)?;
        let capacity = guard.get(CAPACITY)?;
        if amount > capacity {
            return Ok(Take::Never { capacity });
        }
        let available = capacity.saturating_sub(guard.get(HOLDINGS.totals)?);
        if amount > available {
            return Ok(Take::NotNow { available });
        }
        let mut change = guard.begin();
        HOLDINGS.take(&mut change, me, 0, amount)?;
        change.commit();
        Ok(Take::Taken)
    }

    /// Takes `amount` permits, sleeping until they are free or `deadline` passes (then the answer is
    /// [`Take::NotNow`]). After each slice without a wake-up, and at least once per `interval` however often
    /// the doorbell rings, it returns the holdings of dead participants and calls `slice_over`, which may end
    /// the wait.
    pub fn take(
        &self,
        me: Participant,
        amount: u64,
        deadline: u64,
        interval: u64,
        mut slice_over: impl FnMut() -> Result<(), Fault>,
    ) -> Result<Take, Fault> {
        let Block { env, doorbell, .. } = *self.0;
        let mut last_answer = None;
        loop {
            let seen = env.load32(doorbell, Acquire);
            let answer = match (self.try_take(me, amount, deadline), last_answer) {
                // The lock was busy at the deadline: the last known number of permits is the better answer.
                (Err(Fault::Busy { .. }), Some(known)) => return Ok(known),
                (answer, _) => answer?,
            };
            last_answer = Some(answer);
            let late = deadline != super::NEVER && env.now() >= deadline;
            if !matches!(answer, Take::NotNow { .. }) || late {
                return Ok(answer);
            }
            if seen & 1 == 0 && env.cas32(doorbell, seen, seen | 1, Relaxed).is_err() {
                continue;
            }
            let waited = env.wait(Waiting::Doorbell, doorbell, seen | 1, deadline);
            // A doorbell that rings all the time must not prevent sweeps.
            if waited == Waited::SliceOver || self.0.sweep_is_due(interval) {
                match self.sweep_some(me, Reach::BOUNDED.holders, deadline) {
                    // Out of time: the next look at the permits says what is known of them.
                    Ok(_) | Err(Fault::Busy { .. }) => {}
                    Err(fault) => return Err(fault),
                }
                slice_over()?;
            }
        }
    }

    /// Returns at most `amount` permits that `me` holds; gives the number returned.
    pub fn give(&self, me: Participant, amount: u64, until: impl Into<Until>) -> Result<u64, Fault> {
        let mut guard = self.0.lock(me, until)?.guard();
        let mut change = guard.begin();
        let given = HOLDINGS.give(&mut change, me, 0, amount)?;
        change.commit();
        if given > 0 {
            // Under the lock: if this process dies from here on, the process that steals the lock rings
            // again.
            guard.ring();
        }
        guard.unlock()?;
        Ok(given)
    }

    /// Returns what dead participants held; gives the number of permits.
    pub fn sweep(&self, me: Participant, deadline: u64) -> Result<u64, Fault> {
        HOLDINGS.sweep(self.0, me, deadline)
    }

    /// As [`sweep`](Self::sweep), but asks about at most `most` holders; consecutive calls take turns.
    pub fn sweep_some(&self, me: Participant, most: usize, deadline: u64) -> Result<u64, Fault> {
        HOLDINGS.sweep_some(self.0, me, most, deadline)
    }
}
