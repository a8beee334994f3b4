//! After the grant: what was charged turns out to be more or less, and in the end is released or given back.

use super::{Ending, Engine, Table, Wants};
use crate::format::state::{LimitWord, StateMap};
use crate::protocol::{Env, Fault, Guard, Transaction};

/// What one acquisition has of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Number of the acquisition in the order of arrival: what was charged before a reset is forgotten by it.
    pub ticket: u64,
    /// How much was asked for.
    pub requested: u64,
    /// How much is charged now.
    pub charged: u64,
    /// Which limit.
    limit: u8,
    /// Whether a report is still owed.
    pub owes_report: bool,
}

impl Charge {
    /// `amount` of a limit, charged by the acquisition with this ticket.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 limits")]
    pub fn new(limit: usize, amount: u64, owes_report: bool, ticket: u64) -> Self {
        Self { ticket, requested: amount, charged: amount, limit: limit as u8, owes_report }
    }

    /// What a grant has charged; reports are owed of the limits in `owing`, of those that need one.
    #[inline]
    pub fn of(wants: &Wants, owing: u64, table: &Table, ticket: u64) -> impl Iterator<Item = Self> {
        wants.iter().map(move |(limit, amount)| {
            let owes_report = owing >> limit & 1 != 0 && table.must_report(limit);
            Self::new(limit, amount, owes_report, ticket)
        })
    }

    /// Which limit.
    #[inline]
    pub fn limit(&self) -> usize {
        self.limit.into()
    }
}

impl<E: Env> Engine<'_, E> {
    /// Changes what is charged of one limit to `to`: gives back what is too much, where that is possible, or
    /// charges what is missing, into debt if need be. Counts as the report. Gives what is charged afterwards.
    pub fn recharge(
        &self,
        guard: &mut Guard<'_, E>,
        charge: &Charge,
        to: u64,
        now: u64,
    ) -> Result<u64, Fault> {
        let limit = charge.limit();
        let owed = self.owed(guard.holder(), limit);
        let mut change = guard.begin();
        let charged = match to.checked_sub(charge.charged) {
            Some(0) => to,
            Some(more) => {
                self.charge(&mut change, limit, more, now)?;
                to
            }
            None => {
                let back = charge.charged - to;
                charge.charged - self.give_back(&mut change, charge.ticket, limit, back, now)?
            }
        };
        if charge.owes_report {
            change.add(owed, 1u64.wrapping_neg())?;
        }
        change.commit();
        if charged < charge.charged {
            self.serve(guard, 1 << limit, now)?;
        }
        Ok(charged)
    }

    /// Whether ending an acquisition depends on the time: something flows back to a rate, or somebody waits.
    #[inline]
    pub fn end_needs_time(&self, guard: &Guard<'_, E>, ending: Ending) -> Result<bool, Fault> {
        Ok(ending == Ending::Cancelled || guard.get(StateMap::QUEUE_LENGTH)? != 0)
    }

    /// Ends an acquisition: permits return; if it is cancelled, what was charged of rates returns too, where that is
    /// possible. What ends by a report of the other side is [`rate_limited`](Self::rate_limited).
    #[inline]
    pub fn finish(
        &self,
        guard: &mut Guard<'_, E>,
        charges: &[Charge],
        ending: Ending,
        now: u64,
    ) -> Result<(), Fault> {
        let admitted = match ending {
            Ending::Released(admitted) => Some(admitted),
            Ending::Cancelled => None,
        };
        let mut change = guard.begin();
        let given = self.end_charges(&mut change, charges, ending == Ending::Cancelled, now)?;
        if let Some(admitted) = admitted {
            for charge in charges.iter().filter(|charge| charge.owes_report) {
                change.add(self.limit_word(charge.limit(), LimitWord::Unreported), 1)?;
            }
            self.succeed(&mut change, admitted)?;
        }
        change.commit();
        self.serve(guard, given, now)
    }

    /// What the end of an acquisition gives back, a bit for each limit; reports are owed no longer.
    #[inline]
    pub(super) fn end_charges(
        &self,
        change: &mut Transaction<'_, '_, E>,
        charges: &[Charge],
        cancel: bool,
        now: u64,
    ) -> Result<u64, Fault> {
        let me = change.holder();
        let mut given = 0;
        for charge in charges {
            let limit = charge.limit();
            if charge.charged > 0 && (cancel || self.table.is_permit(limit)) {
                self.give_back(change, charge.ticket, limit, charge.charged, now)?;
                given |= 1 << limit;
            }
            if charge.owes_report {
                change.add(self.owed(me, limit), 1u64.wrapping_neg())?;
            }
        }
        Ok(given)
    }

    fn charge(
        &self,
        change: &mut Transaction<'_, '_, E>,
        limit: usize,
        more: u64,
        now: u64,
    ) -> Result<(), Fault> {
        let Some(rule) = self.rule(change, limit) else { return Ok(()) };
        let delta = i64::try_from(more).unwrap_or(i64::MAX);
        let changes = {
            let state = self.table.state(limit, |index| change.get(index).unwrap_or(0));
            rule.adjust(&state, now, delta)
        };
        self.write(change, limit, &changes)?;
        change.add(self.limit_word(limit, LimitWord::Consumed), more)?;
        self.stamp(change, now)
    }

    /// Gives back at most `amount`; tells how much that was.
    #[inline]
    pub(super) fn give_back(
        &self,
        change: &mut Transaction<'_, '_, E>,
        ticket: u64,
        limit: usize,
        amount: u64,
        now: u64,
    ) -> Result<u64, Fault> {
        if self.table.is_permit(limit) {
            let me = change.holder();
            return self.holdings().give(change, me, limit, amount);
        }
        self.refund(change, ticket, limit, amount, now)
    }

    fn refund(
        &self,
        change: &mut Transaction<'_, '_, E>,
        ticket: u64,
        limit: usize,
        amount: u64,
        now: u64,
    ) -> Result<u64, Fault> {
        let Some(rule) = self.rule(change, limit) else { return Ok(0) };
        if ticket < change.get(StateMap::RESET_TICKET)? {
            // A reset has given it back already. Who joined the queue before it and was granted something after it
            // loses this, too: that errs on the safe side.
            return Ok(0);
        }
        let (given, changes) = {
            let state = self.table.state(limit, |index| change.get(index).unwrap_or(0));
            rule.refund(&state, now, amount)
        };
        if given > 0 {
            self.write(change, limit, &changes)?;
            change.add(self.limit_word(limit, LimitWord::Consumed), given.wrapping_neg())?;
            self.stamp(change, now)?;
            change.add(self.limit_word(limit, LimitWord::Refunded), given)?;
        }
        Ok(given)
    }
}
