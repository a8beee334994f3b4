//! Children of every kind, each seen from its parent.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc;

use limitset::error::{AttachError, SyncError};
use limitset::sync::LockedMutex;
use limitset::{LockStatistics, Participant, Segment};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{self, Pid};

use crate::forks::{Forked, close_all_descriptors};
use crate::support::{ROLE, say};
use crate::{as_root, options};

pub(crate) fn role(arguments: &[String]) {
    let (name, what) = (arguments[0].as_str(), arguments[1].as_str());
    let create = || options().create(name).unwrap();
    let needs_root = ["anonymous_daemon", "all_dropped", "beyond_reach"].contains(&what);
    if let Some(why) = needs_root.then(as_root).and_then(Result::err) {
        return say(&why);
    }
    // If something hangs and the test is ended, so is this; its children then see their pipes close.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    match what {
        "locked" => locked(&create()),
        "bare_clone" => bare_clone(&create()),
        "exec" => exec(name, &create()),
        "chain" => chain(&create()),
        "another_file" => another_file(&create()),
        "daemon" => daemon(&create()),
        "anonymous_daemon" => daemon(&options().anonymous().unwrap()),
        "all_dropped" => {
            // Where even root may not, the test cannot be.
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
                return say(&format!("needs mount namespaces: {error}"));
            }
            all_dropped(&create());
        }
        "beyond_reach" => beyond_reach(&create()),
        "many" => many(&options().slots(12).create(name).unwrap()),
        "storm" => storm(name, &options().slots(512).create(name).unwrap()),
        _ => unreachable!(),
    }
    say("done");
}

/// One child comes and goes while a thread of the parent is in the middle of an update; another waits for the
/// end of it.
fn locked(segment: &Segment) {
    let pair = &segment.mutex("pair").unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut held = pair.lock().unwrap().guard();
            held.update(|words| {
                words.set(0, 1)?;
                inside.send(()).unwrap();
                may_go_on.recv().unwrap();
                words.set(1, 1)
            })
            .unwrap();
            held.unlock().unwrap();
        });
        is_inside.recv().unwrap();
        Forked::new(|| assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })))).join();
        Forked::new(|| ()).join();
        assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })), "no child's end breaks it");
        let (mut told, mut tells) = std::io::pipe().unwrap();
        let child = Forked::new(|| {
            assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
            tells.write_all(b".").unwrap();
            let LockedMutex::Clean(mut held) = pair.lock().unwrap() else { panic!("nobody died") };
            assert_eq!((held.get(0).unwrap(), held.get(1).unwrap()), (1, 1));
            held.update(|words| words.set(1, 2)).unwrap();
        });
        told.read_exact(&mut [0]).unwrap();
        go_on.send(()).unwrap();
        child.join();
    });
    assert_eq!(pair.snapshot().unwrap(), [1, 2]);
    // The last child ended without unlocking by hand, but its guard was dropped in order.
    assert_eq!(pair.statistics().unwrap(), LockStatistics::default());
}

fn bare_clone(segment: &Segment) {
    let (db, pair) = (segment.semaphore("db").unwrap(), segment.mutex("pair").unwrap());
    let parent = segment.participant().unwrap();
    let mut permit = Some(db.acquire(1).unwrap());
    let mut guard = Some(pair.lock().unwrap().guard());
    Forked::raw(|| {
        let own = db.acquire(2).unwrap();
        assert_ne!(segment.participant().unwrap(), parent);
        assert!(matches!(permit.take().unwrap().release(), Err(SyncError::Forked)));
        assert!(matches!(guard.take().unwrap().unlock(), Err(SyncError::Forked)));
        assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
        std::mem::forget(own);
    })
    .join();
    assert_eq!(db.reap().unwrap(), 2, "the child died with permits of its own");
    guard.take().unwrap().unlock().unwrap();
    permit.take().unwrap().release().unwrap();
    assert_eq!(db.available().unwrap(), 4);
}

fn exec(name: &str, segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let permit = db.acquire(1).unwrap();
    Forked::new(|| {
        std::mem::forget(db.acquire(1).unwrap());
        let mut program = Command::new(std::env::current_exe().unwrap());
        panic!("{}", program.env(ROLE, "visit").args([name, "3"]).exec());
    })
    .join();
    db.reap().unwrap();
    assert_eq!(db.available().unwrap(), 3, "neither the child nor the program holds anything");
    permit.release().unwrap();
}

