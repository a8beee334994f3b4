//! Look: how every limit stands to a request, whoever waits.

use crate::api::error::{AcquireError, Statuses};
use crate::api::request::Request;
use crate::api::set::LimitSet;
use crate::engine::Wants;

impl LimitSet {
    /// How every limit stands to a request now. Unlike [`check`](Self::check), it is no answer to it: it says the same
    /// whether others wait or the set pauses, and whether the request fits or not. Changes nothing.
    ///
    /// ```
    /// use limitset::{CallLimit, LimitSet};
    ///
    /// let limits = LimitSet::builder().limit(CallLimit::per_minute(2)).in_memory()?;
    /// limits.pause(std::time::Duration::from_secs(9))?;
    /// assert!(limits.check(()).is_err());
    /// assert_eq!(limits.standing(())?.get("call_count").unwrap().available, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the request makes no sense to the set, or the set cannot be asked.
    pub fn standing<'r>(&self, request: impl Into<Request<'r>>) -> Result<Statuses, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        let found = self.locked(|engine, guard, now| {
            let judged = engine.judge(guard, wants, now)?;
            Ok(self.statuses(judged, now))
        });
        Ok(found?)
    }
}
