//! Several real processes on one segment: exclusion, wake-ups, deaths, stops, forks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forks.rs"]
mod forks;
#[path = "support/mod.rs"]
mod support;

use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use forks::Forked;
use limitset::error::{AttachError, SyncError};
use limitset::sync::LockedMutex;
use limitset::{Segment, SegmentOptions};
use nix::sys::signal::Signal;
use support::{TempName, Worker, listen, say};

/// Entries of each thread into the lock.
const ENTRIES: u64 = 20_000;
const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    support::main(
        &[
            ("exclude", exclude_role),
            ("open", open_role),
            ("lock", lock_role),
            ("hold", hold_role),
            ("wait", wait_role),
            ("forked", forked_role),
        ],
        vec![
            ("four_processes_of_two_threads_never_hold_a_lock_together", exclusion),
            ("processes_that_open_a_name_at_once_share_one_segment", opening),
            ("the_lock_of_a_killed_holder_passes_on_and_its_update_is_undone", killed_in_update),
            ("the_permits_of_a_killed_holder_return_to_a_sleeper", killed_with_permits),
            ("the_permits_of_a_process_that_execs_return", exec_returns_permits),
            ("a_sleeper_in_another_process_is_woken_by_the_release_not_by_a_slice", woken_across_processes),
            ("a_stopped_holder_is_busy_and_not_dead", stopped_holder),
            ("after_everybody_died_the_next_finds_all_permits_free", total_crash),
            ("signals_do_not_keep_a_sleeper_from_finding_the_dead", interrupted_sleeper),
            ("a_busy_doorbell_does_not_keep_a_sleeper_from_finding_the_dead", busy_doorbell),
            ("a_newcomer_that_returns_its_predecessors_permits_wakes_sleepers", woken_by_a_newcomer),
            ("a_forked_child_is_a_participant_of_its_own", || in_a_worker("own_identity")),
            ("a_forked_child_releases_nothing_of_its_parent", || in_a_worker("inherited")),
            ("a_child_of_a_child_is_neither_of_them", || in_a_worker("grandchild")),
            ("a_living_child_does_not_hide_the_death_of_its_parent", hidden_death),
            ("a_child_that_dropped_its_privileges_can_still_enrol", || in_a_worker("privileges")),
            ("private_memory_is_not_shared_with_a_child", || in_a_worker("private")),
            ("an_anonymous_segment_is_shared_with_children", || in_a_worker("anonymous")),
            ("closing_all_descriptors_kills_nobody_and_blinds_nobody", || in_a_worker("closefrom")),
            ("a_number_that_leads_to_another_segment_deceives_nobody", || in_a_worker("other_file")),
            ("a_child_that_closed_everything_is_not_its_parent", || in_a_worker("closed_child")),
            ("a_failed_enrolment_after_dropping_privileges_can_be_tried_again", || in_a_worker("retry")),
            ("a_child_may_outlive_the_handles_it_inherited", || in_a_worker("child_drops")),
            ("hundreds_of_children_that_enrol_at_once_all_get_in", || in_a_worker("crowd")),
        ],
    );
}

fn options() -> SegmentOptions {
    Segment::options().slots(16).waiters(2).mutex("pair", 2).semaphore("db", 4).words("inside", 2)
}

fn exclude_role(arguments: &[String]) {
    // Slices far shorter than usual, so that the holder's life is questioned all the time.
    let segment = Segment::options().lock_slice(Duration::from_micros(50)).attach(&arguments[0]).unwrap();
    say("ready");
    listen();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let pair = segment.mutex("pair").unwrap();
                let inside = &segment.words("inside").unwrap()[0];
                for _ in 0..ENTRIES {
                    let locked = pair.lock().unwrap();
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
    say("done");
}

fn exclusion() {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start("exclude", &[&name.0])).collect();
    workers.iter_mut().for_each(|worker| worker.expect("ready"));
    workers.iter_mut().for_each(|worker| worker.tell("go"));
    workers.iter_mut().for_each(|worker| worker.expect("done"));
    let pair = segment.mutex("pair").unwrap();
    let entries = pair.snapshot().unwrap()[0];
    assert_eq!(entries, 4 * 2 * ENTRIES);
    assert_eq!(pair.statistics().unwrap(), limitset::LockStatistics::default());
    let result = format!("{entries} entries, never two at once, no false death");
    support::proof("2", "four processes of two threads on one lock", &result);
}

