//! Options of a segment: counts, regions, permissions, lock timeout.

use std::ffi::OsStr;
use std::time::Duration;

use super::{Observer, Segment, attach, create};
use crate::format::header::RegionKind;
use crate::format::plan::{Labelled, Shape};
use crate::format::{slots, waiters};
use crate::limit::Clock;
use crate::segment::error::{AttachError, BadOption, CreateError};
use crate::sys::clock;
use crate::sys::machine::Machine;

/// Describes a segment, then creates it or attaches to it.
///
/// Counts, regions and permissions apply when the segment is created. The lock timeout and the check of the owner
/// apply to each process that opens it.
#[derive(Clone, Debug)]
#[must_use]
pub struct SegmentOptions {
    pub(crate) shape: Shape,
    pub(crate) mode: u32,
    pub(crate) group: Option<u32>,
    pub(crate) any_owner: bool,
    pub(crate) patience: Duration,
    pub(crate) lock_slice: Duration,
    pub(crate) doorbell_slice: Duration,
    pub(crate) lends_life: bool,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            shape: Shape {
                slots: slots::DEFAULT_SLOTS,
                limits: 0,
                cells: 0,
                waiters: waiters::DEFAULT_WAITERS,
                clock: Clock::Monotonic,
                items: 0,
                payload_bytes: 0,
                result_bytes: 0,
                definition: None,
                labelled: Vec::new(),
            },
            mode: 0o600,
            group: None,
            any_owner: false,
            patience: Duration::from_secs(5),
            lock_slice: Machine::LOCK_SLICE,
            doorbell_slice: Machine::DOORBELL_SLICE,
            lends_life: false,
        }
    }
}

impl SegmentOptions {
    /// Sets how many processes can be attached at one time: 1 to 4095, 256 unless set.
    pub fn slots(mut self, slots: u32) -> Self {
        self.shape.slots = slots;
        self
    }

    /// Sets how many waiters there is room for: at most 65536, 1024 unless set.
    pub fn waiters(mut self, waiters: u32) -> Self {
        self.shape.waiters = waiters;
        self
    }

    /// Makes room for limits without a definition of them. For model checks and crash tests; not covered by semantic
    /// versioning.
    #[doc(hidden)]
    pub fn limits(mut self, limits: u32) -> Self {
        self.shape.limits = limits;
        self
    }

    /// Adds a mutex that guards `words` 64-bit words; see [`Segment::mutex`].
    pub fn mutex(self, label: impl Into<String>, words: u32) -> Self {
        self.region(RegionKind::Mutex, label.into(), words.into())
    }

    /// Adds a semaphore with this many permits; see [`Segment::semaphore`].
    pub fn semaphore(self, label: impl Into<String>, permits: u64) -> Self {
        self.region(RegionKind::Semaphore, label.into(), permits)
    }

    /// Adds a region of plain atomic words for the program's own use; see [`Segment::words`].
    pub fn words(self, label: impl Into<String>, words: u32) -> Self {
        self.region(RegionKind::Words, label.into(), words.into())
    }

    fn region(mut self, kind: RegionKind, label: String, size: u64) -> Self {
        self.shape.labelled.push(Labelled { kind, label, size });
        self
    }

    /// Sets the permissions of the file: 0600 unless set. A process that can read the file can block enrolment by
    /// holding locks on it, so allow no more than a trusted group.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the group of the file, for sharing with mode 0660.
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Accepts a segment that belongs to another user. Otherwise opening such a segment is an error, because the
    /// other user may have planted it under the expected name.
    pub fn any_owner(mut self, yes: bool) -> Self {
        self.any_owner = yes;
        self
    }

    /// Sets the lock timeout: how long an operation waits for a lock whose living holder does not release it, because
    /// it is stopped or being debugged, before it returns that the lock is busy. 5 seconds unless set. An operation
    /// with a timeout of its own uses that instead.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets how long this process waits for a lock before it checks whether the holder has died: 5 ms unless set.
    /// It bounds how long a dead holder can delay others, and has no other effect.
    pub fn lock_slice(mut self, slice: Duration) -> Self {
        self.lock_slice = slice;
        self
    }

    /// How long this process sleeps before it looks for permits that dead processes hold: 100 ms unless set. A request
    /// that is about to be refused for want of permits looks sooner: after 20 times what the last look cost, at least
    /// 1 ms and at most 100 ms, and never later than this.
    pub fn doorbell_slice(mut self, slice: Duration) -> Self {
        self.doorbell_slice = slice;
        self
    }

    /// Prepares this process for a slot handoff to a command; see [`Segment::spawn_lending_life`]. It costs one open
    /// descriptor. A child made by a bare `clone`, not by `fork`, inherits that descriptor, and then hides the death of
    /// this process.
    pub fn lends_life(mut self, yes: bool) -> Self {
        self.lends_life = yes;
        self
    }

    /// Returns how many bytes a segment with these options has.
    pub fn bytes(&self) -> Result<u64, BadOption> {
        Ok(create::plan(self)?.total_bytes)
    }

    /// Creates a segment that must not exist yet, and attaches to it.
    pub fn create(&self, name: impl AsRef<OsStr>) -> Result<Segment, CreateError> {
        create::create(self, name.as_ref())
    }

    /// Attaches to a segment, creating it first if it does not exist. An existing segment must have the counts and
    /// regions described here.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<Segment, CreateError> {
        create::open(self, name.as_ref())
    }

    /// Attaches to a segment that must exist; its own counts and regions apply.
    pub fn attach(&self, name: impl AsRef<OsStr>) -> Result<Segment, AttachError> {
        attach::attach(self, name.as_ref())
    }

    /// Attaches for reading only: takes no slot and cannot change the segment.
    pub fn observe(&self, name: impl AsRef<OsStr>) -> Result<Observer, AttachError> {
        attach::observe(self, name.as_ref())
    }

    /// Removes a segment; see [`Segment::remove`].
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), AttachError> {
        attach::remove(self, name.as_ref())
    }

    /// Creates a segment without a name, for this process and the processes that it forks. It cannot be truncated,
    /// and disappears with the last of them.
    pub fn anonymous(&self) -> Result<Segment, CreateError> {
        create::anonymous(self)
    }

    /// Creates a segment in private memory, for the threads of this process alone. In a forked child its operations
    /// return [`AttachError::NotShared`].
    pub fn private(&self) -> Result<Segment, CreateError> {
        create::private(self)
    }

    /// As [`open`](Self::open), but accepts an existing segment with any counts and regions.
    pub(crate) fn attach_or_make(&self, name: &OsStr) -> Result<Segment, CreateError> {
        create::attach_or_make(self, name)
    }

    pub(crate) fn check(&self) -> Result<(), BadOption> {
        self.shape.check()?;
        if self.mode & !0o777 != 0 || self.mode & 0o600 != 0o600 {
            return Err(BadOption::Mode { found: self.mode });
        }
        Ok(())
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine {
            descriptors: None,
            lock_slice: clock::nanos(self.lock_slice),
            doorbell_slice: clock::nanos(self.doorbell_slice),
            crowd: crate::sys::machine::Crowd::default(),
        }
    }
}
