//! Many processes that wait, give up, change their minds and are killed.

use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limitset::{
    AcquireError, Acquisition, Algorithm, LimitSet, LimitSetBuilder, RateLimit, Report, ResourceLimit,
    Segment,
};

use crate::support::{self, Random, TempName, Worker, proof};

pub(crate) const TESTS: [(&str, fn()); 1] =
    [("eight_processes_that_wait_give_up_and_are_killed_leave_nothing_behind", || storm())];

const WORKERS: usize = 8;
const PERMITS: u64 = 4;

// Words that the processes count in; then one for the rounds of each worker.
const GRANTED: usize = 0;
const TIMED_OUT: usize = 1;
const REFUSED: usize = 2;
const DROPPED: usize = 3;
const DONE: usize = 4;
const WORDS: u32 = 12;

fn builder() -> LimitSetBuilder {
    let options = Segment::options().slots(16).waiters(16).doorbell_slice(Duration::from_millis(10));
    let tokens = RateLimit::per_second("tokens", 4_000).burst(40).algorithm(Algorithm::Gcra);
    LimitSet::builder()
        .limit(tokens.report(Report::Optional))
        .limit(ResourceLimit::new("db", PERMITS))
        .segment(options.words("counts", WORDS))
}

/// How often each of them waits.
fn rounds() -> u64 {
    support::depth(200, 3_000)
}

/// Waits so often, each time in another way.
pub(crate) fn role(arguments: &[String]) {
    let limits = builder().attach(&arguments[0]).unwrap();
    let worker: usize = arguments[1].parse().unwrap();
    let mut random = Random::new(arguments[2].parse().unwrap());
    let counts = limits.segment().words("counts").unwrap();
    let count = |what: usize| counts[what].fetch_add(1, Relaxed);
    while count(DONE + worker) < rounds() {
        let request = [("db", 1 + random.below(PERMITS)), ("tokens", random.below(20))];
        let within = Duration::from_micros(random.below(4_000));
        let answer = match random.below(5) {
            0 => limits.acquire_timeout(request, within),
            1 => pollster::block_on(limits.acquire_async(request).timeout(within)),
            2 => pollster::block_on(limits.acquire_async(request)),
            3 => match poll_and_drop(&limits, request, random.below(4)) {
                Some(answer) => answer,
                None => {
                    count(DROPPED);
                    continue;
                }
            },
            _ => limits.acquire(request),
        };
        match answer {
            Ok(held) => {
                count(GRANTED);
                end(held, &mut random);
            }
            Err(AcquireError::TimedOut(_)) => drop(count(TIMED_OUT)),
            // Its time was up before it had the lock.
            Err(AcquireError::Unavailable(_)) if within < Duration::from_millis(4) => drop(count(REFUSED)),
            Err(other) => panic!("{other}"),
        }
    }
}

fn poll_and_drop(
    limits: &LimitSet,
    request: [(&str, u64); 2],
    polls: u64,
) -> Option<Result<Acquisition, AcquireError>> {
    let mut future = pin!(limits.acquire_async(request));
    for _ in 0..polls {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(answer);
        }
        std::thread::yield_now();
    }
    None
}

fn end(mut held: Acquisition, random: &mut Random) {
    match random.below(4) {
        0 => std::thread::sleep(Duration::from_micros(random.below(2_000))),
        1 => drop(held.update("db", 0).unwrap()),
        _ => {}
    }
    match random.below(3) {
        0 => held.release().unwrap(),
        1 => held.cancel().unwrap(),
        _ => drop(held),
    }
}

fn storm() {
    let name = TempName::new();
    let limits = builder().create(&name).unwrap();
    let counts: &[AtomicU64] = limits.segment().words("counts").unwrap();
    let start =
        |worker: usize, seed: u64| Worker::start("storm", &[&name.0, &worker.to_string(), &seed.to_string()]);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|it| start(it, it as u64)).collect();
    let is_done = |worker: usize| counts[DONE + worker].load(Relaxed) >= rounds();
    let mut random = Random::new(17);
    let (kills, mut killed) = (support::depth(60, 1_000), 0);
    while killed < kills && !(0..WORKERS).all(is_done) {
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
        let victim = usize::try_from(random.below(WORKERS as u64)).unwrap();
        if !is_done(victim) {
            workers[victim].kill();
            killed += 1;
            workers[victim] = start(victim, 100 + killed);
        }
        let stats = limits.stats().unwrap();
        assert!(stats.limit("db").unwrap().in_use <= PERMITS, "{stats:?}");
    }
    workers.iter_mut().for_each(Worker::wait_for_end);
    limits.reap().unwrap();
    let stats = limits.stats().unwrap();
    let count = |what: usize| counts[what].load(Relaxed);
    proof(
        "2,3,7",
        &format!("eight processes wait {} times each, with timeouts, drops and kills", rounds()),
        &format!(
            "{} granted, {} timed out, {} dropped, {killed} killed, {} waiting and {} permits held at the end",
            count(GRANTED),
            count(TIMED_OUT),
            count(DROPPED),
            stats.waiters,
            stats.limit("db").unwrap().in_use,
        ),
    );
    assert!(
        killed > 0 && count(GRANTED) > 0 && count(TIMED_OUT) > 0 && count(DROPPED) > 0,
        "it tested nothing"
    );
    assert_eq!((stats.waiters, stats.deposed), (0, 0));
    for limit in &stats.limits {
        assert_eq!((limit.waiting, limit.window.is_some() || limit.in_use == 0), (0, true), "{limit:?}");
    }
    // It still works, at full capacity, and every place in the queue is free.
    let all = limits.acquire([("db", PERMITS), ("tokens", 40)]).unwrap();
    let mut futures: Vec<_> = (0..16).map(|_| Box::pin(limits.acquire_async([("db", 1)]))).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(futures.iter_mut().all(|it| it.as_mut().poll(&mut context).is_pending()));
    assert_eq!(limits.stats().unwrap().waiters, 16);
    drop(futures);
    all.release().unwrap();
    assert_eq!(limits.stats().unwrap().waiters, 0);
}
