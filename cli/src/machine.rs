//! The checks of `doctor`. Each finding comes with a fix.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use limitset::{LimitSet, ResourceLimit, Segment};
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use serde::Serialize;

use crate::text;

const SHARED_MEMORY: &str = "/dev/shm";
/// Room for one set of default size, with some to spare.
const LITTLE_ROOM: u64 = 1 << 20;
/// The default size of /dev/shm in a container: some 180 sets.
const SMALL: u64 = 64 << 20;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    Good,
    Odd,
    Wrong,
}

/// One check and its finding.
#[derive(Debug, Serialize)]
pub(crate) struct Examined {
    pub(crate) what: &'static str,
    pub(crate) health: Health,
    pub(crate) found: String,
    pub(crate) fix: Option<String>,
}

impl Examined {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, health: Health::Good, found: found.into(), fix: None }
    }

    fn odd(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, health: Health::Odd, found: found.into(), fix: Some(fix.into()) }
    }

    fn wrong(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, health: Health::Wrong, found: found.into(), fix: Some(fix.into()) }
    }
}

pub(crate) fn examine(directory: Option<&Path>) -> Vec<Examined> {
    let mut found = vec![kernel(), mount(), room(), permissions()];
    found.push(unnamed_files(Path::new(SHARED_MEMORY), "/dev/shm: unnamed files"));
    found.extend(directory.map(file_system));
    found.extend(namespaces());
    found.push(proc());
    found.push(clock_source());
    found.extend(sets());
    found.push(trial());
    found
}

fn kernel() -> Examined {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version == (0, 0) {
        return Examined::odd("kernel", "cannot read the kernel version", "mount /proc");
    }
    if version < (4, 14) {
        return Examined::wrong("kernel", format!("Linux {release}"), "use Linux 4.14 or newer");
    }
    Examined::good("kernel", format!("Linux {release}"))
}

/// Returns the type and the options of a mount point, from /proc/self/mountinfo.
fn mounted(point: &str) -> Option<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let of = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(4);
        let (at, options) = (left.next()?, left.next()?);
        (at == point).then(|| (right.split(' ').next().unwrap_or("?").to_owned(), options.to_owned()))
    };
    // Of several mounts on one directory, the last is visible.
    table.lines().filter_map(of).next_back()
}

fn mount() -> Examined {
    let what = "/dev/shm: mount";
    let fix =
        "mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm; in a container, give it a tmpfs there";
    if !Path::new(SHARED_MEMORY).is_dir() {
        return Examined::wrong(what, "there is no such directory", fix);
    }
    match mounted(SHARED_MEMORY) {
        Some((kind, options)) if options.split(',').any(|it| it == "ro") => {
            Examined::wrong(what, format!("{kind}, read-only"), "mount -o remount,rw /dev/shm")
        }
        Some((kind, options)) if kind == "tmpfs" => Examined::good(what, format!("{kind} ({options})")),
        Some((kind, _)) => {
            Examined::odd(what, format!("{kind}, not a tmpfs: slower, and may be written to disk"), fix)
        }
        None => {
            Examined::odd(what, "not a separate mount: sets are kept on the disk of the root directory", fix)
        }
    }
}

fn room() -> Examined {
    let what = "/dev/shm: size";
    let Ok(about) = statvfs(SHARED_MEMORY) else {
        return Examined::wrong(what, "cannot be read", "see the mount above");
    };
    let (unit, all, free) = (about.fragment_size(), about.blocks(), about.blocks_available());
    let (all, free) = (all.saturating_mul(unit), free.saturating_mul(unit));
    let found = format!("{} free of {}", text::size(free), text::size(all));
    let larger = "mount -o remount,size=256M /dev/shm; in a container, start it with --shm-size=256m";
    if free < LITTLE_ROOM {
        let fix = format!("remove unneeded files (ls -l /dev/shm; limitset gc), or {larger}");
        return Examined::wrong(what, format!("{found}: no room for a set"), fix);
    }
    // A file system without a size limit reports 0.
    if all != 0 && all <= SMALL {
        return Examined::odd(what, format!("{found}: enough for many sets, but for little else"), larger);
    }
    Examined::good(what, found)
}

fn permissions() -> Examined {
    let what = "/dev/shm: permissions";
    let Ok(about) = fs::metadata(SHARED_MEMORY) else {
        return Examined::wrong(what, "cannot be read", "see the mount above");
    };
    let mode = about.permissions().mode() & 0o7777;
    let found = format!("mode {mode:o}, owner {}, current user {}", about.uid(), geteuid());
    let fix = "chmod 1777 /dev/shm";
    let us = geteuid().as_raw();
    if us != 0 && mode & 0o002 == 0 && about.uid() != us {
        return Examined::wrong(what, format!("{found}: this user cannot create sets there"), fix);
    }
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        return Examined::wrong(what, format!("{found}: any user may remove the sets of other users"), fix);
    }
    Examined::good(what, found)
}

/// Checks that unnamed files can be created. A set is an unnamed file until it is complete.
fn unnamed_files(directory: &Path, what: &'static str) -> Examined {
    let made = OpenOptions::new().write(true).mode(0o600).custom_flags(nix::libc::O_TMPFILE).open(directory);
    match made {
        Ok(_) => Examined::good(what, "can be created"),
        Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => Examined::odd(
            what,
            "cannot be created here",
            "nothing to do: a set gets a temporary name while it is created; a kill may leave that file behind",
        ),
        Err(error) => Examined::wrong(
            what,
            format!("cannot be created: {error}"),
            "see permissions, size and mount above",
        ),
    }
}