fn open_role(arguments: &[String]) {
    say("ready");
    listen();
    let segment = options().open(&arguments[0]).unwrap();
    say(&format!("{:x?}", segment.info().instance));
    listen();
}

fn opening() {
    for _ in 0..20 {
        let name = TempName::new();
        let mut workers: Vec<_> = (0..6).map(|_| Worker::start("open", &[&name.0])).collect();
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        workers.iter_mut().for_each(|worker| worker.tell("go"));
        let instances: Vec<_> = workers.iter_mut().map(Worker::hear).collect();
        assert!(instances.iter().all(|instance| *instance == instances[0]), "{instances:?}");
        assert_eq!(Segment::observe(&name).unwrap().participants().len(), 6);
    }
}

/// Takes the lock, changes one word of two inside an update, and stays there.
fn lock_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let pair = segment.mutex("pair").unwrap();
    let mut held = pair.lock().unwrap().guard();
    let _ = held.update(|words| {
        words.set(0, 1)?;
        say("inside");
        listen();
        words.set(1, 1)
    });
    held.unlock().unwrap();
    say("unlocked");
    listen();
}

fn killed_in_update() {
    let name = TempName::new();
    let segment = options().lock_slice(Duration::from_millis(1)).create(&name).unwrap();
    let pair = segment.mutex("pair").unwrap();
    let mut worker = Worker::start("lock", &[&name.0]);
    worker.expect("inside");
    assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
    assert!(pair.snapshot().is_err(), "a living writer is in the middle");
    worker.kill();
    assert_eq!(pair.snapshot().unwrap(), [0, 0], "an observer undoes it in a copy");
    assert_eq!(Segment::observe(&name).unwrap().mutex("pair").unwrap(), [0, 0]);
    let LockedMutex::OwnerDied(held) = pair.lock().unwrap() else { panic!("the holder died") };
    assert_eq!((held.get(0).unwrap(), held.get(1).unwrap()), (0, 0));
    held.unlock().unwrap();
    assert!(matches!(pair.lock().unwrap(), LockedMutex::Clean(_)), "it is told once");
    let seen = pair.statistics().unwrap();
    assert_eq!((seen.steals, seen.rollbacks, seen.deposed), (1, 1, 0));
}

fn hold_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let permit = segment.semaphore("db").unwrap().acquire(arguments[1].parse().unwrap()).unwrap();
    say("holding");
    match listen().as_str() {
        "exec" => {
            std::mem::forget(permit);
            // Lives until the test closes its input.
            let error = std::process::Command::new("cat").exec();
            panic!("{error}");
        }
        "fork" => {
            let _child = Forked::new(|| drop(listen()));
            say("forked");
            listen();
        }
        _ => unreachable!(),
    }
}

fn killed_with_permits() {
    let name = TempName::new();
    let segment = options().doorbell_slice(Duration::from_millis(5)).create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("hold", &[&name.0, "3"]);
    worker.expect("holding");
    assert!(matches!(db.try_acquire(2), Err(SyncError::NotAvailable { available: 1, .. })));
    worker.kill();
    let held = db.acquire(4).unwrap();
    assert_eq!(db.state().unwrap().holders, [(segment.participant().unwrap(), 4)]);
    drop(held);
}

fn exec_returns_permits() {
    let name = TempName::new();
    let segment = options().doorbell_slice(Duration::from_millis(5)).create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("hold", &[&name.0, "3"]);
    worker.expect("holding");
    worker.tell("exec");
    db.acquire(4).unwrap().release().unwrap();
}

fn wait_role(arguments: &[String]) {
    let mut options = Segment::options();
    match arguments[1].as_str() {
        "patient" => options = options.lock_slice(HOUR).doorbell_slice(HOUR),
        "interrupted" => forks::interrupt_every(Duration::from_millis(2)),
        _ => {}
    }
    let segment = options.attach(&arguments[0]).unwrap();
    let db = segment.semaphore("db").unwrap();
    say("waiting");
    match db.acquire(4) {
        Ok(_) => say("granted"),
        Err(SyncError::Removed) => say("removed"),
        Err(other) => say(&other.to_string()),
    }
    listen();
}

