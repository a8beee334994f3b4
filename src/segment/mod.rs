//! Attach: segments by name, by path, without a name, or in private memory.
//!
//! ```text
//! name       which file a name is
//! generated  names that nobody chose
//! options    what a segment shall be
//! create     complete or absent
//! adopt      a file of somebody else becomes a segment
//! attach     from a name to a checked mapping
//! view       regions of a checked mapping, as the protocol wants them
//! bound      those regions, kept beside the mapping
//! enrol      becoming a participant; again after a fork
//! lend       a command that keeps its participant alive
//! sight      whether a name still leads to its segment
//! remove     so that everybody notices
//! observer   looking without taking part
//! ```

#[cfg(feature = "shared_memory")]
mod adopt;
mod attach;
mod bound;
mod create;
mod enrol;
mod generated;
mod lend;
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
use crate::core::{Block, Participant, Until};
use crate::error::{AttachError, SyncError};
use crate::layout::header::RegionKind;
use crate::layout::plan::Shape;
use crate::sync::{SharedMutex, SharedSemaphore};
use crate::sys::machine::Machine;

#[cfg(feature = "shared_memory")]
pub(crate) use self::adopt::Adopted;
pub(crate) use self::bound::{BoundBlock, BoundEngine};
pub use self::lend::LentLife;
pub use self::observer::{Listed, LockStatistics, Observer, ParticipantInfo, SegmentInfo, SemaphoreState};
pub use self::options::SegmentOptions;
pub(crate) use self::view::View;

/// Mapped memory that any number of processes share, this one being a participant.
///
/// Cheap to clone; clones are the same participant. All threads of a process may use it. After a fork the
/// child becomes a participant of its own at its first use.
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
    inner: Arc<Inner>,
}

/// A mapping and this process's name in it.
pub(crate) struct Inner {
    enrolment: Enrolment,
    view: View,
}

impl Segment {
    /// Describes a segment, to create it or attach to it.
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

    /// Removes a segment: every further operation on it, by whomever, answers that it was removed; sleepers
    /// wake with that answer; the name is free again.
    pub fn remove(name: impl AsRef<OsStr>) -> Result<(), AttachError> {
        SegmentOptions::default().remove(name)
    }

    /// Removes this segment; see [`remove`](Self::remove). One without a name only answers that from now on.
    pub fn remove_here(&self) -> Result<(), AttachError> {
        self.inner.me()?;
        self.inner.remove()
    }

    /// The named segments of this machine, with what each says about itself or why it cannot be read.
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

    /// Whether other processes can take part: all but private memory.
    pub fn is_shared(&self) -> bool {
        self.inner.view.machine.descriptors.is_some()
    }

    /// The name by which other processes find it; its path, if it is not a name. None if it has none.
    pub fn name(&self) -> Option<PathBuf> {
        let Source::File(path) = &self.inner.view.source else { return None };
        let name = path.strip_prefix(SHARED_MEMORY).ok().and_then(Path::to_str);
        let name = name.and_then(|name| name.strip_prefix(PREFIX)).filter(|name| !name.contains('/'));
        Some(name.map_or_else(|| path.clone(), PathBuf::from))
    }

    /// Path of the file a name stands for.
    pub fn path_of(name: impl AsRef<OsStr>) -> Result<PathBuf, crate::error::BadName> {
        Ok(Place::of(name)?.path)
    }

    /// The mutex with this label.
    pub fn mutex(&self, label: &str) -> Result<SharedMutex, SyncError> {
        let region = self.inner.view.region(label, RegionKind::Mutex, "mutex")?;
        Ok(SharedMutex::new(BoundBlock::new(self.clone(), region)?))
    }

    /// The semaphore with this label.
    pub fn semaphore(&self, label: &str) -> Result<SharedSemaphore, SyncError> {
        let region = self.inner.view.region(label, RegionKind::Semaphore, "semaphore")?;
        Ok(SharedSemaphore::new(BoundBlock::new(self.clone(), region)?))
    }

    /// The plain words with this label, for the program's own atomics: no lock, no journal.
    pub fn words(&self, label: &str) -> Result<&[AtomicU64], SyncError> {
        self.inner.me()?;
        self.inner.view.plain_words(label)
    }

    /// What the segment says about itself.
    pub fn info(&self) -> SegmentInfo {
        self.inner.view.info()
    }

    /// Who is attached. A forked child that cannot enrol takes everybody to be alive.
    pub fn participants(&self) -> Vec<ParticipantInfo> {
        // Only who is somebody can judge who is dead.
        let _ = self.inner.me();
        self.inner.view.participants()
    }

    /// This process's name in the segment; enrols if that has not happened since the last fork.
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
    pub fn state_block(&self) -> Result<(Block<'_, Machine>, crate::core::Holdings), AttachError> {
        Ok((self.inner.view.state()?, self.inner.view.table().holdings()))
    }

    /// How long an operation without a time of its own waits for a lock, in nanoseconds.
    #[inline]
    pub(crate) fn patience(&self) -> u64 {
        self.inner.patience()
    }

    /// The same, for whoever takes a lock.
    #[inline]
    pub(crate) fn until(&self) -> Until {
        Until::Within(self.patience())
    }

    /// When an operation without a time of its own gives up on a lock.
    pub(crate) fn deadline(&self) -> u64 {
        self.inner.deadline()
    }

    pub(crate) fn view(&self) -> &View {
        &self.inner.view
    }

    /// Whether an existing segment is declared as the set that this program describes.
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

    /// Whether an existing segment is what this program describes; the first difference is the error.
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

/// An input or output error of attaching, with what was being done.
pub(crate) fn attach_io(doing: &'static str, path: &Path, source: io::Error) -> AttachError {
    AttachError::Io { doing, path: path.to_owned(), source }
}
