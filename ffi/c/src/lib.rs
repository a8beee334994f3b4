//! limitset for C, and for every language that can call C.
//!
//! It translates calls to the core and has no rules of its own. `include/limitset.h` is generated from these files and
//! is the manual; a test keeps it current. The files, in the order of the header:
//!
//! | | |
//! | --- | --- |
//! | `status` | the statuses that functions return |
//! | `handles`, `table` | handles are numbers; an invalid one is an error |
//! | `args`, `failure` | checks of pointers, texts and sizes from C; error messages, and panics as errors |
//! | `limit`, `builder`, `set` | define, open, change, remove |
//! | `request`, `recent`, `denial`, `interrupt` | acquire and charge, the reasons of a denial, ending a wait |
//! | `held` | report use, release, cancel |
//! | `pool`, `queue`, `stats` | several sets; work; a set at one instant |
//! | `version` | the version of the interface, and the message of the last error |
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(unreachable_pub, reason = "items of the header are public, and no Rust crate links this library")]
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
