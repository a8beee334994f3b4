//! Adopting mappings of the `shared_memory` crate.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use limitset::error::{AttachError, CreateError, Malformed};
use limitset::{Segment, SegmentOptions};
use nix::fcntl::{FcntlArg, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use shared_memory::{Shmem, ShmemConf};

use super::forks::Forked;
use super::support::{Random, TempName, Worker, depth, listen, say};
use super::victim::{self, Victim};
use super::{id_of, open};

const PERMITS: u64 = 7;
/// What the first bytes of a file say while it is being adopted.
const UNFINISHED: &[u8] = b"LIMITNEW";

fn options() -> SegmentOptions {
    Segment::options().slots(8).waiters(2).mutex("pair", 2).semaphore("db", PERMITS)
}

fn create(name: &str, bytes: u64) -> Shmem {
    ShmemConf::new().os_id(id_of(name)).size(bytes.try_into().unwrap()).create().unwrap()
}

/// Whole and in order: every permit can be had at once, and the mutex guards two zeros.
fn check_use(segment: &Segment) {
    segment.semaphore("db").unwrap().try_acquire(PERMITS).unwrap().release().unwrap();
    assert_eq!(segment.mutex("pair").unwrap().snapshot().unwrap(), [0, 0]);
}

fn malformed(result: Result<Segment, CreateError>) -> Malformed {
    match result {
        Err(CreateError::Attach(AttachError::Malformed { what, .. })) => what,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn fresh() {
    let name = TempName::new();
    // More than needed, and no multiple of anything.
    let bytes = options().bytes().unwrap() + 70_001;
    let mut mapping = create(&name.0, bytes);
    assert!(mapping.is_owner());
    let segment = options().adopt(&mut mapping).unwrap();
    assert!(!mapping.is_owner());
    assert_eq!(segment.info().bytes, bytes);
    assert_eq!(segment.info().path, name.path());
    let about = fs::metadata(name.path()).unwrap();
    assert!(about.blocks() * 512 >= bytes, "the space is reserved");
    check_use(&segment);
    check_use(&Segment::attach(&name).unwrap());
    check_use(&options().open(name.path()).unwrap());

    let instance = segment.info().instance;
    drop((segment, mapping));
    assert_eq!(fs::metadata(name.path()).unwrap().ino(), about.ino(), "nobody unlinked it");
    let segment = options().adopt(&mut open(&name.0)).unwrap();
    assert_eq!(segment.info().instance, instance);
    segment.remove_here().unwrap();
    assert!(!name.path().exists());
}

pub(crate) fn existing() {
    let name = TempName::new();
    let made = options().create(&name).unwrap();
    let mut mapping = open(&name.0);
    mapping.set_owner(true);
    let adopted = options().adopt(&mut mapping).unwrap();
    assert_eq!(adopted.info().instance, made.info().instance);
    let permits = adopted.semaphore("db").unwrap().acquire(2).unwrap();
    assert_eq!(made.semaphore("db").unwrap().available().unwrap(), PERMITS - 2);
    drop(permits);
    match options().slots(9).adopt(&mut mapping) {
        Err(CreateError::Attach(AttachError::Differs { .. })) => {}
        other => panic!("{other:?}"),
    }
    drop(mapping);
    assert!(name.path().exists(), "an owner that has adopted does not unlink");
    check_use(&made);
}

pub(crate) fn too_small() {
    let name = TempName::new();
    let wanted = options().bytes().unwrap();
    let mut mapping = create(&name.0, wanted - 1);
    match options().adopt(&mut mapping) {
        Err(CreateError::TooSmall { found, needed, .. }) => {
            assert_eq!((found, needed), (wanted - 1, wanted));
        }
        other => panic!("{other:?}"),
    }
    assert!(mapping.is_owner(), "nothing was adopted, nothing given up");
    assert!(fs::read(name.path()).unwrap().iter().all(|byte| *byte == 0));
    Segment::options().slots(2).waiters(0).adopt(&mut mapping).unwrap();

    assert!(Segment::options().slots(0).bytes().is_err());
    let bad = Segment::options().slots(0).adopt(&mut mapping);
    assert!(matches!(bad, Err(CreateError::Option(_))), "{bad:?}");
}

pub(crate) fn foreign() {
    let bytes = options().bytes().unwrap();
    let last = bytes - 1;
    for (offset, foreign) in [(0, b"somebody".as_slice()), (100, b"\x01"), (4096, b"far"), (last, b"!")] {
        let name = TempName::new();
        let mut mapping = create(&name.0, bytes);
        let file = fs::File::options().write(true).open(name.path()).unwrap();
        file.write_all_at(foreign, offset).unwrap();
        let before = fs::read(name.path()).unwrap();
        let expected = match offset {
            0 => Malformed::Magic { found: *b"somebody" },
            _ => Malformed::InUse { offset },
        };
        assert_eq!(malformed(options().adopt(&mut mapping)), expected);
        assert!(mapping.is_owner());
        assert_eq!(fs::read(name.path()).unwrap(), before);
    }
    // A segment, but of another version.
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    let file = fs::File::options().write(true).open(name.path()).unwrap();
    file.write_all_at(&99u32.to_ne_bytes(), 8).unwrap();
    let what = malformed(options().adopt(&mut open(&name.0)));
    assert!(matches!(what, Malformed::FormatVersion { found: 99, .. }), "{what}");
}

pub(crate) fn renamed() {
    let name = TempName::new();
    let bytes = options().bytes().unwrap();
    let mut old = create(&name.0, bytes);
    fs::remove_file(name.path()).unwrap();
    assert!(matches!(options().adopt(&mut old), Err(CreateError::Attach(AttachError::NotFound { .. }))));
    let mut new = create(&name.0, bytes);
    assert!(matches!(options().adopt(&mut old), Err(CreateError::Attach(AttachError::Removed { .. }))));
    assert!(fs::read(name.path()).unwrap().iter().all(|byte| *byte == 0), "the new one is untouched");
    check_use(&options().adopt(&mut new).unwrap());
    old.set_owner(false);
}

pub(crate) fn busy() {
    let name = TempName::new();
    let mut mapping = create(&name.0, options().bytes().unwrap());
    let file = fs::File::options().write(true).open(name.path()).unwrap();
    let lock = libc::flock {
        l_type: libc::F_WRLCK.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let result = options().patience(Duration::from_millis(20)).adopt(&mut mapping);
    assert!(matches!(result, Err(CreateError::Attach(AttachError::Busy { .. }))), "{result:?}");
    drop(file);
    check_use(&options().adopt(&mut mapping).unwrap());
}

pub(crate) fn forked() {
    let name = TempName::new();
    let mut worker = Worker::start("adopt_forked", &[&name.0]);
    worker.expect("done");
    assert!(worker.finish().success());
    check_use(&Segment::attach(&name).unwrap());
}

pub(crate) fn forked_role(arguments: &[String]) {
    let mut mapping = Some(create(&arguments[0], options().bytes().unwrap()));
    let segment = options().adopt(mapping.as_mut().unwrap()).unwrap();
    Forked::new(|| drop(mapping.take())).join();
    check_use(&segment);
    drop((segment, mapping));
    say("done");
}

pub(crate) fn full() {
    let name = TempName::new();
    let mut worker = Worker::start("adopt_full", &[&name.0]);
    match worker.hear().as_str() {
        "done" => {}
        other => println!("SKIPPED adopting on a full file system: {other}"),
    }
    assert!(worker.finish().success());
}

/// With a /dev/shm of its own that has room for sixteen pages.
pub(crate) fn full_role(arguments: &[String]) {
    let none: Option<&str> = None;
    let small = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none))
        .and_then(|()| mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("size=64k")));
    if let Err(error) = small {
        return say(&format!("no small tmpfs can be mounted: {error}"));
    }
    let mut mapping = create(&arguments[0], 1 << 20);
    match options().adopt(&mut mapping) {
        Err(CreateError::NoSpace { needed, .. }) => assert_eq!(needed, 1 << 20),
        other => panic!("{other:?}"),
    }
    assert!(mapping.is_owner());
    say("done");
}

pub(crate) fn adopt_role(arguments: &[String]) {
    let mut mapping = open(&arguments[0]);
    say("ready");
    listen();
    let segment = options().adopt(&mut mapping).unwrap();
    say(&format!("{:x?}", segment.info().instance));
    listen();
}

pub(crate) fn at_once() {
    for _ in 0..20 {
        let name = TempName::new();
        let mut mapping = create(&name.0, options().bytes().unwrap());
        let mut workers: Vec<_> = (0..5).map(|_| Worker::start("adopt", &[&name.0])).collect();
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        workers.iter_mut().for_each(|worker| worker.tell("go"));
        let segment = options().adopt(&mut mapping).unwrap();
        let ours = format!("{:x?}", segment.info().instance);
        workers.iter_mut().for_each(|worker| worker.expect(&ours));
        assert_eq!(segment.participants().len(), 6);
        check_use(&segment);
    }
}

/// What a killed adopter left: nothing, a mark, or a segment.
fn state_of(path: &Path) -> &'static str {
    let bytes = fs::read(path).unwrap();
    if bytes.iter().all(|byte| *byte == 0) {
        "zeros"
    } else if bytes.starts_with(UNFINISHED) {
        let refused = Segment::attach(path).unwrap_err();
        assert!(matches!(refused, AttachError::Malformed { what: Malformed::Unfinished, .. }), "{refused}");
        "unfinished"
    } else {
        check_use(&Segment::attach(path).unwrap());
        "whole"
    }
}

