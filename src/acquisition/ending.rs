//! How an acquisition ends: released, cancelled, or dropped, which must not hang.

use std::borrow::Borrow;

use super::Acquisition;
use crate::answer::{AcquireError, RunError, Trouble, Unavailable, UsageError};
use crate::background::DROP_PATIENCE;
use crate::engine::{Charge, Ending, Time};
use crate::grantee::{Grantee, Void};
use crate::set::LimitSet;
use crate::sys::clock;

impl<S: Borrow<LimitSet>> Acquisition<S> {
    pub(crate) fn run<T, E>(self, body: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, RunError<E>> {
        let mut held = CancelOnDrop(Some(self));
        let Some(acquisition) = held.0.as_mut() else { return Err(AcquireError::Removed.into()) };
        let value = body(acquisition).map_err(RunError::Body)?;
        drop(held.0.take());
        Ok(value)
    }

    pub(crate) async fn run_async<T, E>(
        self,
        body: impl AsyncFnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        let mut held = CancelOnDrop(Some(self));
        let Some(acquisition) = held.0.as_mut() else { return Err(AcquireError::Removed.into()) };
        let value = body(acquisition).await.map_err(RunError::Body)?;
        drop(held.0.take());
        Ok(value)
    }

    /// Ends it, once: dropping it afterwards does nothing more. Waits for the lock at most so long, or as long as the
    /// segment's patience.
    #[inline(always)]
    pub(super) fn end(&mut self, ending: Ending, patience: Option<u64>) -> Result<(), UsageError> {
        if std::mem::replace(&mut self.held.is_over, true) {
            return Ok(());
        }
        if let Err(void) = self.held.to.check(self.set().segment()) {
            return self.end_void(void);
        }
        // Nearly always there are only permits to give back, if there is anything.
        if let Ending::Released(admitted) = ending
            && !admitted.on_trial()
            && !self.held.is_spread
            && self.held.owing == 0
        {
            let set = self.set();
            let permits = self.held.wants.demand() & set.keys().table.permits();
            if permits == 0 {
                return Ok(());
            }
            if set.give_at_once(self.held.to.participant(), &self.held.wants, permits)? {
                return Ok(());
            }
        }
        self.end_with_guard(ending, patience.unwrap_or_else(|| self.set().segment().patience()))
    }

    /// Of a handle that is not this participant's there is nothing to end; of one that was let through without asking,
    /// neither.
    #[cold]
    fn end_void(&self, void: Void) -> Result<(), UsageError> {
        if self.held.is_enforced { Err(void.into()) } else { Ok(()) }
    }

    /// The same whatever there is to do.
    #[inline(never)]
    fn end_with_guard(&mut self, ending: Ending, patience: u64) -> Result<(), UsageError> {
        let (set, held) = self.held.both();
        let set = set.borrow();
        let table = &set.keys().table;
        let cancel = ending == Ending::Cancelled;
        let needs_lock = held.admitted.on_trial() && !cancel
            || held.spread(table).iter().any(|charge| {
                charge.owes_report || charge.charged > 0 && (cancel || table.is_permit(charge.limit()))
            });
        if !needs_lock {
            return Ok(());
        }
        let to = held.to;
        let finished = set.finish(to, held.spread(table), ending, patience);
        finished.map_err(|trouble| self.end_later(ending, trouble).into())
    }

    /// Lets go of it without an end: what it holds is returned otherwise.
    pub(crate) fn abandon(mut self) {
        self.held.is_over = true;
    }

    /// For destructors, which must not hang, and have nobody to tell.
    fn end_unasked(&mut self, ending: Ending) {
        let _ = self.end(ending, Some(clock::nanos(DROP_PATIENCE)));
    }

    /// If a process was stopped while holding the lock, the background thread waits for it.
    #[cold]
    fn end_later(&self, ending: Ending, trouble: Trouble) -> Trouble {
        if let Trouble::Unavailable(Unavailable::Busy { .. }) = trouble {
            let (to, charges) = (self.held.to, self.held.charges.clone());
            self.set().in_background(move |set, patience| set.finish(to, &charges, ending, patience));
        }
        trouble
    }
}

impl LimitSet {
    /// Ends an acquisition of a participant, if this process still is it when it has the lock.
    #[inline]
    fn finish(&self, to: Grantee, charges: &[Charge], ending: Ending, patience: u64) -> Result<(), Trouble> {
        self.locked_at_no_time(patience, |engine, guard| {
            if !to.is_us(self.segment()) {
                return Ok(());
            }
            let needs_time = engine.end_needs_time(guard, ending)?;
            let now = if needs_time {
                engine.now(guard, self.clock().reading())?
            } else {
                engine.last_now(guard)?
            };
            engine.finish(guard, charges, ending, now)
        })
    }
}

impl<S: Borrow<LimitSet>> Drop for Acquisition<S> {
    #[inline]
    fn drop(&mut self) {
        if !self.held.is_over {
            self.end_unasked(self.released());
        }
    }
}

/// Cancels what is left in it.
struct CancelOnDrop<S: Borrow<LimitSet>>(Option<Acquisition<S>>);

impl<S: Borrow<LimitSet>> Drop for CancelOnDrop<S> {
    fn drop(&mut self) {
        if let Some(acquisition) = &mut self.0 {
            acquisition.end_unasked(Ending::Cancelled);
        }
    }
}
