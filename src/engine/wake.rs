//! Which waiters are woken: settled ones, and those that would sleep beyond the instant at which they may be served.
//!
//! A waiter that is neither is left asleep, whatever happened to the set: with a thousand of them, waking all would keep the
//! lock busy for a long time.
//!
//! **A ring is pending** from the moment it is given until its waiter looks. The waiter notes in its entry what its
//! doorbell said when it last looked, so every process can tell. A lock holder turns the doorbell before it notes the
//! earlier alarm: if it is killed in between, the ring is pending, and the process that recovers the lock gives it again. The
//! recovering process may be killed as well. Then the next one finds the same entries settled and the same rings pending.
//!
//! **Waiters of one process that want the same limits share an alarm.** The one of them that is served first is woken
//! when it moves; it serves the queue, the others included. They are marked: when a marked one has its answer, it looks
//! whether the next one of its process would sleep too long. Its process is running at that moment, so the other may rely on it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use smallvec::{SmallVec, smallvec};

use super::Engine;
use super::queue::{FREE, WAITING};
use crate::core::{Bell, Env, Fault, Guard, NEVER, Participant};
use crate::layout::state::{LinkWord, StateMap};
use crate::layout::waiters::WaiterWord;
use crate::limit::Order;

/// Waiters that share an alarm: the slot of their participant, and the limits that they want.
type Group = (u64, u64);

