//! A process that is stepped through its instructions one by one, and killed at any of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "tests"
)]

use std::process::{Command, Stdio};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::support::ROLE;

/// How a victim tells that it may not be traced.
const REFUSED: i32 = 77;

/// A traced process, stopped between two instructions.
pub struct Victim {
    pid: Pid,
    is_there: bool,
}

impl Victim {
    /// Starts this binary in a role whose function calls [`stop_here`] when it is ready. None if this machine
    /// does not allow tracing.
    #[expect(clippy::zombie_processes, reason = "waited for by number, because stops have to be seen")]
    pub fn start(role: &str, arguments: &[&str]) -> Option<Self> {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut victim = Self { pid: Pid::from_raw(i32::try_from(child.id()).unwrap()), is_there: true };
        match victim.wait() {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => Some(victim),
            WaitStatus::Exited(_, REFUSED) => None,
            other => panic!("the victim did not get ready: {other:?}"),
        }
    }

    /// One instruction further. False once the process has ended. A system call is one instruction, however
    /// long it sleeps.
    pub fn step(&mut self) -> bool {
        ptrace::step(self.pid, None).unwrap();
        self.is_stopped()
    }

    /// On to the next entry into or return from a system call. False once the process has ended.
    pub fn step_to_system_call(&mut self) -> bool {
        ptrace::syscall(self.pid, None).unwrap();
        self.is_stopped()
    }

    /// Lets it go on alone, to a good end.
    pub fn run_to_end(mut self) {
        ptrace::detach(self.pid, None).unwrap();
        assert!(!self.is_stopped());
    }

    fn is_stopped(&mut self) -> bool {
        match self.wait() {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => true,
            WaitStatus::Exited(_, 0) => false,
            other => panic!("the victim failed: {other:?}"),
        }
    }

    /// SIGKILL here and now.
    pub fn kill(mut self) {
        self.end();
    }

    fn wait(&mut self) -> WaitStatus {
        let status = waitpid(self.pid, None).unwrap();
        self.is_there = !matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
        status
    }

    fn end(&mut self) {
        if self.is_there {
            kill(self.pid, Signal::SIGKILL).unwrap();
            while self.is_there {
                self.wait();
            }
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.end();
    }
}

/// In the victim: from here on, instruction by instruction.
pub fn stop_here() {
    if ptrace::traceme().is_err() {
        std::process::exit(REFUSED);
    }
    raise(Signal::SIGSTOP).unwrap();
}

/// In the victim: ends at once, holding whatever is held: no destructors, no exit handlers.
pub fn leave() -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(0) }
}

/// Keeps this process, and those it starts, on one CPU: a step is then two switches on a warm cache.
pub fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap_or(false)).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}
