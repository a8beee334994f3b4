//! After a pause: twenty worker processes resume one by one, as far apart as the slow start says, and so do those that
//! are rejected again and come back. Judged by the instants of the manual clock at which they were admitted, which they
//! write down in the segment.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{CallLimit, Clock, Cooldown, LimitSet, ResourceLimit};

use crate::support::{TempName, Worker, depth, proof};
use crate::{
    MS, OnPanic, acquire, assert_nothing_held, end_with_the_test, no_slices, stats, wait_for_waiters,
};

pub(crate) const TESTS: [(&str, fn()); 2] = [
    ("twenty_workers_resume_with_exactly_the_gaps_of_the_slow_start", || exact()),
    ("with_jitter_gaps_are_longer_by_no_more_than_its_part", || with_jitter()),
];

const WORKERS: usize = 20;
/// Which admissions are answered with "too many requests", counted from 0; the last one is the first after a pause.
const REJECTED: [usize; 3] = [4, 12, 13];
const ADMISSIONS: usize = WORKERS + REJECTED.len();

const PAUSE: Duration = Duration::from_secs(1);
/// Gaps of 200, 190, … 10 ms.
const FIRST_GAP: Duration = Duration::from_millis(200);
const LAST_GAP: Duration = Duration::from_millis(10);
const FALL: Duration = Duration::from_millis(10);

// Words.
const NOW: usize = 0;
const COUNT: usize = 1;
const FINISHED: usize = 2;
const FAILED: usize = 3;
/// Instant and ticket of each admission.
const LOG: usize = 4;
const WORDS: usize = LOG + 2 * ADMISSIONS;

/// Role: is admitted, writes down when, and comes back if it is rejected.
pub(crate) fn role(arguments: &[String]) {
    end_with_the_test();
    let set = LimitSet::builder().segment(no_slices()).attach(&arguments[0]).unwrap();
    let words = set.segment().words("notes").unwrap();
    let _tell = OnPanic(|| words[FAILED].store(1, SeqCst));
    loop {
        let held = acquire(&set);
        let place = usize::try_from(words[COUNT].fetch_add(1, SeqCst)).unwrap();
        words[LOG + 2 * place].store(words[NOW].load(SeqCst), SeqCst);
        words[LOG + 2 * place + 1].store(held.ticket(), SeqCst);
        if !REJECTED.contains(&place) {
            held.release().unwrap();
            break;
        }
        assert!(!held.rate_limited(None).unwrap().absorbed);
    }
    words[FINISHED].fetch_add(1, SeqCst);
}

/// The instants of all admissions by a clock that moves in small steps, none before everybody has come to rest.
fn resume(jitter: f64, step: Duration) -> Vec<Duration> {
    let name = TempName::new();
    let cooldown = Cooldown::default().first(PAUSE).jitter(jitter);
    let set = LimitSet::builder()
        .limit(CallLimit::per_second(1_000))
        .limit(ResourceLimit::new("connections", WORKERS as u64))
        .cooldown(cooldown.slow_start(u32::try_from(WORKERS).unwrap(), FIRST_GAP, LAST_GAP))
        .clock(Clock::Manual)
        .segment(no_slices().slots(32).waiters(32).words("notes", u32::try_from(WORDS).unwrap()))
        .create(&name)
        .unwrap();
    acquire(&set).rate_limited(None).unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start("resume", &[&name.0])).collect();
    wait_for_waiters(&set, WORKERS as u64);
    let words: &[AtomicU64] = set.segment().words("notes").unwrap();
    let mut now = Duration::ZERO;
    while words[FINISHED].load(SeqCst) < WORKERS as u64 {
        now += step;
        words[NOW].store(u64::try_from(now.as_nanos()).unwrap(), SeqCst);
        set.advance(step).unwrap();
        // Who was admitted has written it down when it is through, or waits again.
        while stats(&set).waiters + words[FINISHED].load(SeqCst) != WORKERS as u64 {
            assert_eq!(words[FAILED].load(SeqCst), 0, "a worker failed, see above");
            std::thread::yield_now();
        }
    }
    workers.iter_mut().for_each(Worker::wait_for_end);
    let end = stats(&set);
    assert_nothing_held(&end);
    let begun = 1 + REJECTED.len() as u64;
    assert_eq!((end.cooldown.generation, end.cooldown.absorbed), (begun, 0));
    assert_eq!(words[COUNT].load(SeqCst), ADMISSIONS as u64);
    let log = |of: usize| (0..ADMISSIONS).map(move |place| words[LOG + 2 * place + of].load(SeqCst));
    assert!(log(1).is_sorted(), "first come, first served: {:?}", log(1).collect::<Vec<_>>());
    log(0).map(Duration::from_nanos).collect()
}

/// How long nobody is admitted before each admission, by what the settings say: a pause, twice as long if nothing went
/// well since the one before, or the next gap.
fn expected() -> Vec<Duration> {
    let mut waits = vec![PAUSE];
    let (mut since_pause, mut in_a_row) = (0, 0);
    for place in 0..ADMISSIONS - 1 {
        if REJECTED.contains(&place) {
            waits.push(PAUSE * 2u32.pow(in_a_row));
            (since_pause, in_a_row) = (0, in_a_row + 1);
        } else {
            waits.push(FIRST_GAP - since_pause * FALL);
            (since_pause, in_a_row) = (since_pause + 1, 0);
        }
    }
    waits
}

/// How long before each admission the one before it was, or the first pause began.
fn waits(instants: &[Duration]) -> Vec<Duration> {
    let before = [Duration::ZERO].into_iter().chain(instants.iter().copied());
    instants.iter().zip(before).map(|(at, before)| *at - before).collect()
}

fn exact() {
    let expected = expected();
    assert_eq!(expected.iter().filter(|wait| **wait == PAUSE).count(), 3);
    assert_eq!(expected.iter().filter(|wait| **wait == 2 * PAUSE).count(), 1);
    for _ in 0..depth(2, 10) {
        assert_eq!(waits(&resume(0.0, MS)), expected);
    }
    let result =
        format!("{ADMISSIONS} admissions of {WORKERS} processes, 4 pauses, each exactly when it had to be");
    proof("2,7", "resuming after a pause, clock in steps of 1 ms, 3 rejected again", &result);
}

fn with_jitter() {
    for _ in 0..depth(2, 10) {
        let (expected, found) = (expected(), waits(&resume(0.5, MS)));
        for (wait, found) in expected.iter().zip(&found) {
            // Seen at the first step at which it was due.
            assert!((*wait..*wait * 3 / 2 + MS).contains(found), "{found:?} instead of {wait:?}");
        }
        assert_ne!(expected, found, "no jitter at all");
    }
}
