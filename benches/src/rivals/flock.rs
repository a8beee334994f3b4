//! `flock` around counters: when a process dies, the kernel releases the lock, but does not restore the
//! counters.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use crate::rivals::Counters;
use crate::sys::{Shared, TempFolder};

pub struct Flock {
    folder: TempFolder,
    left: Shared<Counters>,
}

/// An open lock file: each process needs its own.
pub struct Opened {
    file: File,
    flock: Rc<Flock>,
}

impl Flock {
    pub fn new() -> Result<Rc<Flock>, String> {
        let folder = TempFolder::new("flock").map_err(|error| error.to_string())?;
        File::create(folder.0.join("lock")).map_err(|error| error.to_string())?;
        let left: Shared<Counters> = Shared::zeroed();
        left.fill();
        Ok(Rc::new(Flock { folder, left }))
    }

    pub fn open(self: &Rc<Self>) -> Opened {
        let file = File::open(self.folder.0.join("lock")).expect("the lock file");
        Opened { file, flock: Rc::clone(self) }
    }
}

impl Opened {
    fn locked<T>(&self, change: impl FnOnce(&Counters) -> T) -> T {
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX) }, 0, "no lock");
        let result = change(&self.flock.left);
        // SAFETY: an open file.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        result
    }

    /// Takes one of each of the first `count` counters together, then returns them.
    pub fn take_and_give(&self, count: usize) {
        assert!(self.locked(|left| left.take(count)), "refused");
        self.locked(|left| left.give(count));
    }
}
