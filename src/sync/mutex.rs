//! A mutex shared by processes, whose holder may die at any instruction.

use std::mem::ManuallyDrop;
use std::time::Duration;

use super::bound::BoundBlock;
use crate::protocol::{self, AT_ONCE, NEVER};
use crate::segment::LockStatistics;
use crate::segment::error::SyncError;
use crate::segment::grantee::Grantee;
use crate::sys::clock;
use crate::sys::machine::Machine;

/// A mutex in a segment, guarding a fixed number of 64-bit words.
///
/// The words change by [updates](SharedMutexGuard::update). Each update happens completely or not at all, even if a
/// process is killed in the middle. If a holder dies, the next one gets the lock within a few milliseconds and
/// learns of the death. The mutex is not re-entrant: a thread that locks it twice waits for itself.
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

/// The lock, and whether its last holder died. Both variants hold the lock, and in both the guarded words are
/// consistent: an update that a dead holder had begun was rolled back.
#[must_use]
#[derive(Debug)]
pub enum LockedMutex<'a> {
    /// The last holder unlocked the mutex.
    Clean(SharedMutexGuard<'a>),
    /// The last holder died with the lock. Check the state that the mutex guards *outside* the segment.
    OwnerDied(SharedMutexGuard<'a>),
}

impl<'a> LockedMutex<'a> {
    /// Returns the guard in both cases. For programs whose mutex guards nothing outside the segment.
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

    /// Takes the lock; waits as long as necessary.
    pub fn lock(&self) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(NEVER)
    }

    /// Takes the lock, or gives up with [`SyncError::Busy`] after `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(clock::deadline(timeout))
    }

    /// Takes the lock unless a living participant holds it; otherwise returns [`SyncError::Busy`] immediately.
    pub fn try_lock(&self) -> Result<LockedMutex<'_>, SyncError> {
        self.lock_until(AT_ONCE)
    }

    /// Returns the guarded words as they were at one instant, without waiting for the lock.
    pub fn snapshot(&self) -> Result<Vec<u64>, SyncError> {
        self.bound.segment().participant()?;
        self.bound.segment().view().snapshot(self.bound.region())
    }

    /// Returns how often the lock was recovered from a dead holder.
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
            protocol::Locked::Clean(inner) => LockedMutex::Clean(guard(inner)),
            protocol::Locked::OwnerDied(inner) => LockedMutex::OwnerDied(guard(inner)),
        })
    }
}

/// The lock, held. Dropping it unlocks. It belongs to the participant that took it: in a forked child, and after this
/// process [took a lent slot lock back](crate::LentLife::release), dropping it does nothing.
#[must_use]
pub struct SharedMutexGuard<'a> {
    mutex: &'a SharedMutex,
    inner: ManuallyDrop<protocol::Guard<'a, Machine>>,
    /// The participant that locked it.
    to: Grantee,
}

impl SharedMutexGuard<'_> {
    /// Returns the number of words that the mutex guards.
    pub fn len(&self) -> usize {
        self.inner.block().words.len()
    }

    /// Returns whether the mutex guards no words.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a word.
    pub fn get(&self, index: usize) -> Result<u64, SyncError> {
        self.inner.get(index).map_err(|fault| self.error(fault))
    }

    /// Changes words together. If `change` succeeds, all its changes take effect at one instant. If it fails or
    /// panics, or if the process dies, none does.
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

    /// Unlocks, and returns an error if another owner was found in the lock.
    pub fn unlock(self) -> Result<(), SyncError> {
        let mut it = ManuallyDrop::new(self);
        it.to.check(it.mutex.bound.segment())?;
        it.inner.unlock_in_place().map_err(|fault| it.error(fault))
    }

    fn error(&self, fault: protocol::Fault) -> SyncError {
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

/// An update in progress; see [`SharedMutexGuard::update`].
pub struct MutexUpdate<'g, 'a> {
    mutex: &'g SharedMutex,
    /// `None` only after the commit.
    inner: Option<protocol::Transaction<'g, 'a, Machine>>,
    /// The participant that locked it.
    to: Grantee,
}

impl<'g, 'a> MutexUpdate<'g, 'a> {
    /// Returns the value of a word, including the changes made so far.
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
