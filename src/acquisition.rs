//! After the grant: report use, release, cancel.

mod again;
mod ending;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::thread::LocalKey;
use std::time::Duration;

use smallvec::SmallVec;

use crate::answer::{AcquireError, UsageError};
use crate::cooldown::Pause;
use crate::engine::{Admitted, Charge, Ending, Report, Table, Trial, Wants};
use crate::enter::Granted;
use crate::events;
use crate::grantee::Grantee;
use crate::limit::MAX_CAPACITY;
use crate::request::Request;
use crate::set::LimitSet;
use crate::sys::clock;
use crate::sys::recycled::{Recycle, Recycled, Spares};

/// What was acquired: permits that are held, and charges on rates.
///
/// Dropping it releases the permits. It belongs to the participant that acquired it: in a forked child, and after this
/// process [took a lent slot lock back](crate::LentLife::release), dropping it does nothing.
///
/// ```
/// use limitset::{LimitSet, RateLimit, ResourceLimit};
///
/// let limits = LimitSet::builder()
///     .limit(RateLimit::per_minute("tokens", 1_000))
///     .limit(ResourceLimit::new("connections", 2))
///     .in_memory()?;
///
/// let mut held = limits.try_acquire([("tokens", 300)])?;
/// assert_eq!(held.update("tokens", 100)?, 200); // given back
/// assert_eq!(held.settle("tokens", 450)?, 0);   // 350 more, into debt if need be
/// held.release()?;
///
/// let stats = limits.stats()?;
/// assert_eq!(stats.limit("tokens").unwrap().consumed, 450);
/// assert_eq!(stats.limit("connections").unwrap().in_use, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it releases what was acquired"]
pub struct Acquisition<S: Borrow<LimitSet> = LimitSet> {
    /// The set it was acquired from is its owner.
    held: Recycled<S, Held>,
}

/// What an acquisition knows, apart from its set.
#[derive(Default)]
struct Held {
    /// What was granted.
    wants: Wants,
    /// Of which limits of it reports were owed then.
    owing: u64,
    /// The same limit by limit, as it stands now; only once something about it [has changed](Self::spread).
    charges: SmallVec<[Charge; 4]>,
    is_spread: bool,
    /// Which limits were named, be it with nothing.
    named: u64,
    ticket: u64,
    admitted: Admitted,
    /// The participant that it belongs to; nobody, if nothing is enforced.
    to: Grantee,
    is_enforced: bool,
    is_over: bool,
    pool_index: Option<usize>,
}

impl Held {
    /// Says anew whatever it says: what was granted, reports being owed of the limits in `owing`.
    #[inline(always)]
    fn begin(&mut self, wants: &Wants, owing: u64, set: &LimitSet, granted: &Granted) {
        let (table, to) = (&set.keys().table, Grantee::now(set.segment()));
        self.wants.copy(wants);
        self.owing = owing & table.reporting() & wants.demand();
        (self.named, self.ticket, self.admitted) = (wants.named(), granted.ticket, granted.admitted);
        (self.to, self.pool_index) = (to, None);
        (self.is_spread, self.is_enforced, self.is_over) = (false, true, false);
    }

    /// What is charged, limit by limit, to be changed.
    fn spread(&mut self, table: &Table) -> &mut SmallVec<[Charge; 4]> {
        if !std::mem::replace(&mut self.is_spread, true) {
            self.charges.clear();
            self.charges.extend(Charge::of(&self.wants, self.owing, table, self.ticket));
        }
        &mut self.charges
    }

    /// What is charged of each limit now.
    fn charged(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let granted = (!self.is_spread).then(|| self.wants.iter()).into_iter().flatten();
        let changed = self.is_spread.then_some(&self.charges).into_iter().flatten();
        granted.chain(changed.map(|charge| (charge.limit(), charge.charged)))
    }

    /// Of which limits reports are owed.
    #[inline]
    fn owed(&self) -> u64 {
        if self.is_spread {
            let owed = self.charges.iter().filter(|charge| charge.owes_report);
            owed.fold(0, |all, charge| all | 1 << charge.limit())
        } else {
            self.owing
        }
    }
}

