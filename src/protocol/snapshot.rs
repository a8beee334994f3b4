//! Reading a block without its lock, for observers, which may have no write access.
//!
//! The journal is not empty while words change, and changes are counted. So a copy made between two equal
//! counts with an empty journal is consistent. If the writer died in the middle, it may take long until a
//! process recovers the block. Then the reader undoes the journal in its own copy, after checking that no
//! process has taken the lock meanwhile.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::block::{Block, Fault};
use super::env::Env;
use super::journal::{Entries, journal_words};
use super::owner::slot_of;

impl<E: Env> Block<'_, E> {
    /// Copies all words as of one instant. Gives up with [`Fault::Busy`] after `tries` attempts that all met
    /// a living writer.
    pub fn snapshot(&self, tries: u32) -> Result<Vec<u64>, Fault> {
        self.snapshot_of(self.words.len(), tries)
    }

    /// Copies the first `count` words as of one instant; see [`snapshot`](Self::snapshot).
    pub fn snapshot_of(&self, count: usize, tries: u32) -> Result<Vec<u64>, Fault> {
        let env = self.env;
        let words = self.words.get(..count).unwrap_or(self.words);
        let mut holder = 0;
        for _ in 0..tries {
            let change = env.load64(self.change, Acquire);
            // Acquire: with a generation from before its enrolment a living holder would look dead.
            holder = env.load32(self.lock, Acquire);
            let length = journal_words(change);
            if length == 0 {
                let copy = self.copy(words);
                env.fence(Acquire);
                if env.load64(self.change, Relaxed) == change {
                    return Ok(copy);
                }
            } else if slot_of(holder) == 0 {
                // A change is in progress, and no process holds the lock. A writer ends its change before it
                // unlocks, unless the journal is damaged and cannot be undone.
                if env.load64(self.change, Relaxed) == change {
                    return Err(Fault::DamagedJournal { found: length, most: self.journal.len() as u64 });
                }
            } else if self.slots.is_word_dead(holder) {
                let mut copy = self.copy(words);
                let journal = self.copy(self.journal);
                env.fence(Acquire);
                // A stealing process changes the lock before it changes anything else.
                let undisturbed =
                    env.load32(self.lock, Relaxed) == holder && env.load64(self.change, Relaxed) == change;
                if undisturbed {
                    let entries = Entries { length, room: journal.len(), words: self.words.len() };
                    let read = |place: usize| journal.get(place).copied().unwrap_or(0);
                    entries.each(read, |index, old| {
                        // Words that were not copied need not be undone.
                        if let Some(word) = copy.get_mut(index) {
                            *word = old;
                        }
                    })?;
                    return Ok(copy);
                }
            }
            env.pause();
        }
        Err(Fault::Busy { slot: slot_of(holder) })
    }

    fn copy(&self, words: &[E::U64]) -> Vec<u64> {
        words.iter().map(|word| self.env.load64(word, Relaxed)).collect()
    }
}
