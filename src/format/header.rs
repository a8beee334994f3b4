//! The header page: a segment's description of itself, and its directory of regions.
//!
//! The header is never written after creation, so one checksum covers it. A reader copies the header and
//! checks the copy once, with [`Header::check`]; the result is a [`Checked`] directory whose offsets and
//! lengths need no further checks.

use bytemuck::{Pod, Zeroable};

use super::definition::DefinitionHead;
use super::{FORMAT_VERSION, Field, Fnv, LAYOUT_HASH, LINE_PAIR, block, fields, slots, state, waiters, work};
use crate::format::error::Malformed;
use crate::limit::Clock;

/// The first eight bytes of every segment.
pub(crate) const MAGIC: [u8; 8] = *b"LIMITSET";
/// The first eight bytes of a file while it is being adopted as a segment.
pub(crate) const UNFINISHED: [u8; 8] = *b"LIMITNEW";
/// Reads as another number on a machine with the other byte order.
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
/// The size of header and directory together; regions start here.
pub(crate) const HEADER_BYTES: u32 = 2048;
/// The largest number of regions.
pub(crate) const MAX_REGIONS: u32 = 24;
/// The longest label of a region, in bytes.
pub(crate) const LABEL_BYTES: usize = 32;

/// The kind of a region. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RegionKind {
    Slots = 1,
    State = 2,
    Waiters = 3,
    Mutex = 4,
    Semaphore = 5,
    Words = 6,
    Definition = 7,
    Items = 8,
}

impl RegionKind {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        use RegionKind::*;
        [Slots, State, Waiters, Mutex, Semaphore, Words, Definition, Items]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }

    /// Returns whether the region is a block, which starts with lock, version and journal.
    pub(crate) fn is_block(self) -> bool {
        matches!(self, Self::State | Self::Mutex | Self::Semaphore)
    }
}

/// One directory entry. Kinds this build does not know are skipped, so that later builds can add some.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable, PartialEq, Eq)]
pub(crate) struct RegionEntry {
    pub(crate) kind: u32,
    pub(crate) version: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Blocks: the capacity of the undo journal, in entries.
    pub(crate) journal_entries: u32,
    /// Blocks and word regions: the number of 64-bit words that follow.
    pub(crate) words: u32,
    /// The label of a user's region, padded with zeros.
    pub(crate) label: [u8; LABEL_BYTES],
}

impl RegionEntry {
    pub(crate) const FIELDS: &[Field] =
        fields!(RegionEntry { kind, version, offset, length, journal_entries, words, label });

    pub(crate) fn label(&self) -> &[u8] {
        let end = self.label.iter().position(|byte| *byte == 0).unwrap_or(LABEL_BYTES);
        self.label.get(..end).unwrap_or_default()
    }
}

/// The first bytes of a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) format_version: u32,
    pub(crate) byte_order: u32,
    /// Bytes of a word and of a line pair, which identify the kind of machine that created the segment.
    pub(crate) word_bytes: u32,
    pub(crate) line_bytes: u32,
    pub(crate) total_bytes: u64,
    pub(crate) layout_hash: u64,
    /// The checksum of header and directory, with this field zero.
    pub(crate) checksum: u64,
    /// Random: tells a segment from a later one of the same name.
    pub(crate) instance: [u8; 16],
    pub(crate) created_unix_nanos: u64,
    pub(crate) creator_pid: u32,
    pub(crate) creator_uid: u32,
    pub(crate) clock: u32,
    pub(crate) slots: u32,
    pub(crate) limits: u32,
    pub(crate) waiters: u32,
    /// Words reserved for window cells, over all limits.
    pub(crate) cells: u32,
    pub(crate) regions: u32,
    /// The number of items of the work queue; 0: there is no queue.
    pub(crate) items: u32,
    /// The largest payload and the largest result of an item, in bytes.
    pub(crate) payload_bytes: u32,
    pub(crate) result_bytes: u32,
    pub(crate) reserved: [u8; 12],
    pub(crate) directory: [RegionEntry; MAX_REGIONS as usize],
}

