//! What a failed enrolment, a closed descriptor or a vanished name leaves behind: nothing that harms anybody.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use limitset::Segment;
use limitset::error::{AttachError, SyncError};
use limitset::protocol::NEVER;
use limitset::sync::LockedMutex;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};

use crate::forks::{Forked, close_all_descriptors, interrupt_every};
use crate::options;
use crate::support::{Worker, say};
use crate::{Skipped, TempName};

pub(crate) fn role(arguments: &[String]) {
    let (name, what) = (arguments[0].as_str(), arguments[1].as_str());
    // Little patience: these tests want enrolments to fail.
    let hasty = options().patience(Duration::from_millis(20));
    match what {
        "clone" => cloned_in_between(name, &hasty.create(name).unwrap()),
        "full" => full(name, &hasty.slots(1).create(name).unwrap()),
        "busy" => busy(&hasty.create(name).unwrap()),
        "numbers" => numbers(name, hasty.create(name).unwrap()),
        "page" => page(hasty.create(name).unwrap()),
        "log" => log_without_a_name(&options().create(name).unwrap()),
        "unlinked" => unlinked(name, &options().create(name).unwrap()),
        "replaced" => replaced(name, &options().create(name).unwrap()),
        "closed" => closed(name, &options().create(name).unwrap()),
        "threads" => threads(&options().create(name).unwrap()),
        "interrupted" => interrupted(&options().create(name).unwrap()),
        "refused" => refused(&options().doorbell_slice(Duration::ZERO).create(name).unwrap()),
        "returns" => returns(&options().create(name).unwrap()),
        "exec" => exec(name, &options().create(name).unwrap()),
        _ => unreachable!(),
    }
    say("done");
}

pub(crate) fn of(what: &str) -> Result<(), Skipped> {
    let name = TempName::new();
    let mut worker = Worker::start("leftover", &[&name.0, what]);
    worker.expect("done");
    assert!(worker.finish().success());
    Ok(())
}

/// Takes or gives back the init lock, byte 0, through a description of its own.
fn init_lock(file: &File, kind: libc::c_int) {
    let kind = libc::c_short::try_from(kind).unwrap();
    let range = libc::flock { l_type: kind, l_whence: 0, l_start: 0, l_len: 1, l_pid: 0 };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range)).unwrap();
}

fn opened(name: &str) -> File {
    File::options().read(true).write(true).open(Segment::path_of(name).unwrap()).unwrap()
}

/// A child whose enrolment failed keeps a descriptor for the next try. A child of its own, by a bare clone, must
/// neither enrol through it nor keep it: they would be one to the kernel.
fn cloned_in_between(name: &str, segment: &Segment) {
    let (db, file) = (segment.semaphore("db").unwrap(), opened(name));
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let (mut end, ends) = std::io::pipe().unwrap();
    let mut ends = Some(ends);
    let child = Forked::new(|| {
        drop(ends.take());
        init_lock(&file, libc::F_WRLCK);
        assert!(matches!(db.try_acquire(1), Err(SyncError::Enrol(AttachError::Busy { .. }))));
        init_lock(&file, libc::F_UNLCK);
        let (mut ready, mut readies) = std::io::pipe().unwrap();
        Forked::raw(|| {
            let permit = db.acquire(1).unwrap();
            readies.write_all(&[u8::try_from(segment.participant().unwrap().slot).unwrap()]).unwrap();
            let _ = end.read(&mut [0]);
            drop(permit);
        });
        let mut slot = [0];
        ready.read_exact(&mut slot).unwrap();
        std::mem::forget(db.acquire(2).unwrap());
        assert_ne!(segment.participant().unwrap().slot, u32::from(slot[0]));
        tells.write_all(b".").unwrap();
    });
    told.read_exact(&mut [0]).unwrap();
    child.join();
    assert_eq!(db.reap().unwrap(), 2, "of the child, which is dead; its own child lives");
    assert_eq!(db.available().unwrap(), 3);
    drop(ends.take());
}

/// A living child that found no free slot keeps nobody else from trying.
fn full(name: &str, segment: &Segment) {
    Forked::new(|| {
        assert!(matches!(segment.participant(), Err(AttachError::TooManyParticipants { .. })));
        let hasty = options().patience(Duration::from_millis(20));
        assert!(matches!(hasty.attach(name), Err(AttachError::TooManyParticipants { .. })));
    })
    .join();
}

