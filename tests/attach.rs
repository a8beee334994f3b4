//! Everything that can be wrong with a segment, and the answer to it.
//!
//! Each case is a row of the table in docs/caveats.md, which this test writes (LIMITSET_BLESS=1) and compares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;
#[path = "support/victim.rs"]
mod victim;

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use forge::{Forged, MUTEX_REGION, SEMAPHORE_REGION, SLOTS_REGION, STATE_REGION};
use limitset::error::{AttachError, SyncError};
use limitset::{Segment, SegmentOptions};
use nix::fcntl::{FcntlArg, fcntl};
use support::{TempName, Worker, listen, say};
use victim::Victim;

fn main() {
    support::main(
        &[
            ("attach", attach_role),
            ("remove", remove_role),
            ("create", create_role),
            ("remove_traced", remove_traced_role),
            ("attach_traced", attach_traced_role),
            ("full_tmpfs", full_tmpfs_role),
            ("truncated", truncated_role),
        ],
        vec![
            ("every_bad_segment_has_its_answer_and_the_table_says_so", matrix),
            ("a_creator_killed_at_any_system_call_leaves_a_whole_segment_or_none", killed_creator),
            ("a_remover_killed_at_any_system_call_leaves_no_second_segment", killed_remover),
            ("a_segment_replaced_while_attaching_is_never_mixed_up", replaced_while_attaching),
            ("truncation_after_attaching_is_a_bus_error_and_impossible_when_anonymous", truncation),
        ],
    );
}

fn options() -> SegmentOptions {
    Segment::options().slots(2).waiters(2).limits(1).mutex("jobs", 2).semaphore("db", 3)
}

// ---- the table ----

/// A bad segment, and the error that attaching to it returned.
struct Row {
    what: &'static str,
    answer: Result<String, String>,
}