/// A program run from a participant: what that held before is free, what the parent holds is not.
pub(crate) fn visit_role(arguments: &[String]) {
    let segment = options().attach(&arguments[0]).unwrap();
    let db = segment.semaphore("db").unwrap();
    std::mem::forget(db.acquire(arguments[1].parse().unwrap()).unwrap());
    assert_eq!(db.available().unwrap(), 0);
    assert_eq!(segment.participants().len(), 2);
}

fn chain(segment: &Segment) {
    link(segment, &[]);
    let db = segment.semaphore("db").unwrap();
    assert_eq!(db.reap().unwrap(), 3, "of three dead descendants");
    assert_eq!(db.state().unwrap().holders, [(segment.participant().unwrap(), 1)]);
}

fn link(segment: &Segment, ancestors: &[Participant]) {
    let db = segment.semaphore("db").unwrap();
    std::mem::forget(db.acquire(1).unwrap());
    let me = segment.participant().unwrap();
    assert!(!ancestors.contains(&me));
    let line = [ancestors, &[me]].concat();
    if line.len() == 4 {
        assert_eq!(db.state().unwrap().holders.len(), 4);
        assert_eq!(db.reap().unwrap(), 0, "all of them live");
        return;
    }
    let next = || link(segment, &line);
    if line.len().is_multiple_of(2) { Forked::raw(next) } else { Forked::new(next) }.join();
}

/// After all descriptors were closed, their numbers lead to another segment, in which other slots are free.
fn another_file(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let (mut end, ends) = std::io::pipe().unwrap();
    let mut ends = Some(ends);
    let child = Forked::new(|| {
        drop(ends.take());
        let _permit = db.acquire(3).unwrap();
        tells.write_all(b".").unwrap();
        let _ = end.read(&mut [0]);
    });
    told.read_exact(&mut [0]).unwrap();
    // The last end of the pipe stays open, out of the way, or the child would die in truth.
    let kept = ends.take().map(OwnedFd::from).unwrap();
    unistd::dup2_stdin(&kept).unwrap();
    close_all_descriptors();
    std::mem::forget((kept, told, tells, end));
    let others: Vec<_> = (0..4).map(|_| options().anonymous().unwrap()).collect();
    assert_eq!(db.reap().unwrap(), 0, "the child lives");
    assert_eq!(segment.participants().len(), 2);
    assert_eq!(others[0].participants().len(), 1);
    kill(child.pid(), Signal::SIGKILL).unwrap();
    child.wait();
    assert_eq!(db.reap().unwrap(), 3);
}

/// A daemon, made as the books say; its first use of the segment comes after all that.
fn daemon(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let notes = segment.words("notes").unwrap();
    let permit = db.acquire(1).unwrap();
    let worker = unistd::getpid();
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    Forked::new(|| {
        unistd::setsid().unwrap();
        Forked::new(|| {
            become_a_daemon();
            std::mem::forget(db.acquire(2).unwrap());
            assert_eq!(db.available().unwrap(), 1);
            notes[0].store(1, SeqCst);
            while notes[0].load(SeqCst) == 1 && is_there(worker) {
                std::thread::yield_now();
            }
        });
    })
    .join();
    while notes[0].load(SeqCst) == 0 {
        let ended = waitpid(None, Some(WaitPidFlag::WNOHANG)).unwrap();
        assert_eq!(ended, WaitStatus::StillAlive, "the daemon could not use the segment");
        std::thread::yield_now();
    }
    assert_eq!(db.reap().unwrap(), 0, "the daemon lives");
    assert_eq!(segment.participants().len(), 2);
    notes[0].store(2, SeqCst);
    assert!(matches!(waitpid(None, None).unwrap(), WaitStatus::Exited(_, 0)));
    assert_eq!(db.reap().unwrap(), 2);
    permit.release().unwrap();
}

fn become_a_daemon() {
    close_all_descriptors();
    std::env::set_current_dir("/").unwrap();
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    unistd::dup2_stdin(&nothing).unwrap();
    unistd::dup2_stdout(&nothing).unwrap();
    // Standard error stays, for what may go wrong here. Files that can be locked, as log files can, now have
    // the numbers that were closed.
    let logs: Vec<_> = (0..8).map(|_| memfd_create("log", MFdFlags::empty()).unwrap()).collect();
    std::mem::forget((nothing, logs));
}

fn is_there(process: Pid) -> bool {
    kill(process, None).is_ok()
}

/// As servers do at their start, and thoroughly: another root, no mounts to speak of, another user.
fn drop_everything() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let empty = std::env::temp_dir();
    for covered in ["/dev/shm".as_ref(), "/proc".as_ref(), empty.as_path()] {
        mount(Some("tmpfs"), covered, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    }
    unistd::chroot(&empty).unwrap();
    std::env::set_current_dir("/").unwrap();
    become_nobody();
}

