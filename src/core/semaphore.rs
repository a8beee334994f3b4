//! A semaphore with many permits, whose permits return when their holder dies.
//!
//! | word      | meaning                                    |
//! | --------- | ------------------------------------------ |
//! | 0         | capacity                                   |
//! | 1         | permits taken                              |
//! | 2 s       | generation of the holder in slot s         |
//! | 2 s + 1   | permits it holds                           |
//!
//! Sleepers wait on the block's doorbell: they note its value, look under the lock, set its sleepers' bit and
//! sleep on exactly that value. Whoever gives permits back changes the doorbell after its commit, so a
//! sleeper that looked too early does not fall asleep. All sleepers are woken, because any of them may be
//! the one whose wish now fits; no order is promised here.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::block::{Block, Fault, Until};
use super::env::{Env, Waited, Waiting};
use super::holdings::Holdings;
use super::owner::Participant;
use super::sweep::Reach;

/// Word with the number of permits.
pub const CAPACITY: usize = 0;
/// Where a semaphore keeps who holds what.
pub const HOLDINGS: Holdings = Holdings { totals: 1, stride: 1, rows: 2, limits: 1, permits: 1 };

/// Answer to a wish for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// They are yours.
    Taken,
    /// Not now.
    NotNow {
        /// How many are free.
        available: u64,
    },
    /// More than the semaphore will ever have.
    Never {
        /// How many it has.
        capacity: u64,
    },
}

/// The semaphore that a block holds.
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
    /// [`Take::NotNow`]). After each slice that brought nothing, and at least once per `interval` however often
    /// the doorbell rings, it returns what the dead held and calls `slice_over`, which may end the wait.
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
                // At the very end the lock was busy too: what we know of the permits says more.
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
            // A doorbell that rings all the time must not keep us from looking for the dead.
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

    /// Gives back at most `amount` permits of those `me` holds; tells how many that were.
    pub fn give(&self, me: Participant, amount: u64, until: impl Into<Until>) -> Result<u64, Fault> {
        let mut guard = self.0.lock(me, until)?.guard();
        let mut change = guard.begin();
        let given = HOLDINGS.give(&mut change, me, 0, amount)?;
        change.commit();
        if given > 0 {
            // Under the lock, so that a death from here on is found by whoever steals it, who rings again.
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
