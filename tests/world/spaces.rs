//! Namespaces: PIDs that repeat, clocks that differ.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use limitset::Segment;
use limitset::error::{AttachError, SyncError};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::forks::Forked;
use crate::support::{TempName, Worker, listen, say};
use crate::{Skipped, as_root, options};

/// Words of the state block, from docs/format.md.
const LAST_NOW: usize = 0;
const CLOCK_OFFSET: usize = 4;
const TIME_NAMESPACE: usize = 14;

/// How far the clock of the other time namespace is ahead.
const AHEAD: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Does something in a child that is in a namespace of its own.
pub(crate) fn role(arguments: &[String]) {
    let (name, what) = (arguments[0].as_str(), arguments[1].as_str());
    if what == "hidden" {
        return attach_hidden(name);
    }
    let attached = what.starts_with("time_child").then(|| options().attach(name).unwrap());
    let space = match what {
        "pid" => CloneFlags::CLONE_NEWPID,
        _ => CloneFlags::from_bits_retain(libc::CLONE_NEWTIME),
    };
    if let Err(error) = unshare(space) {
        return say(&format!("needs namespaces: {error}"));
    }
    if what != "pid" {
        fs::write("/proc/self/timens_offsets", format!("monotonic {AHEAD} 0\n")).unwrap();
    }
    let child = Forked::new(|| match (what, &attached) {
        ("pid", _) => first_of_its_kind(name),
        ("time", _) => attach_twice(name),
        ("time_child", Some(segment)) => use_inherited(segment),
        ("time_child_hidden", Some(segment)) => {
            hide_proc();
            use_inherited(segment);
        }
        _ => unreachable!(),
    });
    assert!(matches!(child.wait(), WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGKILL, _)));
}

/// Waits for the first word of the worker's child; if there is none, that is why.
fn start(name: &TempName, what: &str) -> Result<(Worker, String), Skipped> {
    let mut worker = Worker::start("space", &[&name.0, what]);
    let word = worker.hear();
    if word.starts_with("needs ") { Err(word) } else { Ok((worker, word)) }
}

/// A process with PID 1, holding a lock and a permit.
fn first_of_its_kind(name: &str) {
    assert_eq!(std::process::id(), 1);
    let segment = options().attach(name).unwrap();
    let (db, pair) = (segment.semaphore("db").unwrap(), segment.mutex("pair").unwrap());
    let _permit = db.acquire(1).unwrap();
    // /proc is still that of the namespace outside, and so are its numbers.
    say(fs::read_link("/proc/self").unwrap().to_str().unwrap());
    let _guard = (listen() == "lock").then(|| pair.lock().unwrap().guard());
    say("well");
    listen();
}

pub(crate) fn equal_pids() -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let (db, pair) = (segment.semaphore("db").unwrap(), segment.mutex("pair").unwrap());
    let ((mut a, pid_a), (mut b, pid_b)) = (start(&name, "pid")?, start(&name, "pid")?);
    let others: Vec<_> = segment.participants().into_iter().filter(|it| it.pid == 1).collect();
    assert_eq!(others.len(), 2);
    assert_ne!(others[0].pid_namespace, others[1].pid_namespace);
    a.tell("lock");
    a.expect("well");
    kill_outside(&pid_b);
    b.wait_for_end();
    assert_eq!(db.reap().unwrap(), 1, "of the dead one alone");
    assert!(matches!(pair.try_lock(), Err(SyncError::Busy { pid: 1, .. })), "its holder lives");
    let (mut c, _) = start(&name, "pid")?;
    assert_eq!(db.available().unwrap(), 2);
    kill_outside(&pid_a);
    a.wait_for_end();
    c.tell("lock");
    c.expect("well");
    assert_eq!(db.reap().unwrap(), 1);
    assert_eq!(db.available().unwrap(), 3, "the third, with the same PID again, keeps its own");
    let seen = pair.statistics().unwrap();
    assert_eq!((seen.steals, seen.deposed), (1, 0));
    assert!(c.finish().success());
    Ok(())
}

fn kill_outside(pid: &str) {
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(now.tv_sec()).unwrap() * SECOND + u64::try_from(now.tv_nsec()).unwrap()
}

fn time_namespace() -> u64 {
    fs::metadata("/proc/self/ns/time").unwrap().ino()
}

fn is_refused(answer: &Result<Segment, AttachError>, here: u64, there: u64) -> bool {
    matches!(answer, Err(AttachError::TimeNamespace { found, expected, .. }) if (*found, *expected) == (there, here))
}

