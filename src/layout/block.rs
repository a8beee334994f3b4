//! A block: words that change together, under one lock, with an undo journal.
//!
//! ```text
//! head      128 bytes   lock, journal length, doorbell …; then how the dead are looked for
//! journal   16 bytes for each word that may change at once: at most its old value, and which it is
//! words      8 bytes each
//! ```
//!
//! The set's state, every mutex and every semaphore is one block.

use super::header::{Header, RegionEntry, RegionKind};
use super::{Field, fields, state};

/// Head of a block. Its first line is all that a lock and unlock touch.
#[repr(C)]
pub(crate) struct BlockHead {
    /// Who holds the lock; see `core::owner`.
    pub(crate) lock: u32,
    /// Not 0: somebody may be asleep for the lock. That is what they sleep on.
    pub(crate) sleepers: u32,
    /// How long the journal is, and how many changes there have been; see `core::journal`.
    pub(crate) change: u64,
    /// Not 0: the segment was removed.
    pub(crate) closed: u64,
    /// Rung when something was given back; bit 0 says that somebody sleeps on it.
    pub(crate) doorbell: u32,
    pub(crate) reserved: u32,
    /// When the dead were last looked for.
    pub(crate) last_sweep: u64,
    /// How often the lock was taken from a dead holder.
    pub(crate) steals: u64,
    /// How many of those had left an update half done.
    pub(crate) rollbacks: u64,
    /// How often an unlock found the lock in other hands: always 0 unless something is broken.
    pub(crate) deposed: u64,
    /// How long the last sweep took, in nanoseconds; see `core::sweep`.
    pub(crate) sweep_cost: u64,
    /// The slot that the last sweep ended at: the next one begins behind it.
    pub(crate) sweep_cursor: u64,
    pub(crate) reserved_line: [u64; 6],
}

impl BlockHead {
    pub(crate) const FIELDS: &[Field] = fields!(BlockHead {
        lock,
        sleepers,
        change,
        closed,
        doorbell,
        reserved,
        last_sweep,
        steals,
        rollbacks,
        deposed,
        sweep_cost,
        sweep_cursor,
        reserved_line,
    });
}

pub(crate) const HEAD_BYTES: u64 = 128;
pub(crate) const JOURNAL_ENTRY_BYTES: u64 = 16;

const _: () = {
    assert!(size_of::<BlockHead>() as u64 == HEAD_BYTES);
    assert!(std::mem::offset_of!(BlockHead, change) == 8);
};

/// Words of a semaphore block: capacity, taken, then per slot generation and held.
pub(crate) const fn semaphore_words(slots: u32) -> u32 {
    2 + 2 * slots
}

/// The smallest journal with which no operation on such a block can run out of entries.
pub(crate) fn least_journal(kind: RegionKind, header: &Header, words: u32) -> u32 {
    match kind {
        RegionKind::State => state::journal_entries(header.limits),
        RegionKind::Semaphore => SEMAPHORE_JOURNAL,
        _ => words.min(MAX_MUTEX_JOURNAL),
    }
}

/// A semaphore changes at most three words at once: taken, a row's generation, what it holds.
pub(crate) const SEMAPHORE_JOURNAL: u32 = 4;

/// Most words one transaction on a mutex may change.
pub(crate) const MAX_MUTEX_JOURNAL: u32 = 1024;

/// Bytes a block with this entry's journal and words needs.
pub(crate) fn region_bytes(entry: &RegionEntry) -> u64 {
    HEAD_BYTES + u64::from(entry.journal_entries) * JOURNAL_ENTRY_BYTES + u64::from(entry.words) * 8
}
