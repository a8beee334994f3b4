//! Removing a segment, so that everybody notices.
//!
//! Under the init lock, which keeps newcomers out: every block is marked as closed and sleepers are woken; then
//! the name is unlinked. The marks are set without the blocks' locks. They go one way only and guard no words, and
//! a lock that somebody holds for long, or is stopped in, must not leave a segment half removed: those whose
//! blocks are still open would go on beside a new segment of the same name. Whoever is killed between the marks
//! and the unlinking leaves work that the next to attach finishes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::attach::Source;
use super::sight::Sight;
use super::view::View;
use super::{Place, attach_io};
use crate::error::AttachError;

impl View {
    /// Removes the segment. One thread at a time per process, by the caller's care.
    pub(super) fn remove(&self, patience: Duration) -> Result<(), AttachError> {
        let Some(descriptors) = &self.machine.descriptors else {
            self.close_all();
            return Ok(());
        };
        let own = self.init_lock(descriptors, patience)?;
        if let (Source::File(path), Some(sight)) = (&self.source, &self.sight) {
            remove_name(path, sight, || self.close_all())?;
        } else {
            self.close_all();
        }
        own.finish();
        Ok(())
    }
}

fn remove_name(path: &Path, sight: &Sight, close_all: impl Fn()) -> Result<(), AttachError> {
    if !sight.leads_to_file() {
        // Somebody else's segment has the name by now.
        close_all();
        return Ok(());
    }
    if !may_unlink(path).map_err(|error| attach_io("look at the directory of", path, error))? {
        // Before anything is closed: a segment that is dead but keeps its name would be worse than none.
        return Err(AttachError::Permission { path: path.to_owned(), access: "unlink" });
    }
    close_all();
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(attach_io("unlink", path, error)),
        _ => Ok(()),
    }
}

/// Whether this process may take the name away. In a directory with the sticky bit, such as /dev/shm, only the
/// owner of the file or of the directory may.
fn may_unlink(path: &Path) -> io::Result<bool> {
    let directory = Place { path: path.to_owned(), is_named: false };
    let directory = directory.directory();
    let about = fs::metadata(directory)?;
    let us = geteuid();
    let is_sticky = about.mode() & 0o1000 != 0;
    let is_owner = about.uid() == us.as_raw() || fs::symlink_metadata(path)?.uid() == us.as_raw();
    let can_write = faccessat(AT_FDCWD, directory, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok();
    Ok(us.is_root() || can_write && (!is_sticky || is_owner))
}
