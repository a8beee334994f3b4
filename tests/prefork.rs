//! Supervised workers: how they end, start again, stop, and what is left when their supervisor dies.
//!
//! Every supervisor here is a process of its own with one thread, so that the test process has no children to lose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "prefork/ends.rs"]
mod ends;
#[path = "prefork/exec.rs"]
mod exec;
#[path = "prefork/orphans.rs"]
mod orphans;
#[path = "prefork/signals.rs"]
mod signals;
#[path = "support/mod.rs"]
mod support;
#[path = "prefork/workers.rs"]
mod workers;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{ExitReason, Prefork, PreforkReport, Segment};
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::{Pid, getppid};
use support::Worker;

const HOUR: Duration = Duration::from_secs(3600);
const AT_ONCE: Duration = Duration::ZERO;

fn main() {
    // A shell lets what it runs in the background ignore SIGINT, and so do those who inherit that.
    // SAFETY: the default action runs no code of this process.
    unsafe { nix::sys::signal::signal(Signal::SIGINT, SigHandler::SigDfl) }.unwrap();
    let mut tests: Vec<(&'static str, fn())> = Vec::new();
    tests.extend(ends::TESTS);
    tests.extend(signals::TESTS);
    tests.extend(workers::TESTS);
    tests.extend(exec::TESTS);
    tests.extend(orphans::TESTS);
    support::main(&[("case", case_role), ("exec", exec::role), ("orphans", orphans::role)], tests);
}

/// Runs one of the cases below in a process of its own.
fn in_a_process(case: &str) {
    assert!(Worker::start("case", &[case]).finish().success(), "{case}");
}

fn case_role(arguments: &[String]) {
    let cases = ends::CASES.iter().chain(signals::CASES).chain(workers::CASES);
    let (_, run) = cases.into_iter().find(|(name, _)| *name == arguments[0]).expect("a case");
    run();
}

/// Workers that are replaced at once and never given up.
fn prefork(workers: usize) -> Prefork {
    Prefork::new(workers).backoff_times(AT_ONCE, AT_ONCE).give_up_after(1_000_000).drain_time(HOUR)
}

/// Words that a process shares with those it forks.
struct Shared(Segment);

impl Shared {
    fn new() -> Self {
        Self(Segment::options().slots(16).words("shared", 16).anonymous().unwrap())
    }

    fn get(&self, index: usize) -> u64 {
        self.0.words("shared").unwrap()[index].load(SeqCst)
    }

    fn set(&self, index: usize, value: u64) {
        self.0.words("shared").unwrap()[index].store(value, SeqCst);
    }

    /// Adds one; gives what was there before.
    fn count(&self, index: usize) -> u64 {
        self.0.words("shared").unwrap()[index].fetch_add(1, SeqCst)
    }

    fn wait_for(&self, index: usize, value: u64) {
        until(|| self.get(index) == value);
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// In a worker: signals its supervisor.
fn tell_supervisor(signal: Signal) {
    kill(getppid(), signal).unwrap();
}

/// In a worker: never returns, whatever it is told.
fn be_deaf() {
    loop {
        nix::unistd::pause();
    }
}

/// In a worker: ends it.
fn exit(code: i32) {
    std::process::exit(code)
}

fn reasons(report: &PreforkReport) -> Vec<ExitReason> {
    report.last_exits.iter().map(|exit| exit.reason).collect()
}

fn killed_by(signal: Signal) -> ExitReason {
    ExitReason::Killed { signal: signal as i32 }
}

/// One letter of the kernel for what a process does: T is stopped, Z a zombie; none if there is none.
fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// The children of this process, zombies included.
fn children() -> String {
    std::fs::read_to_string("/proc/thread-self/children").unwrap()
}
