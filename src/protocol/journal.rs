//! Transactions: several words change together or not at all, whoever dies when.
//!
//! An undo journal in the block. Before words are changed, their old values and where they stand are written behind the
//! entries that are already there, and then the journal is said to be that much longer:
//!
//! ```text
//! entry = old values, which words   nobody looks at it yet
//! journal longer by the entry       from here on recovery restores the words …
//! words = new values                … to what they were
//!   … any number of entries …
//! journal empty                     the commit point: one store
//! ```
//!
//! How long the journal is and how many changes there have been is one word:
//!
//! | bits of `change` | meaning                                                          |
//! | ---------------- | ---------------------------------------------------------------- |
//! | 0-15             | words of the journal that count; 0: nothing is being changed     |
//! | 16-63            | how many changes were made or undone; comes round                |
//!
//! An entry ends with the word that describes it, so that a journal is read from its end:
//!
//! | bits of a description | meaning                        |
//! | --------------------- | ------------------------------ |
//! | 0-31                  | index of the first word        |
//! | 32-63                 | how many words, from 1         |
//!
//! Whoever finds the journal not empty after taking the lock undoes the entries, last first, so that a word
//! that was changed twice ends with its first value. Undoing is idempotent, because it may be killed too.
//!
//! A journalled word is never written, nor acted upon, without the lock. The release stores keep the order
//! above also for an observer without the lock and on machines that reorder stores.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::block::{Block, Fault};
use super::env::Env;
use super::guard::Guard;
use super::owner::Participant;

/// Most words of a journal, so that their number fits its place.
pub(crate) const MAX_JOURNAL_WORDS: usize = 0xffff;
const LENGTH_MASK: u64 = MAX_JOURNAL_WORDS as u64;

/// How many words of the journal count while `change` says so; 0 if nothing is being changed.
#[inline]
pub fn journal_words(change: u64) -> u64 {
    change & LENGTH_MASK
}

/// What `change` says after the change is made or undone.
#[inline]
fn ended(change: u64) -> u64 {
    (change | LENGTH_MASK).wrapping_add(1)
}

/// What describes an entry.
#[inline]
pub fn description(index: usize, count: usize) -> u64 {
    index as u64 | (count as u64) << 32
}

/// Changes that become visible together. Dropped without [`commit`](Self::commit), it undoes them.
#[must_use]
pub struct Transaction<'g, 'a, E: Env> {
    guard: &'g mut Guard<'a, E>,
    /// How far it has come.
    pub(crate) progress: Progress<'a, E>,
}

/// How far a transaction has come. A value, so that it can be handed to and fro in registers.
pub(crate) struct Progress<'a, E: Env> {
    /// What the block's word of that name says.
    change: u64,
    /// What is left of the journal.
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
    /// Who makes the changes.
    #[inline]
    pub fn holder(&self) -> Participant {
        self.guard.holder()
    }

    /// Value of word `index`, with the changes made so far.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Result<u64, Fault> {
        self.guard.get(index)
    }

    /// What is locked.
    #[inline]
    pub fn block(&self) -> &'a Block<'a, E> {
        self.guard.block()
    }

    /// Adds to word `index`, and gives what it was before.
    #[inline(always)]
    pub fn add(&mut self, index: usize, by: u64) -> Result<u64, Fault> {
        let before = self.get(index)?;
        self.set(index, before.wrapping_add(by))?;
        Ok(before)
    }

    /// Changes word `index`. One that has the value already is left alone.
    #[inline(always)]
    pub fn set(&mut self, index: usize, value: u64) -> Result<(), Fault> {
        if self.get(index)? == value {
            return Ok(());
        }
        self.set_row(index, [value])
    }

    /// Changes all `N` words from `index` on; the same as [`set`](Self::set) for each, at less cost.
    #[inline(always)]
    pub fn set_row<const N: usize>(&mut self, index: usize, values: [u64; N]) -> Result<(), Fault> {
        let block = self.guard.block();
        let Some(row) = block.row(index) else { return Err(block.out_of_range(index)) };
        match self.progress.change(block, index, row, block.values(row), values) {
            Some(()) => Ok(()),
            None => Err(too_many_changes(block.journal.len() / 2)),
        }
    }

    /// Makes the changes final, with one store.
    #[inline(always)]
    pub fn commit(mut self) {
        self.progress.commit(self.guard.block());
    }
}

impl<'a, E: Env> Progress<'a, E> {
    /// Nothing was changed yet.
    #[inline(always)]
    pub(crate) fn begin(block: &Block<'a, E>) -> Self {
        Self::new(block.env.load64(block.change, Relaxed) & !LENGTH_MASK, block.journal)
    }

    #[inline(always)]
    pub(super) fn new(change: u64, journal: &'a [E::U64]) -> Self {
        Self { change, room: journal }
    }

    /// Makes the changes final, with one store.
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
            // The entries are our own, so this cannot find them damaged, short of somebody else's stray
            // write; the next holder would then find the same and report it.
            let _ = block.undo();
        }
    }

    /// Whether anything was changed.
    #[inline(always)]
    fn is_under_way(&self) -> bool {
        journal_words(self.change) != 0
    }

    /// Changes the row at `index`, whose values the caller has read; none if there are too many changes.
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
        // Release: whoever sees that something is being changed also sees who has the lock.
        env.store64(block.change, self.change, Release);
        for (word, value) in row.iter().zip(values) {
            // Release: nobody may see a changed word and think that nothing is being changed.
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
    /// Makes the words whole after a death.
    #[cold]
    pub(super) fn recover(&self, stolen: bool) -> Result<(), Fault> {
        if stolen {
            self.count(self.steals);
        }
        if journal_words(self.env.load64(self.change, Relaxed)) != 0 {
            self.undo()?;
            self.count(self.rollbacks);
        }
        // It may have died between giving something back and telling the sleepers, or between clearing the
        // sleepers' bit and waking them: so the bit does not count here.
        self.turn_doorbell();
        self.env.wake_all(self.doorbell);
        Ok(())
    }

    /// Restores what the journal names, last entry first, then empties it.
    #[cold]
    fn undo(&self) -> Result<(), Fault> {
        let env = self.env;
        let change = env.load64(self.change, Relaxed);
        let entries =
            Entries { length: journal_words(change), room: self.journal.len(), words: self.words.len() };
        let read = |place: usize| self.journal.get(place).map_or(0, |word| env.load64(word, Relaxed));
        // Look at all of them before the first store: a damaged journal changes nothing.
        entries.each(read, |_, _| ())?;
        // Nobody may see a restored word and think that the lock is still the dead one's.
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

/// Apart, so that what never happens takes no room where everything happens.
#[cold]
fn too_many_changes(most: usize) -> Fault {
    Fault::TooManyChanges { most }
}

/// The entries of a journal that says it has `length` words, of a block with so many.
#[derive(Clone, Copy)]
pub(crate) struct Entries {
    pub(crate) length: u64,
    /// How many words the journal can have.
    pub(crate) room: usize,
    /// How many words there are to name.
    pub(crate) words: usize,
}

impl Entries {
    /// Tells of each word that was changed, last entry first, and of the value it had; the journal's words come from
    /// `read`. Stops at what cannot be an entry.
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
