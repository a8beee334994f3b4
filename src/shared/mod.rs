//! A set in shared memory: the one layer that knows both the engine and the machine.
//!
//! [`SharedSet`] has a method for every operation of a set, with plain data in and out. The layers above it name no
//! lock, no transaction and no word of the segment.
//!
//! ```text
//! set            the set: its engine, its segment, its clock; how an operation takes the lock
//! keys           the names of the limits
//! error          why a set cannot be asked
//! acquire        decide a request: fast path, then under the lock, then the wait queue
//! wait           a blocked request: sleep, poll, leave
//! release        report use, release, cancel, report "too many requests"
//! admin          parameters, clock, pauses, repair
//! work           operations of the work queue
//! stats          the set at one instant
//! interrupt      end a wait from another thread or a signal handler
//! helper_thread  wake futures
//! deferred       finish in the background what the caller cannot wait for
//! events         report to `tracing` what happens
//! bound          the engine beside the segment that it points into
//! ```

pub(crate) mod acquire;
pub(crate) mod admin;
mod bound;
pub(crate) mod deferred;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod helper_thread;
pub(crate) mod interrupt;
pub(crate) mod keys;
pub(crate) mod release;
mod set;
pub(crate) mod stats;
pub(crate) mod wait;
pub(crate) mod work;

pub(crate) use self::set::SharedSet;
