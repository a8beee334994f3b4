//! All or none: charge every limit of a request, or none of them, and say what is in the way.

use std::sync::atomic::Ordering::Relaxed;

use super::table::{Entry, Kind};
use super::{Engine, Wants};
use crate::algorithm::{Settled, State, Verdict, Word};
use crate::format::state::{LimitWord, StateMap};
use crate::limit::Order;
use crate::protocol::{Env, Fault, Guard, Participant, Progress, Transaction};

/// How one limit stands to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// How much was asked of it.
    pub requested: u64,
    /// How much it would give; negative is debt.
    pub available: i64,
    /// How much it ever gives at once.
    pub most: u64,
    /// What it says.
    pub standing: Standing,
}

/// What one limit says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It fits.
    Passed,
    /// It would fit at this instant of set time, if nobody else asks before.
    Later {
        /// The instant.
        at: u64,
    },
    /// It fits when others have given permits back.
    Held,
    /// It never fits.
    Never,
}

/// What is wanted of one limit.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// Where the row is of the participant who wants it.
    pub(super) row: usize,
    pub(super) limit: usize,
    pub(super) amount: u64,
    /// Of which limits reports come to be owed, of those that need one.
    pub(super) owing: u64,
    pub(super) now: u64,
}

/// The decision about a request that is not charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The set admits no request for so many nanoseconds.
    CoolingDown {
        /// How many.
        left: u64,
    },
    /// Waiters come first.
    Queued {
        /// How many.
        ahead: u64,
    },
    /// Neither waiters nor a pause are in the way: the limits decide.
    Judged(Vec<Judged>),
}