fn matrix() {
    let mut rows = Vec::new();
    for (what, variant, change) in forgeries() {
        let name = TempName::new();
        drop(options().create(&name).unwrap());
        let mut bytes = Forged::read(&name.path());
        change(&mut bytes);
        bytes.write(&name.path());
        rows.push(judge(what, variant, &name, Segment::attach(&name).map(drop)));
        // An observer is told the same, unless the damage is in words that it does not look at.
        let listed = Segment::list().unwrap().into_iter().find(|it| it.name == name.0);
        assert!(variant == "Damaged" || listed.is_none_or(|it| it.info.is_err()), "{what}: observed");
    }
    others(&mut rows);
    assert!(rows.len() >= 45, "{} cases", rows.len());
    support::proof(
        "5,6",
        "bad segments, names and circumstances",
        &format!("{} tried, each its typed error", rows.len()),
    );
    let wrong: Vec<_> = rows.iter().filter_map(|row| row.answer.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    compare_with_document(&rows);
}

fn judge<T, E: std::fmt::Debug + std::fmt::Display>(
    what: &'static str,
    variant: &str,
    name: &TempName,
    found: Result<T, E>,
) -> Row {
    let answer = match found {
        Ok(_) => Err(format!("{what}: was accepted")),
        // The name of the variant, wherever it is nested.
        Err(error) if format!("{error:?}").contains(variant) => Ok(anonymous(&error.to_string(), name)),
        Err(error) => Err(format!("{what}: expected {variant}, found {error:?}")),
    };
    Row { what, answer }
}

/// The message without what differs from run to run.
fn anonymous(message: &str, name: &TempName) -> String {
    let message = message.replace(&name.path().display().to_string(), "NAME").replace(&name.0, "NAME");
    let mut text = String::new();
    let mut rest = message.as_str();
    while let Some(at) = rest.find("0x") {
        text.push_str(&rest[..at + 2]);
        rest = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
        text.push('…');
    }
    text + rest
}

type Change = fn(&mut Forged);

/// A change with the checksum made right, so that only the later checks can find it.
macro_rules! sealed {
    ($change:expr) => {
        |bytes: &mut Forged| {
            let change: Change = $change;
            change(bytes);
            bytes.seal();
        }
    };
}

fn forgeries() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("an empty file", "TooShort", |b| b.0.clear()),
        ("100 bytes of a segment", "TooShort", |b| b.0.truncate(100)),
        ("another program's file", "Magic", |b| b.0.fill(b'x')),
        ("a file of zeros", "Magic", |b| b.0.fill(0)),
        ("an older format", "FormatVersion", sealed!(|b| b.set32(forge::FORMAT_VERSION, 1))),
        ("a newer format", "FormatVersion", sealed!(|b| b.set32(forge::FORMAT_VERSION, 999))),
        ("another byte order", "ByteOrder", |b| {
            b.0[8..forge::HEADER_BYTES].chunks_mut(4).for_each(<[u8]>::reverse);
        }),
        ("another word size", "Machine", sealed!(|b| b.set32(forge::WORD_BYTES, 4))),
        ("another line size", "Machine", sealed!(|b| b.set32(forge::LINE_BYTES, 64))),
        ("another build's layout", "LayoutHash", sealed!(|b| b.set64(forge::LAYOUT_HASH, 1))),
        ("a flipped bit in the header", "Checksum", |b| b.0[1000] ^= 1),
        ("another clock", "Clock", sealed!(|b| b.set32(forge::CLOCK, 9))),
        ("a file cut short", "Size", |b| b.0.truncate(2048)),
        ("a file that grew", "Size", |b| b.0.resize(b.0.len() + 4096, 0)),
        ("a size that lies", "Size", sealed!(|b| b.set64(forge::TOTAL_BYTES, 1 << 40))),
        ("no slots", "Count", sealed!(|b| b.set32(forge::SLOTS, 0))),
        ("too many slots", "Count", sealed!(|b| b.set32(forge::SLOTS, 5000))),
        ("too many limits", "Count", sealed!(|b| b.set32(forge::LIMITS, 65))),
        ("too many regions", "Count", sealed!(|b| b.set32(forge::REGIONS, 99))),
        ("more slots than there is room for", "Region", sealed!(|b| b.set32(forge::SLOTS, 100))),
        ("a region missing", "RegionMissing", sealed!(|b| b.set32(forge::REGIONS, 2))),
        (
            "a region out of range",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(SEMAPHORE_REGION);
                b.set64(at + 8, 1 << 50);
            }),
        ),
        (
            "a region too long",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(SEMAPHORE_REGION);
                b.set64(at + 16, u64::MAX);
            }),
        ),
        (
            "a region too short",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(SLOTS_REGION);
                b.set64(at + 16, 128);
            }),
        ),
        (
            "overlapping regions",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(SLOTS_REGION);
                b.set64(at + 8, b.region(STATE_REGION) as u64);
            }),
        ),
        (
            "a region over the header",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(STATE_REGION);
                b.set64(at + 8, 0);
            }),
        ),
        (
            "a region askew",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(MUTEX_REGION);
                b.set64(at + 8, b.region(MUTEX_REGION) as u64 + 8);
            }),
        ),
        (
            "a region twice",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(MUTEX_REGION);
                b.set32(at, STATE_REGION);
                b.set32(at + 28, b.get32(b.entry_of(STATE_REGION) + 28));
            }),
        ),
        (
            "a region of another version",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(MUTEX_REGION);
                b.set32(at + 4, 9);
            }),
        ),
        (
            "too small a journal",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(STATE_REGION);
                b.set32(at + 24, 1);
            }),
        ),
        (
            "more words than there is room for",
            "Region",
            sealed!(|b| {
                let at = b.entry_of(MUTEX_REGION);
                b.set32(at + 28, u32::MAX);
            }),
        ),
        ("a journal longer than itself", "Damaged", |b| {
            let at = b.region(STATE_REGION) + forge::CHANGE;
            b.set64(at, u64::MAX);
        }),
        ("a journal with an entry longer than itself", "Damaged", |b| {
            let block = b.region(STATE_REGION);
            b.set64(block + forge::CHANGE, 2);
            b.set64(block + forge::JOURNAL + 8, forge::description(1, u32::MAX.into()));
        }),
        ("a journal with an entry about no word", "Damaged", |b| {
            let block = b.region(STATE_REGION);
            b.set64(block + forge::CHANGE, 2);
            b.set64(block + forge::JOURNAL + 8, forge::description(1, 0));
        }),
        ("a journal that names a word that does not exist", "Damaged", |b| {
            let block = b.region(STATE_REGION);
            b.set64(block + forge::CHANGE, 2);
            b.set64(block + forge::JOURNAL + 8, forge::description(u32::MAX as usize, 1));
        }),
        ("a removal that was cut short", "NotFound", |b| {
            let at = b.region(STATE_REGION) + forge::CLOSED;
            b.set64(at, 1);
        }),
    ]
}

