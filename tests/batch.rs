//! Work queues and pauses among processes that are killed.
//!
//! A provider, words of the segment, answers calls of worker processes with "too many requests" as often as it is told
//! to. The test's own process conducts: it pushes and collects, moves a manual clock when everybody waits, kills workers
//! and starts others. What became of each item is then compared with what the provider saw.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "batch/asleep.rs"]
mod asleep;
#[path = "batch/cases.rs"]
mod cases;
#[path = "batch/conductor.rs"]
mod conductor;
#[path = "batch/judge.rs"]
mod judge;
#[path = "batch/provider.rs"]
mod provider;
#[path = "batch/reporters.rs"]
mod reporters;
#[path = "batch/slow_start.rs"]
mod slow_start;
#[path = "support/mod.rs"]
mod support;
#[path = "batch/work.rs"]
mod work;

use std::time::{Duration, Instant};

use limitset::{Acquisition, LimitSet, ManageError, Segment, SegmentOptions, Stats, Unavailable};

/// Longer than any test: what needs a slice to be over is not seen to happen.
const HOUR: Duration = Duration::from_secs(3_600);
const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);

fn main() {
    let roles: &[support::Role] = &[
        ("work", work::role),
        ("report", reporters::role),
        ("resume", slow_start::role),
        ("sleep", asleep::acquire_role),
        ("sleep for work", asleep::take_role),
    ];
    let tests = [&cases::TESTS[..], &reporters::TESTS, &slow_start::TESTS, &asleep::TESTS].concat();
    support::main(roles, tests);
}

/// Slices that never help.
fn no_slices() -> SegmentOptions {
    Segment::options().lock_slice(HOUR).doorbell_slice(HOUR).patience(HOUR)
}

/// Looks for deaths far more often than usual; and a machine that is busy elsewhere is no failure.
fn short_slices() -> SegmentOptions {
    Segment::options().lock_slice(MS).doorbell_slice(2 * MS).patience(HOUR)
}

/// The set at one instant. Writers are many, so it may take a few looks.
fn stats(set: &LimitSet) -> Stats {
    loop {
        match set.stats() {
            Ok(stats) => return stats,
            Err(ManageError::Unavailable(why)) if matches!(*why, Unavailable::LockTimeout(_)) => {
                std::thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Waits until so many wait in `acquire`; the watchdog ends a wait in vain.
fn wait_for_waiters(set: &LimitSet, count: u64) {
    while stats(set).waiters != count {
        std::thread::yield_now();
    }
}

/// Lets others go on for a moment, before they are killed anywhere.
fn spin(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// In a worker that nobody talks to: it ends when the test is gone, be that one killed.
fn end_with_the_test() {
    std::thread::spawn(|| {
        loop {
            support::listen();
        }
    });
}

/// In a worker: lets the test know if it fails.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Nobody waits, nobody holds or owes anything, and nobody was thought dead who lived.
fn assert_nothing_held(stats: &Stats) {
    assert_eq!((stats.waiters, stats.deposed, stats.unenforced), (0, 0, 0), "{stats:?}");
    for participant in &stats.participants {
        assert_eq!((participant.holds.len(), participant.owes_reports.len()), (0, 0), "{participant:?}");
    }
    let permits = stats.limit("connections").unwrap();
    assert_eq!((permits.in_use, permits.available, permits.waiting), (0, permits.capacity, 0));
}

fn acquire(set: &LimitSet) -> Acquisition {
    set.acquire(()).unwrap()
}
