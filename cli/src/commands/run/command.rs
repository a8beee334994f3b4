//! The wrapped command: finds it, passes signals on to it, and returns how it ended.
//!
//! The command is in the process group of this process, so a terminal's signals reach both. Those are not
//! passed on, or the command would get them twice. When the terminal stops the command, this process stops
//! too, or the shell would not notice.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{AccessFlags, Pid, access};

use crate::exit::Exit;
use crate::failure::Failure;

/// The exit codes of a shell for a command that was not found, and for one that cannot be run.
const NOT_FOUND: Exit = Exit::Of(127);
const NOT_RUNNABLE: Exit = Exit::Of(126);

/// Signals that are passed on to the command, unless the terminal sent them.
const PASSED_ON: [Signal; 12] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGWINCH,
];

/// The `si_code` of signals from the kernel, which go to the whole process group.
const BY_THE_KERNEL: i32 = 0x80;

/// Checks that a command can be run, before anything is charged.
pub(super) fn find(program: &OsStr) -> Result<(), Failure> {
    if program.is_empty() {
        let message = "the command is empty: give one after --; nothing was charged";
        return Err(Failure::new(NOT_FOUND, "command_not_found", message));
    }
    let is_path = program.as_bytes().contains(&b'/');
    let places: Vec<PathBuf> = if is_path {
        vec![program.into()]
    } else {
        let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let is_runnable = |place: &Path| place.is_file() && access(place, AccessFlags::X_OK).is_ok();
    if places.iter().any(|place| is_runnable(place)) {
        return Ok(());
    }
    let shown = program.display();
    match places.iter().find(|place| place.exists()) {
        Some(place) if place.is_dir() => Err(Failure::new(
            NOT_RUNNABLE,
            "not_runnable",
            format!("cannot run {shown}: it is a directory; nothing was charged"),
        )),
        Some(place) => {
            let message = format!(
                "cannot run {}: it is not executable by this user; nothing was charged",
                place.display()
            );
            Err(Failure::new(NOT_RUNNABLE, "not_runnable", message))
        }
        None if is_path => {
            let message = format!("command {shown} not found; nothing was charged");
            Err(Failure::new(NOT_FOUND, "command_not_found", message))
        }
        None => {
            let message = format!("command {shown} not found in PATH; nothing was charged");
            Err(Failure::new(NOT_FOUND, "command_not_found", message))
        }
    }
}

/// Returns a failure for a command that could not be started.
pub(super) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let message = format!("cannot start {}: {error}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(NOT_FOUND, "command_not_found", message),
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Failure::new(Exit::Failed, "failed", message)
        }
        _ => Failure::new(NOT_RUNNABLE, "not_runnable", message),
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    With(i32),
    /// Ended by a signal. A number, because real-time signals have no name.
    By(i32),
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::By(signal),
            None => Self::With(status.code().unwrap_or_default()),
        }
    }
}

impl Ended {
    /// Returns the exit code that a shell would give.
    pub(super) fn code(self) -> u8 {
        let code = match self {
            Self::With(code) => code & 0xff,
            Self::By(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    pub(super) fn signal(self) -> Option<i32> {
        match self {
            Self::With(_) => None,
            Self::By(signal) => Some(signal),
        }
    }
}

/// Receives the signals of this process through a descriptor, instead of letting them act.
pub(super) struct Forwarding {
    signals: SignalFd,
    /// The signals that this process blocked, and that must be unblocked in the command.
    blocked: Vec<i32>,
}

impl Forwarding {
    /// Blocks the signals and opens the descriptor.
    pub(super) fn begin() -> io::Result<Self> {
        let mut mask: SigSet = PASSED_ON.into_iter().collect();
        mask.add(Signal::SIGCHLD);
        let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let blocked = mask.iter().filter(|signal| !before.contains(*signal)).map(|signal| signal as i32);
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, blocked: blocked.collect() })
    }

    /// Returns the signals to unblock in the command.
    pub(super) fn signals(&self) -> &[i32] {
        &self.blocked
    }

    /// Passes signals on until the command has ended.
    pub(super) fn wait_for(&self, command: &mut Child) -> io::Result<Ended> {
        let child = Pid::from_raw(i32::try_from(command.id()).map_err(io::Error::other)?);
        let mut is_stopped = false;
        loop {
            if let Some(status) = command.try_wait()? {
                return Ok(status.into());
            }
            match waitid(Id::Pid(child), WaitPidFlag::WNOHANG | WaitPidFlag::WSTOPPED) {
                // Stopped by the terminal, or on its behalf: a shell waits for this process to stop, and
                // continues it later. A SIGSTOP sent to the command is meant for the command alone.
                Ok(WaitStatus::Stopped(_, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => {
                    is_stopped = true;
                }
                // ECHILD: the command has ended in between, and a pending signal tells so.
                Ok(_) | Err(Errno::EINTR | Errno::ECHILD) => {}
                Err(error) => return Err(error.into()),
            }
            let mut is_news = false;
            while let Some(info) = self.signals.read_signal()? {
                is_news = true;
                let signal = i32::try_from(info.ssi_signo).ok().and_then(|it| Signal::try_from(it).ok());
                let is_its_own =
                    info.ssi_code == BY_THE_KERNEL || i64::from(info.ssi_pid) == i64::from(child.as_raw());
                if signal == Some(Signal::SIGCONT) {
                    is_stopped = false;
                }
                match signal {
                    Some(Signal::SIGCHLD) | None => {}
                    // The command may have ended in between; then the signal is lost. Its PID is not reused
                    // before the wait.
                    Some(signal) if !is_its_own => drop(kill(child, signal)),
                    Some(_) => {}
                }
            }
            if std::mem::take(&mut is_stopped) {
                raise(Signal::SIGSTOP)?;
                continue;
            }
            if is_news {
                // A SIGCHLD among them may be newer than the check above.
                continue;
            }
            let mut sources = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut sources, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
