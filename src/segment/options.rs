//! What a segment shall be: counts, regions, permissions, patience.

use std::ffi::OsStr;
use std::time::Duration;

use super::{Observer, Segment, attach, create};
use crate::clock::Clock;
use crate::error::{AttachError, BadOption, CreateError};
use crate::layout::header::RegionKind;
use crate::layout::plan::{Labelled, Shape};
use crate::layout::{slots, waiters};
use crate::sys::clock;
use crate::sys::machine::Machine;

/// Describes a segment, then creates it or attaches to it.
///
/// Counts, regions and permissions matter to whoever creates the segment; patience and trust to everybody.
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
    /// How many processes can be attached at one time: 1 to 4095, 256 unless set.
    pub fn slots(mut self, slots: u32) -> Self {
        self.shape.slots = slots;
        self
    }

    /// How many blocked acquirers there is room for: at most 65536, 1024 unless set.
    pub fn waiters(mut self, waiters: u32) -> Self {
        self.shape.waiters = waiters;
        self
    }

    /// Room for limits without a definition of them. For model checks and crash tests; not covered by semantic
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

    /// Permissions of the file: 0600 unless set. Whoever can read it can block enrolment by holding locks on
    /// it, so nothing beyond a trusted group should be allowed in.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Group of the file, for sharing with mode 0660.
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Accepts a segment that belongs to another user. Without it such a segment is refused, because it may
    /// have been planted under our name.
    pub fn any_owner(mut self, yes: bool) -> Self {
        self.any_owner = yes;
        self
    }

    /// How long an operation waits for a lock that a living process does not give up, because it is stopped
    /// or being debugged, before it answers that it is busy: 5 seconds unless set. Operations that were given
    /// a time of their own use that instead.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long this process waits for a lock before it asks whether the holder has died: 5 ms unless set.
    /// Bounds how long a death can hold up others; only deaths ever depend on it.
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

    /// Prepares this process to lend its life to a command; see [`Segment::spawn_lending_life`]. It costs one open
    /// descriptor. A child made by a bare `clone`, not by `fork`, inherits it, and then hides this process's death.
    pub fn lends_life(mut self, yes: bool) -> Self {
        self.lends_life = yes;
        self
    }

    /// How many bytes such a segment has.
    pub fn bytes(&self) -> Result<u64, BadOption> {
        Ok(create::plan(self)?.total_bytes)
    }

    /// Creates a segment that must not exist yet, and attaches to it.
    pub fn create(&self, name: impl AsRef<OsStr>) -> Result<Segment, CreateError> {
        create::create(self, name.as_ref())
    }

    /// Attaches to a segment, creating it first if it does not exist. One that exists must have the counts
    /// and regions described here.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<Segment, CreateError> {
        create::open(self, name.as_ref())
    }

    /// Attaches to a segment that must exist; its own counts and regions apply.
    pub fn attach(&self, name: impl AsRef<OsStr>) -> Result<Segment, AttachError> {
        attach::attach(self, name.as_ref())
    }

    /// Attaches for reading only: no slot is taken and nothing in the segment can be changed.
    pub fn observe(&self, name: impl AsRef<OsStr>) -> Result<Observer, AttachError> {
        attach::observe(self, name.as_ref())
    }

    /// Removes a segment; see [`Segment::remove`].
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), AttachError> {
        attach::remove(self, name.as_ref())
    }

    /// Creates a segment without a name, for this process and those it forks. It cannot be truncated, and is
    /// gone with the last of them.
    pub fn anonymous(&self) -> Result<Segment, CreateError> {
        create::anonymous(self)
    }

    /// Creates a segment in private memory, for the threads of this process alone. In a forked child it
    /// answers [`AttachError::NotShared`].
    pub fn private(&self) -> Result<Segment, CreateError> {
        create::private(self)
    }

    /// As [`open`](Self::open), but whatever is there under the name will do.
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
