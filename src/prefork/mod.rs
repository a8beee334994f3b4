//! Prefork: workers that are forked, supervised, and share limits.

mod supervisor;
mod worker;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getppid};
use thiserror::Error;

pub use self::supervisor::{ExitReason, Supervisor, WorkerExit};
pub use self::worker::{Stopped, Worker, WorkerOutcome};
use crate::code::Code;
use crate::pool::{AnyLimits, LimitPool, PoolDescription, PoolError, Sharing};
use crate::sys::process;

/// The environment variable that tells a process started by [`StartBy::Exec`] that it is a worker, and its number.
const WORKER_VARIABLE: &str = "LIMITSET_WORKER";
/// The longest sleep between two polls, in case a signal was lost.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Which workers are restarted when they end. While the supervisor stops, no worker is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Workers that failed, panicked or were killed.
    #[default]
    OnFailure,
    /// All workers.
    Always,
    /// No worker.
    Never,
}

/// How a worker is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartBy {
    /// As a copy of this process, at this point.
    #[default]
    Fork,
    /// By running this program again, with the same arguments. When the new process reaches [`Prefork::run`], it
    /// becomes a worker: `run` does not return. The limits must have names. For programs with threads. Not for
    /// workers that supervise workers, nor for programs with a second `run` of this kind.
    Exec,
}

/// Why workers could not be supervised.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PreforkError {
    /// The limits cannot be shared by processes.
    #[error(transparent)]
    Limits(#[from] PoolError),
    /// The process has other threads. A fork copies only the calling thread, but the locks of all threads as they are.
    #[error(
        "this process has {found} other threads, and a fork would copy none of them but every lock they hold: fork \
        before starting threads, or start workers by StartBy::Exec"
    )]
    Threads {
        /// The number of other threads.
        found: usize,
    },
    /// A worker could not be started.
    #[error("cannot start worker {index}: {source}")]
    Start {
        /// The number of the worker.
        index: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// A worker could not be waited for.
    #[error("cannot wait for a worker: {source}")]
    Wait {
        /// The error of the system.
        source: io::Error,
    },
    /// Signals could not be received.
    #[error("cannot receive signals: {source}")]
    Signals {
        /// The error of the system.
        source: io::Error,
    },
    /// A worker tried to start workers by [`StartBy::Exec`].
    #[error(
        "cannot start workers by StartBy::Exec: this process is a worker itself, and the program run again would reach \
        its supervisor's run, not this one; fork them"
    )]
    Nested,
    /// The environment variable of the supervisor has an invalid value.
    #[error(
        "invalid LIMITSET_WORKER {found:?}: no supervisor of this version writes that; unset the variable"
    )]
    Order {
        /// The value of the variable.
        found: String,
    },
}

impl PreforkError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Limits(error) => error.code(),
            Self::Threads { .. } => Code::Threads,
            Self::Start { .. } | Self::Wait { .. } | Self::Signals { .. } => Code::Io,
            Self::Nested | Self::Order { .. } => Code::BadSetting,
        }
    }
}

/// The outcome of [`Prefork::run`]: how the workers ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The last exit of each worker, by number.
    pub last_exits: Vec<WorkerExit>,
    /// How many workers ended in total.
    pub exits: u64,
    /// How often a worker was started in place of one that had ended.
    pub restarts: u64,
    /// The numbers whose workers ended so often and so quickly that they were no longer replaced.
    pub given_up: Vec<usize>,
    /// Whether this process received SIGTERM or SIGINT.
    pub told_to_stop: bool,
}

/// Forked workers that share limits.
///
/// SIGTERM and SIGINT let the workers finish, a second one kills them; SIGTTIN adds a worker, SIGTTOU retires the last
/// one. A worker that dies is replaced, with a delay if it ran only briefly. If this process dies, its workers stop. It
/// returns an error instead of forking while there are other threads; see also `docs/caveats.md`.
///
/// ```standalone_crate
/// use limitset::{CallLimit, LimitSet, Prefork};
///
/// let limits = LimitSet::builder().limit(CallLimit::per_hour(3)).open_anonymous()?;
/// let workers = Prefork::new(2).limits(&limits);
/// let report = workers.run(|worker| {
///     for _ in 0..2 {
///         // Four calls are requested in all, and three are granted.
///         let _ = worker.limits().try_acquire(());
///     }
/// })?;
/// assert_eq!(report.exits, 2);
/// assert_eq!(limits.stats()?.limit("call_count").unwrap().granted, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Prefork {
    workers: usize,
    limits: AnyLimits,
    restart: Restart,
    start_by: StartBy,
    first_wait: Duration,
    longest_wait: Duration,
    stable_after: Duration,
    give_up_after: u32,
    drain_time: Duration,
    on_exit: Box<dyn Fn(&WorkerExit)>,
}

