//! Segments: created, attached to and removed by name, by path, without a name, or in private memory.
//!
//! ```text
//! name       the file that a name stands for
//! generated  generated names
//! options    counts, regions, permissions and timeouts of a segment
//! create     a new segment, complete before it has its name
//! adopt      another program's file becomes a segment
//! attach     from a name to a checked mapping
//! view       the regions of a checked mapping, as the protocol needs them
//! clock      the clock of a set
//! enrol      becoming a participant; again after a fork
//! lend       a command that keeps its participant alive
//! sight      whether a name still leads to its segment
//! remove     so that everybody notices
//! observer   looking without taking part
//! ```

#[cfg(feature = "shared_memory")]
mod adopt;
mod attach;
mod clock;
mod create;
mod enrol;
pub mod error;
mod generated;
pub(crate) mod grantee;
mod name;
mod observer;
mod options;
mod remove;
mod sight;
pub(crate) mod view;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::attach::Source;
use self::enrol::Enrolment;
use self::name::{PREFIX, Place, SHARED_MEMORY};
use self::view::name_of;
use crate::format::header::RegionKind;
use crate::format::plan::Shape;
use crate::protocol::{Block, Participant, Until};
use crate::segment::error::{AttachError, SyncError};
use crate::sys::machine::Machine;

#[cfg(feature = "shared_memory")]
pub(crate) use self::adopt::Adopted;

pub use self::observer::{Listed, LockStatistics, Observer, ParticipantInfo, SegmentInfo, SemaphoreState};
pub use self::options::SegmentOptions;
pub(crate) use self::view::View;

/// Mapped memory that any number of processes share, with this process as a participant.
///
/// It is cheap to clone, and clones are the same participant. All threads of a process may use it. After a fork,
/// the child becomes a participant of its own at its first use.
///
/// ```
/// use limitset::Segment;
///
/// let segment = Segment::options().semaphore("db", 8).anonymous()?;
/// let permit = segment.semaphore("db")?.try_acquire(3)?;
/// assert_eq!(segment.semaphore("db")?.available()?, 5);
/// # drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Segment {
    pub(crate) inner: Arc<Inner>,
}

/// A mapping, and the participant that this process is in it.
pub(crate) struct Inner {
    enrolment: Enrolment,
    pub(crate) view: View,
}

impl Segment {
    /// Returns default options, to create a segment or attach to one.
    pub fn options() -> SegmentOptions {
        SegmentOptions::default()
    }

    /// Attaches to a segment that exists, with default options.
    pub fn attach(name: impl AsRef<OsStr>) -> Result<Self, AttachError> {
        SegmentOptions::default().attach(name)
    }

    /// Attaches for reading only, with default options.
    pub fn observe(name: impl AsRef<OsStr>) -> Result<Observer, AttachError> {
        SegmentOptions::default().observe(name)
    }

    /// Removes a segment. Every further operation on it, in any process, returns an error that it was removed.
    /// Sleepers wake with that error. The name is free again.
    pub fn remove(name: impl AsRef<OsStr>) -> Result<(), AttachError> {
        SegmentOptions::default().remove(name)
    }

    /// Removes this segment; see [`remove`](Self::remove). A segment without a name is only closed: further
    /// operations return that error.
    pub fn remove_here(&self) -> Result<(), AttachError> {
        self.inner.me()?;
        self.inner.remove()
    }

