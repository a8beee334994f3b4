//! Attaching: from a name to a segment that has proved itself.
//!
//! The file is opened with suspicion, its header is read into a copy and judged there, and only then mapped.
//! Whether the name still leads to this file is looked at once more under the init lock, when enrolling.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::enrol::Enrolment;
use super::name::Place;
use super::sight::Sight;
use super::view::View;
use super::{Inner, Observer, Segment, SegmentOptions, attach_io};
use crate::error::{AttachError, Malformed};
use crate::layout::header::{Checked, HEADER_BYTES, Header};
use crate::limit::Definition;
use crate::sys::fork::Forks;
use crate::sys::liveness::Descriptors;
use crate::sys::map::Map;
use crate::sys::{file, fork};

/// How often to start again because the name led elsewhere in between.
const ATTACH_ROUNDS: usize = 8;

/// Where a segment comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    Anonymous,
    Private,
}

impl Source {
    /// What to call it in messages.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Anonymous => PathBuf::from("(anonymous)"),
            Self::Private => PathBuf::from("(private)"),
        }
    }
}

pub(super) fn attach(options: &SegmentOptions, name: &OsStr) -> Result<Segment, AttachError> {
    let path = Place::of(name)?.path;
    let mut round = 0;
    loop {
        round += 1;
        let file = open_checked(options, &path, true)?;
        match adopt(options, file, Source::File(path.clone())) {
            // Removed and perhaps created anew while we were attaching: look again.
            Err(AttachError::Removed { .. }) if round < ATTACH_ROUNDS => {}
            done => return done,
        }
    }
}

pub(super) fn observe(options: &SegmentOptions, name: &OsStr) -> Result<Observer, AttachError> {
    let path = Place::of(name)?.path;
    let file = open_checked(options, &path, false)?;
    let view = view(options, file, Source::File(path), false)?;
    Ok(Observer { view: Arc::new(view) })
}

/// Removes a segment without becoming a participant: there may be no slot left.
pub(super) fn remove(options: &SegmentOptions, name: &OsStr) -> Result<(), AttachError> {
    let path = Place::of(name)?.path;
    let file = open_checked(options, &path, true)?;
    let view = view(options, file, Source::File(path), true)?;
    let removed = view.remove(options.patience);
    if let Some(descriptors) = &view.machine.descriptors {
        descriptors.retire();
    }
    removed
}

/// Makes a segment of an open file, and this process a participant of it.
pub(super) fn adopt(options: &SegmentOptions, file: File, source: Source) -> Result<Segment, AttachError> {
    enrolled(options, view(options, file, source, true)?)
}

/// Makes a segment of private memory.
pub(super) fn private(options: &SegmentOptions, map: Map, checked: Checked) -> Result<Segment, AttachError> {
    prepare_forks(&Source::Private.path())?;
    let definition = options.shape.definition.clone().map(Arc::new);
    enrolled(
        options,
        View { map, checked, machine: options.machine(), source: Source::Private, sight: None, definition },
    )
}

fn enrolled(options: &SegmentOptions, view: View) -> Result<Segment, AttachError> {
    let inner = Inner { enrolment: Enrolment::new(options.patience, options.lends_life), view };
    inner.me()?;
    Ok(Segment { inner: Arc::new(inner) })
}

