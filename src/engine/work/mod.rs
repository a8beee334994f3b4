//! The work queue: items and their states, leases, results.

pub(super) mod bells;
mod delayed;
pub(crate) mod items;
pub(super) mod lease;
pub(super) mod results;
