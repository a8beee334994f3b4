//! The set: its engine, its segment and its clock, and how an operation takes the lock.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::bound::BoundEngine;
use super::error::{LockHolder, OnUnavailable, SetError, Unavailable};
use super::keys::Keys;
use super::{events, helper_thread};
use crate::engine::{Engine, Judged, Standing, Swept, Time, Vigil};
use crate::format::state::StateMap;
use crate::limit::{Clock, Definition};
use crate::protocol::{Fault, Guard, Participant, Reach, Until};
use crate::segment::Segment;
use crate::segment::error::AttachError;
use crate::segment::grantee::Grantee;
use crate::segment::view::damage;
use crate::sys::clock;
use crate::sys::machine::Machine;

/// A set in shared memory, as one process opened it.
pub(crate) struct SharedSet {
    bound: BoundEngine,
    definition: Arc<Definition>,
    clock: Clock,
    on_unavailable: OnUnavailable,
}

impl SharedSet {
    /// The set that a segment keeps.
    pub(crate) fn new(segment: Segment, on_unavailable: OnUnavailable) -> Result<Self, AttachError> {
        let view = segment.view();
        let definition = view.definition.clone().ok_or_else(|| AttachError::NotASet { path: view.path() })?;
        let clock = view.checked.clock;
        let keys = Arc::new(Keys::new(&definition.limits, view.table()));
        let bound = BoundEngine::new(segment, keys)?;
        Ok(Self { bound, definition, clock, on_unavailable })
    }

    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        self.bound.segment()
    }

    #[inline]
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        self.bound.keys()
    }

    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// What to do when the set cannot be asked.
    pub(crate) fn on_unavailable(&self) -> OnUnavailable {
        self.on_unavailable
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// How long an operation waits for the lock, in nanoseconds.
    #[inline]
    pub(crate) fn lock_timeout(&self) -> u64 {
        self.segment().patience()
    }

    /// The words of the set and their meaning. Public to the crate for model checks, crash tests and unit tests only.
    #[inline]
    pub(crate) fn engine(&self) -> &Engine<'_, Machine> {
        self.bound.engine()
    }

    /// This process as a participant; it enrols if it has not done so since the last fork.
    #[inline(always)]
    pub(crate) fn participant(&self) -> Result<Participant, SetError> {
        self.segment().participant().map_err(SetError::from)
    }

    /// Whether the two are the same segment, opened once or twice.
    pub(crate) fn is_same_segment(&self, other: &Self) -> bool {
        let instance = |set: &Self| set.segment().view().checked.header.instance;
        instance(self) == instance(other)
    }

    /// Counts a request that passed because the set could not be asked.
    pub(crate) fn count_unenforced(&self) {
        if let Some(word) = self.engine().block.words.get(StateMap::UNENFORCED) {
            word.fetch_add(1, Relaxed);
        }
    }

    /// Runs an operation under the lock, at one instant.
    pub(super) fn locked<T>(
        &self,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, SetError> {
        self.locked_within(self.lock_timeout(), act)
    }

    /// Runs an operation under the lock, at one instant, with a lock timeout of its own.
    pub(super) fn locked_within<T>(
        &self,
        lock_timeout: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, SetError> {
        let reading = self.clock().reading();
        self.locked_without_time(lock_timeout, |engine, guard| {
            // A reading from before a sleep is old.
            let reading = if guard.has_waited() { self.clock().reading() } else { reading };
            let now = engine.now(guard, reading)?;
            act(engine, guard, now)
        })
    }

    /// Runs an operation under the lock as the participant that a handle was granted to, if this process still is it then:
    /// it may have waited long for the lock, in the background thread too.
    pub(super) fn locked_as<T>(
        &self,
        grantee: Grantee,
        lock_timeout: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, SetError> {
        let done = self.locked_within(lock_timeout, |engine, guard, now| {
            grantee.is_us(self.segment()).then(|| act(engine, guard, now)).transpose()
        })?;
        done.ok_or(SetError::Returned)
    }

    /// Runs an operation under the lock without reading the clock, which is most of the cost of a short operation.
    #[inline(always)]
    pub(super) fn locked_without_time<T>(
        &self,
        lock_timeout: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>) -> Result<T, Fault>,
    ) -> Result<T, SetError> {
        let engine = self.engine();
        let taken = match engine.block.take(self.participant()?, Until::Within(lock_timeout)) {
            Ok(taken) => taken,
            Err(fault) => return Err(self.error(fault)),
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
            (Err(fault), _) | (_, Err(fault)) => Err(self.error(fault)),
        }
    }

    /// Makes this process another participant: `leave` gives up the old one, whose permits are then returned. Wakes the
    /// threads and futures that wait as the old one; they join the wait queue anew.
    pub(crate) fn enrol_anew(&self, before: Participant, leave: impl FnOnce()) -> Result<(), SetError> {
        let places = self.engine().places_of(before).unwrap_or_default();
        leave();
        let swept = self.participant().and_then(|_| self.sweep());
        // No other process wakes them.
        let rung = self.engine().ring_places(&places).map_err(|fault| self.error(fault));
        helper_thread::participant_has_changed(self, before);
        swept?;
        rung
    }

    /// Looks at every slot for a dead participant, and returns what it held.
    pub(crate) fn sweep(&self) -> Result<Swept, SetError> {
        self.sweep_within(self.lock_timeout(), Reach::ALL)
    }

    /// Looks for dead participants among some of the slots.
    pub(super) fn sweep_within(&self, lock_timeout: u64, reach: Reach) -> Result<Swept, SetError> {
        let me = self.participant()?;
        let deadline = clock::monotonic().saturating_add(lock_timeout);
        let swept = self.engine().sweep_in(me, reach, deadline, &self.clock());
        let looked = swept.and_then(|swept| self.segment().view().look_at_name().map(|()| swept));
        let swept = looked.map_err(|fault| self.error(fault))?;
        events::swept(self, &swept);
        Ok(swept)
    }

    /// How sleeping waiters look for dead participants.
    pub(super) fn vigil(&self) -> Vigil {
        Vigil { interval: self.slice(), patience: self.lock_timeout(), reach: Reach::BOUNDED }
    }

    /// The longest sleep without a look for dead participants, in nanoseconds.
    pub(super) fn slice(&self) -> u64 {
        self.segment().view().machine.doorbell_slice
    }

    /// Whether a caller that lacks nothing should sweep: once per slice and set.
    pub(super) fn is_slice_over(&self) -> bool {
        self.engine().block.sweep_is_due(self.slice())
    }

    /// Whether a caller that is about to be denied should sweep: as often as sweeps are cheap.
    pub(super) fn is_time_to_sweep(&self) -> bool {
        self.engine().block.sweep_is_affordable(self.slice())
    }

    /// Whether to look for dead participants before a request is denied for want of permits.
    pub(super) fn is_sweep_due(&self, judged: &[Judged]) -> bool {
        judged.iter().any(|it| it.standing == Standing::Held) && self.is_time_to_sweep()
    }

    #[cold]
    pub(super) fn error(&self, fault: Fault) -> SetError {
        match fault {
            Fault::Closed => SetError::Removed,
            Fault::Busy { slot } => {
                let pid = self.segment().view().pid_of(slot);
                SetError::Unavailable(Unavailable::LockTimeout(LockHolder { slot, pid }))
            }
            other => SetError::Unavailable(Unavailable::Damaged(damage(other))),
        }
    }
}
