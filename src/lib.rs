//! Limits that hold across processes.
#![deny(unsafe_code)]

pub mod core;
pub mod error;
mod layout;
