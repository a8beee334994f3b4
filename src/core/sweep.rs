//! Sweeps: when the next one is due, and which slots it asks the kernel about.
//!
//! To ask whether a participant is alive costs a system call, and the kernel walks its list of locks for each of them. So
//! a sweep asks about a bounded number of slots: first about those that hold what is missing, then about a window of the
//! slots that have an owner. The window begins behind the slot that the sweep before ended at (`sweep_cursor`), so that
//! consecutive sweeps ask about every slot in turn.
//!
//! A caller that finds something missing pays for a sweep at most once in [`COST_FACTOR`] times what the last one took
//! (`sweep_cost`). Both words are hints: a lost or damaged value makes a sweep begin elsewhere, or come earlier or
//! later, within the bounds that are applied at each use.

use std::sync::atomic::Ordering::Relaxed;

use super::block::Block;
use super::env::Env;

/// How many times its own cost a sweep keeps the next one away: sweeps take at most a twentieth of one CPU.
pub const COST_FACTOR: u64 = 20;
/// The shortest time between two sweeps for callers that find something missing, in nanoseconds.
pub const SHORTEST_INTERVAL: u64 = 1_000_000;
/// The longest, whatever a sweep costs.
pub const LONGEST_INTERVAL: u64 = 100_000_000;

/// What a sweep looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Limits that the caller misses, a bit for each: their holders come first.
    pub wanted: u64,
    /// How many holders of wanted limits to ask about; also, how many waiters at the head of the queue.
    pub holders: usize,
    /// How many slots with an owner to ask about besides.
    pub window: usize,
}

impl Reach {
    /// Every slot.
    pub const ALL: Self = Self { wanted: 0, holders: 0, window: usize::MAX };
    /// A bounded number of slots, whatever is wanted.
    pub const BOUNDED: Self = Self { wanted: 0, holders: 64, window: 64 };

    /// The same for a caller that misses these limits.
    #[must_use]
    pub fn wanting(self, wanted: u64) -> Self {
        Self { wanted, ..self }
    }

    /// Every holder of these limits, and no other slot.
    pub fn holders_of(wanted: u64) -> Self {
        Self { wanted, holders: usize::MAX, window: 0 }
    }
}

impl<E: Env> Block<'_, E> {
    /// True for one caller per `interval`: that caller sweeps.
    pub fn sweep_is_due(&self, interval: u64) -> bool {
        let now = self.env.now();
        let last = self.env.load64(self.last_sweep, Relaxed);
        // A stamp from the future (another boot, a damaged word) must not stop sweeps.
        let due = now.abs_diff(last) >= interval;
        due && self.env.cas64(self.last_sweep, last, now, Relaxed).is_ok()
    }

    /// The same for a caller that finds something missing, which need not wait for a whole `slice`.
    pub fn sweep_is_affordable(&self, slice: u64) -> bool {
        self.sweep_is_due(self.sweep_interval().min(slice))
    }

    /// How long to wait after a sweep, by what the last one cost.
    fn sweep_interval(&self) -> u64 {
        let cost = self.env.load64(self.sweep_cost, Relaxed);
        cost.saturating_mul(COST_FACTOR).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
    }

    /// Notes what a sweep cost that began then. It counts at most as twice the cost before: one sweep that was preempted
    /// must not keep the next one away.
    pub(crate) fn note_sweep(&self, began: u64) {
        let cost = self.env.now().saturating_sub(began);
        let before = self.env.load64(self.sweep_cost, Relaxed);
        let most = before.saturating_mul(2).max(SHORTEST_INTERVAL / COST_FACTOR);
        self.env.store64(self.sweep_cost, cost.min(most), Relaxed);
    }

    /// The slot that the last sweep ended at.
    pub(crate) fn sweep_cursor(&self) -> u32 {
        let cursor = self.env.load64(self.sweep_cursor, Relaxed) % u64::from(self.slots.count().max(1));
        u32::try_from(cursor).unwrap_or(0)
    }

    /// Every slot once, beginning behind this one.
    pub(crate) fn slots_in_turn(&self, cursor: u32) -> impl Iterator<Item = u32> + use<E> {
        (cursor + 1..=self.slots.count()).chain(1..=cursor)
    }

    /// The next sweep begins behind this slot.
    pub(crate) fn end_window(&self, slot: u32) {
        self.env.store64(self.sweep_cursor, slot.into(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{COST_FACTOR, LONGEST_INTERVAL, SHORTEST_INTERVAL};
    use crate::core::Env;
    use crate::{LimitSet, ResourceLimit};

    fn set() -> LimitSet {
        LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap()
    }

    #[test]
    fn whatever_the_cost_word_says_the_interval_stays_within_its_bounds() {
        let set = set();
        let block = set.engine().block;
        for (cost, interval) in [
            (0, SHORTEST_INTERVAL),
            (1, SHORTEST_INTERVAL),
            (100_000, 100_000 * COST_FACTOR),
            (LONGEST_INTERVAL, LONGEST_INTERVAL),
            (u64::MAX / COST_FACTOR + 1, LONGEST_INTERVAL),
            (u64::MAX, LONGEST_INTERVAL),
        ] {
            block.sweep_cost.store(cost, super::Relaxed);
            assert_eq!(block.sweep_interval(), interval, "cost {cost}");
        }
    }

    #[test]
    fn a_sweep_that_was_preempted_counts_at_most_twice_the_one_before() {
        let set = set();
        let block = set.engine().block;
        let begun_long_ago = block.env.now().saturating_sub(1_000_000_000);
        for (before, after) in [(0, 50_000), (50_000, 100_000), (3_000_000, 6_000_000)] {
            block.sweep_cost.store(before, super::Relaxed);
            block.note_sweep(begun_long_ago);
            assert_eq!(block.sweep_cost.load(super::Relaxed), after);
        }
        block.sweep_cost.store(u64::MAX, super::Relaxed);
        block.note_sweep(u64::MAX);
        assert_eq!(block.sweep_cost.load(super::Relaxed), 0, "a damaged word is gone after the next sweep");
    }

    #[test]
    fn whatever_the_cursor_says_every_slot_has_its_turn_once() {
        let set = set();
        let block = set.engine().block;
        let count = block.slots.count();
        for cursor in [0, 1, u64::from(count) - 1, u64::from(count), u64::from(count) + 1, u64::MAX] {
            block.sweep_cursor.store(cursor, super::Relaxed);
            let mut slots: Vec<u32> = block.slots_in_turn(block.sweep_cursor()).collect();
            assert_eq!(u64::from(slots[0]), cursor % u64::from(count) + 1);
            slots.sort_unstable();
            assert!(slots.into_iter().eq(1..=count), "cursor {cursor}");
        }
    }
}