/// A child that took a slot, and then found a block busy, is nobody; its next try makes it somebody.
fn busy(segment: &Segment) {
    let (db, (block, _)) = (segment.semaphore("db").unwrap(), segment.state_block().unwrap());
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let (mut go_on, goes_on) = std::io::pipe().unwrap();
    let mut goes_on = Some(goes_on);
    let held = block.lock(segment.participant().unwrap(), NEVER).unwrap().guard();
    let child = Forked::new(|| {
        drop(goes_on.take());
        assert!(matches!(db.try_acquire(3), Err(SyncError::Enrol(AttachError::Busy { .. }))));
        tells.write_all(b".").unwrap();
        assert_eq!(go_on.read(&mut [0]).unwrap(), 1);
        std::mem::forget(db.try_acquire(3).unwrap());
        tells.write_all(b".").unwrap();
        assert_eq!(go_on.read(&mut [0]).unwrap(), 0);
    });
    told.read_exact(&mut [0]).unwrap();
    assert_eq!(segment.participants().len(), 1, "it took a slot and gave it back");
    held.unlock().unwrap();
    goes_on.as_mut().unwrap().write_all(b".").unwrap();
    told.read_exact(&mut [0]).unwrap();
    assert_eq!(segment.participants().len(), 2);
    assert_eq!(db.reap().unwrap(), 0, "it lives");
    drop(goes_on.take());
    child.join();
    assert_eq!(db.reap().unwrap(), 3);
}

/// Descriptors were closed behind the library's back, and their numbers are files of the program now.
fn numbers(name: &str, segment: Segment) {
    let file = opened(name);
    let mut segment = Some(segment);
    Forked::new(|| {
        init_lock(&file, libc::F_WRLCK);
        assert!(segment.as_ref().unwrap().participant().is_err(), "so that a descriptor is kept for later");
        init_lock(&file, libc::F_UNLCK);
        close_all_descriptors();
        let logs: Vec<_> = (0..16).map(|_| memfd_create("log", MFdFlags::empty()).unwrap()).collect();
        let all_open = || logs.iter().all(|log| nix::sys::stat::fstat(log).is_ok());
        Forked::new(|| assert!(all_open(), "closed by a fork")).join();
        Forked::raw(|| {
            segment.as_ref().unwrap().participant().unwrap();
            assert!(all_open(), "closed by an enrolment");
        })
        .join();
        drop(segment.take());
        assert!(all_open(), "closed by the last handle");
    })
    .join();
    assert_eq!(segment.unwrap().participants().len(), 1);
}

/// A child that leaves a segment unmaps nothing of its own, though it lies where its parent's page was.
fn page(segment: Segment) {
    let path = segment.info().path.display().to_string();
    let maps = || fs::read_to_string("/proc/self/maps").unwrap();
    let pin = maps().lines().find(|line| line.ends_with(&path) && line.contains("---s")).unwrap().to_owned();
    let address = usize::from_str_radix(pin.split('-').next().unwrap(), 16).unwrap();
    let mut segment = Some(segment);
    Forked::new(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let wanted = std::ptr::without_provenance_mut(address);
        // SAFETY: by its flag it replaces nothing, and nobody uses the page.
        let own = unsafe { libc::mmap(wanted, 4096, libc::PROT_READ, flags, -1, 0) };
        assert_eq!(own, wanted, "the parent's page is not inherited");
        drop(segment.take());
        assert!(maps().contains(&format!("{address:x}-")), "the child's own page is gone");
    })
    .join();
    let parent = u64::from(std::process::id());
    assert_eq!(segment.unwrap().participants()[0].pid, parent, "nor is its parent's name");
}

/// A number that leads to a file without a name says nothing about the segment's name.
fn log_without_a_name(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    let permit = db.acquire(4).unwrap();
    Forked::new(|| {
        close_all_descriptors();
        let _logs: Vec<_> = (0..16).map(|_| memfd_create("log", MFdFlags::empty()).unwrap()).collect();
        let late = db.acquire_timeout(1, Duration::from_millis(20));
        assert!(matches!(late, Err(SyncError::TimedOut { .. })), "{late:?}");
    })
    .join();
    permit.release().unwrap();
}

fn unlinked(name: &str, segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    fs::remove_file(Segment::path_of(name).unwrap()).unwrap();
    drop(db.try_acquire(1).unwrap());
    Forked::new(|| {
        let refused = db.try_acquire(1).unwrap_err();
        assert!(matches!(refused, SyncError::Enrol(AttachError::Removed { .. })), "{refused}");
    })
    .join();
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)), "everybody is told");
}

