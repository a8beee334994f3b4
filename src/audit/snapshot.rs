//! A copy of the words of a set at one instant, including those of single waiters and items.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use crate::engine::Table;
use crate::format::state::{LinkWord, StateMap};
use crate::format::waiters::WaiterWord;
use crate::format::work::{ItemWord, WorkWord};
use crate::protocol::{Fault, Participant};
use crate::segment::View;
use crate::segment::error::SyncError;

/// How often a copy is tried before giving up on writers that change the words in the meantime.
const ROUNDS: u32 = 200;
const TRIES: u32 = 1_000;
const REST: Duration = Duration::from_millis(1);

/// A consistent copy of the set's words.
pub(super) struct Picture {
    words: Vec<u64>,
    map: StateMap,
    /// The limits and amounts that each waiter entry wants, of all entries that were ever used.
    wants: Vec<(u64, Vec<u64>)>,
}

impl Picture {
    pub(super) fn take(view: &View, table: &Table) -> Result<Self, SyncError> {
        let engine = view.engine(table)?;
        let block = engine.block;
        let map = table.map;
        let mut slot = 0;
        for _ in 0..ROUNDS {
            let before = block.change.load(Acquire);
            // Only the words in use: copying the others would take time in which writers change the set.
            let head = view.set_words()?;
            let words = match block.snapshot_of(words_in_use(&head, map), TRIES) {
                Err(Fault::Busy { slot: who }) => {
                    slot = who;
                    std::thread::sleep(REST);
                    continue;
                }
                copied => copied.map_err(|fault| view.sync_error(fault))?,
            };
            let used = used_waiters(&words, map);
            let word = |waiter: usize, word: WaiterWord| {
                let place = (waiter - 1) * engine.waiters.stride + word.place();
                engine.waiters.words.get(place).map_or(0, |word| word.load(Relaxed))
            };
            let wants = (1..=used).map(|waiter| {
                let amounts = (0..table.len()).map(|limit| word(waiter, WaiterWord::Amount(limit)));
                (word(waiter, WaiterWord::Mask), amounts.collect())
            });
            let wants = wants.collect();
            std::sync::atomic::fence(Acquire);
            if block.change.load(Relaxed) == before && words_in_use(&words, map) <= words.len() {
                return Ok(Self { words, map, wants });
            }
            std::thread::sleep(REST);
        }
        Err(SyncError::Busy { slot, pid: view.pid_of(slot) })
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    pub(super) fn used_waiters(&self) -> usize {
        used_waiters(&self.words, self.map)
    }

    pub(super) fn used_items(&self) -> usize {
        used_items(&self.words, self.map)
    }

    pub(super) fn link(&self, waiter: usize, word: LinkWord) -> u64 {
        self.get(self.map.link(waiter, word))
    }

    pub(super) fn item(&self, item: usize, word: ItemWord) -> u64 {
        self.get(self.map.item(item, word))
    }

    /// Returns the limits that a waiter wants, and the amount of each.
    pub(super) fn wants(&self, waiter: usize) -> (u64, &[u64]) {
        let found = waiter.checked_sub(1).and_then(|place| self.wants.get(place));
        found.map_or((0, &[]), |(mask, amounts)| (*mask, amounts))
    }

    pub(super) fn owner(&self, slot: u64, generation: u64) -> Participant {
        Participant { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation }
    }
}

/// Returns the number of words up to the last link or item that was ever used.
fn words_in_use(words: &[u64], map: StateMap) -> usize {
    match used_items(words, map) {
        0 => map.link(used_waiters(words, map) + 1, LinkWord::State),
        used => map.item(used + 1, ItemWord::State),
    }
}

fn used_waiters(words: &[u64], map: StateMap) -> usize {
    let used = words.get(StateMap::USED_WAITERS).copied().unwrap_or(0);
    usize::try_from(used).unwrap_or(usize::MAX).min(map.waiters as usize)
}

fn used_items(words: &[u64], map: StateMap) -> usize {
    if map.items == 0 {
        return 0;
    }
    let used = words.get(map.work(WorkWord::Used)).copied().unwrap_or(0);
    usize::try_from(used).unwrap_or(usize::MAX).min(map.items as usize)
}
