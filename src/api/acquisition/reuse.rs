//! An acquisition that has ended acquires again, in place.

use std::sync::Arc;
use std::time::Duration;

use super::Acquisition;
use crate::api::error::AcquireError;
use crate::api::ladder::{self, Ladder};
use crate::api::request::{Request, ResolvedRequest};
use crate::engine::Wants;
use crate::shared::acquire::Ask;

impl Acquisition {
    /// Acquires again as [`start_acquire`](crate::LimitSet::start_acquire) does, in place, after this acquisition has ended:
    /// for bindings, whose objects can be used again, since making an acquisition, moving it into an object and dropping
    /// it costs as much as the acquisition itself. False if it is not granted at once, or if this acquisition has not ended
    /// or belongs to another set: nothing has happened then. Not covered by semantic versioning.
    ///
    /// # Errors
    ///
    /// As `start_acquire`.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_again(
        &mut self,
        set: &crate::LimitSet,
        request: &ResolvedRequest,
        timeout: Option<Duration>,
    ) -> Result<bool, AcquireError> {
        if !self.held.is_over || !Arc::ptr_eq(self.set().shared(), set.shared()) {
            return Ok(false);
        }
        let request = Request::from(request);
        let mut scratch = Wants::none();
        let wants = set.keys().wants(&request, &mut scratch)?;
        let ask = Ask { wants, owing: u64::MAX };
        let fast = set.shared().try_fast(ask, set.shared().first_lock_timeout(timeout));
        let at_once = match fast {
            Ok(None) => return Ok(false),
            answer => answer,
        };
        let admission =
            ladder::climb(set.shared(), ask, || request.name(), timeout, at_once, Ladder::decide)?;
        self.held.admit(ask, set, admission);
        Ok(true)
    }
}
