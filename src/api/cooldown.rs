//! Pause together: one provider's "too many requests" stops the whole set, in every process, and lets it resume slowly.

use std::time::Duration;

use crate::api::error::ManageError;
use crate::api::set::LimitSet;
use crate::engine::Paused;
use crate::format::state::StateMap;
use crate::shared::events;
use crate::sys::clock;

/// A pause of a set, as of the report or the wish that began it or met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// How long it lasts from now; none if it is over.
    pub remaining: Option<Duration>,
    /// Its number: how many pauses there have been.
    pub generation: u64,
    /// Whether the report began no pause: it was about a request from before this one.
    pub absorbed: bool,
}

impl Pause {
    pub(crate) fn new(paused: &Paused, now: u64) -> Self {
        let Paused { until, generation, absorbed } = *paused;
        let remaining = until.checked_sub(now).filter(|left| *left > 0).map(Duration::from_nanos);
        Self { remaining, generation, absorbed }
    }
}

/// How a set pauses, at one instant; see [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CooldownStats {
    /// How many pauses there have been.
    pub generation: u64,
    /// How long the pause still lasts, if one does.
    pub remaining: Option<Duration>,
    /// How long until somebody is admitted: the pause, or a gap of the slow start. None: at once.
    pub next_admission: Option<Duration>,
    /// How many pauses in a row, since something last went well.
    pub consecutive: u64,
    /// How many took part in the last pause: who began it, and whose reports of "too many requests" it absorbed. Counted
    /// are reports: a process that makes several requests at one time may be several.
    pub participants: u64,
    /// How many reports began no pause, over all pauses.
    pub absorbed: u64,
    /// How many more admissions the slow start spaces.
    pub slow_admissions: u64,
}

impl CooldownStats {
    pub(crate) fn read(get: impl Fn(usize) -> u64, now: u64) -> Self {
        let left = |word| get(word).checked_sub(now).filter(|left| *left > 0).map(Duration::from_nanos);
        Self {
            generation: get(StateMap::COOLDOWN_GENERATION),
            remaining: left(StateMap::COOLDOWN_UNTIL),
            next_admission: left(StateMap::NEXT_ADMISSION),
            consecutive: get(StateMap::COOLDOWN_COUNT),
            participants: get(StateMap::COOLDOWN_REPORTS),
            absorbed: get(StateMap::COOLDOWN_ABSORBED),
            slow_admissions: get(StateMap::SLOW_ADMISSIONS_LEFT),
        }
    }
}

impl LimitSet {
    /// Pauses the set by hand, in every process, for at least so long: nothing is acquired, whatever the limits say. A
    /// pause that lasts longer already stays as it is. Who waits sleeps through it; it is followed by the slow start of
    /// the set's [`Cooldown`](crate::Cooldown). It makes no later pause longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use limitset::{AcquireError, CallLimit, LimitSet};
    ///
    /// let limits = LimitSet::builder().limit(CallLimit::per_minute(60)).in_memory()?;
    /// limits.pause(Duration::from_secs(30))?;
    /// assert!(matches!(limits.try_acquire(()), Err(AcquireError::CoolingDown { .. })));
    /// assert!(limits.resume()?);
    /// limits.try_acquire(())?.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn pause(&self, time: Duration) -> Result<Pause, ManageError> {
        let nanos = clock::nanos(time);
        let paused = self.locked(|engine, guard, now| {
            let paused = engine.pause(guard, nanos, now)?;
            Ok(Pause::new(&paused, now))
        })?;
        events::paused(self, &paused);
        Ok(paused)
    }

    /// Ends a pause before its time; admissions begin with the slow start. In a slow start, ends the gap that lasts. False
    /// if the set admits somebody anyway. The next pause is as short as a first one.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn resume(&self) -> Result<bool, ManageError> {
        let was_paused = self.locked(|engine, guard, now| engine.resume(guard, now))?;
        if was_paused {
            events::resumed(self);
        }
        Ok(was_paused)
    }
}
