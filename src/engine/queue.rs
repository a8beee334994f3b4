//! The queue: who waits, in which order, and grants that are made on their behalf.
//!
//! An entry is in one of four states, changed under the lock only:
//!
//! | state   | in the queue | what it wants | left by                                             |
//! | ------- | ------------ | ------------- | --------------------------------------------------- |
//! | free    | no           |               | its next waiter                                     |
//! | waiting | yes          | not charged   | a grant, a refusal for good, leaving, a death       |
//! | granted | no           | charged       | its waiter, who collects it; a death, which returns |
//! | refused | no           | not charged   | its waiter, who learns that it can never be had     |
//!
//! A lock holder that has made room grants to the waiters, in their order, so a waiter that is stopped delays nobody. What a
//! waiter wants is written to its entry before the entry is linked; doorbells ring after the commit. A process that
//! takes the lock from a dead holder gives the rings that are still [pending](super::wake).

use std::sync::atomic::Ordering::Relaxed;

use super::{Engine, Place, Wants};
use crate::core::{Bell, Env, Fault, Guard, NEVER, Participant, Transaction};
use crate::layout::state::{LinkWord, RuleWord, StateMap};
use crate::layout::waiters::WaiterWord;

pub(crate) const FREE: u64 = 0;
pub(crate) const WAITING: u64 = 1;
pub(crate) const GRANTED: u64 = 2;
pub(crate) const REFUSED: u64 = 3;

/// The shared words of waiters, beside the links in the state block.
pub struct Waiters<'a, E: Env> {
    /// How many entries there are.
    pub count: usize,
    /// Words from doorbell to doorbell.
    pub doorbell_stride: usize,
    /// The first entry, and so on every `stride`.
    pub words: &'a [E::U64],
    /// Words from entry to entry.
    pub stride: usize,
    /// Words from one participant's doorbell to the next.
    pub shared_stride: usize,
}

impl<E: Env> Clone for Waiters<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Waiters<'_, E> {}

impl<'a, E: Env> Waiters<'a, E> {
    /// The same waiters for another environment; see [`Block::with_env`](crate::core::Block::with_env).
    pub fn with_env<F: Env<U32 = E::U32, U64 = E::U64>>(self) -> Waiters<'a, F> {
        let Self { count, doorbell_stride, words, stride, shared_stride } = self;
        Waiters { count, doorbell_stride, words, stride, shared_stride }
    }

    /// Where the doorbell of a waiter is; waiters are numbered from 1.
    pub(super) fn bell(&self, waiter: usize) -> Result<Bell, Fault> {
        let place = waiter.checked_sub(1).filter(|place| *place < self.count);
        let place = place.ok_or(Fault::OutOfRange { index: waiter, words: self.count })?;
        Ok(Bell::Waiter(place * self.doorbell_stride))
    }

    /// Where the doorbell of a participant is; nowhere, if there is no such slot.
    pub(super) fn shared_bell(&self, slot: u64) -> Bell {
        let place = usize::try_from(slot).unwrap_or(usize::MAX).wrapping_sub(1);
        Bell::Participant(place.saturating_mul(self.shared_stride))
    }

    fn word(&self, waiter: usize, word: WaiterWord) -> Result<&'a E::U64, Fault> {
        let place = waiter.checked_sub(1).filter(|place| *place < self.count);
        let found = place.and_then(|place| self.words.get(place * self.stride + word.place()));
        found.ok_or(Fault::OutOfRange { index: waiter, words: self.count })
    }
}

