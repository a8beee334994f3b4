//! A set in shared memory: joins the engine and the machine.

pub(crate) mod bound;
pub(crate) mod deferred;
pub(crate) mod events;
pub(crate) mod grantee;
pub(crate) mod helper_thread;
pub(crate) mod interrupt;
pub(crate) mod late;
pub(crate) mod ops;
pub(crate) mod wait;
