//! The work queue: items and their states, leases, results.

pub(crate) mod items;
pub(super) mod lease;
pub(super) mod results;