/// Cases that are not a matter of bytes.
fn others(rows: &mut Vec<Row>) {
    let mut try_at = |what, variant, make: &dyn Fn(&Path)| {
        let name = TempName::new();
        make(&name.path());
        rows.push(judge(what, variant, &name, Segment::attach(&name).map(drop)));
        let _ = std::fs::remove_dir(name.path());
    };
    try_at("nothing", "NotFound", &|_| {});
    try_at("a directory", "NotAFile", &|path| std::fs::create_dir(path).unwrap());
    try_at("a symbolic link", "NotAFile", &|path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap());
    try_at("a FIFO", "NotAFile", &|path| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    });
    try_at("a socket", "NotAFile", &|path| {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    });

    let name = TempName::new();
    rows.push(judge("a device", "NotAFile", &name, Segment::attach("/dev/zero")));
    rows.push(judge(
        "a file that only looks like one",
        "TooShort",
        &name,
        Segment::attach("/proc/self/stat"),
    ));
    for bad in ["", ".hidden", "-rf", "two words", "dir/"] {
        rows.push(judge("a name against the rules", "BadName", &name, Segment::attach(bad)));
    }

    let held = options().create(&name).unwrap();
    rows.push(judge("created twice", "Exists", &name, options().create(&name)));
    rows.push(judge("another definition", "Differs", &name, options().slots(9).open(&name)));
    let second = loop {
        // A program that another test is just spawning may still have a copy of the last enrolment's descriptor.
        match Segment::attach(&name) {
            Err(AttachError::TooManyParticipants { .. }) => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    };
    rows.push(judge("all slots taken", "TooManyParticipants", &name, Segment::attach(&name)));
    drop(second);

    // As if a process were stopped in the middle of enrolling: the init lock is byte 0.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(name.path()).unwrap();
    let lock = libc::flock { l_type: 1, l_whence: 0, l_start: 0, l_len: 1, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let hasty = Segment::options().patience(Duration::from_millis(20));
    rows.push(judge("a process stopped while attaching", "Busy", &name, hasty.attach(&name)));
    drop(file);

    let mut bytes = Forged::read(&name.path());
    let at = bytes.word(STATE_REGION, forge::TIME_NAMESPACE);
    bytes.set64(at, 12_345);
    bytes.write(&name.path());
    rows.push(stable(judge(
        "in use in another time namespace",
        "TimeNamespace",
        &name,
        Segment::attach(&name),
    )));
    drop(held);
    others_for_root(rows);
}

/// Namespace numbers differ from boot to boot.
fn stable(mut row: Row) -> Row {
    row.answer = row.answer.map(|text| {
        let digits: String = text.split("this process is in ").nth(1).unwrap_or_default().to_owned();
        let number = digits.split(',').next().unwrap_or_default();
        text.replace(number, "N")
    });
    row
}

fn others_for_root(rows: &mut Vec<Row>) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED cases of other users and of a full file system: they need root");
        return;
    }
    let nobody = 65_534;
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    std::os::unix::fs::chown(name.path(), Some(nobody), None).unwrap();
    rows.push(judge("another user's segment", "Owner", &name, Segment::attach(&name)));
    std::os::unix::fs::chown(name.path(), Some(0), None).unwrap();
    let mut worker = Worker::start("attach", &[&name.0]);
    let (variant, message) = (worker.hear(), worker.hear());
    let refused = if variant.contains("Permission") { Ok(anonymous(&message, &name)) } else { Err(variant) };
    rows.push(Row { what: "no permission to open it", answer: refused });
    std::fs::set_permissions(name.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut worker = Worker::start("remove", &[&name.0]);
    let (variant, message) = (worker.hear(), worker.hear());
    let refused = if variant.contains("Permission") { Ok(anonymous(&message, &name)) } else { Err(variant) };
    rows.push(Row { what: "no permission to remove it", answer: refused });
    assert!(
        Segment::attach(&name).unwrap().semaphore("db").unwrap().try_acquire(1).is_ok(),
        "not half removed"
    );
    let mut worker = Worker::start("full_tmpfs", &[]);
    let (variant, message) = (worker.hear(), worker.hear());
    if variant == "cannot mount" {
        println!("SKIPPED a full file system: {message}");
    } else {
        let refused = if variant.contains("NoSpace") { Ok(message) } else { Err(variant) };
        rows.push(Row { what: "created on a full file system", answer: refused });
    }
}