fn file_system(directory: &Path) -> Examined {
    let what = "file system";
    let Ok(about) = statfs(directory) else {
        let found = format!("cannot examine {}", directory.display());
        return Examined::wrong(what, found, "name a directory that exists");
    };
    let kind = about.filesystem_type().0;
    // The library refuses file systems that do not share locks and mappings reliably: ask it.
    let scratch = directory.join(format!(".limitset-doctor-{}", std::process::id()));
    let set = LimitSet::builder().limit(ResourceLimit::new("doctor", 1)).create(&scratch);
    let found = format!("{} (type {kind:#x})", directory.display());
    match set.map(|set| set.remove()) {
        Ok(_) => Examined::good(what, format!("{found} can keep sets")),
        Err(error) => {
            Examined::wrong(what, format!("{found}: {error}"), "keep sets in /dev/shm, or on a local disk")
        }
    }
}

/// Checks for namespaces that differ from those of process 1.
fn namespaces() -> Vec<Examined> {
    let kinds = [
        (
            "namespaces: mount",
            "mnt",
            "its /dev/shm may differ from that of other processes: mount one directory into all of them",
        ),
        (
            "namespaces: time",
            "time",
            "its clock differs: run all participants of a set in one time namespace",
        ),
        (
            "namespaces: pid",
            "pid",
            "nothing to do: limits work across PID namespaces; each PID is shown as in its own namespace",
        ),
        (
            "namespaces: user",
            "user",
            "sets created here belong to a mapped user: use --any-owner, or a common group",
        ),
    ];
    let mut found = Vec::new();
    for (what, kind, fix) in kinds {
        let read = |who: &str| fs::read_link(format!("/proc/{who}/ns/{kind}"));
        let Ok(own) = read("self") else {
            found.push(Examined::good(what, "none: this kernel has no such namespaces"));
            continue;
        };
        let own = own.display().to_string();
        found.push(match read("1") {
            Ok(first) if first.display().to_string() == own => {
                Examined::good(what, format!("{own}, as process 1"))
            }
            Ok(first) => Examined::odd(what, format!("{own}, process 1 is in {}", first.display()), fix),
            Err(_) => Examined::good(what, format!("{own}; this user cannot read that of process 1")),
        });
    }
    found
}

fn proc() -> Examined {
    let what = "/proc";
    if fs::read_to_string("/proc/sys/kernel/random/boot_id").is_err() {
        let found = "cannot read the boot id: sets in files do not notice a reboot";
        return Examined::odd(what, found, "mount /proc");
    }
    if !Path::new("/proc/self/fd").exists() {
        return Examined::wrong(what, "cannot reopen descriptors through /proc/self/fd", "mount /proc");
    }
    Examined::good(what, "mounted, boot id readable")
}

fn clock_source() -> Examined {
    let what = "clock";
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Ok(source) = fs::read_to_string(path) else {
        return Examined::good(what, "monotonic; its source cannot be read");
    };
    let source = source.trim();
    if matches!(source, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter" | "xen") {
        return Examined::good(what, format!("monotonic, from {source}"));
    }
    let fix = format!(
        "each reading may take a system call: echo tsc > {path} if the machine has a stable TSC, or create \
         sets with the coarse clock"
    );
    Examined::odd(what, format!("monotonic, from {source}"), fix)
}

/// Checks the files in /dev/shm that are named like sets: unusable ones, and generated sets without
/// participants.
fn sets() -> Vec<Examined> {
    let what = "sets";
    let listed = match Segment::list() {
        Ok(listed) => listed,
        Err(error) => return vec![Examined::wrong(what, error.to_string(), "see /dev/shm above")],
    };
    let mut found = Vec::new();
    let (mut good, mut idle) = (0, 0);
    for it in &listed {
        match &it.info {
            Ok(_) => {
                good += 1;
                let observer = Segment::options().any_owner(true).observe(&it.name);
                let is_idle = observer.is_ok_and(|observer| observer.participants().is_empty());
                idle += u64::from(is_idle && Segment::is_generated_name(&it.name));
            }
            Err(error @ limitset::error::AttachError::Malformed { .. }) => {
                let fix = format!("when no process uses it: limitset rm --force {}", it.name);
                found.push(Examined::wrong(what, error.to_string(), fix));
            }
            Err(error @ limitset::error::AttachError::NotAFile { .. }) => {
                let fix = "remove it: names that begin with \"limitset.\" are reserved for sets";
                found.push(Examined::wrong(what, error.to_string(), fix));
            }
            Err(error) => found.push(Examined::odd(what, error.to_string(), "ask its owner")),
        }
    }
    if idle > 0 {
        let text = format!("{} without participants", text::count(idle, "generated set", "generated sets"));
        found.push(Examined::odd(what, text, "limitset gc"));
    }
    found.insert(0, Examined::good(what, format!("{} can be read", text::count(good, "set", "sets"))));
    found
}

/// Creates a set, acquires from it, audits it, and removes it again.
fn trial() -> Examined {
    let what = "a set tried out";
    let fix = "fix the errors above; if there are none, report this one";
    let name = Segment::generated_name();
    let tried = (|| {
        let set = LimitSet::builder().limit(ResourceLimit::new("doctor", 1)).create(&name)?;
        let held = set.try_acquire(()).map(|held| held.release());
        let is_sound = set.segment().audit().is_ok_and(|audit| audit.is_sound());
        set.remove()?;
        Ok::<_, limitset::OpenError>(matches!(held, Ok(Ok(()))) && is_sound)
    })();
    match tried {
        Ok(true) => Examined::good(what, "created, acquired from, checked, removed"),
        Ok(false) => Examined::wrong(what, "the set did not grant its permit", fix),
        Err(error) => Examined::wrong(what, error.to_string(), fix),
    }
}
