//! The workers: forked, started together, stopped together. They write their measurements to words of the
//! scratch segment.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use limitset::{
    AcquireError, ExitReason, Limit, LimitSet, Prefork, PreforkError, Restart, Segment, Supervisor, Worker,
    WorkerExit, WorkerOutcome,
};

use super::histogram::{self, Histogram};
use crate::exit::Exit;
use crate::failure::Failure;

/// The first words: the number of workers that are ready, and the command to all workers.
const READY: usize = 0;
const ORDER: usize = 1;
const HEAD: usize = 2;
/// The words of a worker: granted, denied, and its histogram.
const OF_WORKER: usize = 2 + histogram::WORDS;

const GO: u64 = 1;
const STOP: u64 = 2;

/// The polling interval.
const LOOK: Duration = Duration::from_millis(50);
const START: Duration = Duration::from_micros(200);

/// The measurements of all workers.
pub(super) struct Measured {
    pub(super) granted: u64,
    pub(super) denied: u64,
    pub(super) took: Duration,
    pub(super) latency: Histogram,
    /// The number of operations of each worker.
    pub(super) each: Vec<u64>,
}

/// Runs a number of workers for a time, and reports the progress from 0 to 1.
pub(super) fn measure(
    limits: &[Limit],
    workers: u32,
    length: Duration,
    tell: impl Fn(f64),
) -> Result<Measured, Failure> {
    let count = workers as usize;
    let words = u32::try_from(HEAD + count * OF_WORKER).unwrap_or(u32::MAX);
    let options = Segment::options().slots(workers + 1).waiters(1).words("measured", words);
    let set = LimitSet::builder().limits(limits.iter().cloned()).segment(options).open_anonymous()?;
    let shared = set.segment().words("measured").map_err(Failure::from)?;
    let of_worker = |index: usize| shared.get(HEAD + index * OF_WORKER..).and_then(|it| it.get(..OF_WORKER));

    let crew = Prefork::new(count).restart(Restart::Never).drain_time(Duration::from_secs(1));
    let mut crew = crew.start(|worker| work(&set, worker)).map_err(failed)?;
    // The workers are killed when the supervisor is dropped, also on errors.
    let result = (|| {
        until(&mut crew, || word(shared, READY).load(Acquire) >= u64::from(workers), START)?;
        let start = Instant::now();
        word(shared, ORDER).store(GO, Release);
        while start.elapsed() < length {
            tell(start.elapsed().as_secs_f64() / length.as_secs_f64());
            std::thread::sleep(LOOK.min(length.saturating_sub(start.elapsed())));
            if let Some(exit) = crew.step().map_err(failed)?.0.into_iter().next() {
                return Err(ended(&exit));
            }
        }
        word(shared, ORDER).store(STOP, Release);
        Ok(start.elapsed())
    })();
    let took = result.inspect_err(|_| crew.kill())?;
    while !crew.is_over() {
        for exit in crew.step().map_err(failed)?.0 {
            if exit.reason != ExitReason::Finished {
                return Err(ended(&exit));
            }
        }
        std::thread::sleep(START);
    }
    let parts: Vec<_> = (0..count).filter_map(of_worker).collect();
    let sum = |place: usize| parts.iter().filter_map(|part| part.get(place)).map(|it| it.load(Acquire)).sum();
    Ok(Measured {
        granted: sum(0),
        denied: sum(1),
        took,
        latency: Histogram::sum(parts.iter().filter_map(|part| part.get(2..))),
        each: parts.iter().map(|part| part.iter().take(2).map(|it| it.load(Acquire)).sum()).collect(),
    })
}

/// Waits for a condition that the workers bring about. It is an error if a worker ends.
fn until<W, T>(crew: &mut Supervisor<W>, is_so: impl Fn() -> bool, pause: Duration) -> Result<(), Failure>
where
    W: Fn(&Worker) -> T,
    T: WorkerOutcome,
{
    while !is_so() {
        if let Some(exit) = crew.step().map_err(failed)?.0.into_iter().next() {
            return Err(ended(&exit));
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

/// The work of a worker: acquires one of each limit and releases it, as often as it can.
fn work(set: &LimitSet, worker: &Worker) -> Result<(), AcquireError> {
    let Ok(shared) = set.segment().words("measured") else { return Ok(()) };
    let Some(own) = shared.get(HEAD + worker.index() * OF_WORKER..).and_then(|it| it.get(..OF_WORKER)) else {
        return Ok(());
    };
    let [granted, denied, times @ ..] = own else { return Ok(()) };
    let one = |limit: &Limit| (limit.name().to_owned(), 1);
    let request = set
        .limits()
        .iter()
        .map(one)
        .fold(set.request(), |request, (key, amount)| request.amount(key, amount));
    let request = request.build()?;
    // Enrols before the measurement begins.
    let _ = set.check(&request);
    word(shared, READY).fetch_add(1, Release);
    while word(shared, ORDER).load(Acquire) < GO && !worker.stopping() {
        std::thread::sleep(START);
    }
    let mut before = Instant::now();
    let mut count = 0u32;
    while word(shared, ORDER).load(Relaxed) == GO {
        count = count.wrapping_add(1);
        // This costs a system call, and matters only if the parent is dead and cannot stop the worker.
        if count.is_multiple_of(4_096) && worker.stopping() {
            break;
        }
        let counter = match set.try_acquire(&request) {
            Ok(held) => {
                drop(held);
                granted
            }
            Err(AcquireError::Denied(_) | AcquireError::Queued { .. } | AcquireError::CoolingDown { .. }) => {
                denied
            }
            Err(error) => return Err(error),
        };
        counter.store(counter.load(Relaxed) + 1, Relaxed);
        let after = Instant::now();
        histogram::count(times, u64::try_from((after - before).as_nanos()).unwrap_or(u64::MAX));
        before = after;
    }
    Ok(())
}

fn word(words: &[AtomicU64], place: usize) -> &AtomicU64 {
    static NONE: AtomicU64 = AtomicU64::new(STOP);
    words.get(place).unwrap_or(&NONE)
}

fn failed(error: PreforkError) -> Failure {
    Failure::new(Exit::Failed, "failed", error)
}

fn ended(exit: &WorkerExit) -> Failure {
    Failure::new(Exit::Failed, "worker_ended", exit)
}
