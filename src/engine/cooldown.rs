//! Pausing together: how a set stops admitting when the other side says "too many requests", and how it resumes.
//!
//! All of it is words of the set, changed under the lock; there is nobody who would have to stay alive for a pause to
//! last or to end. `next_admission` alone decides: before that instant nobody is admitted, by whatever way.
//!
//! | `next_admission` | meaning |
//! | --- | --- |
//! | 0 | no pause; no slow start either, unless admissions are left to be spaced (a pause that ended at instant 0) |
//! | the pause's end | a pause, or one that has ended and after which nobody was admitted yet |
//! | later than it | the slow start: the last admission, and the gap behind it |
//!
//! Pauses are counted. Who is admitted is stamped with the count, so a report of somebody who was admitted before the
//! last pause began is known to be about the time before it, and is absorbed.

use super::{Charge, Engine, WorkBell};
use crate::core::{Env, Fault, Guard, Transaction, Wakes};
use crate::layout::state::StateMap;

/// When somebody was admitted, as pauses count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// How many pauses there had been.
    pub pause: u64,
    /// Whether nothing had gone well since the last one: if this does, that matters to others.
    pub trial: Trial,
}

/// Whether success would be news. A whole word, so that a stamp has no holes, which are slow to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Trial {
    /// It would not.
    #[default]
    Over = 0,
    /// It would.
    On = 1,
}

impl Admitted {
    /// When there had been so many pauses, of which it is known whether something went well since.
    #[inline]
    pub const fn new(pause: u64, on_trial: bool) -> Self {
        Self { pause, trial: if on_trial { Trial::On } else { Trial::Over } }
    }

    /// Whether success would be news.
    #[inline]
    pub fn on_trial(self) -> bool {
        self.trial == Trial::On
    }
}

/// How an acquisition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order: permits return, charges stay.
    Released(Admitted),
    /// As if it had not been: charges return too, where that is possible.
    Cancelled,
}

/// "Too many requests", said by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// When the request was admitted; none if it was not asked for.
    pub admitted: Option<Admitted>,
    /// What the other side asked for, in nanoseconds.
    pub retry_after: u64,
}

/// What a report has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// When the pause ends, in set time; an instant that has passed if it is over.
    pub until: u64,
    /// The number of the pause.
    pub generation: u64,
    /// Whether the report began no pause, being about the time before one.
    pub absorbed: bool,
}

