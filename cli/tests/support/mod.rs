//! Helpers of the command's tests: they run the real binary, and create sets with unique names that are
//! removed afterwards.

#![allow(dead_code, reason = "each test uses some of it")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::signal::{SigHandler, Signal};
use serde_json::Value;

/// Returns the binary under test, with an environment that does not affect its output.
pub(crate) fn limitset() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limitset"));
    command.env_remove("NO_COLOR").env("TERM", "xterm").env("COLUMNS", "100");
    // SAFETY: the function that runs in the child between fork and exec only makes system calls.
    unsafe { command.pre_exec(heed_signals) };
    command
}

/// Restores the default action of signals. The parent of the tests may ignore signals (nohup, a shell that
/// runs them in the background), which is inherited: then a signal that a test sends would have no effect.
fn heed_signals() -> std::io::Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGTSTP] {
        // SAFETY: the default action installs no handler.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// Runs the command to its end.
pub(crate) fn run(args: &[&str]) -> Ran {
    Ran(limitset().args(args).output().expect("the binary runs"))
}

/// A finished run.
pub(crate) struct Ran(pub(crate) Output);

impl Ran {
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Returns the run if it ended with this code; otherwise panics.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }

    /// Returns stdout, parsed as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.0.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns stderr, parsed as JSON.
    #[track_caller]
    pub(crate) fn error_json(&self) -> Value {
        serde_json::from_slice(&self.0.stderr).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}\nstdout:\n{}\nstderr:\n{}", self.0.status, self.out(), self.err())
    }
}

/// A unique name. Its segment is removed on drop.
pub(crate) struct Name(pub(crate) String);

impl Name {
    pub(crate) fn new(about: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        Self(format!("test-cli-{about}-{}-{count}", std::process::id()))
    }

    /// Creates a set with a unique name and these limits.
    pub(crate) fn with(about: &str, limits: &[&str]) -> Self {
        let name = Self::new(about);
        let mut command = limitset();
        command.args(["create", &name.0]);
        for limit in limits {
            command.args(["--limit", limit]);
        }
        let ran = Ran(command.output().expect("the binary runs"));
        assert_eq!(ran.code(), 0, "{ran:?}");
        name
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/limitset.{}", self.0))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
    }
}

impl std::ops::Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Runs a test, and ends the whole process if the test hangs. The timeout is generous, because machines are
/// noisy.
pub(crate) fn watched(test: impl FnOnce()) {
    let (done, finished) = std::sync::mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        let limit = std::time::Duration::from_secs(300);
        if finished.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs: nothing for {limit:?}");
            std::process::abort();
        }
    });
    test();
    drop(done);
}
