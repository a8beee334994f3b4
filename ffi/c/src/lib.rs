//! limitset for C, and for every language that can call C.
//!
//! A translation of the core: it holds no rules of its own. `include/limitset.h` is made of these files and is the
//! manual; a test keeps it current. The files, in the order of the header:
//!
//! | | |
//! | --- | --- |
//! | `status` | what every function answers |
//! | `handles`, `table` | what C holds by number, and how a number that leads nowhere is an error |
//! | `args`, `failure` | pointers, texts and sizes from C; messages and panics to it |
//! | `limit`, `builder`, `set` | define, open, change, remove |
//! | `request`, `recent`, `denial`, `interrupt` | ask, be told why not, stop waiting |
//! | `held` | report use, release |
//! | `pool`, `queue`, `stats` | several sets; work; a set at one instant |
//! | `version` | which interface this is, and the words of the last error |
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(
    unreachable_pub,
    reason = "what the header shows is public, and nothing links this as a Rust library"
)]
#![warn(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("limitset needs a 64-bit machine: handles are 64-bit numbers");

mod abi;
mod args;
mod builder;
mod denial;
mod failure;
mod handles;
mod held;
mod interrupt;
mod limit;
mod pool;
mod queue;
mod recent;
mod request;
mod set;
mod stats;
mod status;
mod table;
mod version;
