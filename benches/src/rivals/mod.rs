//! The rivals. Each does equal work as far as it can, and its row says where it cannot.

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

/// Counters of available permits, for rivals that only have a lock.
#[repr(C)]
pub struct Counters(pub [std::cell::Cell<i64>; 3]);

impl Counters {
    pub fn fill(&self) {
        self.0.iter().for_each(|left| left.set(64));
    }

    /// Takes one of each of the first `count` counters, all or none. Call it only under the lock.
    pub fn take(&self, count: usize) -> bool {
        let wanted = &self.0[..count];
        let fits = wanted.iter().all(|left| left.get() > 0);
        if fits {
            wanted.iter().for_each(|left| left.set(left.get() - 1));
        }
        fits
    }

    /// Returns one to each of them. Call it only under the lock.
    pub fn give(&self, count: usize) {
        self.0[..count].iter().for_each(|left| left.set(left.get() + 1));
    }
}
