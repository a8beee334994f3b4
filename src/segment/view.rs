//! A mapped, checked segment: regions as the protocol wants them.
//!
//! The directory was checked when attaching and is kept in a copy of our own, so offsets and lengths used
//! here cannot change under us. The words behind them can, at any time.

use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::attach::Source;
use super::sight::Sight;
use crate::core::journal::MAX_JOURNAL_WORDS;
use crate::core::{Block, Fault, Holdings, Slots};
use crate::engine::{Engine, Items, Table, Waiters};
use crate::error::{AttachError, Damage, SyncError};
use crate::layout::block::{BlockHead, HEAD_BYTES, JOURNAL_ENTRY_BYTES};
use crate::layout::header::{Checked, RegionEntry, RegionKind};
use crate::layout::slots::{SLOT_WORDS, SlotIdentity};
use crate::layout::state::StateMap;
use crate::layout::work::WorkBells;
use crate::layout::{waiters, work};
use crate::limit::Definition;
use crate::sys::machine::Machine;
use crate::sys::map::Map;

/// What attaching yields, for participants and observers alike.
pub(crate) struct View {
    pub(crate) map: Map,
    pub(crate) checked: Checked,
    pub(crate) machine: Machine,
    pub(crate) source: Source,
    /// Where the file was found, if it has a name.
    pub(crate) sight: Option<Sight>,
    /// What the set was declared as, read once when attaching.
    pub(crate) definition: Option<Arc<Definition>>,
}

impl View {
    pub(crate) fn path(&self) -> PathBuf {
        self.source.path()
    }

    pub(crate) fn state_map(&self) -> StateMap {
        self.checked.header.state_map()
    }

