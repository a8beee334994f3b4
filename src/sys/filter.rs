//! Filters of system calls, for tests of what the library does when the kernel refuses one.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// How a filter answers a call.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// The call fails with this error.
    Error(i32),
    /// The call ends the process.
    Kill,
}

/// Runs `act` in a forked child, because a filter stays for good. Returns what `act` returned, or how else the child ended;
/// an alarm ends it after a minute.
///
/// `act` must take no lock of this process.
pub(crate) fn in_child(act: impl FnOnce() -> i32) -> Result<i32, WaitStatus> {
    // SAFETY: the child runs only `act`, which takes no lock that another thread may hold, and leaves by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, found) => Ok(found),
            end => Err(end),
        },
        ForkResult::Child => {
            // SAFETY: takes an integer.
            unsafe { libc::alarm(60) };
            let found = act();
            // SAFETY: ends the process; nothing of it is needed any more.
            unsafe { libc::_exit(found) }
        }
    }
}

/// Answers the system call `number` like this from now on, in this thread. False if the machine allows no such filter.
#[expect(clippy::cast_possible_truncation, reason = "codes of filters are small")]
pub(crate) fn answer(number: libc::c_long, answer: Answer) -> bool {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let action = match answer {
        Answer::Error(error) => libc::SECCOMP_RET_ERRNO | error.unsigned_abs(),
        Answer::Kill => libc::SECCOMP_RET_KILL_PROCESS,
    };
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut lines = [
        // The number of the call comes first.
        line(LOAD, 0, 0, 0),
        line(IF_EQUAL, 0, 1, u32::try_from(number).unwrap_or(0)),
        line(ANSWER, 0, 0, action),
        line(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: lines.as_mut_ptr() };
    // SAFETY: takes integers only.
    let no_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its four lines are live for the whole call, which copies them.
    let filter = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    no_privileges == 0 && filter == 0
}
