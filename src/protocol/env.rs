//! The environment of the protocol: the machine, or a model checker.

use std::sync::atomic::Ordering;

/// What a participant waits for. The environment knows the length of a slice of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For a lock. Slices are short: a dead holder blocks all other participants.
    Lock,
    /// For a doorbell. Slices are longer: only the sweep for dead participants depends on them.
    Doorbell,
}

/// How a wait ended. Callers check again in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word had changed already, or a spurious wake-up.
    Woken,
    /// A slice or the deadline passed: time to check for dead participants.
    SliceOver,
}

/// How many sleepers a ring wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// One; who it is does not matter.
    One,
    /// All.
    All,
}

/// The world of the protocol.
///
/// The protocol hands words back to the environment for each operation, so that a wrapper can count, weaken,
/// drop or kill any single one of them.
pub trait Env {
    /// A 32-bit word shared with other participants: locks and doorbells.
    type U32;
    /// A 64-bit word shared with other participants.
    type U64;
    /// How often a busy lock is polled before sleeping, with rests in between.
    const SPINS: u32;

    /// Atomic load.
    fn load32(&self, word: &Self::U32, order: Ordering) -> u32;
    /// Atomic store.
    fn store32(&self, word: &Self::U32, value: u32, order: Ordering);
    /// Atomic compare-and-exchange; relaxed when it fails.
    fn cas32(&self, word: &Self::U32, from: u32, to: u32, order: Ordering) -> Result<u32, u32>;
    /// Atomic load.
    fn load64(&self, word: &Self::U64, order: Ordering) -> u64;
    /// Atomic store.
    fn store64(&self, word: &Self::U64, value: u64, order: Ordering);
    /// Atomic compare-and-exchange; relaxed when it fails.
    fn cas64(&self, word: &Self::U64, from: u64, to: u64, order: Ordering) -> Result<u64, u64>;
    /// Memory fence.
    fn fence(&self, order: Ordering);
    /// The light fence of a pair, for the frequent side. A light fence and a heavy one together act as if
    /// both were sequentially consistent; two light fences order nothing.
    fn light_fence(&self);
    /// The heavy fence of a pair, which may cost as much as a sleep.
    fn heavy_fence(&self);
    /// Pauses for a moment between two polls of a word.
    fn pause(&self);
    /// Rests between two polls of a lock that another participant holds, after `looks` polls. The environment
    /// chooses the length: the longer the rest, the more the holder gets done before its cache lines have to
    /// move.
    fn rest(&self, looks: u32);

    /// Sleeps while `word` is `seen`, at most one slice and not beyond `deadline`.
    fn wait(&self, what: Waiting, word: &Self::U32, seen: u32, deadline: u64) -> Waited;
    /// Wakes one sleeper on `word`; false if there was none.
    fn wake_one(&self, word: &Self::U32) -> bool;
    /// Wakes all sleepers on `word`.
    fn wake_all(&self, word: &Self::U32);
    /// Frees a lock whose word is `mine`, with release ordering. Returns false, without a change, if the word
    /// is anything else. Only the holder changes the word of a held lock, so a load followed by a store is as
    /// good as one step.
    fn free(&self, lock: &Self::U32, mine: u32) -> bool;
    /// Frees a lock that is held, with release ordering, and wakes sleepers on `doorbell`; false if there were none. One
    /// step: no death comes between the parts.
    fn free_and_wake(&self, lock: &Self::U32, doorbell: &Self::U32, wakes: Wakes) -> bool;

    /// Returns true only if certainly no living participant owns the slot.
    ///
    /// The answer comes from the kernel and carries an acquire edge: a caller that gets "free" sees every
    /// write of the last owner. When in doubt the answer is false.
    fn slot_is_free(&self, slot: u32) -> bool;
    /// Returns the time in nanoseconds, by the clock of deadlines.
    fn now(&self) -> u64;
}
