//! Enrolment: how a process becomes a participant, and when a participant is certainly dead.
//!
//! The environment keeps one kernel lock per slot (a byte of the segment file); it is freed exactly when its
//! owner's address space ends. The process that takes the byte first raises the slot's generation, and only
//! the byte's holder writes the slot. So a name (slot, generation) is dead if
//!
//! * the byte is free: the owner of that name held it from before its first operation; or
//! * the byte is taken but the slot's generation has changed: a successor owns the slot.
//!
//! Between taking the byte and raising the generation, a successor makes its predecessor look alive. That is
//! the safe side, and it ends by itself.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::env::Env;
use super::owner::{Participant, names_generation, slot_of};

/// The generation words of all slots.
pub struct Slots<'a, E: Env> {
    env: &'a E,
    words: &'a [E::U64],
    stride: usize,
}

impl<E: Env> Clone for Slots<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Slots<'_, E> {}

impl<'a, E: Env> Slots<'a, E> {
    /// Creates the slots; the generations are every `stride`-th word.
    pub fn new(env: &'a E, words: &'a [E::U64], stride: usize) -> Self {
        Self { env, words, stride: stride.max(1) }
    }

    /// Returns these slots in another environment; see [`Block::with_env`](super::Block::with_env).
    pub fn with_env<F: Env<U32 = E::U32, U64 = E::U64>>(self, env: &'a F) -> Slots<'a, F> {
        Slots { env, words: self.words, stride: self.stride }
    }

    /// Returns the number of slots, which is the last slot's number.
    pub fn count(&self) -> u32 {
        u32::try_from(self.words.len() / self.stride).unwrap_or(u32::MAX)
    }

    fn generation_word(&self, slot: u32) -> Option<&'a E::U64> {
        self.words.get((slot.checked_sub(1)? as usize).checked_mul(self.stride)?)
    }

    /// Returns the generation of a slot's present or last owner; 0 if it never had one.
    pub fn generation(&self, slot: u32) -> u64 {
        self.generation_word(slot).map_or(0, |word| self.env.load64(word, Acquire))
    }

    /// Gives the holder of a slot's byte its name. The byte must be held now and for as long as the name is
    /// used.
    pub fn enrol(&self, slot: u32) -> Option<Participant> {
        let word = self.generation_word(slot)?;
        // 0 keeps meaning "no owner" even if a damaged segment makes the count wrap.
        let generation = self.env.load64(word, Relaxed).wrapping_add(1).max(1);
        self.env.store64(word, generation, Release);
        Some(Participant { slot, generation })
    }

    /// Returns true only if the participant is certainly dead.
    pub fn is_dead(&self, who: Participant) -> bool {
        self.gone(who.slot, |generation| generation == who.generation)
    }

    /// Returns true only if the participant that wrote this lock word is certainly dead.
    pub fn is_word_dead(&self, word: u32) -> bool {
        self.gone(slot_of(word), |generation| names_generation(word, generation))
    }

    fn gone(&self, slot: u32, is_named: impl Fn(u64) -> bool) -> bool {
        if self.generation_word(slot).is_none() {
            // No process can own a slot that does not exist: the name is damage, not a participant.
            return true;
        }
        self.env.slot_is_free(slot) || !is_named(self.generation(slot))
    }
}