impl Recycle for Held {
    fn spares() -> &'static LocalKey<Spares<Self>> {
        thread_local! {
            static SPARES: Spares<Held> = const { Spares::new() };
        }
        &SPARES
    }
}

impl<S: Borrow<LimitSet>> Acquisition<S> {
    /// Owing reports of the limits in `owing`, of those that need one.
    #[inline(always)]
    pub(crate) fn new(set: S, wants: &Wants, owing: u64, granted: &Granted) -> Self {
        let mut held = Recycled::<S, Held>::used_or_new(set);
        let (set, grant) = held.both();
        grant.begin(wants, owing, set.borrow(), granted);
        Self { held }
    }

    pub(crate) fn not_enforced(set: S) -> Self {
        let mut held = Recycled::used_or_new(set);
        *held = Held::default();
        Self { held }
    }

    /// The same acquisition, which knows its set in another way.
    pub(crate) fn of<T: Borrow<LimitSet>>(mut self, set: T) -> Acquisition<T> {
        let mut held = Recycled::<T, Held>::used_or_new(set);
        *held = std::mem::replace(&mut *self.held, Held { is_over: true, ..Held::default() });
        Acquisition { held }
    }

    /// Its end says nothing about the other side.
    pub(crate) fn is_no_trial(&mut self) {
        self.held.admitted.trial = Trial::Over;
    }

    /// The set it was acquired from.
    #[inline]
    pub fn set(&self) -> &LimitSet {
        self.held.owner().borrow()
    }

    /// The config map of the set.
    pub fn config(&self) -> &BTreeMap<String, String> {
        self.set().config()
    }

    /// The position of its set in the pool that it came from; none if it did not come from one.
    pub fn pool_index(&self) -> Option<usize> {
        self.held.pool_index
    }

    pub(crate) fn set_pool_index(&mut self, index: usize) {
        self.held.pool_index = Some(index);
    }

    /// Whether the limits were asked. False only by [`OnUnavailable::Allow`](crate::OnUnavailable::Allow), when they
    /// could not be; then nothing is charged and nothing can be reported.
    pub fn enforced(&self) -> bool {
        self.held.is_enforced
    }

    /// Its number in the order of arrival.
    pub fn ticket(&self) -> u64 {
        self.held.ticket
    }

    /// How much of a limit is charged or held now; none if it was left alone.
    pub fn charged(&self, key: &str) -> Option<u64> {
        let limit = self.set().keys().find(key).ok()?;
        let found = self.held.charged().find(|(of, _)| *of == limit).map(|(_, charged)| charged);
        found.or((self.held.named >> limit & 1 != 0).then_some(0))
    }

    /// Reports that `used` of what was requested was used. What was not is given back, if the limit's algorithm can
    /// take it; of permits, the rest is given back early. Gives how much that was. Reporting again corrects the
    /// report.
    ///
    /// # Errors
    ///
    /// [`UsageError::AboveRequested`] if more was used than requested; nothing is changed then.
    pub fn update(&mut self, key: &str, used: u64) -> Result<u64, UsageError> {
        if !self.held.is_enforced {
            return Ok(0);
        }
        let (place, charge) = self.find(key)?;
        if used > charge.requested {
            let (key, requested) = (key.to_owned(), charge.requested);
            return Err(UsageError::AboveRequested { key, used, requested });
        }
        self.recharge(place, used)
    }

    /// Charges `delta` more than so far, into debt if need be, or gives back that much if it is negative. Counts as
    /// a report. Gives how much was given back.
    ///
    /// # Errors
    ///
    /// [`UsageError::AboveCharged`] if more is to be given back than is charged, [`UsageError::Permits`] if permits
    /// are asked for. Nothing is changed then.
    pub fn adjust(&mut self, key: &str, delta: i64) -> Result<u64, UsageError> {
        if !self.held.is_enforced {
            return Ok(0);
        }
        let (place, charge) = self.find(key)?;
        let Some(to) = charge.charged.checked_add_signed(delta) else {
            let (key, asked) = (key.to_owned(), delta.unsigned_abs());
            return Err(UsageError::AboveCharged { key, asked, charged: charge.charged });
        };
        self.recharge(place, to)
    }

