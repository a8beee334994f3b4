//! Into the lock and out of it: how a request of a set becomes an act of its engine, and what a fault means.

use std::time::{Duration, Instant};

use crate::answer::{AcquireError, Statuses, Trouble, Unavailable};
use crate::core::{Fault, Guard, Participant, Reach, Until};
use crate::engine::{
    Admitted, AtOnce, Engine, Entered, Judged, Patience, Standing, Swept, Time, Vigil, Wants, When,
};
use crate::error::{AttachError, SyncError};
use crate::events;
use crate::grantee::Grantee;
use crate::segment::view::damage;
use crate::set::LimitSet;
use crate::sys::clock;
use crate::sys::machine::Machine;
use crate::wait::LAST_LOCK;

impl LimitSet {
    /// Charges what is wanted, or says what is in the way.
    pub(crate) fn try_enter(
        &self,
        wants: &Wants,
        owing: u64,
    ) -> Result<Result<Granted, AcquireError>, Trouble> {
        match self.enter(wants, owing, None)? {
            Ok(Entered::Granted { ticket, admitted }) => Ok(Ok(Granted { ticket, admitted })),
            Ok(Entered::Queued { ahead }) => Ok(Err(AcquireError::Queued { ahead })),
            Ok(Entered::CoolingDown { left }) => Ok(Err(self.cooling_down(left))),
            Ok(_) => Ok(Err(AcquireError::QueueFull { waiters: self.segment().info().waiters })),
            Err(statuses) => Ok(Err(statuses.into_refusal())),
        }
    }

    /// Charges what is wanted if it is there and nothing else is to be seen to: then this is all there is to an
    /// acquisition. None says nothing but that it takes a closer look. Waits for the lock at most `patience`.
    #[inline(always)]
    pub(crate) fn enter_at_once(
        &self,
        wants: &Wants,
        owing: u64,
        patience: u64,
    ) -> Result<Option<Granted>, Trouble> {
        let table = self.engine().table;
        // Each kind has a function of its own, so that none pays for what only others need. Permits do not depend on the
        // time.
        if wants.demand() & table.with_cells() != 0 {
            self.ask_with_guard(wants, owing, patience)
        } else if wants.demand() & table.rates() != 0 {
            self.ask_for_rates(wants, owing, patience)
        } else {
            self.ask_for_permits(wants, owing, patience)
        }
    }

    #[inline(never)]
    fn ask_for_rates(&self, wants: &Wants, owing: u64, patience: u64) -> Result<Option<Granted>, Trouble> {
        self.ask(wants, owing, Some(patience), When::Reading(self.clock().reading()))
    }

    #[inline(never)]
    fn ask_for_permits(&self, wants: &Wants, owing: u64, patience: u64) -> Result<Option<Granted>, Trouble> {
        self.ask(wants, owing, Some(patience), When::Last)
    }

    #[inline(always)]
    pub(crate) fn ask(
        &self,
        wants: &Wants,
        owing: u64,
        patience: Option<u64>,
        when: When,
    ) -> Result<Option<Granted>, Trouble> {
        match self.engine().ask_at_once(self.participant()?, wants, owing, when) {
            Some(Ok(AtOnce::Granted { ticket, admitted })) => Ok(Some(Granted { ticket, admitted })),
            Some(Ok(AtOnce::NotThere | AtOnce::Unclear)) => Ok(None),
            None => self.ask_with_guard(wants, owing, patience.unwrap_or_else(|| self.segment().patience())),
            Some(Err(fault)) => Err(self.trouble(fault)),
        }
    }

    /// The same for rates with cells, and for who has to wait for the lock.
    #[inline(never)]
    fn ask_with_guard(&self, wants: &Wants, owing: u64, patience: u64) -> Result<Option<Granted>, Trouble> {
        self.locked_within(patience, |engine, guard, now| {
            engine.adopt(guard)?;
            Ok(match engine.enter_at_once(guard, wants, owing, When::At(now)) {
                AtOnce::Granted { ticket, admitted } => Some(Granted { ticket, admitted }),
                AtOnce::NotThere | AtOnce::Unclear => None,
            })
        })
    }

