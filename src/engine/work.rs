//! Work that survives its worker: items are handed out to one participant at a time, and come back when it dies.
//!
//! An item is handed out at least once and is with one participant at a time. Its end is recorded once, by whoever has
//! it. What a dead participant had comes back before everything else, with its attempt counted. An item whose request
//! was answered with "too many requests" is parked, in the same transaction that pauses the set, and handed out again
//! when the pause is over; that is no attempt, and counted apart. Every change rings the doorbell of those it helps, under
//! the lock; see [`bells`](super::bells).

use super::items::{DEAD, DELAYED, DONE, FREE, LEASED, PARKED, READY};
use super::{Charge, Engine, Lease, Part, Paused, Reason, Report, Time, WorkBell};
use crate::core::{Env, Fault, Guard, NEVER, Transaction, Wakes};
use crate::layout::state::StateMap;
use crate::layout::work::{ItemWord, List, WorkWord};

/// What came of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue.
    Pushed,
    /// All places are taken.
    Full,
    /// Nothing more is pushed to this queue.
    Closed,
}

/// What came of asking for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Here it is.
    Item(Lease),
    /// There is none now.
    NotNow {
        /// When to look again in any case, by the clock of deadlines.
        look_at: u64,
        /// The same in set time.
        due: u64,
    },
    /// There is none, and none will come.
    Over,
}

/// What becomes of an item that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, for good.
    Done {
        /// Bytes of the result to keep; none: nothing is kept.
        result_bytes: Option<usize>,
    },
    /// To be tried again after so many nanoseconds.
    Retry {
        /// How many.
        after: u64,
    },
    /// The other side of another set wanted less: to be tried again after so many nanoseconds.
    Deferred {
        /// How many.
        after: u64,
    },
    /// Left behind by its worker, who lives.
    Abandoned,
    /// Left behind by its worker, who is dead.
    Orphaned,
    /// Not tried at all.
    GivenBack,
    /// Never to be tried again.
    GivenUp {
        /// Bytes of what there is to say about it.
        result_bytes: usize,
    },
}

