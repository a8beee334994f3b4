//! A block: one lock, one journal, and the words they guard.
//!
//! The lock is a futex word of this project's own, because none of the ready-made process-shared locks
//! survives a kill in all cases. The rules:
//!
//! * Taking it is one compare-and-exchange from free to "me" (see [`owner`](super::owner)).
//! * Every sleep is timed. A woken sleeper may be killed before it takes the lock, and would otherwise leave
//!   the rest asleep forever.
//! * After a slice, a waiter checks whether the holder is dead, and steals by compare-and-exchange from
//!   exactly the word it checked. Time alone never justifies a steal.
//! * A process that takes the lock rolls back any journal entries first.
//! * Unlocking is a store: only the holder changes the word of a held lock, unless the holder is dead. If the
//!   unlocker finds another word, it was wrongly considered dead: that is [`Fault::Deposed`], a defect to
//!   report, and is counted.
//! * A process that is about to sleep sets the sleepers word and then checks the lock once more; an unlocker
//!   checks the sleepers word afterwards. The fences in between are a [pair](Env::light_fence): at least one
//!   of the two processes sees the other.
//! * A lock holder that changes a doorbell wakes its sleepers by unlocking, in one step: any earlier, they
//!   would find the lock taken; any later, a death in between would leave them asleep.
//!
//! Never here: a sleep while holding the lock; a steal without proof of death.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::env::{Env, Waited, Waiting, Wakes};
use super::guard::{Guard, How, Taken};
use super::owner::{Participant, slot_of};
use super::slots::Slots;

/// Why an operation on a block failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The deadline passed while a living participant held the lock.
    Busy {
        /// The holder's slot.
        slot: u32,
    },
    /// The segment was removed.
    Closed,
    /// The journal names more entries than it has, or words that do not exist.
    DamagedJournal {
        /// The length, word index or description found.
        found: u64,
        /// The largest valid one.
        most: u64,
    },
    /// The index is outside of the block.
    OutOfRange {
        /// The index requested.
        index: usize,
        /// The number of words in the block.
        words: usize,
    },
    /// One transaction changed more words than the journal can undo.
    TooManyChanges {
        /// The number of words that the journal can undo.
        most: usize,
    },
    /// Another participant held the lock when the caller should have held it.
    Deposed,
}

/// The shared words of a block, with their environment.
pub struct Block<'a, E: Env> {
    /// The environment.
    pub env: &'a E,
    /// The slots of the possible lock holders.
    pub slots: Slots<'a, E>,
    /// The lock word.
    pub lock: &'a E::U32,
    /// Whether a process may be asleep for the lock; sleepers wait on this word.
    pub sleepers: &'a E::U32,
    /// Rung when permits were returned; see [`Semaphore`](super::Semaphore).
    pub doorbell: &'a E::U32,
    /// Whether a change is in progress, and the number of changes; see [`journal`](super::journal).
    pub change: &'a E::U64,
    /// Not 0: the segment was removed.
    pub closed: &'a E::U64,
    /// The instant of the last sweep for dead participants.
    pub last_sweep: &'a E::U64,
    /// How long the last sweep took; see [`sweep`](super::sweep).
    pub sweep_cost: &'a E::U64,
    /// The slot that the last sweep ended at.
    pub sweep_cursor: &'a E::U64,
    /// Statistics: locks taken from the dead.
    pub steals: &'a E::U64,
    /// Statistics: unfinished transactions rolled back.
    pub rollbacks: &'a E::U64,
    /// Statistics: unlocks that found another holder in the lock.
    pub deposed: &'a E::U64,
    /// Old values of the words that are being changed.
    pub journal: &'a [E::U64],
    /// The words that the lock guards.
    pub words: &'a [E::U64],
    /// Where the doorbells are that unlocking may ring, besides its own: of waiters, of participants, and those that many
    /// share (of a work queue).
    pub bells: [&'a [E::U32]; 3],
}