fn woken_across_processes() {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    for answer in ["granted", "removed"] {
        let held = db.acquire(1).unwrap();
        let mut worker = Worker::start("wait", &[&name.0, "patient"]);
        worker.expect("waiting");
        worker.wait_until_asleep();
        if answer == "granted" {
            held.release().unwrap();
        } else {
            segment.remove_here().unwrap();
        }
        worker.expect(answer);
    }
}

fn stopped_holder() {
    let name = TempName::new();
    let segment = options().lock_slice(Duration::from_millis(1)).create(&name).unwrap();
    let pair = segment.mutex("pair").unwrap();
    let mut worker = Worker::start("lock", &[&name.0]);
    worker.expect("inside");
    worker.signal(Signal::SIGSTOP);
    match pair.lock_timeout(Duration::from_millis(50)) {
        Err(SyncError::Busy { pid, .. }) => assert_eq!(pid, u64::try_from(worker.pid().as_raw()).unwrap()),
        other => panic!("{other:?}"),
    }
    worker.signal(Signal::SIGCONT);
    worker.tell("go on");
    worker.expect("unlocked");
    assert!(matches!(pair.lock().unwrap(), LockedMutex::Clean(_)));
    assert_eq!(pair.snapshot().unwrap(), [1, 1]);
}

fn total_crash() {
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start("hold", &[&name.0, "2"])).collect();
    workers.iter_mut().for_each(|worker| worker.expect("holding"));
    workers.iter_mut().for_each(Worker::kill);
    assert_eq!(Segment::observe(&name).unwrap().semaphore("db").unwrap().taken, 4);
    let segment = Segment::options().doorbell_slice(HOUR).lock_slice(HOUR).attach(&name).unwrap();
    assert_eq!(segment.semaphore("db").unwrap().available().unwrap(), 4);
}

/// Runs a test of forks in a process with one thread.
fn in_a_worker(what: &str) {
    let name = TempName::new();
    let mut worker = Worker::start("forked", &[&name.0, what]);
    match worker.hear().as_str() {
        "done" => support::proof("4", &format!("fork: {}", what.replace('_', " ")), "held"),
        other => println!("SKIPPED {what}: {other}"),
    }
    assert!(worker.finish().success());
}

fn forked_role(arguments: &[String]) {
    let (name, what) = (arguments[0].as_str(), arguments[1].as_str());
    let create = || options().create(name).unwrap();
    match what {
        "own_identity" => own_identity(&create()),
        "inherited" => inherited(&create()),
        "grandchild" => grandchild(&create()),
        "privileges" => {
            if !nix::unistd::geteuid().is_root() {
                return say("only root can drop privileges");
            }
            privileges(&create());
        }
        "private" => private(&options().private().unwrap()),
        "anonymous" => own_identity(&options().anonymous().unwrap()),
        "closefrom" => closefrom(name, &create()),
        "child_drops" => child_drops(create()),
        "other_file" => other_file(name, &create()),
        "crowd" => crowd(&options().slots(4_000).anonymous().unwrap()),
        "closed_child" => closed_child(&create()),
        "retry" => {
            if !nix::unistd::geteuid().is_root() {
                return say("only root can drop privileges");
            }
            retry(name);
        }
        _ => unreachable!(),
    }
    say("done");
}

fn own_identity(segment: &Segment) {
    let parent = segment.participant().unwrap();
    let db = segment.semaphore("db").unwrap();
    Forked::new(|| {
        assert_ne!(segment.participant().unwrap(), parent);
        assert_eq!(db.acquire(3).unwrap().count(), 3);
        std::mem::forget(db.acquire(3).unwrap());
    })
    .join();
    assert_eq!(segment.participant().unwrap(), parent);
    assert_eq!(db.reap().unwrap(), 3, "the child died with permits of its own");
    assert_eq!(db.available().unwrap(), 4);
}

/// Those who wait for their turn must leave the processors to the one whose turn it is.
fn crowd(segment: &Segment) {
    let children: Vec<_> = (0..2_000)
        .map(|_| {
            Forked::new(|| {
                segment.participant().unwrap();
                // Whoever is in makes way for nobody.
                std::thread::sleep(Duration::from_secs(4));
            })
        })
        .collect();
    children.into_iter().for_each(Forked::join);
}

