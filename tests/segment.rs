//! Segments within one process: made whole, found by name, refused with a reason, gone when removed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering::Relaxed;

use forge::Forged;
use limitset::Segment;
use limitset::error::{AttachError, BadOption, CreateError, Malformed, SyncError};
use support::TempName;

#[test]
fn what_one_handle_writes_another_reads() {
    let name = TempName::new();
    let one = Segment::options().words("mine", 2).create(&name).unwrap();
    let two = Segment::attach(&name).unwrap();
    one.words("mine").unwrap()[1].store(7, Relaxed);
    assert_eq!(two.words("mine").unwrap()[1].load(Relaxed), 7);
    assert_ne!(one.participant().unwrap(), two.participant().unwrap());
}

#[test]
fn a_segment_outlives_its_handles_and_a_slot_is_used_again_under_a_new_generation() {
    let name = TempName::new();
    let first = Segment::options().create(&name).unwrap().participant().unwrap();
    let second = Segment::attach(&name).unwrap().participant().unwrap();
    assert_eq!(second.slot, first.slot);
    assert_eq!(second.generation, first.generation + 1);
}

#[test]
fn creating_twice_is_an_error_and_opening_twice_is_not() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 3);
    let one = options.create(&name).unwrap();
    assert!(matches!(options.create(&name), Err(CreateError::Exists { .. })));
    let two = options.open(&name).unwrap();
    assert_eq!(one.info().instance, two.info().instance);
}

#[test]
fn opening_with_another_definition_names_the_first_difference() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 3).mutex("jobs", 2);
    let _one = options.create(&name).unwrap();
    for (other, says) in [
        (Segment::options().semaphore("db", 4).mutex("jobs", 2), "\"db\" of 4"),
        (Segment::options().semaphore("db", 3).mutex("jobs", 9), "\"jobs\" of 9"),
        (Segment::options().semaphore("db", 3).words("jobs", 2), "region of words \"jobs\""),
        (Segment::options().semaphore("db", 3), "labelled"),
        (Segment::options().semaphore("db", 3).mutex("tasks", 2), "\"tasks\""),
        (options.clone().slots(9), "9 slots"),
    ] {
        let error = other.open(&name).unwrap_err();
        assert!(matches!(error, CreateError::Attach(AttachError::Differs { .. })), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_path_with_a_slash_is_a_file_of_its_own() {
    let directory = std::env::temp_dir().join(TempName::new().0.as_str());
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("limits");
    let segment = Segment::options().words("mine", 1).create(&path).unwrap();
    segment.words("mine").unwrap()[0].store(5, Relaxed);
    drop(segment);
    let again = Segment::attach(&path).unwrap();
    assert_eq!(again.words("mine").unwrap()[0].load(Relaxed), 5);
    again.remove_here().unwrap();
    assert!(!path.exists());
    std::fs::remove_dir(&directory).expect("no temporary file is left");
}

#[test]
fn the_mode_is_as_asked_whatever_the_umask() {
    let name = TempName::new();
    let _private = Segment::options().create(&name).unwrap();
    assert_eq!(std::fs::metadata(name.path()).unwrap().permissions().mode() & 0o7777, 0o600);
    let shared = TempName::new();
    let group = nix::unistd::getegid().as_raw();
    let _shared = Segment::options().mode(0o660).group(group).create(&shared).unwrap();
    let about = std::fs::metadata(shared.path()).unwrap();
    assert_eq!((about.permissions().mode() & 0o7777, about.gid()), (0o660, group));
    let refused = Segment::options().mode(0o400).create(TempName::new());
    assert!(matches!(refused, Err(CreateError::Option(BadOption::Mode { .. }))));
}

#[test]
fn space_is_reserved_when_the_segment_is_made() {
    let name = TempName::new();
    let segment = Segment::options().create(&name).unwrap();
    let about = std::fs::metadata(name.path()).unwrap();
    assert_eq!(about.len(), segment.info().bytes);
    assert!(about.blocks() * 512 >= about.len(), "{} of {} bytes", about.blocks() * 512, about.len());
}

#[test]
fn what_is_not_a_segment_is_refused_with_what_was_found() {
    let name = TempName::new();
    assert!(matches!(Segment::attach(&name), Err(AttachError::NotFound { .. })));
    std::fs::write(name.path(), "hello").unwrap();
    let error = Segment::attach(&name).unwrap_err();
    assert!(matches!(error, AttachError::Malformed { what: Malformed::TooShort { found: 5, .. }, .. }));
    std::fs::write(name.path(), vec![b'x'; 8192]).unwrap();
    let error = Segment::attach(&name).unwrap_err();
    assert!(matches!(error, AttachError::Malformed { what: Malformed::Magic { .. }, .. }));
    assert!(error.to_string().contains("xxxxxxxx"), "{error}");
    std::fs::remove_file(name.path()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", name.path()).unwrap();
    let error = Segment::attach(&name).unwrap_err();
    assert!(matches!(error, AttachError::NotAFile { found: "a symbolic link", .. }), "{error}");
    assert!(matches!(
        Segment::attach("/dev/shm/."),
        Err(AttachError::NotAFile { .. } | AttachError::Name(_))
    ));
    assert!(matches!(Segment::attach("/dev/null"), Err(AttachError::NotAFile { found: "a device", .. })));
    assert!(matches!(Segment::attach("no spaces"), Err(AttachError::Name(_))));
}

#[test]
fn a_truncated_segment_is_refused() {
    let name = TempName::new();
    drop(Segment::options().create(&name).unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(name.path()).unwrap();
    file.set_len(4096).unwrap();
    let error = Segment::attach(&name).unwrap_err();
    assert!(
        matches!(error, AttachError::Malformed { what: Malformed::Size { found: 4096, .. }, .. }),
        "{error}"
    );
}

#[test]
fn removal_is_told_to_everybody_and_frees_the_name() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 1).mutex("jobs", 1);
    let old = options.create(&name).unwrap();
    let (db, jobs) = (old.semaphore("db").unwrap(), old.mutex("jobs").unwrap());
    Segment::remove(&name).unwrap();
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)));
    assert!(matches!(jobs.lock(), Err(SyncError::Removed)));
    assert!(matches!(Segment::attach(&name), Err(AttachError::NotFound { .. })));
    let new = options.open(&name).unwrap();
    assert_ne!(new.info().instance, old.info().instance);
    new.semaphore("db").unwrap().try_acquire(1).unwrap().release().unwrap();
    old.remove_here().unwrap();
    assert!(name.path().exists(), "removing the old one leaves the new one's name alone");
}

