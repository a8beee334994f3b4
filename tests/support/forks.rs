//! Forking in tests: a child that does one thing and ends.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sched::CloneFlags;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A forked child; waited for at the end.
pub(crate) struct Forked(Pid);

impl Forked {
    /// Forks; the child does `work` and ends at once, well or (if it panicked) not.
    pub(crate) fn new(work: impl FnOnce()) -> Self {
        // SAFETY: in a worker with one thread the child is a whole process, not the copy of a thread in the
        // middle of something. Where a worker has more, `work` takes no lock that they could have held but
        // the C library's own, which it makes usable in children.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => Self(child),
            ForkResult::Child => in_child(work),
        }
    }

    /// The same by the bare system call: no handler of any library runs.
    pub(crate) fn raw(work: impl FnOnce()) -> Self {
        let none: libc::c_long = 0;
        // SAFETY: without flags this is a fork, in a worker with one thread; the zeros are no stack and no
        // places to write to.
        let pid = unsafe {
            libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), none, none, none, none)
        };
        match i32::try_from(pid).unwrap() {
            0 => in_child(work),
            child => Self(Pid::from_raw(child)),
        }
    }

    /// As `vfork` and `exec` do: the child runs in our memory, and we stand still, until it is `program`.
    pub(crate) fn vforked(program: &CStr) -> Self {
        let arguments = [program.as_ptr(), std::ptr::null()];
        let mut stack = vec![0; 1 << 16];
        let run = Box::new(|| {
            // SAFETY: both strings and the list, which ends with null, are alive in the parent standing still.
            unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) }.try_into().unwrap_or(-1)
        });
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: the stack is the child's alone, and outlives its use; the child only calls `execv`.
        Self(unsafe { nix::sched::clone(run, &mut stack, flags, Some(libc::SIGCHLD)) }.unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        self.0
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn join(self) {
        assert_eq!(self.wait(), WaitStatus::Exited(self.0, 0));
    }

    /// Waits for its end, whatever that is.
    pub(crate) fn wait(&self) -> WaitStatus {
        waitpid(self.0, None).unwrap()
    }
}

fn in_child(work: impl FnOnce()) -> ! {
    let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
    // SAFETY: ends the process; destructors and buffers are the parent's business.
    unsafe { libc::_exit(i32::from(failed)) }
}

/// Closes every descriptor from 3 on, as daemons do.
pub(crate) fn close_all_descriptors() {
    // SAFETY: nothing in this process uses a descriptor above 2 by number afterwards, which is the point.
    let code = unsafe { libc::close_range(3, u32::MAX, 0) };
    assert_eq!(code, 0);
}

/// Lets a timer interrupt this process again and again.
pub(crate) fn interrupt_every(interval: std::time::Duration) {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = nix::sys::signal::SigAction::new(
        nix::sys::signal::SigHandler::Handler(nothing),
        nix::sys::signal::SaFlags::empty(),
        nix::sys::signal::SigSet::empty(),
    );
    // SAFETY: the handler does nothing at all.
    unsafe { nix::sys::signal::sigaction(nix::sys::signal::Signal::SIGALRM, &action) }.unwrap();
    let period = libc::timeval { tv_sec: 0, tv_usec: interval.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: `timer` is live for the call, and the old value is not asked for.
    let code = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(code, 0);
}