impl<E: Env> Engine<'_, E> {
    /// Decides a request without charging it.
    pub fn check(&self, guard: &Guard<'_, E>, wants: &Wants, now: u64) -> Result<Checked, Fault> {
        let mask = wants.demand();
        let judged = self.judge(guard, wants, now)?;
        let is_possible = judged.iter().all(|it| it.standing != Standing::Never);
        let in_order = self.table.order == Order::Arrival;
        let gate = if mask == 0 { None } else { self.gate(guard, now)? };
        let is_waited_for =
            in_order && self.waited_for(guard, mask)? != 0 && !self.leaves_enough(guard, wants, now)?;
        if let Some(at) = gate.filter(|_| is_possible)
            && (!is_waited_for || self.paused_until(guard, now)?.is_some())
        {
            return Ok(Checked::CoolingDown { left: at.saturating_sub(now) });
        }
        if is_possible && is_waited_for {
            return Ok(Checked::Queued { ahead: self.ahead(guard, mask, None)? });
        }
        Ok(Checked::Judged(judged))
    }

    /// Counts a refusal with the limits that were in the way.
    pub fn count_denied(&self, guard: &mut Guard<'_, E>, judged: &[Judged]) -> Result<(), Fault> {
        for (limit, judged) in judged.iter().enumerate() {
            if judged.standing != Standing::Passed {
                guard.count(self.limit_word(limit, LimitWord::Denied), 1)?;
            }
        }
        Ok(())
    }

    /// Charges what is wanted, whoever waits, and gives its number in the order of arrival; none if not all of it is there, and
    /// nothing is charged then. Reports come to be owed of the limits in `owing`, of those that need one.
    ///
    /// Limit by limit, as if it all fitted; if one does not, what was charged so far is undone. The holder's row must
    /// have been adopted.
    pub fn take(
        &self,
        guard: &mut Guard<'_, E>,
        wants: &Wants,
        owing: u64,
        now: u64,
    ) -> Result<Option<u64>, Fault> {
        let me = guard.holder();
        let mut change = guard.begin();
        if !self.charge_all(&mut change, me, wants, owing, now)? {
            return Ok(None);
        }
        let ticket = change.get(StateMap::NEXT_TICKET)?;
        change.set_row(StateMap::LAST_NOW, [now, ticket.wrapping_add(1)])?;
        change.commit();
        Ok(Some(ticket))
    }

    /// Charges everything to `who`, whose row must be its own; false if something is not there, and then the
    /// transaction must be dropped. The caller has to note the instant of the decision.
    pub(super) fn charge_all(
        &self,
        change: &mut Transaction<'_, '_, E>,
        who: Participant,
        wants: &Wants,
        owing: u64,
        now: u64,
    ) -> Result<bool, Fault> {
        let row = self.table.row(who.slot);
        for (limit, amount) in wants.iter() {
            match self.take_one::<true>(&mut change.progress, Wish { row, limit, amount, owing, now }) {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Err(self.misplaced(change, limit)),
            }
        }
        if wants.demand() != 0 {
            self.admit(change, now)?;
        }
        Ok(true)
    }

    /// Takes it of one limit, for the participant whose row is this one; false if it is not there. None if the words for
    /// it are not there, or there is no room to note how they were: see [`misplaced`](Self::misplaced).
    ///
    /// Without `CELLS`, rates that keep cells are not there: see [`at_once`](super::at_once).
    #[inline(always)]
    pub(super) fn take_one<const CELLS: bool>(
        &self,
        progress: &mut Progress<'_, E>,
        wish: Wish,
    ) -> Option<bool> {
        let block = &self.block;
        let Wish { row, limit, amount, now, .. } = wish;
        let entry = self.table.entry(limit)?;
        let numbers: &[E::U64; 3] = block.row(entry.first_number)?;
        // What one grant changes stands side by side.
        let words: &[E::U64; 5] = block.row(entry.first_word)?;
        let get = |word: &E::U64| block.env.load64(word, Relaxed);
        let (old, level, at, remainder) = match entry.kind() {
            Kind::Permits => {
                let ([capacity, ..], old) = (numbers, block.values(words));
                let [level, at, remainder, ..] = old;
                let level = level.checked_add(amount).filter(|level| *level <= get(capacity));
                let Some(level) = level else { return Some(false) };
                self.add_one(progress, row + 1 + limit, amount)?;
                (old, level, at, remainder)
            }
            Kind::Plain => {
                let settled = settle(block.env, entry, numbers, words, now, amount);
                let Some([level, remainder]) = settled.words() else { return Some(false) };
                let old = block.values(words);
                let [_, at, ..] = old;
                (old, level, at.max(now), remainder)
            }
            Kind::WithCells if CELLS => match self.take_of_cells(progress, limit, amount, now)? {
                Some([level, at, remainder]) => (block.values(words), level, at, remainder),
                None => return Some(false),
            },
            Kind::WithCells => return None,
        };
        if entry.must_report && wish.owing >> limit & 1 != 0 {
            self.add_one(progress, row + 1 + limit, 1)?;
        }
        let [.., consumed, granted] = old;
        let new = [level, at, remainder, consumed.wrapping_add(amount), granted.wrapping_add(1)];
        progress.change(block, entry.first_word, words, old, new)?;
        Some(true)
    }

    /// Changes the cells of a limit, and says what its three words have to be; nothing if it is not there.
    fn take_of_cells(
        &self,
        progress: &mut Progress<'_, E>,
        limit: usize,
        amount: u64,
        now: u64,
    ) -> Option<Option<[u64; 3]>> {
        let block = &self.block;
        let get = |index: usize| block.get(index).unwrap_or(0);
        let rule = self.table.rule(limit, get)?;
        let state = self.table.state(limit, &get);
        let Verdict::Admit(changes) = rule.acquire(&state, now, amount) else { return Some(None) };
        for (cell, value) in changes.cells() {
            let index = self.table.word(limit, cell);
            let word = block.row(index)?;
            progress.change(block, index, word, block.values(word), [value])?;
        }
        let three =
            [(Word::Level, changes.level), (Word::At, changes.at), (Word::Remainder, changes.remainder)];
        Some(Some(three.map(|(word, value)| value.unwrap_or_else(|| state.word(word)))))
    }

    /// Adds to one word.
    #[inline(always)]
    fn add_one(&self, progress: &mut Progress<'_, E>, index: usize, amount: u64) -> Option<()> {
        let block = &self.block;
        let word = block.row(index)?;
        let [old] = block.values(word);
        progress.change(block, index, word, [old], [old.saturating_add(amount)])
    }

    /// Why nothing could be taken of a limit, or given back to it, though it is there.
    #[cold]
    fn misplaced(&self, change: &Transaction<'_, '_, E>, limit: usize) -> Fault {
        let block = change.block();
        let index = self.table.entry(limit).map_or(usize::MAX, |entry| entry.first_number);
        match block.row::<3>(index) {
            None => block.out_of_range(index),
            Some(_) => Fault::TooManyChanges { most: block.journal.len() / 2 },
        }
    }

    /// How every limit of the set stands to a request. Changes nothing.
    pub fn judge(&self, guard: &Guard<'_, E>, wants: &Wants, now: u64) -> Result<Vec<Judged>, Fault> {
        let get = |index: usize| guard.get(index).unwrap_or(0);
        // Exact, so that it becomes a box without another allocation.
        let mut judged = Vec::with_capacity(self.table.len());
        for limit in 0..self.table.len() {
            let requested = wants.amount(limit).unwrap_or(0);
            let available = self.table.available(limit, get, now);
            let most = self.table.most(limit, get);
            let standing = match self.table.rule(limit, get) {
                _ if requested > most => Standing::Never,
                Some(rule) => match rule.acquire(&self.table.state(limit, get), now, requested) {
                    Verdict::Admit(_) => Standing::Passed,
                    Verdict::Later { at } => Standing::Later { at },
                    Verdict::Never => Standing::Never,
                },
                None if requested == 0 => Standing::Passed,
                None if i64::try_from(requested).is_ok_and(|requested| requested <= available) => {
                    Standing::Passed
                }
                None => Standing::Held,
            };
            judged.push(Judged { requested, available, most, standing });
        }
        Ok(judged)
    }
}

/// What becomes of a rate that keeps no cells. Apart, so that its many values do not push those of the caller out of the
/// registers; handed places instead of values for the same reason.
#[inline(never)]
fn settle<E: Env>(
    env: &E,
    entry: &Entry,
    numbers: &[E::U64; 3],
    words: &[E::U64; 5],
    now: u64,
    amount: u64,
) -> Settled {
    let load = |word: &E::U64| env.load64(word, Relaxed);
    let [level, at, remainder, ..] = words;
    let rule = entry.rule(numbers.each_ref().map(load), 0);
    let settled = rule.and_then(|rule| rule.settle([level, at, remainder].map(load), now, amount));
    settled.unwrap_or(Settled::NOT)
}
