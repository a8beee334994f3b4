//! Changing a set as a whole, for every process at once.

use std::time::Duration;

use crate::api::error::ManageError;
use crate::api::parameters;
use crate::api::set::LimitSet;
use crate::limit::{Clock, Limit};
use crate::shared::admin::Pause;
use crate::sys::clock;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Permits of the dead that were returned.
    pub returned_permits: u64,
    /// Totals of permits that were less than what their holders have, by key: what they were, and are now.
    pub raised_totals: Vec<(String, u64, u64)>,
}

impl LimitSet {
    /// Changes numbers of limits in place, all of them at one instant, for every process from its next request on.
    /// Keys, kinds, algorithms and sub-windows cannot change.
    ///
    /// What is available of a rate is cut to the new numbers, debt stays. Permits above a lower capacity stay with
    /// their holders until they give them back.
    ///
    /// ```
    /// use limitset::{LimitSet, RateLimit};
    ///
    /// let limits = LimitSet::builder().limit(RateLimit::per_minute("tokens", 1_000)).in_memory()?;
    /// limits.reconfigure([RateLimit::per_minute("tokens", 3_000)])?;
    /// assert_eq!(limits.stats()?.limit("tokens").unwrap().capacity, 3_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ManageError`] if a limit cannot be, is not in the set, or differs in more than numbers. Nothing was changed then.
    pub fn reconfigure<L: Into<Limit>>(
        &self,
        limits: impl IntoIterator<Item = L>,
    ) -> Result<(), ManageError> {
        let limits: Vec<Limit> = limits.into_iter().map(Into::into).collect();
        let numbers = parameters::numbers(self.shared(), &limits)?;
        Ok(self.shared().reconfigure(&numbers)?)
    }

    /// Makes every rate as if nobody had used it, and forgives debt. Permits stay with their holders.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn reset(&self) -> Result<(), ManageError> {
        Ok(self.shared().reset()?)
    }

    /// Moves a [manual clock](Clock::Manual) on, for every process.
    ///
    /// # Errors
    ///
    /// If the set counts time by another clock, or cannot be asked.
    pub fn advance(&self, by: Duration) -> Result<(), ManageError> {
        if self.clock() != Clock::Manual {
            return Err(ManageError::ClockMovesItself { found: self.clock().name() });
        }
        Ok(self.shared().advance(clock::nanos(by))?)
    }

    /// Returns at once what the dead still hold, instead of when somebody misses it; gives the number of permits.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn reap(&self) -> Result<u64, ManageError> {
        Ok(self.shared().sweep()?.permits)
    }

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
        Ok(self.shared().pause(clock::nanos(time))?)
    }

    /// Ends a pause before its time; admissions begin with the slow start. In a slow start, ends the gap that lasts. False
    /// if the set admits somebody anyway. The next pause is as short as a first one.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn resume(&self) -> Result<bool, ManageError> {
        Ok(self.shared().resume()?)
    }

    /// Repairs what can be repaired while other processes use the set: returns what dead participants hold, and raises
    /// totals of permits that are less than what their holders have, so that the set never grants too much. It lowers
    /// nothing: only a process that attaches while no other is attached does that; it also clears the wait queue, and
    /// resets rates that make no sense.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn repair(&self) -> Result<Repaired, ManageError> {
        let returned_permits = self.reap()?;
        let raised = self.shared().raise_totals()?.into_iter();
        let raised = raised.map(|it| (self.keys().name(it.limit).to_owned(), it.found, it.held));
        Ok(Repaired { returned_permits, raised_totals: raised.collect() })
    }
}