/// In another time: attaches in vain, then again when told to.
fn attach_twice(name: &str) {
    say(&time_namespace().to_string());
    let home = listen().parse().unwrap();
    assert!(is_refused(&options().attach(name), time_namespace(), home));
    say("refused");
    listen();
    let segment = options().attach(name).unwrap();
    drop(segment.semaphore("db").unwrap().acquire(4).unwrap());
    check_clock(&segment);
    say("attached");
    listen();
}

/// Set time goes on where it stopped, in this namespace as in the other.
fn check_clock(segment: &Segment) {
    let (block, _) = segment.state_block().unwrap();
    let word = |index: usize| block.words[index].load(Relaxed);
    assert_eq!(word(TIME_NAMESPACE), time_namespace());
    let set_time = monotonic().wrapping_add(word(CLOCK_OFFSET));
    let passed = set_time.checked_sub(word(LAST_NOW)).expect("it never goes back");
    assert!(passed < AHEAD * SECOND / 2, "it does not jump ahead either: {passed}");
}

pub(crate) fn another_time() -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let (block, _) = segment.state_block().unwrap();
    let set_time = monotonic().wrapping_add(block.words[CLOCK_OFFSET].load(Relaxed));
    block.words[LAST_NOW].store(set_time, Relaxed);
    let (mut worker, there) = start(&name, "time")?;
    let (here, there) = (time_namespace(), there.parse().unwrap());
    assert_ne!(here, there);
    worker.tell(&here.to_string());
    worker.expect("refused");
    drop(segment);
    worker.tell("nobody is attached");
    worker.expect("attached");
    assert!(is_refused(&options().attach(&name), here, there));
    assert_eq!(options().observe(&name).unwrap().participants().len(), 1, "it can be watched from here");
    worker.tell("leave");
    worker.wait_for_end();
    check_clock(&options().attach(&name).unwrap());
    Ok(())
}

fn use_inherited(segment: &Segment) {
    let refused = segment.semaphore("db").unwrap().try_acquire(1).unwrap_err();
    assert!(matches!(refused, SyncError::Enrol(AttachError::TimeNamespace { .. })), "{refused}");
    say("refused");
}

pub(crate) fn refused_child(what: &str) -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let (mut worker, word) = start(&name, what)?;
    assert_eq!(word, "refused");
    worker.wait_for_end();
    assert_eq!(segment.participants().len(), 1);
    Ok(())
}

fn hide_proc() {
    nix::unistd::chroot(&std::env::temp_dir()).unwrap();
}

/// The last participant of a segment, forked from one, cannot see its namespace any more when it enrols.
pub(crate) fn out_of_sight() -> Result<(), Skipped> {
    as_root()?;
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    let mut worker = Worker::start("space", &[&name.0, "hidden"]);
    worker.expect("done");
    worker.wait_for_end();
    Ok(())
}

fn attach_hidden(name: &str) {
    let mut segment = Some(options().attach(name).unwrap());
    let here = time_namespace();
    let (mut alone, is_alone) = std::io::pipe().unwrap();
    let mut is_alone = Some(is_alone);
    let child = Forked::new(|| {
        drop(is_alone.take());
        hide_proc();
        assert_eq!(std::io::Read::read(&mut alone, &mut [0]).unwrap(), 0);
        let segment = segment.as_ref().unwrap();
        segment.participant().unwrap();
        assert_eq!(segment.participants().len(), 1);
        let (block, _) = segment.state_block().unwrap();
        assert_eq!(block.words[TIME_NAMESPACE].load(Relaxed), here);
        assert_eq!(block.words[CLOCK_OFFSET].load(Relaxed), 0, "the same boot, though it cannot be seen");
    });
    drop(segment.take());
    drop(is_alone.take());
    child.join();
    say("done");
}

/// Attaches from a root directory without /proc, before it ever saw one.
pub(crate) fn never_seen() -> Result<(), Skipped> {
    as_root()?;
    let root = std::env::temp_dir().join(TempName::new().0.as_str());
    fs::create_dir(&root).unwrap();
    let segment = options().create(root.join("limits")).unwrap();
    let mut worker = Worker::start("unseen", &[root.to_str().unwrap()]);
    worker.expect("attached");
    assert_eq!(segment.participants().len(), 2);
    worker.kill();
    segment.remove_here().unwrap();
    fs::remove_dir(&root).unwrap();
    Ok(())
}

pub(crate) fn unseen_role(arguments: &[String]) {
    nix::unistd::chroot(arguments[0].as_str()).unwrap();
    let segment = options().attach("/limits").unwrap();
    drop(segment.semaphore("db").unwrap().acquire(4).unwrap());
    say("attached");
    listen();
}
