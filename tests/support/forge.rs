//! Forging segments: valid bytes, changed on purpose. The numbers are those of docs/format.md.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

pub const HEADER_BYTES: usize = 1664;
pub const FORMAT_VERSION: usize = 8;
pub const BYTE_ORDER: usize = 12;
pub const WORD_BYTES: usize = 16;
pub const LINE_BYTES: usize = 20;
pub const TOTAL_BYTES: usize = 24;
pub const LAYOUT_HASH: usize = 32;
pub const CHECKSUM: usize = 40;
pub const CLOCK: usize = 80;
pub const SLOTS: usize = 84;
pub const LIMITS: usize = 88;
pub const REGIONS: usize = 100;

/// Kinds of region.
pub const SLOTS_REGION: u32 = 1;
pub const STATE_REGION: u32 = 2;
pub const WAITERS_REGION: u32 = 3;
pub const MUTEX_REGION: u32 = 4;
pub const SEMAPHORE_REGION: u32 = 5;
pub const DEFINITION_REGION: u32 = 7;
pub const ITEMS_REGION: u32 = 8;

/// Offsets within a block.
pub const CHANGE: usize = 8;
pub const CLOSED: usize = 16;
pub const JOURNAL: usize = 128;
/// Words of the state block.
pub const LAST_NOW: usize = 0;
pub const CLOCK_OFFSET: usize = 4;
pub const BOOT_ID: usize = 12;
pub const TIME_NAMESPACE: usize = 14;

/// What describes so many words from this one on, at the end of a journal's entry.
pub fn description(index: usize, count: u64) -> u64 {
    index as u64 | count << 32
}

/// The bytes of a segment file.
#[derive(Clone)]
pub struct Forged(pub Vec<u8>);

impl Forged {
    pub fn read(path: &Path) -> Self {
        Self(std::fs::read(path).unwrap())
    }

    /// Writes the bytes into the file that is there, so that whoever has it mapped sees them too.
    pub fn write(&self, path: &Path) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(self.0.len() as u64).unwrap();
        file.write_all_at(&self.0, 0).unwrap();
    }

    pub fn get32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    pub fn get64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    pub fn set32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    pub fn set64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Offset of directory entry `index`.
    pub fn entry(index: usize) -> usize {
        128 + 64 * index
    }

    /// Directory entry of the first region of a kind.
    pub fn entry_of(&self, kind: u32) -> usize {
        (0..24).map(Self::entry).find(|at| self.get32(*at) == kind).unwrap()
    }

    /// Where the first region of a kind starts.
    pub fn region(&self, kind: u32) -> usize {
        usize::try_from(self.get64(self.entry_of(kind) + 8)).unwrap()
    }

    /// How many bytes it has.
    pub fn region_length(&self, kind: u32) -> usize {
        usize::try_from(self.get64(self.entry_of(kind) + 16)).unwrap()
    }

    /// Where word `index` of a block is.
    pub fn word(&self, kind: u32, index: usize) -> usize {
        let journal = self.get32(self.entry_of(kind) + 24) as usize;
        self.region(kind) + JOURNAL + 16 * journal + 8 * index
    }

    /// Makes the header's checksum right again.
    pub fn seal(&mut self) {
        self.set64(CHECKSUM, 0);
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in &self.0[..HEADER_BYTES] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.set64(CHECKSUM, hash);
    }
}
