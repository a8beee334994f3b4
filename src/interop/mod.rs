//! Interoperation with other crates, for programs that already use them. Each part needs its feature; all of them are
//! off by default.
//!
//! | feature | provides |
//! | --- | --- |
//! | `shared_memory` | `SegmentOptions::adopt` makes a segment of a mapping that the program made with that crate |
//! | `raw_sync` | `CrashProofEvent`, an event with that crate's event traits that no killed user can break |
//!
//! `raw_sync`'s lock traits cannot be implemented outside that crate, because only it can make their guards. Use
//! [`SharedMutex`](crate::sync::SharedMutex) instead, in an adopted mapping if necessary: when the holder of a
//! `raw_sync` mutex is killed, its waiters wait for ever.

#[cfg(feature = "shared_memory")]
mod mapping;

#[cfg(feature = "raw_sync")]
pub use crate::sys::raw_event::{CrashProofEvent, EventError};
