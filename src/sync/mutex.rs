//! A mutex across processes, whose holder may die at any instruction.

use std::mem::ManuallyDrop;
use std::time::Duration;

use crate::core::{self, AT_ONCE, NEVER};
use crate::error::SyncError;
use crate::grantee::Grantee;
use crate::segment::{BoundBlock, LockStatistics};
use crate::sys::clock;
use crate::sys::machine::Machine;

/// A mutex in a segment, guarding a fixed number of 64-bit words.
///
/// The words change by [updates](SharedMutexGuard::update), each of which happens wholly or not at all,
/// whoever is killed when. If a holder dies, the next one gets the lock within a few milliseconds and is told.
/// Not re-entrant: a thread that locks it twice waits for itself.
///
/// ```
/// use limitset::Segment;
///
/// let segment = Segment::options().mutex("jobs", 2).anonymous()?;
/// let jobs = segment.mutex("jobs")?;
/// let mut held = jobs.lock()?.guard();
/// held.update(|words| {
///     words.set(0, words.get(0)? + 1)?;
///     words.set(1, 42)
/// })?;
/// assert_eq!(held.get(1)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedMutex {
    bound: BoundBlock,
}

/// What locking found. Both arms hold the lock, and in both the guarded words are whole: what a dead holder
/// had begun was undone.
#[must_use]
#[derive(Debug)]
pub enum LockedMutex<'a> {
    /// The last holder unlocked in order.
    Clean(SharedMutexGuard<'a>),
    /// The last holder died inside. Whatever it guarded *outside* the segment deserves a look.
    OwnerDied(SharedMutexGuard<'a>),
}

impl<'a> LockedMutex<'a> {
    /// The guard, for those who guard nothing outside the segment.
    pub fn guard(self) -> SharedMutexGuard<'a> {
        match self {
            Self::Clean(guard) | Self::OwnerDied(guard) => guard,
        }
    }
}

impl SharedMutex {
    pub(crate) fn new(bound: BoundBlock) -> Self {
        Self { bound }
    }

    /// Takes the lock, however long that takes.
    pub fn lock(&self) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(NEVER)
    }

    /// Takes the lock, or gives up with [`SyncError::Busy`] after `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(clock::deadline(timeout))
    }

    /// Takes the lock if nobody alive holds it, else answers [`SyncError::Busy`] at once.
    pub fn try_lock(&self) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(AT_ONCE)
    }

    /// The guarded words as they were at one instant, without waiting for the lock.
    pub fn snapshot(&self) -> Result<Vec<u64>, SyncError> {
        self.bound.segment().participant()?;
        self.bound.segment().view().snapshot(self.bound.region())
    }

    /// What its lock has seen of deaths.
    pub fn statistics(&self) -> Result<LockStatistics, SyncError> {
        self.bound.segment().view().statistics(self.bound.region())
    }

    fn lock_until(&self, deadline: u64) -> Result<LockedMutex<'_>, SyncError> {
        let me = self.bound.segment().participant()?;
        let locked = self
            .bound
            .block()
            .lock(me, deadline)
            .map_err(|fault| self.bound.segment().view().sync_error(fault))?;
        let guard =
            |inner| SharedMutexGuard { mutex: self, inner: ManuallyDrop::new(inner), to: Grantee::new(me) };
        Ok(match locked {
            core::Locked::Clean(inner) => LockedMutex::Clean(guard(inner)),
            core::Locked::OwnerDied(inner) => LockedMutex::OwnerDied(guard(inner)),
        })
    }
}

/// The lock, held. Dropping it unlocks. It belongs to the participant that took it: in a forked child, and after this
/// process [took a lent slot lock back](crate::LentLife::release), dropping it does nothing.
#[must_use]
pub struct SharedMutexGuard<'a> {
    mutex: &'a SharedMutex,
    inner: ManuallyDrop<core::Guard<'a, Machine>>,
    /// The participant that locked it.
    to: Grantee,
}

impl SharedMutexGuard<'_> {
    /// How many words the mutex guards.
    pub fn len(&self) -> usize {
        self.inner.block().words.len()
    }

    /// Whether it guards no words at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value of a word.
    pub fn get(&self, index: usize) -> Result<u64, SyncError> {
        self.inner.get(index).map_err(|fault| self.error(fault))
    }

    /// Changes words together: if `change` succeeds, all of its changes are made at one instant; if it fails,
    /// panics or the process dies, none is.
    pub fn update<T>(
        &mut self,
        change: impl FnOnce(&mut MutexUpdate<'_, '_>) -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        self.to.check(self.mutex.bound.segment())?;
        let mutex = self.mutex;
        let mut update = MutexUpdate { mutex, inner: Some(self.inner.begin()), to: self.to };
        let value = change(&mut update)?;
        update.commit()?;
        Ok(value)
    }

    /// Unlocks, and tells if something was wrong.
    pub fn unlock(self) -> Result<(), SyncError> {
        let mut it = ManuallyDrop::new(self);
        it.to.check(it.mutex.bound.segment())?;
        it.inner.unlock_in_place().map_err(|fault| it.error(fault))
    }

    fn error(&self, fault: core::Fault) -> SyncError {
        self.mutex.bound.segment().view().sync_error(fault)
    }
}

impl Drop for SharedMutexGuard<'_> {
    fn drop(&mut self) {
        if self.to.is_us(self.mutex.bound.segment()) {
            // What it finds wrong is counted in the block; a destructor has nobody to tell.
            let _ = self.inner.unlock_in_place();
        }
    }
}

impl std::fmt::Debug for SharedMutexGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedMutexGuard").field("words", &self.len()).finish_non_exhaustive()
    }
}

/// Changes under way; see [`SharedMutexGuard::update`].
pub struct MutexUpdate<'g, 'a> {
    mutex: &'g SharedMutex,
    /// None only once it is committed.
    inner: Option<core::Transaction<'g, 'a, Machine>>,
    /// The participant that locked it.
    to: Grantee,
}

impl<'g, 'a> MutexUpdate<'g, 'a> {
    /// Value of a word, with the changes made so far.
    pub fn get(&self, index: usize) -> Result<u64, SyncError> {
        let inner = self.inner.as_ref().ok_or(SyncError::Forked)?;
        inner.get(index).map_err(|fault| self.mutex.bound.segment().view().sync_error(fault))
    }

    /// Changes a word.
    pub fn set(&mut self, index: usize, value: u64) -> Result<(), SyncError> {
        self.to.check(self.mutex.bound.segment())?;
        let inner = self.inner.as_mut().ok_or(SyncError::Forked)?;
        inner.set(index, value).map_err(|fault| self.mutex.bound.segment().view().sync_error(fault))
    }

    fn commit(mut self) -> Result<(), SyncError> {
        self.to.check(self.mutex.bound.segment())?;
        self.inner.take().ok_or(SyncError::Forked)?.commit();
        Ok(())
    }
}

impl Drop for MutexUpdate<'_, '_> {
    fn drop(&mut self) {
        if !self.to.is_us(self.mutex.bound.segment()) {
            // The closure forked and this is the child: the changes are the parent's to commit or undo. Or the lock was
            // taken over, and its new holder has undone them.
            if let Some(inner) = self.inner.take() {
                std::mem::forget(inner);
            }
        }
    }
}