/// A doorbell besides the block's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// The doorbell with this index among those of waiters.
    Waiter(usize),
    /// The doorbell with this index among those of participants.
    Participant(usize),
    /// The same among those that many share. Bit 0 of such a word says that somebody may sleep on it; the rest counts
    /// changes.
    Shared(usize),
}

impl<E: Env> Clone for Block<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Block<'_, E> {}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until an instant by the clock of deadlines; [`NEVER`](super::NEVER) and [`AT_ONCE`](super::AT_ONCE)
    /// are such instants.
    At(u64),
    /// For this many nanoseconds from the start of the wait. A caller that does not have to wait does not
    /// read the clock.
    Within(u64),
}

impl Until {
    /// Returns the deadline of a wait that starts now.
    fn instant(self, env: &impl Env) -> u64 {
        match self {
            Self::At(instant) => instant,
            Self::Within(nanos) => env.now().saturating_add(nanos),
        }
    }
}

impl From<u64> for Until {
    fn from(instant: u64) -> Self {
        Self::At(instant)
    }
}

/// The result of locking. Both variants hold the lock, and in both the words are consistent.
#[must_use]
pub enum Locked<'a, E: Env> {
    /// The last holder unlocked normally.
    Clean(Guard<'a, E>),
    /// The last holder died with the lock; its unfinished transaction was rolled back.
    OwnerDied(Guard<'a, E>),
}

impl<'a, E: Env> Locked<'a, E> {
    /// Returns the guard, for callers that do not care whether the owner died: all they guard is in the
    /// block.
    #[inline]
    pub fn guard(self) -> Guard<'a, E> {
        match self {
            Self::Clean(guard) | Self::OwnerDied(guard) => guard,
        }
    }
}

impl<'a, E: Env> Block<'a, E> {
    /// Returns this block in another environment, for example one that counts operations or tampers with one.
    pub fn with_env<F: Env<U32 = E::U32, U64 = E::U64>>(self, env: &'a F) -> Block<'a, F> {
        let Self { lock, sleepers, doorbell, change, closed, .. } = self;
        let Self { last_sweep, sweep_cost, sweep_cursor, .. } = self;
        let Self { steals, rollbacks, deposed, journal, words, bells, .. } = self;
        Block {
            env,
            slots: self.slots.with_env(env),
            lock,
            sleepers,
            doorbell,
            change,
            closed,
            last_sweep,
            sweep_cost,
            sweep_cursor,
            steals,
            rollbacks,
            deposed,
            journal,
            words,
            bells,
        }
    }

    /// Returns a doorbell other than the block's own, if it exists.
    pub fn bell(&self, bell: Bell) -> Result<&'a E::U32, Fault> {
        let [waiters, participants, shared] = self.bells;
        let (words, index) = match bell {
            Bell::Waiter(index) => (waiters, index),
            Bell::Participant(index) => (participants, index),
            Bell::Shared(index) => (shared, index),
        };
        words.get(index).ok_or_else(|| out_of_range(index, words.len()))
    }

