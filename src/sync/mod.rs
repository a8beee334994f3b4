//! Locks and permits that survive the death of any holder, for use in any segment.
//!
//! The limiter itself is made of these parts, and they are useful alone. A [`SharedMutex`] guards words that
//! several processes update together, all or none. A [`SharedSemaphore`] hands out permits that return when their
//! holder dies, at any instruction.

mod bound;
mod mutex;
mod semaphore;

pub use mutex::{LockedMutex, MutexUpdate, SharedMutex, SharedMutexGuard};
pub use semaphore::{Permit, SharedSemaphore};

use self::bound::BoundBlock;
use crate::format::header::RegionKind;
use crate::segment::Segment;
use crate::segment::error::SyncError;

impl Segment {
    /// Returns the mutex with this label.
    pub fn mutex(&self, label: &str) -> Result<SharedMutex, SyncError> {
        let region = self.view().region(label, RegionKind::Mutex, "mutex")?;
        Ok(SharedMutex::new(BoundBlock::new(self.clone(), region)?))
    }

    /// Returns the semaphore with this label.
    pub fn semaphore(&self, label: &str) -> Result<SharedSemaphore, SyncError> {
        let region = self.view().region(label, RegionKind::Semaphore, "semaphore")?;
        Ok(SharedSemaphore::new(BoundBlock::new(self.clone(), region)?))
    }
}
