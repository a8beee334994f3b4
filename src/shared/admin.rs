//! Changing a set as a whole: parameters, clock, pauses, repair.

use std::time::Duration;

use super::SharedSet;
use super::error::SetError;
use super::events;
use crate::engine::{NewNumbers, Paused};

/// A pause of a set, as seen by the report or the call that began or met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// How long it lasts from now; none if it is over.
    pub remaining: Option<Duration>,
    /// The number of the pause: how many there have been.
    pub generation: u64,
    /// Whether the report began no pause, because it was about a request from before this one.
    pub absorbed: bool,
}

impl Pause {
    pub(super) fn new(paused: &Paused, now: u64) -> Self {
        let Paused { until, generation, absorbed } = *paused;
        let remaining = until.checked_sub(now).filter(|left| *left > 0).map(Duration::from_nanos);
        Self { remaining, generation, absorbed }
    }
}

/// A total of permits that was less than what its holders have.
pub(crate) struct RaisedTotal {
    pub(crate) limit: usize,
    pub(crate) found: u64,
    pub(crate) held: u64,
}

impl SharedSet {
    /// Changes parameters of limits at one instant.
    pub(crate) fn reconfigure(&self, numbers: &[NewNumbers]) -> Result<(), SetError> {
        self.locked(|engine, guard, now| engine.reconfigure(guard, numbers, now))?;
        events::reconfigured(self, numbers.len());
        Ok(())
    }

    /// Changes those parameters that differ from the current ones.
    pub(crate) fn take_over_numbers(&self, numbers: &[NewNumbers]) -> Result<(), SetError> {
        self.locked(|engine, guard, now| engine.take_over_numbers(guard, numbers, now))
    }

    /// Makes every rate as new.
    pub(crate) fn reset(&self) -> Result<(), SetError> {
        self.locked(|engine, guard, now| engine.reset(guard, now))
    }

    /// Moves a manual clock on.
    pub(crate) fn advance(&self, nanos: u64) -> Result<(), SetError> {
        self.locked(|engine, guard, _| engine.advance(guard, nanos))
    }

    /// Pauses the set for at least so many nanoseconds.
    pub(crate) fn pause(&self, nanos: u64) -> Result<Pause, SetError> {
        let pause =
            self.locked(|engine, guard, now| Ok(Pause::new(&engine.pause(guard, nanos, now)?, now)))?;
        events::paused(self, &pause);
        Ok(pause)
    }

    /// Ends a pause; false if there was none.
    pub(crate) fn resume(&self) -> Result<bool, SetError> {
        let was_paused = self.locked(|engine, guard, now| engine.resume(guard, now))?;
        if was_paused {
            events::resumed(self);
        }
        Ok(was_paused)
    }

    /// Raises totals of permits that are less than what their holders have.
    pub(crate) fn raise_totals(&self) -> Result<Vec<RaisedTotal>, SetError> {
        let raised = self.locked(|engine, guard, _| engine.raise_totals(guard))?;
        Ok(raised.into_iter().map(|(limit, found, held)| RaisedTotal { limit, found, held }).collect())
    }
}