#[test]
fn a_removal_waits_for_no_holder_and_leaves_nothing_half_removed() {
    let name = TempName::new();
    let options = Segment::options().mutex("jobs", 1).semaphore("db", 1);
    let segment = options.create(&name).unwrap();
    let (jobs, db) = (segment.mutex("jobs").unwrap(), segment.semaphore("db").unwrap());
    let held = jobs.lock().unwrap().guard();
    Segment::remove(&name).unwrap();
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)));
    held.unlock().unwrap();
    assert!(matches!(jobs.lock(), Err(SyncError::Removed)));
}

#[test]
fn a_segment_can_be_removed_when_all_its_slots_are_taken() {
    let name = TempName::new();
    let segment = Segment::options().slots(1).semaphore("db", 1).create(&name).unwrap();
    Segment::remove(&name).unwrap();
    assert!(!name.path().exists());
    assert!(matches!(segment.semaphore("db").unwrap().try_acquire(1), Err(SyncError::Removed)));
}

#[test]
fn a_removal_that_was_cut_short_is_finished_by_the_next_to_attach() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 1);
    let old = options.create(&name).unwrap();
    // The remover gets as far as the first mark and dies: the state block is closed, the rest is not.
    let mut bytes = Forged::read(&name.path());
    let at = bytes.region(forge::STATE_REGION) + forge::CLOSED;
    bytes.set64(at, 1);
    bytes.write(&name.path());
    let db = old.semaphore("db").unwrap();
    drop(db.try_acquire(1).unwrap());
    let new = options.open(&name).unwrap();
    assert_ne!(new.info().instance, old.info().instance);
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)), "or both would hand out permits");
}

#[test]
fn a_removal_of_a_segment_whose_name_is_anothers_is_told_all_the_same() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 1);
    let old = options.create(&name).unwrap();
    std::fs::remove_file(name.path()).unwrap();
    let new = options.create(&name).unwrap();
    old.remove_here().unwrap();
    assert!(matches!(old.semaphore("db").unwrap().try_acquire(1), Err(SyncError::Removed)));
    drop(new.semaphore("db").unwrap().try_acquire(1).unwrap());
    assert!(name.path().exists());
}