// These numbers are the format. A change of any of them must raise FORMAT_VERSION.
const _: () = {
    assert!(size_of::<RegionEntry>() == 64);
    assert!(std::mem::offset_of!(Header, directory) == 128);
    assert!(size_of::<Header>() == 128 + 64 * MAX_REGIONS as usize);
    assert!(size_of::<Header>() <= HEADER_BYTES as usize);
    assert!(HEADER_BYTES.is_multiple_of(LINE_PAIR));
};

/// A directory that passed [`Header::check`].
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) header: Header,
    pub(crate) slots: RegionEntry,
    pub(crate) state: RegionEntry,
    pub(crate) waiters: RegionEntry,
    pub(crate) clock: Clock,
    /// The declaration of the set; none for a segment without limits.
    pub(crate) definition: Option<RegionEntry>,
    /// The payloads and results of items of work; none without a work queue.
    pub(crate) items: Option<RegionEntry>,
    /// Mutexes, semaphores and word regions, in directory order.
    pub(crate) labelled: Vec<(RegionKind, RegionEntry)>,
}

impl Header {
    pub(crate) const FIELDS: &[Field] = fields!(Header {
        magic,
        format_version,
        byte_order,
        word_bytes,
        line_bytes,
        total_bytes,
        layout_hash,
        checksum,
        instance,
        created_unix_nanos,
        creator_pid,
        creator_uid,
        clock,
        slots,
        limits,
        waiters,
        cells,
        regions,
        items,
        payload_bytes,
        result_bytes,
        reserved,
        directory,
    });

    pub(crate) fn computed_checksum(&self) -> u64 {
        let mut copy = *self;
        copy.checksum = 0;
        Fnv::new().bytes(bytemuck::bytes_of(&copy)).0
    }

    /// Checks a copy of the first bytes of a file of `file_bytes` bytes.
    ///
    /// Cheap identity checks come first, so that the error names the most telling difference: a foreign file
    /// is "not a segment", not "a bad checksum".
    pub(crate) fn check(bytes: &[u8], file_bytes: u64) -> Result<Checked, Malformed> {
        let Some(bytes) = bytes.get(..size_of::<Header>()) else {
            return Err(Malformed::TooShort { found: file_bytes, expected: u64::from(HEADER_BYTES) });
        };
        let header: Header = bytemuck::pod_read_unaligned(bytes);
        if header.magic == UNFINISHED {
            return Err(Malformed::Unfinished);
        }
        if header.magic != MAGIC {
            return Err(Malformed::Magic { found: header.magic });
        }
        if header.byte_order != BYTE_ORDER {
            return Err(Malformed::ByteOrder { found: header.byte_order, expected: BYTE_ORDER });
        }
        if header.format_version != FORMAT_VERSION {
            return Err(Malformed::FormatVersion { found: header.format_version, expected: FORMAT_VERSION });
        }
        if (header.word_bytes, header.line_bytes) != (8, LINE_PAIR) {
            return Err(Malformed::Machine { word_bytes: header.word_bytes, line_bytes: header.line_bytes });
        }
        if header.layout_hash != LAYOUT_HASH {
            return Err(Malformed::LayoutHash { found: header.layout_hash, expected: LAYOUT_HASH });
        }
        if header.checksum != header.computed_checksum() {
            return Err(Malformed::Checksum { found: header.checksum, expected: header.computed_checksum() });
        }
        if header.total_bytes != file_bytes {
            return Err(Malformed::Size { found: file_bytes, expected: header.total_bytes });
        }
        header.check_directory()
    }

