//! Forking in tests: a child that does one thing and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A forked child; waited for at the end.
pub(crate) struct Forked(Pid);

impl Forked {
    /// Forks; the child does `work` and ends at once, well or (if it panicked) not.
    pub(crate) fn new(work: impl FnOnce()) -> Self {
        // SAFETY: called by single-threaded workers only, so the child is a whole process, not the copy of a
        // thread in the middle of something.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => Self(child),
            ForkResult::Child => {
                let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
                // SAFETY: ends the process; destructors and buffers are the parent's business.
                unsafe { libc::_exit(i32::from(failed)) }
            }
        }
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn join(self) {
        assert_eq!(waitpid(self.0, None).unwrap(), WaitStatus::Exited(self.0, 0));
    }
}

/// Closes every descriptor from 3 on, as daemons do.
pub(crate) fn close_all_descriptors() {
    // SAFETY: nothing in this process uses a descriptor above 2 by number afterwards, which is the point.
    let code = unsafe { libc::close_range(3, u32::MAX, 0) };
    assert_eq!(code, 0);
}
