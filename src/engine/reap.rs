//! Returning what the dead held. Their permits are free again, their places in the queue too, and what was granted
//! to them and never collected; items of work go to others; what they were charged of rates stays, and the reports they owed are counted as
//! missing.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::queue::{FREE, GRANTED, WAITING};
use super::{Engine, Time};
use crate::core::owner::slot_of;
use crate::core::{Env, Fault, Guard, Participant, Reach};
use crate::layout::state::{LimitWord, LinkWord, StateMap};
use crate::layout::waiters::WaiterWord;

/// How a sleeper looks for dead participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vigil {
    /// How often, in nanoseconds; one of all sleepers does so.
    pub interval: u64,
    /// How long it waits for the lock.
    pub patience: u64,
    /// What it looks at.
    pub reach: Reach,
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

    /// Looks at every slot for a dead owner, and returns what dead owners held.
    pub fn sweep(&self, me: Participant, deadline: u64, time: &impl Time) -> Result<Swept, Fault> {
        self.sweep_in(me, Reach::ALL, deadline, time)
    }

    /// As [`sweep`](Self::sweep), but asks the kernel about the slots within `reach` only.
    ///
    /// Candidates are looked for without the lock; byte and generation are checked again under it.
    pub fn sweep_in(
        &self,
        me: Participant,
        reach: Reach,
        deadline: u64,
        time: &impl Time,
    ) -> Result<Swept, Fault> {
        let (block, env) = (&self.block, self.block.env);
        let began = env.now();
        let sweeps = block.word(StateMap::SWEEPS)?;
        // Not under the lock: a statistic that two sweeps at one time may count once.
        env.store64(sweeps, env.load64(sweeps, Relaxed).wrapping_add(1), Relaxed);
        let mut sweep = Sweep { engine: self, me, deadline, time, swept: Swept::default() };
        let holder = env.load32(block.lock, Acquire);
        if slot_of(holder) != 0 && block.slots.is_word_dead(holder) {
            // The dead holder may have owed a wake-up. The process that takes the lock from it sees to that.
            sweep.swept.is_stolen |= self.lock(me, deadline)?.is_stolen();
        }
        if reach.window >= block.slots.count() as usize {
            for slot in 1..=block.slots.count() {
                sweep.ask(slot)?;
            }
        } else {
            let cursor = block.sweep_cursor();
            let wanted = reach.wanted | self.seem_waited_for()?;
            let last_holder = sweep.ask_holders(reach.holders, wanted, cursor)?;
            sweep.ask_first_waiters(reach.holders.min(Reach::BOUNDED.holders))?;
            sweep.ask_window(reach.window, wanted, cursor, last_holder)?;
        }
        if reach != Reach::ALL {
            block.note_sweep(began);
        }
        Ok(sweep.swept)
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

/// A sweep under way.
struct Sweep<'s, 'a, E: Env, T: Time> {
    engine: &'s Engine<'a, E>,
    me: Participant,
    deadline: u64,
    time: &'s T,
    swept: Swept,
}

impl<E: Env, T: Time> Sweep<'_, '_, E, T> {
    /// Asks whether the owner of a slot is dead; if so, returns what it held.
    fn ask(&mut self, slot: u32) -> Result<(), Fault> {
        let (engine, slots) = (self.engine, &self.engine.block.slots);
        let row = engine.holdings().row(slot);
        let owner = Participant { slot, generation: engine.block.get(row)? };
        if owner.generation == 0 || owner == self.me || !slots.is_dead(owner) {
            return Ok(());
        }
        let mut guard = engine.lock(self.me, self.deadline)?;
        self.swept.is_stolen |= guard.is_stolen();
        if guard.get(row)? == owner.generation && slots.is_dead(owner) {
            let now = engine.now(&guard, self.time.reading())?;
            let (permits, items) = engine.empty_row(&mut guard, slot, now)?;
            self.swept.permits = self.swept.permits.saturating_add(permits);
            self.swept.items = self.swept.items.saturating_add(items);
            self.swept.participants += 1;
            let mut change = guard.begin();
            change.set(row, 0)?;
            change.commit();
            engine.serve(&mut guard, u64::MAX, now)?;
        }
        Ok(())
    }

    /// Whether a slot has an owner other than the sweeping process.
    fn has_owner(&self, slot: u32) -> Result<bool, Fault> {
        let generation = self.engine.block.get(self.engine.holdings().row(slot))?;
        Ok(generation != 0 && Participant { slot, generation } != self.me)
    }

    /// Asks about the holders of limits that the caller or a waiter wants, from the cursor on. Gives the turn of the last one
    /// that was asked about.
    fn ask_holders(&mut self, most: usize, wanted: u64, cursor: u32) -> Result<usize, Fault> {
        let (engine, holdings) = (self.engine, self.engine.holdings());
        let (mut left, mut last) = (most, 0);
        if wanted & holdings.permits == 0 {
            return Ok(last);
        }
        for (turn, slot) in (1..).zip(engine.block.slots_in_turn(cursor)) {
            if !self.has_owner(slot)? || !holdings.holds(&engine.block, slot, wanted)? {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            last = turn;
            self.ask(slot)?;
        }
        Ok(last)
    }

    /// Asks about the owners of the first entries of the queue: a dead one may keep all others waiting. Without the lock the
    /// links may change meanwhile; then the sweep asks about other slots, and no harm is done.
    fn ask_first_waiters(&mut self, most: usize) -> Result<(), Fault> {
        let (engine, count) = (self.engine, u64::from(self.engine.block.slots.count()));
        let mut waiter = engine.block.get(StateMap::QUEUE_HEAD)?;
        let mut last = 0;
        for _ in 0..most.min(engine.waiters.count) {
            let Some(entry) = engine.waiter(waiter).ok().filter(|entry| *entry != 0) else { break };
            let link = |word| engine.block.get(engine.table.map.link(entry, word));
            let slot = link(LinkWord::Slot)?;
            if slot != last && (1..=count).contains(&slot) {
                self.ask(u32::try_from(slot).unwrap_or(0))?;
            }
            last = slot;
            waiter = link(LinkWord::Next)?;
        }
        Ok(())
    }

    /// Asks about the next slots that have an owner, but for holders that were asked about in this sweep: those up to
    /// `last_holder`. The next window begins behind the last of them.
    fn ask_window(&mut self, most: usize, wanted: u64, cursor: u32, last_holder: usize) -> Result<(), Fault> {
        let (engine, holdings) = (self.engine, self.engine.holdings());
        let (mut left, mut last) = (most, None);
        for (turn, slot) in (1..).zip(engine.block.slots_in_turn(cursor)) {
            if !self.has_owner(slot)? {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            last = Some(slot);
            let was_asked = turn <= last_holder && holdings.holds(&engine.block, slot, wanted)?;
            if !was_asked {
                self.ask(slot)?;
            }
        }
        if let Some(slot) = last {
            engine.block.end_window(slot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