#[test]
fn a_removal_waits_for_whoever_is_enrolling() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 1).patience(std::time::Duration::from_millis(20));
    let segment = options.create(&name).unwrap();
    // The init lock is byte 0.
    let file = std::fs::File::options().read(true).write(true).open(name.path()).unwrap();
    let init_lock = libc::flock { l_type: 1, l_whence: 0, l_start: 0, l_len: 1, l_pid: 0 };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&init_lock)).unwrap();
    assert!(matches!(options.remove(&name), Err(AttachError::Busy { .. })));
    assert!(matches!(segment.remove_here(), Err(AttachError::Busy { .. })));
    assert!(name.path().exists());
    drop(segment.semaphore("db").unwrap().try_acquire(1).unwrap());
    drop(file);
    options.remove(&name).unwrap();
}

#[test]
fn whoever_leaves_or_fails_leaves_no_descriptor_and_no_page() {
    let name = TempName::new();
    let path = name.path().display().to_string();
    let left = || {
        let open =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|it| it.unwrap().path().read_link().ok());
        let open = open.filter(|link| link.display().to_string().starts_with(&path)).count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        (open, maps.lines().filter(|line| line.contains(&path)).count())
    };
    let segment = Segment::options().slots(1).create(&name).unwrap();
    // The descriptor for questions; the mapping, and the page that keeps the slot.
    assert_eq!(left(), (1, 2));
    assert!(Segment::attach(&name).is_err());
    drop(Segment::observe(&name).unwrap());
    assert_eq!(left(), (1, 2));
    Segment::remove(&name).unwrap();
    assert_eq!(left(), (1, 2));
    drop(segment);
    assert_eq!(left(), (0, 0));
}

#[test]
fn a_newcomer_is_not_alone_with_the_owner_of_the_last_slot() {
    let name = TempName::new();
    let first = Segment::options().slots(2).semaphore("db", 4).create(&name).unwrap();
    let last = Segment::attach(&name).unwrap();
    let held = last.semaphore("db").unwrap().acquire(3).unwrap();
    drop(first);
    let newcomer = Segment::attach(&name).unwrap();
    assert_eq!((newcomer.participant().unwrap().slot, last.participant().unwrap().slot), (1, 2));
    assert_eq!(newcomer.semaphore("db").unwrap().available().unwrap(), 1);
    held.release().unwrap();
}

#[test]
fn a_participant_says_who_it_is_and_no_longer_when_it_has_left() {
    let name = TempName::new();
    let before = std::time::SystemTime::now();
    let segment = Segment::options().create(&name).unwrap();
    let found = segment.participants().remove(0);
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(found.command, comm.trim_end());
    assert!(before <= found.enrolled && found.enrolled <= std::time::SystemTime::now());
    let pid = || {
        let bytes = Forged::read(&name.path());
        bytes.get64(bytes.region(forge::SLOTS_REGION) + 8)
    };
    assert_eq!(pid(), u64::from(std::process::id()));
    drop(segment);
    assert_eq!(pid(), 0);
}

#[test]
fn an_observer_does_not_wait_for_the_other_end_of_a_fifo() {
    let name = TempName::new();
    nix::unistd::mkfifo(&name.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = support::watched("a FIFO", || Segment::observe(&name).map(drop));
    assert!(matches!(refused, Err(AttachError::NotAFile { found: "a FIFO", .. })), "{refused:?}");
}

#[test]
fn permits_given_back_under_a_busy_lock_return_as_soon_as_it_is_free() {
    use std::os::unix::fs::FileExt;
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 3).patience(std::time::Duration::from_millis(20));
    let segment = options.create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let (dropped, released) = (db.acquire(1).unwrap(), db.acquire(1).unwrap());
    // A living participant, stopped while it holds the semaphore's lock: its word says so.
    let me = segment.participant().unwrap();
    let word = me.slot | u32::try_from(me.generation).unwrap() << 12;
    let file = std::fs::File::options().write(true).open(name.path()).unwrap();
    let lock = Forged::read(&name.path()).region(forge::SEMAPHORE_REGION) as u64;
    file.write_all_at(&word.to_ne_bytes(), lock).unwrap();
    support::watched("a busy lock", || {
        assert!(matches!(db.try_acquire(1), Err(SyncError::Busy { .. })));
        assert!(matches!(released.release(), Err(SyncError::Busy { .. })));
        drop(dropped);
        assert_eq!(db.available().unwrap(), 1);
        file.write_all_at(&[0; 4], lock).unwrap();
        while db.available().unwrap() < 3 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_name_taken_away_by_a_stranger_is_noticed_when_enrolling_and_when_waiting() {
    let name = TempName::new();
    let options = Segment::options().semaphore("db", 1).doorbell_slice(std::time::Duration::from_millis(1));
    let segment = options.create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let _held = db.acquire(1).unwrap();
    std::fs::remove_file(name.path()).unwrap();
    assert!(matches!(db.acquire(1), Err(SyncError::Removed)));
    assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)));
}

