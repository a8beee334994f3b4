//! The command that is run: finding it, passing signals on to it, and how it ended.
//!
//! It is in the process group of this process, so that a terminal's signals reach both. Those are not passed on, or it
//! would get them twice. When the terminal stops it, this process stops, too, or the shell would not notice.

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

/// What a shell says about a command that is not there, and about one that cannot be run.
const NOT_FOUND: Exit = Exit::Of(127);
const NOT_RUNNABLE: Exit = Exit::Of(126);

/// Passed on to the command, unless the terminal sent them.
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

/// How the kernel says that a signal is its own: it went to the whole process group.
const BY_THE_KERNEL: i32 = 0x80;

/// Says why a command cannot be run, before it is tried.
pub(super) fn find(program: &OsStr) -> Result<(), Failure> {
    if program.is_empty() {
        let message = "the command is empty: name one behind --; nothing was charged";
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
            format!("{shown} is a directory; nothing was charged"),
        )),
        Some(place) => {
            let message = format!(
                "{} cannot be run: it is not executable by this user; nothing was charged",
                place.display()
            );
            Err(Failure::new(NOT_RUNNABLE, "not_runnable", message))
        }
        None if is_path => {
            let message = format!("there is no command {shown}; nothing was charged");
            Err(Failure::new(NOT_FOUND, "command_not_found", message))
        }
        None => {
            let message = format!("there is no command {shown} in PATH; nothing was charged");
            Err(Failure::new(NOT_FOUND, "command_not_found", message))
        }
    }
}

/// Says why a command could not be started after all.
pub(super) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let message = format!("{} could not be started: {error}", program.display());
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
    /// By a signal: its number, because the real-time ones have no name.
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
    /// As a shell says it.
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

/// Signals to this process, read one by one instead of acting on it.
pub(super) struct Forwarding {
    signals: SignalFd,
    /// Those that were not blocked before, and are not for the command.
    blocked: Vec<i32>,
}

impl Forwarding {
    /// From now on signals wait.
    pub(super) fn begin() -> io::Result<Self> {
        let mut mask: SigSet = PASSED_ON.into_iter().collect();
        mask.add(Signal::SIGCHLD);
        let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let blocked = mask.iter().filter(|signal| !before.contains(*signal)).map(|signal| signal as i32);
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, blocked: blocked.collect() })
    }

    /// To be unblocked in the command.
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
                // By the terminal, or in its name: a shell waits for us to stop, and lets us go on. Whoever sends a
                // SIGSTOP to the command itself means the command alone.
                Ok(WaitStatus::Stopped(_, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => {
                    is_stopped = true;
                }
                // No child: it has ended in between, and a signal that tells so waits.
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
                    // It may have ended in between: then there is nobody to tell. Its number is ours until then.
                    Some(signal) if !is_its_own => drop(kill(child, signal)),
                    Some(_) => {}
                }
            }
            if std::mem::take(&mut is_stopped) {
                raise(Signal::SIGSTOP)?;
                continue;
            }
            if is_news {
                // One of them may have told of the child, after it was looked at.
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