fn become_nobody() {
    let nobody = 65_534;
    unistd::setgroups(&[]).unwrap();
    unistd::setgid(nobody.into()).unwrap();
    unistd::setuid(nobody.into()).unwrap();
}

/// Two children without anything: the second sees the first live, and sees it die with the lock and a permit.
fn all_dropped(segment: &Segment) {
    let (db, pair) = (segment.semaphore("db").unwrap(), segment.mutex("pair").unwrap());
    let permit = db.acquire(1).unwrap();
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let (mut end, ends) = std::io::pipe().unwrap();
    let mut ends = Some(ends);
    let first = Forked::new(|| {
        drop(ends.take());
        drop_everything();
        let _held = (pair.lock().unwrap().guard(), db.acquire(1).unwrap());
        tells.write_all(b".").unwrap();
        let _ = end.read(&mut [0]);
    });
    told.read_exact(&mut [0]).unwrap();
    let second = Forked::new(|| {
        drop_everything();
        assert_eq!(db.reap().unwrap(), 0, "everybody lives");
        assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
        tells.write_all(b".").unwrap();
        assert!(matches!(pair.lock().unwrap(), LockedMutex::OwnerDied(_)));
        std::mem::forget(db.acquire(3).unwrap());
    });
    told.read_exact(&mut [0]).unwrap();
    kill(first.pid(), Signal::SIGKILL).unwrap();
    first.wait();
    second.join();
    assert_eq!(db.reap().unwrap(), 3);
    permit.release().unwrap();
}

/// Who is forked by a process that could not open the segment any more cannot enrol; but it is told, and
/// nobody else is harmed.
fn beyond_reach(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    Forked::new(|| {
        become_nobody();
        let own = db.acquire(2).unwrap();
        Forked::new(|| {
            let refused = db.try_acquire(1).unwrap_err();
            assert!(matches!(refused, SyncError::Enrol(AttachError::Permission { .. })), "{refused}");
        })
        .join();
        assert_eq!(db.reap().unwrap(), 0);
        own.release().unwrap();
    })
    .join();
    assert_eq!(db.available().unwrap(), 4);
}

fn many(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let work = |number: u32| {
        for _ in 0..50 {
            db.acquire(1).unwrap().release().unwrap();
        }
        if number.is_multiple_of(3) {
            std::mem::forget(db.acquire(1).unwrap());
        }
    };
    let mut alive = VecDeque::new();
    for number in 0..200 {
        if number >= 8 {
            alive.pop_front().map(Forked::join).unwrap();
        }
        alive.push_back(Forked::new(|| work(number)));
    }
    alive.into_iter().for_each(Forked::join);
    db.reap().unwrap();
    assert_eq!(db.available().unwrap(), 4);
    assert_eq!(segment.participants().len(), 1);
    assert_eq!(db.statistics().unwrap().deposed, 0);
}

/// Threads attach and leave all the time. Children forked meanwhile live on, some as participants; when the
/// threads are gone, only those are.
fn storm(name: &str, segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let stop = AtomicBool::new(false);
    let (mut told, tells) = std::io::pipe().unwrap();
    let (mut end, ends) = std::io::pipe().unwrap();
    let (mut tells, mut ends) = (Some(tells), Some(ends));
    let mut children = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(options().attach(name).unwrap());
                }
            });
        }
        for number in 0..150 {
            children.push(Forked::new(|| {
                drop(ends.take());
                if number % 3 == 0 {
                    db.acquire(1).unwrap().release().unwrap();
                }
                // From here on it has nothing of its parent's, if it ever had.
                tells.take().unwrap().write_all(b".").unwrap();
                // Lives until the worker is gone or closes its end.
                assert_eq!(end.read(&mut [0]).unwrap(), 0);
            }));
        }
        stop.store(true, Relaxed);
    });
    drop(tells.take());
    told.read_exact(&mut [0; 150]).unwrap();
    let users = children.iter().step_by(3).map(Forked::pid).chain([unistd::getpid()]);
    let mut expected: Vec<_> = users.map(|pid| u64::try_from(pid.as_raw()).unwrap()).collect();
    let mut found: Vec<_> = segment.participants().iter().map(|it| it.pid).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "0 is a slot that was given up and is still held");
    drop(ends.take());
    children.into_iter().for_each(Forked::join);
    assert_eq!(segment.participants().len(), 1);
}
