//! Death at random: workers are killed and replaced while others go on.
//!
//! Slots are few, so each is used by hundreds of processes one after the other. At the end everything is
//! consistent, nothing is held by the dead, and the survivors have made progress all along.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use limitset::{Segment, SegmentOptions};
use nix::sys::signal::Signal;
use support::{Random, TempName, Worker};

const WORKERS: usize = 4;
const PERMITS: u64 = 5;

// Words that the workers count in.
const WATCHER_ROUNDS: usize = 0;
const TORN: usize = 1;
const WORST_WAIT_MICROS: usize = 2;
const WORKER_ROUNDS: usize = 3;

fn main() {
    support::main(
        &[("worker", worker), ("watcher", watcher)],
        vec![
            ("survivors_go_on_through_2000_kills", || kill_loop(support::depth(2_000, 20_000), 0)),
            ("survivors_go_on_through_kills_stops_and_continues", || {
                kill_loop(support::depth(1_000, 10_000), support::depth(1_000, 10_000));
            }),
        ],
    );
}

fn options() -> SegmentOptions {
    Segment::options().slots(8).waiters(2).mutex("pair", 2).semaphore("db", PERMITS).words("counts", 4)
}

/// One round of work: two words that must stay equal, and some permits.
fn work(segment: &Segment, random: &mut Random) {
    let counts = segment.words("counts").unwrap();
    let pair = segment.mutex("pair").unwrap();
    let mut held = pair.lock().unwrap().guard();
    if held.get(0).unwrap() != held.get(1).unwrap() {
        counts[TORN].fetch_add(1, Relaxed);
    }
    held.update(|words| {
        words.set(0, words.get(0)? + 1)?;
        // An update takes so few instructions that kills would hardly ever hit one.
        if random.below(8) == 0 {
            std::thread::yield_now();
        }
        words.set(1, words.get(1)? + 1)
    })
    .unwrap();
    held.unlock().unwrap();
    let db = segment.semaphore("db").unwrap();
    let wanted = 1 + random.below(3);
    if let Ok(permit) = db.acquire_timeout(wanted, Duration::from_millis(20)) {
        if random.below(4) == 0 {
            std::thread::yield_now();
        }
        drop(permit);
    }
}

fn worker(arguments: &[String]) {
    let mut random = Random::new(arguments[1].parse().unwrap());
    loop {
        let segment = Segment::attach(&arguments[0]).unwrap();
        for _ in 0..1 + random.below(2_000) {
            work(&segment, &mut random);
            segment.words("counts").unwrap()[WORKER_ROUNDS].fetch_add(1, Relaxed);
        }
    }
}

/// Works like the others, is never killed, and measures how long it was held up.
fn watcher(arguments: &[String]) {
    let mut random = Random::new(99);
    let segment = Segment::attach(&arguments[0]).unwrap();
    let counts = segment.words("counts").unwrap();
    loop {
        let start = Instant::now();
        work(&segment, &mut random);
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap();
        counts[WORST_WAIT_MICROS].fetch_max(micros, Relaxed);
        counts[WATCHER_ROUNDS].fetch_add(1, Relaxed);
    }
}

fn kill_loop(kills: u64, stops: u64) {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let counts = segment.words("counts").unwrap();
    let start = |seed: u64| Worker::start("worker", &[&name.0, &seed.to_string()]);
    let mut random = Random::new(kills + stops);
    let mut watcher = Worker::start("watcher", &[&name.0]);
    let mut workers: Vec<Worker> = (0..WORKERS as u64).map(start).collect();
    wait_for_progress(counts, 100);

    let (mut killed, mut stopped) = (0, 0);
    while killed < kills || stopped < stops {
        let victim = usize::try_from(random.below(WORKERS as u64)).unwrap();
        std::thread::sleep(Duration::from_micros(random.below(1_500)));
        if killed < kills && (stopped >= stops || random.below(2) == 0) {
            workers[victim].kill();
            killed += 1;
            workers[victim] = start(1_000 + killed);
        } else {
            workers[victim].signal(Signal::SIGSTOP);
            std::thread::sleep(Duration::from_micros(random.below(3_000)));
            // Some die while they are stopped.
            if killed < kills && random.below(4) == 0 {
                workers[victim].kill();
                killed += 1;
                workers[victim] = start(2_000 + killed);
            } else {
                workers[victim].signal(Signal::SIGCONT);
            }
            stopped += 1;
        }
        // At any instant the total is the sum of what is held, and within the permits.
        let db = segment.semaphore("db").unwrap().state().unwrap();
        let held: u64 = db.holders.iter().map(|(_, held)| held).sum();
        assert_eq!(db.taken, held);
        assert!(db.taken <= PERMITS, "{db:?}");
    }
    wait_for_progress(counts, 100);
    workers.iter_mut().for_each(Worker::kill);
    watcher.kill();

    let (pair, db) = (segment.mutex("pair").unwrap(), segment.semaphore("db").unwrap());
    drop(pair.lock().unwrap().guard());
    let returned = db.reap().unwrap();
    let (lock, permits) = (pair.statistics().unwrap(), db.statistics().unwrap());
    let result = format!(
        "{} locks stolen, {} updates undone, {} torn, {returned} permits returned at the end, {} rounds by the \
         watcher, {} by workers, worst wait {:.1} ms, a slot used up to {} times",
        lock.steals + permits.steals,
        lock.rollbacks + permits.rollbacks,
        counts[TORN].load(Relaxed),
        counts[WATCHER_ROUNDS].load(Relaxed),
        counts[WORKER_ROUNDS].load(Relaxed),
        Duration::from_micros(counts[WORST_WAIT_MICROS].load(Relaxed)).as_secs_f64() * 1e3,
        reuse(&name),
    );
    support::proof("1,2,3", &format!("{killed} kills, {stopped} stops at random, four at work"), &result);
    assert_eq!(counts[TORN].load(Relaxed), 0);
    assert_eq!(lock.deposed + permits.deposed, 0, "nobody was thought dead who lived");
    assert!(lock.steals + permits.steals > 0, "no kill hit a lock: the test did not test");
    let words = pair.snapshot().unwrap();
    assert_eq!(words[0], words[1]);
    assert_eq!(db.state().unwrap().holders, []);
    assert_eq!(db.available().unwrap(), PERMITS);
}

/// Waits until the watcher has done that many more rounds; the watchdog ends a wait in vain.
fn wait_for_progress(counts: &[AtomicU64], rounds: u64) {
    let goal = counts[WATCHER_ROUNDS].load(Relaxed) + rounds;
    while counts[WATCHER_ROUNDS].load(Relaxed) < goal {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The highest generation any slot has reached.
fn reuse(name: &TempName) -> u64 {
    let attached: Vec<Segment> = (0..7).map(|_| Segment::attach(name).unwrap()).collect();
    attached.iter().map(|segment| segment.participant().unwrap().generation).max().unwrap()
}
