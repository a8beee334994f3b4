//! Mutex and semaphore among the threads of one process: one source, private and shared memory alike.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use limitset::error::SyncError;
use limitset::sync::{LockedMutex, SharedSemaphore};
use limitset::{Segment, SegmentOptions};

/// Every rule holds in private memory and in a shared segment.
fn in_both_kinds_of_memory(options: &SegmentOptions, rule: impl Fn(&Segment)) {
    rule(&options.private().unwrap());
    rule(&options.anonymous().unwrap());
}

#[test]
fn an_update_happens_wholly_or_not_at_all() {
    in_both_kinds_of_memory(&Segment::options().mutex("jobs", 3), |segment| {
        let jobs = segment.mutex("jobs").unwrap();
        let mut held = jobs.lock().unwrap().guard();
        held.update(|words| words.set(0, 1).and_then(|()| words.set(1, 2))).unwrap();
        let failed = held.update(|words| {
            words.set(0, 10)?;
            words.set(0, 11)?;
            assert_eq!(words.get(0)?, 11);
            words.set(9, 1)
        });
        assert!(matches!(failed, Err(SyncError::OutOfRange { index: 9, words: 3 })));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            held.update(|words| -> Result<(), SyncError> {
                words.set(1, 20)?;
                panic!("in the middle")
            })
        }));
        assert!(panicked.is_err());
        assert_eq!((held.get(0).unwrap(), held.get(1).unwrap(), held.get(2).unwrap()), (1, 2, 0));
        held.unlock().unwrap();
        assert_eq!(jobs.snapshot().unwrap(), [1, 2, 0]);
    });
}

#[test]
fn a_panic_under_the_lock_unlocks_it() {
    in_both_kinds_of_memory(&Segment::options().mutex("jobs", 1), |segment| {
        let jobs = segment.mutex("jobs").unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = jobs.lock().unwrap().guard();
            panic!("while holding it");
        }));
        assert!(panicked.is_err());
        assert!(matches!(jobs.try_lock(), Ok(LockedMutex::Clean(_))));
    });
}

#[test]
fn one_update_can_change_every_word_of_a_small_mutex_and_is_told_when_it_changes_too_many() {
    let segment = Segment::options().mutex("jobs", 2000).private().unwrap();
    let jobs = segment.mutex("jobs").unwrap();
    let mut held = jobs.lock().unwrap().guard();
    held.update(|words| (0..1024).try_for_each(|index| words.set(index, 1))).unwrap();
    let failed = held.update(|words| (0..1025).try_for_each(|index| words.set(index, 2)));
    assert!(matches!(failed, Err(SyncError::TooManyChanges { most: 1024 })), "{failed:?}");
    assert!((0..1024).all(|index| held.get(index).unwrap() == 1));
}

#[test]
fn a_busy_lock_is_busy_and_says_who_holds_it() {
    in_both_kinds_of_memory(&Segment::options().mutex("jobs", 0), |segment| {
        let jobs = segment.mutex("jobs").unwrap();
        let held = jobs.lock().unwrap().guard();
        assert!(held.is_empty());
        let me = segment.participant().unwrap();
        for refused in [jobs.try_lock(), jobs.lock_timeout(Duration::from_millis(20))] {
            match refused {
                Err(SyncError::Busy { slot, pid }) => {
                    assert_eq!((slot, pid), (me.slot, u64::from(std::process::id())));
                }
                other => panic!("{other:?}"),
            }
        }
        drop(held);
        drop(jobs.try_lock().unwrap());
    });
}

#[test]
fn threads_of_one_participant_never_hold_the_lock_together() {
    in_both_kinds_of_memory(
        &Segment::options().mutex("jobs", 2).lock_slice(Duration::from_micros(50)),
        |segment| {
            let jobs = segment.mutex("jobs").unwrap();
            let inside = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..2_000 {
                            let locked = jobs.lock().unwrap();
                            assert!(matches!(locked, LockedMutex::Clean(_)), "nobody died");
                            let mut held = locked.guard();
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders at once");
                            held.update(|words| words.set(0, words.get(0)? + 1)).unwrap();
                            inside.fetch_sub(1, SeqCst);
                            held.unlock().unwrap();
                        }
                    });
                }
            });
            assert_eq!(jobs.snapshot().unwrap()[0], 8_000);
        },
    );
}

#[test]
fn permits_are_never_over_taken_and_all_come_back() {
    in_both_kinds_of_memory(&Segment::options().semaphore("db", 5), |segment| {
        let db = segment.semaphore("db").unwrap();
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (db, taken) = (&db, &taken);
                scope.spawn(move || {
                    for round in 0..500 {
                        let wanted = 1 + (thread + round) % 3;
                        let permit = db.acquire(wanted).unwrap();
                        assert!(taken.fetch_add(wanted, SeqCst) + wanted <= 5);
                        taken.fetch_sub(wanted, SeqCst);
                        permit.release().unwrap();
                    }
                });
            }
        });
        assert_eq!(db.available().unwrap(), 5);
    });
}

#[test]
fn refusals_say_not_now_never_or_nonsense() {
    in_both_kinds_of_memory(&Segment::options().semaphore("db", 5), |segment| {
        let db = segment.semaphore("db").unwrap();
        let held = db.acquire(4).unwrap();
        assert_eq!(held.count(), 4);
        assert!(matches!(db.try_acquire(2), Err(SyncError::NotAvailable { wanted: 2, available: 1 })));
        assert!(matches!(db.try_acquire(6), Err(SyncError::Never { wanted: 6, capacity: 5 })));
        assert!(matches!(db.acquire(6), Err(SyncError::Never { .. })));
        assert!(matches!(db.acquire(0), Err(SyncError::Nothing)));
        let late = db.acquire_timeout(2, Duration::from_millis(20));
        assert!(matches!(late, Err(SyncError::TimedOut { wanted: 2, available: 1 })));
    });
}

#[test]
fn a_sleeper_is_woken_by_the_release_not_by_a_slice() {
    let patient = Duration::from_secs(3600);
    let options = Segment::options().semaphore("db", 1).doorbell_slice(patient).lock_slice(patient);
    in_both_kinds_of_memory(&options, |segment| {
        let db = segment.semaphore("db").unwrap();
        let held = db.acquire(1).unwrap();
        let woken = asleep(&db);
        held.release().unwrap();
        woken.join().unwrap().unwrap();

        let held = db.acquire(1).unwrap();
        let woken = asleep(&db);
        segment.remove_here().unwrap();
        assert!(matches!(woken.join().unwrap(), Err(SyncError::Removed)));
        drop(held);
    });
}

/// A thread that sleeps for a permit; returns once it does.
fn asleep(db: &SharedSemaphore) -> std::thread::JoinHandle<Result<(), SyncError>> {
    let (send, receive) = std::sync::mpsc::channel();
    let db = db.clone();
    let thread = std::thread::spawn(move || {
        send.send(nix::unistd::gettid()).unwrap();
        db.acquire(1).map(drop)
    });
    let id = receive.recv().unwrap();
    loop {
        let state = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap();
        if state.rsplit(')').next().unwrap().trim_start().starts_with('S') {
            return thread;
        }
        std::thread::yield_now();
    }
}
