//! A semaphore across processes, whose permits return when their holder dies.

use std::time::Duration;

use crate::background::{self, DROP_PATIENCE};
use crate::core::{NEVER, Participant, Reach, Semaphore, Take, Until};
use crate::error::SyncError;
use crate::grantee::Grantee;
use crate::segment::{BoundBlock, LockStatistics, SemaphoreState};
use crate::sys::clock;
use crate::sys::machine::Machine;

/// A semaphore in a segment: several permits can be taken at once, and what a process holds returns when it
/// dies, whatever kills it.
///
/// Sleepers are woken by whoever gives permits back. No order among them is promised.
///
/// ```
/// use limitset::Segment;
///
/// let segment = Segment::options().semaphore("connections", 2).anonymous()?;
/// let connections = segment.semaphore("connections")?;
/// let permit = connections.acquire(2)?;
/// assert!(connections.try_acquire(1).is_err());
/// permit.release()?;
/// assert_eq!(connections.available()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedSemaphore {
    bound: BoundBlock,
}

impl SharedSemaphore {
    pub(crate) fn new(bound: BoundBlock) -> Self {
        Self { bound }
    }

    /// Takes permits, however long that takes.
    pub fn acquire(&self, permits: u64) -> Result<Permit, SyncError> {
        self.acquire_until(permits, NEVER)
    }

    /// Takes permits, or gives up with [`SyncError::TimedOut`] after `timeout`.
    pub fn acquire_timeout(&self, permits: u64, timeout: Duration) -> Result<Permit, SyncError> {
        self.acquire_until(permits, clock::deadline(timeout))
    }

    /// Takes permits if they are free now, else answers [`SyncError::NotAvailable`]. It never waits for
    /// permits; for the lock it waits as long as the segment's
    /// [`patience`](crate::SegmentOptions::patience), then it answers [`SyncError::Busy`].
    pub fn try_acquire(&self, permits: u64) -> Result<Permit, SyncError> {
        let me = self.check(permits)?;
        let fault = |fault| self.bound.segment().view().sync_error(fault);
        let semaphore = self.semaphore();
        let until = self.bound.segment().until();
        let mut answer = semaphore.try_take(me, permits, until).map_err(fault)?;
        let slice = self.bound.segment().view().machine.doorbell_slice;
        if matches!(answer, Take::NotNow { .. }) && semaphore.0.sweep_is_affordable(slice) {
            // Before refusing for want of permits, make sure that no dead process holds them.
            self.bound.segment().view().look_at_name().map_err(fault)?;
            let deadline = self.bound.segment().deadline();
            if semaphore.sweep_some(me, Reach::BOUNDED.holders, deadline).map_err(fault)? > 0 {
                answer = semaphore.try_take(me, permits, until).map_err(fault)?;
            }
        }
        self.answer(me, answer, permits, |wanted, available| SyncError::NotAvailable { wanted, available })
    }

    /// How many permits are free now.
    pub fn available(&self) -> Result<u64, SyncError> {
        let state = self.state()?;
        Ok(state.capacity.saturating_sub(state.taken))
    }

    /// Capacity, permits taken and their holders at one instant.
    pub fn state(&self) -> Result<SemaphoreState, SyncError> {
        self.bound.segment().participant()?;
        self.bound.segment().view().semaphore_state(self.bound.region())
    }

    /// Returns at once what the dead still hold, instead of waiting until somebody misses it; gives the number
    /// of permits.
    pub fn reap(&self) -> Result<u64, SyncError> {
        let me = self.bound.segment().participant()?;
        self.semaphore()
            .sweep(me, self.bound.segment().deadline())
            .map_err(|fault| self.bound.segment().view().sync_error(fault))
    }

    /// What its lock has seen of deaths.
    pub fn statistics(&self) -> Result<LockStatistics, SyncError> {
        self.bound.segment().view().statistics(self.bound.region())
    }

    #[inline]
    fn semaphore(&self) -> Semaphore<'_, Machine> {
        Semaphore(self.bound.block())
    }

    fn check(&self, permits: u64) -> Result<Participant, SyncError> {
        if permits == 0 {
            return Err(SyncError::Nothing);
        }
        Ok(self.bound.segment().participant()?)
    }

    fn acquire_until(&self, permits: u64, deadline: u64) -> Result<Permit, SyncError> {
        let me = self.check(permits)?;
        let view = self.bound.segment().view();
        let interval = view.machine.doorbell_slice;
        let answer = self.semaphore().take(me, permits, deadline, interval, || view.look_at_name());
        let answer = answer.map_err(|fault| view.sync_error(fault))?;
        self.answer(me, answer, permits, |wanted, available| SyncError::TimedOut { wanted, available })
    }

    fn answer(
        &self,
        me: Participant,
        answer: Take,
        wanted: u64,
        refusal: impl FnOnce(u64, u64) -> SyncError,
    ) -> Result<Permit, SyncError> {
        match answer {
            Take::Taken => Ok(Permit { semaphore: self.clone(), permits: wanted, to: Grantee::new(me) }),
            Take::NotNow { available } => Err(refusal(wanted, available)),
            Take::Never { capacity } => Err(SyncError::Never { wanted, capacity }),
        }
    }

    /// Gives back permits of a participant, if this process still is it.
    fn give(&self, to: Grantee, permits: u64, until: impl Into<Until>) -> Result<(), SyncError> {
        to.check(self.bound.segment())?;
        let given = self.semaphore().give(to.participant(), permits, until);
        given.map(drop).map_err(|fault| self.bound.segment().view().sync_error(fault))
    }
}

/// Permits, held. Dropping it gives them back. They belong to the participant that took them: in a forked child, and
/// after this process [took a lent slot lock back](crate::LentLife::release), dropping it does nothing.
#[must_use]
#[derive(Debug)]
pub struct Permit {
    semaphore: SharedSemaphore,
    permits: u64,
    to: Grantee,
}

impl Permit {
    /// How many permits these are.
    pub fn count(&self) -> u64 {
        self.permits
    }

    /// Gives the permits back. If the lock stays busy, this is an error after the segment's
    /// [`patience`](crate::SegmentOptions::patience), but the permits are not lost: they are given back as soon
    /// as the lock is free.
    pub fn release(mut self) -> Result<(), SyncError> {
        let until = self.semaphore.bound.segment().until();
        self.give_back(until)
    }

    fn give_back(&mut self, until: Until) -> Result<(), SyncError> {
        let permits = std::mem::take(&mut self.permits);
        let to = self.to;
        let given = self.semaphore.give(to, permits, until);
        if let Err(SyncError::Busy { .. }) = given {
            // A process was stopped while holding the lock: the background thread waits in our place.
            let semaphore = self.semaphore.clone();
            let lock = std::ptr::from_ref(semaphore.semaphore().0.lock).addr();
            background::run(lock, move |patience| {
                !matches!(semaphore.give(to, permits, Until::Within(patience)), Err(SyncError::Busy { .. }))
            });
        }
        given
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.permits > 0 {
            // A destructor must not hang, and has nobody to tell.
            let _ = self.give_back(Until::Within(clock::nanos(DROP_PATIENCE)));
        }
    }
}