    /// Returns the named segments of this machine, each with the facts in its header or the reason why it cannot
    /// be read.
    pub fn list() -> Result<Vec<Listed>, AttachError> {
        let unreadable = |error| attach_io("list", Path::new(SHARED_MEMORY), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(SHARED_MEMORY).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.file_name();
            if let Some(name) = file.to_str().and_then(|file| file.strip_prefix(PREFIX)) {
                let info = SegmentOptions::default().any_owner(true).observe(name).map(|it| it.info());
                found.push(Listed { name: name.to_owned(), info });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns whether other processes can attach: true for all segments but those in private memory.
    pub fn is_shared(&self) -> bool {
        self.inner.view.machine.descriptors.is_some()
    }

    /// Returns the name by which other processes find the segment, or its path. `None` if it has neither.
    pub fn name(&self) -> Option<PathBuf> {
        let Source::File(path) = &self.inner.view.source else { return None };
        let name = path.strip_prefix(SHARED_MEMORY).ok().and_then(Path::to_str);
        let name = name.and_then(|name| name.strip_prefix(PREFIX)).filter(|name| !name.contains('/'));
        Some(name.map_or_else(|| path.clone(), PathBuf::from))
    }

    /// Returns the path of the file that a name stands for.
    pub fn path_of(name: impl AsRef<OsStr>) -> Result<PathBuf, crate::segment::error::BadName> {
        Ok(Place::of(name)?.path)
    }

    /// Returns the plain words with this label, for the program's own atomics: no lock, no journal.
    pub fn words(&self, label: &str) -> Result<&[AtomicU64], SyncError> {
        self.inner.me()?;
        self.inner.view.plain_words(label)
    }

    /// Returns the facts in the segment's header.
    pub fn info(&self) -> SegmentInfo {
        self.inner.view.info()
    }

    /// Returns the attached processes. A forked child that cannot enrol treats every participant as alive.
    pub fn participants(&self) -> Vec<ParticipantInfo> {
        // Only a participant can tell which other participants are dead.
        let _ = self.inner.me();
        self.inner.view.participants()
    }

    /// Returns the participant that this process is. Enrols first, unless it has done so since the last fork.
    #[inline(always)]
    pub fn participant(&self) -> Result<Participant, AttachError> {
        self.inner.me()
    }

    /// The [name](Participant::name) of this process's last participant.
    #[inline(always)]
    pub(crate) fn name_of_us(&self) -> u64 {
        self.inner.name()
    }

    /// Whether this process is the participant with this [name](Participant::name). Never enrols.
    #[inline(always)]
    pub(crate) fn is_named(&self, name: u64) -> bool {
        self.inner.is_named(name)
    }

    /// Whether this process has had another name since the last fork.
    pub(crate) fn has_changed_its_name(&self) -> bool {
        self.inner.has_changed_its_name()
    }

    /// The set's block as the protocol sees it. For model checks and crash tests; not covered by semantic
    /// versioning.
    #[doc(hidden)]
    pub fn state_block(&self) -> Result<(Block<'_, Machine>, crate::protocol::Holdings), AttachError> {
        Ok((self.inner.view.state()?, self.inner.view.table().holdings()))
    }

    /// Returns the lock timeout of an operation without a timeout of its own, in nanoseconds.
    #[inline]
    pub(crate) fn patience(&self) -> u64 {
        self.inner.patience()
    }

    /// Returns the lock timeout of an operation without a timeout of its own, as the protocol takes it.
    #[inline]
    pub(crate) fn until(&self) -> Until {
        Until::Within(self.patience())
    }

    /// Returns the instant at which an operation without a timeout of its own gives up on a lock.
    pub(crate) fn deadline(&self) -> u64 {
        self.inner.deadline()
    }

    pub(crate) fn view(&self) -> &View {
        &self.inner.view
    }

    /// Checks that an existing segment has the definition that this program describes.
    pub(crate) fn same_definition(&self, wanted: &Shape) -> Result<(), AttachError> {
        let (Some(wanted), Some(found)) = (&wanted.definition, &self.inner.view.definition) else {
            return Ok(());
        };
        match found.difference(wanted) {
            Some(it) => Err(AttachError::Differs {
                path: self.inner.view.path(),
                found: it.found,
                expected: it.expected,
            }),
            None => Ok(()),
        }
    }

    /// Checks that an existing segment has the counts and regions that this program describes. The error is the first
    /// difference.
    pub(crate) fn same_shape(&self, wanted: &Shape) -> Result<(), AttachError> {
        let header = &self.inner.view.checked.header;
        let differs = |found: String, expected: String| {
            Err(AttachError::Differs { path: self.inner.view.path(), found, expected })
        };
        for (what, found, expected) in [
            ("slots", header.slots, wanted.slots),
            ("limits", header.limits, wanted.limits),
            ("waiters", header.waiters, wanted.waiters),
            ("window cells", header.cells, wanted.cells),
            ("items of work", header.items, wanted.items),
            ("bytes of an item", header.payload_bytes, wanted.payload_bytes),
            ("bytes of a result", header.result_bytes, wanted.result_bytes),
        ] {
            if found != expected {
                return differs(format!("{found} {what}"), format!("{expected} {what}"));
            }
        }
        let (found, expected) = (self.inner.view.checked.clock, wanted.clock);
        if found != expected {
            return differs(format!("a {} clock", found.name()), format!("a {} clock", expected.name()));
        }
        let kind = |is_set| if is_set { "a set of limits" } else { "no set of limits" }.to_owned();
        let is_set = self.inner.view.definition.is_some();
        if is_set != wanted.definition.is_some() {
            return differs(kind(is_set), kind(!is_set));
        }
        let labelled = &self.inner.view.checked.labelled;
        for region in &wanted.labelled {
            let expected = format!("{} {:?} of {}", name_of(region.kind), region.label, region.size);
            let found = labelled.iter().find(|(_, entry)| entry.label() == region.label.as_bytes());
            let Some((kind, entry)) = found else {
                return differs("no such region".to_owned(), expected);
            };
            let size = match kind {
                RegionKind::Semaphore => self.inner.view.semaphore_capacity(entry)?,
                _ => u64::from(entry.words),
            };
            if (*kind, size) != (region.kind, region.size) {
                return differs(format!("{} {:?} of {size}", name_of(*kind), region.label), expected);
            }
        }
        if labelled.len() != wanted.labelled.len() {
            return differs(
                format!("{} labelled regions", labelled.len()),
                format!("{}", wanted.labelled.len()),
            );
        }
        Ok(())
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("path", &self.inner.view.path()).finish_non_exhaustive()
    }
}

/// Makes the error of a failed system call on a segment's file. `doing` is the verb of the message.
pub(crate) fn attach_io(doing: &'static str, path: &Path, source: io::Error) -> AttachError {
    AttachError::Io { doing, path: path.to_owned(), source }
}
