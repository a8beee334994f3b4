//! A block: one lock, one journal, and the words they guard.
//!
//! The lock is this project's own futex word, because none of the ready-made process-shared ones survives a
//! kill in all cases. The rules:
//!
//! * Taking it is one compare-and-exchange from free to "me" (see [`owner`](super::owner)).
//! * Every sleep is timed. A woken sleeper may be killed before it takes the lock, and would otherwise leave
//!   the rest asleep for ever.
//! * After a slice a waiter asks whether the holder is dead, and steals by compare-and-exchange from exactly
//!   the word it judged. Time alone never justifies a steal.
//! * Whoever takes the lock and finds journal entries rolls them back before anything else.
//! * Unlocking is a store: nobody else changes the word of a lock that is held, unless its holder is dead. Anything but
//!   "me" there before it means that somebody was wrongly thought dead: that is [`Fault::Deposed`], a defect to report,
//!   and is counted.
//! * Whoever is about to sleep says so and then looks at the lock once more; whoever unlocks looks afterwards whether
//!   somebody sleeps. The fences in between are a [pair](Env::light_fence): one of the two sees the other.
//! * Whoever changes a doorbell under the lock wakes its sleepers by unlocking, in one step: any earlier, they would
//!   find the lock taken; any later, a death in between would leave them asleep.
//!
//! Never here: a sleep while holding the lock; a steal without proof of death.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::env::{Env, Waited, Waiting, Wakes};
use super::guard::{Guard, How, Taken};
use super::owner::{Participant, slot_of};
use super::slots::Slots;

/// Why something could not be done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The deadline passed while a living participant held the lock.
    Busy {
        /// Its slot.
        slot: u32,
    },
    /// The segment was removed.
    Closed,
    /// The journal names more entries than it has, or words that do not exist.
    DamagedJournal {
        /// The length, word index or description found.
        found: u64,
        /// The largest possible one.
        most: u64,
    },
    /// A word outside the block was asked for.
    OutOfRange {
        /// The index asked for.
        index: usize,
        /// How many words there are.
        words: usize,
    },
    /// One transaction changed more words than the journal can undo.
    TooManyChanges {
        /// How many it can.
        most: usize,
    },
    /// The lock was in other hands when it should have been ours.
    Deposed,
}

/// The shared words of a block, with the world they live in.
pub struct Block<'a, E: Env> {
    /// The world.
    pub env: &'a E,
    /// Who could hold the lock.
    pub slots: Slots<'a, E>,
    /// The lock word.
    pub lock: &'a E::U32,
    /// Whether somebody may be asleep for the lock; what they sleep on.
    pub sleepers: &'a E::U32,
    /// Rung when something was given back; see [`Semaphore`](super::Semaphore).
    pub doorbell: &'a E::U32,
    /// Whether something is being changed, and how much was; see [`journal`](super::journal).
    pub change: &'a E::U64,
    /// Not 0: the segment was removed.
    pub closed: &'a E::U64,
    /// When the dead were last looked for.
    pub last_sweep: &'a E::U64,
    /// How long the last sweep took; see [`sweep`](super::sweep).
    pub sweep_cost: &'a E::U64,
    /// The slot that the last sweep ended at.
    pub sweep_cursor: &'a E::U64,
    /// Statistics: locks taken from the dead.
    pub steals: &'a E::U64,
    /// Statistics: half-done updates undone.
    pub rollbacks: &'a E::U64,
    /// Statistics: unlocks that found the lock in other hands.
    pub deposed: &'a E::U64,
    /// Old values of words that are being changed.
    pub journal: &'a [E::U64],
    /// What the lock guards.
    pub words: &'a [E::U64],
    /// Where the doorbells are that unlocking may ring, besides its own: of waiters, of participants, and those that many
    /// share (of a work queue).
    pub bells: [&'a [E::U32]; 3],
}

/// A doorbell besides the block's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// The word with this index among the waiters'.
    Waiter(usize),
    /// The same among the participants'.
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

/// Until when to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// An instant of the clock of deadlines; [`NEVER`](super::NEVER) and [`AT_ONCE`](super::AT_ONCE) are such.
    At(u64),
    /// So many nanoseconds from when the waiting begins: who need not wait need not read the clock.
    Within(u64),
}

impl Until {
    /// The instant, if the waiting begins now.
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

/// What locking found. Both arms hold the lock, and in both the words are whole.
#[must_use]
pub enum Locked<'a, E: Env> {
    /// The last holder unlocked in order.
    Clean(Guard<'a, E>),
    /// The last holder died inside; what it had begun was undone.
    OwnerDied(Guard<'a, E>),
}

impl<'a, E: Env> Locked<'a, E> {
    /// The guard, for those to whom the difference is nothing: all they guard is in the block.
    #[inline]
    pub fn guard(self) -> Guard<'a, E> {
        match self {
            Self::Clean(guard) | Self::OwnerDied(guard) => guard,
        }
    }
}

impl<'a, E: Env> Block<'a, E> {
    /// The same block seen through another environment: one that counts operations, or spoils one.
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