pub(crate) fn killed() {
    let mut random = Random::new(3);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..depth(150, 2_000) {
        let name = TempName::new();
        let mut mapping = create(&name.0, options().bytes().unwrap());
        let mut worker = Worker::start("adopt", &[&name.0]);
        worker.expect("ready");
        worker.tell("go");
        std::thread::sleep(Duration::from_micros(random.below(600)));
        worker.kill();
        *seen.entry(state_of(&name.path())).or_insert(0) += 1;
        check_use(&options().adopt(&mut mapping).unwrap());
    }
    println!("left by killed adopters: {seen:?}");
}

pub(crate) fn stepped_role(arguments: &[String]) {
    // Once elsewhere, so that the run below has no first-time work of the loader in it.
    drop(options().adopt(&mut open(&arguments[1])).unwrap());
    let mut mapping = open(&arguments[0]);
    victim::stop_here();
    std::mem::forget(options().adopt(&mut mapping).unwrap());
    victim::leave();
}

/// Every state that the file passes through, in a copy of it that no living process has a lock on. The file
/// starts fresh, then as something unfinished of which nothing but the mark can be relied on.
pub(crate) fn stepped() {
    let bytes = options().bytes().unwrap();
    for start in ["zeros", "unfinished"] {
        let (name, other) = (TempName::new(), TempName::new());
        let _mapping = create(&name.0, bytes);
        let _other = create(&other.0, bytes);
        if start == "unfinished" {
            let mut left = vec![0xa5; bytes.try_into().unwrap()];
            left[..8].copy_from_slice(UNFINISHED);
            fs::File::options().write(true).open(name.path()).unwrap().write_all_at(&left, 0).unwrap();
        }
        let Some(mut victim) = Victim::start("adopt_stepped", &[&name.0, &other.0]) else {
            return println!("SKIPPED adopters killed at any instruction: tracing is not allowed here");
        };
        let file = fs::File::open(name.path()).unwrap();
        let (mut before, mut now) = (Vec::new(), vec![0; bytes.try_into().unwrap()]);
        let (mut instructions, mut states) = (0u64, std::collections::BTreeMap::new());
        while victim.step() {
            instructions += 1;
            file.read_exact_at(&mut now, 0).unwrap();
            if now != before {
                let state = adopt_a_copy(&now);
                *states.entry(state).or_insert(0) += 1;
                before.clone_from(&now);
            }
        }
        println!("from {start}: {instructions} instructions, states left by a kill: {states:?}");
        assert!(states[start] > 0 && states["unfinished"] > 1 && states["whole"] > 0, "{states:?}");
    }
}

fn adopt_a_copy(bytes: &[u8]) -> &'static str {
    let name = TempName::new();
    fs::write(name.path(), bytes).unwrap();
    let state = state_of(&name.path());
    let segment = options().adopt(&mut open(&name.0)).unwrap();
    check_use(&segment);
    state
}
