//! Waiting at a queue: look under the lock, and sleep until there is a reason to look again.
//!
//! Who waits has no place anywhere: it notes what the doorbell says, looks, and sleeps unless the doorbell says something
//! else by then. Nothing is set aside for it, so nothing has to be given back when it stops waiting.

use std::time::Duration;

use super::wish::{Step, Wish};
use super::{QueueError, WorkQueue};
use crate::answer::{Trouble, Unavailable};
use crate::core::{NEVER, Reach};
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
            Patience::Not | Patience::Forever => NEVER,
        };
        let interrupt = Interrupt::current();
        loop {
            let (seen, until) = match self.look(wish, deadline)? {
                Looked::Here(got) => return Ok(Some(got)),
                Looked::NotNow { seen, until } => (seen, until),
            };
            if let Patience::Not = patience {
                return Ok(None);
            }
            if interrupt.is_some_and(Interrupt::is_raised) {
                return Err(QueueError::Interrupted);
            }
            self.sleep(seen, until, interrupt)?;
        }
    }

    /// Looks once. Time is up at `deadline`, if nothing is there by then.
    pub(super) fn look<W: Wish>(&self, wish: &W, deadline: u64) -> Result<Looked<W::Got>, QueueError> {
        let set = &self.set;
        // The dead may have what is missing, or what nobody misses because there is always something else to do.
        if set.is_slice_over(set.engine()) {
            match set.sweep_within(clock::nanos(LAST_LOCK), Reach::BOUNDED) {
                Ok(_) | Err(Trouble::Unavailable(Unavailable::Busy { .. })) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        // Before the look: what changes after it changes the doorbell.
        let seen = set.engine().work_bell();
        let left = deadline.saturating_sub(clock::monotonic()).max(clock::nanos(LAST_LOCK));
        let looked = set.locked_within(left.min(set.segment().patience()), |engine, guard, now| {
            wish.look(self, engine, guard, now)
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
    fn sleep(&self, seen: u32, until: u64, interrupt: Option<&Interrupt>) -> Result<(), Trouble> {
        let set = &self.set;
        let me = set.segment().participant().map_err(attach_trouble)?;
        let (view, engine) = (set.segment().view(), set.engine());
        if let Some(interrupt) = interrupt {
            return interrupt.sleep_for_work(set, engine, seen, until);
        }
        let slept = engine.sleep_for_work(me, seen, until, set.vigil(), &set.clock(), |swept| {
            events::swept(set, &swept);
            view.look_at_name()
        });
        slept.map_err(|fault| set.trouble(fault))
    }
}