    /// Reports what was used, be it less or more than requested: what is too much is given back, what is missing is
    /// charged, into debt if need be. Gives how much was given back.
    ///
    /// # Errors
    ///
    /// [`UsageError::Permits`] if more permits would be held than were acquired; nothing is changed then.
    pub fn settle(&mut self, key: &str, actual: u64) -> Result<u64, UsageError> {
        if !self.held.is_enforced {
            return Ok(0);
        }
        let (place, _) = self.find(key)?;
        self.recharge(place, actual)
    }

    /// Acquires more under the same acquisition, exactly what is named, all or none. Never waits: whoever holds
    /// something and waits for more may wait for somebody who does the same.
    ///
    /// # Errors
    ///
    /// As [`LimitSet::try_acquire`]; what was acquired before is not touched.
    pub fn acquire_more<'r>(&mut self, request: impl Into<Request<'r>>) -> Result<(), AcquireError> {
        let wants = self.set().keys().named_only(&request.into())?;
        if !self.held.is_enforced {
            return Ok(());
        }
        self.held.to.check(self.set().segment())?;
        let Granted { ticket, admitted, .. } = self.set().try_enter(&wants, !self.held.owed())??;
        if wants.demand() != 0 {
            // What the other side says from now on is about what was admitted last.
            self.held.admitted = admitted;
        }
        self.held.named |= wants.named();
        let (set, held) = self.held.both();
        let table = &set.borrow().keys().table;
        let charges = held.spread(table);
        for more in Charge::of(&wants, u64::MAX, table, ticket) {
            match charges.iter_mut().find(|charge| charge.limit() == more.limit()) {
                Some(charge) => {
                    charge.requested = charge.requested.saturating_add(more.requested);
                    charge.charged = charge.charged.saturating_add(more.charged);
                    charge.owes_report |= more.owes_report;
                }
                None => charges.push(more),
            }
        }
        Ok(())
    }

    /// Ends the acquisition: permits return, charges stay.
    ///
    /// # Errors
    ///
    /// [`UsageError::Unreported`] if the use of a rate that needs a report was not reported; it is released all the
    /// same. [`UsageError::Unavailable`] if the lock stays busy; the permits return as soon as it is free.
    #[inline]
    pub fn release(mut self) -> Result<(), UsageError> {
        self.release_in_place()
    }

    /// [`release`](Self::release) for bindings, which cannot give it away; not covered by semantic versioning.
    #[doc(hidden)]
    #[inline]
    pub fn release_in_place(&mut self) -> Result<(), UsageError> {
        self.end(self.released(), None)?;
        if self.held.owed() == 0 { Ok(()) } else { Err(self.unreported()) }
    }

    /// Ends the acquisition as if it had not been: permits return, and charges too where the limit's algorithm can
    /// take them back.
    ///
    /// # Errors
    ///
    /// [`UsageError::Unavailable`] if the lock stays busy; everything returns as soon as it is free.
    pub fn cancel(mut self) -> Result<(), UsageError> {
        self.end(Ending::Cancelled, None)
    }

    /// Ends the acquisition because the other side answered "too many requests": permits return, what was charged stays
    /// charged and needs no report, and the whole set pauses, in every process; see [`Cooldown`](crate::Cooldown) for
    /// how long. `retry_after` is what the other side asked for, if it did.
    ///
    /// If the set has paused since this was acquired, the answer is about the time before that, and begins no second
    /// pause; while that pause lasts, a longer `retry_after` makes it longer.
    ///
    /// # Errors
    ///
    /// [`UsageError::Unavailable`] if the lock stays busy; it is done as soon as it is free.
    pub fn rate_limited(self, retry_after: Option<Duration>) -> Result<Pause, UsageError> {
        let set = self.set().clone();
        let to = self.held.to;
        let (charges, report) = self.into_report(retry_after)?;
        let pause = move |set: &LimitSet, patience| {
            set.locked_within(patience, |engine, guard, now| {
                // What was returned meanwhile is no longer there to be given back; the other side has spoken all the same.
                let charges = if to.is_us(set.segment()) { charges.as_slice() } else { &[] };
                let paused = engine.rate_limited(guard, charges, report, now)?;
                Ok(Pause::new(&paused, now))
            })
        };
        let paused = set.or_in_background(pause)?;
        events::paused(&set, &paused);
        Ok(paused)
    }

    /// What was charged, and what there is to report, for whoever ends the acquisition.
    pub(crate) fn into_report(
        mut self,
        retry_after: Option<Duration>,
    ) -> Result<(SmallVec<[Charge; 4]>, Report), UsageError> {
        // Who was let through without asking holds nothing, and may report what the other side said.
        if self.held.is_enforced {
            self.held.to.check(self.set().segment())?;
        }
        let retry_after = retry_after.map_or(0, clock::nanos);
        let report = Report { admitted: self.held.is_enforced.then_some(self.held.admitted), retry_after };
        self.is_no_trial();
        let (set, held) = self.held.both();
        Ok((std::mem::take(held.spread(&set.borrow().keys().table)), report))
    }

    #[cold]
    fn unreported(&self) -> UsageError {
        let owed = (0..u64::BITS as usize).filter(|limit| self.held.owed() >> limit & 1 != 0);
        UsageError::Unreported { keys: owed.map(|limit| self.set().keys().name(limit).to_owned()).collect() }
    }

    fn released(&self) -> Ending {
        Ending::Released(self.held.admitted)
    }

    /// The charge of a limit, and its place.
    fn find(&mut self, key: &str) -> Result<(usize, Charge), UsageError> {
        let limit = self.set().keys().find(key).ok().filter(|limit| self.held.named >> limit & 1 != 0);
        let Some(limit) = limit else {
            let names = (0..u64::BITS as usize).filter(|limit| self.held.named >> limit & 1 != 0);
            let held = names.map(|limit| self.set().keys().name(limit)).collect::<Vec<_>>().join(", ");
            return Err(UsageError::NotRequested {
                key: key.to_owned(),
                held: if held.is_empty() { "nothing".into() } else { held },
            });
        };
        let nothing = Charge::new(limit, 0, false, self.held.ticket);
        let (set, held) = self.held.both();
        let charges = held.spread(&set.borrow().keys().table);
        let place = charges.iter().position(|charge| charge.limit() == limit);
        let place = place.unwrap_or_else(|| {
            // Named with nothing.
            charges.push(nothing);
            charges.len() - 1
        });
        Ok((place, charges.get(place).copied().unwrap_or(nothing)))
    }

    /// Changes what is charged of one limit; gives how much was given back.
    fn recharge(&mut self, place: usize, to: u64) -> Result<u64, UsageError> {
        self.held.to.check(self.set().segment())?;
        let (set, held) = self.held.both();
        let set = set.borrow();
        let Some(charge) = held.charges.get_mut(place) else { return Ok(0) };
        let keys = set.keys();
        let key = || keys.name(charge.limit()).to_owned();
        if to > charge.charged && keys.table.is_permit(charge.limit()) {
            return Err(UsageError::Permits { key: key(), more: to - charge.charged });
        }
        if to > MAX_CAPACITY {
            return Err(UsageError::TooMuch { key: key(), amount: to, most: MAX_CAPACITY });
        }
        let changes_nothing = !charge.owes_report
            && (to == charge.charged || to < charge.charged && !keys.table.refunds(charge.limit()));
        if changes_nothing {
            return Ok(0);
        }
        let before = *charge;
        let charged = set.locked_as(held.to, set.segment().patience(), |engine, guard, now| {
            engine.recharge(guard, &before, to, now)
        })?;
        charge.charged = charged;
        charge.owes_report = false;
        Ok(before.charged.saturating_sub(charged))
    }
}

impl<S: Borrow<LimitSet>> fmt::Debug for Acquisition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (limit, charged) in self.held.charged() {
            map.entry(&self.set().keys().name(limit), &charged);
        }
        map.finish()
    }
}
