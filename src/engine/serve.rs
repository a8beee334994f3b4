//! Grants on behalf: whoever has made room hands it out, in the order of the queue, and rings.

use smallvec::SmallVec;

use super::queue::{GRANTED, REFUSED};
use super::{Engine, Wants};
use crate::core::{Env, Fault, Guard, NEVER};
use crate::layout::state::{LinkWord, StateMap};
use crate::layout::waiters::WaiterWord;
use crate::limit::Order;
use crate::math::Verdict;

/// What became of an attempt to grant.
enum Attempt {
    /// Granted or refused for good: it has left the queue.
    Settled,
    /// Its rates, and the set, allow it from this instant on; never, if only permits are in the way.
    NotYet { at: u64 },
}

impl<E: Env> Engine<'_, E> {
    /// Grants to those who wait, after there has come to be more of the limits in `affected`: in their order, as
    /// long as there is something to hand out.
    #[inline]
    pub fn serve(&self, guard: &mut Guard<'_, E>, affected: u64, now: u64) -> Result<(), Fault> {
        if guard.get(StateMap::QUEUE_LENGTH)? == 0 { Ok(()) } else { self.serve_queue(guard, affected, now) }
    }

    #[cold]
    fn serve_queue(&self, guard: &mut Guard<'_, E>, affected: u64, now: u64) -> Result<(), Fault> {
        // In a slow start there is one admission at a time, which is for the first who waits, whatever it wants.
        let is_scarce = guard.get(StateMap::NEXT_ADMISSION)? != 0;
        let mut affected = self.waited_for(guard, if is_scarce { u64::MAX } else { affected })?;
        if affected == 0 {
            return Ok(());
        }
        let mut blocked = 0u64;
        // Whoever comes first may be stopped, and so may any behind it: when its alarm has moved, one of each process
        // is roused for each choice of limits.
        let mut alarm = NEVER;
        let mut roused = SmallVec::<[(u64, u64); 8]>::new();
        let mut waiter = self.waiter(guard.get(StateMap::QUEUE_HEAD)?)?;
        for _ in 0..self.waiters.count {
            if waiter == 0 || affected & !blocked == 0 && alarm == NEVER {
                break;
            }
            let next = self.waiter(guard.get(self.table.map.link(waiter, LinkWord::Next))?)?;
            let slot = guard.get(self.table.map.link(waiter, LinkWord::Slot))?;
            let mask = self.read(waiter, WaiterWord::Mask)?;
            let in_order = self.table.order == Order::Arrival;
            if in_order && mask & blocked != 0 || mask & affected == 0 {
                if alarm != NEVER && mask & blocked != 0 {
                    self.note(waiter, WaiterWord::PassesOn, 1)?;
                    if !roused.contains(&(slot, mask)) {
                        self.rouse(guard, waiter, slot, alarm)?;
                        roused.push((slot, mask));
                    }
                }
                blocked |= mask;
            } else {
                match self.try_grant(guard, waiter, now)? {
                    Attempt::Settled => {
                        self.ring(guard, waiter, slot)?;
                        // Those behind no longer stand behind this one, whatever of its limits they want.
                        affected |= self.waited_for(guard, mask)?;
                    }
                    Attempt::NotYet { at } => {
                        if in_order {
                            blocked |= mask;
                        }
                        if self.rouse(guard, waiter, slot, at)? {
                            self.note(waiter, WaiterWord::PassesOn, 1)?;
                            alarm = alarm.min(at);
                            roused.push((slot, mask));
                        }
                    }
                }
            }
            waiter = next;
        }
        Ok(())
    }

    fn try_grant(&self, guard: &mut Guard<'_, E>, waiter: usize, now: u64) -> Result<Attempt, Fault> {
        let who = self.participant_of(guard, waiter)?;
        let wants = self.wants_of(waiter)?;
        let owing = self.read(waiter, WaiterWord::Owing)?;
        let owns_row = guard.get(self.table.row(who.slot))? == who.generation;
        let gate = self.gate(guard, now)?;
        let pause = guard.get(StateMap::COOLDOWN_GENERATION)?;
        let mut change = guard.begin();
        if owns_row && gate.is_none() && self.charge_all(&mut change, who, &wants, owing, now)? {
            self.stamp(&mut change, now)?;
            self.unlink(&mut change, waiter, &wants)?;
            self.set_link(&mut change, waiter, LinkWord::State, GRANTED)?;
            self.set_link(&mut change, waiter, LinkWord::Pause, pause)?;
            change.commit();
            return Ok(Attempt::Settled);
        }
        drop(change);
        if let Some(at) = self.rates_allow_at(guard, &wants, now)?
            && owns_row
        {
            let at = at.max(gate.unwrap_or(now));
            return Ok(Attempt::NotYet { at: if at > now { at } else { NEVER } });
        }
        // More than there ever is, since the limits were changed; or damage.
        self.refuse(guard, waiter, &wants)?;
        Ok(Attempt::Settled)
    }

    fn refuse(&self, guard: &mut Guard<'_, E>, waiter: usize, wants: &Wants) -> Result<(), Fault> {
        let mut change = guard.begin();
        self.unlink(&mut change, waiter, wants)?;
        self.set_link(&mut change, waiter, LinkWord::State, REFUSED)?;
        change.commit();
        Ok(())
    }

    /// When numbers were changed: refuses waiters that can never be served any more, serves the others, and wakes waiters
    /// that would sleep beyond the instant at which they may be served now. All others go on sleeping.
    pub(super) fn rejudge(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<(), Fault> {
        if self.waited_for(guard, u64::MAX)? == 0 {
            return Ok(());
        }
        let mut waiter = self.waiter(guard.get(StateMap::QUEUE_HEAD)?)?;
        for _ in 0..self.waiters.count {
            if waiter == 0 {
                break;
            }
            let next = self.waiter(guard.get(self.table.map.link(waiter, LinkWord::Next))?)?;
            let wants = self.wants_of(waiter)?;
            if self.rates_allow_at(guard, &wants, now)?.is_none() {
                let slot = guard.get(self.table.map.link(waiter, LinkWord::Slot))?;
                self.refuse(guard, waiter, &wants)?;
                self.ring(guard, waiter, slot)?;
            }
            waiter = next;
        }
        self.serve(guard, u64::MAX, now)?;
        self.move_alarms(guard, now)
    }

    /// The instant from which on all rates allow what is wanted; permits apart. None if that never comes.
    pub(super) fn rates_allow_at(
        &self,
        guard: &Guard<'_, E>,
        wants: &Wants,
        now: u64,
    ) -> Result<Option<u64>, Fault> {
        let get = |index: usize| guard.get(index).unwrap_or(0);
        let mut latest = now;
        for (limit, amount) in wants.iter() {
            if amount > self.table.most(limit, get) {
                return Ok(None);
            }
            let Some(rule) = self.table.rule(limit, get) else { continue };
            match rule.acquire(&self.table.state(limit, get), now, amount) {
                Verdict::Admit(_) => {}
                Verdict::Later { at } => latest = latest.max(at),
                Verdict::Never => return Ok(None),
            }
        }
        Ok(Some(latest))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::layout::state::RuleWord;
    use crate::{LimitSet, ResourceLimit, Started};

    #[test]
    fn a_waiter_whose_slot_was_damaged_changes_no_limit() {
        let limits = (0..8).map(|number| ResourceLimit::new(format!("permit-{number}"), 1));
        let set = LimitSet::builder().limits(limits).in_memory().unwrap();
        let held = set.try_acquire(()).unwrap();
        let Started::Waiting(waiting) = set.start_acquire((), None).unwrap() else { panic!("it is held") };
        let (engine, map) = (set.engine(), set.engine().table.map);
        let numbers =
            || (0..8).map(|limit| engine.block.words[map.rule(limit, RuleWord::Capacity)].load(SeqCst));
        engine.block.words[map.link(1, LinkWord::Slot)].store(0, SeqCst);
        // It may say that something is damaged.
        let _ = held.release();
        assert!(numbers().all(|capacity| capacity == 1), "{:?}", numbers().collect::<Vec<_>>());
        drop(waiting);
    }
}
