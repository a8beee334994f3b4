//! Finds segments that tests did not remove.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// The folder in which the product keeps its segments.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// Returns the names in `folder` that tests use: `limitset.*test*`.
pub(crate) fn find(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.strip_prefix("limitset.").is_some_and(|rest| rest.contains("test")) {
            found.insert(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_of_tests_are_leftovers() {
        let folder = std::env::temp_dir().join(format!("xtask-leftovers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["limitset.test-1-a", "limitset.my-test", "limitset.prod", "test", "sem.limitset.test"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let found = find(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let found: Vec<_> = found.unwrap().into_iter().collect();
        assert_eq!(found, ["limitset.my-test", "limitset.test-1-a"]);
    }
}
