//! `raw_sync`: its mutex (a shared pthread mutex) around counters. The mutex of a dead process stays locked.

use raw_sync::locks::{LockImpl, LockInit, Mutex};

use crate::rivals::Counters;
use crate::sys::Shared;

#[repr(C)]
struct Guarded {
    mutex: [u64; 16],
    left: Counters,
}

pub struct Raw {
    lock: Box<dyn LockImpl>,
    guarded: Shared<Guarded>,
}

impl Raw {
    pub fn new() -> Raw {
        let guarded: Shared<Guarded> = Shared::zeroed();
        assert!(Mutex::size_of(None) <= size_of::<[u64; 16]>(), "the mutex does not fit");
        let at = guarded.as_ptr().cast::<u8>();
        // SAFETY: the mutex fits into the memory before the counters, which is mapped as long as it is used.
        let (lock, _) =
            unsafe { Mutex::new(at, at.add(std::mem::offset_of!(Guarded, left))) }.expect("a mutex");
        guarded.left.fill();
        Raw { lock, guarded }
    }

    /// Takes one of each of the first `count` counters together, then returns them.
    pub fn take_and_give(&self, count: usize) {
        let guard = self.lock.lock().expect("the lock");
        assert!(self.guarded.left.take(count), "refused");
        drop(guard);
        let guard = self.lock.lock().expect("the lock");
        self.guarded.left.give(count);
        drop(guard);
    }
}