#[test]
fn the_list_names_segments_and_tells_what_is_wrong_with_others() {
    let (good, bad) = (TempName::new(), TempName::new());
    let segment = Segment::options().create(&good).unwrap();
    std::fs::write(bad.path(), "junk").unwrap();
    let list = Segment::list().unwrap();
    let found = list.iter().find(|it| it.name == good.0).unwrap();
    assert_eq!(found.info.as_ref().unwrap(), &segment.info());
    let found = list.iter().find(|it| it.name == bad.0).unwrap();
    assert!(matches!(found.info, Err(AttachError::Malformed { .. })));
}

#[test]
fn participants_are_those_attached_now() {
    let name = TempName::new();
    let one = Segment::options().create(&name).unwrap();
    let two = Segment::attach(&name).unwrap();
    let observer = Segment::observe(&name).unwrap();
    let pids = |who: &[limitset::ParticipantInfo]| who.iter().map(|it| (it.slot, it.pid)).collect::<Vec<_>>();
    let me = u64::from(std::process::id());
    assert_eq!(pids(&one.participants()), [(1, me), (2, me)]);
    assert_eq!(observer.participants(), one.participants());
    drop(one);
    assert_eq!(pids(&two.participants()), [(2, me)]);
    assert_eq!(pids(&observer.participants()), [(2, me)]);
}

#[test]
fn when_all_slots_are_taken_the_next_is_told_so_and_a_free_one_is_used_again() {
    let name = TempName::new();
    let one = Segment::options().slots(2).create(&name).unwrap();
    let two = Segment::attach(&name).unwrap();
    let error = Segment::attach(&name).unwrap_err();
    assert!(matches!(error, AttachError::TooManyParticipants { slots: 2, .. }), "{error}");
    drop(one);
    assert_eq!(Segment::attach(&name).unwrap().participant().unwrap().slot, 1);
    drop(two);
}

#[test]
fn an_observer_sees_whole_states_and_changes_nothing() {
    let name = TempName::new();
    let segment = Segment::options().mutex("jobs", 2).semaphore("db", 4).create(&name).unwrap();
    let observer = Segment::observe(&name).unwrap();
    let before = std::fs::read(name.path()).unwrap();
    assert_eq!(observer.mutex("jobs").unwrap(), [0, 0]);
    assert_eq!(observer.semaphore("db").unwrap().taken, 0);
    assert_eq!(std::fs::read(name.path()).unwrap(), before);
    let held = segment.semaphore("db").unwrap().acquire(3).unwrap();
    let seen = observer.semaphore("db").unwrap();
    assert_eq!((seen.capacity, seen.taken), (4, 3));
    assert_eq!(seen.holders, [(segment.participant().unwrap(), 3)]);
    drop(held);
    assert!(observer.semaphore("db").unwrap().holders.is_empty());
}

#[test]
fn anonymous_and_private_segments_work_without_a_name() {
    for segment in [
        Segment::options().semaphore("db", 2).anonymous().unwrap(),
        Segment::options().semaphore("db", 2).private().unwrap(),
    ] {
        let db = segment.semaphore("db").unwrap();
        let held = db.try_acquire(2).unwrap();
        assert!(matches!(db.try_acquire(1), Err(SyncError::NotAvailable { wanted: 1, available: 0 })));
        drop(held);
        assert_eq!(db.available().unwrap(), 2);
        segment.remove_here().unwrap();
        assert!(matches!(db.try_acquire(1), Err(SyncError::Removed)));
    }
}

#[test]
fn labels_lead_to_the_right_kind_or_to_an_error_that_says_which() {
    let segment = Segment::options().mutex("jobs", 1).private().unwrap();
    let error = segment.semaphore("jobs").unwrap_err().to_string();
    assert!(error.contains("expected a semaphore, found mutex \"jobs\""), "{error}");
    let error = segment.mutex("nothing").unwrap_err().to_string();
    assert!(error.contains("no region \"nothing\""), "{error}");
}
