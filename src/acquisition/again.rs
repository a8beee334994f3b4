//! Again: an acquisition that is over comes to hold something new, where it stands.

use std::time::Duration;

use super::Acquisition;
use crate::answer::AcquireError;
use crate::engine::Wants;
use crate::events;
use crate::request::{Request, ResolvedRequest};
use crate::set::LimitSet;

impl LimitSet {
    /// As [`start_acquire`](Self::start_acquire), into `over`, an acquisition of this set that has ended: for bindings,
    /// whose objects can be used again, since making an acquisition, moving it into an object and dropping it costs as
    /// much as what it is made for. False if it is not to be had at once, or if `over` holds something or belongs to
    /// another set: nothing has happened then. Not covered by semantic versioning.
    ///
    /// # Errors
    ///
    /// As `start_acquire`.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_again(
        &self,
        request: &ResolvedRequest,
        timeout: Option<Duration>,
        over: &mut Acquisition,
    ) -> Result<bool, AcquireError> {
        if !over.held.is_over || !over.set().is_same(self) {
            return Ok(false);
        }
        let request = Request::from(request);
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        match self.enter_at_once(wants, u64::MAX, self.first_patience(timeout)) {
            Ok(Some(granted)) => {
                events::granted(self, request.name(), granted.ticket);
                over.held.begin(wants, u64::MAX, self, &granted);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(trouble) => {
                *over = self.on_first_trouble(trouble, timeout, request.name())?;
                Ok(true)
            }
        }
    }
}
