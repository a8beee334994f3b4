//! The supervisor's side: which workers run, why they ended, and when they start again.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use super::worker::{Worker, WorkerOutcome};
use super::{Prefork, PreforkError, Restart, StartBy, WORKER_VARIABLE};
use crate::pool::LimitPool;
use crate::sys::process::{self, NotForked};

/// Exit code of a worker that panicked, as of any Rust program that does.
const PANICKED: i32 = 101;

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// It returned, and all was well.
    Finished,
    /// It returned an error, or ended its process with this code.
    Failed {
        /// The exit code.
        code: i32,
    },
    /// It panicked.
    Panicked,
    /// A signal ended it.
    Killed {
        /// Its number.
        signal: i32,
    },
}

/// The end of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerExit {
    /// Its number among the workers.
    pub index: usize,
    /// Its process.
    pub pid: i32,
    /// Why it ended.
    pub reason: ExitReason,
    /// How long it ran.
    pub ran_for: Duration,
    /// How long until another takes its place; none if none does.
    pub restarts_in: Option<Duration>,
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} (process {}) ", self.index, self.pid)?;
        match self.reason {
            ExitReason::Finished => f.write_str("finished")?,
            ExitReason::Failed { code } => write!(f, "failed with exit code {code}")?,
            ExitReason::Panicked => f.write_str("panicked")?,
            ExitReason::Killed { signal } => match Signal::try_from(signal) {
                Ok(name) => write!(f, "was ended by {name}")?,
                Err(_) => write!(f, "was ended by signal {signal}")?,
            },
        }
        write!(f, " after {:?}", self.ran_for)?;
        match self.restarts_in {
            Some(wait) => write!(f, "; restarted in {wait:?}"),
            None => Ok(()),
        }
    }
}

/// Workers of one program, supervised by hand; [`Prefork::run`] does it all.
pub struct Supervisor<W> {
    options: Prefork,
    limits: LimitPool,
    work: W,
    workers: BTreeMap<usize, Slot>,
    /// The signals that were blocked when it all began, as workers shall have them.
    signals: SigSet,
    is_stopping: bool,
    killed_at: Option<Instant>,
    stopped_at: Option<Instant>,
    restarts: u64,
    /// Whose workers they are: not those of a forked copy of this.
    owner: Pid,
}

/// One place for a worker.
struct Slot {
    state: State,
    /// Ends in a row that were too quick.
    quick_ends: u32,
    /// When it was let go.
    retired_at: Option<Instant>,
    is_given_up: bool,
}

enum State {
    Running {
        pid: Pid,
        since: Instant,
        /// Can be read when it has ended.
        end: Option<OwnedFd>,
    },
    Resting {
        until: Instant,
    },
    /// Ended for good.
    Over,
}

