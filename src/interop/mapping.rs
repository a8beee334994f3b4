//! Adopting a mapping that a program made with the `shared_memory` crate.
//!
//! That crate leaves three gaps, which adoption closes:
//!
//! * It only sets the file's size, so that on a full tmpfs the first access raises SIGBUS. Adoption reserves the space.
//! * A handle with the owner flag unlinks the file when dropped, also in a forked child. Adoption clears the flag.
//! * It finds its file by name, which may lead to another file by now. Adoption compares the file behind the mapping.

use std::fs;
use std::io;

use shared_memory::Shmem;

use crate::segment::error::CreateError;
use crate::segment::{Adopted, Segment, SegmentOptions};

impl SegmentOptions {
    /// Makes a segment of a mapping of the `shared_memory` crate, or attaches to the segment that it contains. Needs
    /// the feature `shared_memory`.
    ///
    /// ```
    /// use limitset::Segment;
    /// use shared_memory::ShmemConf;
    ///
    /// let options = Segment::options().semaphore("connections", 8);
    /// # let id = format!("/limitset.test-doc-adopt-{}", std::process::id());
    /// let mut mapping = ShmemConf::new().os_id(&id).size(options.bytes()? as usize).create()?;
    ///
    /// let segment = options.adopt(&mut mapping)?; // the others: ShmemConf::new().os_id(&id).open()?, then this
    /// let permit = segment.semaphore("connections")?.acquire(1)?;
    /// # drop(permit);
    ///
    /// assert!(!mapping.is_owner()); // dropping either leaves the file
    /// segment.remove_here()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The whole file becomes the segment, and its size the segment's size; it must have at least
    /// [`bytes`](Self::bytes) bytes. The contents of the file decide:
    ///
    /// * **Only zeros:** its space is reserved and a segment is laid out in it. The file keeps its mode and group.
    /// * **A segment:** this process attaches to it after the usual checks. It must have the counts and regions
    ///   described here, as for [`open`](Self::open).
    /// * **The unfinished work of a killed adopter:** it is cleared and laid out again.
    /// * **Anything else** belongs to another program, and is an error (malformed).
    ///
    /// Any number of processes may adopt one mapping at the same time, and any of them may be killed while it does.
    /// One of them lays it out, under a lock that the kernel releases when its holder dies. Until the layout is
    /// finished, attaching by path returns that it is unfinished. No other program may write to the mapping, before or
    /// after.
    ///
    /// # Removal
    ///
    /// The file stays until it is removed explicitly. As soon as the bytes are known to be a segment, the owner flag
    /// of `mapping` is cleared: neither dropping it nor dropping the [`Segment`] unlinks the file or its file link,
    /// also in a forked child. (If adoption fails before that, the flag stays as it was.) To remove it, call
    /// [`Segment::remove_here`], or [`Segment::remove`] with the path, `/dev/shm/` and the mapping's id.
    ///
    /// Each handle has its own flag. If the process that made the mapping does not adopt it as well, it still owns the
    /// file and unlinks it when its handle is dropped; the other processes then get the error that the segment was
    /// removed.
    ///
    /// The segment has a mapping of its own, so `mapping` can be dropped at any time.
    pub fn adopt(&self, mapping: &mut Shmem) -> Result<Segment, CreateError> {
        let file_name = mapping.get_os_id().trim_start_matches('/');
        let adopted = Adopted::in_shared_memory(self, file_name, || file_behind(mapping.as_ptr().addr()))?;
        mapping.set_owner(false);
        adopted.attach(self)
    }
}

/// Returns the device and inode of the file that is mapped at `address`.
fn file_behind(address: usize) -> io::Result<(u64, u64)> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let found = maps.lines().filter_map(parse).find(|it| (it.start..it.end).contains(&address));
    found.map(|it| (it.device, it.inode)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// One line of /proc/self/maps.
#[derive(Debug, PartialEq)]
struct Mapped {
    start: usize,
    end: usize,
    device: u64,
    inode: u64,
}

/// Parses `start-end rights offset major:minor inode path`, all numbers but the inode in hexadecimal.
fn parse(line: &str) -> Option<Mapped> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Mapped {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        device: nix::sys::stat::makedev(number(major)?, number(minor)?),
        inode: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "7f01a000-7f01c000 rw-s 00000000 00:1a 4711                       /dev/shm/a b (deleted)";
        let device = nix::sys::stat::makedev(0, 0x1a);
        assert_eq!(parse(line), Some(Mapped { start: 0x7f01_a000, end: 0x7f01_c000, device, inode: 4711 }));
        assert_eq!(parse("7f01a000 rw-s"), None);
    }

    #[test]
    fn the_file_behind_a_mapping_is_known() {
        let file = tempfile_in_shared_memory();
        let map = crate::sys::map::Map::shared(&file, 4096).unwrap();
        let about = file.metadata().unwrap();
        assert_eq!(file_behind(map.range().0 + 17).unwrap(), (about.dev(), about.ino()));
        assert!(file_behind(0).is_err());
    }

    fn tempfile_in_shared_memory() -> fs::File {
        let file = crate::sys::file::create_unnamed("/dev/shm".as_ref()).unwrap();
        file.set_len(4096).unwrap();
        file
    }
}
