//! Names of segments, and the file that each name stands for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::segment::error::BadName;

/// The directory of named segments.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
/// The prefix of their file names.
pub(crate) const PREFIX: &str = "limitset.";
const MAX_NAME: usize = 200;

/// A segment's place in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// Whether the file is in /dev/shm. Such a file is gone at the next boot, so nothing is synced to disk.
    pub(crate) is_named: bool,
}

impl Place {
    /// Returns the place of a name: `openai` is /dev/shm/limitset.openai; anything with a slash is a path.
    pub(crate) fn of(name: impl AsRef<OsStr>) -> Result<Self, BadName> {
        let name = name.as_ref();
        let text = name.to_string_lossy();
        let bad = |why| Err(BadName { name: text.to_string(), why });
        if text.contains('/') {
            let path = Path::new(name);
            if text.contains('\0') {
                return bad("has a zero byte");
            }
            if path.file_name().is_none() || text.ends_with('/') {
                return bad("names a directory");
            }
            // Absolute, so that a later `chdir` does not change which file the path leads to.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Ok(Self { path, is_named: false });
        }
        if text.is_empty() {
            return bad("is empty");
        }
        if name.len() > MAX_NAME {
            return bad("is longer than 200 bytes");
        }
        if text.starts_with(['.', '-']) {
            return bad("starts with . or -");
        }
        if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
            return bad("has a character outside A-Z a-z 0-9 . _ -");
        }
        let path = Path::new(SHARED_MEMORY).join(format!("{PREFIX}{text}"));
        Ok(Self { path, is_named: true })
    }

    /// Returns the directory of the file.
    pub(crate) fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_a_file_in_shared_memory_and_a_slash_makes_a_path() {
        let place = Place::of("openai").unwrap();
        assert_eq!(place.path, Path::new("/dev/shm/limitset.openai"));
        assert!(place.is_named);
        let place = Place::of("./limits").unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!((place.path.clone(), place.is_named), (here.join("limits"), false));
        assert_eq!(place.directory(), here);
        assert!(Place::of("a".repeat(200)).is_ok());
    }

    #[test]
    fn names_against_the_rules_are_refused_with_the_reason() {
        let long = "a".repeat(201);
        for (name, why) in [
            ("", "empty"),
            (".hidden", "starts"),
            ("-rf", "starts"),
            ("a b", "character"),
            ("ü", "character"),
            ("a\0", "character"),
            ("/tmp/a\0b", "zero"),
            ("/", "directory"),
            ("dir/", "directory"),
            ("dir/..", "directory"),
            (long.as_str(), "longer"),
        ] {
            let refused = Place::of(name).unwrap_err();
            assert!(refused.why.contains(why), "{name:?}: {refused}");
        }
    }
}
