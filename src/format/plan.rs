//! Planning a segment: from its shape to the bytes a new segment starts with. Pure.

use bytemuck::Zeroable;

use super::header::{
    BYTE_ORDER, HEADER_BYTES, Header, LABEL_BYTES, MAGIC, MAX_REGIONS, RegionEntry, RegionKind,
};
use super::state::{LimitWord, RuleWord, StateMap};
use super::{FORMAT_VERSION, LAYOUT_HASH, LINE_PAIR, block, slots, state, waiters, work};
use crate::format::error::BadOption;
use crate::limit::Clock;
use crate::limit::Definition;

/// The regions of a set: state, slots, waiters, definition, items.
const FIXED_REGIONS: usize = 5;

/// The shape of a segment: how many of each kind it has room for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) slots: u32,
    pub(crate) limits: u32,
    pub(crate) cells: u32,
    pub(crate) waiters: u32,
    pub(crate) clock: Clock,
    /// The items of the work queue, and the bytes of their payloads and results.
    pub(crate) items: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) result_bytes: u32,
    /// The declaration of the set; `limits` and `cells` follow from it.
    pub(crate) definition: Option<Definition>,
    pub(crate) labelled: Vec<Labelled>,
}

/// A region requested by the user. `size` is the words of a mutex or word region, or the permits of a
/// semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labelled {
    pub(crate) kind: RegionKind,
    pub(crate) label: String,
    pub(crate) size: u64,
}

/// The place and time of a segment's creation.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) instance: [u8; 16],
    pub(crate) unix_nanos: u64,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) clock_now: u64,
    pub(crate) boot_id: [u64; 2],
    pub(crate) time_namespace: u64,
}

/// A new segment: its size, and those of its bytes that are not zero.
pub(crate) struct Plan {
    pub(crate) total_bytes: u64,
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
}

#[cfg(feature = "shared_memory")]
impl Plan {
    /// Returns the pieces for a file that is larger than needed: the bytes left over belong to no region.
    pub(crate) fn pieces_of(&self, total_bytes: u64) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = self.pieces.clone();
        if let Some((_, bytes)) = pieces.first_mut() {
            let mut header: Header = bytemuck::pod_read_unaligned(bytes);
            header.total_bytes = total_bytes;
            header.checksum = header.computed_checksum();
            *bytes = bytemuck::bytes_of(&header).to_vec();
        }
        pieces
    }
}

impl Shape {
    /// The largest size of a segment: enough for every count at its maximum, and far below any overflow.
    const MAX_BYTES: u64 = 1 << 32;

    pub(crate) fn check(&self) -> Result<(), BadOption> {
        let counts = [
            ("slots", self.slots, 1, slots::MAX_SLOTS),
            ("limits", self.limits, 0, state::MAX_LIMITS),
            ("cells", self.cells, 0, state::MAX_CELLS),
            ("waiters", self.waiters, 0, waiters::MAX_WAITERS),
            ("items", self.items, 0, work::MAX_ITEMS),
            ("bytes of an item", self.payload_bytes, 0, work::MAX_ITEM_BYTES),
            ("bytes of a result", self.result_bytes, 0, work::MAX_ITEM_BYTES),
        ];
        for (what, found, least, most) in counts {
            if !(least..=most).contains(&found) {
                return Err(BadOption::Count { what, found, least, most });
            }
        }
        let most = MAX_REGIONS as usize - FIXED_REGIONS;
        if self.labelled.len() > most {
            return Err(BadOption::TooManyRegions { found: self.labelled.len(), most });
        }
        for (index, region) in self.labelled.iter().enumerate() {
            let label = &region.label;
            if label.is_empty() || label.len() > LABEL_BYTES || label.contains('\0') {
                return Err(BadOption::Label { label: label.clone(), most: LABEL_BYTES });
            }
            if self.labelled.iter().take(index).any(|other| other.label == *label) {
                return Err(BadOption::LabelTwice { label: label.clone() });
            }
            let (least, most) = match region.kind {
                RegionKind::Semaphore => (1, i64::MAX.cast_unsigned()),
                _ => (0, 1 << 24),
            };
            if !(least..=most).contains(&region.size) {
                return Err(BadOption::RegionSize { label: label.clone(), found: region.size, least, most });
            }
        }
        Ok(())
    }

