//! Transactions: several words change together or not at all, even if the writer dies at any instruction.
//!
//! Each block has an undo journal. Before a transaction changes words, it appends their old values and their
//! indices to the journal, and then raises the journal's length:
//!
//! ```text
//! entry = old values, indices       not yet visible
//! journal longer by the entry       from here on recovery restores the words …
//! words = new values                … to their old values
//!   … any number of entries …
//! journal empty                     the commit point: one store
//! ```
//!
//! One word holds the length of the journal and the number of changes:
//!
//! | bits of `change` | meaning                                                          |
//! | ---------------- | ---------------------------------------------------------------- |
//! | 0-15             | words of the journal in use; 0: no change is in progress         |
//! | 16-63            | number of changes made or undone; wraps around                   |
//!
//! An entry ends with the word that describes it, so that a journal is read backwards:
//!
//! | bits of a description | meaning                        |
//! | --------------------- | ------------------------------ |
//! | 0-31                  | index of the first word        |
//! | 32-63                 | number of words, from 1        |
//!
//! A process that takes the lock and finds a journal that is not empty undoes the entries, last first, so
//! that a word that was changed twice ends with its first value. Undoing is idempotent, because the
//! recovering process may be killed too.
//!
//! A journalled word is never written, nor acted upon, without the lock. The release stores keep the order
//! above also for an observer without the lock, on machines that reorder stores.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::block::{Block, Fault};
use super::env::Env;
use super::guard::Guard;
use super::owner::Participant;

/// The largest number of words in a journal, so that the length fits its bits.
pub(crate) const MAX_JOURNAL_WORDS: usize = 0xffff;
const LENGTH_MASK: u64 = MAX_JOURNAL_WORDS as u64;

/// Returns the number of journal words in use according to `change`; 0 if no change is in progress.
#[inline]
pub fn journal_words(change: u64) -> u64 {
    change & LENGTH_MASK
}

/// Returns the value of `change` after the change is made or undone.
#[inline]
fn ended(change: u64) -> u64 {
    (change | LENGTH_MASK).wrapping_add(1)
}

/// Returns the description of an entry.
#[inline]
pub fn description(index: usize, count: usize) -> u64 {
    index as u64 | (count as u64) << 32
}

/// Changes that become visible together. Dropping it without [`commit`](Self::commit) undoes them.
#[must_use]
pub struct Transaction<'g, 'a, E: Env> {
    guard: &'g mut Guard<'a, E>,
    /// The progress of the transaction.
    pub(crate) progress: Progress<'a, E>,
}

/// The progress of a transaction. A value, so that it can be passed back and forth in registers.
pub(crate) struct Progress<'a, E: Env> {
    /// The value of the block's `change` word.
    change: u64,
    /// The unused part of the journal.
    room: &'a [E::U64],
}

impl<E: Env> Clone for Progress<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Progress<'_, E> {}

impl<'a, E: Env> Guard<'a, E> {
    /// Starts a transaction. Only one can be open, since it borrows the guard.
    #[inline(always)]
    pub fn begin(&mut self) -> Transaction<'_, 'a, E> {
        let progress = Progress::begin(self.block());
        Transaction { guard: self, progress }
    }
}

impl<'a, E: Env> Transaction<'_, 'a, E> {
    /// Returns the lock holder, which makes the changes.
    #[inline]
    pub fn holder(&self) -> Participant {
        self.guard.holder()
    }

    /// Returns the value of word `index`, with the changes made so far.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Result<u64, Fault> {
        self.guard.get(index)
    }

    /// Returns the locked block.
    #[inline]
    pub fn block(&self) -> &'a Block<'a, E> {
        self.guard.block()
    }

    /// Adds to word `index`, and returns its value before.
    #[inline(always)]
    pub fn add(&mut self, index: usize, by: u64) -> Result<u64, Fault> {
        let before = self.get(index)?;
        self.set(index, before.wrapping_add(by))?;
        Ok(before)
    }

    /// Sets word `index`. A word that has the value already is not journalled.
    #[inline(always)]
    pub fn set(&mut self, index: usize, value: u64) -> Result<(), Fault> {
        if self.get(index)? == value {
            return Ok(());
        }
        self.set_row(index, [value])
    }

    /// Sets all `N` words from `index` on, at less cost than [`set`](Self::set) for each.
    #[inline(always)]
    pub fn set_row<const N: usize>(&mut self, index: usize, values: [u64; N]) -> Result<(), Fault> {
        let block = self.guard.block();
        let Some(row) = block.row(index) else { return Err(block.out_of_range(index)) };
        match self.progress.change(block, index, row, block.values(row), values) {
            Some(()) => Ok(()),
            None => Err(too_many_changes(block.journal.len() / 2)),
        }
    }

    /// Commits the changes, with one store.
    #[inline(always)]
    pub fn commit(mut self) {
        self.progress.commit(self.guard.block());
    }
}

impl<'a, E: Env> Progress<'a, E> {
    /// Starts without any changes.
    #[inline(always)]
    pub(crate) fn begin(block: &Block<'a, E>) -> Self {
        Self::new(block.env.load64(block.change, Relaxed) & !LENGTH_MASK, block.journal)
    }

