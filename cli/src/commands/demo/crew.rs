//! The workers of the tour. Each acquires a connection, works a little, releases it, and counts that in
//! shared words.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::{AcquireError, LimitSet, Prefork, Supervisor, Worker, WorkerExit};

use super::failed;
use crate::failure::Failure;

pub(super) const WORKERS: usize = 4;
/// Words per worker: the number of grants, and whether it has to keep its connection.
const OF_WORKER: usize = 2;
pub(super) const WORDS: u32 = 8;

/// The time that a worker works and rests: long enough to be seen.
const WORK: Duration = Duration::from_millis(180);
const REST: Duration = Duration::from_millis(20);
/// The interval at which a waiting worker checks whether it has to stop.
const PATIENCE: Duration = Duration::from_millis(500);

type Work<'a> = Box<dyn Fn(&Worker) -> Result<(), AcquireError> + 'a>;

pub(super) struct Crew<'a> {
    set: &'a LimitSet,
    supervisor: Supervisor<Work<'a>>,
}

/// The state of the workers at one instant.
pub(super) struct Seen {
    pub(super) held: u64,
    pub(super) capacity: u64,
    pub(super) waiting: u64,
    pub(super) workers: Vec<SeenWorker>,
}

pub(super) struct SeenWorker {
    /// None while the worker is not running.
    pub(super) pid: Option<i32>,
    pub(super) holds: u64,
    pub(super) granted: u64,
}

impl<'a> Crew<'a> {
    pub(super) fn start(set: &'a LimitSet) -> Result<Self, Failure> {
        let work: Work<'a> = Box::new(move |worker| work(set, worker));
        let crew = Prefork::new(WORKERS).drain_time(Duration::from_secs(5));
        Ok(Self { set, supervisor: crew.start(work).map_err(failed)? })
    }

    /// Supervises the workers, and returns those that have ended.
    pub(super) fn look(&mut self) -> Result<Vec<WorkerExit>, Failure> {
        Ok(self.supervisor.step().map_err(failed)?.0)
    }

    pub(super) fn see(&self) -> Result<Seen, Failure> {
        let stats = self.set.stats()?;
        let running = self.supervisor.running();
        let workers = (0..WORKERS).map(|index| {
            let pid = running.iter().find(|(it, _)| *it == index).map(|(_, pid)| *pid);
            SeenWorker { pid, holds: pid.map_or(0, |pid| held_by(&stats, pid)), granted: self.granted(index) }
        });
        let connections = stats.limit("connections");
        Ok(Seen {
            held: connections.map_or(0, |it| it.in_use),
            capacity: connections.map_or(0, |it| it.capacity),
            waiting: stats.waiters,
            workers: workers.collect(),
        })
    }

    fn granted(&self, index: usize) -> u64 {
        word(self.set, index, 0).map_or(0, |word| word.load(Relaxed))
    }

    pub(super) fn counts(&self) -> Vec<u64> {
        (0..WORKERS).map(|index| self.granted(index)).collect()
    }

    pub(super) fn pid(&self, index: usize) -> i32 {
        let running = self.supervisor.running();
        running.iter().find(|(it, _)| *it == index).map_or(0, |(_, pid)| *pid)
    }

    /// Returns the number of connections that a worker holds, by the set's count.
    pub(super) fn holds(&self, index: usize) -> u64 {
        self.set.stats().map_or(0, |stats| held_by(&stats, self.pid(index)))
    }

    pub(super) fn reaped(&self) -> Result<u64, Failure> {
        Ok(self.set.stats()?.reaped_permits)
    }

    /// Makes a worker keep the next connection that it acquires.
    pub(super) fn hold_on(&self, index: usize) {
        self.order(index, 1);
    }

    pub(super) fn go_on(&self, index: usize) {
        self.order(index, 0);
    }

    fn order(&self, index: usize, order: u64) {
        if let Some(word) = word(self.set, index, 1) {
            word.store(order, Relaxed);
        }
    }

    /// Lets all workers finish.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.supervisor.stop();
        while !self.supervisor.is_over() {
            self.look()?;
            std::thread::sleep(REST);
        }
        Ok(())
    }
}

fn held_by(stats: &limitset::Stats, pid: i32) -> u64 {
    let is_it = |info: &limitset::ParticipantInfo| i64::try_from(info.pid) == Ok(pid.into());
    let its = stats.participants.iter().filter(|it| it.info.as_ref().is_some_and(is_it));
    its.flat_map(|it| &it.holds).map(|(_, amount)| amount).sum()
}

fn word(set: &LimitSet, worker: usize, place: usize) -> Option<&AtomicU64> {
    set.segment().words("demo").ok()?.get(worker * OF_WORKER + place)
}

fn work(set: &LimitSet, worker: &Worker) -> Result<(), AcquireError> {
    let of_mine = |place| word(set, worker.index(), place);
    while !worker.stopping() {
        let held = match set.acquire_timeout((), PATIENCE) {
            Ok(held) => held,
            Err(AcquireError::TimedOut(_)) => continue,
            Err(error) => return Err(error),
        };
        if let Some(granted) = of_mine(0) {
            granted.fetch_add(1, Relaxed);
        }
        worker.wait_for_stop(WORK);
        while of_mine(1).is_some_and(|order| order.load(Relaxed) == 1) && !worker.stopping() {
            worker.wait_for_stop(WORK);
        }
        drop(held);
        worker.wait_for_stop(REST);
    }
    Ok(())
}
