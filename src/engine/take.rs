//! All or none: charge every limit of a request, or none of them, and say what is in the way.

use super::{Engine, Wants};
use crate::core::{Env, Fault, Guard, Participant, Transaction};
use crate::layout::state::{LimitWord, RuleWord, StateMap};
use crate::math::{Verdict, Word};

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

impl<E: Env> Engine<'_, E> {
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
    #[inline(always)]
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
    #[inline(always)]
    pub(super) fn charge_all(
        &self,
        change: &mut Transaction<'_, '_, E>,
        who: Participant,
        wants: &Wants,
        owing: u64,
        now: u64,
    ) -> Result<bool, Fault> {
        for (limit, amount) in wants.iter() {
            if !self.take_one(change, who, limit, amount, now)? {
                return Ok(false);
            }
            if self.table.must_report(limit) && owing >> limit & 1 != 0 {
                change.add(self.owed(who, limit), 1)?;
            }
        }
        if wants.demand() != 0 {
            self.admit(change, now)?;
        }
        Ok(true)
    }

    /// Takes it of one limit; false if it is not there.
    #[inline(always)]
    fn take_one(
        &self,
        change: &mut Transaction<'_, '_, E>,
        who: Participant,
        limit: usize,
        amount: u64,
        now: u64,
    ) -> Result<bool, Fault> {
        let block = change.block();
        // What one grant changes stands side by side.
        let first = self.limit_word(limit, LimitWord::Level);
        let [level, at, remainder, consumed, granted] = block.get_row(first)?;
        let counted = [consumed.wrapping_add(amount), granted.wrapping_add(1)];
        let write = |change: &mut Transaction<'_, '_, E>, [level, at, remainder]: [u64; 3]| {
            let [consumed, granted] = counted;
            change.set_row(first, [level, at, remainder, consumed, granted])
        };
        let get = |index: usize| block.get(index).unwrap_or(0);
        let Some(rule) = self.table.rule(limit, get) else {
            let capacity = get(self.table.map.rule(limit, RuleWord::Capacity));
            let Some(level) = level.checked_add(amount).filter(|level| *level <= capacity) else {
                return Ok(false);
            };
            write(change, [level, at, remainder])?;
            self.holdings().note(change, who, limit, amount)?;
            return Ok(true);
        };
        let state = |word| match word {
            Word::Level => level,
            Word::At => at,
            Word::Remainder => remainder,
            Word::Cell(_) => get(self.table.word(limit, word)),
        };
        let Verdict::Admit(changes) = rule.acquire(&state, now, amount) else { return Ok(false) };
        for (word, value) in changes.cells() {
            change.set(self.table.word(limit, word), value)?;
        }
        let words = [
            changes.level.unwrap_or(level),
            changes.at.unwrap_or(at),
            changes.remainder.unwrap_or(remainder),
        ];
        write(change, words)?;
        Ok(true)
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