    #[inline(always)]
    pub(super) fn new(change: u64, journal: &'a [E::U64]) -> Self {
        Self { change, room: journal }
    }

    /// Commits the changes, with one store.
    #[inline(always)]
    pub(crate) fn commit(&mut self, block: &Block<'_, E>) {
        if self.is_under_way() {
            self.change = ended(self.change);
            block.env.store64(block.change, self.change, Release);
        }
    }

    /// Undoes the changes.
    #[inline(always)]
    pub(crate) fn abandon(&self, block: &Block<'_, E>) {
        if self.is_under_way() {
            // These entries are our own, so they are not damaged, short of a stray write of another process;
            // the next holder would then find the damage and report it.
            let _ = block.undo();
        }
    }

    /// Returns whether anything was changed.
    #[inline(always)]
    fn is_under_way(&self) -> bool {
        journal_words(self.change) != 0
    }

    /// Changes the row at `index`, whose old values the caller has read; none if there are too many changes.
    #[inline(always)]
    pub(crate) fn change<const N: usize>(
        &mut self,
        block: &Block<'_, E>,
        index: usize,
        row: &[E::U64; N],
        old: [u64; N],
        values: [u64; N],
    ) -> Option<()> {
        let env = block.env;
        let (saved, [describes, room @ ..]) = self.room.split_first_chunk::<N>()? else {
            return None;
        };
        self.room = room;
        for (saved, old) in saved.iter().zip(old) {
            env.store64(saved, old, Relaxed);
        }
        env.store64(describes, description(index, N), Relaxed);
        self.change += N as u64 + 1;
        // Release: a reader that sees the change in progress must also see the lock holder.
        env.store64(block.change, self.change, Release);
        for (word, value) in row.iter().zip(values) {
            // Release: a reader that sees the new word must also see that a change is in progress.
            env.store64(word, value, Release);
        }
        Some(())
    }
}

impl<E: Env> Drop for Transaction<'_, '_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        self.progress.abandon(self.guard.block());
    }
}

impl<E: Env> Block<'_, E> {
    /// Recovers the block after a death: rolls back the journal, and wakes all sleepers.
    #[cold]
    pub(super) fn recover(&self, stolen: bool) -> Result<(), Fault> {
        if stolen {
            self.count(self.steals);
        }
        if journal_words(self.env.load64(self.change, Relaxed)) != 0 {
            self.undo()?;
            self.count(self.rollbacks);
        }
        // The holder may have died between returning permits and ringing, or between clearing the sleepers'
        // bit and waking the sleepers. So the bit is ignored here.
        self.turn_doorbell();
        self.env.wake_all(self.doorbell);
        Ok(())
    }

    /// Restores the words that the journal names, last entry first, and empties the journal.
    #[cold]
    fn undo(&self) -> Result<(), Fault> {
        let env = self.env;
        let change = env.load64(self.change, Relaxed);
        let entries =
            Entries { length: journal_words(change), room: self.journal.len(), words: self.words.len() };
        let read = |place: usize| self.journal.get(place).map_or(0, |word| env.load64(word, Relaxed));
        // Check all entries before the first store: a damaged journal changes nothing.
        entries.each(read, |_, _| ())?;
        // A reader that sees a restored word must also see that a dead holder lost the lock.
        env.fence(Release);
        entries.each(read, |index, old| {
            if let Some(word) = self.words.get(index) {
                env.store64(word, old, Relaxed);
            }
        })?;
        env.store64(self.change, ended(change), Release);
        Ok(())
    }
}

/// Cold path, kept out of line.
#[cold]
fn too_many_changes(most: usize) -> Fault {
    Fault::TooManyChanges { most }
}

/// The entries of a journal with a stated `length`, checked against the sizes of the journal and of the
/// block.
#[derive(Clone, Copy)]
pub(crate) struct Entries {
    pub(crate) length: u64,
    /// The size of the journal, in words.
    pub(crate) room: usize,
    /// The number of words in the block.
    pub(crate) words: usize,
}

impl Entries {
    /// Calls `tell` with the index and old value of each changed word, last entry first; `read` returns words
    /// of the journal. Stops at the first invalid entry.
    pub(crate) fn each(
        &self,
        read: impl Fn(usize) -> u64,
        mut tell: impl FnMut(usize, u64),
    ) -> Result<(), Fault> {
        let damaged = |found: u64, most: usize| Fault::DamagedJournal { found, most: most as u64 };
        let length = usize::try_from(self.length).ok().filter(|length| *length <= self.room);
        let mut end = length.ok_or(damaged(self.length, self.room))?;
        while let Some(place) = end.checked_sub(1) {
            let described = read(place);
            let (index, count) = (described & u64::from(u32::MAX), described >> 32);
            let count = usize::try_from(count).ok().filter(|count| (1..=place).contains(count));
            let count = count.ok_or(damaged(described, self.room))?;
            let first = usize::try_from(index).ok().filter(|first| first.saturating_add(count) <= self.words);
            let first = first.ok_or(damaged(index, self.words))?;
            end = place - count;
            (0..count).for_each(|offset| tell(first + offset, read(end + offset)));
        }
        Ok(())
    }
}
