//! Limits that hold across processes.
//!
//! A [`Segment`] is memory that any number of processes share, by name, by path or by inheritance. In it live
//! locks and permits that survive the death of any holder at any instruction; see [`sync`]:
//!
//! ```
//! use limitset::Segment;
//!
//! # let name = format!("test-doc-{}", std::process::id());
//! // Every process that opens this name shares eight connections. The first one creates it.
//! let segment = Segment::options().semaphore("connections", 8).open(&name)?;
//! let connections = segment.semaphore("connections")?;
//!
//! let permit = connections.acquire(1)?;
//! assert_eq!(connections.available()?, 7);
//! permit.release()?;
//! # segment.remove_here()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! * Several words change together or not at all, whoever is killed when.
//! * A lock of the dead passes on; permits of the dead return. Only the kernel's word counts for a death, never
//!   time: a stopped process is alive.
//! * A forked child is a participant of its own from its first use on, and never releases what its parent holds.
//! * Bytes that are not a usable segment are a typed error that says what was found, what was expected, and what
//!   to do.
//!
//! # What does not
//!
//! * Linux only. All processes must see the same memory: one machine, one kernel.
//! * Whoever may write to a segment is trusted not to want to break it.
//! * Nothing here may be called from a signal handler.
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "limitset needs Linux: it is built on futexes, open-file-description locks and MADV_WIPEONFORK"
);

mod acquisition;
mod answer;
mod background;
mod builder;
mod clock;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
pub mod engine;
pub mod error;
mod future;
mod helper;
#[cfg(any(feature = "shared_memory", feature = "raw_sync"))]
pub mod interop;
mod layout;
pub mod limit;
mod manage;
mod math;
mod observe;
mod request;
mod segment;
mod set;
pub mod sync;
#[allow(unsafe_code)] // The one place; `tests/tidy.rs` holds it to that.
mod sys;
mod wait;

pub use crate::acquisition::Acquisition;
pub use crate::answer::{
    AcquireError, Denial, Holder, LimitStatus, ManageError, RunError, Statuses, TimedOut, Unavailable,
    UsageError,
};
pub use crate::builder::{LimitSetBuilder, OnDifference, OnUnavailable, OpenError};
pub use crate::clock::Clock;
pub use crate::core::Participant;
pub use crate::future::AcquireFuture;
pub use crate::limit::{Algorithm, CallLimit, Limit, Order, RateLimit, Report, ResourceLimit};
pub use crate::observe::{LimitStats, ParticipantStats, SetObserver, Stats};
pub use crate::request::{BadRequest, Request, RequestBuilder, ResolvedRequest};
pub use crate::segment::{
    Listed, LockStatistics, Observer, ParticipantInfo, Segment, SegmentInfo, SegmentOptions, SemaphoreState,
};
pub use crate::set::LimitSet;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
