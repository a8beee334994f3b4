//! Changing a set as a whole, for every process at once.

use std::time::Duration;

use crate::api::error::{ManageError, Unavailable};
use crate::api::set::LimitSet;
use crate::engine::NewNumbers;
use crate::format::state::RuleWord;
use crate::limit::Clock;
use crate::limit::{Limit, validate};
use crate::segment::error::AttachError;
use crate::shared::events;
use crate::sys::clock;

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
        let numbers = self.numbers(&limits)?;
        self.locked(|engine, guard, now| engine.reconfigure(guard, &numbers, now))?;
        events::reconfigured(self, numbers.len());
        Ok(())
    }

    /// Makes every rate as if nobody had used it, and forgives debt. Permits stay with their holders.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn reset(&self) -> Result<(), ManageError> {
        Ok(self.locked(|engine, guard, now| engine.reset(guard, now))?)
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
        Ok(self.locked(|engine, guard, _| engine.advance(guard, clock::nanos(by)))?)
    }

    /// Returns at once what the dead still hold, instead of when somebody misses it; gives the number of permits.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn reap(&self) -> Result<u64, ManageError> {
        Ok(self.sweep()?.permits)
    }

    /// The numbers of limits that are to be changed, if they are all that is.
    fn numbers(&self, limits: &[Limit]) -> Result<Vec<NewNumbers>, ManageError> {
        validate(limits)?;
        let mut numbers = Vec::new();
        for limit in limits {
            let index = self.keys().find(limit.name()).map_err(|unknown| match unknown {
                crate::BadRequest::UnknownKey { key, known } => ManageError::UnknownKey { key, known },
                other => ManageError::UnknownKey { key: limit.name().to_owned(), known: other.to_string() },
            })?;
            let declared = self.limits().get(index);
            if let Some(found) = declared.filter(|declared| !declared.is_same_kind_as(limit)) {
                let (found, wanted) = (found.to_string(), limit.to_string());
                return Err(ManageError::NotNumbers { found, wanted });
            }
            let rule = limit.rule(0);
            numbers.push(NewNumbers {
                limit: index,
                capacity: limit.capacity(),
                window_nanos: rule.map_or(0, |rule| rule.window_nanos()),
                burst: rule.map_or(0, |rule| rule.burst()),
            });
        }
        Ok(numbers)
    }

    /// Gives the set the numbers of these limits where it has others.
    pub(crate) fn take_over_numbers(&self, limits: &[Limit]) -> Result<(), ManageError> {
        let mut numbers = self.numbers(limits)?;
        self.locked(|engine, guard, now| {
            let map = engine.table.map;
            let has = |limit, word| guard.get(map.rule(limit, word));
            let mut new = Vec::new();
            for it in numbers.drain(..) {
                let current = (
                    has(it.limit, RuleWord::Capacity)?,
                    has(it.limit, RuleWord::WindowNanos)?,
                    has(it.limit, RuleWord::Burst)?,
                );
                if current != (it.capacity, it.window_nanos, it.burst) {
                    new.push(it);
                }
            }
            if new.is_empty() { Ok(()) } else { engine.reconfigure(guard, &new, now) }
        })?;
        Ok(())
    }

    /// What trouble while opening is called.
    pub(crate) fn attach_error(&self, error: ManageError) -> AttachError {
        let path = self.segment().view().path();
        match error {
            ManageError::Unavailable(why) => match *why {
                Unavailable::Busy { .. } => {
                    AttachError::Busy { path, waited: Duration::from_nanos(self.segment().patience()) }
                }
                Unavailable::Damaged(what) => AttachError::Damaged { path, what },
                Unavailable::Enrol(error) => error,
            },
            ManageError::NotShared => AttachError::NotShared,
            _ => AttachError::Removed { path },
        }
    }
}
