//! A set as programs hold it: open it, ask it, hold what it grants, change it, look at it.
//!
//! ```text
//! set            the set itself: open, look, remove
//! builder        describe a set and open it
//! request        what a program asks for
//! acquire        ask: now, waiting, as a future; charge without holding
//! ladder         the steps by which every request is decided
//! acquisition/   what was granted: report its use, release it
//! future         wait without a thread
//! status, error  the answers
//! admin          change a set as a whole
//! parameters     the parameters of limits
//! observer       look without taking part
//! declaration    what a set was declared as
//! slot_handoff   a command that keeps its participant alive
//! ```

pub(crate) mod acquire;
pub(crate) mod acquisition;
pub(crate) mod admin;
pub(crate) mod builder;
pub(crate) mod declaration;
pub(crate) mod error;
pub(crate) mod future;
pub(crate) mod ladder;
pub(crate) mod observer;
mod parameters;
pub(crate) mod request;
pub(crate) mod set;
pub(crate) mod slot_handoff;
pub(crate) mod status;

pub use self::acquire::Charged;
