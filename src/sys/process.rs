//! Forking workers, and how a worker learns that it shall stop.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU32};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, getppid};

use super::futex;

/// In a worker: 1 once it shall stop. A futex, so that it can be slept on.
static STOPPING: AtomicU32 = AtomicU32::new(0);
/// In a worker: who must live for it to go on.
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);
/// In a worker: seconds it has left once its supervisor is gone.
static GRACE_SECONDS: AtomicU32 = AtomicU32::new(0);

/// Threads of this process, our own helpers apart.
pub(crate) fn other_threads() -> io::Result<usize> {
    let mut count = 0usize;
    for task in fs::read_dir("/proc/thread-self/../")? {
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(!name.starts_with("limitset-"));
    }
    Ok(count.saturating_sub(1))
}

/// Forks. In the child `work` is done, and its result is the exit code; nothing behind this call happens there.
pub(crate) fn fork(work: impl FnOnce() -> i32) -> io::Result<Pid> {
    // What is buffered now would be written by both.
    let _ = io::stdout().flush();
    // SAFETY: the caller made sure that there is no other thread, or took it upon itself that what they hold is not
    // needed in the child. The child never returns from here.
    match unsafe { nix::unistd::fork() }.map_err(io::Error::from)? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = work();
            let _ = io::stdout().flush();
            // SAFETY: ends the process without the destructors and exit handlers, which are the parent's.
            unsafe { libc::_exit(code) }
        }
    }
}

/// In a worker: from now on SIGTERM and SIGINT mean to stop in order, and so does the death of the supervisor, after which there
/// are `grace_seconds` left. False if the supervisor is gone already.
pub(crate) fn obey(supervisor: Pid, grace_seconds: u32) -> io::Result<bool> {
    SUPERVISOR.store(supervisor.as_raw(), SeqCst);
    GRACE_SECONDS.store(grace_seconds.max(1), SeqCst);
    STOPPING.store(0, SeqCst);
    let action = SigAction::new(SigHandler::Handler(on_stop), SaFlags::empty(), SigSet::empty());
    // A terminal sends SIGINT to all of them at once; it means the same.
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: the handler only stores to atomics and makes system calls that a handler may make, and leaves errno
        // alone.
        unsafe { sigaction(signal, &action) }?;
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGALRM, Signal::SIGCHLD] {
        // SAFETY: the default action runs no code of this process.
        unsafe { sigaction(signal, &default) }?;
    }
    // SAFETY: only sets which signal this process gets when its parent ends.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(getppid() == supervisor)
}

extern "C" fn on_stop(_: libc::c_int) {
    // Whoever was interrupted sees its own errno.
    let errno = Errno::last_raw();
    stop_here();
    Errno::set_raw(errno);
}

fn stop_here() {
    STOPPING.store(1, SeqCst);
    futex::wake(&STOPPING, i32::MAX);
    if is_orphan() {
        // Nobody is left to end a worker that does not stop: the kernel does.
        // SAFETY: sets a timer whose signal has its default action.
        unsafe { libc::alarm(GRACE_SECONDS.load(Relaxed)) };
    }
}

fn is_orphan() -> bool {
    let supervisor = SUPERVISOR.load(Relaxed);
    supervisor != 0 && getppid().as_raw() != supervisor
}

/// In a worker: whether it shall stop.
pub(crate) fn is_stopping() -> bool {
    if STOPPING.load(Relaxed) == 0 && is_orphan() {
        // The kernel's signal was lost: it is when a worker changes its user.
        stop_here();
    }
    STOPPING.load(Relaxed) != 0
}

/// In a worker: sleeps until it shall stop, at most `nanos`.
pub(crate) fn wait_for_stop(nanos: u64) -> bool {
    if !is_stopping() {
        futex::wait(&STOPPING, 0, nanos);
    }
    is_stopping()
}
