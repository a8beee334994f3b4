//! All or none: charge every limit of a request, or none of them, and say what is in the way.

use smallvec::SmallVec;

use super::{Engine, Wants};
use crate::core::{Env, Fault, Guard, Participant, Transaction};
use crate::layout::state::{LimitWord, RuleWord, StateMap};
use crate::math::Verdict;

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
        change.set(StateMap::NEXT_TICKET, ticket.wrapping_add(1))?;
        change.commit();
        Ok(Some(ticket))
    }

    /// Charges everything to `who`, whose row must be its own; false if something is not there, and then the
    /// transaction must be dropped.
    pub(super) fn charge_all(
        &self,
        change: &mut Transaction<'_, '_, E>,
        who: Participant,
        wants: &Wants,
        owing: u64,
        now: u64,
    ) -> Result<bool, Fault> {
        for (limit, amount) in wants.iter().filter(|(_, amount)| *amount > 0) {
            if !self.take_one(change, limit, amount, now)? {
                return Ok(false);
            }
            if self.table.is_permit(limit) {
                self.holdings().take(change, who, limit, amount)?;
            }
            self.add(change, self.limit_word(limit, LimitWord::Consumed), amount)?;
            self.add(change, self.limit_word(limit, LimitWord::Granted), 1)?;
            if self.table.must_report(limit) && owing >> limit & 1 != 0 {
                self.add(change, self.owed(who, limit), 1)?;
            }
        }
        if wants.demand() != 0 {
            self.admit(change, now)?;
        }
        self.stamp(change, now)?;
        Ok(true)
    }

    /// Whether one limit has it. A rate is charged, permits are not yet taken.
    fn take_one(
        &self,
        change: &mut Transaction<'_, '_, E>,
        limit: usize,
        amount: u64,
        now: u64,
    ) -> Result<bool, Fault> {
        let Some(rule) = self.rule(change, limit) else {
            let capacity = change.get(self.table.map.rule(limit, RuleWord::Capacity))?;
            let in_use = change.get(self.limit_word(limit, LimitWord::Level))?;
            return Ok(in_use.checked_add(amount).is_some_and(|sum| sum <= capacity));
        };
        let verdict = {
            let state = self.table.state(limit, |index| change.get(index).unwrap_or(0));
            rule.acquire(&state, now, amount)
        };
        let Verdict::Admit(changes) = verdict else { return Ok(false) };
        self.write(change, limit, &changes)?;
        Ok(true)
    }

    /// How every limit of the set stands to a request. Changes nothing.
    pub fn judge(
        &self,
        guard: &Guard<'_, E>,
        wants: &Wants,
        now: u64,
    ) -> Result<SmallVec<[Judged; 8]>, Fault> {
        let get = |index: usize| guard.get(index).unwrap_or(0);
        // Exact, so that making a box of it later allocates at most once.
        let mut judged = SmallVec::with_capacity(self.table.len());
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
