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