    /// Takes the lock, waiting until `until`. A deadline of [`AT_ONCE`](super::AT_ONCE) only tries, but still
    /// steals from a dead holder.
    pub fn lock(&'a self, me: Participant, until: impl Into<Until>) -> Result<Locked<'a, E>, Fault> {
        let mut guard = self.take(me, until.into())?.guard(self);
        guard.begin_whole()?;
        Ok(if guard.is_stolen() { Locked::OwnerDied(guard) } else { Locked::Clean(guard) })
    }

    /// Takes the lock without recovery: [`Taken::guard`] and [`Guard::begin_whole`] must follow. For hot
    /// paths: a guard that is passed on within results costs more than the lock.
    #[inline(always)]
    pub fn take(&self, me: Participant, until: Until) -> Result<Taken, Fault> {
        if self.take_free(me.word()) { Ok(Taken::new(me, How::AtOnce)) } else { self.take_held(me, until) }
    }

    /// Takes the lock if it is free, for the participant with this lock word, without recovery. The caller
    /// must [free](Self::free) it on every path.
    #[inline(always)]
    pub(crate) fn take_free(&self, mine: u32) -> bool {
        // Release too: a process that reads our name here must also see the generation it belongs to.
        self.env.cas32(self.lock, 0, mine, AcqRel).is_ok()
    }

    /// Takes a lock that was held a moment ago.
    #[cold]
    fn take_held(&self, me: Participant, until: Until) -> Result<Taken, Fault> {
        let env = self.env;
        let mine = me.word();
        let mut looks = 0;
        let mut deadline = None;
        let mut has_slept = false;
        loop {
            let seen = env.load32(self.lock, Relaxed);
            if slot_of(seen) == 0 {
                if env.cas32(self.lock, seen, mine, AcqRel).is_err() {
                    continue;
                }
                if !has_slept {
                    return Ok(Taken::new(me, How::AtOnce));
                }
                // The unlocker woke only this process, and others may still sleep.
                env.store32(self.sleepers, 1, Relaxed);
                return Ok(Taken::new(me, How::Waited));
            }
            if looks < E::SPINS {
                env.rest(looks);
                looks += 1;
                continue;
            }
            let deadline = *deadline.get_or_insert_with(|| until.instant(env));
            let late = deadline != super::NEVER && env.now() >= deadline;
            if has_slept || !late {
                // Set before sleeping, and before giving up, since the wake-up that ended this sleep may have
                // been the only one. Either the unlocker sees this word, or this process sees that the lock
                // is free.
                env.store32(self.sleepers, 1, Relaxed);
                env.heavy_fence();
                if slot_of(env.load32(self.lock, Relaxed)) == 0 {
                    continue;
                }
            }
            let waited = if late {
                Waited::SliceOver
            } else {
                has_slept = true;
                env.wait(Waiting::Lock, self.sleepers, 1, deadline)
            };
            if waited == Waited::SliceOver {
                if env.load64(self.closed, Relaxed) != 0 {
                    // The holder may be stopped forever, and there is nothing left to guard. Other sleepers
                    // find the same when their slice is over.
                    return Err(Fault::Closed);
                }
                // Check the present word, and take exactly that one. Acquire: with a generation from before
                // its owner's enrolment, a living holder would look dead.
                let holder = env.load32(self.lock, Acquire);
                if slot_of(holder) != 0 && self.slots.is_word_dead(holder) {
                    if env.cas32(self.lock, holder, mine, AcqRel).is_ok() {
                        // A dead holder may have owed a wake-up.
                        env.store32(self.sleepers, 1, Relaxed);
                        return Ok(Taken::new(me, How::FromTheDead));
                    }
                } else if late && slot_of(holder) != 0 {
                    return Err(Fault::Busy { slot: slot_of(holder) });
                }
            }
        }
    }

    /// Adds one to a statistic; only under the lock, hence no read-modify-write.
    pub(crate) fn count(&self, statistic: &E::U64) {
        let value = self.env.load64(statistic, Relaxed);
        self.env.store64(statistic, value.wrapping_add(1), Relaxed);
    }

    /// Returns word `index`, if it exists.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> Result<&'a E::U64, Fault> {
        match self.words.get(index) {
            Some(word) => Ok(word),
            None => Err(self.out_of_range(index)),
        }
    }

