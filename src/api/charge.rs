//! Charge only: for callers that pay costs and hold nothing.

use std::time::Duration;

use crate::api::acquisition::Acquisition;
use crate::api::error::AcquireError;
use crate::api::request::{Request, ResolvedRequest};
use crate::api::set::LimitSet;
use crate::engine::{Time, Wants, When};
use crate::shared::events;
use crate::shared::ops::Granted;
use crate::shared::wait::Ask;

/// A charge was made. There is nothing to hold, report or give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charged {
    /// Its number in the order of arrival.
    pub ticket: u64,
    /// Whether the limits were asked; see [`Acquisition::enforced`].
    pub enforced: bool,
}

impl From<Acquisition> for Charged {
    fn from(mut acquisition: Acquisition) -> Self {
        acquisition.is_no_trial();
        Self { ticket: acquisition.ticket(), enforced: acquisition.enforced() }
    }
}

impl LimitSet {
    /// Charges (unlike [`check`](Self::check), which only looks) rates if all of them allow it now: those named, and 1 of each call limit that is not. Permits are left
    /// alone, and no report is owed.
    ///
    /// ```
    /// use limitset::{CallLimit, LimitSet, RateLimit, ResourceLimit};
    ///
    /// let limits = LimitSet::builder()
    ///     .limit(CallLimit::per_minute(10))
    ///     .limit(RateLimit::per_minute("tokens", 1_000))
    ///     .limit(ResourceLimit::new("connections", 8))
    ///     .in_memory()?;
    /// limits.check_rate([("tokens", 700)])?;
    /// assert!(limits.check_rate([("tokens", 700)]).is_err());
    /// assert!(limits.check_rate([("connections", 1)]).is_err(), "permits are held, not paid");
    /// assert_eq!(limits.stats()?.limit("call_count").unwrap().consumed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`BadRequest::Permit`](crate::BadRequest::Permit) if a permit is named.
    #[inline]
    pub fn check_rate<'r>(&self, request: impl Into<Request<'r>>) -> Result<Charged, AcquireError> {
        let request = request.into();
        match request.resolved() {
            Some(resolved) => self.check_resolved(resolved),
            None => self.check_request(&request),
        }
    }

    /// The same at the least cost, where it is as nearly always.
    fn check_resolved(&self, request: &ResolvedRequest) -> Result<Charged, AcquireError> {
        if let Some(wants) = self.keys().plain_rates(request) {
            match self.ask(wants, 0, None, When::Reading(self.clock().reading())) {
                Ok(Some(Granted { ticket, .. })) => {
                    events::granted(self, request.label(), ticket);
                    return Ok(Charged { ticket, enforced: true });
                }
                Ok(None) => return Ok(self.try_in_order(wants, 0, request.label())?.into()),
                Err(trouble) => return Ok(self.on_trouble(trouble, request.label())?.into()),
            }
        }
        self.check_request(&request.into())
    }

    #[cold]
    fn check_request(&self, request: &Request<'_>) -> Result<Charged, AcquireError> {
        let mut scratch = Wants::none();
        let wants = self.keys().payable(request, &mut scratch)?;
        match self.enter_at_once(wants, 0, self.segment().patience()) {
            Ok(Some(Granted { ticket, .. })) => {
                events::granted(self, request.name(), ticket);
                Ok(Charged { ticket, enforced: true })
            }
            Ok(None) => Ok(self.try_in_order(wants, 0, request.name())?.into()),
            Err(trouble) => Ok(self.on_trouble(trouble, request.name())?.into()),
        }
    }

    /// As [`check_rate`](Self::check_rate), waiting for its turn in the same queue as everybody else, for at most
    /// `timeout` if there is one.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout), and [`BadRequest::Permit`](crate::BadRequest::Permit) if a permit is named.
    pub fn check_and_wait<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Option<Duration>,
    ) -> Result<Charged, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().payable(&request, &mut scratch)?;
        let ask = Ask { wants, owing: 0, label: request.name() };
        Ok(self.wait_for(&ask, timeout)?.into())
    }

    /// As [`check_and_wait`](Self::check_and_wait), without blocking the thread.
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn check_and_wait_async<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Option<Duration>,
    ) -> Result<Charged, AcquireError> {
        let future = {
            let request = request.into();
            let mut scratch = Wants::none();
            let wants = self.keys().payable(&request, &mut scratch).cloned();
            self.future(wants, 0, request.name())
        };
        let future = match timeout {
            Some(timeout) => future.timeout(timeout),
            None => future,
        };
        Ok(future.await?.into())
    }
}