fn view(options: &SegmentOptions, file: File, source: Source, write: bool) -> Result<View, AttachError> {
    let path = source.path();
    prepare_forks(&path)?;
    let bytes = file.metadata().map_err(|error| attach_io("look at", &path, error))?.len();
    let mut start = vec![0; HEADER_BYTES as usize];
    let read = read_at(&file, &mut start, 0).map_err(|error| attach_io("read", &path, error))?;
    let malformed = |what| AttachError::Malformed { path: path.clone(), what };
    let checked = Header::check(start.get(..read).unwrap_or_default(), bytes).map_err(malformed)?;
    let definition = definition(&file, &checked).map_err(|error| attach_io("read", &path, error))?;
    let definition = definition.map_err(malformed)?;
    let size =
        usize::try_from(bytes).map_err(|_| malformed(Malformed::Size { found: bytes, expected: 0 }))?;
    let map = if write { Map::shared(&file, size) } else { Map::read_only(&file, size) };
    let map = map.map_err(|error| attach_io("map", &path, error))?;
    let name = match &source {
        Source::File(path) => Some(path.clone()),
        _ => None,
    };
    let descriptors = Descriptors::new(file, name, map.range(), write);
    let descriptors = descriptors.map_err(|error| attach_io("look at", &path, error))?;
    let sight = match &source {
        Source::File(path) => Some(Sight::new(path, descriptors.identity())),
        _ => None,
    };
    let machine = crate::sys::machine::Machine { descriptors: Some(descriptors), ..options.machine() };
    Ok(View { map, checked, machine, source, sight, definition })
}

/// Reads what the set was declared as, and compares it with what the header says.
fn definition(file: &File, checked: &Checked) -> io::Result<Result<Option<Arc<Definition>>, Malformed>> {
    let Some(region) = &checked.definition else { return Ok(Ok(None)) };
    // No larger than the file, whose size the header was checked against.
    let mut bytes = vec![0; usize::try_from(region.length).unwrap_or(0)];
    let read = read_at(file, &mut bytes, region.offset)?;
    let found = Definition::decode(bytes.get(..read).unwrap_or_default()).and_then(|it| {
        let (limits, cells) = (it.limits.len() as u64, it.cells());
        if limits != u64::from(checked.header.limits) || cells != checked.header.cells {
            return Err("does not fit the header");
        }
        Ok(Some(Arc::new(it)))
    });
    Ok(found.map_err(|what| Malformed::Definition { what }))
}

pub(super) fn prepare_forks(path: &Path) -> Result<Forks, AttachError> {
    fork::prepare().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => AttachError::Unsupported { what: "wipe a page on fork" },
        _ => attach_io("prepare for forks before using", path, error),
    })
}

/// Fills the buffer as far as the file goes.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens a file that may be a segment; everything but its bytes is judged here.
pub(super) fn open_checked(options: &SegmentOptions, path: &Path, write: bool) -> Result<File, AttachError> {
    let owned = path.to_owned();
    let not_a_file = |found| AttachError::NotAFile { path: path.to_owned(), found };
    let file = file::open_existing(path, write).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => AttachError::NotFound { path: owned },
        io::ErrorKind::PermissionDenied => {
            AttachError::Permission { path: owned, access: if write { "write" } else { "read" } }
        }
        io::ErrorKind::IsADirectory => not_a_file("a directory"),
        _ if error.raw_os_error() == Some(libc::ELOOP) => not_a_file("a symbolic link"),
        _ if error.raw_os_error() == Some(libc::ENXIO) => not_a_file("a socket or device"),
        _ => attach_io("open", path, error),
    })?;
    let about = file.metadata().map_err(|error| attach_io("look at", path, error))?;
    let kind = about.file_type();
    if kind.is_dir() {
        return Err(not_a_file("a directory"));
    }
    if kind.is_fifo() {
        return Err(not_a_file("a FIFO"));
    }
    if kind.is_char_device() || kind.is_block_device() || !kind.is_file() {
        return Err(not_a_file("a device"));
    }
    let us = nix::unistd::geteuid().as_raw();
    if about.uid() != us && !options.any_owner {
        return Err(AttachError::Owner { path: path.to_owned(), found: about.uid(), expected: us });
    }
    refuse_file_system(&file, path)?;
    Ok(file)
}

/// Refuses file systems whose locks and mappings are not shared by all who use them.
pub(super) fn refuse_file_system(file: &File, path: &Path) -> Result<(), AttachError> {
    let found = file::unsuitable_file_system(file);
    match found.map_err(|error| attach_io("find the file system of", path, error))? {
        Some(found) => Err(AttachError::FileSystem { path: path.to_owned(), found }),
        None => Ok(()),
    }
}
