//! Forking workers, and how a worker learns that it shall stop.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU32};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, getppid};

use super::{futex, thread};

/// In a worker: 1 once it shall stop. A futex, so that it can be slept on.
static STOPPING: AtomicU32 = AtomicU32::new(0);
/// In a worker: who must live for it to go on.
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);
/// In a worker: seconds it has left once its supervisor is gone.
static GRACE_SECONDS: AtomicU32 = AtomicU32::new(0);

/// Why a process was not forked.
pub(crate) enum NotForked {
    /// It has this many other threads.
    Threads(usize),
    /// The system refused.
    Failed(io::Error),
}

/// Reads a variable of the environment, and takes it out if no other thread could be reading the environment now. Where
/// there are other threads it stays.
pub(crate) fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    let is_alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    if is_alone {
        // SAFETY: this thread is the only one of the process, so no other reads or changes the environment, and none can
        // start before the call returns.
        unsafe { std::env::remove_var(name) };
    }
    Some(value)
}

impl<E: Into<io::Error>> From<E> for NotForked {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Forks, with all signals blocked in the child, unless this process has other threads: a child would inherit every lock
/// that they hold. Threads of this library do not count as long as they hold none that the child needs; the call waits
/// for those that may.
///
/// The child does `work`, and its result is the exit code; nothing behind this call happens there.
pub(crate) fn fork_if_single_threaded(work: impl FnOnce() -> i32) -> Result<Pid, NotForked> {
    let alone = thread::Alone::wait_for()?.map_err(NotForked::Threads)?;
    // What is buffered now would be written by both.
    let _ = io::stdout().flush();
    // A signal to the child must not find the handlers of the program.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    // SAFETY: `alone` proves that no other thread holds a lock that the child could need, so the child may do whatever
    // this process may. It never returns from here.
    let forked = unsafe { nix::unistd::fork() };
    if !matches!(forked, Ok(ForkResult::Child)) {
        drop(alone);
        before.thread_set_mask()?;
    }
    match forked? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = work();
            let _ = io::stdout().flush();
            // SAFETY: ends the process without the destructors and exit handlers, which are the parent's.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Starts a program that gets these signals and ends with this process until it says otherwise.
pub(crate) fn spawn(mut command: Command, signals: SigSet) -> io::Result<Pid> {
    let supervisor = nix::unistd::getpid();
    let before = move || {
        signals.thread_set_mask()?;
        ends_with_parent()?;
        if getppid() == supervisor { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    let child = unsafe { command.pre_exec(before) }.spawn()?;
    Ok(Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?))
}

/// Spawns a command that inherits these descriptors, and in which these signals are unblocked. Other commands do not
/// inherit them.
pub(crate) fn spawn_inheriting<const N: usize>(
    mut command: Command,
    descriptors: [BorrowedFd<'_>; N],
    unblock: SigSet,
) -> io::Result<Child> {
    let descriptors = descriptors.map(|it| it.as_raw_fd());
    let before = move || {
        for descriptor in descriptors {
            // SAFETY: clears the flag that closes a descriptor at exec, in the child alone. It is open there: it is
            // borrowed for as long as the command can be spawned, which is this call.
            Errno::result(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })?;
        }
        Ok(unblock.thread_unblock()?)
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(before) }.spawn()
}

/// Lets this process have SIGTERM when its parent ends.
fn ends_with_parent() -> io::Result<()> {
    // SAFETY: only sets which signal this process gets when its parent ends.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) })?;
    Ok(())
}

/// A descriptor that can be read once a child has ended; none where the kernel has no such thing (before 5.3).
pub(crate) fn end_of(child: Pid) -> Option<OwnedFd> {
    // SAFETY: makes a descriptor, and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) };
    let fd = RawFd::try_from(Errno::result(fd).ok()?).ok()?;
    // SAFETY: it was made just now, and nobody else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeros are a valid action, to be written over.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is live for the call, and nothing is changed.
    let code = unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut action) };
    code == 0 && (action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0)
}

/// While it lives, ended children wait to be asked why, although the program ignores SIGCHLD.
pub(crate) struct ChildrenWait(SigAction);

impl ChildrenWait {
    /// None if they do so anyway.
    pub(crate) fn new() -> Option<Self> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        let is_ignored = is_ignored(Signal::SIGCHLD);
        // SAFETY: the default action runs no code of this process.
        is_ignored.then(|| unsafe { sigaction(Signal::SIGCHLD, &default) }.ok().map(Self)).flatten()
    }
}

impl Drop for ChildrenWait {
    fn drop(&mut self) {
        // SAFETY: what was right before is right again.
        let _ = unsafe { sigaction(Signal::SIGCHLD, &self.0) };
    }
}

/// In a worker: from now on SIGTERM and SIGINT mean to stop in order, and so does the death of the supervisor, after
/// which there are `grace_seconds` left. False if the supervisor is gone already.
pub(crate) fn obey(supervisor: Pid, grace_seconds: u32) -> io::Result<bool> {
    SUPERVISOR.store(supervisor.as_raw(), SeqCst);
    GRACE_SECONDS.store(grace_seconds.max(1), SeqCst);
    STOPPING.store(0, SeqCst);
    let action = SigAction::new(SigHandler::Handler(on_stop), SaFlags::empty(), SigSet::empty());
    // A terminal sends SIGINT to workers, too. Where it is ignored, that was meant for them as well.
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        if signal == Signal::SIGTERM || !is_ignored(signal) {
            // SAFETY: the handler only stores to atomics and makes system calls that a handler may make, and leaves
            // errno alone.
            unsafe { sigaction(signal, &action) }?;
        }
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGALRM, Signal::SIGCHLD] {
        // SAFETY: the default action runs no code of this process.
        unsafe { sigaction(signal, &default) }?;
    }
    ends_with_parent()?;
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

/// Whether this process is a worker.
pub(crate) fn is_worker() -> bool {
    SUPERVISOR.load(Relaxed) != 0
}

/// In a worker that supervises others, and so reads its signals itself: it shall stop.
pub(crate) fn note_stop() {
    if is_worker() {
        stop_here();
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