fn inherited(segment: &Segment) {
    let (db, pair) = (segment.semaphore("db").unwrap(), segment.mutex("pair").unwrap());
    let mut permit = Some(db.acquire(2).unwrap());
    let mut guard = Some(pair.lock().unwrap().guard());
    Forked::new(|| {
        let guard = guard.as_mut().unwrap();
        assert!(matches!(guard.update(|words| words.set(0, 9)), Err(SyncError::Forked)));
        assert!(matches!(permit.take().unwrap().release(), Err(SyncError::Forked)));
        assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })), "the parent still holds it");
    })
    .join();
    Forked::new(|| {
        drop(permit.take());
        drop(guard.take());
    })
    .join();
    assert_eq!(db.available().unwrap(), 2, "still held by the parent");
    assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
    let mut guard = guard.take().unwrap();
    guard
        .update(|words| {
            words.set(0, 1)?;
            // A fork in the middle: neither what the child changes nor its end touches the parent's update.
            Forked::new(|| assert!(matches!(words.set(1, 9), Err(SyncError::Forked)))).join();
            words.set(1, 2)
        })
        .unwrap();
    assert_eq!((guard.get(0).unwrap(), guard.get(1).unwrap()), (1, 2));
    guard.unlock().unwrap();
    permit.take().unwrap().release().unwrap();
    assert_eq!(db.available().unwrap(), 4);
}

/// A timer interrupts the sleeper far more often than a slice ends.
fn interrupted_sleeper() {
    let name = TempName::new();
    let _segment = options().create(&name).unwrap();
    let mut holder = Worker::start("hold", &[&name.0, "3"]);
    holder.expect("holding");
    let mut sleeper = Worker::start("wait", &[&name.0, "interrupted"]);
    sleeper.expect("waiting");
    holder.kill();
    sleeper.expect("granted");
}

/// Somebody gives and takes all the time, and each time the sleeper wakes in vain.
fn busy_doorbell() {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut holder = Worker::start("hold", &[&name.0, "3"]);
    holder.expect("holding");
    let mut sleeper = Worker::start("wait", &[&name.0, "plain"]);
    sleeper.expect("waiting");
    holder.kill();
    let granted = std::thread::scope(|scope| {
        let granted = scope.spawn(move || sleeper.expect("granted"));
        while !granted.is_finished() {
            if let Ok(permit) = db.acquire_timeout(1, Duration::ZERO) {
                std::thread::sleep(Duration::from_millis(2));
                drop(permit);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        granted.join()
    });
    granted.unwrap();
}

/// With slices of an hour, only the newcomer's own ring can wake the sleeper.
fn woken_by_a_newcomer() {
    let name = TempName::new();
    let _segment = options().create(&name).unwrap();
    let mut holder = Worker::start("hold", &[&name.0, "3"]);
    holder.expect("holding");
    let mut sleeper = Worker::start("wait", &[&name.0, "patient"]);
    sleeper.expect("waiting");
    sleeper.wait_until_asleep();
    holder.kill();
    let newcomer = Segment::attach(&name).unwrap();
    assert_eq!(newcomer.participant().unwrap().slot, 2, "the slot of the dead holder");
    sleeper.expect("granted");
}

/// Our check descriptor is closed, and its number becomes that of another segment, in which the same slot
/// number is held.
fn other_file(name: &str, segment: &Segment) {
    let other_name = TempName::new();
    let other = options().create(&other_name).unwrap();
    assert_eq!(segment.participant().unwrap().slot, other.participant().unwrap().slot);
    let pair = segment.mutex("pair").unwrap();
    let held = Segment::attach(name).unwrap();
    let held_pair = held.mutex("pair").unwrap();
    let guard = held_pair.lock().unwrap().guard();
    forks::close_all_descriptors();
    let _files: Vec<_> = (0..8).map(|_| std::fs::File::open(other_name.path()).unwrap()).collect();
    assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })), "the holder lives");
    guard.unlock().unwrap();
    assert_eq!(pair.statistics().unwrap(), limitset::LockStatistics::default());
}

/// A child closes everything and opens files of its own, before its first use of the segment.
fn closed_child(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let permit = db.acquire(3).unwrap();
    let parent = segment.participant().unwrap();
    Forked::new(|| {
        forks::close_all_descriptors();
        let log = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let logs: Vec<_> = (0..16).map(|_| log()).collect();
        assert_ne!(segment.participant().unwrap().slot, parent.slot);
        assert!(matches!(db.try_acquire(2), Err(SyncError::NotAvailable { available: 1, .. })));
        drop(db.try_acquire(1).unwrap());
        Forked::new(|| drop(db.try_acquire(1).unwrap())).join();
        assert!(logs.iter().all(|log| log.metadata().is_ok()), "nobody closed them");
    })
    .join();
    drop(permit);
}