/// Tries to attach as another user.
fn attach_role(arguments: &[String]) {
    nix::unistd::setuid(65_534.into()).unwrap();
    let error = Segment::options().any_owner(true).attach(&arguments[0]).unwrap_err();
    say(&format!("{error:?}"));
    say(&error.to_string());
}

/// Tries to remove another user's segment from a directory with the sticky bit.
fn remove_role(arguments: &[String]) {
    nix::unistd::setuid(65_534.into()).unwrap();
    let error = Segment::options().any_owner(true).remove(&arguments[0]).unwrap_err();
    say(&format!("{error:?}"));
    say(&error.to_string());
}

/// Tries to create a segment on a tmpfs that is too small, in a mount namespace of its own.
fn full_tmpfs_role(_: &[String]) {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    let place = std::env::temp_dir().join(TempName::new().0.as_str());
    std::fs::create_dir(&place).unwrap();
    let none: Option<&str> = None;
    let mounted = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none))
        .and_then(|()| mount(none, &place, Some("tmpfs"), MsFlags::empty(), Some("size=64k")));
    let (variant, message) = match mounted {
        Err(error) => ("cannot mount".to_owned(), error.to_string()),
        Ok(()) => {
            let error = Segment::options().create(place.join("limits")).unwrap_err();
            assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "nothing is left behind");
            nix::mount::umount(&place).unwrap();
            let path = place.join("limits").display().to_string();
            (format!("{error:?}"), error.to_string().replace(&path, "NAME"))
        }
    };
    std::fs::remove_dir(&place).unwrap();
    // Last, because the parent ends this process after the second line.
    say(&variant);
    say(&message);
}

fn compare_with_document(rows: &[Row]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/caveats.md");
    let (start, end) = ("<!-- bad segments: start -->\n", "<!-- bad segments: end -->");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(start).expect("a place for the table");
    let (stated, after) = rest.split_once(end).expect("its end");
    let mut table = String::from("| what is there | the answer |\n| --- | --- |\n");
    for row in rows {
        writeln!(table, "| {} | {} |", row.what, row.answer.as_ref().unwrap()).unwrap();
    }
    if std::env::var_os("LIMITSET_BLESS").is_some() {
        std::fs::write(path, format!("{before}{start}{table}{end}{after}")).unwrap();
    } else if rows.len() == stated.lines().count() - 2 {
        assert_eq!(stated, table, "docs/caveats.md is out of date: bless with LIMITSET_BLESS=1");
    } else {
        // Some cases could not be tried here; those that were must be in the table.
        for line in table.lines() {
            assert!(stated.contains(line), "docs/caveats.md lacks {line:?}");
        }
    }
}

// ---- in the middle of things ----

fn create_role(arguments: &[String]) {
    victim::stop_here();
    std::mem::forget(options().create(&arguments[0]).unwrap());
    victim::leave();
}

fn killed_creator() {
    let mut killed = 0;
    let (mut whole, mut absent) = (0, 0);
    loop {
        let name = TempName::new();
        let Some(mut creator) = Victim::start("create", &[&name.0]) else {
            println!("SKIPPED killed creator: this machine does not allow tracing");
            return;
        };
        // Files change at system calls only, so a kill at each of them is a kill everywhere.
        let ended = (0..killed).any(|_| !creator.step_to_system_call());
        creator.kill();
        match Segment::attach(&name) {
            Ok(segment) => {
                whole += 1;
                segment.semaphore("db").unwrap().try_acquire(3).unwrap().release().unwrap();
            }
            Err(AttachError::NotFound { .. }) => absent += 1,
            Err(other) => panic!("after {killed} stops: {other}"),
        }
        let beside = std::fs::read_dir("/dev/shm").unwrap();
        let left = beside.filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().contains(".new"));
        assert_eq!(left.count(), 0, "no temporary file");
        if ended {
            break;
        }
        killed += 1;
    }
    let result =
        format!("{killed} kills: the segment was absent {absent} times, whole {whole} times, broken never");
    support::proof("3,6", "creator killed at every system call", &result);
    assert!(whole > 0 && absent > 0);
}

fn remove_traced_role(arguments: &[String]) {
    victim::stop_here();
    Segment::remove(&arguments[0]).unwrap();
    victim::leave();
}

