//! Waiters: the queue of blocked requests, grants on their behalf, and waiting for one.

mod grant;
pub(crate) mod list;
pub(super) mod wait;
mod wake;
