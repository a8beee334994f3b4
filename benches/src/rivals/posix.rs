//! POSIX semaphores in shared memory: permits between processes. The permits of a dead process are lost.
//! Several are taken one after the other, not together.

use crate::sys::Shared;

pub struct Posix(Shared<[libc::sem_t; 3]>);

impl Posix {
    pub fn new(permits: u32) -> Posix {
        let semaphores: Shared<[libc::sem_t; 3]> = Shared::zeroed();
        let posix = Posix(semaphores);
        for index in 0..3 {
            // SAFETY: memory for a semaphore, which is initialised here.
            unsafe { libc::sem_init(posix.at(index), 1, permits) };
        }
        posix
    }

    fn at(&self, index: usize) -> *mut libc::sem_t {
        assert!(index < 3, "there are three");
        // SAFETY: within the array.
        unsafe { self.0.as_ptr().cast::<libc::sem_t>().add(index) }
    }

    /// Takes one of each of the first `count` semaphores, then returns them.
    pub fn take_and_give(&self, count: usize) {
        for index in 0..count {
            // SAFETY: an initialised semaphore.
            assert_eq!(unsafe { libc::sem_trywait(self.at(index)) }, 0, "POSIX refused");
        }
        (0..count).for_each(|index| self.post(index));
    }

    pub fn denied(&self) {
        // SAFETY: an initialised semaphore.
        assert_ne!(unsafe { libc::sem_trywait(self.at(0)) }, 0, "POSIX granted");
    }

    /// Waits for a permit of one semaphore. Returns false after a second.
    pub fn wait(&self, index: usize) -> bool {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: filled by the kernel.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
        until.tv_sec += 1;
        // SAFETY: an initialised semaphore, and a timespec that outlives the call.
        unsafe { libc::sem_timedwait(self.at(index), &raw const until) == 0 }
    }

    /// Adds a permit to one semaphore.
    pub fn post(&self, index: usize) {
        // SAFETY: an initialised semaphore.
        unsafe { libc::sem_post(self.at(index)) };
    }

    /// Takes all permits.
    pub fn drain(&self) {
        for index in 0..3 {
            // SAFETY: an initialised semaphore.
            while unsafe { libc::sem_trywait(self.at(index)) } == 0 {}
        }
    }
}