    /// Returns the value of word `index`. For the lock holder only.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Result<u64, Fault> {
        Ok(self.env.load64(self.word(index)?, Relaxed))
    }

    /// Returns `N` words from `index` on, if they exist.
    #[inline(always)]
    pub(crate) fn row<const N: usize>(&self, index: usize) -> Option<&'a [E::U64; N]> {
        self.words.get(index..)?.first_chunk()
    }

    /// Returns the values of a row. For the lock holder only.
    #[inline(always)]
    pub(crate) fn values<const N: usize>(&self, row: &[E::U64; N]) -> [u64; N] {
        row.each_ref().map(|word| self.env.load64(word, Relaxed))
    }

    /// Cold path, kept out of line.
    #[cold]
    pub(crate) fn out_of_range(&self, index: usize) -> Fault {
        out_of_range(index, self.words.len())
    }

    /// Changes the doorbell; returns true if a process may sleep on it. Bit 0 says so; the other bits count
    /// changes.
    pub(crate) fn turn_doorbell(&self) -> bool {
        let mut seen = self.env.load32(self.doorbell, Relaxed);
        // Waiters set the sleepers' bit without the lock, hence the loop; each retry means that a waiter made
        // progress.
        while let Err(now) = self.env.cas32(self.doorbell, seen, (seen & !1).wrapping_add(2), Release) {
            seen = now;
        }
        seen & 1 != 0
    }

    /// Changes a doorbell other than the block's own.
    pub(super) fn turn_other(&self, bell: Bell) -> Result<&'a E::U32, Fault> {
        let doorbell = self.bell(bell)?;
        let mut seen = self.env.load32(doorbell, Relaxed);
        while let Err(now) = self.env.cas32(doorbell, seen, seen.wrapping_add(1), Release) {
            seen = now;
        }
        Ok(doorbell)
    }

    /// Changes a doorbell that many share; true if somebody may sleep on it. The mark that says so stays when one sleeper
    /// is woken, because others may sleep on.
    pub(super) fn turn_shared(&self, doorbell: &E::U32, wakes: Wakes) -> bool {
        let kept = if wakes == Wakes::One { u32::MAX } else { !1 };
        let mut seen = self.env.load32(doorbell, Relaxed);
        while let Err(now) = self.env.cas32(doorbell, seen, (seen & kept).wrapping_add(2), Release) {
            seen = now;
        }
        seen & 1 != 0
    }

    /// Wakes sleepers on a doorbell that was changed.
    pub(super) fn wake(&self, doorbell: &E::U32, wakes: Wakes) {
        match wakes {
            Wakes::All => self.env.wake_all(doorbell),
            Wakes::One => {
                if !self.env.wake_one(doorbell) {
                    self.unmark(doorbell);
                }
            }
        }
    }

    /// Takes back the mark that somebody sleeps on a doorbell, after a wake that met no sleeper. A sleeper that came in
    /// between is woken, and marks the doorbell again.
    #[cold]
    pub(super) fn unmark(&self, doorbell: &E::U32) {
        if self.turn_shared(doorbell, Wakes::All) {
            self.env.wake_all(doorbell);
        }
    }

    /// Rings a doorbell that many share, without the lock or before it is freed.
    pub(crate) fn ring_shared(&self, bell: Bell, wakes: Wakes) -> Result<(), Fault> {
        let doorbell = self.bell(bell)?;
        if self.turn_shared(doorbell, wakes) {
            self.wake(doorbell, wakes);
        }
        Ok(())
    }

    /// The same after the death of a participant that may have changed the doorbell and owed the wake-up: what the mark
    /// says does not count.
    pub(crate) fn ring_shared_again(&self, bell: Bell, wakes: Wakes) -> Result<(), Fault> {
        let doorbell = self.bell(bell)?;
        self.turn_shared(doorbell, wakes);
        self.wake(doorbell, wakes);
        Ok(())
    }

    /// Lets sleepers on another doorbell look again.
    pub(crate) fn ring_other(&self, bell: Bell) -> Result<(), Fault> {
        self.env.wake_all(self.turn_other(bell)?);
        Ok(())
    }

    /// Marks the segment as removed, without the lock: for a segment whose name another program
    /// removed. The mark is never cleared and guards no words, so it needs no lock.
    pub fn close_unlocked(&self) {
        self.env.store64(self.closed, 1, Relaxed);
        // Either a waiter that is about to sleep sees the mark, or the ring below wakes the waiter. The
        // sleepers' bit does not matter: a holder that has rung, and would wake the sleepers when it unlocks,
        // may be stopped.
        self.env.fence(SeqCst);
        self.turn_doorbell();
        self.env.wake_all(self.doorbell);
        let [_, _, shared] = self.bells;
        for doorbell in shared {
            self.turn_shared(doorbell, Wakes::All);
            self.env.wake_all(doorbell);
        }
    }
}

fn out_of_range(index: usize, words: usize) -> Fault {
    Fault::OutOfRange { index, words }
}
