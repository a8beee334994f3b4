//! 2, 4 and 8 processes of two threads hammer one set, for each algorithm.
//!
//! The bounds are exact, not estimates: with a clock that the test moves it is known how much every limit must have
//! given at any instant, to the unit. What was given is read from the set, at one instant, and so covers those who
//! were killed before they could tell.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

#[path = "hammer/changes.rs"]
mod changes;
#[path = "hammer/permits.rs"]
mod permits;
#[path = "hammer/realtime.rs"]
mod realtime;
#[path = "hammer/reference.rs"]
mod reference;
#[path = "hammer/refunds.rs"]
mod refunds;
#[path = "hammer/steps.rs"]
mod steps;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use limitset::{
    AcquireError, Algorithm, Clock, Denial, LimitSet, ManageError, ResourceLimit, Segment, Stats, Unavailable,
};
use reference::Numbers;
use support::{Random, TempName, Worker, listen, say};

/// Threads of each process.
const THREADS: u64 = 2;
/// What every request of [`hammer`] asks for.
const UNITS: u64 = 2;
const CALLS: u64 = 1;
const PERMITS: u64 = 1;

// Words that the processes share beside the set.
const STOP: usize = 0;
const FAILED: usize = 1;
/// Grants that their receivers have counted themselves.
const GRANTS: usize = 2;
/// Holders of permits, as they count themselves, and the most at one time.
const INSIDE: usize = 3;
const MOST_INSIDE: usize = 4;
/// Acquisitions dropped without the report they owed.
const DROPPED: usize = 5;
/// What a process that changes the set announces before it does it.
const CLOCK: usize = 6;
const CHANGES: usize = 7;
const WORDS: u32 = 8;

fn main() {
    support::main(
        &[
            ("hammer", hammer_role),
            ("refund", refunds::role),
            ("permit", permits::role),
            ("change", changes::change_role),
            ("clock", changes::clock_role),
            ("realtime", realtime::role),
        ],
        vec![
            ("what_can_be_granted_is_granted_and_nothing_more", steps::undisturbed),
            ("what_can_be_granted_is_granted_and_nothing_more_while_processes_are_killed", steps::with_kills),
            ("what_can_be_granted_is_granted_and_nothing_more_while_numbers_change", steps::with_changes),
            ("kills_and_changes_of_numbers_together_change_no_count", steps::with_kills_and_changes),
            ("numbers_that_change_together_are_seen_together_and_bound_what_is_granted", changes::unordered),
            ("what_is_given_back_can_be_granted_again_and_only_that", refunds::exact),
            ("of_n_free_permits_exactly_n_are_granted", permits::exactly_n),
            ("by_the_real_clock_no_time_holds_too_much_and_every_refusal_was_due", realtime::bounded),
        ],
    );
}

/// One set, and who hammers it.
#[derive(Clone, Copy, Debug)]
struct Case {
    processes: u64,
    units: Numbers,
    calls: Numbers,
    permits: u64,
}

/// Each algorithm with 2, 4 and 8 processes, beside another algorithm, which differs each time.
fn for_each_case(mut test: impl FnMut(Case)) {
    for (index, algorithm) in Algorithm::ALL.iter().enumerate() {
        for (other, processes) in [2, 4, 8].into_iter().enumerate() {
            let beside = Algorithm::ALL[(index + 1 + other) % Algorithm::ALL.len()];
            let numbers = |algorithm: Algorithm, capacity, window, burst| {
                let burst = if algorithm.has_burst() { burst } else { capacity };
                Numbers { algorithm, capacity, window, burst }
            };
            // Primes, so that no division comes out even. Now one of them is in the way, now the other.
            let units = numbers(*algorithm, 11_003, 1_000_003, 7_001);
            let calls = numbers(beside, 4_999, 700_001, 3_989);
            test(Case { processes, units, calls, permits: processes + 1 });
        }
    }
}

impl Case {
    fn create(&self, name: &TempName, clock: Clock, log_words: u32) -> LimitSet {
        let options = Segment::options().slots(24).waiters(2).words("shared", WORDS).words("log", log_words);
        LimitSet::builder()
            .limit(self.units.units())
            .limit(self.calls.calls())
            .limit(ResourceLimit::new("permits", self.permits))
            .clock(clock)
            .segment(impatient(options))
            .create(name)
            .unwrap()
    }

    fn start(&self, role: &str, name: &TempName) -> Vec<Worker> {
        (0..self.processes).map(|seed| Worker::start(role, &[&name.0, &seed.to_string()])).collect()
    }
}

/// Looks for deaths far more often than usual; and a machine that is busy elsewhere is no failure.
fn impatient(options: limitset::SegmentOptions) -> limitset::SegmentOptions {
    let (slice, patience) = (Duration::from_micros(300), Duration::from_secs(300));
    options.lock_slice(slice).doorbell_slice(slice).patience(patience)
}

