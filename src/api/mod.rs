//! The public interface of a set.

pub(crate) mod acquisition;
mod admin;
pub(crate) mod builder;
pub(crate) mod charge;
pub(crate) mod cooldown;
pub(crate) mod declaration;
pub(crate) mod error;
pub(crate) mod future;
pub(crate) mod request;
pub(crate) mod set;
pub(crate) mod slot_handoff;
pub(crate) mod stats;
mod status;
