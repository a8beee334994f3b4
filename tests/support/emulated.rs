//! Tests of a build for another processor, run by an emulator (`cargo xtask test targets`): how they start processes, and
//! which of them cannot run there.
//!
//! qemu-user hands most system calls to the kernel, and drops some advice about memory (`madvise`) while it answers that
//! all went well. Debian's version 7.2 drops MADV_WIPEONFORK and MADV_DONTFORK. What an emulator does is probed, so that
//! the tests run where it can.

use std::process::Command;

use limitset::{LimitSet, ResourceLimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Names the emulator that runs this binary, if there is one. The kernel alone cannot run the binary then.
const EMULATOR: &str = "LIMITSET_TEST_EMULATOR";

/// What an emulator can lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// A forked child is not noticed, because its memory is not wiped.
    WipeOnFork,
    /// A forked child keeps the page that ties a slot to its parent.
    DontFork,
}

/// Tests that need what an emulator can lack.
const NEEDY: &[(&str, Lack)] = &[
    ("a_forked_child_is_a_participant_of_its_own", Lack::WipeOnFork),
    ("a_forked_child_releases_nothing_of_its_parent", Lack::WipeOnFork),
    ("a_child_of_a_child_is_neither_of_them", Lack::WipeOnFork),
    ("a_child_that_dropped_its_privileges_can_still_enrol", Lack::WipeOnFork),
    ("private_memory_is_not_shared_with_a_child", Lack::WipeOnFork),
    ("an_anonymous_segment_is_shared_with_children", Lack::WipeOnFork),
    ("closing_all_descriptors_kills_nobody_and_blinds_nobody", Lack::WipeOnFork),
    ("a_child_that_closed_everything_is_not_its_parent", Lack::WipeOnFork),
    ("a_failed_enrolment_after_dropping_privileges_can_be_tried_again", Lack::WipeOnFork),
    ("an_inherited_acquisition_is_inert_in_a_child", Lack::WipeOnFork),
    ("so_it_is_in_a_child_of_an_anonymous_set", Lack::WipeOnFork),
    ("a_child_takes_part_on_its_own", Lack::WipeOnFork),
    ("so_does_a_child_of_an_anonymous_set", Lack::WipeOnFork),
    ("a_dead_childs_permits_return_to_its_parent", Lack::WipeOnFork),
    ("private_memory_answers_not_shared_in_a_child", Lack::WipeOnFork),
    ("an_inherited_item_is_inert_in_a_child", Lack::WipeOnFork),
    ("a_child_without_a_slot_is_told_so_or_let_through", Lack::WipeOnFork),
    ("a_living_child_does_not_hide_the_death_of_its_parent", Lack::DontFork),
];

/// A command that runs this binary.
pub fn this_program() -> Command {
    run_by(std::env::var_os(EMULATOR), std::env::current_exe().unwrap())
}

/// A command that runs a program, by an emulator if one is needed.
pub fn run_by(emulator: Option<std::ffi::OsString>, program: std::path::PathBuf) -> Command {
    match emulator {
        Some(emulator) => {
            let mut command = Command::new(&emulator);
            command.arg(program).env(EMULATOR, emulator);
            command
        }
        None => Command::new(program),
    }
}

/// What the emulator of this process lacks; nothing if there is none.
pub struct Lacks(Vec<Lack>);

impl Lacks {
    /// Probes the emulator by forking: only before the process has other threads.
    pub fn probe() -> Self {
        if std::env::var_os(EMULATOR).is_none() {
            return Self(Vec::new());
        }
        let mut lacks = Vec::new();
        if !notices_forks() {
            lacks.push(Lack::WipeOnFork);
        }
        if !keeps_pages_from_children() {
            lacks.push(Lack::DontFork);
        }
        Self(lacks)
    }

    /// Whether a test cannot run here. Says so, loudly.
    pub fn skip(&self, test: &str) -> bool {
        let missing = NEEDY.iter().find(|(name, lack)| *name == test && self.0.contains(lack));
        if let Some((_, lack)) = missing {
            let why = match lack {
                Lack::WipeOnFork => "the emulator ignores MADV_WIPEONFORK, so forks go unnoticed",
                Lack::DontFork => "the emulator ignores MADV_DONTFORK, so a child keeps its parent's slot",
            };
            println!("SKIPPED {test}: {why}");
        }
        missing.is_some()
    }
}

/// Whether memory of one process answers in a forked child that it is not shared.
fn notices_forks() -> bool {
    let set = LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory().unwrap();
    in_child(|| set.try_acquire(()).is_err())
}

/// Whether a page with MADV_DONTFORK is gone in a forked child.
fn keeps_pages_from_children() -> bool {
    let file = tempfile();
    let map = memory(&file);
    in_child(|| {
        // SAFETY: synchronising touches no memory; a range that is not mapped is an error, not harm.
        let code = unsafe { libc::msync(map, PROBED_BYTES, libc::MS_ASYNC) };
        code != 0
    })
}

const PROBED_BYTES: usize = 65_536;

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("limitset-probe-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(PROBED_BYTES as u64).unwrap();
    file
}

/// A mapping that forked children shall not have. It stays until the process ends.
fn memory(file: &std::fs::File) -> *mut libc::c_void {
    use std::os::fd::AsRawFd;
    let (none, shared) = (libc::PROT_NONE, libc::MAP_SHARED);
    // SAFETY: a mapping without a fixed address replaces nothing, and nobody reads or writes through it.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), PROBED_BYTES, none, shared, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the range is the mapping just made.
    let code = unsafe { libc::madvise(map, PROBED_BYTES, libc::MADV_DONTFORK) };
    assert_eq!(code, 0);
    map
}

/// Asks a question in a forked child.
fn in_child(ask: impl FnOnce() -> bool) -> bool {
    // SAFETY: the process has no other thread, so the child is a whole process.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => waitpid(child, None).unwrap() == WaitStatus::Exited(child, 0),
        ForkResult::Child => {
            let code = i32::from(!ask());
            // SAFETY: ends the process without running what belongs to its parent.
            unsafe { libc::_exit(code) }
        }
    }
}
