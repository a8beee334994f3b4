//! Removing a segment, so that all its users notice.
//!
//! The remover holds the init lock, so that no process can enrol meanwhile. It marks every block as closed and wakes
//! the sleepers; then it unlinks the name.
//!
//! The marks are set without the blocks' locks. They are never cleared, and no word depends on them. A lock holder that
//! is slow or stopped must not leave a segment half removed: users of the blocks that are still open would go on beside
//! a new segment of the same name. If the remover is killed between the marks and the unlinking, the next process that
//! attaches finishes the removal.

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
use crate::segment::error::AttachError;

impl View {
    /// Removes the segment. The caller makes sure that only one thread of the process does so at a time.
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
    if !may_unlink(path).map_err(|error| attach_io("stat the directory of", path, error))? {
        // Checked before any block is closed: a closed segment that keeps its name would block the name.
        return Err(AttachError::Permission { path: path.to_owned(), access: "unlink" });
    }
    close_all();
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(attach_io("unlink", path, error)),
        _ => Ok(()),
    }
}

/// Returns whether this process may unlink the name. In a directory with the sticky bit, such as /dev/shm, only the
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
