//! A robust pthread mutex around counters: the usual hand-written solution. The next process that locks the
//! mutex of a dead process learns of the death, but not of its unfinished change; permits of a dead process
//! stay taken; no clock is read.

use crate::rivals::Counters;
use crate::sys::Shared;

#[repr(C)]
struct Guarded {
    mutex: libc::pthread_mutex_t,
    left: Counters,
}

pub struct Robust(Shared<Guarded>);

impl Robust {
    pub fn new() -> Robust {
        let robust = Robust(Shared::zeroed());
        // SAFETY: plain data, initialised by the next call.
        let mut attributes: libc::pthread_mutexattr_t = unsafe { std::mem::zeroed() };
        // SAFETY: memory for attributes.
        unsafe { libc::pthread_mutexattr_init(&raw mut attributes) };
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: memory for a mutex, and initialised attributes.
        let done = unsafe { libc::pthread_mutex_init(robust.mutex(), &raw const attributes) };
        assert_eq!(done, 0, "no robust mutex");
        robust.0.left.fill();
        robust
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within the mapping.
        unsafe { &raw mut (*self.0.as_ptr()).mutex }
    }

    fn locked<T>(&self, change: impl FnOnce(&Counters) -> T) -> T {
        // SAFETY: an initialised mutex.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.mutex()) }, 0, "a worker died");
        let result = change(&self.0.left);
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.mutex()) };
        result
    }

    /// Takes one of each of the first `count` counters together, then returns them.
    pub fn take_and_give(&self, count: usize) {
        assert!(self.locked(|left| left.take(count)), "refused");
        self.locked(|left| left.give(count));
    }
}
