//! Locks and permits that survive the death of any holder, for use in any segment.
//!
//! The limiter itself is made of these parts, and they are useful alone: a [`SharedMutex`] guards words that
//! several processes update together, all or none; a [`SharedSemaphore`] hands out permits that return when
//! their holder dies, at whatever instruction.

mod mutex;
mod semaphore;

pub use mutex::{LockedMutex, MutexUpdate, SharedMutex, SharedMutexGuard};
pub use semaphore::{Permit, SharedSemaphore};