impl<E: Env> Engine<'_, E> {
    /// Adds an item behind all others.
    pub fn push_item(&self, guard: &mut Guard<'_, E>, id: u64, payload: &[u8]) -> Result<Pushed, Fault> {
        if self.work_word(guard, WorkWord::Closed)? != 0 {
            self.ring_work(guard, WorkBell::Pushers, Wakes::One)?;
            return Ok(Pushed::Closed);
        }
        let used = self.item(self.work_word(guard, WorkWord::Used)?)?;
        let free = self.item(self.work_word(guard, WorkWord::Free)?)?;
        let item = if free != 0 { free } else { used + 1 };
        if item > self.items.count {
            return Ok(Pushed::Full);
        }
        // While nobody can reach it.
        self.write_bytes(item, Part::Payload, payload)?;
        let mut change = guard.begin();
        if free != 0 {
            let next = change.get(self.table.map.item(item, ItemWord::Next))?;
            change.set(self.table.map.work(WorkWord::Free), next)?;
        } else {
            change.set(self.table.map.work(WorkWord::Used), item as u64)?;
        }
        let facts = [
            (ItemWord::State, READY),
            (ItemWord::Id, id),
            (ItemWord::Attempts, 0),
            (ItemWord::RateLimits, 0),
            (ItemWord::PayloadBytes, payload.len() as u64),
            (ItemWord::ResultBytes, 0),
            (ItemWord::Reason, 0),
        ];
        for (word, value) in facts {
            self.set_item(&mut change, item, word, value)?;
        }
        self.append(&mut change, List::Ready, item)?;
        self.count_work(&mut change, WorkWord::Pushed, 1)?;
        change.commit();
        if self.work_word(guard, WorkWord::Free)? != 0
            || self.item(self.work_word(guard, WorkWord::Used)?)? < self.items.count
        {
            self.ring_work(guard, WorkBell::Pushers, Wakes::One)?;
        }
        // Last: the unlocking wakes this one.
        self.ring_work(guard, WorkBell::Takers, Wakes::One)?;
        Ok(Pushed::Pushed)
    }

    /// Hands out the next item: first those whose pause is over, then those whose time has come, then the others.
    pub fn take_item(&self, guard: &mut Guard<'_, E>, time: &impl Time, now: u64) -> Result<Taken, Fault> {
        self.adopt(guard)?;
        let pause = self.paused_until(guard, now)?;
        let (parked, ready) = (self.first_of(guard, List::Parked)?, self.first_of(guard, List::Ready)?);
        let delayed = self.first_delayed(guard)?;
        let (list, item) = match (parked, pause, delayed) {
            (1.., None, _) => (Some(List::Parked), parked),
            (_, _, Some((item, not_before))) if not_before <= now => (None, item),
            _ if ready != 0 => (Some(List::Ready), ready),
            _ => {
                if self.work_word(guard, WorkWord::Closed)? != 0 && self.unfinished(guard)? == 0 {
                    self.ring_work(guard, WorkBell::Takers, Wakes::One)?;
                    return Ok(Taken::Over);
                }
                let pause = pause.filter(|_| parked != 0).unwrap_or(NEVER);
                let not_before = delayed.map_or(NEVER, |(_, not_before)| not_before);
                let due = pause.min(not_before);
                return Ok(Taken::NotNow { look_at: self.reached(guard, due, time)?, due });
            }
        };
        let mut change = guard.begin();
        match list {
            Some(list) => self.remove_first(&mut change, list, item)?,
            None => self.remove_first_delayed(&mut change)?,
        }
        change.add(self.table.map.item(item, ItemWord::Attempts), 1)?;
        self.lease(&mut change, item, LEASED)?;
        self.count_work(&mut change, WorkWord::Leased, 1)?;
        self.count_work(&mut change, WorkWord::Taken, 1)?;
        if list == Some(List::Parked) {
            self.count_work(&mut change, WorkWord::Redistributed, 1)?;
        }
        change.commit();
        self.ring_on_for_takers(guard, now)?;
        Ok(Taken::Item(self.lease_of(guard, item)?))
    }

    /// When, by the clock of deadlines, an instant of set time has come.
    fn reached(&self, guard: &Guard<'_, E>, at: u64, time: &impl Time) -> Result<u64, Fault> {
        if at == NEVER {
            return Ok(NEVER);
        }
        Ok(time.reached(at.wrapping_sub(guard.get(StateMap::CLOCK_OFFSET)?)))
    }

    pub(super) fn lease(
        &self,
        change: &mut Transaction<'_, '_, E>,
        item: usize,
        state: u64,
    ) -> Result<(), Fault> {
        let me = change.holder();
        let number = change.get(self.table.map.work(WorkWord::NextLease))?;
        change.set(self.table.map.work(WorkWord::NextLease), number.wrapping_add(1))?;
        let facts = [
            (ItemWord::State, state),
            (ItemWord::Slot, me.slot.into()),
            (ItemWord::Generation, me.generation),
            (ItemWord::Lease, number),
        ];
        for (word, value) in facts {
            self.set_item(change, item, word, value)?;
        }
        Ok(())
    }

    pub(super) fn lease_of(&self, guard: &Guard<'_, E>, item: usize) -> Result<Lease, Fault> {
        let get = |word| self.item_word(guard, item, word);
        let bytes = |word| Ok(usize::try_from(get(word)?).unwrap_or(usize::MAX));
        let reason = get(ItemWord::Reason)?;
        Ok(Lease {
            item,
            owner: self.owner_of(guard, item)?,
            number: get(ItemWord::Lease)?,
            id: get(ItemWord::Id)?,
            attempts: get(ItemWord::Attempts)?,
            rate_limits: get(ItemWord::RateLimits)?,
            payload_bytes: bytes(ItemWord::PayloadBytes)?,
            result_bytes: bytes(ItemWord::ResultBytes)?,
            reason: Reason::ALL.into_iter().find(|it| it.number() == reason),
        })
    }

    /// Whether the guard's holder has the item of a lease, in this state.
    pub(super) fn has(&self, guard: &Guard<'_, E>, lease: &Lease, state: u64) -> Result<bool, Fault> {
        Ok(self.item_word(guard, lease.item, ItemWord::State)? == state
            && self.item_word(guard, lease.item, ItemWord::Lease)? == lease.number
            && self.owner_of(guard, lease.item)? == guard.holder())
    }

    /// Items that are not finished, be they at work or not.
    pub fn unfinished(&self, guard: &Guard<'_, E>) -> Result<u64, Fault> {
        let words = [WorkWord::Length(List::Ready), WorkWord::Length(List::Parked), WorkWord::Delayed];
        let mut sum = self.work_word(guard, WorkWord::Leased)?;
        for word in words {
            sum = sum.saturating_add(self.work_word(guard, word)?);
        }
        Ok(sum)
    }

    /// Ends a lease. False if the guard's holder does not have the item, and then nothing happens.
    pub fn end_lease(
        &self,
        guard: &mut Guard<'_, E>,
        lease: &Lease,
        verdict: Verdict,
        now: u64,
    ) -> Result<bool, Fault> {
        if !self.has(guard, lease, LEASED)? {
            return Ok(false);
        }
        self.end_item(guard, lease.item, verdict, now)?;
        Ok(true)
    }

    /// The same for an item whose owner need not be asked.
    pub(super) fn end_item(
        &self,
        guard: &mut Guard<'_, E>,
        item: usize,
        verdict: Verdict,
        now: u64,
    ) -> Result<(), Fault> {
        let attempts = self.item_word(guard, item, ItemWord::Attempts)?;
        let rate_limits = self.item_word(guard, item, ItemWord::RateLimits)?;
        let giving_up = self.table.giving_up;
        let mut change = guard.begin();
        self.count_work(&mut change, WorkWord::Leased, 1u64.wrapping_neg())?;
        if verdict == Verdict::Orphaned {
            self.count_work(&mut change, WorkWord::Returned, 1)?;
        }
        match verdict {
            Verdict::Done { result_bytes } => {
                self.count_work(&mut change, WorkWord::Done, 1)?;
                match result_bytes {
                    Some(bytes) => {
                        self.set_item(&mut change, item, ItemWord::ResultBytes, bytes as u64)?;
                        self.set_item(&mut change, item, ItemWord::State, DONE)?;
                        self.append(&mut change, List::Results, item)?;
                    }
                    None => self.free_item(&mut change, item)?,
                }
            }
            Verdict::Retry { .. } | Verdict::Abandoned | Verdict::Orphaned
                if attempts >= giving_up.attempts.into() =>
            {
                self.bury(&mut change, item, Reason::Attempts)?;
            }
            Verdict::Deferred { .. } if rate_limits.saturating_add(1) >= giving_up.rate_limits.into() => {
                self.count_rate_limit(&mut change, item)?;
                self.bury(&mut change, item, Reason::RateLimits)?;
            }
            Verdict::Retry { after } | Verdict::Deferred { after } => {
                if let Verdict::Deferred { .. } = verdict {
                    self.count_rate_limit(&mut change, item)?;
                }
                self.count_work(&mut change, WorkWord::Retried, 1)?;
                self.delay(&mut change, item, now.saturating_add(after))?;
                self.stamp(&mut change, now)?;
            }
            Verdict::Abandoned | Verdict::Orphaned | Verdict::GivenBack => {
                if verdict == Verdict::GivenBack {
                    change.add(self.table.map.item(item, ItemWord::Attempts), 1u64.wrapping_neg())?;
                }
                // It came before all that wait.
                self.set_item(&mut change, item, ItemWord::State, READY)?;
                self.insert(&mut change, List::Ready, item, 0)?;
            }
            Verdict::GivenUp { result_bytes } => {
                self.set_item(&mut change, item, ItemWord::ResultBytes, result_bytes as u64)?;
                self.bury(&mut change, item, Reason::GivenUp)?;
            }
        }
        change.commit();
        self.ring_for(guard, item)
    }

    /// Rings for those whom an item helps that came to its present state just now.
    pub(super) fn ring_for(&self, guard: &mut Guard<'_, E>, item: usize) -> Result<(), Fault> {
        match self.item_word(guard, item, ItemWord::State)? {
            READY | PARKED | DELAYED => self.ring_work(guard, WorkBell::Takers, Wakes::One)?,
            DONE => self.ring_work(guard, WorkBell::Collectors, Wakes::One)?,
            FREE => self.ring_work(guard, WorkBell::Pushers, Wakes::One)?,
            // Nobody waits for dead letters.
            _ => {}
        }
        self.ring_if_over(guard)
    }

    /// A hand-out that ended with a 429 was no attempt.
    fn count_rate_limit(&self, change: &mut Transaction<'_, '_, E>, item: usize) -> Result<(), Fault> {
        change.add(self.table.map.item(item, ItemWord::Attempts), 1u64.wrapping_neg())?;
        change.add(self.table.map.item(item, ItemWord::RateLimits), 1).map(drop)
    }

    fn bury(&self, change: &mut Transaction<'_, '_, E>, item: usize, reason: Reason) -> Result<(), Fault> {
        self.set_item(change, item, ItemWord::State, DEAD)?;
        self.set_item(change, item, ItemWord::Reason, reason.number())?;
        self.append(change, List::DeadLetters, item)?;
        self.count_work(change, WorkWord::DeadLettered, 1)
    }

    pub(super) fn free_item(&self, change: &mut Transaction<'_, '_, E>, item: usize) -> Result<(), Fault> {
        let first = change.get(self.table.map.work(WorkWord::Free))?;
        self.set_item(change, item, ItemWord::State, FREE)?;
        self.set_item(change, item, ItemWord::Next, first)?;
        change.set(self.table.map.work(WorkWord::Free), item as u64)
    }

    /// Ends an acquisition and a lease because the other side wanted less: the set pauses, unless the report is an old
    /// one, and the item is parked until the pause is over, all at one instant. None if the guard's holder does not
    /// have the item, and then only that does not happen.
    pub fn park(
        &self,
        guard: &mut Guard<'_, E>,
        lease: &Lease,
        charges: &[Charge],
        report: Report,
        now: u64,
    ) -> Result<Option<Paused>, Fault> {
        let is_held = self.has(guard, lease, LEASED)?;
        let mut change = guard.begin();
        let given = self.end_charges(&mut change, charges, false, now)?;
        let paused = self.report(&mut change, report, now)?;
        if is_held {
            self.park_in(&mut change, lease.item)?;
        }
        change.commit();
        self.serve(guard, given, now)?;
        if is_held {
            self.ring_for(guard, lease.item)?;
        }
        Ok(is_held.then_some(paused))
    }

    /// Parks an item when the report has been made already. False if the guard's holder does not have it.
    pub fn park_item(&self, guard: &mut Guard<'_, E>, lease: &Lease) -> Result<bool, Fault> {
        let is_held = self.has(guard, lease, LEASED)?;
        if is_held {
            let mut change = guard.begin();
            self.park_in(&mut change, lease.item)?;
            change.commit();
            self.ring_for(guard, lease.item)?;
        }
        Ok(is_held)
    }

    fn park_in(&self, change: &mut Transaction<'_, '_, E>, item: usize) -> Result<(), Fault> {
        self.count_work(change, WorkWord::Leased, 1u64.wrapping_neg())?;
        self.count_rate_limit(change, item)?;
        let rate_limits = change.get(self.table.map.item(item, ItemWord::RateLimits))?;
        if rate_limits >= self.table.giving_up.rate_limits.into() {
            return self.bury(change, item, Reason::RateLimits);
        }
        self.set_item(change, item, ItemWord::State, PARKED)?;
        self.append(change, List::Parked, item)?;
        self.count_work(change, WorkWord::Parkings, 1)
    }

    /// From now on nothing is pushed.
    pub fn close_work(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        let mut change = guard.begin();
        change.set(self.table.map.work(WorkWord::Closed), 1)?;
        change.commit();
        for bell in [WorkBell::Pushers, WorkBell::Collectors, WorkBell::Takers] {
            self.ring_work(guard, bell, Wakes::All)?;
        }
        Ok(())
    }
}
