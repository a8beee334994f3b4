//! Files that lose their name behind the back of the processes that use them: moved, replaced, linked twice; and paths
//! that only seem to have lost their file, because a process sees other mounts or another root directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limitset::error::{AttachError, SyncError};
use limitset::{AcquireError, LimitSet, ResourceLimit, Segment};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::forks::Forked;
use crate::support::{TempName, Worker, listen, say};
use crate::{Skipped, as_root, options};

/// A set of one permit, whose sleepers look at the name after every slice.
fn open(name: &str) -> LimitSet {
    let options = Segment::options().slots(8).waiters(4).doorbell_slice(Duration::from_millis(1));
    LimitSet::builder().limit(ResourceLimit::new("db", 1)).segment(options).open(name).unwrap()
}

/// A second name of a file, taken away at the end.
struct Aside(PathBuf);

impl Aside {
    fn of(name: &TempName) -> Self {
        Self(name.path().with_file_name(format!("aside.{}", name.0)))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Role: uses a set as it is told to.
pub(crate) fn role(arguments: &[String]) {
    let (name, what) = (arguments[0].as_str(), arguments[1].as_str());
    match what {
        "holds" => {
            let set = open(name);
            let _held = set.try_acquire(()).unwrap();
            say("holds");
            listen();
            say(&format!("{:?}", set.try_acquire(()).map(drop).unwrap_err()));
        }
        "enrols" => enrol_in_a_child(name),
        "mounted" => use_through_a_mount(Path::new(name)),
        _ => see_something_else(name, what),
    }
}

/// Takes the name from a file.
fn take_name(name: &TempName, aside: &Aside, how: &str) {
    let path = name.path();
    match how {
        "moved" => fs::rename(&path, &aside.0).unwrap(),
        "replaced" => {
            // In one step: there is no moment without a file of that name.
            let other = TempName::new();
            drop(open(&other.0));
            fs::hard_link(&path, &aside.0).unwrap();
            fs::rename(other.path(), &path).unwrap();
        }
        "linked" | "leftover" => {
            fs::hard_link(&path, &aside.0).unwrap();
            fs::remove_file(&path).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// One process waits and notices; all others are told, and the name belongs to a set of its own.
pub(crate) fn of(how: &str) -> Result<(), Skipped> {
    let name = TempName::new();
    let aside = match how {
        "leftover" => Aside(name.path().with_file_name(format!(".limitset.{}.new", name.0))),
        _ => Aside::of(&name),
    };
    let waits = open(&name.0);
    let bystander = open(&name.0);
    let mut holder = Worker::start("named", &[&name.0, "holds"]);
    holder.expect("holds");
    take_name(&name, &aside, how);
    let error = waits.acquire(()).map(drop).unwrap_err();
    assert!(matches!(error, AcquireError::Removed), "{error}");
    let told = bystander.try_acquire(()).map(drop).unwrap_err();
    assert!(matches!(told, AcquireError::Removed), "{told}");
    holder.tell("ask");
    holder.expect("Removed");
    holder.wait_for_end();
    let new = open(&name.0);
    let held = new.try_acquire(()).unwrap();
    let full = new.acquire_timeout((), Duration::from_millis(3)).map(drop).unwrap_err();
    assert!(matches!(full, AcquireError::TimedOut(_)), "the new file is whole: {full}");
    held.release().unwrap();
    Ok(())
}

/// A link beside the name changes nothing.
pub(crate) fn second_link() -> Result<(), Skipped> {
    let name = TempName::new();
    let (aside, set) = (Aside::of(&name), open(&name.0));
    let held = set.try_acquire(()).unwrap();
    fs::hard_link(name.path(), &aside.0).unwrap();
    let late = set.acquire_timeout((), Duration::from_millis(5)).map(drop).unwrap_err();
    assert!(matches!(late, AcquireError::TimedOut(_)), "{late}");
    held.release().unwrap();
    fs::remove_file(&aside.0).unwrap();
    set.reap().unwrap();
    drop(set.try_acquire(()).unwrap());
    Ok(())
}

/// The file that was moved away is closed: opening it by its new name finds no set.
pub(crate) fn new_name() -> Result<(), Skipped> {
    let name = TempName::new();
    let (aside, set) = (Aside::of(&name), open(&name.0));
    fs::rename(name.path(), &aside.0).unwrap();
    assert!(set.reap().is_err(), "a sweep notices");
    assert!(matches!(LimitSet::attach(&aside.0), Err(AttachError::NotFound { .. })), "and it is taken away");
    assert!(!aside.0.exists());
    Ok(())
}

pub(crate) fn by_enrolling() -> Result<(), Skipped> {
    let name = TempName::new();
    let aside = Aside::of(&name);
    let mut worker = Worker::start("named", &[&name.0, "enrols"]);
    worker.expect("attached");
    fs::rename(name.path(), &aside.0).unwrap();
    worker.tell("fork");
    worker.expect("done");
    worker.wait_for_end();
    Ok(())
}

/// Nobody sweeps: a forked child notices at its first use.
fn enrol_in_a_child(name: &str) {
    let segment = options().doorbell_slice(Duration::from_secs(3_600)).create(name).unwrap();
    let db = segment.semaphore("db").unwrap();
    say("attached");
    listen();
    drop(db.try_acquire(1).unwrap());
    Forked::new(|| {
        let refused = db.try_acquire(1).unwrap_err();
        assert!(matches!(refused, SyncError::Enrol(AttachError::Removed { .. })), "{refused}");
    })
    .join();
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)), "every process is told");
    say("done");
}

/// Goes where the path of the set leads elsewhere, and looks for dead participants there.
fn see_something_else(name: &str, what: &str) {
    let set = open(name);
    let path = Segment::path_of(name).unwrap();
    if what == "root" {
        nix::unistd::chroot(&std::env::temp_dir()).unwrap();
    } else {
        if let Err(error) = private_mounts() {
            return say(&format!("needs mounts: {error}"));
        }
        match what {
            "directory" => {
                let none: Option<&str> = None;
                mount(Some("tmpfs"), path.parent().unwrap(), Some("tmpfs"), MsFlags::empty(), none).unwrap();
                set.reap().unwrap();
                // Now with another set of the same name.
                drop(open(name));
            }
            "file" => {
                let other = TempName::new();
                drop(open(&other.0));
                bind(&other.path(), &path);
            }
            other => panic!("{other}"),
        }
    }
    for _ in 0..3 {
        set.reap().unwrap();
    }
    let late = set.acquire_timeout((), Duration::from_millis(5)).map(drop).unwrap_err();
    say(&format!("{}", matches!(late, AcquireError::TimedOut(_))));
    // Without its last name the file is gone for every process, whatever it sees.
    listen();
    let gone = set.acquire(()).map(drop).unwrap_err();
    say(&format!("{gone:?}"));
}

pub(crate) fn unseen(what: &str) -> Result<(), Skipped> {
    as_root()?;
    let name = TempName::new();
    let set = open(&name.0);
    let held = set.try_acquire(()).unwrap();
    let mut worker = Worker::start("named", &[&name.0, what]);
    let word = worker.hear();
    if word.starts_with("needs ") {
        return Err(word);
    }
    assert_eq!(word, "true");
    held.release().unwrap();
    let held = set.try_acquire(()).unwrap();
    fs::remove_file(name.path()).unwrap();
    worker.tell("again");
    worker.expect("Removed");
    worker.wait_for_end();
    drop(held);
    Ok(())
}

fn private_mounts() -> nix::Result<()> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
}

fn bind(from: &Path, to: &Path) {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).unwrap();
}