    /// Lays the regions out and writes the header.
    pub(crate) fn plan(&self, origin: &Origin) -> Result<Plan, BadOption> {
        self.check()?;
        let mut header = Header {
            magic: MAGIC,
            format_version: FORMAT_VERSION,
            byte_order: BYTE_ORDER,
            word_bytes: 8,
            line_bytes: LINE_PAIR,
            layout_hash: LAYOUT_HASH,
            instance: origin.instance,
            created_unix_nanos: origin.unix_nanos,
            creator_pid: origin.pid,
            creator_uid: origin.uid,
            clock: self.clock.number(),
            slots: self.slots,
            limits: self.limits,
            waiters: self.waiters,
            cells: self.cells,
            items: self.items,
            payload_bytes: self.payload_bytes,
            result_bytes: self.result_bytes,
            ..Header::zeroed()
        };
        let mut pieces = Vec::new();
        let mut end = u64::from(HEADER_BYTES);
        let definition = self.definition.as_ref().map(Definition::encode);
        let fixed = [RegionKind::State, RegionKind::Slots, RegionKind::Waiters].into_iter();
        let fixed = fixed.chain(definition.as_ref().map(|_| RegionKind::Definition));
        let fixed = fixed.chain((self.items > 0).then_some(RegionKind::Items)).map(|kind| (kind, "", 0));
        let labelled = self.labelled.iter().map(|region| (region.kind, region.label.as_str(), region.size));
        for (entry, (kind, label, size)) in header.directory.iter_mut().zip(fixed.chain(labelled)) {
            let words = match kind {
                RegionKind::State => self.state_map().words(),
                RegionKind::Semaphore => block::semaphore_words(self.slots),
                // `check` has limited it to 2^24.
                _ => u32::try_from(size).unwrap_or(u32::MAX),
            };
            *entry = RegionEntry { kind: kind as u32, version: FORMAT_VERSION, offset: end, words, ..*entry };
            for (to, from) in entry.label.iter_mut().zip(label.as_bytes()) {
                *to = *from;
            }
            entry.journal_entries = match kind {
                RegionKind::State => state::journal_entries(self.limits),
                RegionKind::Semaphore => block::SEMAPHORE_JOURNAL,
                RegionKind::Mutex => words.min(block::MAX_MUTEX_JOURNAL).next_multiple_of(4),
                _ => 0,
            };
            entry.length = match kind {
                RegionKind::Slots => slots::region_bytes(self.slots),
                RegionKind::Waiters => waiters::region_bytes(self.waiters, self.limits),
                RegionKind::Words => u64::from(words) * 8,
                RegionKind::Definition => definition.as_ref().map_or(0, |bytes| bytes.len() as u64),
                RegionKind::Items => work::region_bytes(self.items, self.payload_bytes, self.result_bytes),
                _ => block::region_bytes(entry),
            }
            .next_multiple_of(u64::from(LINE_PAIR));
            let first_word =
                end + block::HEAD_BYTES + u64::from(entry.journal_entries) * block::JOURNAL_ENTRY_BYTES;
            if let (RegionKind::Definition, Some(bytes)) = (kind, &definition) {
                pieces.push((end, bytes.clone()));
            }
            let start = match kind {
                RegionKind::State => self.first_state(origin),
                RegionKind::Semaphore => vec![(0, size)],
                _ => Vec::new(),
            };
            for (word, value) in start {
                pieces.push((first_word + word as u64 * 8, value.to_ne_bytes().to_vec()));
            }
            end += entry.length;
            header.regions += 1;
        }
        if end > Self::MAX_BYTES {
            return Err(BadOption::TooLarge { found: end, most: Self::MAX_BYTES });
        }
        header.total_bytes = end;
        header.checksum = header.computed_checksum();
        pieces.insert(0, (0, bytemuck::bytes_of(&header).to_vec()));
        Ok(Plan { total_bytes: end, pieces })
    }

    fn state_map(&self) -> StateMap {
        let Self { limits, cells, slots, waiters, items, .. } = *self;
        StateMap { limits, cells, slots, waiters, items }
    }

    /// Returns the words of the state block that are not zero.
    fn first_state(&self, origin: &Origin) -> Vec<(usize, u64)> {
        let map = self.state_map();
        let [boot_a, boot_b] = origin.boot_id;
        // With a manual clock, time begins with the Unix epoch.
        let (now, unix) = match self.clock {
            Clock::Manual => (0, 0),
            _ => (origin.clock_now, origin.unix_nanos),
        };
        let wall_offset = unix.saturating_sub(now);
        let mut words = vec![
            (StateMap::LAST_NOW, now),
            (StateMap::BOOT_ID, boot_a),
            (StateMap::BOOT_ID + 1, boot_b),
            (StateMap::TIME_NAMESPACE, origin.time_namespace),
            (StateMap::WALL_OFFSET, wall_offset),
        ];
        let mut cell = map.first_cell();
        for (index, limit) in self.definition.iter().flat_map(|it| &it.limits).enumerate() {
            words.push((map.rule(index, RuleWord::Capacity), limit.capacity()));
            let Some(rule) = limit.rule(wall_offset) else { continue };
            words.push((map.rule(index, RuleWord::WindowNanos), rule.window_nanos()));
            words.push((map.rule(index, RuleWord::Burst), rule.burst()));
            for (word, value) in rule.start(now).iter() {
                words.push((StateMap::state_word(map.limit(index, LimitWord::Level), cell, word), value));
            }
            cell += rule.cells() as usize;
        }
        words
    }
}