    fn check_directory(self) -> Result<Checked, Malformed> {
        let counts = [
            ("slots", self.slots, 1, slots::MAX_SLOTS),
            ("limits", self.limits, 0, state::MAX_LIMITS),
            ("waiters", self.waiters, 0, waiters::MAX_WAITERS),
            ("cells", self.cells, 0, state::MAX_CELLS),
            ("items", self.items, 0, work::MAX_ITEMS),
            ("bytes of an item", self.payload_bytes, 0, work::MAX_ITEM_BYTES),
            ("bytes of a result", self.result_bytes, 0, work::MAX_ITEM_BYTES),
        ];
        let clock = Clock::from_number(self.clock).ok_or(Malformed::Clock { found: self.clock })?;
        for (what, found, least, most) in counts {
            if !(least..=most).contains(&found) {
                return Err(Malformed::Count { what, found, least, most });
            }
        }
        let Some(entries) = self.directory.get(..self.regions as usize) else {
            return Err(Malformed::Count {
                what: "regions",
                found: self.regions,
                least: 3,
                most: MAX_REGIONS,
            });
        };
        let mut end = u64::from(HEADER_BYTES);
        let (mut slots, mut state, mut waiters) = (None, None, None);
        let (mut definition, mut items) = (None, None);
        let mut labelled = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let bad = |what: &'static str| Malformed::Region { index, kind: entry.kind, what };
            // Regions are listed in order without overlap, so one pass proves them disjoint.
            if entry.offset < end {
                return Err(bad("overlaps the bytes before it"));
            }
            if !entry.offset.is_multiple_of(u64::from(LINE_PAIR)) {
                return Err(bad("is not aligned to 128 bytes"));
            }
            end = match entry.offset.checked_add(entry.length) {
                Some(end) if end <= self.total_bytes => end,
                _ => return Err(bad("reaches beyond the end of the segment")),
            };
            let Some(kind) = RegionKind::from_number(entry.kind) else { continue };
            if entry.version != FORMAT_VERSION {
                return Err(bad("has another version"));
            }
            let (needed, words) = match kind {
                RegionKind::Slots => (slots::region_bytes(self.slots), 0),
                RegionKind::Waiters => (waiters::region_bytes(self.waiters, self.limits), 0),
                RegionKind::State => (block::region_bytes(entry), self.state_map().words()),
                RegionKind::Semaphore => (block::region_bytes(entry), block::semaphore_words(self.slots)),
                RegionKind::Mutex => (block::region_bytes(entry), entry.words),
                RegionKind::Words => (u64::from(entry.words) * 8, entry.words),
                RegionKind::Definition => (size_of::<DefinitionHead>() as u64, 0),
                RegionKind::Items => {
                    (work::region_bytes(self.items, self.payload_bytes, self.result_bytes), 0)
                }
            };
            if entry.length < needed {
                return Err(bad("is too small for its contents"));
            }
            if entry.words != words {
                return Err(bad("has a word count that does not fit the header"));
            }
            if kind.is_block() && entry.journal_entries < block::least_journal(kind, &self, entry.words) {
                return Err(bad("has too small a journal"));
            }
            let place = match kind {
                RegionKind::Slots => &mut slots,
                RegionKind::State => &mut state,
                RegionKind::Waiters => &mut waiters,
                RegionKind::Definition => &mut definition,
                RegionKind::Items => &mut items,
                _ => {
                    labelled.push((kind, *entry));
                    continue;
                }
            };
            if place.replace(*entry).is_some() {
                return Err(bad("is listed twice"));
            }
        }
        match (slots, state, waiters) {
            (Some(slots), Some(state), Some(waiters)) if items.is_some() == (self.items > 0) => {
                Ok(Checked { header: self, slots, state, waiters, clock, definition, items, labelled })
            }
            _ => Err(Malformed::RegionMissing),
        }
    }

    /// Returns the positions of the words of the state block.
    pub(crate) fn state_map(&self) -> state::StateMap {
        let Self { limits, cells, slots, waiters, items, .. } = *self;
        state::StateMap { limits, cells, slots, waiters, items }
    }
}
