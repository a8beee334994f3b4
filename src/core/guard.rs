//! The lock of a block, held: from the moment it is taken to the unlocking, which also wakes whom the holder has rung.

use std::sync::atomic::Ordering::Relaxed;

use super::block::{Bell, Block, Fault};
use super::env::{Env, Wakes};
use super::journal::{Progress, journal_words};
use super::owner::Participant;

/// The lock was taken: by whom and how. Nobody unlocks it before it has become a [guard](Self::guard).
#[must_use]
pub struct Taken {
    me: Participant,
    how: How,
}

/// How a lock was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Without a sleep.
    AtOnce,
    Waited,
    FromTheDead,
}

impl Taken {
    pub(super) fn new(me: Participant, how: How) -> Self {
        Self { me, how }
    }

    /// The guard of the block whose lock it is.
    #[inline(always)]
    pub fn guard<'a, E: Env>(self, block: &'a Block<'a, E>) -> Guard<'a, E> {
        let Self { me, how } = self;
        Guard {
            block,
            me,
            doorbell: None,
            locked: true,
            waited: how != How::AtOnce,
            stolen: how == How::FromTheDead,
        }
    }
}

/// The lock, held. Dropping it unlocks.
#[must_use]
pub struct Guard<'a, E: Env> {
    block: &'a Block<'a, E>,
    me: Participant,
    /// Whose sleepers unlocking will wake, and how many.
    doorbell: Option<(&'a E::U32, Wakes)>,
    locked: bool,
    waited: bool,
    stolen: bool,
}

impl<'a, E: Env> Guard<'a, E> {
    /// First act of every holder: makes the words whole.
    #[inline(always)]
    pub fn begin_whole(&mut self) -> Result<(), Fault> {
        let block = self.block;
        if self.stolen || journal_words(block.env.load64(block.change, Relaxed)) != 0 {
            block.recover(self.stolen)?;
        }
        if block.env.load64(block.closed, Relaxed) != 0 { Err(Fault::Closed) } else { Ok(()) }
    }

    /// What is locked.
    #[inline]
    pub fn block(&self) -> &'a Block<'a, E> {
        self.block
    }

    /// Who holds it.
    #[inline]
    pub fn holder(&self) -> Participant {
        self.me
    }

    /// Whether taking it took a sleep, so that what the clock said before is old.
    #[inline]
    pub fn has_waited(&self) -> bool {
        self.waited
    }

    /// Whether it was taken from the dead.
    #[inline]
    pub fn is_stolen(&self) -> bool {
        self.stolen
    }

    /// Adds to a statistic: a word that no journal restores.
    pub fn count(&mut self, index: usize, by: u64) -> Result<(), Fault> {
        let value = self.get(index)?;
        self.block.env.store64(self.block.word(index)?, value.wrapping_add(by), Relaxed);
        Ok(())
    }

