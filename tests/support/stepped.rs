//! Death at every machine instruction of an operation: a segment in which a victim lives, a copy of it in which the
//! victim is dead, and the steps from one instruction to the next.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use limitset::protocol::owner::slot_of;

use crate::support::{self, TempName};
use crate::victim::Victim;

/// Kinds of region.
pub const SLOTS: u64 = 1;
pub const STATE: u64 = 2;
pub const SEMAPHORE: u64 = 5;

/// The findings of survivors.
#[derive(Default, Debug)]
pub struct Tally {
    pub points: u64,
    pub steals: u64,
    pub torn: u64,
    pub leaked: u64,
    pub worst_wait: Duration,
    /// A description of the first fault, if the test has one.
    pub example: Option<String>,
}

impl Tally {
    pub fn state(&self, what: &str, points: &str) {
        self.state_for("1,2,3", what, points);
    }

    /// Prints the findings as proof of these promises.
    pub fn state_for(&self, promises: &str, what: &str, points: &str) {
        let result = format!(
            "{} {points}, {} locks stolen, {} torn, {} leaked, worst wait {:?}",
            self.points, self.steals, self.torn, self.leaked, self.worst_wait
        );
        support::proof(promises, what, &result);
    }

    pub fn assert_clean(&self) {
        assert!(self.points > 0 && self.steals > 0, "the test did not test: {self:?}");
        assert_eq!((self.torn, self.leaked), (0, 0), "{self:?}");
    }

    /// Counts a torn state unless it is whole.
    pub fn whole(&mut self, is_whole: bool, what: impl FnOnce() -> String) {
        if !is_whole {
            self.torn += 1;
            self.example.get_or_insert_with(what);
        }
    }

    /// Counts a leak unless everything came back.
    pub fn returned(&mut self, is_back: bool, what: impl FnOnce() -> String) {
        if !is_back {
            self.leaked += 1;
            self.example.get_or_insert_with(what);
        }
    }
}

/// A segment in which the victim lives, and a copy in which it is dead.
pub struct Twin<T> {
    pub name: TempName,
    /// Attached to the original, in slot 1: moves the state, and recovers after real kills.
    pub mover: T,
    original: File,
    copy: File,
    pub copy_name: TempName,
    /// Attached to the copy, in slot 1 too.
    pub healthy: T,
    /// Bytes of the survivor's slot, which are not copied.
    own_slot: Range<usize>,
    /// Room for the next bytes, and the last ones.
    last: RefCell<(Vec<u8>, Vec<u8>)>,
    /// How many instructions the victim that is stepped has done.
    pub instructions: Cell<u64>,
}

impl<T> Twin<T> {
    pub fn new(create: impl Fn(&TempName) -> T, attach: impl Fn(&TempName) -> T) -> Self {
        let (name, copy_name) = (TempName::new(), TempName::new());
        let mover = create(&name);
        std::fs::copy(name.path(), copy_name.path()).unwrap();
        let healthy = attach(&copy_name);
        let open = |name: &TempName| OpenOptions::new().read(true).write(true).open(name.path()).unwrap();
        let (original, copy) = (open(&name), open(&copy_name));
        let slots = region_offset(&original, SLOTS);
        let own_slot = slots..slots + 128;
        let (last, instructions) = Default::default();
        Self { name, mover, original, copy, copy_name, healthy, own_slot, last, instructions }
    }

    /// Copies the segment as it is; tells whether a byte of it has changed since the last time. With `only_changed`
    /// it copies nothing otherwise.
    pub fn copy(&self, only_changed: bool) -> bool {
        let mut last = self.last.borrow_mut();
        let (bytes, before) = &mut *last;
        bytes.resize(usize::try_from(self.original.metadata().unwrap().len()).unwrap(), 0);
        self.original.read_exact_at(bytes, 0).unwrap();
        let has_changed = bytes != before;
        if has_changed || !only_changed {
            self.copy.write_all_at(&bytes[..self.own_slot.start], 0).unwrap();
            let end = self.own_slot.end;
            self.copy.write_all_at(&bytes[end..], end as u64).unwrap();
        }
        std::mem::swap(bytes, before);
        has_changed
    }

    /// Returns whether a process holds the lock of the original's state block.
    pub fn is_locked(&self) -> bool {
        let mut word = [0; 4];
        self.original.read_exact_at(&mut word, region_offset(&self.original, STATE) as u64).unwrap();
        slot_of(u32::from_ne_bytes(word)) != 0
    }
}

/// Where a region is, by its kind in the directory of docs/format.md.
pub fn region_offset(file: &File, kind: u64) -> usize {
    let mut header = [0; 2048];
    file.read_exact_at(&mut header, 0).unwrap();
    let word = |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().unwrap());
    let entry = (0..24).map(|index| 128 + index * 64).find(|at| word(*at) & 0xffff_ffff == kind).unwrap();
    usize::try_from(word(entry + 8)).unwrap()
}

pub type Start<'a> = &'a dyn Fn() -> Option<Victim>;

/// The instructions after which a survivor recovers a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// Every instruction.
    All,
    /// Every instruction that changed a byte of the segment. The others leave the same bytes behind, and the bytes are
    /// all that a dead participant leaves.
    Changes,
}

/// Steps a victim through its whole operation, recovering a copy after every instruction that counts. Gives the
/// number of instructions; none if this machine does not allow tracing.
pub fn die_in_copies<T>(
    twin: &Twin<T>,
    points: Points,
    start: Start<'_>,
    recover: &mut dyn FnMut(&T),
) -> Option<u64> {
    let mut victim = start()?;
    let mut instructions = 0;
    loop {
        let has_changed = twin.copy(points == Points::Changes);
        if has_changed || points == Points::All {
            twin.instructions.set(instructions);
            recover(&twin.healthy);
        }
        if !victim.step() {
            return Some(instructions);
        }
        instructions += 1;
    }
}

/// Really kills a victim after that many instructions. False if it came to its end before: a run is a few
/// instructions longer than another when the kernel moves its clock page on while the victim reads the clock.
#[must_use]
pub fn die_after(instructions: u64, start: Start<'_>) -> bool {
    let mut victim = start().expect("tracing worked before");
    let is_there = (0..instructions).all(|_| victim.step());
    if is_there {
        victim.kill();
    }
    is_there
}