impl<E: Env> Engine<'_, E> {
    /// The instant before which nobody is admitted; none if it has come.
    pub fn gate(&self, guard: &Guard<'_, E>, now: u64) -> Result<Option<u64>, Fault> {
        let at = guard.get(StateMap::NEXT_ADMISSION)?;
        Ok((at > now).then_some(at))
    }

    /// When the pause ends that lasts now.
    pub fn paused_until(&self, guard: &Guard<'_, E>, now: u64) -> Result<Option<u64>, Fault> {
        let until = guard.get(StateMap::COOLDOWN_UNTIL)?;
        Ok((until > now).then_some(until))
    }

    /// The stamp of somebody who is admitted now, or was when there had been `pause` pauses.
    #[inline]
    pub fn admitted(&self, guard: &Guard<'_, E>, pause: Option<u64>) -> Result<Admitted, Fault> {
        let generation = guard.get(StateMap::COOLDOWN_GENERATION)?;
        let pause = pause.unwrap_or(generation);
        let on_trial = pause == generation && guard.get(StateMap::COOLDOWN_COUNT)? != 0;
        Ok(Admitted::new(pause, on_trial))
    }

    /// Notes that somebody is admitted: in a slow start, the next one has to wait.
    #[inline(always)]
    pub(super) fn admit(&self, change: &mut Transaction<'_, '_, E>, now: u64) -> Result<(), Fault> {
        let next = change.get(StateMap::NEXT_ADMISSION)?;
        match change.get(StateMap::SLOW_ADMISSIONS_LEFT)?.checked_sub(1) {
            None if next == 0 => Ok(()),
            None => change.set(StateMap::NEXT_ADMISSION, 0),
            Some(left) => self.admit_slowly(change, left, now),
        }
    }

    #[cold]
    fn admit_slowly(&self, change: &mut Transaction<'_, '_, E>, left: u64, now: u64) -> Result<(), Fault> {
        let seed = now ^ change.get(StateMap::NEXT_TICKET)?.rotate_left(32);
        let gap = self.table.cooldown.gap(left, seed);
        change.set(StateMap::SLOW_ADMISSIONS_LEFT, left)?;
        change.set(StateMap::NEXT_ADMISSION, now.saturating_add(gap))
    }

    /// Notes that something went well, if that is news: pauses are short again.
    #[inline]
    pub(super) fn succeed(
        &self,
        change: &mut Transaction<'_, '_, E>,
        admitted: Admitted,
    ) -> Result<(), Fault> {
        let is_news = admitted.on_trial() && admitted.pause == change.get(StateMap::COOLDOWN_GENERATION)?;
        if is_news && change.get(StateMap::COOLDOWN_COUNT)? != 0 {
            change.set(StateMap::COOLDOWN_COUNT, 0)?;
        }
        Ok(())
    }

    /// Begins a pause, unless the report is about the time before the last one. While a pause lasts it may become longer.
    pub(super) fn report(
        &self,
        change: &mut Transaction<'_, '_, E>,
        report: Report,
        now: u64,
    ) -> Result<Paused, Fault> {
        let generation = change.get(StateMap::COOLDOWN_GENERATION)?;
        let until = change.get(StateMap::COOLDOWN_UNTIL)?;
        let is_paused = until > now;
        if is_paused || report.admitted.is_some_and(|admitted| admitted.pause != generation) {
            change.add(StateMap::COOLDOWN_REPORTS, 1)?;
            change.add(StateMap::COOLDOWN_ABSORBED, 1)?;
            let asked = now.saturating_add(report.retry_after);
            if is_paused && asked > until {
                self.pause_until(change, asked, now)?;
            }
            let until = change.get(StateMap::COOLDOWN_UNTIL)?;
            return Ok(Paused { until, generation, absorbed: true });
        }
        let count = change.get(StateMap::COOLDOWN_COUNT)?.saturating_add(1);
        let seed = now ^ generation.rotate_left(32);
        let until = now.saturating_add(self.table.cooldown.pause(count, report.retry_after, seed));
        change.set(StateMap::COOLDOWN_COUNT, count)?;
        change.set(StateMap::COOLDOWN_REPORTS, 1)?;
        self.begin_pause(change, until, now)?;
        Ok(Paused { until, generation: generation.wrapping_add(1), absorbed: false })
    }

    /// The pause is a new one: who was admitted before it belongs to the time before.
    fn begin_pause(&self, change: &mut Transaction<'_, '_, E>, until: u64, now: u64) -> Result<(), Fault> {
        change.add(StateMap::COOLDOWN_GENERATION, 1)?;
        self.pause_until(change, until, now)
    }

    fn pause_until(&self, change: &mut Transaction<'_, '_, E>, until: u64, now: u64) -> Result<(), Fault> {
        change.set(StateMap::COOLDOWN_UNTIL, until)?;
        // Not before a gap is over: a pause lets nobody in earlier, and whoever waits has set its alarm to that gap.
        let gate = change.get(StateMap::NEXT_ADMISSION)?;
        change.set(StateMap::NEXT_ADMISSION, until.max(gate))?;
        change.set(StateMap::SLOW_ADMISSIONS_LEFT, self.table.cooldown.slow_admissions())?;
        self.stamp(change, now)
    }

    /// Ends an acquisition because the other side wanted less, and begins a pause unless the report is an old one.
    pub fn rate_limited(
        &self,
        guard: &mut Guard<'_, E>,
        charges: &[Charge],
        report: Report,
        now: u64,
    ) -> Result<Paused, Fault> {
        let mut change = guard.begin();
        let given = self.end_charges(&mut change, charges, false, now)?;
        let paused = self.report(&mut change, report, now)?;
        change.commit();
        self.serve(guard, given, now)?;
        Ok(paused)
    }

    /// Pauses by hand for so many nanoseconds, or longer if a longer pause lasts already. Counts as no failure.
    pub fn pause(&self, guard: &mut Guard<'_, E>, nanos: u64, now: u64) -> Result<Paused, Fault> {
        let until = now.saturating_add(nanos);
        let lasts = self.paused_until(guard, now)?;
        let mut change = guard.begin();
        match lasts {
            Some(already) if already >= until => {}
            Some(_) => self.pause_until(&mut change, until, now)?,
            None => {
                change.set(StateMap::COOLDOWN_REPORTS, 0)?;
                self.begin_pause(&mut change, until, now)?;
            }
        }
        let until = change.get(StateMap::COOLDOWN_UNTIL)?;
        let generation = change.get(StateMap::COOLDOWN_GENERATION)?;
        change.commit();
        Ok(Paused { until, generation, absorbed: false })
    }

    /// Ends a pause before its time, and the slow start begins; or a gap of the slow start. The next pause is a first one
    /// again. False if neither lasts.
    pub fn resume(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<bool, Fault> {
        let is_paused = self.paused_until(guard, now)?.is_some();
        let is_closed = self.gate(guard, now)?.is_some();
        let mut change = guard.begin();
        if is_paused {
            self.pause_until(&mut change, now, now)?;
        }
        if is_closed {
            change.set(StateMap::NEXT_ADMISSION, now)?;
        }
        change.set(StateMap::COOLDOWN_COUNT, 0)?;
        change.commit();
        if is_closed {
            self.rejudge(guard, now)?;
            // Parked items may be handed out again.
            self.ring_work(guard, WorkBell::Takers, Wakes::One)?;
        }
        Ok(is_closed)
    }

    /// When nobody else is attached: a gate that no pause and no gap accounts for was torn by a power failure, or damaged.
    pub(super) fn mend_gate(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<(), Fault> {
        let latest = now.saturating_add(self.table.cooldown.longest_gap());
        let latest = latest.max(guard.get(StateMap::COOLDOWN_UNTIL)?);
        if guard.get(StateMap::NEXT_ADMISSION)? > latest {
            let mut change = guard.begin();
            change.set(StateMap::NEXT_ADMISSION, latest)?;
            change.commit();
        }
        Ok(())
    }
}
