//! Who holds how much of what, and returning what the dead held.
//!
//! Per limit there is one total; per slot there is a row: the generation of the participant it belongs to,
//! then what that participant holds of each limit. Total and row change in one transaction, so the total is
//! always the sum of the rows.
//!
//! A row whose generation is dead is returned by whoever comes across it: a sweep, or the slot's next owner
//! before its first use of the row. Each limit is one transaction, the row's generation is cleared last;
//! killed anywhere in between, the rest is found again by the next sweep.

use std::sync::atomic::Ordering::Acquire;

use super::block::{Block, Fault};
use super::env::Env;
use super::guard::Guard;
use super::journal::{Progress, Transaction};
use super::owner::{Participant, slot_of};

/// Where a block keeps totals and rows. Indices count words of the block.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Total of limit 0.
    pub totals: usize,
    /// Words from one limit's total to the next.
    pub stride: usize,
    /// Row of slot 1.
    pub rows: usize,
    /// How many limits a row has.
    pub limits: usize,
    /// Which of them are permits, a bit for each. The other words of a row are the owner's notes, which
    /// belong to no total.
    pub permits: u64,
}

impl Holdings {
    /// First word of a slot's row: the generation it belongs to.
    #[inline]
    pub fn row(&self, slot: u32) -> usize {
        self.rows + (slot as usize).saturating_sub(1) * (1 + self.limits)
    }

    fn permit_limits(&self) -> impl Iterator<Item = usize> {
        let permits = self.permits;
        (0..self.limits).filter(move |limit| permits >> limit & 1 != 0)
    }

    #[inline]
    fn total(&self, limit: usize) -> usize {
        self.totals + limit * self.stride
    }

    /// Makes sure that the guard's holder owns its row; returns what a predecessor left in it.
    ///
    /// Whoever holds the slot's byte knows that every other generation in its row is dead.
    pub fn adopt<E: Env>(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        self.adopt_with(guard, |guard, slot| self.empty_row(guard, slot))
    }