/// Whoever was attached goes on together with the next to open the name, or is told.
fn killed_remover() {
    let (mut killed, mut ended) = (0, false);
    let (mut same, mut told) = (0, 0);
    while !ended {
        let name = TempName::new();
        let old = options().create(&name).unwrap();
        let Some(mut remover) = Victim::start("remove_traced", &[&name.0]) else {
            println!("SKIPPED killed remover: this machine does not allow tracing");
            return;
        };
        ended = (0..killed).any(|_| !remover.step_to_system_call());
        remover.kill();
        let new = options().open(&name).unwrap();
        let answer = old.semaphore("db").unwrap().try_acquire(1);
        if new.info().instance == old.info().instance {
            same += 1;
            assert!(answer.is_ok(), "after {killed} stops: {answer:?}");
        } else {
            told += 1;
            assert!(matches!(answer, Err(SyncError::Removed)), "after {killed} stops: {answer:?}");
        }
        killed += 1;
    }
    assert!(same > 0 && told > 0);
}

/// Attaches, takes all permits, and tells in whose name.
fn attach_traced_role(arguments: &[String]) {
    victim::stop_here();
    let segment = options().open(&arguments[0]).unwrap();
    let answer = match segment.semaphore("db").unwrap().try_acquire(1) {
        Ok(permit) => {
            std::mem::forget(permit);
            "permits"
        }
        Err(_) => "refused",
    };
    let text = format!("{:x?} {answer}", segment.info().instance);
    std::fs::write(&arguments[1], text).unwrap();
    victim::leave();
}

fn replaced_while_attaching() {
    let mut stops = 0;
    let (mut old_ones, mut new_ones) = (0, 0);
    loop {
        let (name, result) = (TempName::new(), TempName::new());
        let path = result.path();
        let old = options().create(&name).unwrap();
        let arguments = [name.0.as_str(), path.to_str().unwrap()];
        let Some(mut attacher) = Victim::start("attach_traced", &arguments) else {
            println!("SKIPPED replaced while attaching: this machine does not allow tracing");
            return;
        };
        let ended = (0..stops).any(|_| !attacher.step_to_system_call());
        // Not every stop lets us in: the attacher may hold the init lock right now. Then the name is simply
        // taken away, as a stranger would.
        let hasty = Segment::options().patience(Duration::from_millis(1));
        let removed = hasty.attach(&name).and_then(|it| it.remove_here());
        if removed.is_err() {
            std::fs::remove_file(name.path()).unwrap();
        }
        let new = options().create(&name).unwrap();
        if !ended {
            attacher.run_to_end();
        }
        let told = std::fs::read_to_string(&path).unwrap();
        let (is_old, is_new) = (
            told.contains(&format!("{:x?}", old.info().instance)),
            told.contains(&format!("{:x?}", new.info().instance)),
        );
        assert!(is_old != is_new, "{told}");
        if is_new {
            new_ones += 1;
            assert!(told.ends_with("permits"), "{told}");
        } else {
            old_ones += 1;
        }
        if ended {
            break;
        }
        stops += 1;
    }
    let result = format!(
        "{stops} times: {new_ones} attached to the new one, {old_ones} had the old one already, mixed up never"
    );
    support::proof("2,6", "segment replaced at every system call of an attach", &result);
    assert!(old_ones > 0 && new_ones > 0);
}

fn truncated_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    File::options().write(true).open(Segment::path_of(&arguments[0]).unwrap()).unwrap().set_len(0).unwrap();
    say("truncated");
    let _ = segment.semaphore("db").unwrap().try_acquire(1);
    say("still alive");
    listen();
}

fn truncation() {
    use std::os::unix::process::ExitStatusExt;
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    let mut worker = Worker::start("truncated", &[&name.0]);
    worker.expect("truncated");
    assert_eq!(worker.finish().signal(), Some(libc::SIGBUS));

    let segment = options().anonymous().unwrap();
    let fd = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).find(|it| {
        std::fs::read_link(it.path()).is_ok_and(|link| link.to_string_lossy().contains("memfd:limitset"))
    });
    let file = File::options().write(true).open(fd.unwrap().path()).unwrap();
    assert_eq!(file.set_len(0).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    assert!(segment.semaphore("db").unwrap().try_acquire(3).is_ok());
}
