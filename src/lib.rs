//! Limits that hold across processes: rates, calls and resources, acquired together, all or none, by every process
//! that opens the same name. No daemon, no server; a process may be killed at any instruction, and the others go on.
//!
//! ```
//! use limitset::{Algorithm, CallLimit, LimitSet, RateLimit, ResourceLimit};
//!
//! # let name = format!("test-doc-front-{}", std::process::id());
//! let limits = LimitSet::builder()
//!     .limit(CallLimit::per_minute(500))
//!     .limit(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra))
//!     .limit(ResourceLimit::new("connections", 8))
//!     .config("region", "us-east-1")
//!     .open(&name)?;                                        // every process that opens this name shares it
//!
//! let mut held = limits.try_acquire([("tokens", 1_500)])?;  // one call and one connection come along
//! held.update("tokens", 900)?;                              // 600 back
//! held.release()?;                                          // or drop
//!
//! let held = limits.acquire([("tokens", 150_000)])?;        // waits its turn; acquire_async does so as a future
//! # held.cancel()?;
//! # limits.remove()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! * **All or none.** An acquisition is charged to all of its limits or to none, whoever is killed when.
//! * **Never too much.** Integers only: over any time the error of a rate is zero units.
//! * **A death hurts nobody.** A lock of the dead passes on, their permits return, what they had half done is undone.
//!   Only the kernel's word counts for a death, never time: a stopped process is alive.
//! * **A fork is safe.** A child takes part on its own from its first use on, and never releases what its parent
//!   holds.
//! * **Nobody starves.** Those who wait are served in the order in which they came, among those who want the same; one
//!   that is stopped delays nobody.
//! * **No lies.** A refusal says what is in the way and when to ask again. More than a limit ever gives is *never*,
//!   not *later*; a set that cannot be asked is *unavailable*, not *limited*.
//! * **Bad bytes are an error** that says what was found, what was expected, and what to do.
//!
//! # What does not
//!
//! * Linux only. All processes must see the same memory: one machine, one kernel.
//! * A wait is fair, not free of deadlock: whoever holds a permit and waits for another that only its own release
//!   can free waits for ever. Use [`acquire_timeout`](LimitSet::acquire_timeout), which says who holds what.
//! * Whoever may write to a segment is trusted not to want to break it.
//! * After a power loss a set in a file may have lost its last updates.
//! * Nothing here may be called from a signal handler, but for [`Interrupt::raise`], which ends waits.
//!
//! # Where things are
//!
//! | | |
//! | --- | --- |
//! | [`RateLimit`], [`CallLimit`], [`ResourceLimit`] | what is limited; [`Algorithm`] says how a rate counts |
//! | [`LimitSet`] | the limits together: opened by its [builder](LimitSetBuilder), acquired from, waited for, changed live, removed |
//! | [`Request`] | what can be asked for, and in which forms |
//! | [`Acquisition`] | what was granted: report its use, release it, cancel it |
//! | [`Interrupt`] | ends a wait, from a signal handler or another thread |
//! | [`LimitPool`] | several sets behind a balancer; made of [anything](AnyLimits) |
//! | [`Cooldown`] | how a set pauses after "too many requests", and resumes |
//! | [`WorkQueue`] | work that goes to another worker if its worker dies |
//! | [`Prefork`] | workers that share limits: forked, replaced, stopped |
//! | [`AcquireError`] | why nothing was; [`Denial`] has the status of every limit |
//! | [`Stats`] | a set at one instant; a [`SetObserver`] sees it without taking part |
//! | [`Clock`] | the clock of a set; tests move a [manual](Clock::Manual) one |
//! | [`Segment`] | the shared memory that a set lives in: by name, by path, inherited or private |
//! | [`sync`] | a mutex and a semaphore for programs that need nothing more |
//! | [`error`] | what can be wrong with a segment |
//!
//! The repository has a runnable example for each idea in `examples/`, pictures of the algorithms in
//! `docs/algorithms.md`, and what to know before relying on it in `docs/caveats.md`.
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "limitset needs Linux: it is built on futexes, open-file-description locks and MADV_WIPEONFORK"
);

#[cfg(not(target_pointer_width = "64"))]
compile_error!("limitset is 64-bit only: build for a 64-bit target, such as x86_64 or aarch64");

mod acquisition;
mod answer;
mod audit;
mod background;
mod builder;
mod charge;
mod clock;
mod cooldown;
#[doc(hidden)]
pub mod core;
mod declared;
#[doc(hidden)]
pub mod engine;
mod enter;
pub mod error;
mod events;
mod future;
mod grantee;
mod helper;
#[cfg(any(feature = "shared_memory", feature = "raw_sync"))]
pub mod interop;
mod interrupt;
mod late;
mod layout;
pub mod limit;
mod manage;
mod math;
mod observe;
mod pool;
mod prefork;
mod queue;
mod request;
mod segment;
mod set;
mod standing;
pub mod sync;
#[allow(unsafe_code)] // The one place; `tests/tidy.rs` holds it to that.
mod sys;
mod wait;

pub use crate::acquisition::Acquisition;
pub use crate::answer::{
    AcquireError, Denial, Holder, LimitStatus, ManageError, RunError, Statuses, TimedOut, Unavailable,
    UsageError,
};
pub use crate::audit::{Audit, AuditCheck, Finding, Gravity, Repaired};
pub use crate::builder::{LimitSetBuilder, OnDifference, OnUnavailable, OpenError};
pub use crate::charge::Charged;
pub use crate::clock::Clock;
pub use crate::cooldown::{CooldownStats, Pause};
pub use crate::core::Participant;
pub use crate::declared::Declaration;
pub use crate::engine::Reason;
pub use crate::future::{AcquireFuture, Started};
pub use crate::interrupt::Interrupt;
pub use crate::limit::{
    Algorithm, BadSetting, CallLimit, Cooldown, Limit, Order, QueueOptions, RateLimit, Report, ResourceLimit,
};
pub use crate::observe::{LimitStats, ParticipantStats, SetObserver, Stats};
pub use crate::pool::{
    AnyLimits, BadDescription, Balance, LimitPool, PoolDescription, PoolError, PoolSetStats, PoolStats,
    Sharing,
};
pub use crate::prefork::{
    ExitReason, Prefork, PreforkError, Report as PreforkReport, Restart, StartBy, Stopped, Supervisor,
    Worker, WorkerExit, WorkerOutcome,
};
pub use crate::queue::{
    CollectFuture, DrainFuture, Finished, PushFuture, QueueError, QueueStats, TakeFuture, WorkItem, WorkQueue,
};
pub use crate::request::{BadRequest, Request, RequestBuilder, ResolvedRequest};
pub use crate::segment::{
    LentLife, Listed, LockStatistics, Observer, ParticipantInfo, Segment, SegmentInfo, SegmentOptions,
    SemaphoreState,
};
pub use crate::set::LimitSet;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