    /// A doorbell besides its own, if there is such.
    pub fn bell(&self, bell: Bell) -> Result<&'a E::U32, Fault> {
        let [waiters, participants, shared] = self.bells;
        let (words, index) = match bell {
            Bell::Waiter(index) => (waiters, index),
            Bell::Participant(index) => (participants, index),
            Bell::Shared(index) => (shared, index),
        };
        words.get(index).ok_or_else(|| out_of_range(index, words.len()))
    }

    /// Takes the lock, waiting as long as it says. A deadline of [`AT_ONCE`](super::AT_ONCE) only tries, but
    /// still steals from the dead.
    pub fn lock(&'a self, me: Participant, until: impl Into<Until>) -> Result<Locked<'a, E>, Fault> {
        let mut guard = self.take(me, until.into())?.guard(self);
        guard.begin_whole()?;
        Ok(if guard.is_stolen() { Locked::OwnerDied(guard) } else { Locked::Clean(guard) })
    }

    /// Takes the lock, and nothing else: [`Taken::guard`] and [`Guard::begin_whole`] have to follow. For those who are in
    /// a hurry: a guard that is handed on within results costs more than the lock.
    #[inline(always)]
    pub fn take(&self, me: Participant, until: Until) -> Result<Taken, Fault> {
        if self.take_free(me.word()) { Ok(Taken::new(me, How::AtOnce)) } else { self.take_held(me, until) }
    }

    /// Takes the lock if it is free, for the participant whose word this is, and nothing else: for those who
    /// [free](Self::free) it themselves, come what may.
    #[inline(always)]
    pub(crate) fn take_free(&self, mine: u32) -> bool {
        // Releasing too: whoever reads our name here must also see the generation it belongs to.
        self.env.cas32(self.lock, 0, mine, AcqRel).is_ok()
    }

    /// Takes a lock that somebody had a moment ago.
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
                // Whoever woke us woke nobody else, and others may still sleep.
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
                // Said before we sleep; and before we give up, since the wake that ended our sleep may have been the only
                // one. Either whoever frees the lock sees this, or we see that it is free.
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
                    // Whoever has the lock may be stopped for ever, and there is nothing left to guard. Other sleepers
                    // find the same when their slice is over.
                    return Err(Fault::Closed);
                }
                // Judge the word that is there now, and take exactly that one. Acquire: with a generation from
                // before its owner's enrolment a living holder would look dead.
                let holder = env.load32(self.lock, Acquire);
                if slot_of(holder) != 0 && self.slots.is_word_dead(holder) {
                    if env.cas32(self.lock, holder, mine, AcqRel).is_ok() {
                        // The dead may have been about to wake somebody.
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

    /// Word `index`, if there is one.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> Result<&'a E::U64, Fault> {
        match self.words.get(index) {
            Some(word) => Ok(word),
            None => Err(self.out_of_range(index)),
        }
    }

    /// Value of word `index`, for whoever holds the lock.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Result<u64, Fault> {
        Ok(self.env.load64(self.word(index)?, Relaxed))
    }

    /// `N` words from `index` on, if there are so many.
    #[inline(always)]
    pub(crate) fn row<const N: usize>(&self, index: usize) -> Option<&'a [E::U64; N]> {
        self.words.get(index..)?.first_chunk()
    }

    /// Their values, for whoever holds the lock.
    #[inline(always)]
    pub(crate) fn values<const N: usize>(&self, row: &[E::U64; N]) -> [u64; N] {
        row.each_ref().map(|word| self.env.load64(word, Relaxed))
    }

    /// Apart, so that what never happens takes no room where everything happens.
    #[cold]
    pub(crate) fn out_of_range(&self, index: usize) -> Fault {
        out_of_range(index, self.words.len())
    }

    /// Changes the doorbell; true if somebody may sleep on it. Bit 0 says that; the rest counts changes.
    pub(crate) fn turn_doorbell(&self) -> bool {
        let mut seen = self.env.load32(self.doorbell, Relaxed);
        // The sleepers' bit is set without the lock, hence the loop; each turn of it is somebody's progress.
        while let Err(now) = self.env.cas32(self.doorbell, seen, (seen & !1).wrapping_add(2), Release) {
            seen = now;
        }
        seen & 1 != 0
    }

    /// Changes another doorbell.
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

    /// Marks the segment as removed, without the lock: for when its name was taken away by a stranger. The
    /// mark only ever goes one way and guards no words, so it needs none.
    pub fn close_unlocked(&self) {
        self.env.store64(self.closed, 1, Relaxed);
        // Either a waiter that is about to sleep sees the mark, or whoever rings after this sees the waiter. Whether the
        // sleepers' bit is set does not count: a holder who has rung, and wakes at its unlocking, may be stopped.
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