impl<'a, E: Env> Engine<'a, E> {
    /// What a waiter sleeps on.
    pub fn doorbell(&self, waiter: usize) -> Result<&'a E::U32, Fault> {
        self.block.bell(self.waiters.bell(waiter)?)
    }

    /// What the helper of a participant sleeps on.
    pub fn shared_doorbell(&self, slot: u32) -> Result<&'a E::U32, Fault> {
        self.block.bell(self.waiters.shared_bell(slot.into()))
    }

    pub(super) fn link(
        &self,
        change: &Transaction<'_, '_, E>,
        waiter: usize,
        word: LinkWord,
    ) -> Result<u64, Fault> {
        change.get(self.table.map.link(waiter, word))
    }

    pub(super) fn set_link(
        &self,
        change: &mut Transaction<'_, '_, E>,
        waiter: usize,
        word: LinkWord,
        value: u64,
    ) -> Result<(), Fault> {
        change.set(self.table.map.link(waiter, word), value)
    }

    pub(super) fn read(&self, waiter: usize, word: WaiterWord) -> Result<u64, Fault> {
        Ok(self.block.env.load64(self.waiters.word(waiter, word)?, Relaxed))
    }

    pub(super) fn note(&self, waiter: usize, word: WaiterWord, value: u64) -> Result<(), Fault> {
        self.block.env.store64(self.waiters.word(waiter, word)?, value, Relaxed);
        Ok(())
    }

    /// The number in a word, if it can be that of a waiter; 0 is none.
    pub(super) fn waiter(&self, number: u64) -> Result<usize, Fault> {
        let waiter = usize::try_from(number).ok().filter(|waiter| *waiter <= self.waiters.count);
        waiter.ok_or(Fault::OutOfRange { index: usize::MAX, words: self.waiters.count })
    }

    /// What a waiter wants, as it wrote it; somebody else's bytes.
    pub(super) fn wants_of(&self, waiter: usize) -> Result<Wants, Fault> {
        let mut mask = self.read(waiter, WaiterWord::Mask)? & self.table.all();
        let mut wants = Wants::none();
        while mask != 0 {
            let limit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            wants.set(limit, self.read(waiter, WaiterWord::Amount(limit))?);
        }
        Ok(wants)
    }

    pub(super) fn participant_of(&self, guard: &Guard<'_, E>, waiter: usize) -> Result<Participant, Fault> {
        let get = |word| guard.get(self.table.map.link(waiter, word));
        let slot = u32::try_from(get(LinkWord::Slot)?).unwrap_or(u32::MAX);
        Ok(Participant { slot, generation: get(LinkWord::Generation)? })
    }

    /// The state of an entry.
    pub(super) fn state_of(&self, guard: &Guard<'_, E>, waiter: usize) -> Result<u64, Fault> {
        guard.get(self.table.map.link(waiter, LinkWord::State))
    }

    /// Which of these limits somebody waits for.
    pub fn waited_for(&self, guard: &Guard<'_, E>, among: u64) -> Result<u64, Fault> {
        let length = guard.get(StateMap::QUEUE_LENGTH)?;
        if length == 0 {
            return Ok(0);
        }
        let (mut mask, mut found) = (among & self.table.all(), 0);
        while mask != 0 {
            let limit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            match self.is_limit_waited_for(length, limit)? {
                Some(is_waited_for) => found |= u64::from(is_waited_for) << limit,
                None => self.walk(guard, |waiter| {
                    found |= self.read(waiter, WaiterWord::Mask)? & 1 << limit;
                    Ok(found >> limit & 1 == 0)
                })?,
            }
        }
        Ok(found)
    }

    /// Which limits seem to be waited for, to a process without the lock: a hint.
    pub(super) fn seem_waited_for(&self) -> Result<u64, Fault> {
        let mut found = 0;
        if self.block.get(StateMap::QUEUE_LENGTH)? == 0 {
            return Ok(found);
        }
        for limit in 0..self.table.len() {
            let word = |word| self.block.get(self.table.map.rule(limit, word));
            found |= u64::from(word(RuleWord::Enqueued)? != word(RuleWord::Dequeued)?) << limit;
        }
        Ok(found)
    }

    /// Whether somebody in a queue of this length wants a limit; none if only a look at everybody can tell.
    #[inline(always)]
    fn is_limit_waited_for(&self, length: u64, limit: usize) -> Result<Option<bool>, Fault> {
        let word = |word| self.block.get(self.table.map.rule(limit, word));
        if word(RuleWord::Enqueued)? != word(RuleWord::Dequeued)? {
            return Ok(Some(true));
        }
        // So much may be waited for that the difference has come round to nothing.
        let most = word(RuleWord::Capacity)?.max(word(RuleWord::Burst)?);
        Ok(length.checked_mul(most).map(|_| false))
    }

    /// Whether somebody in a queue of this length wants one of these limits, or may want it. Only with the lock.
    #[inline(always)]
    pub(super) fn may_be_waited_for(&self, length: u64, among: u64) -> bool {
        let mut mask = among;
        while mask != 0 {
            if self.is_limit_waited_for(length, mask.trailing_zeros() as usize) != Ok(Some(false)) {
                return true;
            }
            mask &= mask - 1;
        }
        false
    }

    /// Whether a newcomer takes nothing that a waiter asked for: after the grant, each limit that it wants still has as
    /// much as is queued for it. Then it need not queue up, although others wait for one of its limits.
    ///
    /// No waiter is delayed by that. Whatever each of them still lacks, it is of another limit, and what it wants of these
    /// stays there for it: of permits, because they are only given to waiters or to newcomers that pass this test too; of
    /// rates, because what is available never falls by the passing of time, in none of the algorithms. It falls by charges
    /// only: grants, and reports of more than was asked for.
    ///
    /// In a pause or slow start there is one admission at a time, which is for the first waiter.
    pub fn leaves_enough(&self, guard: &Guard<'_, E>, wants: &Wants, now: u64) -> Result<bool, Fault> {
        let is_scarce =
            guard.get(StateMap::NEXT_ADMISSION)? | guard.get(StateMap::SLOW_ADMISSIONS_LEFT)? != 0;
        if is_scarce {
            return Ok(false);
        }
        let length = guard.get(StateMap::QUEUE_LENGTH)?;
        let get = |index: usize| guard.get(index).unwrap_or(0);
        for (limit, amount) in wants.iter().filter(|(_, amount)| *amount > 0) {
            let word = |word| guard.get(self.table.map.rule(limit, word));
            let most = word(RuleWord::Capacity)?.max(word(RuleWord::Burst)?);
            if length.checked_mul(most).is_none() {
                // So much may be queued that the difference of the counters has come round.
                return Ok(false);
            }
            let queued = word(RuleWord::Enqueued)?.wrapping_sub(word(RuleWord::Dequeued)?);
            let available = u64::try_from(self.table.available(limit, get, now)).unwrap_or(0);
            if amount.checked_add(queued).is_none_or(|needed| needed > available) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many waiters want one of these limits; with a place in the queue, those before it.
    pub fn ahead(&self, guard: &Guard<'_, E>, mask: u64, of: Option<&Place>) -> Result<u64, Fault> {
        let mut ahead = 0;
        self.walk(guard, |waiter| {
            if of.is_some_and(|place| place.waiter == waiter) {
                return Ok(false);
            }
            ahead += u64::from(self.read(waiter, WaiterWord::Mask)? & mask != 0);
            Ok(true)
        })?;
        Ok(ahead)
    }

    /// Visits those in the queue, in order, until `visit` has seen enough.
    pub(super) fn walk(
        &self,
        guard: &Guard<'_, E>,
        mut visit: impl FnMut(usize) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut waiter = self.waiter(guard.get(StateMap::QUEUE_HEAD)?)?;
        for _ in 0..self.waiters.count {
            if waiter == 0 || !visit(waiter)? {
                break;
            }
            waiter = self.waiter(guard.get(self.table.map.link(waiter, LinkWord::Next))?)?;
        }
        Ok(())
    }

    /// Puts the guard's holder at the end of the queue; none if all entries are in use.
    pub(super) fn enqueue(
        &self,
        guard: &mut Guard<'_, E>,
        wants: &Wants,
        owing: u64,
        deadline: u64,
        shares_doorbell: bool,
    ) -> Result<Option<(usize, u64)>, Fault> {
        let me = guard.holder();
        let used = self.waiter(guard.get(StateMap::USED_WAITERS)?)?;
        let free = self.waiter(guard.get(StateMap::FREE_WAITERS)?)?;
        let waiter = if free != 0 { free } else { used + 1 };
        if waiter > self.waiters.count {
            return Ok(None);
        }
        // While nobody can reach it.
        self.note(waiter, WaiterWord::Mask, wants.demand())?;
        self.note(waiter, WaiterWord::Deadline, deadline)?;
        self.note(waiter, WaiterWord::WakesAt, NEVER)?;
        self.note(waiter, WaiterWord::SharesDoorbell, shares_doorbell.into())?;
        self.note(waiter, WaiterWord::Owing, owing)?;
        self.note(waiter, WaiterWord::PassesOn, 0)?;
        for (limit, amount) in wants.iter() {
            self.note(waiter, WaiterWord::Amount(limit), amount)?;
        }
        let mut change = guard.begin();
        if free != 0 {
            let next = self.link(&change, waiter, LinkWord::Next)?;
            change.set(StateMap::FREE_WAITERS, next)?;
        } else {
            change.set(StateMap::USED_WAITERS, waiter as u64)?;
        }
        let ticket = change.add(StateMap::NEXT_TICKET, 1)?;
        let tail = self.waiter(change.get(StateMap::QUEUE_TAIL)?)?;
        // State, slot, generation, ticket, next, previous.
        let link = [WAITING, me.slot.into(), me.generation, ticket, 0, tail as u64];
        change.set_row(self.table.map.link(waiter, LinkWord::State), link)?;
        match tail {
            0 => change.set(StateMap::QUEUE_HEAD, waiter as u64)?,
            tail => self.set_link(&mut change, tail, LinkWord::Next, waiter as u64)?,
        }
        change.set(StateMap::QUEUE_TAIL, waiter as u64)?;
        change.add(StateMap::QUEUE_LENGTH, 1)?;
        for (limit, amount) in wants.iter() {
            change.add(self.table.map.rule(limit, RuleWord::Enqueued), amount)?;
        }
        change.commit();
        Ok(Some((waiter, ticket)))
    }

    /// Takes an entry out of the queue; it gets another state by the caller, in the same transaction.
    pub(super) fn unlink(
        &self,
        change: &mut Transaction<'_, '_, E>,
        waiter: usize,
        wants: &Wants,
    ) -> Result<(), Fault> {
        let next = self.waiter(self.link(change, waiter, LinkWord::Next)?)?;
        let previous = self.waiter(self.link(change, waiter, LinkWord::Previous)?)?;
        match previous {
            0 => change.set(StateMap::QUEUE_HEAD, next as u64)?,
            previous => self.set_link(change, previous, LinkWord::Next, next as u64)?,
        }
        match next {
            0 => change.set(StateMap::QUEUE_TAIL, previous as u64)?,
            next => self.set_link(change, next, LinkWord::Previous, previous as u64)?,
        }
        change.add(StateMap::QUEUE_LENGTH, 1u64.wrapping_neg())?;
        for (limit, amount) in wants.iter() {
            change.add(self.table.map.rule(limit, RuleWord::Dequeued), amount)?;
        }
        Ok(())
    }

    /// Makes an entry that is in no queue free for others.
    pub(super) fn free(&self, change: &mut Transaction<'_, '_, E>, waiter: usize) -> Result<(), Fault> {
        let first = change.get(StateMap::FREE_WAITERS)?;
        self.set_link(change, waiter, LinkWord::State, FREE)?;
        self.set_link(change, waiter, LinkWord::Next, first)?;
        change.set(StateMap::FREE_WAITERS, waiter as u64)
    }

    /// Forgets the queue. For the first to attach when nobody else is.
    pub fn clear_queue(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        let mut change = guard.begin();
        let words = [
            StateMap::QUEUE_HEAD,
            StateMap::QUEUE_TAIL,
            StateMap::QUEUE_LENGTH,
            StateMap::FREE_WAITERS,
            StateMap::USED_WAITERS,
        ];
        for word in words {
            if change.get(word)? != 0 {
                change.set(word, 0)?;
            }
        }
        for limit in 0..self.table.len() {
            let enqueued = change.get(self.table.map.rule(limit, RuleWord::Enqueued))?;
            let dequeued = self.table.map.rule(limit, RuleWord::Dequeued);
            if change.get(dequeued)? != enqueued {
                change.set(dequeued, enqueued)?;
            }
        }
        change.commit();
        Ok(())
    }
}
