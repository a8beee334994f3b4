//! The same by the clock of the machine. Workers note the time before and after each call, so it is certain that the
//! decision was made in between, however they were scheduled.
//!
//! * Never too much: what certainly was granted between two instants is at most what the limit allows between them.
//! * Never too little: a refusal is due only if what may have been granted before it explains it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limitset::{AcquireError, Algorithm, Clock, LimitSet};
use nix::time::{ClockId, clock_gettime};

use crate::reference::Numbers;
use crate::support::{Random, TempName, depth, proof};
use crate::{
    CALLS, GRANTS, STOP, UNITS, attach, check_end, check_whole, for_each_case, in_threads, ready, shared,
    stats, stop,
};

/// Entries of each of the two logs; refusals beyond that are not noted.
const ENTRIES: usize = 4_096;
/// Words of an entry: before, after, and for a refusal which limits refused.
const ENTRY: usize = 3;
const UNITS_REFUSED: u64 = 1;
const CALLS_REFUSED: u64 = 2;

/// Words of the log region: two counts, then the entries of grants, then those of refusals.
fn log_words() -> u32 {
    u32::try_from(2 + 2 * ENTRIES * ENTRY).unwrap()
}

fn nanos() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    u64::try_from(now.as_nanos()).unwrap()
}

/// Adds an entry to one of the logs.
fn note(log: &[AtomicU64], which: usize, entry: [u64; ENTRY]) {
    let place = usize::try_from(log[which].fetch_add(1, Relaxed)).unwrap();
    if place < ENTRIES {
        let at = 2 + (which * ENTRIES + place) * ENTRY;
        for (word, value) in log[at..at + ENTRY].iter().zip(entry) {
            word.store(value, Release);
        }
    }
}

fn entries(log: &[AtomicU64], which: usize) -> Vec<[u64; ENTRY]> {
    let count = usize::try_from(log[which].load(SeqCst)).unwrap().min(ENTRIES);
    let words = &log[2 + which * ENTRIES * ENTRY..][..count * ENTRY];
    words.chunks(ENTRY).map(|entry| [0, 1, 2].map(|word: usize| entry[word].load(Acquire))).collect()
}

pub(crate) fn role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    ready();
    in_threads(&set, arguments[1].parse().unwrap(), hammer);
}

