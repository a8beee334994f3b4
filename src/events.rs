//! Observe: what happens, told to `tracing` as it happens. Behind the feature `tracing`; without it, nothing is here.
//!
//! | event | level | fields beside `set` |
//! | --- | --- | --- |
//! | `granted` | debug | `label`, `ticket` |
//! | `waited` | debug | `label`, `ticket`, `nanos` |
//! | `denied` | info | `label`, `limit`, `requested`, `available` |
//! | `queued` | info | `label`, `ahead` |
//! | `cooling_down` | info | `label`, `nanos` |
//! | `timed_out` | info | `label`, `nanos` |
//! | `not_enforced` | warn | `label`, `why` |
//! | `recovered` | warn | |
//! | `reaped` | warn | `participants`, `permits`, `items` |
//! | `reconfigured` | info | `limits` |
//! | `paused` | warn | `generation`, `nanos` |
//! | `absorbed` | debug | `generation` |
//! | `resumed` | info | |
//! | `dead_letter` | warn | `id`, `attempts`, `rate_limits` |
//! | `skipped` | warn | `index`: of a set in a pool that was removed |
//!
//! Not told: the dead that are found while a process attaches, when there is no set yet to speak of. `Stats` counts them.

use std::time::Duration;

use crate::answer::{AcquireError, Unavailable};
use crate::cooldown::Pause;
use crate::engine::{Lease, Swept};
use crate::set::LimitSet;
use crate::sys::thread;

/// Tells an event, if anybody can hear it.
macro_rules! tell {
    ($level:ident, $name:literal, $set:expr $(, $field:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "limitset", set = %$set.segment().view().path().display(), $($field = $value,)* $name);
        // Named, so that nothing is unused; never called, so that nothing happens.
        #[cfg(not(feature = "tracing"))]
        let _ = || {
            let _ = (&$set, $(&$value),*);
        };
    };
}

#[inline]
pub(crate) fn granted(set: &LimitSet, label: Option<&str>, ticket: u64) {
    tell!(debug, "granted", set, label = label, ticket = ticket);
}

/// `time` is how long it was; without anybody to tell, nobody asks.
pub(crate) fn waited(set: &LimitSet, label: Option<&str>, ticket: u64, time: impl Fn() -> Duration) {
    tell!(debug, "waited", set, label = label, ticket = ticket, nanos = time().as_nanos());
}

/// Whatever kind of refusal it was.
pub(crate) fn refused(set: &LimitSet, label: Option<&str>, error: &AcquireError) {
    if cfg!(not(feature = "tracing")) {
        return;
    }
    match error {
        AcquireError::Denied(denial) => {
            for limit in denial.violations() {
                tell!(
                    info,
                    "denied",
                    set,
                    label = label,
                    limit = limit.key,
                    requested = limit.requested,
                    available = limit.available
                );
            }
        }
        AcquireError::Never { key, requested, most } => {
            tell!(
                info,
                "denied",
                set,
                label = label,
                limit = &**key,
                requested = *requested,
                available = *most
            );
        }
        AcquireError::Queued { ahead } => {
            tell!(info, "queued", set, label = label, ahead = *ahead);
        }
        AcquireError::CoolingDown { remaining, .. } => {
            tell!(info, "cooling_down", set, label = label, nanos = remaining.as_nanos());
        }
        AcquireError::TimedOut(late) => {
            tell!(info, "timed_out", set, label = label, nanos = late.waited.as_nanos());
        }
        _ => {}
    }
}

pub(crate) fn not_enforced(set: &LimitSet, label: Option<&str>, why: &Unavailable) {
    tell!(warn, "not_enforced", set, label = label, why = why.to_string());
}

pub(crate) fn recovered(set: &LimitSet) {
    // Also told by threads of this library.
    thread::foreign(|| {
        tell!(warn, "recovered", set);
    });
}

/// What a search for the dead has found.
pub(crate) fn swept(set: &LimitSet, swept: &Swept) {
    if swept.is_stolen {
        recovered(set);
    }
    if swept.participants > 0 {
        let Swept { participants, permits, items, .. } = *swept;
        thread::foreign(|| {
            tell!(warn, "reaped", set, participants = participants, permits = permits, items = items);
        });
    }
}

pub(crate) fn reconfigured(set: &LimitSet, limits: usize) {
    tell!(info, "reconfigured", set, limits = limits);
}

pub(crate) fn skipped(set: &LimitSet, index: usize) {
    tell!(warn, "skipped", set, index = index);
}

/// What a report of "too many requests", or a pause by hand, has brought about.
pub(crate) fn paused(set: &LimitSet, pause: &Pause) {
    let Pause { remaining, generation, absorbed } = *pause;
    if absorbed {
        tell!(debug, "absorbed", set, generation = generation);
    } else {
        tell!(warn, "paused", set, generation = generation, nanos = remaining.unwrap_or_default().as_nanos());
    }
}

pub(crate) fn resumed(set: &LimitSet) {
    tell!(info, "resumed", set);
}

/// An item of work that is not tried again.
pub(crate) fn dead_letter(set: &LimitSet, lease: &Lease) {
    let Lease { id, attempts, rate_limits, .. } = *lease;
    tell!(warn, "dead_letter", set, id = id, attempts = attempts, rate_limits = rate_limits);
}
