//! The request that a thread used last. Finding it again writes nothing that other threads read, which saves most of
//! the cost of a lookup.
//!
//! A thread stays a user of its last request between calls. A freed request is therefore dropped when the last of
//! these threads has made another call, ended, or freed the request itself; but no call that begins after it was freed
//! can use it.

use std::cell::Cell;

use crate::args;
use crate::failure::Done;
use crate::handles::{REQUESTS, limitset_request};
use crate::request::Asked;
use crate::table::Shared;

thread_local! {
    /// Empty while a call uses the request.
    static RECENT: Cell<Option<Shared<'static, Asked>>> = const { Cell::new(None) };
}

/// Calls `ask` with the request of a handle.
#[inline(always)]
pub(crate) fn with_request<R>(handle: *const limitset_request, ask: impl FnOnce(&Asked) -> R) -> Done<R> {
    // A thread that is being destroyed has no such variable any more; it looks the request up.
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

/// Frees a request. This thread does not stay a user of it.
pub(crate) fn free_request(handle: *const limitset_request) -> Done {
    let closed = args::close(&REQUESTS, handle, "request");
    let recent = RECENT.try_with(Cell::take).unwrap_or(None);
    if let Some(recent) = recent.filter(Shared::is_live) {
        let _ = RECENT.try_with(|it| it.set(Some(recent)));
    }
    closed
}
