//! Whether the name of a segment still leads to its file, as far as this process can see.
//!
//! A file that lost its last name tells so by itself (`st_nlink`). One that was moved, or has another hard link, does not:
//! only its path can tell. The path is not always a witness. After a `chroot`, in another mount namespace, or under
//! another mount it leads through directories that have nothing to do with the segment; without permission it leads nowhere.
//! A wrong "gone" would close the set for every process. So a path is believed only if it still leads through the very
//! directory that the file was found in, and if no mount hides the file itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::name::Place;
use crate::sys::file;
use crate::sys::ofd::Identity;

/// A path, and what it led to when the segment was attached.
pub(crate) struct Sight {
    path: PathBuf,
    file: Identity,
    /// None: the path was no witness from the beginning.
    directory: Option<Identity>,
}

impl Sight {
    /// Remembers where `file` was found.
    pub(crate) fn new(path: &Path, file: Identity) -> Self {
        let directory = directory_of(path);
        // A file that is a mount of its own has its name elsewhere: when it is unmounted here, nothing is gone.
        let directory = directory.filter(|_| file::is_mount_root(path) != Some(true));
        Self { path: path.to_owned(), file, directory }
    }

    /// Whether the path leads to the file.
    pub(crate) fn leads_to_file(&self) -> bool {
        file::identity_at(&self.path).is_ok_and(|found| found == self.file)
    }

    /// True only if the name was certainly taken from the file.
    pub(crate) fn is_gone(&self) -> bool {
        if self.leads_to_file() {
            return false;
        }
        // Before and after the look at the file: another thread may change the root directory in between.
        self.sees_directory()
            && match file::identity_at(&self.path) {
                // Kernels before 5.8 cannot tell a mount from another file. Then nothing is concluded.
                Ok(found) => found != self.file && file::is_mount_root(&self.path) == Some(false),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
            && self.sees_directory()
    }

    fn sees_directory(&self) -> bool {
        self.directory.is_some() && directory_of(&self.path) == self.directory
    }
}

fn directory_of(path: &Path) -> Option<Identity> {
    let place = Place { path: path.to_owned(), is_named: false };
    fs::metadata(place.directory()).ok().map(|about| Identity::of(&about))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_new_directory(test: impl FnOnce(&Path, &Path, &Sight)) {
        let random = u128::from_ne_bytes(crate::sys::clock::random());
        let directory = std::env::temp_dir().join(format!("limitset-sight-{random:x}"));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("set");
        fs::write(&path, "set").unwrap();
        let sight = Sight::new(&path, file::identity_at(&path).unwrap());
        assert!(sight.leads_to_file() && !sight.is_gone());
        test(&directory, &path, &sight);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_was_moved_or_replaced_is_gone_from_its_path() {
        in_new_directory(|directory, path, sight| {
            fs::rename(path, directory.join("moved")).unwrap();
            assert!(sight.is_gone());
            fs::write(path, "another").unwrap();
            let can_tell = file::is_mount_root(path).is_some();
            assert_eq!(sight.is_gone(), can_tell, "on kernels that can tell a mount from a file");
            fs::rename(directory.join("moved"), path).unwrap();
            assert!(!sight.is_gone(), "it came back");
        });
    }

    #[test]
    fn a_path_through_another_directory_says_nothing() {
        in_new_directory(|directory, _, sight| {
            let aside = directory.with_extension("aside");
            fs::rename(directory, &aside).unwrap();
            assert!(!sight.is_gone(), "the directory cannot be seen");
            fs::create_dir(directory).unwrap();
            assert!(!sight.is_gone(), "it is another directory");
            fs::remove_dir_all(&aside).unwrap();
        });
    }
}
