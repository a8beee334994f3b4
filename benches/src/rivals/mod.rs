//! The rows beside ours: each rival does the same work as far as it can, and its row says where it cannot.

pub mod flock;
pub mod governor;
pub mod leaky;
pub mod limitador;
pub mod posix;
pub mod ratelimit;
pub mod raw;
pub mod robust;
pub mod sysv;
pub mod tokio;

/// What rivals with nothing but a lock keep behind it: counters of what is left.
#[repr(C)]
pub struct Counters(pub [std::cell::Cell<i64>; 3]);

impl Counters {
    pub fn fill(&self) {
        self.0.iter().for_each(|left| left.set(64));
    }

    /// Takes one of each of the first so many; all or none. Only under the lock.
    pub fn take(&self, count: usize) -> bool {
        let wanted = &self.0[..count];
        let fits = wanted.iter().all(|left| left.get() > 0);
        if fits {
            wanted.iter().for_each(|left| left.set(left.get() - 1));
        }
        fits
    }

    /// Gives them back. Only under the lock.
    pub fn give(&self, count: usize) {
        self.0[..count].iter().for_each(|left| left.set(left.get() + 1));
    }
}
