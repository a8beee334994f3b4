//! Who: a participant's name, and how a lock word carries it.
//!
//! A lock word is one 32-bit futex word:
//!
//! | bits  | meaning                                                              |
//! | ----- | -------------------------------------------------------------------- |
//! | 0-11  | slot of the holder, from 1; 0 means free                             |
//! | 12-30 | low bits of the holder's generation                                  |
//! | 31    | 0                                                                    |
//!
//! One compare-and-exchange takes the word, so owner and ownership never disagree. While it is held nobody but its holder
//! changes it, so one store frees it. That somebody sleeps is said by a word of its own, which they sleep on:
//!
//! | sleepers | meaning                                                               |
//! | -------- | --------------------------------------------------------------------- |
//! | 0        | nobody is asleep, but those whom somebody is about to wake            |
//! | 1        | somebody may be asleep: whoever frees the lock makes it 0 and wakes one, who makes it 1 again for the rest |

const SLOT_BITS: u32 = 12;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const GENERATION_MASK: u32 = (1 << (31 - SLOT_BITS)) - 1;

/// One attached process: a slot and the count of its owners. All its threads share the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Participant {
    /// From 1.
    pub slot: u32,
    /// Bumped by each new owner of the slot; never 0.
    pub generation: u64,
}

impl Participant {
    /// The lock word while this participant holds the lock.
    #[inline(always)]
    pub fn word(self) -> u32 {
        (self.slot & SLOT_MASK) | (low_generation(self.generation) << SLOT_BITS)
    }

    /// Slot and generation in one word. Unlike [`word`](Self::word) it has room for every generation that there will
    /// be: a slot that gets a new owner every microsecond has had 2^52 of them after 142 years.
    #[inline(always)]
    pub fn name(self) -> u64 {
        self.generation << SLOT_BITS | u64::from(self.slot)
    }

    /// The participant with a [name](Self::name).
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 12 bits")]
    pub fn named(name: u64) -> Self {
        Self { slot: name as u32 & SLOT_MASK, generation: name >> SLOT_BITS }
    }
}

/// Slot named by a lock word; 0 if it is free.
pub fn slot_of(word: u32) -> u32 {
    word & SLOT_MASK
}

/// Whether `word` can have been written by an owner of its slot's `generation`.
pub(crate) fn names_generation(word: u32, generation: u64) -> bool {
    word >> SLOT_BITS == low_generation(generation)
}

#[expect(clippy::cast_possible_truncation, reason = "masked to 19 bits")]
fn low_generation(generation: u64) -> u32 {
    (generation & u64::from(GENERATION_MASK)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_its_slot_and_generation_and_nothing_else() {
        let who = Participant { slot: 4095, generation: (1 << 40) + 0x7_ffff };
        assert_eq!(who.word() >> 31, 0);
        assert_eq!(slot_of(who.word()), 4095);
        assert!(names_generation(who.word(), who.generation));
        assert!(!names_generation(who.word(), who.generation + 1));
        assert_ne!(who.word(), Participant { slot: 4094, ..who }.word());
        assert_eq!(Participant::named(who.name()), who);
    }
}