impl<E: Env> Engine<'_, E> {
    /// After the lock was taken from a dead holder: does what that one may have left undone for the queue. It may have made
    /// room and not handed it out, changed numbers and not judged the queue by them, or granted and not rung.
    ///
    /// The instant is that of the last decision, which is in the segment. What has flowed since then is handed out at the
    /// waiters' own alarms.
    #[cold]
    pub(super) fn recover_queue(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        self.ring_pending(guard)?;
        let now = if self.table.is_manual { self.now(guard, 0)? } else { self.last_now(guard)? };
        self.rejudge(guard, now)
    }

    /// Rings for every settled waiter that has not collected its answer, and for every waiter whose ring is pending.
    fn ring_pending(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        let used = self.waiter(guard.get(StateMap::USED_WAITERS)?)?;
        for waiter in 1..=used {
            let state = self.state_of(guard, waiter)?;
            if state == FREE || state == WAITING && !self.is_ring_pending(waiter)? {
                continue;
            }
            let slot = guard.get(self.table.map.link(waiter, LinkWord::Slot))?;
            self.ring(guard, waiter, slot).or_else(no_such_bell)?;
        }
        Ok(())
    }

    fn is_ring_pending(&self, waiter: usize) -> Result<bool, Fault> {
        let says = self.block.env.load32(self.doorbell(waiter)?, Relaxed);
        Ok(self.read(waiter, WaiterWord::Seen)? != u64::from(says))
    }

    /// Lets a waiter set its alarm anew, if it would sleep beyond this instant.
    pub(super) fn rouse(
        &self,
        guard: &mut Guard<'_, E>,
        waiter: usize,
        slot: u64,
        at: u64,
    ) -> Result<bool, Fault> {
        if at >= self.read(waiter, WaiterWord::WakesAt)? {
            return Ok(false);
        }
        // The ring first: the noted alarm alone would say that the waiter knows of it.
        self.ring(guard, waiter, slot)?;
        self.note(waiter, WaiterWord::WakesAt, at)?;
        Ok(true)
    }

    /// After numbers, a pause or more than one limit have changed: wakes one waiter of each group that would sleep too long.
    pub(super) fn move_alarms(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<(), Fault> {
        self.walk(guard, |waiter| self.note(waiter, WaiterWord::PassesOn, 1).map(|()| true))?;
        self.move_alarms_of(guard, None, now)
    }

    /// When a waiter leaves the queue or has collected its answer: the next one of its group may have relied on it.
    pub(super) fn pass_alarm_on(
        &self,
        guard: &mut Guard<'_, E>,
        group: Group,
        now: u64,
    ) -> Result<(), Fault> {
        self.move_alarms_of(guard, Some(group), now)
    }

    fn move_alarms_of(&self, guard: &mut Guard<'_, E>, only: Option<Group>, now: u64) -> Result<(), Fault> {
        let gate = self.gate(guard, now)?;
        let rates = self.waited_for(guard, self.table.rates())?;
        // Permits are handed out when they come back. No alarm is set for them.
        if rates == 0 && gate.is_none() {
            return Ok(());
        }
        let in_order = self.table.order == Order::Arrival;
        let mut ahead: SmallVec<[u64; 8]> = smallvec![0; self.table.len()];
        // The first instant at which the rates allow what a waiter further ahead wants: that one may be stopped then.
        let mut first = NEVER;
        let mut served_first = BTreeMap::<Group, (u64, usize)>::new();
        self.walk(guard, |waiter| {
            let wants = self.wants_of(waiter)?;
            let group = (guard.get(self.table.map.link(waiter, LinkWord::Slot))?, wants.demand());
            let is_asked_for = only.is_none_or(|only| only == group);
            if is_asked_for && !(in_order && served_first.contains_key(&group)) {
                let units = wants.iter().map(|(limit, amount)| {
                    let before = ahead.get(limit).filter(|_| in_order).copied().unwrap_or(0);
                    before.saturating_add(amount)
                });
                let mut due = self.flows_by(guard, &wants, units, now)?;
                if due <= now {
                    due = if rates & !group.1 == 0 { NEVER } else { first };
                }
                let known = served_first.entry(group).or_insert((due, waiter));
                *known = (*known).min((due, waiter));
                if in_order && only.is_some() {
                    return Ok(false);
                }
            }
            for (limit, amount) in wants.iter() {
                if let Some(ahead) = ahead.get_mut(limit) {
                    *ahead = ahead.saturating_add(amount);
                }
            }
            if let Some(at) = self.rates_allow_at(guard, &wants, now)?
                && at > now
            {
                first = first.min(at);
            }
            Ok(true)
        })?;
        for ((slot, _), (due, waiter)) in served_first {
            self.rouse(guard, waiter, slot, due)?;
        }
        Ok(())
    }

    /// Rings the doorbell of a waiter, and of its participant if it shares one: after the commit, and heard as soon as the
    /// lock is free.
    pub(super) fn ring(&self, guard: &mut Guard<'_, E>, waiter: usize, slot: u64) -> Result<(), Fault> {
        self.bells_of(waiter, slot)?.into_iter().flatten().try_for_each(|bell| guard.ring_other(bell))
    }

    /// The entries that a participant has in use. Needs no lock: entries that it gets or gives up meanwhile may be
    /// missing or too many.
    pub fn places_of(&self, owner: Participant) -> Result<Vec<usize>, Fault> {
        let load = |index| Ok(self.block.env.load64(self.block.word(index)?, Acquire));
        let used = self.waiter(load(StateMap::USED_WAITERS)?).unwrap_or(self.waiters.count);
        let mut places = Vec::new();
        for waiter in 1..=used {
            let link = |word| load(self.table.map.link(waiter, word));
            let whose = (link(LinkWord::Slot)?, link(LinkWord::Generation)?);
            if link(LinkWord::State)? != FREE && whose == (owner.slot.into(), owner.generation) {
                places.push(waiter);
            }
        }
        Ok(places)
    }

    /// Rings the doorbells of these entries, so that threads that sleep there look again. Needs no lock.
    pub fn ring_places(&self, places: &[usize]) -> Result<(), Fault> {
        places.iter().try_for_each(|waiter| self.block.ring_other(self.waiters.bell(*waiter)?))
    }

    /// The doorbell of a waiter, and that of its participant if it shares one.
    fn bells_of(&self, waiter: usize, slot: u64) -> Result<[Option<Bell>; 2], Fault> {
        let shares = self.read(waiter, WaiterWord::SharesDoorbell)? != 0;
        Ok([Some(self.waiters.bell(waiter)?), shares.then(|| self.waiters.shared_bell(slot))])
    }

    /// Rings all doorbells in use, because the set was removed. Needs no lock.
    pub fn ring_all(&self) -> Result<(), Fault> {
        let used = self.block.env.load64(self.block.word(StateMap::USED_WAITERS)?, Acquire);
        for waiter in 1..=self.waiter(used).unwrap_or(self.waiters.count) {
            let link = |word| {
                let word = self.block.word(self.table.map.link(waiter, word))?;
                Ok(self.block.env.load64(word, Relaxed))
            };
            if link(LinkWord::State)? != FREE {
                for bell in self.bells_of(waiter, link(LinkWord::Slot)?)?.into_iter().flatten() {
                    self.block.ring_other(bell).or_else(no_such_bell)?;
                }
            }
        }
        Ok(())
    }
}

/// A slot that an entry never had, or that another process damaged: nobody sleeps behind it.
fn no_such_bell(fault: Fault) -> Result<(), Fault> {
    if matches!(fault, Fault::OutOfRange { .. }) { Ok(()) } else { Err(fault) }
}