fn attach(name: &str) -> LimitSet {
    LimitSet::builder().segment(impatient(Segment::options())).attach(name).unwrap()
}

fn shared(set: &LimitSet) -> &[AtomicU64] {
    set.segment().words("shared").unwrap()
}

/// In a worker: `work` by two threads. If one of them fails, everybody is told to stop.
fn in_threads(set: &LimitSet, seed: u64, work: impl Fn(&LimitSet, Random) + Sync) {
    struct Tell<'a>(&'a LimitSet);
    impl Drop for Tell<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                shared(self.0)[FAILED].store(1, SeqCst);
                shared(self.0)[STOP].store(1, SeqCst);
            }
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || {
                let _tell = Tell(set);
                work(set, Random::new(1 + seed * THREADS + thread));
            });
        }
    });
}

/// In a worker that nobody talks to: it ends when the test is gone, be that one killed.
fn ready() {
    std::thread::spawn(|| {
        loop {
            listen();
        }
    });
    say("ready");
}

/// In a worker: asks without end until the test says stop.
fn hammer_role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    ready();
    in_threads(&set, arguments[1].parse().unwrap(), hammer);
}

fn hammer(set: &LimitSet, mut random: Random) {
    let shared = shared(set);
    let request = set.request().amount("units", UNITS).build().unwrap();
    while shared[STOP].load(Relaxed) == 0 {
        match set.try_acquire(&request) {
            Ok(mut held) => {
                shared[GRANTS].fetch_add(1, Relaxed);
                shared[MOST_INSIDE].fetch_max(shared[INSIDE].fetch_add(1, SeqCst) + 1, SeqCst);
                if random.below(8) == 0 {
                    std::thread::yield_now();
                }
                let reports = random.below(2) == 0;
                if reports {
                    held.update("units", UNITS).unwrap();
                }
                shared[INSIDE].fetch_sub(1, SeqCst);
                if reports {
                    held.release().unwrap();
                } else {
                    drop(held);
                    shared[DROPPED].fetch_add(1, Relaxed);
                }
            }
            Err(AcquireError::Denied(_)) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Whether a rate was in the way, as opposed to permits that others hold.
fn is_by_rate(denial: &Denial) -> bool {
    denial.violations().any(|status| status.key != "permits")
}

/// The set at one instant. Writers are many and never rest, so it may take a few looks.
fn stats(set: &LimitSet) -> Stats {
    loop {
        assert_eq!(shared(set)[FAILED].load(SeqCst), 0, "a worker failed, see above");
        match set.stats() {
            Ok(stats) => return stats,
            Err(ManageError::Unavailable(why)) if matches!(*why, Unavailable::LockTimeout(_)) => {
                std::thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// What holds at every instant: all limits of a request were charged or none, and the total of the permits is what
/// is held. Gives the number of grants.
fn check_whole(stats: &Stats) -> u64 {
    let [units, calls, permits] = &stats.limits[..] else { panic!("{stats:?}") };
    let grants = calls.granted;
    assert_eq!([units.granted, permits.granted], [grants; 2], "granted by one limit and not by another");
    let consumed = [units.consumed, calls.consumed, permits.consumed];
    assert_eq!(consumed, [UNITS, CALLS, PERMITS].map(|amount| amount * grants), "charged in part");
    // What counts of a sliding window when its capacity is lowered shows as debt, without more having been granted.
    let owed: u64 = stats.limits.iter().filter(|limit| limit.revision == 0).map(|limit| limit.debt).sum();
    assert_eq!(owed, 0, "more was granted than there was");
    check_held(stats);
    grants
}

/// The total of the permits is the sum of what participants hold.
fn check_held(stats: &Stats) {
    let holds = stats.participants.iter().flat_map(|it| &it.holds);
    let held: u64 = holds.map(|(_, permits)| permits).sum();
    assert_eq!(stats.limit("permits").unwrap().in_use, held, "permits in use without a holder: {stats:?}");
}

/// When everybody has ended, and the dead were reaped: nobody holds or owes anything, nobody was thought dead who
/// lived, nobody was let through.
fn check_end(stats: &Stats) {
    for participant in &stats.participants {
        assert_eq!((participant.holds.len(), participant.owes_reports.len()), (0, 0), "{participant:?}");
    }
    let permits = stats.limit("permits").unwrap();
    assert_eq!((permits.in_use, permits.available), (0, permits.capacity));
    assert_eq!((stats.deposed, stats.unenforced), (0, 0));
}

/// How often rates have refused. It grows under the lock, in the same hold of it as the judgement.
fn refusals(stats: &Stats) -> u64 {
    stats.limit("units").unwrap().denied + stats.limit("call_count").unwrap().denied
}

fn stop(set: &LimitSet, workers: &mut Vec<Worker>) {
    shared(set)[STOP].store(1, SeqCst);
    workers.iter_mut().for_each(Worker::wait_for_end);
    workers.clear();
}
