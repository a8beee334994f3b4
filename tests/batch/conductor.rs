//! The conductor of a batch: pushes, collects, moves the clock when all workers wait, kills and replaces workers.

use std::time::Duration;

use limitset::{Finished, LimitSet, QueueError, Reason, Stats, WorkQueue};

use crate::cases::Case;
use crate::provider::{MOST_WORKERS, Provider};
use crate::support::{Random, TempName, Worker};
use crate::{spin, stats, work};

/// What became of an item, as the queue tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) id: u64,
    pub(crate) attempts: u64,
    pub(crate) rate_limits: u64,
    /// None: it is done.
    pub(crate) reason: Option<Reason>,
    /// Of which execution it is the result.
    pub(crate) execution: Option<u64>,
}

/// What became of a batch.
pub(crate) struct Outcome {
    pub(crate) ends: Vec<End>,
    pub(crate) kills: u64,
    /// Kills of workers that hung.
    pub(crate) hung: u64,
    pub(crate) admissions: Vec<u64>,
    pub(crate) stats: Stats,
}

struct Conductor<'a> {
    case: &'a Case,
    name: &'a TempName,
    set: &'a LimitSet,
    queue: WorkQueue,
    provider: Provider<'a>,
    workers: Vec<(u64, Worker)>,
    /// How many workers there have been.
    numbers: u64,
    now: u64,
    pushed: usize,
    random: Random,
    kills_left: u64,
    next_kill: u64,
    outcome: Outcome,
}

