//! Mapped memory as atomic words.
//!
//! Other processes write these bytes at any time, so all references to them are to atomics, and every access
//! is checked for bounds and alignment.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

/// The mapped bytes of one segment.
pub(crate) struct Map {
    raw: MmapRaw,
}

impl Map {
    /// Maps `bytes` bytes of `file`, shared with all processes that map it.
    pub(crate) fn shared(file: &File, bytes: usize) -> io::Result<Self> {
        MmapOptions::new().len(bytes).map_raw(file).map(|raw| Self { raw })
    }

    /// Maps `bytes` bytes of `file` for reading only. A store through this mapping would be a SIGSEGV.
    pub(crate) fn read_only(file: &File, bytes: usize) -> io::Result<Self> {
        MmapOptions::new().len(bytes).map_raw_read_only(file).map(|raw| Self { raw })
    }

    /// Returns zeroed memory of this process alone, with `pieces` written into it.
    pub(crate) fn private(bytes: usize, pieces: &[(u64, Vec<u8>)]) -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(bytes)?;
        for (offset, piece) in pieces {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let place = start.checked_add(piece.len()).and_then(|end| memory.get_mut(start..end));
            place.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(piece);
        }
        Ok(Self { raw: memory.into() })
    }

    /// Returns address and length of the mapping.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.raw.as_ptr().addr(), self.raw.len())
    }

    /// Returns `count` 32-bit words from byte `offset`; empty if they are not all inside.
    pub(crate) fn words32(&self, offset: u64, count: usize) -> &[AtomicU32] {
        let Some(start) = self.place::<AtomicU32>(offset, count) else { return &[] };
        // SAFETY: `place` proved that `count` aligned words at `start` lie inside the mapping, which lives as
        // long as `self`. Atomics may be shared with writers in other threads and processes; all code of this
        // project accesses these bytes only as atomics.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Returns `count` 64-bit words from byte `offset`; empty if they are not all inside.
    pub(crate) fn words64(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let Some(start) = self.place::<AtomicU64>(offset, count) else { return &[] };
        // SAFETY: as in `words32`.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    fn place<T>(&self, offset: u64, count: usize) -> Option<*const T> {
        let offset = usize::try_from(offset).ok()?;
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        let inside = end <= self.raw.len() && offset.is_multiple_of(align_of::<T>());
        // The mapping itself starts at a page.
        inside.then(|| self.raw.as_ptr().wrapping_add(offset).cast())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_outside_or_askew_are_not_there() {
        let map = Map::private(4096, &[(8, 7u64.to_ne_bytes().to_vec())]).unwrap();
        assert_eq!(map.words64(8, 1)[0].load(Relaxed), 7);
        assert_eq!(map.words64(0, 512).len(), 512);
        assert!(map.words64(0, 513).is_empty());
        assert!(map.words64(4, 1).is_empty());
        assert!(map.words64(u64::MAX, 1).is_empty());
        assert!(map.words64(8, usize::MAX).is_empty());
        assert!(map.words32(4094, 1).is_empty());
        assert!(Map::private(16, &[(12, vec![0; 8])]).is_err());
    }
}
