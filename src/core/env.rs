//! What the protocol needs from its world: the machine, or a model checker.

use std::sync::atomic::Ordering;

/// What a participant waits for; the environment knows how long a slice of each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For a lock. Slices are short: a dead holder blocks everybody.
    Lock,
    /// For a doorbell. Slices are longer: only the return of what the dead held depends on them.
    Doorbell,
}

/// How a wait ended. Callers look again in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word had changed already, or for no reason at all.
    Woken,
    /// A slice passed, or the deadline: time to ask whether somebody died.
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
/// Words are handed back to the environment for each operation, so that a wrapper can count, weaken, drop
/// or kill any single one of them.
pub trait Env {
    /// A 32-bit word other participants see: locks and doorbells.
    type U32;
    /// A 64-bit word other participants see.
    type U64;
    /// How often to look at a busy lock again before sleeping, with rests in between.
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
    /// One half of a pair of fences, for the side that is in a hurry. Between a light fence and a heavy one it is as if both
    /// were sequentially consistent; between two light ones there is nothing.
    fn light_fence(&self);
    /// The other half, which may cost as much as a sleep does.
    fn heavy_fence(&self);
    /// A moment's rest between two looks at a word.
    fn pause(&self);
    /// A rest between two looks at a lock that others have, after so many looks. How long is the world's business: the longer,
    /// the more its holder gets done before the lines that it works on have to come over.
    fn rest(&self, looks: u32);

    /// Sleeps while `word` is `seen`, at most a slice and not beyond `deadline`.
    fn wait(&self, what: Waiting, word: &Self::U32, seen: u32, deadline: u64) -> Waited;
    /// Wakes one sleeper on `word`; false if there was none.
    fn wake_one(&self, word: &Self::U32) -> bool;
    /// Wakes all sleepers on `word`.
    fn wake_all(&self, word: &Self::U32);
    /// Frees a lock whose word is `mine`, with release ordering; false, and nothing has happened, if it is anything else.
    /// Nobody but its holder changes the word of a lock that is held: to look and then to store is as good as one step.
    fn free(&self, lock: &Self::U32, mine: u32) -> bool;
    /// Frees a lock that is held, with release ordering, and wakes sleepers on `doorbell`; false if there were none. One
    /// step: no death comes between the parts.
    fn free_and_wake(&self, lock: &Self::U32, doorbell: &Self::U32, wakes: Wakes) -> bool;

    /// True only if certainly no living participant owns the slot.
    ///
    /// The answer comes from the kernel and carries an acquire edge: whoever hears "free" sees everything
    /// the last owner ever wrote. When in doubt the answer is false.
    fn slot_is_free(&self, slot: u32) -> bool;
    /// Nanoseconds of the clock that deadlines are given in.
    fn now(&self) -> u64;
}
