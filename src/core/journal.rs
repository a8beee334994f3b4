//! Transactions: several words change together or not at all, whoever dies when.
//!
//! An undo journal in the block. Before a word is changed, its index and old value are written behind the
//! entries that are already there, and then the entry count is raised:
//!
//! ```text
//! version odd  (once)
//! entry n = (index, old value)    nobody looks at it yet
//! journal length = n + 1          from here on recovery restores the word …
//! word = new value                … to what it was
//!   … any number of words …
//! journal length = 0              the commit point: one store
//! version even
//! ```
//!
//! Whoever finds a length other than 0 after taking the lock undoes the entries, last first, so that a word
//! that was changed twice ends with its first value. Undoing is idempotent, because it may be killed too.
//!
//! A journalled word is never written, nor acted upon, without the lock. The release stores keep the order
//! above also for an observer without the lock and on machines that reorder stores.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::block::{Block, Fault};
use super::env::Env;
use super::guard::Guard;
use super::owner::Participant;

/// Changes that become visible together. Dropped without [`commit`](Self::commit), it undoes them.
#[must_use]
pub struct Transaction<'g, 'a, E: Env> {
    guard: &'g mut Guard<'a, E>,
    changes: usize,
}

impl<'a, E: Env> Guard<'a, E> {
    /// Starts a transaction. Only one can be open, since it borrows the guard.
    #[inline]
    pub fn begin(&mut self) -> Transaction<'_, 'a, E> {
        Transaction { guard: self, changes: 0 }
    }
}

impl<'a, E: Env> Transaction<'_, 'a, E> {
    /// Who makes the changes.
    #[inline]
    pub fn holder(&self) -> Participant {
        self.guard.holder()
    }

    /// Value of word `index`, with the changes made so far.
    #[inline]
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
        let block = self.guard.block();
        let env = block.env;
        let word = block.word(index)?;
        let old = env.load64(word, Relaxed);
        if old == value {
            return Ok(());
        }
        let place = 2 * self.changes;
        let Some([index_word, old_word]) = block.journal.get(place..place + 2) else {
            return Err(too_many_changes(block.journal.len() / 2));
        };
        if self.changes == 0 {
            block.begin_change();
        }
        env.store64(index_word, index as u64, Relaxed);
        env.store64(old_word, old, Relaxed);
        self.changes += 1;
        env.store64(block.journal_length, self.changes as u64, Release);
        env.store64(word, value, Release);
        Ok(())
    }

    /// Changes all `N` words from `index` on; the same as [`set`](Self::set) for each, at less cost.
    #[inline(always)]
    pub fn set_row<const N: usize>(&mut self, index: usize, values: [u64; N]) -> Result<(), Fault> {
        let block = self.guard.block();
        let env = block.env;
        let row: &[E::U64; N] = block.row(index)?;
        let Some(entries) = block.journal.get(2 * self.changes..2 * (self.changes + N)) else {
            return Err(too_many_changes(block.journal.len() / 2));
        };
        if self.changes == 0 {
            block.begin_change();
        }
        for (offset, ([index_word, old_word], word)) in entries.as_chunks::<2>().0.iter().zip(row).enumerate()
        {
            env.store64(index_word, (index + offset) as u64, Relaxed);
            env.store64(old_word, env.load64(word, Relaxed), Relaxed);
        }
        self.changes += N;
        env.store64(block.journal_length, self.changes as u64, Release);
        for (word, value) in row.iter().zip(values) {
            env.store64(word, value, Release);
        }
        Ok(())
    }

    /// Makes the changes final, with one store.
    #[inline]
    pub fn commit(mut self) {
        if std::mem::take(&mut self.changes) > 0 {
            self.guard.block().end_change();
        }
    }
}

impl<E: Env> Drop for Transaction<'_, '_, E> {
    #[inline]
    fn drop(&mut self) {
        if self.changes > 0 {
            // The entries are our own, so this cannot find them damaged, short of somebody else's stray
            // write; the next holder would then find the same and report it.
            let _ = self.guard.block().undo();
        }
    }
}

impl<E: Env> Block<'_, E> {
    #[inline]
    fn begin_change(&self) {
        let version = self.env.load64(self.version, Relaxed);
        // Release: a reader that sees it odd also sees who has the lock.
        self.env.store64(self.version, version | 1, Release);
        // Nobody may see a changed word together with the even version.
        self.env.fence(Release);
    }

    #[inline]
    fn end_change(&self) {
        let version = self.env.load64(self.version, Relaxed);
        self.env.store64(self.journal_length, 0, Release);
        self.env.store64(self.version, (version | 1).wrapping_add(1), Release);
    }

    /// Makes the words whole after a death.
    #[cold]
    pub(super) fn recover(&self, stolen: bool) -> Result<(), Fault> {
        if stolen {
            self.count(self.steals);
        }
        let length = self.env.load64(self.journal_length, Relaxed);
        if length != 0 {
            self.undo()?;
            self.count(self.rollbacks);
        } else if self.env.load64(self.version, Relaxed) & 1 != 0 {
            // It died between commit and "version even", or before its first entry.
            self.end_change();
        }
        // It may have died between giving something back and telling the sleepers, or between clearing the
        // sleepers' bit and waking them: so the bit does not count here.
        self.turn_doorbell();
        self.env.wake_all(self.doorbell);
        Ok(())
    }

    /// Restores what the journal names, last entry first, then commits that.
    #[cold]
    fn undo(&self) -> Result<(), Fault> {
        let env = self.env;
        let length = env.load64(self.journal_length, Relaxed);
        let most = (self.journal.len() / 2) as u64;
        let damaged = |found, most| Fault::DamagedJournal { found, most };
        let entries = valid_entries(self.journal, length).ok_or(damaged(length, most))?;
        // Look at all of them before the first store: a damaged journal changes nothing.
        for pair in entries.as_chunks::<2>().0 {
            self.named_word(pair)?;
        }
        self.begin_change();
        for pair in entries.as_chunks::<2>().0.iter().rev() {
            let [_, old] = pair;
            env.store64(self.named_word(pair)?, env.load64(old, Relaxed), Relaxed);
        }
        self.end_change();
        Ok(())
    }

    fn named_word(&self, [index, _]: &[E::U64; 2]) -> Result<&E::U64, Fault> {
        let index = self.env.load64(index, Relaxed);
        let word = usize::try_from(index).ok().and_then(|index| self.words.get(index));
        word.ok_or(Fault::DamagedJournal { found: index, most: self.words.len() as u64 })
    }
}

/// Apart, so that what never happens takes no room where everything happens.
#[cold]
fn too_many_changes(most: usize) -> Fault {
    Fault::TooManyChanges { most }
}

/// The first `length` pairs of a journal, if it has that many.
pub(super) fn valid_entries<T>(journal: &[T], length: u64) -> Option<&[T]> {
    journal.get(..usize::try_from(length).ok()?.checked_mul(2)?)
}
