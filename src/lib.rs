//! Limits that hold across processes: rates, calls and resources, acquired together, all or none, by every process
//! that opens the same name. There is no daemon and no server. A process may be killed at any instruction, and the
//! others go on.
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
//! let mut held = limits.try_acquire([("tokens", 1_500)])?;  // also takes one call and one connection
//! held.update("tokens", 900)?;                              // refunds 600
//! held.release()?;                                          // or drop
//!
//! let held = limits.acquire([("tokens", 150_000)])?;        // waits its turn; acquire_async waits as a future
//! # held.cancel()?;
//! # limits.remove()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! * **All or none.** An acquisition is charged to all of its limits or to none, even if a process is killed in the
//!   middle.
//! * **Exact rates.** All arithmetic is on integers: over any time the error of a rate is zero units.
//! * **Crash recovery.** When a process dies, another one takes over its lock, its permits return, and its half-done
//!   change is rolled back. Only the kernel decides that a process is dead, never a timeout: a stopped process is
//!   alive.
//! * **Fork safety.** A child becomes a participant of its own at its first use, and never releases the permits of its
//!   parent.
//! * **No starvation.** Waiters for the same limits are granted in order of arrival. A stopped waiter delays no other
//!   waiter.
//! * **Clear answers.** A denial names the limits that are exhausted and says when to retry. A request that exceeds a
//!   limit's maximum is *never* granted, which is not the same as *later*. A set whose lock or memory cannot be used is
//!   *unavailable*, which is not the same as *limited*.
//! * **Checked bytes.** Bad bytes in a segment are an error: it names the bytes found, those expected, and a remedy.
//!
//! # Restrictions
//!
//! * Linux only. All processes must see the same memory: one machine, one kernel.
//! * Waits are fair, but not free of deadlock: a caller that holds a permit and waits for another permit, which only
//!   its own release can free, waits for ever. Use [`acquire_timeout`](LimitSet::acquire_timeout), whose error names
//!   the holders.
//! * A process that may write to a segment is trusted not to break it on purpose.
//! * After a power loss a set in a file may have lost its last updates.
//! * Do not call anything here from a signal handler, except [`Interrupt::raise`], which ends waits.
//!
//! # Overview
//!
//! | | |
//! | --- | --- |
//! | [`RateLimit`], [`CallLimit`], [`ResourceLimit`] | the kinds of limits; [`Algorithm`] says how a rate counts |
//! | [`LimitSet`] | limits that are acquired together: opened by its [builder](LimitSetBuilder), acquired from, waited for, changed live, removed |
//! | [`Request`] | the amounts that a caller asks for, in several forms |
//! | [`Acquisition`] | a granted request: report its use, release it, cancel it |
//! | [`Interrupt`] | ends a wait, from a signal handler or another thread |
//! | [`LimitPool`] | several sets behind a balancer; made of [limits, sets or pools](AnyLimits) |
//! | [`Cooldown`] | how a set pauses after "too many requests", and resumes |
//! | [`WorkQueue`] | work that goes to another worker if its worker dies |
//! | [`Prefork`] | workers that share limits: forked, replaced, stopped |
//! | [`AcquireError`] | why a request was not granted; [`Denial`] has the status of every limit |
//! | [`Stats`] | a set at one instant; a [`SetObserver`] reads it without becoming a participant |
//! | [`Clock`] | the clock of a set; tests move a [manual](Clock::Manual) one |
//! | [`Segment`] | the shared memory of a set: by name, by path, inherited or private |
//! | [`sync`] | a mutex and a semaphore for programs that need nothing more |
//! | [`error`] | errors of segments |
//!
//! The repository has a runnable example for each idea in `examples/`, pictures of the algorithms in
//! `docs/algorithms.md`, and the things to know before relying on it in `docs/caveats.md`.
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "limitset needs Linux: it is built on futexes, open-file-description locks and MADV_WIPEONFORK"
);

#[cfg(not(target_pointer_width = "64"))]
compile_error!("limitset is 64-bit only: build for a 64-bit target, such as x86_64 or aarch64");

#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod protocol;

mod algorithm;
mod api;
mod audit;
mod code;
mod format;
#[cfg(any(feature = "shared_memory", feature = "raw_sync"))]
pub mod interop;
pub mod limit;
mod pool;
mod prefork;
mod queue;
mod segment;
mod shared;
pub mod sync;
#[allow(unsafe_code)] // The only module with unsafe code; `tests/tidy.rs` checks that.
mod sys;

pub use crate::api::Charged;
pub use crate::api::acquisition::Acquisition;
pub use crate::api::admin::Repaired;
pub use crate::api::builder::{LimitSetBuilder, OnDifference, OpenError};
pub use crate::api::declaration::Declaration;
pub use crate::api::error::{AcquireError, ManageError, RunError, TimedOut, UsageError};
pub use crate::api::future::{AcquireFuture, Started};
pub use crate::api::observer::SetObserver;
pub use crate::api::request::{BadRequest, Request, RequestBuilder, ResolvedRequest};
pub use crate::api::set::LimitSet;
pub use crate::api::slot_handoff::LentLife;
pub use crate::api::status::{Denial, LimitStatus, Statuses};
pub use crate::audit::{Audit, AuditCheck, Finding, Gravity};
pub use crate::code::{Code, UnknownCode};
pub use crate::engine::Reason;
pub use crate::limit::Clock;
pub use crate::limit::{
    Algorithm, BadSetting, CallLimit, Cooldown, Limit, Order, QueueOptions, RateLimit, Report, ResourceLimit,
};
pub use crate::pool::{
    AnyLimits, BadDescription, Balance, LimitPool, PoolDescription, PoolError, PoolSetStats, PoolStats,
    Sharing,
};
pub use crate::prefork::{
    ExitReason, Prefork, PreforkError, Report as PreforkReport, Restart, StartBy, Stopped, Supervisor,
    Worker, WorkerExit, WorkerOutcome,
};
pub use crate::protocol::Participant;
pub use crate::queue::{
    CollectFuture, DrainFuture, Finished, PushFuture, QueueError, QueueStats, TakeFuture, WorkItem, WorkQueue,
};
pub use crate::segment::error;
pub use crate::segment::{
    Listed, LockStatistics, Observer, ParticipantInfo, Segment, SegmentInfo, SegmentOptions, SemaphoreState,
};
pub use crate::shared::admin::Pause;
pub use crate::shared::error::{LockHolder, OnUnavailable, Unavailable};
pub use crate::shared::interrupt::Interrupt;
pub use crate::shared::stats::{CooldownStats, LimitStats, ParticipantStats, Stats};
pub use crate::shared::wait::Holder;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
