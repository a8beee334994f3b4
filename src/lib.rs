//! Limits that hold across processes.
#![deny(unsafe_code)]

pub mod core;
pub mod error;
mod layout;
mod segment;
pub mod sync;
#[allow(unsafe_code)]
mod sys;

pub use segment::{Listed, LockStatistics, Observer, ParticipantInfo, Segment, SegmentInfo, SegmentOptions, SemaphoreState};