/// Runs a batch to its end, with so many workers killed at random. Then `judge` compares.
pub(crate) fn run(case: &Case, kills: u64, seed: u64, judge: fn(&Case, &Provider<'_>, &Outcome)) -> Outcome {
    let name = TempName::new();
    let set = case.create(&name);
    let mut conductor = Conductor {
        case,
        name: &name,
        set: &set,
        queue: set.queue().unwrap(),
        provider: Provider::of(&set, case),
        workers: Vec::new(),
        numbers: 0,
        now: 0,
        pushed: 0,
        random: Random::new(seed),
        kills_left: kills,
        next_kill: 0,
        outcome: Outcome { ends: vec![], kills: 0, hung: 0, admissions: vec![], stats: stats(&set) },
    };
    conductor.conduct();
    let Conductor { provider, mut outcome, workers, .. } = conductor;
    for (_, mut worker) in workers {
        worker.wait_for_end();
    }
    provider.check_failures();
    set.reap().unwrap();
    outcome.admissions = provider.admissions();
    outcome.stats = stats(&set);
    judge(case, &provider, &outcome);
    outcome
}

impl Conductor<'_> {
    fn conduct(&mut self) {
        for _ in 0..self.case.workers {
            self.start();
        }
        self.plan_kill();
        loop {
            self.provider.check_failures();
            self.push();
            self.collect();
            let stats = stats(self.set);
            if self.pushed == self.case.items && stats.queue.unwrap().unfinished() == 0 {
                break;
            }
            let leased = stats.queue.unwrap().leased;
            assert!(
                stats.waiters <= leased,
                "{} wait, each with an item, but {leased} are leased",
                stats.waiters
            );
            self.kill_the_hung();
            if self.kills_left > 0 && self.provider.steps() >= self.next_kill {
                self.kill_one();
            } else if self.is_quiet(&stats) {
                // Now all sleep: some die so. Every run gets here, because the first pause does not end before.
                if self.kills_left > 0 && (self.outcome.kills == 0 || self.random.below(4) == 0) {
                    self.kill_one();
                } else {
                    self.move_clock(&stats);
                }
            } else {
                std::thread::yield_now();
            }
        }
        self.collect();
    }

    fn start(&mut self) {
        self.numbers += 1;
        assert!(self.numbers < MOST_WORKERS as u64, "more workers than words for them");
        let (case, number) = (self.case.index().to_string(), self.numbers.to_string());
        self.workers.push((self.numbers, Worker::start("work", &[&self.name.0, &case, &number])));
    }

    /// As many as there is room for; then nothing more.
    fn push(&mut self) {
        while self.pushed < self.case.items {
            let id = self.pushed as u64;
            match self.queue.try_push(id, &work::payload(id)) {
                Ok(()) => self.pushed += 1,
                Err(QueueError::Full { .. }) => return,
                Err(other) => panic!("{other}"),
            }
            if self.pushed == self.case.items {
                self.queue.close().unwrap();
            }
        }
    }

    fn collect(&mut self) {
        while let Some(mut done) = here(self.queue.try_collect()) {
            let execution = u64::from_ne_bytes(done.result().try_into().unwrap());
            self.keep(&done, Some(execution));
            done.forget().unwrap();
        }
        while let Some(mut dead) = here(self.queue.collect_dead()) {
            self.keep(&dead, None);
            dead.forget().unwrap();
        }
    }

    fn keep(&mut self, it: &Finished, execution: Option<u64>) {
        assert_eq!(it.payload(), work::payload(it.id()));
        let (id, attempts, rate_limits, reason) = (it.id(), it.attempts(), it.rate_limits(), it.reason());
        self.outcome.ends.push(End { id, attempts, rate_limits, reason, execution });
    }

    /// Nobody does anything before the clock moves: every item that somebody has is with one who waits in `acquire`,
    /// and nobody who is free can get another one.
    fn is_quiet(&self, stats: &Stats) -> bool {
        let queue = stats.queue.unwrap();
        let parked = if stats.cooldown.remaining.is_some() { 0 } else { queue.parked };
        let all_busy = queue.leased == self.workers.len() as u64;
        queue.leased == stats.waiters && (all_busy || queue.ready + parked == 0) && queue.unfinished() > 0
    }

    /// Moves the clock to the next instant of an admission, and not beyond it.
    fn move_clock(&mut self, stats: &Stats) {
        let by = stats.cooldown.next_admission.unwrap_or(self.case.between_calls());
        self.now += u64::try_from(by.as_nanos()).unwrap();
        self.provider.set_now(self.now);
        self.set.advance(by).unwrap();
    }

    fn kill_the_hung(&mut self) {
        let hung: Vec<usize> =
            (0..self.workers.len()).filter(|at| self.provider.hangs(self.workers[*at].0)).collect();
        for at in hung.into_iter().rev() {
            self.outcome.hung += 1;
            self.replace(at);
        }
    }

    fn kill_one(&mut self) {
        let victim = self.random.below(self.workers.len() as u64);
        spin(self.random.below(60));
        self.outcome.kills += 1;
        self.kills_left -= 1;
        self.replace(usize::try_from(victim).unwrap());
        self.plan_kill();
    }

    fn replace(&mut self, at: usize) {
        let (number, mut worker) = self.workers.swap_remove(at);
        self.provider.doom(number);
        worker.kill();
        self.provider.bury(number);
        // Others find the dead when they miss something; or before that.
        if self.random.below(2) == 0 {
            self.set.reap().unwrap();
        }
        self.start();
    }

    /// The next kill is due after a few more steps of whomever.
    fn plan_kill(&mut self) {
        let far = 2 + 6 * self.case.items as u64 / self.case.workers as u64;
        self.next_kill = self.provider.steps() + self.random.below(far);
    }
}

/// What there is now to collect, if anything.
fn here(collected: Result<Option<Finished>, QueueError>) -> Option<Finished> {
    match collected {
        Ok(found) => found,
        Err(QueueError::Empty) => None,
        Err(other) => panic!("{other}"),
    }
}

impl Outcome {
    pub(crate) fn dead_letters(&self) -> Vec<End> {
        self.ends.iter().filter(|end| end.reason.is_some()).copied().collect()
    }

    pub(crate) fn executions(&self, provider: &Provider<'_>) -> u64 {
        self.ends.iter().map(|end| provider.seen(end.id).executions).sum()
    }

    /// How long after each admission the next one came.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.admissions.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0])).collect()
    }
}
