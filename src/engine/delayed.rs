//! Items that are put off until an instant of their own: a binary heap, the earliest first.
//!
//! Cell 1 is the root, and the cells below cell `n` are `2 n` and `2 n + 1`. A cell holds the number of an item. No item
//! comes due before the item in the cell above it; items that come due together keep the order in which they were put
//! off, by a number that each gets then. Cells stand beside the words of items: cell `n` with item `n`.
//!
//! Putting an item off and handing one out each change one path between a leaf and the root, so both take as many steps
//! as the heap has levels: at most 21. Each step is one journalled word.

use super::Engine;
use super::items::DELAYED;
use crate::core::{Env, Fault, Guard, Transaction};
use crate::layout::work::{HEAP_LEVELS, ItemWord, WorkWord};

impl<E: Env> Engine<'_, E> {
    /// The delayed item that comes due first, and when; none if none is delayed.
    pub(super) fn first_delayed(&self, guard: &Guard<'_, E>) -> Result<Option<(usize, u64)>, Fault> {
        if self.work_word(guard, WorkWord::Delayed)? == 0 {
            return Ok(None);
        }
        let item = self.in_cell(|index| guard.get(index), 1)?;
        Ok(Some((item, self.item_word(guard, item, ItemWord::NotBefore)?)))
    }

    /// Puts an item off that is in no list.
    pub(super) fn delay(
        &self,
        change: &mut Transaction<'_, '_, E>,
        item: usize,
        not_before: u64,
    ) -> Result<(), Fault> {
        let map = self.table.map;
        let turn = change.add(map.work(WorkWord::NextLease), 1)?;
        let length = change.add(map.work(WorkWord::Delayed), 1)?;
        let mut cell = self.cell(length.wrapping_add(1))?;
        self.set_item(change, item, ItemWord::State, DELAYED)?;
        self.set_item(change, item, ItemWord::NotBefore, not_before)?;
        self.set_item(change, item, ItemWord::Lease, turn)?;
        for _ in 0..HEAP_LEVELS {
            let above = cell / 2;
            if above == 0 {
                break;
            }
            let other = self.in_cell(|index| change.get(index), above)?;
            if self.turn_of(change, other)? <= (not_before, turn) {
                break;
            }
            self.fill(change, cell, other)?;
            cell = above;
        }
        self.fill(change, cell, item)
    }

    /// Takes the first item out of the heap; the caller gives it another state in the same transaction.
    pub(super) fn remove_first_delayed(&self, change: &mut Transaction<'_, '_, E>) -> Result<(), Fault> {
        let length = change.add(self.table.map.work(WorkWord::Delayed), 1u64.wrapping_neg())?;
        let last = self.cell(length)?;
        let moved = self.in_cell(|index| change.get(index), last)?;
        let due = self.turn_of(change, moved)?;
        let mut cell = 1;
        for _ in 0..HEAP_LEVELS {
            let Some((below, other)) = self.earlier_below(change, cell, last)? else { break };
            if due <= self.turn_of(change, other)? {
                break;
            }
            self.fill(change, cell, other)?;
            cell = below;
        }
        self.fill(change, cell, moved)
    }

    /// Of the cells below one, of those before the last, the one that comes due first, and its item.
    fn earlier_below(
        &self,
        change: &Transaction<'_, '_, E>,
        cell: usize,
        last: usize,
    ) -> Result<Option<(usize, usize)>, Fault> {
        let mut first = None;
        for below in [2 * cell, 2 * cell + 1].into_iter().filter(|below| *below < last) {
            let item = self.in_cell(|index| change.get(index), below)?;
            let due = self.turn_of(change, item)?;
            if first.is_none_or(|(_, _, earliest)| due < earliest) {
                first = Some((below, item, due));
            }
        }
        Ok(first.map(|(below, item, _)| (below, item)))
    }

    /// When an item comes due, and its turn among those that come due together.
    fn turn_of(&self, change: &Transaction<'_, '_, E>, item: usize) -> Result<(u64, u64), Fault> {
        let word = |word| change.get(self.table.map.item(item, word));
        Ok((word(ItemWord::NotBefore)?, word(ItemWord::Lease)?))
    }

    /// A cell, if there is one of this number.
    fn cell(&self, number: u64) -> Result<usize, Fault> {
        self.item(number).and_then(|cell| if cell == 0 { self.item(u64::MAX) } else { Ok(cell) })
    }

    /// The item in a cell that is in use.
    fn in_cell(&self, get: impl Fn(usize) -> Result<u64, Fault>, cell: usize) -> Result<usize, Fault> {
        // 0 is no item: the bytes are damaged.
        self.cell(get(self.table.map.item(cell, ItemWord::HeapCell))?)
    }

    fn fill(&self, change: &mut Transaction<'_, '_, E>, cell: usize, item: usize) -> Result<(), Fault> {
        self.set_item(change, cell, ItemWord::HeapCell, item as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::super::items::LEASED;
    use super::super::models::{Draft, Work};
    use super::super::{Items, Lease, Taken, Verdict, Waiters};
    use super::*;
    use crate::clock::Clock;
    use crate::core::{Block, NEVER, Participant, Slots, Waited, Waiting, Wakes};
    use crate::layout::work::MAX_ITEMS;
    use crate::limit::Cooldown;

    /// One thread with memory of its own, which counts the words it looks at.
    #[derive(Default)]
    struct Counting {
        looks: Cell<u64>,
    }

    impl Env for Counting {
        type U32 = AtomicU32;
        type U64 = AtomicU64;
        const SPINS: u32 = 0;

        fn load32(&self, word: &AtomicU32, order: Ordering) -> u32 {
            word.load(order)
        }
        fn store32(&self, word: &AtomicU32, value: u32, order: Ordering) {
            word.store(value, order);
        }
        fn cas32(&self, word: &AtomicU32, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
            word.compare_exchange(from, to, order, Ordering::Relaxed)
        }
        fn load64(&self, word: &AtomicU64, order: Ordering) -> u64 {
            self.looks.set(self.looks.get() + 1);
            word.load(order)
        }
        fn store64(&self, word: &AtomicU64, value: u64, order: Ordering) {
            word.store(value, order);
        }
        fn cas64(&self, word: &AtomicU64, from: u64, to: u64, order: Ordering) -> Result<u64, u64> {
            word.compare_exchange(from, to, order, Ordering::Relaxed)
        }
        fn fence(&self, _: Ordering) {}
        fn light_fence(&self) {}
        fn heavy_fence(&self) {}
        fn pause(&self) {}
        fn rest(&self, _: u32) {}
        fn wait(&self, _: Waiting, _: &AtomicU32, _: u32, _: u64) -> Waited {
            Waited::SliceOver
        }
        fn wake_one(&self, _: &AtomicU32) -> bool {
            false
        }
        fn wake_all(&self, _: &AtomicU32) {}
        fn free(&self, lock: &AtomicU32, mine: u32) -> bool {
            lock.swap(0, Ordering::Relaxed) == mine
        }
        fn free_and_wake(&self, lock: &AtomicU32, _: &AtomicU32, _: Wakes) -> bool {
            lock.store(0, Ordering::Relaxed);
            false
        }
        fn slot_is_free(&self, _: u32) -> bool {
            false
        }
        fn now(&self) -> u64 {
            0
        }
    }

    /// Calls `act` with a queue of so many items, as slot 1 has it; the journal is that of a set without limits.
    fn with_items(items: u32, act: impl FnOnce(&Engine<'_, Counting>, Participant)) {
        let work = Work { items, most: [u32::MAX; 2] };
        let Draft { table, words, .. } = Draft::with_work(Vec::new(), 1, 0, Cooldown::default(), work);
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let journal: Vec<_> =
            (0..2 * crate::layout::state::journal_entries(0)).map(|_| AtomicU64::new(0)).collect();
        let [lock, sleepers, doorbell] = [const { AtomicU32::new(0) }; 3];
        let [change, closed, last_sweep, sweep_cost, sweep_cursor, steals, rollbacks, deposed] =
            [const { AtomicU64::new(0) }; 8];
        let generations = [AtomicU64::new(1)];
        let bells = [const { AtomicU32::new(0) }; 4];
        let env = Counting::default();
        let block = Block {
            env: &env,
            slots: Slots::new(&env, &generations, 1),
            lock: &lock,
            sleepers: &sleepers,
            doorbell: &doorbell,
            change: &change,
            closed: &closed,
            last_sweep: &last_sweep,
            sweep_cost: &sweep_cost,
            sweep_cursor: &sweep_cursor,
            steals: &steals,
            rollbacks: &rollbacks,
            deposed: &deposed,
            journal: &journal,
            words: &words,
            bells: [&[], &[], &bells],
        };
        let waiters = Waiters { count: 0, doorbell_stride: 0, words: &[], stride: 0, shared_stride: 0 };
        let bytes = Items { count: items as usize, ..Items::none() };
        let engine = Engine::new(block, waiters, &table).with_items(bytes);
        act(&engine, Participant { slot: 1, generation: 1 });
    }

    /// Makes all items but the last delayed ones, in the order of their numbers; the guard's holder has the last one.
    fn delay_all_but_one(engine: &Engine<'_, Counting>, first_due: u64) -> Lease {
        let map = engine.table.map;
        let set = |index: usize, value: u64| engine.block.words[index].store(value, Ordering::Relaxed);
        let count = engine.items.count;
        for item in 1..=count {
            let number = item as u64;
            let is_last = item == count;
            set(map.item(item, ItemWord::State), if is_last { LEASED } else { DELAYED });
            set(map.item(item, ItemWord::NotBefore), first_due + number);
            set(map.item(item, ItemWord::Lease), number);
            set(map.item(item, ItemWord::Attempts), 1);
            set(map.item(item, ItemWord::HeapCell), number);
        }
        set(map.item(count, ItemWord::Slot), 1);
        set(map.item(count, ItemWord::Generation), 1);
        let count = count as u64;
        for (word, value) in [
            (WorkWord::Delayed, count - 1),
            (WorkWord::Used, count),
            (WorkWord::Leased, 1),
            (WorkWord::NextLease, count + 1),
        ] {
            set(map.work(word), value);
        }
        let mut guard = engine.lock(Participant { slot: 1, generation: 1 }, NEVER).unwrap();
        let lease = engine.lease_of(&guard, engine.items.count).unwrap();
        assert!(engine.has(&guard, &lease, LEASED).unwrap());
        guard.unlock_in_place().unwrap();
        lease
    }

    #[test]
    fn a_million_delayed_items_cost_a_retry_with_a_falling_delay_few_looks() {
        const MOST: u64 = 400;
        with_items(MAX_ITEMS, |engine, me| {
            let first_due = 1_000_000;
            let mut lease = delay_all_but_one(engine, first_due);
            let looks = |act: &mut dyn FnMut(&mut Guard<'_, Counting>)| {
                let mut guard = engine.lock(me, NEVER).unwrap();
                let before = engine.block.env.looks.get();
                act(&mut guard);
                engine.block.env.looks.get() - before
            };
            let mut worst = [0; 2];
            for round in 0..200 {
                // Before all others, then behind all others: a path of the whole height up, and one down.
                let after = if round % 2 == 0 { first_due - round } else { u64::MAX / 2 + round };
                let retry = looks(&mut |guard| {
                    assert!(engine.end_lease(guard, &lease, Verdict::Retry { after }, 0).unwrap());
                });
                let take = looks(&mut |guard| {
                    let Taken::Item(next) = engine.take_item(guard, &Clock::Manual, NEVER - 1).unwrap()
                    else {
                        panic!("items are due")
                    };
                    lease = next;
                });
                worst = [worst[0].max(retry), worst[1].max(take)];
            }
            assert!(worst.iter().all(|looks| *looks < MOST), "looks of a retry and of a take: {worst:?}");
            println!(
                "PROOF 9 | retry and take beside 1,048,575 delayed items | at most {worst:?} words looked at"
            );
        });
    }

    #[test]
    fn delayed_items_come_out_by_their_time_and_then_in_the_order_of_their_delay() {
        with_items(64, |engine, me| {
            let mut guard = engine.lock(me, NEVER).unwrap();
            for id in 0..64 {
                engine.push_item(&mut guard, id, b"").unwrap();
            }
            let mut expected = Vec::new();
            for turn in 0..64u64 {
                let Taken::Item(lease) = engine.take_item(&mut guard, &Clock::Manual, 0).unwrap() else {
                    panic!("an item is ready")
                };
                let after = 1 + turn * 37 % 11;
                expected.push((after, turn, lease.id));
                assert!(engine.end_lease(&mut guard, &lease, Verdict::Retry { after }, 0).unwrap());
            }
            expected.sort_unstable();
            for (due, _, id) in expected {
                assert!(
                    !matches!(engine.take_item(&mut guard, &Clock::Manual, due - 1), Ok(Taken::Item(_))),
                    "an item was handed out before its time"
                );
                let Taken::Item(lease) = engine.take_item(&mut guard, &Clock::Manual, due).unwrap() else {
                    panic!("an item is due")
                };
                assert_eq!(lease.id, id);
            }
        });
    }
}
