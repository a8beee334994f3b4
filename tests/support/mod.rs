//! What process tests share: segment names that clean up after themselves, workers in processes of their own,
//! and a watchdog against hangs.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

pub mod emulated;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Generous, because machines are noisy: it only tells a hang from slowness.
const WATCHDOG: Duration = Duration::from_secs(600);
pub const ROLE: &str = "LIMITSET_TEST_ROLE";

/// A segment name nobody else uses; whatever is there under it is removed at the end.
pub struct TempName(pub String);

impl TempName {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        Self(format!("test-{}-{count}-{nanos:x}", std::process::id()))
    }

    pub fn path(&self) -> std::path::PathBuf {
        limitset::Segment::path_of(&self.0).unwrap()
    }
}

impl AsRef<std::ffi::OsStr> for TempName {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.0.as_ref()
    }
}

impl Drop for TempName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

/// What a worker process does: gets its arguments, talks through standard input and output.
pub type Role = (&'static str, fn(&[String]));

/// `main` of a test binary with workers: becomes the worker if asked to, else runs the tests, each under the
/// watchdog.
pub fn main(roles: &[Role], tests: Vec<(&'static str, fn())>) {
    if let Ok(role) = std::env::var(ROLE) {
        let (_, work) = roles.iter().find(|(name, _)| *name == role).expect("a role of this binary");
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        return work(&arguments);
    }
    let lacks = std::sync::Arc::new(emulated::Lacks::probe());
    let trials = tests.into_iter().map(|(name, test)| {
        let lacks = lacks.clone();
        Trial::test(name, move || {
            if !lacks.skip(name) {
                watched(name, test);
            }
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

/// Runs `test`; ends the whole process if it hangs.
pub fn watched<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let (done, finished) = mpsc::channel::<()>();
    let name = name.to_owned();
    std::thread::spawn(move || {
        if finished.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs: nothing for {WATCHDOG:?}");
            std::process::abort();
        }
    });
    let result = test();
    drop(done);
    result
}

/// A worker process. Killed at the end if it still runs.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this very binary in a role.
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        Self::spawn(emulated::this_program(), role, arguments)
    }

    /// Starts a program in one of its roles: this binary, or the same built for another processor.
    pub fn spawn(mut program: Command, role: &str, arguments: &[&str]) -> Self {
        let mut child = program
            .env(ROLE, role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Waits for a line that the worker prints.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the worker ended without a word: {:?}", self.child.try_wait());
        line.trim_end().to_owned()
    }

    /// Waits for exactly this line.
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    /// Waits until neither it nor any process that it started can say anything any more; gives what was still said.
    pub fn hear_until_silence(&mut self) -> Vec<String> {
        (&mut self.output).lines().map(Result::unwrap).collect()
    }

    /// Sends the worker a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it sleeps, on a futex as far as the kernel tells.
    pub fn wait_until_asleep(&self) {
        loop {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            let wait = std::fs::read_to_string(format!("/proc/{}/wchan", self.pid())).unwrap_or_default();
            let on_futex = wait.contains("futex") || wait.is_empty() || wait == "0";
            if state.rsplit(')').next().unwrap().trim_start().starts_with('S') && on_futex {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// SIGKILL, and waits until the kernel has buried it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended, of itself and well.
    pub fn wait_for_end(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// Lets it end by closing its input, and waits.
    pub fn finish(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a worker: tells the test something.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// In a worker: waits for a line from the test; ends the process when the test is gone.
pub fn listen() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
    line.trim_end().to_owned()
}

/// How often to do something: `usual` in the test run, `full` when `cargo xtask prove` asks for full depth.
pub fn depth(usual: u64, full: u64) -> u64 {
    if std::env::var_os("LIMITSET_FULL_DEPTH").is_some() { full } else { usual }
}

/// States what was found, for docs/proof.md: which promises it bears on, what was tried, what came of it.
pub fn proof(promises: &str, what: &str, result: &str) {
    println!("PROOF {promises} | {what} | {result}");
}

/// Repeatable random numbers (xorshift): a failing run can be run again.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
