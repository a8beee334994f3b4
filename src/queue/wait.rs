//! Waiting at a queue: look under the lock, and sleep until there is a reason to look again.
//!
//! A waiter has no place anywhere: it notes what its doorbell says, looks, and sleeps unless the doorbell says something
//! else by then. No item is set aside for it. But it may have been woken in place of others, or keep the alarm for them
//! (see `engine::bells`): a waiter that leaves without a look rings on.

use std::time::Duration;

use super::wish::{Step, Wish};
use super::{QueueError, WorkQueue};
use crate::answer::{Trouble, Unavailable};
use crate::core::{AT_ONCE, NEVER, Reach};
use crate::engine::{Watch, WorkBell};
use crate::enter::attach_trouble;
use crate::events;
use crate::interrupt::Interrupt;
use crate::sys::clock;
use crate::wait::LAST_LOCK;

/// How long to wait.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Not,
    For(Duration),
    Forever,
}

/// What came of a look.
pub(super) enum Looked<T> {
    Here(T),
    /// Not now.
    NotNow {
        /// What the doorbell said before the look.
        seen: u32,
        /// When to look again in any case.
        until: u64,
    },
}

impl WorkQueue {
    /// Looks, and sleeps until there is a reason to look again. None: it was not to wait.
    pub(super) fn wait<W: Wish>(&self, wish: &W, patience: Patience) -> Result<Option<W::Got>, QueueError> {
        wish.check(self)?;
        let deadline = match patience {
            Patience::For(timeout) => clock::deadline(timeout),
            Patience::Not => AT_ONCE,
            Patience::Forever => NEVER,
        };
        let mut watch = Watch { deadline, alarm: None };
        let interrupt = Interrupt::current();
        let waited = loop {
            let (seen, until) = match self.look(wish, &mut watch) {
                Ok(Looked::Here(got)) => break Ok(Some(got)),
                Ok(Looked::NotNow { .. }) if matches!(patience, Patience::Not) => break Ok(None),
                Ok(Looked::NotNow { seen, until }) => (seen, until),
                Err(error) => break Err(error),
            };
            if interrupt.is_some_and(Interrupt::is_raised) {
                break Err(QueueError::Interrupted);
            }
            if let Err(trouble) = self.sleep((W::BELL, seen), until, interrupt) {
                break Err(trouble.into());
            }
        };
        if let Err(error) = &waited {
            self.leave(W::BELL, &watch, error);
        }
        waited
    }

    /// Rings on for others, if a waiter that leaves with an error may have been woken or kept the alarm in their place.
    pub(super) fn leave(&self, bell: WorkBell, watch: &Watch, error: &QueueError) {
        // These two come after a look.
        let has_looked = matches!(error, QueueError::TimedOut | QueueError::Interrupted);
        if !has_looked || watch.alarm.is_some() {
            self.set.engine().ring_on(bell, watch.alarm);
        }
    }

    /// Looks once. Time is up at the deadline, if nothing is there by then.
    pub(super) fn look<W: Wish>(&self, wish: &W, watch: &mut Watch) -> Result<Looked<W::Got>, QueueError> {
        // A look that is not to wait asks for the lock as patiently as others do.
        let deadline = if watch.deadline == AT_ONCE { NEVER } else { watch.deadline };
        let set = &self.set;
        // The dead may have what is missing, or what nobody misses because there is always something else to do.
        if set.is_slice_over(set.engine()) {
            match set.sweep_within(clock::nanos(LAST_LOCK), Reach::BOUNDED) {
                Ok(_) | Err(Trouble::Unavailable(Unavailable::Busy { .. })) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        // Before the look: what changes after it changes the doorbell.
        let seen = set.engine().work_bell(W::BELL);
        let left = deadline.saturating_sub(clock::monotonic()).max(clock::nanos(LAST_LOCK));
        let looked = set.locked_within(left.min(set.segment().patience()), |engine, guard, now| {
            wish.look(self, engine, guard, watch, now)
        })?;
        match looked {
            Step::Here(found) => W::get(self, found).map(Looked::Here),
            Step::NotNow(_) if deadline != NEVER && clock::monotonic() >= deadline => {
                Err(QueueError::TimedOut)
            }
            Step::NotNow(look_at) => Ok(Looked::NotNow { seen, until: deadline.min(look_at) }),
        }
    }

    /// Sleeps while the doorbell is as seen; not always so long.
    fn sleep(&self, bell: (WorkBell, u32), until: u64, interrupt: Option<&Interrupt>) -> Result<(), Trouble> {
        let set = &self.set;
        let me = set.segment().participant().map_err(attach_trouble)?;
        let (view, engine) = (set.segment().view(), set.engine());
        if let Some(interrupt) = interrupt {
            return interrupt.sleep_for_work(set, engine, bell, until);
        }
        let slept = engine.sleep_for_work(me, bell, until, set.vigil(), &set.clock(), |swept| {
            events::swept(set, &swept);
            view.look_at_name()
        });
        slept.map_err(|fault| set.trouble(fault))
    }
}