fn hammer(set: &LimitSet, mut random: Random) {
    let log = set.segment().words("log").unwrap();
    let request = set.request().amount("units", UNITS).build().unwrap();
    let mut was_granted = true;
    // Should the test be held up, the log must not overflow: one grant of each thread may still come.
    let full = ENTRIES as u64 - 64;
    while shared(set)[STOP].load(Relaxed) == 0 && log[0].load(Relaxed) < full {
        let before = nanos();
        let answer = set.try_acquire(&request);
        let after = nanos();
        match answer {
            Ok(held) => {
                note(log, 0, [before, after, 0]);
                shared(set)[GRANTS].fetch_add(1, Relaxed);
                drop(held);
                was_granted = true;
            }
            Err(AcquireError::Denied(denial)) => {
                let refused = |key| denial.violations().any(|status| status.key == key);
                let which = [(refused("units"), UNITS_REFUSED), (refused("call_count"), CALLS_REFUSED)];
                let which = which.iter().map(|(refused, bit)| u64::from(*refused) * bit).sum();
                // Those right after a grant are the likeliest to be wrong.
                if which > 0 && (was_granted || random.below(64) == 0) {
                    note(log, 1, [before, after, which]);
                    was_granted = false;
                }
                std::thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Unix time minus set time, at least and at most; exact but for the time it took to create the set.
#[derive(Clone, Copy, Debug)]
struct Offset {
    least: u64,
    most: u64,
}

/// The most that a rate gives between two instants, both included.
fn most_between(rate: &Numbers, offset: Offset, from: u64, to: u64) -> u64 {
    let length = to - from;
    match rate.algorithm {
        Algorithm::SlidingWindow => rate.capacity * (length / rate.window + 1),
        Algorithm::FixedWindow => {
            let (first, last) = ((from + offset.least) / rate.window, (to + offset.most) / rate.window);
            rate.capacity * (last - first + 1)
        }
        _ => rate.burst + rate.capacity * length / rate.window,
    }
}

/// Fails if between any two instants more was certainly granted than the rate gives.
fn check_not_too_much(rate: &Numbers, amount: u64, offset: Offset, grants: &[[u64; ENTRY]]) {
    for [from, ..] in grants {
        let mut ends: Vec<u64> = grants.iter().filter(|it| it[0] >= *from).map(|it| it[1]).collect();
        ends.sort_unstable();
        for (index, to) in ends.iter().enumerate() {
            let (granted, most) = ((index as u64 + 1) * amount, most_between(rate, offset, *from, *to));
            assert!(granted <= most, "{granted} granted from {from} to {to}, at most {most} of {rate:?}");
        }
    }
}

/// Whether grants that may have come before a refusal leave less than `amount`.
fn explains(
    rate: &Numbers,
    amount: u64,
    offset: Offset,
    grants: &[[u64; ENTRY]],
    refusal: [u64; ENTRY],
) -> bool {
    let [from, to, _] = refusal;
    let before = || grants.iter().filter(move |it| it[0] <= to);
    let since = |instant: u64| before().filter(move |it| it[1] >= instant).count() as u64 * amount;
    match rate.algorithm {
        Algorithm::SlidingWindow => {
            since((from + 1).saturating_sub(rate.window + rate.sub_window())) + amount > rate.capacity
        }
        Algorithm::FixedWindow => {
            let window = (from + offset.least) / rate.window;
            since(window * rate.window - offset.most) + amount > rate.capacity
        }
        // The level of a bucket is the most, over all instants before, of what came in since less what flowed off.
        _ => before().map(|it| it[1].min(to)).any(|instant| {
            let above = (since(instant) + amount).saturating_sub(rate.burst);
            above * rate.window > rate.capacity * from.saturating_sub(instant)
        }),
    }
}

pub(crate) fn bounded() {
    let (mut runs, mut grants, mut refusals) = (0, 0, 0);
    for_each_case(|mut case| {
        let numbers = |first: Numbers, capacity, window, burst| {
            let burst = if first.algorithm.has_burst() { burst } else { capacity };
            Numbers { capacity, window, burst, ..first }
        };
        case.units = numbers(case.units, 59, 5_000_011, 41);
        case.calls = numbers(case.calls, 23, 4_000_037, 19);
        let name = TempName::new();
        let least = nanos();
        let set = case.create(&name, Clock::Monotonic, log_words());
        let most = nanos();
        let unix = set.segment().info().created.duration_since(UNIX_EPOCH).unwrap();
        assert!(unix <= SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let unix = u64::try_from(unix.as_nanos()).unwrap();
        let offset = Offset { least: unix - most, most: unix - least };
        let mut workers = case.start("realtime", &name);
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        while shared(&set)[GRANTS].load(SeqCst) < depth(500, 2_000) {
            check_whole(&stats(&set));
            std::thread::yield_now();
        }
        stop(&set, &mut workers);
        let end = stats(&set);
        let log = set.segment().words("log").unwrap();
        let (granted, refused) = (entries(log, 0), entries(log, 1));
        assert_eq!(granted.len() as u64, check_whole(&end), "every grant is in the log");
        check_end(&end);
        for (rate, amount, bit) in [(case.units, UNITS, UNITS_REFUSED), (case.calls, CALLS, CALLS_REFUSED)] {
            check_not_too_much(&rate, amount, offset, &granted);
            for refusal in refused.iter().filter(|it| it[2] & bit != 0) {
                let is_due = explains(&rate, amount, offset, &granted, *refusal);
                assert!(is_due, "refused at {refusal:?} without need by {rate:?}");
                refusals += 1;
            }
        }
        grants += granted.len();
        runs += 1;
        set.remove().unwrap();
    });
    assert!(refusals > 0);
    let result = format!(
        "{runs} runs: {grants} grants, never too many between any two of them; {refusals} refusals looked at, 0 \
         without need"
    );
    proof("2", "the same by the real clock", &result);
}
