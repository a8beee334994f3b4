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

use super::SharedSet;
use super::admin::Pause;
use super::error::Unavailable;
use crate::engine::{Lease, Swept};
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
pub(crate) fn granted(set: &SharedSet, label: Option<&str>, ticket: u64) {
    tell!(debug, "granted", set, label = label, ticket = ticket);
}

/// `time` is how long it was; without anybody to tell, nobody asks.
pub(crate) fn waited(set: &SharedSet, label: Option<&str>, ticket: u64, time: impl Fn() -> Duration) {
    tell!(debug, "waited", set, label = label, ticket = ticket, nanos = time().as_nanos());
}

/// A limit refused a request.
pub(crate) fn denied(set: &SharedSet, label: Option<&str>, limit: &str, requested: u64, available: i64) {
    tell!(info, "denied", set, label = label, limit = limit, requested = requested, available = available);
}

/// A request was refused because waiters come first.
pub(crate) fn queued(set: &SharedSet, label: Option<&str>, ahead: u64) {
    tell!(info, "queued", set, label = label, ahead = ahead);
}

/// A request was refused because the set pauses.
pub(crate) fn cooling_down(set: &SharedSet, label: Option<&str>, remaining: Duration) {
    tell!(info, "cooling_down", set, label = label, nanos = remaining.as_nanos());
}

/// The timeout of a wait expired.
pub(crate) fn timed_out(set: &SharedSet, label: Option<&str>, waited: Duration) {
    tell!(info, "timed_out", set, label = label, nanos = waited.as_nanos());
}

pub(crate) fn not_enforced(set: &SharedSet, label: Option<&str>, why: &Unavailable) {
    tell!(warn, "not_enforced", set, label = label, why = why.to_string());
}

pub(crate) fn recovered(set: &SharedSet) {
    // Threads of this library report it, too.
    thread::foreign(|| {
        tell!(warn, "recovered", set);
    });
}

/// What a search for the dead has found.
pub(crate) fn swept(set: &SharedSet, swept: &Swept) {
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

pub(crate) fn reconfigured(set: &SharedSet, limits: usize) {
    tell!(info, "reconfigured", set, limits = limits);
}

pub(crate) fn skipped(set: &SharedSet, index: usize) {
    tell!(warn, "skipped", set, index = index);
}

/// What a report of "too many requests", or a pause by hand, has brought about.
pub(crate) fn paused(set: &SharedSet, pause: &Pause) {
    let Pause { remaining, generation, absorbed } = *pause;
    if absorbed {
        tell!(debug, "absorbed", set, generation = generation);
    } else {
        tell!(warn, "paused", set, generation = generation, nanos = remaining.unwrap_or_default().as_nanos());
    }
}

pub(crate) fn resumed(set: &SharedSet) {
    tell!(info, "resumed", set);
}

/// An item of work that is not tried again.
pub(crate) fn dead_letter(set: &SharedSet, lease: &Lease) {
    let Lease { id, attempts, rate_limits, .. } = *lease;
    tell!(warn, "dead_letter", set, id = id, attempts = attempts, rate_limits = rate_limits);
}