    /// Gives permits back that `me` holds if nothing else is to be seen to; false if there is.
    #[inline(always)]
    pub(crate) fn give_at_once(
        &self,
        me: Participant,
        granted: &Wants,
        permits: u64,
    ) -> Result<bool, Trouble> {
        match self.engine().give_at_once(me, granted, permits) {
            Ok(is_done) => Ok(is_done),
            Err(fault) => Err(self.trouble(fault)),
        }
    }

    #[inline(always)]
    fn participant(&self) -> Result<Participant, Trouble> {
        self.segment().participant().map_err(attach_trouble)
    }

    /// Asks; with patience, joins the queue if it has to. Statuses say why that is of no use, or why not without.
    pub(crate) fn enter(
        &self,
        wants: &Wants,
        owing: u64,
        patience: Option<Patience>,
    ) -> Result<Result<Entered, Statuses>, Trouble> {
        let left = |it: Patience| it.deadline.saturating_sub(clock::monotonic());
        let mut may_sweep = true;
        loop {
            let within = patience.map_or(u64::MAX, |it| left(it).max(clock::nanos(LAST_LOCK)));
            let within = within.min(self.segment().patience());
            let answer = self.locked_within(within, |engine, guard, now| {
                let entered = engine.enter(guard, wants, owing, patience, &self.clock(), now)?;
                // Places in the queue, and those before us, may belong to the dead.
                let is_crowded = matches!(entered, Entered::Full | Entered::Queued { .. });
                if is_crowded && may_sweep && self.is_time_to_sweep(engine) {
                    return Ok(None);
                }
                if !matches!(entered, Entered::Refused) {
                    return Ok(Some(Ok(entered)));
                }
                let judged = engine.judge(guard, wants, now)?;
                if may_sweep && self.is_sweep_due(engine, &judged) {
                    return Ok(None);
                }
                engine.count_denied(guard, &judged)?;
                Ok(Some(Err(self.statuses(judged, now))))
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            // Before refusing for want of permits, make sure that no dead process holds them.
            self.sweep_within(within, Reach::BOUNDED.wanting(wants.demand()))?;
            may_sweep = false;
        }
    }

    /// How the limits stood at an instant of the set's clock.
    pub(crate) fn statuses(&self, judged: Vec<Judged>, now: u64) -> Statuses {
        Statuses::new(self.keys().clone(), judged, now.saturating_sub(self.clock().lag()))
    }

    /// What it means that nobody is admitted for so many nanoseconds.
    pub(crate) fn cooling_down(&self, left: u64) -> AcquireError {
        let remaining = Duration::from_nanos(left.saturating_add(self.clock().lag()));
        let now = Instant::now();
        AcquireError::CoolingDown { until: now.checked_add(remaining).unwrap_or(now), remaining }
    }

    /// How sleepers look for dead participants.
    pub(crate) fn vigil(&self) -> Vigil {
        Vigil { interval: self.slice(), patience: self.segment().patience(), reach: Reach::BOUNDED }
    }

    fn slice(&self) -> u64 {
        self.segment().view().machine.doorbell_slice
    }

    /// Whether a caller that misses nothing should sweep: once per slice and set.
    pub(crate) fn is_slice_over(&self, engine: &Engine<'_, Machine>) -> bool {
        engine.block.sweep_is_due(self.slice())
    }

    /// Whether a caller that is about to be refused should sweep: as often as sweeps are cheap.
    pub(crate) fn is_time_to_sweep(&self, engine: &Engine<'_, Machine>) -> bool {
        engine.block.sweep_is_affordable(self.slice())
    }

    pub(crate) fn is_sweep_due(&self, engine: &Engine<'_, Machine>, judged: &[Judged]) -> bool {
        judged.iter().any(|it| it.standing == Standing::Held) && self.is_time_to_sweep(engine)
    }

    /// Acts under the lock, at one instant.
    pub(crate) fn locked<T>(
        &self,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        self.locked_within(self.segment().patience(), act)
    }

    /// The same with another patience.
    pub(crate) fn locked_within<T>(
        &self,
        patience: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        let reading = self.clock().reading();
        self.locked_at_no_time(patience, |engine, guard| {
            // What the clock said before a sleep is old.
            let reading = if guard.has_waited() { self.clock().reading() } else { reading };
            let now = engine.now(guard, reading)?;
            act(engine, guard, now)
        })
    }

    /// Acts under the lock as the participant that something was granted to, if this process still is it then: it may
    /// have waited for the lock for long, in a thread of the background too.
    pub(crate) fn locked_as<T>(
        &self,
        grantee: Grantee,
        patience: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        let done = self.locked_within(patience, |engine, guard, now| {
            grantee.is_us(self.segment()).then(|| act(engine, guard, now)).transpose()
        })?;
        done.ok_or(Trouble::Returned)
    }

    /// The same for what does not always depend on the time: reading the clock is most of what a short act costs.
    #[inline(always)]
    pub(crate) fn locked_at_no_time<T>(
        &self,
        patience: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        let engine = self.engine();
        let taken = match engine.block.take(self.participant()?, Until::Within(patience)) {
            Ok(taken) => taken,
            Err(fault) => return Err(self.trouble(fault)),
        };
        let mut guard = taken.guard(&engine.block);
        let begun = engine.begin(&mut guard);
        let is_recovered = guard.is_stolen() && begun.is_ok();
        let done = match begun {
            Ok(()) => act(engine, &mut guard),
            Err(fault) => Err(fault),
        };
        let unlocked = guard.unlock_in_place();
        if is_recovered {
            events::recovered(self);
        }
        match (done, unlocked) {
            (Ok(value), Ok(())) => Ok(value),
            (Err(fault), _) | (_, Err(fault)) => Err(self.trouble(fault)),
        }
    }

    /// Looks at every slot for a dead owner.
    pub(crate) fn sweep(&self) -> Result<Swept, Trouble> {
        self.sweep_within(self.segment().patience(), Reach::ALL)
    }

    pub(crate) fn sweep_within(&self, patience: u64, reach: Reach) -> Result<Swept, Trouble> {
        let segment = self.segment();
        let me = segment.participant().map_err(attach_trouble)?;
        let deadline = clock::monotonic().saturating_add(patience);
        let swept = self.engine().sweep_in(me, reach, deadline, &self.clock());
        let looked = swept.and_then(|swept| segment.view().look_at_name().map(|()| swept));
        let swept = looked.map_err(|fault| self.trouble(fault))?;
        events::swept(self, &swept);
        Ok(swept)
    }

    #[cold]
    pub(crate) fn trouble(&self, fault: Fault) -> Trouble {
        match fault {
            Fault::Closed => Trouble::Removed,
            Fault::Busy { slot } => {
                Trouble::Unavailable(Unavailable::Busy { slot, pid: self.segment().view().pid_of(slot) })
            }
            other => Trouble::Unavailable(Unavailable::Damaged(damage(other))),
        }
    }
}

/// What was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) ticket: u64,
    pub(crate) admitted: Admitted,
}

#[cold]
pub(crate) fn attach_trouble(error: AttachError) -> Trouble {
    match error {
        AttachError::NotShared => Trouble::NotShared,
        AttachError::Removed { .. } => Trouble::Removed,
        other => Trouble::Unavailable(Unavailable::Enrol(other)),
    }
}

pub(crate) fn sync_trouble(error: SyncError) -> Trouble {
    match error {
        SyncError::Busy { slot, pid } => Trouble::Unavailable(Unavailable::Busy { slot, pid }),
        SyncError::Damaged(what) => Trouble::Unavailable(Unavailable::Damaged(what)),
        SyncError::Enrol(error) => attach_trouble(error),
        _ => Trouble::Removed,
    }
}
