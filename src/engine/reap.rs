//! Returning what the dead held. Their permits are free again, their places in the queue too, and what was granted
//! to them and never collected; items of work go to others; what they were charged of rates stays, and the reports they owed are counted as
//! missing.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::queue::{FREE, GRANTED, WAITING};
use super::{Engine, Time};
use crate::core::owner::slot_of;
use crate::core::{Env, Fault, Guard, Participant};
use crate::layout::state::{LimitWord, LinkWord, StateMap};
use crate::layout::waiters::WaiterWord;

/// How whoever sleeps looks for the dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vigil {
    /// How often, in nanoseconds; one of all who sleep does so.
    pub interval: u64,
    /// How long it waits for the lock.
    pub patience: u64,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many of the dead.
    pub participants: u64,
    /// How many permits they held.
    pub permits: u64,
    /// How many items of work they had.
    pub items: u64,
    /// Whether one of them held the lock.
    pub is_stolen: bool,
}

impl<E: Env> Engine<'_, E> {
    /// Makes sure that the guard's holder owns its row.
    pub fn adopt(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        self.holdings().adopt_with(guard, |guard, slot| {
            let now = guard.get(StateMap::LAST_NOW)?;
            self.empty_row(guard, slot, now).map(|(permits, _)| permits)
        })
    }

    /// Looks for the dead and returns what they held.
    ///
    /// Candidates are looked for without the lock; byte and generation are checked again under it.
    pub fn sweep(&self, me: Participant, deadline: u64, time: &impl Time) -> Result<Swept, Fault> {
        let env = self.block.env;
        let sweeps = self.block.word(StateMap::SWEEPS)?;
        // Not under the lock: a statistic that two sweeps at one time may count once.
        env.store64(sweeps, env.load64(sweeps, Relaxed).wrapping_add(1), Relaxed);
        let mut swept = Swept::default();
        let holder = env.load32(self.block.lock, Acquire);
        if slot_of(holder) != 0 && self.block.slots.is_word_dead(holder) {
            // It may have owed somebody a ring. Whoever takes the lock from it sees to that.
            swept.is_stolen |= self.lock(me, deadline)?.is_stolen();
        }
        for slot in 1..=self.block.slots.count() {
            let row = self.holdings().row(slot);
            let generation = env.load64(self.block.word(row)?, Relaxed);
            let owner = Participant { slot, generation };
            if generation == 0 || owner == me || !self.block.slots.is_dead(owner) {
                continue;
            }
            let mut guard = self.lock(me, deadline)?;
            swept.is_stolen |= guard.is_stolen();
            if guard.get(row)? == generation && self.block.slots.is_dead(owner) {
                let now = self.now(&guard, time.reading())?;
                let (permits, items) = self.empty_row(&mut guard, slot, now)?;
                swept.permits = swept.permits.saturating_add(permits);
                swept.items = swept.items.saturating_add(items);
                swept.participants += 1;
                let mut change = guard.begin();
                change.set(row, 0)?;
                change.commit();
                self.serve(&mut guard, u64::MAX, now)?;
            }
        }
        Ok(swept)
    }

    /// Returns what the owner of a row held: permits, and items of work. Its generation stays: killed in between, the
    /// rest is found again.
    fn empty_row(&self, guard: &mut Guard<'_, E>, slot: u32, now: u64) -> Result<(u64, u64), Fault> {
        let row = self.holdings().row(slot);
        let owner = Participant { slot, generation: guard.get(row)? };
        if owner.generation == 0 {
            return Ok((0, 0));
        }
        self.empty_places(guard, owner, now)?;
        let items = self.return_items(guard, |who| who == owner, now)?;
        self.ring_work_bells(guard)?;
        for limit in (0..self.table.len()).filter(|limit| self.table.must_report(*limit)) {
            let owed = guard.get(row + 1 + limit)?;
            if owed > 0 {
                let mut change = guard.begin();
                change.add(self.limit_word(limit, LimitWord::Unreported), owed)?;
                change.set(row + 1 + limit, 0)?;
                change.commit();
            }
        }
        let units = self.holdings().empty_row(guard, slot)?;
        // A row that nobody has had yet is emptied too, before its first use.
        guard.count(StateMap::REAPED_PARTICIPANTS, u64::from(guard.get(row)? != 0))?;
        guard.count(StateMap::REAPED_UNITS, units)?;
        Ok((units, items))
    }

    /// Takes the dead out of the queue, and returns what was granted to them and never collected, permits apart:
    /// those are in their row.
    fn empty_places(&self, guard: &mut Guard<'_, E>, owner: Participant, now: u64) -> Result<(), Fault> {
        let used = self.waiter(guard.get(StateMap::USED_WAITERS)?)?;
        for waiter in 1..=used {
            let link = |word| guard.get(self.table.map.link(waiter, word));
            let state = link(LinkWord::State)?;
            let whose = (link(LinkWord::Slot)?, link(LinkWord::Generation)?);
            if state == FREE || whose != (owner.slot.into(), owner.generation) {
                continue;
            }
            let ticket = link(LinkWord::Ticket)?;
            let wants = self.wants_of(waiter)?;
            let owing = self.read(waiter, WaiterWord::Owing)?;
            let mut change = guard.begin();
            if state == WAITING {
                self.unlink(&mut change, waiter, &wants)?;
            }
            if state == GRANTED {
                for (limit, amount) in wants.iter().filter(|(limit, _)| !self.table.is_permit(*limit)) {
                    self.give_back(&mut change, ticket, limit, amount, now)?;
                    if self.table.must_report(limit) && owing >> limit & 1 != 0 {
                        change.add(self.owed(owner, limit), 1u64.wrapping_neg())?;
                    }
                }
            }
            self.free(&mut change, waiter)?;
            change.commit();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{LimitSet, ResourceLimit};

    #[test]
    fn the_first_owner_of_a_row_cleans_up_after_nobody() {
        let limits = LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap();
        limits.try_acquire(()).unwrap().release().unwrap();
        assert_eq!(limits.stats().unwrap().reaped_participants, 0);
    }
}