    pub(crate) fn slots(&self) -> Slots<'_, Machine> {
        let words = self.checked.header.slots as usize * SLOT_WORDS;
        Slots::new(&self.machine, self.map.words64(self.checked.slots.offset, words), SLOT_WORDS)
    }

    /// All words of one slot.
    pub(crate) fn slot_words(&self, slot: u32) -> &[AtomicU64] {
        let offset = u64::from(slot.saturating_sub(1)) * size_of::<SlotIdentity>() as u64;
        self.map.words64(self.checked.slots.offset + offset, SLOT_WORDS)
    }

    /// The set's words, as its rules want them.
    pub(crate) fn engine<'a>(&'a self, table: &'a Table) -> Result<Engine<'a, Machine>, AttachError> {
        Ok(Engine::new(self.state()?, self.waiters(), table).with_items(self.items()))
    }

    fn items(&self) -> Items<'_, Machine> {
        let (header, Some(region)) = (&self.checked.header, &self.checked.items) else {
            return Items::none();
        };
        let (payload, result) = (header.payload_bytes, header.result_bytes);
        let words = |bytes: u64| usize::try_from(bytes / 8).unwrap_or(0);
        let part = |bytes: u32| usize::try_from(work::words(bytes)).unwrap_or(0);
        Items {
            count: header.items as usize,
            words: self.map.words64(
                region.offset + size_of::<WorkBells>() as u64,
                words(work::stride(payload, result)) * header.items as usize,
            ),
            stride: words(work::stride(payload, result)),
            payload_words: part(payload),
            result_words: part(result),
        }
    }

    fn waiters(&self) -> Waiters<'_, Machine> {
        let (header, region) = (&self.checked.header, &self.checked.waiters);
        let stride = usize::try_from(waiters::stride(header.limits)).unwrap_or(0);
        Waiters {
            count: header.waiters as usize,
            doorbell_stride: stride / 4,
            words: self.map.words64(region.offset, stride * header.waiters as usize / 8),
            stride: stride / 8,
            shared_stride: size_of::<SlotIdentity>() / 4,
        }
    }

    /// The doorbells of waiters, of participants, and of the work queue.
    fn bells(&self) -> [&[AtomicU32]; 3] {
        let (header, region) = (&self.checked.header, &self.checked.waiters);
        let waiters = waiters::stride(header.limits) * u64::from(header.waiters);
        let doorbell = offset_of!(SlotIdentity, doorbell);
        let slots = header.slots as usize * size_of::<SlotIdentity>() - doorbell;
        [
            self.map.words32(region.offset, usize::try_from(waiters / 4).unwrap_or(0)),
            self.map.words32(self.checked.slots.offset + doorbell as u64, slots / 4),
            self.checked.items.as_ref().map_or(&[], |items| self.map.words32(items.offset, WorkBells::COUNT)),
        ]
    }

    pub(crate) fn state(&self) -> Result<Block<'_, Machine>, AttachError> {
        Ok(Block { bells: self.bells(), ..self.block(&self.checked.state)? })
    }

    /// The block in a region.
    pub(crate) fn block(&self, region: &RegionEntry) -> Result<Block<'_, Machine>, AttachError> {
        // Cannot fail after `Header::check`; if it does, that is our defect, not a reason to panic.
        self.try_block(region).ok_or_else(|| AttachError::Damaged {
            path: self.path(),
            what: Damage::OutOfRange { index: 0, words: 0 },
        })
    }

    pub(crate) fn try_block(&self, region: &RegionEntry) -> Option<Block<'_, Machine>> {
        let word = |offset: usize| self.map.words64(region.offset + offset as u64, 1).first();
        let half = |offset: usize| self.map.words32(region.offset + offset as u64, 1).first();
        // A longer one would have words whose number does not fit.
        let journal_words = (region.journal_entries as usize * 2).min(MAX_JOURNAL_WORDS);
        let journal_end = HEAD_BYTES + u64::from(region.journal_entries) * JOURNAL_ENTRY_BYTES;
        let block: Block<'_, Machine> = Block {
            env: &self.machine,
            slots: self.slots(),
            lock: half(offset_of!(BlockHead, lock))?,
            sleepers: half(offset_of!(BlockHead, sleepers))?,
            doorbell: half(offset_of!(BlockHead, doorbell))?,
            change: word(offset_of!(BlockHead, change))?,
            closed: word(offset_of!(BlockHead, closed))?,
            last_sweep: word(offset_of!(BlockHead, last_sweep))?,
            sweep_cost: word(offset_of!(BlockHead, sweep_cost))?,
            sweep_cursor: word(offset_of!(BlockHead, sweep_cursor))?,
            steals: word(offset_of!(BlockHead, steals))?,
            rollbacks: word(offset_of!(BlockHead, rollbacks))?,
            deposed: word(offset_of!(BlockHead, deposed))?,
            journal: self.map.words64(region.offset + HEAD_BYTES, journal_words),
            words: self.map.words64(region.offset + journal_end, region.words as usize),
            bells: [&[]; 3],
        };
        let is_whole = block.journal.len() == journal_words && block.words.len() == region.words as usize;
        is_whole.then_some(block)
    }

    /// The region with this label.
    pub(crate) fn region(
        &self,
        label: &str,
        wanted: RegionKind,
        expected: &'static str,
    ) -> Result<RegionEntry, SyncError> {
        let found = self.checked.labelled.iter().find(|(_, entry)| entry.label() == label.as_bytes());
        match found {
            Some((kind, entry)) if *kind == wanted => Ok(*entry),
            Some((kind, _)) => {
                Err(SyncError::NoSuchRegion { found: format!("{label:?} is a {}", name_of(*kind)), expected })
            }
            None => Err(SyncError::NoSuchRegion { found: format!("there is no region {label:?}"), expected }),
        }
    }

    /// Every semaphore, and where it keeps who holds what.
    pub(crate) fn semaphores(&self) -> impl Iterator<Item = (RegionEntry, Holdings)> {
        let semaphores = self.checked.labelled.iter().filter(|(kind, _)| *kind == RegionKind::Semaphore);
        semaphores.map(|(_, entry)| (*entry, crate::core::semaphore::HOLDINGS))
    }

    /// What the set's limits are; without a definition, so many permits.
    pub(crate) fn table(&self) -> Table {
        let (map, clock) = (self.state_map(), self.checked.clock);
        match &self.definition {
            Some(definition) => Table::new(definition, map, clock),
            None => Table::of_permits(map),
        }
    }

    /// Every block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &RegionEntry> {
        let labelled = self.checked.labelled.iter().filter(|(kind, _)| kind.is_block());
        std::iter::once(&self.checked.state).chain(labelled.map(|(_, entry)| entry))
    }

    /// Words the program uses as it likes.
    pub(crate) fn plain_words(&self, label: &str) -> Result<&[AtomicU64], SyncError> {
        let region = self.region(label, RegionKind::Words, "region of words")?;
        Ok(self.map.words64(region.offset, region.words as usize))
    }

    /// What a fault means to whoever is attaching.
    pub(crate) fn attach_error(&self, fault: Fault, waited: std::time::Duration) -> AttachError {
        let path = self.path();
        match fault {
            Fault::Busy { .. } => AttachError::Busy { path, waited },
            Fault::Closed => AttachError::Removed { path },
            other => AttachError::Damaged { path, what: damage(other) },
        }
    }

    /// What a fault means to whoever uses a mutex or semaphore.
    pub(crate) fn sync_error(&self, fault: Fault) -> SyncError {
        match fault {
            Fault::Busy { slot } => SyncError::Busy { slot, pid: self.pid_of(slot) },
            Fault::Closed => SyncError::Removed,
            Fault::OutOfRange { index, words } => SyncError::OutOfRange { index, words },
            Fault::TooManyChanges { most } => SyncError::TooManyChanges { most },
            other => SyncError::Damaged(damage(other)),
        }
    }

    pub(crate) fn pid_of(&self, slot: u32) -> u64 {
        if slot == 0 {
            return 0;
        }
        let word = self.slot_words(slot).get(offset_of!(SlotIdentity, pid) / 8);
        word.map_or(0, |pid| pid.load(std::sync::atomic::Ordering::Relaxed))
    }
}

pub(crate) fn damage(fault: Fault) -> Damage {
    match fault {
        Fault::DamagedJournal { found, most } => Damage::Journal { found, most },
        Fault::OutOfRange { index, words } => Damage::OutOfRange { index, words },
        _ => Damage::Deposed,
    }
}

pub(crate) fn name_of(kind: RegionKind) -> &'static str {
    match kind {
        RegionKind::Mutex => "mutex",
        RegionKind::Semaphore => "semaphore",
        RegionKind::Words => "region of words",
        RegionKind::Slots
        | RegionKind::State
        | RegionKind::Waiters
        | RegionKind::Definition
        | RegionKind::Items => "part of the set",
    }
}