    /// The same for those who have more to do than [`empty_row`](Self::empty_row).
    #[inline]
    pub fn adopt_with<E: Env>(
        &self,
        guard: &mut Guard<'_, E>,
        empty: impl FnOnce(&mut Guard<'_, E>, u32) -> Result<u64, Fault>,
    ) -> Result<(), Fault> {
        if guard.get(self.row(guard.holder().slot))? == guard.holder().generation {
            return Ok(());
        }
        self.take_over(guard, empty)
    }

    #[cold]
    fn take_over<E: Env>(
        &self,
        guard: &mut Guard<'_, E>,
        empty: impl FnOnce(&mut Guard<'_, E>, u32) -> Result<u64, Fault>,
    ) -> Result<(), Fault> {
        let me = guard.holder();
        let returned = empty(guard, me.slot)?;
        let mut change = guard.begin();
        change.set(self.row(me.slot), me.generation)?;
        change.commit();
        if returned > 0 {
            guard.ring();
        }
        Ok(())
    }

    /// Adds `amount` to what `me` holds. The row must have been adopted under this lock; whether there is
    /// room is the caller's business.
    #[inline]
    pub fn take<E: Env>(
        &self,
        change: &mut Transaction<'_, '_, E>,
        me: Participant,
        limit: usize,
        amount: u64,
    ) -> Result<(), Fault> {
        self.add(change, self.total(limit), amount)?;
        self.add(change, self.row(me.slot) + 1 + limit, amount)
    }

    #[inline]
    fn add<E: Env>(&self, change: &mut Transaction<'_, '_, E>, at: usize, amount: u64) -> Result<(), Fault> {
        let value = change.get(at)?;
        change.set(at, value.saturating_add(amount))
    }

    /// Takes back at most `amount` of what `me` holds; tells how much that was.
    #[inline]
    pub fn give<E: Env>(
        &self,
        change: &mut Transaction<'_, '_, E>,
        me: Participant,
        limit: usize,
        amount: u64,
    ) -> Result<u64, Fault> {
        let row = self.row(me.slot);
        if change.get(row)? != me.generation {
            return Ok(0);
        }
        let block = change.block();
        match give_of(&mut change.progress, block, self.total(limit), row + 1 + limit, amount) {
            Some(given) => Ok(given),
            None => Err(Fault::TooManyChanges { most: block.journal.len() / 2 }),
        }
    }

    /// Returns everything a row holds to the totals, one transaction per limit.
    pub fn empty_row<E: Env>(&self, guard: &mut Guard<'_, E>, slot: u32) -> Result<u64, Fault> {
        let row = self.row(slot);
        let mut returned = 0u64;
        for limit in self.permit_limits() {
            let held = guard.get(row + 1 + limit)?;
            if held == 0 {
                continue;
            }
            let mut change = guard.begin();
            let total = change.get(self.total(limit))?;
            change.set(self.total(limit), total.saturating_sub(held))?;
            change.set(row + 1 + limit, 0)?;
            change.commit();
            returned = returned.saturating_add(held);
        }
        Ok(returned)
    }

    /// Whether the owner of a slot's row holds something of these limits, as far as that can be told without the lock.
    pub(crate) fn holds<E: Env>(&self, block: &Block<'_, E>, slot: u32, limits: u64) -> Result<bool, Fault> {
        let row = self.row(slot);
        let mut rest = limits & self.permits;
        while rest != 0 {
            if block.get(row + 1 + rest.trailing_zeros() as usize)? != 0 {
                return Ok(true);
            }
            rest &= rest - 1;
        }
        Ok(false)
    }

    /// Returns what dead participants hold; gives the number of units returned.
    pub fn sweep<E: Env>(&self, block: &Block<'_, E>, me: Participant, deadline: u64) -> Result<u64, Fault> {
        self.sweep_some(block, me, usize::MAX, deadline)
    }

    /// As [`sweep`](Self::sweep), but asks about at most `most` holders; consecutive calls take turns.
    ///
    /// Candidates are looked for without the lock; byte and generation are checked again under it. The lock
    /// is taken only if there is a candidate.
    pub fn sweep_some<E: Env>(
        &self,
        block: &Block<'_, E>,
        me: Participant,
        most: usize,
        deadline: u64,
    ) -> Result<u64, Fault> {
        let began = block.env.now();
        let (mut returned, mut asked) = (0u64, 0);
        // A sweep that may ask about all slots does so. Only one that may not picks the holders, and has to remember
        // where it ended.
        let takes_turns = most < block.slots.count() as usize;
        let holder = if takes_turns { block.env.load32(block.lock, Acquire) } else { 0 };
        if slot_of(holder) != 0 && block.slots.is_word_dead(holder) {
            // The dead lock holder may have owed a wake-up. In the middle of a change its row may look empty.
            drop(block.lock(me, deadline)?.guard());
        }
        let from = if takes_turns { block.sweep_cursor() } else { 0 };
        let mut last = None;
        for slot in block.slots_in_turn(from) {
            let row = self.row(slot);
            let owner = Participant { slot, generation: block.get(row)? };
            if owner.generation == 0 || owner == me {
                continue;
            }
            if takes_turns && !self.holds(block, slot, u64::MAX)? {
                continue;
            }
            if asked == most {
                break;
            }
            asked += 1;
            if block.slots.is_dead(owner) {
                returned = returned.saturating_add(self.sweep_one(block, me, owner, deadline)?);
            }
            last = Some(slot);
        }
        if let (true, Some(slot)) = (takes_turns, last) {
            block.end_window(slot);
        }
        if most != usize::MAX {
            block.note_sweep(began);
        }
        Ok(returned)
    }

    fn sweep_one<E: Env>(
        &self,
        block: &Block<'_, E>,
        me: Participant,
        owner: Participant,
        deadline: u64,
    ) -> Result<u64, Fault> {
        let row = self.row(owner.slot);
        let mut guard = block.lock(me, deadline)?.guard();
        if guard.get(row)? != owner.generation || !block.slots.is_dead(owner) {
            return Ok(0);
        }
        let units = self.empty_row(&mut guard, owner.slot)?;
        let mut change = guard.begin();
        change.set(row, 0)?;
        change.commit();
        if units > 0 {
            guard.ring();
        }
        Ok(units)
    }

    /// Forgets what every slot but our own holds, and sets the totals accordingly. For the first to attach after
    /// everybody died, when the dead have been swept: it changes nothing unless somebody damaged a word.
    pub fn clear_others<E: Env>(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        let me = guard.holder();
        for slot in (1..=guard.block().slots.count()).filter(|slot| *slot != me.slot) {
            for word in self.row(slot)..self.row(slot) + 1 + self.limits {
                self.repair(guard, word, 0)?;
            }
        }
        for limit in self.permit_limits() {
            let mine = guard.get(self.row(me.slot) + 1 + limit)?;
            self.repair(guard, self.total(limit), mine)?;
        }
        Ok(())
    }

    fn repair<E: Env>(&self, guard: &mut Guard<'_, E>, word: usize, value: u64) -> Result<(), Fault> {
        if guard.get(word)? != value {
            let mut change = guard.begin();
            change.set(word, value)?;
            change.commit();
        }
        Ok(())
    }
}

/// Takes back at most `amount` of what a holder has of a limit, whose total is one word and whose note of it is another;
/// tells how much that was. None if the words are not there, or there are too many changes.
#[inline(always)]
pub(crate) fn give_of<E: Env>(
    progress: &mut Progress<'_, E>,
    block: &Block<'_, E>,
    total: usize,
    note: usize,
    amount: u64,
) -> Option<u64> {
    let (total_word, note_word) = (block.row(total)?, block.row(note)?);
    let ([taken], [held]) = (block.values(total_word), block.values(note_word));
    let given = held.min(amount);
    progress.change(block, total, total_word, [taken], [taken.saturating_sub(given)])?;
    progress.change(block, note, note_word, [held], [held - given])?;
    Some(given)
}
