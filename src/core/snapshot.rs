//! Reading a block without its lock: for observers, who may not even write.
//!
//! The version is odd while words change, so a copy made between two equal even versions is whole. If the
//! writer died in the middle, nobody may come to finish its work for a long time; then the reader undoes the
//! journal in its own copy, after making sure that nobody has taken the lock meanwhile.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::block::{Block, Fault};
use super::env::Env;
use super::journal::valid_entries;
use super::owner::slot_of;

impl<E: Env> Block<'_, E> {
    /// Copies all words as they were at one instant. Gives up with [`Fault::Busy`] after `tries` looks that
    /// all met a living writer.
    pub fn snapshot(&self, tries: u32) -> Result<Vec<u64>, Fault> {
        self.snapshot_of(self.words.len(), tries)
    }

    /// The same of the first `count` words.
    pub fn snapshot_of(&self, count: usize, tries: u32) -> Result<Vec<u64>, Fault> {
        let env = self.env;
        let words = self.words.get(..count).unwrap_or(self.words);
        let mut holder = 0;
        for _ in 0..tries {
            let version = env.load64(self.version, Acquire);
            // Acquire: with a generation from before its enrolment a living holder would look dead.
            holder = env.load32(self.lock, Acquire);
            if version & 1 == 0 {
                let copy = self.copy(words);
                env.fence(Acquire);
                if env.load64(self.version, Relaxed) == version {
                    return Ok(copy);
                }
            } else if slot_of(holder) == 0 {
                // Odd, and nobody is at it. Whoever made it odd has made it even before unlocking, unless it met
                // a journal that nobody can undo.
                if env.load64(self.version, Relaxed) == version {
                    let found = env.load64(self.journal_length, Relaxed);
                    return Err(Fault::DamagedJournal { found, most: (self.journal.len() / 2) as u64 });
                }
            } else if self.slots.is_word_dead(holder) {
                let mut copy = self.copy(words);
                let length = env.load64(self.journal_length, Relaxed);
                let journal = self.copy(self.journal);
                env.fence(Acquire);
                // A thief changes the lock before it changes anything else.
                let undisturbed =
                    env.load32(self.lock, Relaxed) == holder && env.load64(self.version, Relaxed) == version;
                if undisturbed {
                    undo_in(&mut copy, &journal, length, self.words.len())?;
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

fn undo_in(copy: &mut [u64], journal: &[u64], length: u64, words: usize) -> Result<(), Fault> {
    let most = (journal.len() / 2) as u64;
    let entries = valid_entries(journal, length).ok_or(Fault::DamagedJournal { found: length, most })?;
    for [index, old] in entries.as_chunks::<2>().0.iter().rev() {
        let place = usize::try_from(*index).ok().filter(|place| *place < words);
        let place = place.ok_or(Fault::DamagedJournal { found: *index, most: words as u64 })?;
        // Words that were not copied need not be undone.
        if let Some(word) = copy.get_mut(place) {
            *word = *old;
        }
    }
    Ok(())
}