    /// Value of word `index`.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Result<u64, Fault> {
        self.block.get(index)
    }

    /// Lets sleepers on the block's doorbell look again, as soon as this is unlocked.
    pub fn ring(&mut self) {
        if self.block.turn_doorbell() {
            self.wake_at_unlock(self.block.doorbell, Wakes::All);
        }
    }

    /// Changes another doorbell, and wakes its sleepers as soon as this is unlocked.
    pub fn ring_other(&mut self, bell: Bell) -> Result<(), Fault> {
        let doorbell = self.block.turn_other(bell)?;
        self.wake_at_unlock(doorbell, Wakes::All);
        Ok(())
    }

    /// Changes a doorbell that many share, and wakes one of its sleepers or all as soon as this is unlocked.
    pub fn ring_shared(&mut self, bell: Bell, wakes: Wakes) -> Result<(), Fault> {
        let doorbell = self.block.bell(bell)?;
        if self.block.turn_shared(doorbell, wakes) {
            self.wake_at_unlock(doorbell, wakes);
        }
        Ok(())
    }

    /// Wakes the sleepers on a doorbell that was changed, as soon as this is unlocked.
    fn wake_at_unlock(&mut self, doorbell: &'a E::U32, wakes: Wakes) {
        let Some((other, others)) = self.doorbell.replace((doorbell, wakes)) else { return };
        if !std::ptr::eq(other, doorbell) {
            // One step wakes on one doorbell. The sleepers on the other one meet a lock that is still held.
            self.block.wake(other, others);
        } else if others == Wakes::All {
            self.doorbell = Some((doorbell, others));
        }
    }

    /// Marks the segment as removed: every later lock of this block answers [`Fault::Closed`].
    pub fn close(&mut self) {
        self.block.close_unlocked();
    }

    /// Unlocks, and tells if something was wrong.
    #[inline]
    pub fn unlock(mut self) -> Result<(), Fault> {
        self.unlock_in_place()
    }

    /// The same for holders that cannot give the guard away; dropping it later does nothing more.
    #[inline(always)]
    pub fn unlock_in_place(&mut self) -> Result<(), Fault> {
        if !std::mem::take(&mut self.locked) {
            return Ok(());
        }
        // What is cold is handed values, and not the guard's address: so the guard need not have one.
        let block = self.block;
        if let Some((doorbell, wakes)) = self.doorbell.take() {
            return block.unlock_and_wake(self.me, doorbell, wakes);
        }
        block.free(self.me.word())
    }
}

impl<E: Env> Block<'_, E> {
    /// Frees the lock, which the participant holds whose word this is.
    #[inline(always)]
    pub(crate) fn free(&self, mine: u32) -> Result<(), Fault> {
        if !self.env.free(self.lock, mine) {
            return self.found_other_hands();
        }
        self.wake_a_sleeper();
        Ok(())
    }

    /// For a new holder: nothing was changed yet. None if there is something to make whole, or the segment is not in use any
    /// more.
    #[inline(always)]
    pub(crate) fn begin_if_whole(&self) -> Option<Progress<'_, E>> {
        let change = self.env.load64(self.change, Relaxed);
        let is_whole = journal_words(change) == 0 && self.env.load64(self.closed, Relaxed) == 0;
        is_whole.then(|| Progress::new(change, self.journal))
    }

    /// What has to follow when the lock was freed: wakes one of those who sleep for it, if there are any.
    #[inline(always)]
    fn wake_a_sleeper(&self) {
        self.env.light_fence();
        if self.env.load32(self.sleepers, Relaxed) != 0 {
            self.wake_one_sleeper();
        }
    }

    #[cold]
    fn wake_one_sleeper(&self) {
        // Whoever is about to sleep finds the word changed; whoever sleeps already may be woken. The one who is says again
        // that others sleep.
        self.env.store32(self.sleepers, 0, Relaxed);
        self.env.wake_one(self.sleepers);
    }

    /// Frees the lock and wakes the doorbell's sleepers in one step.
    #[cold]
    fn unlock_and_wake(&self, me: Participant, doorbell: &E::U32, wakes: Wakes) -> Result<(), Fault> {
        if self.env.load32(self.lock, Relaxed) != me.word() {
            self.wake(doorbell, wakes);
            return self.found_other_hands();
        }
        let is_heard = self.env.free_and_wake(self.lock, doorbell, wakes);
        self.wake_a_sleeper();
        if !is_heard && wakes == Wakes::One {
            self.unmark(doorbell);
        }
        Ok(())
    }

    /// The lock is in other hands than its holder's. Between that look and freeing the lock only somebody who was wrongly
    /// thought dead could lose it, which would be a defect elsewhere, and found there.
    #[cold]
    fn found_other_hands(&self) -> Result<(), Fault> {
        self.count(self.deposed);
        Err(Fault::Deposed)
    }
}

impl<E: Env> Drop for Guard<'_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        // A defect found here is in the `deposed` statistic; a destructor has nobody to tell.
        let _ = self.unlock_in_place();
    }
}