/// The first try finds the init lock taken; the second must not find the way in lost.
fn retry(name: &str) {
    let segment = options().patience(Duration::from_millis(20)).create(name).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(Segment::path_of(name).unwrap()).unwrap();
    let init_lock = libc::flock { l_type: 1, l_whence: 0, l_start: 0, l_len: 1, l_pid: 0 };
    let lock = |kind| {
        let range = libc::flock { l_type: kind, ..init_lock };
        nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&range)).unwrap();
    };
    Forked::new(|| {
        nix::unistd::setuid(65_534.into()).unwrap();
        lock(1);
        let db = segment.semaphore("db").unwrap();
        assert!(matches!(db.try_acquire(1), Err(SyncError::Enrol(AttachError::Busy { .. }))));
        lock(2);
        drop(db.try_acquire(1).unwrap());
    })
    .join();
}

fn grandchild(segment: &Segment) {
    let parent = segment.participant().unwrap();
    Forked::new(|| {
        let child = segment.participant().unwrap();
        let mut permit = Some(segment.semaphore("db").unwrap().acquire(1).unwrap());
        Forked::new(|| {
            let grandchild = segment.participant().unwrap();
            assert!(grandchild != parent && grandchild != child);
            drop(permit.take());
        })
        .join();
        assert_eq!(segment.semaphore("db").unwrap().available().unwrap(), 3);
    })
    .join();
}

/// The worker takes permits and forks a child that lives on; then the worker is killed.
fn hidden_death() {
    let name = TempName::new();
    let segment = options().doorbell_slice(Duration::from_millis(5)).create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("hold", &[&name.0, "3"]);
    worker.expect("holding");
    worker.tell("fork");
    worker.expect("forked");
    assert_eq!(db.available().unwrap(), 1);
    worker.kill();
    db.acquire(4).unwrap().release().unwrap();
}

fn privileges(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let permit = db.acquire(1).unwrap();
    let nobody = 65_534;
    Forked::new(|| {
        let empty = std::env::temp_dir();
        nix::unistd::chroot(&empty).unwrap();
        nix::unistd::setgid(nobody.into()).unwrap();
        nix::unistd::setuid(nobody.into()).unwrap();
        let own = db.acquire(2).unwrap();
        assert_eq!(db.available().unwrap(), 1);
        assert_eq!(db.reap().unwrap(), 0, "the parent lives");
        drop(own);
        std::mem::forget(db.acquire(3).unwrap());
    })
    .join();
    assert_eq!(db.reap().unwrap(), 3);
    drop(permit);
}

fn private(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    Forked::new(|| {
        let refused = db.try_acquire(1).unwrap_err();
        assert!(matches!(refused, SyncError::Enrol(AttachError::NotShared)), "{refused}");
        assert!(db.available().is_err() && segment.words("inside").is_err(), "not even a stale answer");
    })
    .join();
    drop(db.try_acquire(1).unwrap());
}

fn closefrom(name: &str, segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let permit = db.acquire(1).unwrap();
    let other = Segment::attach(name).unwrap();
    Forked::new(|| std::mem::forget(db.acquire(2).unwrap())).join();
    forks::close_all_descriptors();
    // The number of our check descriptor may be this file now.
    let _log = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(other.semaphore("db").unwrap().reap().unwrap(), 2, "the dead child, and not us");
    assert_eq!(db.available().unwrap(), 3);
    permit.release().unwrap();
    Forked::new(|| drop(db.acquire(4).unwrap())).join();
}

fn child_drops(segment: Segment) {
    let parent = segment.participant().unwrap();
    let mut segment = Some(segment);
    Forked::new(|| {
        // Something of the child's own may now lie where the parent's pin was.
        let memory: Vec<Vec<u8>> = (0..64).map(|_| vec![7; 1 << 20]).collect();
        drop(segment.take());
        assert!(memory.iter().all(|block| block.iter().all(|byte| *byte == 7)));
    })
    .join();
    let segment = segment.unwrap();
    assert_eq!(segment.participants().iter().map(|it| it.slot).collect::<Vec<_>>(), [parent.slot]);
    assert_eq!(segment.words("inside").unwrap()[0].load(Relaxed), 0);
}
