//! The request that a thread used last: found again without telling other threads, which is most of what finding costs.
//!
//! A thread stays a user of its last request between calls. So a request that is freed goes when its last threads have
//! come back, ended, or freed it themselves; what it was freed for, that nobody uses it any more, is so at once.

use std::cell::Cell;

use crate::args;
use crate::failure::Done;
use crate::handles::{REQUESTS, limitset_request};
use crate::request::Asked;
use crate::table::Shared;

thread_local! {
    /// Not there while a call uses it.
    static RECENT: Cell<Option<Shared<'static, Asked>>> = const { Cell::new(None) };
}

/// Uses a request.
#[inline(always)]
pub(crate) fn with_request<R>(handle: *const limitset_request, ask: impl FnOnce(&Asked) -> R) -> Done<R> {
    // A thread that is being destroyed has no such variable any more, and does without.
    let recent = RECENT.try_with(Cell::take).unwrap_or(None);
    let asked = match recent {
        Some(recent) if recent.is_of(handle.addr() as u64) && recent.is_live() => recent,
        other => {
            drop(other);
            args::shared(&REQUESTS, handle, "request")?
        }
    };
    let answer = ask(&asked);
    if asked.is_live() {
        let _ = RECENT.try_with(|recent| recent.set(Some(asked)));
    }
    Ok(answer)
}

/// Frees a request; this thread at least does not hold on to it.
pub(crate) fn free_request(handle: *const limitset_request) -> Done {
    let closed = args::close(&REQUESTS, handle, "request");
    let recent = RECENT.try_with(Cell::take).unwrap_or(None);
    if let Some(recent) = recent.filter(Shared::is_live) {
        let _ = RECENT.try_with(|it| it.set(Some(recent)));
    }
    closed
}
