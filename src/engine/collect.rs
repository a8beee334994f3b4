//! What becomes of items beyond work: results and dead letters are collected, and what the dead had comes back.

use super::items::{DEAD, DEAD_COLLECTED, DONE, DONE_COLLECTED, LEASED, READY};
use super::{Engine, Lease, Taken, Verdict, WorkBell};
use crate::core::{Env, Fault, Guard, NEVER, Participant, Wakes};
use crate::layout::work::{ItemWord, List, WorkWord};

/// What becomes of an item that was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// It is no longer needed.
    Forgotten,
    /// As if it had not been collected.
    PutBack,
    /// To be tried again from the start.
    Revived,
}

/// Which finished items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finishes {
    /// Done, with a result.
    Results,
    /// Given up.
    DeadLetters,
}

impl<E: Env> Engine<'_, E> {
    /// Hands out a finished item to whoever collects it.
    pub fn collect_item(&self, guard: &mut Guard<'_, E>, from: Finishes) -> Result<Taken, Fault> {
        self.adopt(guard)?;
        let (list, state) = match from {
            Finishes::Results => (List::Results, DONE_COLLECTED),
            Finishes::DeadLetters => (List::DeadLetters, DEAD_COLLECTED),
        };
        let item = self.first_of(guard, list)?;
        if item == 0 {
            // Who has collected one may put it back.
            let is_over = self.work_word(guard, WorkWord::Closed)? != 0
                && self.unfinished(guard)? == 0
                && self.work_word(guard, WorkWord::Collected)? == 0;
            if !is_over {
                return Ok(Taken::NotNow { look_at: NEVER, due: NEVER });
            }
            self.ring_work(guard, WorkBell::Collectors, Wakes::One)?;
            return Ok(Taken::Over);
        }
        let mut change = guard.begin();
        self.remove_first(&mut change, list, item)?;
        self.lease(&mut change, item, state)?;
        self.count_work(&mut change, WorkWord::Collected, 1)?;
        change.commit();
        if self.first_of(guard, List::Results)? != 0 {
            self.ring_work(guard, WorkBell::Collectors, Wakes::One)?;
        }
        Ok(Taken::Item(self.lease_of(guard, item)?))
    }

    /// Ends the collecting of an item. False if the guard's holder does not have it, and then nothing happens.
    pub fn end_collecting(
        &self,
        guard: &mut Guard<'_, E>,
        lease: &Lease,
        what: Collected,
    ) -> Result<bool, Fault> {
        let state = self.item_word(guard, lease.item, ItemWord::State)?;
        if !matches!(state, DONE_COLLECTED | DEAD_COLLECTED) || !self.has(guard, lease, state)? {
            return Ok(false);
        }
        let item = lease.item;
        if what == Collected::PutBack {
            self.put_back(guard, item, state)?;
        } else {
            let mut change = guard.begin();
            self.count_work(&mut change, WorkWord::Collected, 1u64.wrapping_neg())?;
            if what == Collected::Revived {
                for word in
                    [ItemWord::Attempts, ItemWord::RateLimits, ItemWord::ResultBytes, ItemWord::Reason]
                {
                    self.set_item(&mut change, item, word, 0)?;
                }
                self.set_item(&mut change, item, ItemWord::State, READY)?;
                self.append(&mut change, List::Ready, item)?;
            } else {
                self.free_item(&mut change, item)?;
            }
            change.commit();
            self.ring_for(guard, item)?;
        }
        Ok(true)
    }

    fn put_back(&self, guard: &mut Guard<'_, E>, item: usize, state: u64) -> Result<(), Fault> {
        let (list, state) = match state {
            DONE_COLLECTED => (List::Results, DONE),
            _ => (List::DeadLetters, DEAD),
        };
        let mut change = guard.begin();
        self.count_work(&mut change, WorkWord::Collected, 1u64.wrapping_neg())?;
        self.set_item(&mut change, item, ItemWord::State, state)?;
        self.insert(&mut change, list, item, 0)?;
        change.commit();
        self.ring_for(guard, item)
    }

    /// Returns what a participant had: items to be tried again, or dead letters if they were tried often enough. Gives
    /// how many there were. Each is a transaction of its own.
    pub fn return_items(
        &self,
        guard: &mut Guard<'_, E>,
        is_gone: impl Fn(Participant) -> bool,
        now: u64,
    ) -> Result<u64, Fault> {
        if self.items.count == 0 {
            return Ok(0);
        }
        let used = self.item(self.work_word(guard, WorkWord::Used)?)?;
        let mut returned = 0;
        for item in 1..=used {
            let state = self.item_word(guard, item, ItemWord::State)?;
            if !matches!(state, LEASED | DONE_COLLECTED | DEAD_COLLECTED)
                || !is_gone(self.owner_of(guard, item)?)
            {
                continue;
            }
            if state == LEASED {
                self.end_item(guard, item, Verdict::Orphaned, now)?;
            } else {
                self.put_back(guard, item, state)?;
            }
            returned += 1;
        }
        Ok(returned)
    }
}
