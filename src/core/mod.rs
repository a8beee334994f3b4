//! The protocol: lock, journal, participants, holdings. Generic over its environment.
//!
//! Nothing here knows an operating system. The same source runs on the machine (`sys::machine`), and in
//! `loom-tests/` under a model checker that tries every interleaving and a crash at every step. It is public
//! for that purpose only: **not** covered by semantic versioning.
//!
//! ```text
//! env        what the protocol needs from its world
//! owner      who: participant, lock word
//! slots      enrolment: generations; who is certainly dead
//! block      lock + journal + words: lock, steal, unlock
//! guard      the lock, held; unlocking
//! journal    transactions: all or none, whoever dies when; recovery
//! snapshot   reading a block without its lock
//! sweep      which slots are asked about, and how often
//! holdings   who holds how much; returning what the dead held
//! semaphore  permits that outlive nobody
//! ```
//!
//! Everything read from shared words is somebody else's bytes: indices are checked at each use, arithmetic
//! saturates or is checked, loops are bounded by counts fixed at creation.

pub mod block;
pub mod env;
pub mod guard;
pub mod holdings;
pub mod journal;
pub mod owner;
pub mod semaphore;
pub mod slots;
pub mod snapshot;
pub mod sweep;

pub use block::{Bell, Block, Fault, Locked, Until};
pub use env::{Env, Waited, Waiting, Wakes};
pub use guard::{Guard, Taken};
pub use holdings::Holdings;
pub(crate) use journal::Progress;
pub use journal::Transaction;
pub use owner::Participant;
pub use semaphore::{Semaphore, Take};
pub use slots::Slots;
pub use sweep::Reach;

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;
/// A deadline that has passed: do not wait.
pub const AT_ONCE: u64 = 0;