impl<W, T> Supervisor<W>
where
    W: Fn(&Worker) -> T,
    T: WorkerOutcome,
{
    pub(super) fn start(
        options: Prefork,
        limits: LimitPool,
        work: W,
        signals: SigSet,
    ) -> Result<Self, PreforkError> {
        let mut it = Self {
            options,
            limits,
            work,
            workers: BTreeMap::new(),
            signals,
            is_stopping: false,
            killed_at: None,
            stopped_at: None,
            restarts: 0,
            owner: getpid(),
        };
        for _ in 0..it.options.workers {
            it.add()?;
        }
        Ok(it)
    }

    /// Starts one more worker, with the lowest number that is free; gives the number.
    ///
    /// # Errors
    ///
    /// If no process can be started.
    pub fn add(&mut self) -> Result<usize, PreforkError> {
        let is_free =
            |index: &usize| self.workers.get(index).is_none_or(|slot| matches!(slot.state, State::Over));
        let index = (0..=self.workers.len()).find(is_free).unwrap_or(self.workers.len());
        let state = self.launch(index)?;
        self.workers.insert(index, Slot { state, quick_ends: 0, retired_at: None, is_given_up: false });
        Ok(index)
    }

    /// Lets the worker with the highest number stop, for good; gives its number. Those that are let go already do not
    /// count. One that takes longer than the drain time is killed.
    pub fn retire(&mut self) -> Option<usize> {
        let stays =
            |(_, slot): &(&usize, &Slot)| !matches!(slot.state, State::Over) && slot.retired_at.is_none();
        let index = *self.workers.iter().rev().find(stays)?.0;
        let slot = self.workers.get_mut(&index)?;
        match slot.state {
            State::Running { pid, .. } => {
                slot.retired_at = Some(Instant::now());
                ask_to_stop(pid);
            }
            _ => slot.state = State::Over,
        }
        Some(index)
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(super) fn options(&self) -> &Prefork {
        &self.options
    }

    /// Numbers and processes of the workers that run.
    pub fn running(&self) -> Vec<(usize, i32)> {
        let running = self.workers.iter().filter_map(|(index, slot)| match slot.state {
            State::Running { pid, .. } => Some((*index, pid.as_raw())),
            _ => None,
        });
        running.collect()
    }

    /// What can be read when workers have ended; fewer than there are if the kernel has no such thing.
    pub(super) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.workers.values().filter_map(|slot| match &slot.state {
            State::Running { end, .. } => end.as_ref().map(AsFd::as_fd),
            _ => None,
        })
    }

    /// How often a worker was started in place of one that had ended.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Numbers whose workers ended so often and so quickly that they are not started again.
    pub fn given_up(&self) -> Vec<usize> {
        self.workers.iter().filter(|(_, slot)| slot.is_given_up).map(|(index, _)| *index).collect()
    }

    /// Whether nobody runs and nobody will.
    pub fn is_over(&self) -> bool {
        self.workers.values().all(|slot| matches!(slot.state, State::Over))
    }

    /// Lets all workers finish what is under way. Those that take longer than the drain time are killed.
    pub fn stop(&mut self) {
        if self.stopped_at.is_none() {
            self.stopped_at = Some(Instant::now());
        }
        self.is_stopping = true;
        for slot in self.workers.values_mut() {
            match slot.state {
                State::Running { pid, .. } => ask_to_stop(pid),
                _ => slot.state = State::Over,
            }
        }
    }

    /// Ends all workers at once.
    pub fn kill(&mut self) {
        self.stop();
        self.killed_at.get_or_insert_with(Instant::now);
        self.running().into_iter().for_each(|(_, pid)| tell(Pid::from_raw(pid), Signal::SIGKILL));
    }

    /// Looks who has ended, starts those whose time has come, kills those that drain too long. Gives the ends, and
    /// how long nothing will be due.
    ///
    /// # Errors
    ///
    /// If a process cannot be waited for, or not be started as often as it takes to give up.
    pub fn step(&mut self) -> Result<(Vec<WorkerExit>, Option<Duration>), PreforkError> {
        let now = Instant::now();
        let mut exits = Vec::new();
        let mut due: Option<Duration> = None;
        let mut sooner = |wait: Duration| due = Some(due.map_or(wait, |due| due.min(wait)));
        for (index, pid) in self.running() {
            if let Some(reason) = ended(Pid::from_raw(pid))? {
                exits.push(self.bury(index, pid, reason, now));
            }
        }
        if let Some(stopped_at) = self.stopped_at
            && self.killed_at.is_none()
        {
            let left = self.options.drain_time.saturating_sub(now.duration_since(stopped_at));
            if left.is_zero() {
                self.kill();
            } else {
                sooner(left);
            }
        }
        for slot in self.workers.values() {
            if let (State::Running { pid, .. }, Some(retired_at)) = (&slot.state, slot.retired_at) {
                let left = self.options.drain_time.saturating_sub(now.duration_since(retired_at));
                if left.is_zero() { tell(*pid, Signal::SIGKILL) } else { sooner(left) }
            }
        }
        let resting = self.workers.iter().filter_map(|(index, slot)| match slot.state {
            State::Resting { until } => Some((*index, until)),
            _ => None,
        });
        for (index, until) in resting.collect::<Vec<_>>() {
            if until > now {
                sooner(until - now);
                continue;
            }
            let launched = self.launch(index);
            let Some(slot) = self.workers.get_mut(&index) else { continue };
            match launched {
                Ok(state) => {
                    slot.state = state;
                    self.restarts += 1;
                }
                // A machine that is short of processes for a while is no reason to end those that run.
                Err(PreforkError::Start { .. })
                    if slot.quick_ends.saturating_add(1) < self.options.give_up_after =>
                {
                    slot.quick_ends += 1;
                    let wait = self.options.backoff(slot.quick_ends);
                    slot.state = State::Resting { until: after(now, wait) };
                    sooner(wait);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((exits, due))
    }

    /// Decides what becomes of the place of a worker that ended.
    fn bury(&mut self, index: usize, pid: i32, reason: ExitReason, now: Instant) -> WorkerExit {
        let mut exit = WorkerExit { index, pid, reason, ran_for: Duration::ZERO, restarts_in: None };
        let Some(slot) = self.workers.get_mut(&index) else { return exit };
        if let State::Running { since, .. } = slot.state {
            exit.ran_for = now.duration_since(since);
        }
        let wants_another = match self.options.restart {
            Restart::Never => false,
            Restart::OnFailure => reason != ExitReason::Finished,
            Restart::Always => true,
        };
        slot.state = State::Over;
        let was_quick = exit.ran_for < self.options.stable_after;
        slot.quick_ends = if was_quick { slot.quick_ends.saturating_add(1) } else { 0 };
        if wants_another && slot.retired_at.is_none() && !self.is_stopping {
            slot.is_given_up = slot.quick_ends >= self.options.give_up_after;
            if !slot.is_given_up {
                let wait = self.options.backoff(slot.quick_ends);
                slot.state = State::Resting { until: after(now, wait) };
                exit.restarts_in = Some(wait);
            }
        }
        exit
    }

    fn launch(&self, index: usize) -> Result<State, PreforkError> {
        let since = Instant::now();
        let pid = match self.options.start_by {
            StartBy::Fork => self.fork(index)?,
            StartBy::Exec => self.execute(index)?,
        };
        Ok(State::Running { pid, since, end: process::end_of(pid) })
    }

    fn fork(&self, index: usize) -> Result<Pid, PreforkError> {
        let supervisor = getpid();
        let grace = self.options.grace_seconds();
        let child = || {
            // Signals wait until it knows what they mean.
            match process::obey(supervisor, grace) {
                Ok(true) => drop(self.signals.thread_set_mask()),
                // It was gone before we could ask to be told.
                Ok(false) => return 0,
                Err(error) => {
                    eprintln!("worker {index} cannot be supervised: {error}");
                    return 1;
                }
            }
            work(&self.work, Worker { index, limits: self.limits.for_worker(index) })
        };
        process::fork_if_single_threaded(child).map_err(|error| match error {
            NotForked::Threads(found) => PreforkError::Threads { found },
            NotForked::Failed(source) => PreforkError::Start { index, source },
        })
    }

    fn execute(&self, index: usize) -> Result<Pid, PreforkError> {
        let start = || {
            let order = format!("{}:{index}:{}", getpid(), self.options.grace_seconds());
            let description = self.limits.describe().map_err(io::Error::other)?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args(std::env::args_os().skip(1)).env(WORKER_VARIABLE, format!("{order}:{description}"));
            process::spawn(command, self.signals)
        };
        start().map_err(|source| PreforkError::Start { index, source })
    }
}

impl<W> Drop for Supervisor<W> {
    fn drop(&mut self) {
        if self.owner != getpid() {
            return;
        }
        // Nobody would look after them any more, nor bury them.
        for slot in self.workers.values() {
            if let State::Running { pid, .. } = slot.state {
                tell(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
            }
        }
    }
}

/// In the worker's process: does the work; gives the exit code.
pub(super) fn work<T: WorkerOutcome>(work: &impl Fn(&Worker) -> T, worker: Worker) -> i32 {
    catch_unwind(AssertUnwindSafe(|| work(&worker).exit_code())).unwrap_or(PANICKED)
}

/// Why a process ended; none if it runs.
fn ended(pid: Pid) -> Result<Option<ExitReason>, PreforkError> {
    Ok(match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, 0)) => Some(ExitReason::Finished),
        Ok(WaitStatus::Exited(_, PANICKED)) => Some(ExitReason::Panicked),
        Ok(WaitStatus::Exited(_, code)) => Some(ExitReason::Failed { code }),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitReason::Killed { signal: signal as i32 }),
        Ok(_) => None,
        // The program ignores SIGCHLD, or waits for any child: nobody knows why it ended.
        Err(nix::errno::Errno::ECHILD) => Some(ExitReason::Failed { code: -1 }),
        Err(nix::errno::Errno::EINTR) => None,
        Err(error) => return Err(PreforkError::Wait { source: error.into() }),
    })
}

/// An instant `wait` later, or so far away that it makes no difference.
fn after(now: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(1 << 32);
    now.checked_add(wait).unwrap_or(now + FAR)
}

fn ask_to_stop(pid: Pid) {
    tell(pid, Signal::SIGTERM);
    // One that is stopped cannot hear.
    tell(pid, Signal::SIGCONT);
}

/// Sends a signal to a worker; one that has ended meanwhile is not there to get it, and not yet buried.
fn tell(pid: Pid, signal: Signal) {
    let _ = kill(pid, signal);
}
