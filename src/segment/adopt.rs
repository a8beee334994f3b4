//! Adopting: making a segment of a file that somebody else made and that has its name already.
//!
//! Such a file cannot be made whole before it is seen, so its first eight bytes say how far it is. They are
//! written in one store each, by whoever holds the init lock (byte 0 of the file), which ends with its holder:
//!
//! | first bytes | the rest | what it is | under the lock, an adopter |
//! | --- | --- | --- | --- |
//! | 0 | 0 | fresh | reserves its space, writes the mark, lays out, writes the magic |
//! | the mark | anything | left by an adopter that was killed: it was all zero before | clears it, then the same |
//! | the magic | a segment | whole | attaches |
//! | 0 | not all 0 | another program's | refuses |
//! | else | | another program's | refuses |

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Release;

use super::attach::{self, Source};
use super::enrol::INIT_LOCK_PAUSE;
use super::name::SHARED_MEMORY;
use super::{Segment, SegmentOptions, attach_io, create};
use crate::error::{AttachError, CreateError, Malformed};
use crate::layout::header::{HEADER_BYTES, MAGIC, UNFINISHED};
use crate::layout::plan::Plan;
use crate::sys::liveness::InitLock;
use crate::sys::map::Map;
use crate::sys::{clock, file};

/// Bytes read or cleared at a time.
const CHUNK: usize = 1 << 16;

/// A file of somebody else, now a segment or at least beginning like one.
pub(crate) struct Adopted {
    file: File,
    path: PathBuf,
}

impl Adopted {
    /// Lays out a segment in a file of /dev/shm, unless it has one. `mapped` tells device and inode of the file
    /// that is meant: by now the name may lead to another.
    pub(crate) fn in_shared_memory(
        options: &SegmentOptions,
        file_name: &str,
        mapped: impl FnOnce() -> io::Result<(u64, u64)>,
    ) -> Result<Self, CreateError> {
        let plan = create::plan(options)?;
        let path = Path::new(SHARED_MEMORY).join(file_name);
        let forks = attach::prepare_forks(&path)?;
        let file = attach::open_checked(options, &path, true)?;
        let about = file.metadata().map_err(|error| attach_io("look at", &path, error))?;
        let mapped = mapped().map_err(|error| attach_io("find the mapping of", &path, error))?;
        if (about.dev(), about.ino()) != mapped {
            return Err(AttachError::Removed { path }.into());
        }
        let fresh = Fresh { file: &file, path: &path, bytes: about.len() };
        let deadline = clock::deadline(options.patience);
        loop {
            // Not while a fork is under way: if we died, its child would keep the lock.
            if let Some(done) = forks.without_forks(|| fresh.try_lay_out(&plan)) {
                done?;
                return Ok(Self { file, path });
            }
            if clock::monotonic() >= deadline {
                return Err(AttachError::Busy { path, waited: options.patience }.into());
            }
            std::thread::sleep(INIT_LOCK_PAUSE);
        }
    }

    /// Attaches to it, as to any other.
    pub(crate) fn attach(self, options: &SegmentOptions) -> Result<Segment, CreateError> {
        let segment = attach::adopt(options, self.file, Source::File(self.path))?;
        segment.same_shape(&options.shape)?;
        Ok(segment)
    }
}

/// A file that may be fresh.
struct Fresh<'a> {
    file: &'a File,
    path: &'a Path,
    bytes: u64,
}

impl Fresh<'_> {
    /// None if somebody else is at it.
    fn try_lay_out(&self, plan: &Plan) -> Option<Result<(), CreateError>> {
        match InitLock::try_take(self.file) {
            Ok(Some(_lock)) => Some(self.lay_out(plan)),
            Ok(None) => None,
            Err(error) => Some(Err(attach_io("lock", self.path, error).into())),
        }
    }

    fn lay_out(&self, plan: &Plan) -> Result<(), CreateError> {
        let was_unfinished = match self.first_bytes()? {
            MAGIC => return Ok(()),
            UNFINISHED => true,
            found if found == [0; 8] => {
                self.refuse_bytes_in_use()?;
                false
            }
            found => return Err(self.malformed(Malformed::Magic { found })),
        };
        let needed = plan.total_bytes;
        if self.bytes < needed {
            return Err(CreateError::TooSmall { path: self.path.to_owned(), found: self.bytes, needed });
        }
        file::reserve(self.file, self.bytes).map_err(create::out_of_space(self.path, self.bytes))?;
        let written = self.write(plan, was_unfinished);
        written.map_err(|error| attach_io("write to", self.path, error).into())
    }

    fn write(&self, plan: &Plan, clear_first: bool) -> io::Result<()> {
        let map = Map::shared(self.file, HEADER_BYTES as usize)?;
        let first = map.words64(0, 1).first().ok_or(io::ErrorKind::UnexpectedEof)?;
        first.store(u64::from_ne_bytes(UNFINISHED), Release);
        let after_first = size_of_val(first) as u64;
        if clear_first {
            self.clear(after_first)?;
        }
        let pieces = plan.pieces_of(self.bytes);
        for (offset, bytes) in &pieces {
            // The header without its magic.
            let hidden = after_first.saturating_sub(*offset);
            let bytes = usize::try_from(hidden).ok().and_then(|hidden| bytes.get(hidden..));
            self.file.write_all_at(bytes.unwrap_or_default(), offset + hidden)?;
        }
        first.store(u64::from_ne_bytes(MAGIC), Release);
        Ok(())
    }

    fn clear(&self, from: u64) -> io::Result<()> {
        let zeros = [0; CHUNK];
        let mut at = from;
        while at < self.bytes {
            let count = usize::try_from(self.bytes - at).map_or(CHUNK, |left| left.min(CHUNK));
            self.file.write_all_at(zeros.get(..count).unwrap_or_default(), at)?;
            at += count as u64;
        }
        Ok(())
    }

    fn first_bytes(&self) -> Result<[u8; 8], CreateError> {
        let mut found = [0; 8];
        self.read(&mut found, 0)?;
        Ok(found)
    }

    /// By reading, not through a mapping: that would fill the holes of the file, or be a SIGBUS.
    fn refuse_bytes_in_use(&self) -> Result<(), CreateError> {
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        loop {
            let count = self.read(&mut buffer, offset)?;
            let found = buffer.get(..count).unwrap_or_default();
            if let Some(index) = found.iter().position(|byte| *byte != 0) {
                return Err(self.malformed(Malformed::InUse { offset: offset + index as u64 }));
            }
            if count == 0 {
                return Ok(());
            }
            offset += count as u64;
        }
    }

    /// Fills the buffer as far as the file goes.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, CreateError> {
        let read = attach::read_at(self.file, buffer, offset);
        read.map_err(|error| attach_io("read", self.path, error).into())
    }

    fn malformed(&self, what: Malformed) -> CreateError {
        AttachError::Malformed { path: self.path.to_owned(), what }.into()
    }
}