/// Attaches by a path through a bind mount of the directory.
fn use_through_a_mount(path: &Path) {
    let segments = path.parent().unwrap();
    if let Err(error) = private_mounts() {
        return say(&format!("needs mounts: {error}"));
    }
    let elsewhere = std::env::temp_dir().join(TempName::new().0.as_str());
    fs::create_dir(&elsewhere).unwrap();
    bind(segments, &elsewhere);
    let set = open(elsewhere.join(path.file_name().unwrap()).to_str().unwrap());
    say("attached");
    listen();
    say(&format!("{:?}", set.acquire(()).map(drop).unwrap_err()));
    drop(set);
    umount2(&elsewhere, MntFlags::MNT_DETACH).unwrap();
    fs::remove_dir(&elsewhere).unwrap();
}

/// Nobody but the process with the other mount looks.
pub(crate) fn through_a_mount() -> Result<(), Skipped> {
    as_root()?;
    let name = TempName::new();
    let (aside, set) = (Aside::of(&name), open(&name.0));
    let held = set.try_acquire(()).unwrap();
    let mut worker = Worker::start("named", &[name.path().to_str().unwrap(), "mounted"]);
    let word = worker.hear();
    if word.starts_with("needs ") {
        return Err(word);
    }
    assert_eq!(word, "attached");
    fs::rename(name.path(), &aside.0).unwrap();
    worker.tell("ask");
    worker.expect("Removed");
    worker.wait_for_end();
    drop(held);
    assert!(matches!(set.try_acquire(()).map(drop), Err(AcquireError::Removed)), "every process is told");
    Ok(())
}