impl Prefork {
    /// Describes this many workers, without limits unless [`limits`](Self::limits) sets some.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            limits: ().into(),
            restart: Restart::default(),
            start_by: StartBy::default(),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(10),
            stable_after: Duration::from_secs(10),
            give_up_after: 100,
            drain_time: Duration::from_secs(30),
            on_exit: Box::new(|_| {}),
        }
    }

    /// Sets the limits that the workers share: limits, a set, several sets, or a pool.
    pub fn limits(mut self, limits: impl Into<AnyLimits>) -> Self {
        self.limits = limits.into();
        self
    }

    /// Sets which workers are restarted: [`Restart::OnFailure`] unless set.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets how workers are started: [`StartBy::Fork`] unless set.
    pub fn start_by(mut self, start_by: StartBy) -> Self {
        self.start_by = start_by;
        self
    }

    /// Sets the delay before a worker is replaced: `first`, twice as long after each further quick end, and never more
    /// than `longest`. 100 ms and 10 s unless set.
    pub fn backoff_times(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_wait, self.longest_wait) = (first, longest);
        self
    }

    /// Sets how long a worker has to run so that its end does not count as quick: 10 s unless set.
    pub fn stable_after(mut self, time: Duration) -> Self {
        self.stable_after = time;
        self
    }

    /// Sets after how many quick ends in a row a worker is no longer replaced: 100 unless set.
    pub fn give_up_after(mut self, ends: u32) -> Self {
        self.give_up_after = ends.clamp(1, u32::MAX - 1);
        self
    }

    /// Sets how long workers may take to finish before they are killed: 30 s unless set.
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.drain_time = time;
        self
    }

    /// Called for every worker that ends.
    pub fn on_exit(mut self, tell: impl Fn(&WorkerExit) + 'static) -> Self {
        self.on_exit = Box::new(tell);
        self
    }

    /// Starts the workers and supervises them until all have ended, or until this process is told to stop.
    ///
    /// # Errors
    ///
    /// [`PreforkError`] if workers cannot be started or supervised; then the running workers are killed.
    pub fn run<T: WorkerOutcome>(self, work: impl Fn(&Worker) -> T) -> Result<Report, PreforkError> {
        if let Some((worker, grace)) = self.as_worker()? {
            let is_supervised = process::obey(getppid(), grace);
            let is_supervised = is_supervised.map_err(|source| PreforkError::Signals { source })?;
            let code = if is_supervised { supervisor::work(&work, worker) } else { 0 };
            std::process::exit(code);
        }
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGTTIN, Signal::SIGTTOU] {
            mask.add(signal);
        }
        if !process::is_ignored(Signal::SIGINT) {
            mask.add(Signal::SIGINT);
        }
        let _children_wait = process::ChildrenWait::new();
        let before = MaskBefore(mask.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(signals_failed)?);
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        self.supervise(work, before.0, &signals.map_err(signals_failed)?)
    }

    /// Starts the workers and returns their supervisor. The caller calls [`step`](Supervisor::step) repeatedly, and
    /// handles signals itself.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn start<W, T>(self, work: W) -> Result<Supervisor<W>, PreforkError>
    where
        W: Fn(&Worker) -> T,
        T: WorkerOutcome,
    {
        let signals = SigSet::thread_get_mask().map_err(signals_failed)?;
        self.start_with(work, signals)
    }

    fn start_with<W, T>(mut self, work: W, signals: SigSet) -> Result<Supervisor<W>, PreforkError>
    where
        W: Fn(&Worker) -> T,
        T: WorkerOutcome,
    {
        let limits = std::mem::replace(&mut self.limits, ().into()).into_pool(Sharing::Processes)?;
        if self.start_by == StartBy::Exec {
            if process::is_worker() {
                return Err(PreforkError::Nested);
            }
            limits.describe()?;
        }
        Supervisor::start(self, limits, work, signals)
    }

    fn supervise<W, T>(self, work: W, before: SigSet, signals: &SignalFd) -> Result<Report, PreforkError>
    where
        W: Fn(&Worker) -> T,
        T: WorkerOutcome,
    {
        let mut supervisor = self.start_with(work, before)?;
        let mut report = Report::default();
        loop {
            let (exits, due) = supervisor.step()?;
            for exit in exits {
                (supervisor.options().on_exit)(&exit);
                report.exits += 1;
                report.last_exits.retain(|other| other.index != exit.index);
                report.last_exits.push(exit);
            }
            if supervisor.is_over() {
                // A signal that is still pending was meant for the supervisor too. Unread, it would end the program.
                while let Some(signal) = next_signal(signals)? {
                    report.note(signal);
                }
                break;
            }
            // SIGCHLD alone is not enough: if there are other threads, it may go to one of them and get lost.
            let ends = supervisor.ends().map(|end| PollFd::new(end, PollFlags::POLLIN));
            let mut sources: Vec<_> = ends.collect();
            let is_all = sources.len() == supervisor.running().len();
            sources.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            let due = if is_all { due } else { Some(due.map_or(LOOK_AGAIN, |due| due.min(LOOK_AGAIN))) };
            let timeout = due.map_or(PollTimeout::NONE, |due| {
                // Rounded up: waking a little early would repeat the loop in vain.
                PollTimeout::try_from(due.saturating_add(Duration::from_millis(1)))
                    .unwrap_or(PollTimeout::MAX)
            });
            match poll(&mut sources, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(signals_failed(error)),
            }
            drop(sources);
            while let Some(signal) = next_signal(signals)? {
                report.note(signal);
                match signal {
                    _ if is_stop(signal) && supervisor.is_stopping() => supervisor.kill(),
                    _ if is_stop(signal) => supervisor.stop(),
                    Signal::SIGTTIN if !supervisor.is_stopping() => drop(supervisor.add()?),
                    Signal::SIGTTOU => drop(supervisor.retire()),
                    _ => {}
                }
            }
        }
        report.last_exits.sort_by_key(|exit| exit.index);
        report.restarts = supervisor.restarts();
        report.given_up = supervisor.given_up();
        Ok(report)
    }

    /// Returns the worker that this process was started to be, and its grace period in seconds; `None` if it is not a
    /// worker.
    fn as_worker(&self) -> Result<Option<(Worker, u32)>, PreforkError> {
        static IS_WORKER: AtomicBool = AtomicBool::new(false);
        if self.start_by != StartBy::Exec {
            return Ok(None);
        }
        // Taken out, so that commands which this process starts do not inherit it.
        let Some(order) = process::take_variable(WORKER_VARIABLE) else { return Ok(None) };
        let order = order.to_string_lossy();
        let (supervisor, rest) = order.split_once(':').unwrap_or((&order, ""));
        // First whose order it is: one that a parent of ours got, from whatever version, is none of our business. Or it is
        // ours, and was carried out a while ago.
        let is_ours = supervisor.parse().is_ok_and(|supervisor| Pid::from_raw(supervisor) == getppid());
        if !is_ours || IS_WORKER.swap(true, Relaxed) {
            return Ok(None);
        }
        let parse = || {
            let mut parts = rest.splitn(3, ':');
            let index = parts.next()?.parse::<usize>().ok()?;
            let grace = parts.next()?.parse::<u32>().ok()?;
            Some((index, grace, parts.next()?.parse::<PoolDescription>().ok()?))
        };
        let bad = || PreforkError::Order { found: order.clone().into_owned() };
        let (index, grace, description) = parse().ok_or_else(bad)?;
        let limits: LimitPool = description.attach()?.for_worker(index);
        Ok(Some((Worker { index, limits }, grace)))
    }

    fn backoff(&self, quick_ends: u32) -> Duration {
        let doublings = quick_ends.saturating_sub(1).min(31);
        self.first_wait.saturating_mul(1 << doublings).min(self.longest_wait)
    }

    fn grace_seconds(&self) -> u32 {
        u32::try_from(self.drain_time.as_secs()).unwrap_or(u32::MAX).max(1)
    }
}

/// The signal mask before `run`, restored on drop.
struct MaskBefore(SigSet);

impl Drop for MaskBefore {
    fn drop(&mut self) {
        let _ = self.0.thread_set_mask();
    }
}

fn signals_failed(error: nix::errno::Errno) -> PreforkError {
    PreforkError::Signals { source: error.into() }
}

impl Report {
    fn note(&mut self, signal: Signal) {
        if is_stop(signal) {
            self.told_to_stop = true;
            // This process may be a worker itself, whose signals are read here.
            process::note_stop();
        }
    }
}

fn is_stop(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT)
}

/// Returns the next pending signal, if any.
fn next_signal(signals: &SignalFd) -> Result<Option<Signal>, PreforkError> {
    let signal = signals.read_signal().map_err(signals_failed)?;
    Ok(signal.and_then(|it| Signal::try_from(i32::try_from(it.ssi_signo).ok()?).ok()))
}
