//! The machine: mapping, futexes, liveness, clocks, fork detection. All `unsafe` of the product lives here.
//!
//! ```text
//! map        mapped memory as atomic words, bounds-checked
//! futex      sleeping and waking across processes
//! barrier    a memory barrier that only one side pays for
//! ofd        locks of open file descriptions
//! file       opening, making and publishing segment files
//! liveness   one kernel lock per participant, which ends exactly with its address space
//! page       the size of a page
//! pin        what ties that lock to the address space
//! kept       a descriptor that the program may close behind our back
//! fork       noticing a fork; acting in the child
//! clock      instants; boot and namespace identities
//! process    forking workers; how they learn that they shall stop
//! thread     the library's own threads, and forking beside them
//! machine    all of it behind `core::Env`
//! recycled   memory that a thread uses again
//! raw_event  an event behind the traits of the crate `raw_sync`
//! ```

pub(crate) mod barrier;
pub(crate) mod clock;
pub(crate) mod file;
#[cfg(test)]
mod filter;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod kept;
pub(crate) mod liveness;
pub(crate) mod machine;
pub(crate) mod map;
pub(crate) mod ofd;
mod page;
mod pin;
pub(crate) mod process;
#[cfg(feature = "raw_sync")]
pub(crate) mod raw_event;
pub(crate) mod recycled;
pub(crate) mod thread;