/// A child lost all descriptors, and the name is another segment's: its slot is not to be had there.
fn replaced(name: &str, segment: &Segment) {
    let parent = segment.participant().unwrap();
    Forked::new(|| {
        close_all_descriptors();
        let path = Segment::path_of(name).unwrap();
        fs::rename(&path, path.with_extension("old")).unwrap();
        drop(options().create(name).unwrap());
        if let Ok(me) = segment.participant() {
            assert_ne!(me.slot, parent.slot, "that byte is locked in the right file");
        }
        fs::rename(path.with_extension("old"), &path).unwrap();
    })
    .join();
}

/// Whoever finds a removal cut short takes the name away only if it is still that segment's.
fn closed(name: &str, segment: &Segment) {
    let path = Segment::path_of(name).unwrap();
    let aside = path.with_extension("old");
    fs::rename(&path, &aside).unwrap();
    let new = options().create(name).unwrap();
    segment.state_block().unwrap().0.close_unlocked();
    Forked::new(|| assert!(matches!(segment.participant(), Err(AttachError::Removed { .. })))).join();
    fs::remove_file(aside).unwrap();
    assert!(path.exists(), "the new segment's");
    drop(new);
}

/// However many threads of a child come first, it is one participant.
fn threads(segment: &Segment) {
    for _ in 0..20 {
        Forked::new(|| {
            let start = Barrier::new(4);
            let enrol = || {
                start.wait();
                segment.participant().unwrap()
            };
            let found = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(enrol)).collect();
                all.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
            assert_eq!(segment.participants().len(), 2);
        })
        .join();
    }
}

/// A program that a child becomes before its first use inherits nothing of the segment.
fn exec(name: &str, _segment: &Segment) {
    Forked::new(|| {
        let script = format!("! ls -l /proc/self/fd | grep -q limitset.{name}");
        panic!("{}", Command::new("sh").args(["-c", &script]).exec());
    })
    .join();
}

/// Signals come far more often than a slice ends; the lock of a dead holder passes on all the same.
fn interrupted(segment: &Segment) {
    let pair = segment.mutex("pair").unwrap();
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let holder = Forked::new(|| {
        let _held = pair.lock().unwrap().guard();
        tells.write_all(b".").unwrap();
        nix::unistd::pause();
    });
    told.read_exact(&mut [0]).unwrap();
    let waiter = Forked::new(|| {
        interrupt_every(Duration::from_millis(1));
        assert!(matches!(pair.try_lock(), Err(SyncError::Busy { .. })));
        tells.write_all(b".").unwrap();
        assert!(matches!(pair.lock().unwrap(), LockedMutex::OwnerDied(_)));
    });
    told.read_exact(&mut [0]).unwrap();
    kill(holder.pid(), Signal::SIGKILL).unwrap();
    holder.wait();
    waiter.join();
}

/// Nobody is refused for want of permits that only the dead hold.
fn refused(segment: &Segment) {
    let db = segment.semaphore("db").unwrap();
    Forked::new(|| std::mem::forget(db.acquire(3).unwrap())).join();
    db.try_acquire(4).unwrap().release().unwrap();
}

/// The closure of an update forks, and the child returns from it: what is under way stays the parent's.
fn returns(segment: &Segment) {
    let pair = segment.mutex("pair").unwrap();
    let mut held = pair.lock().unwrap().guard();
    for (in_child, in_parent, expected) in [(true, false, [0, 0]), (false, true, [1, 0])] {
        let as_told = |well: bool| if well { Ok(()) } else { Err(SyncError::Nothing) };
        let mut is_child = false;
        let answer = held.update(|words| {
            words.set(0, 1)?;
            // SAFETY: this process has one thread.
            match unsafe { nix::unistd::fork() }.unwrap() {
                nix::unistd::ForkResult::Child => is_child = true,
                nix::unistd::ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                }
            }
            as_told(if is_child { in_child } else { in_parent })
        });
        if is_child {
            // SAFETY: ends the process; destructors are the parent's business.
            unsafe { libc::_exit(i32::from(answer.is_ok())) };
        }
        assert_eq!(answer.is_ok(), in_parent);
        assert_eq!([held.get(0).unwrap(), held.get(1).unwrap()], expected);
    }
}
