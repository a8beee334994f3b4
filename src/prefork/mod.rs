//! Run: workers that are forked, supervised, and given their limits.

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
use crate::pool::{AnyLimits, LimitPool, PoolDescription, PoolError, Sharing};
use crate::sys::process;

/// Tells a process started by [`StartBy::Exec`] that it is a worker, and which.
const WORKER_VARIABLE: &str = "LIMITSET_WORKER";
/// How long to sleep at most before looking again, in case the kernel's word was lost.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Which workers are started again when they end. While stopping, none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Those that failed, panicked or were killed.
    #[default]
    OnFailure,
    /// All.
    Always,
    /// None.
    Never,
}

/// How a worker comes into being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartBy {
    /// As a copy of this process, at this point.
    #[default]
    Fork,
    /// By running this program again, with the same arguments. It comes to [`Prefork::run`] once more, and there it is
    /// a worker: `run` does not return. The limits must have names. For programs with threads. Not for workers that
    /// supervise workers, nor for programs with a second `run` of this kind.
    Exec,
}

/// Why workers could not be supervised.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PreforkError {
    /// The limits cannot be shared by processes.
    #[error(transparent)]
    Limits(#[from] PoolError),
    /// A fork copies the calling thread only, and the locks of all of them as they are.
    #[error(
        "this process has {found} other threads, and a fork would copy none of them but every lock they hold: fork \
        before starting threads, or start workers by StartBy::Exec"
    )]
    Threads {
        /// How many.
        found: usize,
    },
    /// A worker could not be started.
    #[error("worker {index} could not be started: {source}")]
    Start {
        /// Its number.
        index: usize,
        /// Why.
        source: io::Error,
    },
    /// A worker could not be waited for.
    #[error("a worker could not be waited for: {source}")]
    Wait {
        /// Why.
        source: io::Error,
    },
    /// Signals could not be received.
    #[error("signals could not be received: {source}")]
    Signals {
        /// Why.
        source: io::Error,
    },
    /// A worker wants to start workers by [`StartBy::Exec`].
    #[error(
        "this process is a worker itself, and the program run again would come to its supervisor's run, not to this \
        one: fork them"
    )]
    Nested,
    /// The supervisor's order to this process makes no sense.
    #[error("LIMITSET_WORKER is {found:?}, which no supervisor of this version writes")]
    Order {
        /// What it is.
        found: String,
    },
}

/// What became of the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The last end of each worker, by number.
    pub last_exits: Vec<WorkerExit>,
    /// How many ends there were.
    pub exits: u64,
    /// How often a worker was started in place of one that had ended.
    pub restarts: u64,
    /// Numbers whose workers ended so often and so quickly that they were not started again.
    pub given_up: Vec<usize>,
    /// Whether this process was told to stop, by SIGTERM or SIGINT.
    pub told_to_stop: bool,
}

/// Forked workers that share limits.
///
/// SIGTERM and SIGINT let the workers finish, a second one kills them; SIGTTIN adds a worker, SIGTTOU lets the last
/// one go. A worker that dies is replaced, after a while if that happens quickly. If this process dies, its workers
/// stop. It refuses to fork while there are other threads; `docs/caveats.md` says what else to know.
///
/// ```standalone_crate
/// use limitset::{CallLimit, LimitSet, Prefork};
///
/// let limits = LimitSet::builder().limit(CallLimit::per_hour(3)).open_anonymous()?;
/// let workers = Prefork::new(2).limits(&limits);
/// let report = workers.run(|worker| {
///     for _ in 0..2 {
///         // Four are asked for in all, and three allowed.
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
    /// So many workers, without limits unless they are given some.
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

    /// The limits that the workers share: limits, a set, several sets, or a pool.
    pub fn limits(mut self, limits: impl Into<AnyLimits>) -> Self {
        self.limits = limits.into();
        self
    }

    /// Which workers are started again: [`Restart::OnFailure`] unless set.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// How workers come into being: [`StartBy::Fork`] unless set.
    pub fn start_by(mut self, start_by: StartBy) -> Self {
        self.start_by = start_by;
        self
    }

    /// How long to wait before a worker is replaced: `first`, twice as long after each further quick end, and never
    /// more than `longest`. 100 ms and 10 s unless set.
    pub fn backoff_times(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_wait, self.longest_wait) = (first, longest);
        self
    }

    /// A worker that ran this long did not end quickly: 10 s unless set.
    pub fn stable_after(mut self, time: Duration) -> Self {
        self.stable_after = time;
        self
    }

    /// A place whose workers end quickly so many times in a row is given up: 100 unless set.
    pub fn give_up_after(mut self, ends: u32) -> Self {
        self.give_up_after = ends.clamp(1, u32::MAX - 1);
        self
    }

    /// How long workers may take to finish before they are killed: 30 s unless set.
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.drain_time = time;
        self
    }

    /// Called for every worker that ends.
    pub fn on_exit(mut self, tell: impl Fn(&WorkerExit) + 'static) -> Self {
        self.on_exit = Box::new(tell);
        self
    }

    /// Starts the workers and looks after them until all have ended, or this process was told to stop.
    ///
    /// # Errors
    ///
    /// [`PreforkError`] if workers cannot be started or looked after; those that run are killed then.
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

    /// Starts the workers, to be looked after by the caller: [`step`](Supervisor::step) by step, with signals of its
    /// own.
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
                // A signal that came last of all was for this, too: left alone, it would end the program.
                while let Some(signal) = next_signal(signals)? {
                    report.note(signal);
                }
                break;
            }
            // SIGCHLD alone is not enough: where there are other threads, it may go to one of them and get lost.
            let ends = supervisor.ends().map(|end| PollFd::new(end, PollFlags::POLLIN));
            let mut sources: Vec<_> = ends.collect();
            let is_all = sources.len() == supervisor.running().len();
            sources.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            let due = if is_all { due } else { Some(due.map_or(LOOK_AGAIN, |due| due.min(LOOK_AGAIN))) };
            let timeout = due.map_or(PollTimeout::NONE, |due| {
                // Rounded up: a little late is better than a little early, over and over.
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

    /// Whether this process was started to be a worker.
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

/// The signals that were blocked before; so they are again afterwards.
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
            // It may be a worker itself, whose signals are read here.
            process::note_stop();
        }
    }
}

fn is_stop(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT)
}

/// The next signal that is waiting, if any.
fn next_signal(signals: &SignalFd) -> Result<Option<Signal>, PreforkError> {
    let signal = signals.read_signal().map_err(signals_failed)?;
    Ok(signal.and_then(|it| Signal::try_from(i32::try_from(it.ssi_signo).ok()?).ok()))
}
