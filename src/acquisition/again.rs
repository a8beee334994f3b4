//! Again: an acquisition that is over comes to hold something new, where it stands.

use std::time::Duration;

use super::Acquisition;
use crate::answer::AcquireError;
use crate::engine::{Charge, Wants};
use crate::enter::Granted;
use crate::events;
use crate::request::{Request, ResolvedRequest};
use crate::set::LimitSet;
use crate::sys::{clock, fork};
use crate::wait::LAST_LOCK;

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
        if !over.is_over || !over.set.is_same(self) {
            return Ok(false);
        }
        let request = Request::from(request);
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        let patience = timeout.map_or(u64::MAX, |timeout| clock::nanos(timeout.max(LAST_LOCK)));
        match self.enter_at_once(wants, u64::MAX, patience.min(self.segment().patience())) {
            Ok(Some(granted)) => {
                events::granted(self, request.name(), granted.ticket);
                over.renew(wants, u64::MAX, &granted);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(trouble) => {
                *over = self.on_trouble(trouble, request.name())?;
                Ok(true)
            }
        }
    }
}

impl Acquisition {
    /// Makes of it what [`new`](Self::new) makes, without a copy.
    #[inline]
    fn renew(&mut self, wants: &Wants, owing: u64, granted: &Granted) {
        // All of them: what is added to an acquisition is to be renewed, too.
        let Self { set, charges, named, ticket, admitted, epoch, is_enforced, is_over, pool_index } = self;
        charges.clear();
        charges.extend(Charge::of(wants, owing, &set.keys().table, granted.ticket));
        (*named, *ticket, *admitted) = (wants.named(), granted.ticket, granted.admitted);
        (*epoch, *is_enforced, *is_over, *pool_index) = (fork::epoch(), true, false, None);
    }
}
