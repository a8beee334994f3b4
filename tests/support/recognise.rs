//! Which word an operation of a [`Mutant`] is about, told by where it is.

use limitset::core::Env;

use super::{Class, Mutant};

impl<E: Env> Mutant<'_, E> {
    pub(super) fn class32(&self, word: &E::U32) -> Class {
        if std::ptr::eq(word, self.of.lock) {
            Class::Lock
        } else if std::ptr::eq(word, self.of.sleepers) {
            Class::Sleepers
        } else if std::ptr::eq(word, self.of.doorbell) {
            Class::Doorbell
        } else {
            Class::Bell
        }
    }

    pub(super) fn class64(&self, word: &E::U64) -> Class {
        if std::ptr::eq(word, self.of.change) {
            Class::Change
        } else if position(self.of.journal, word).is_some() {
            Class::Journal
        } else if position(self.of.words, word).is_some() {
            Class::Word
        } else if position(self.generations, word).is_some() {
            Class::Generation
        } else {
            Class::Other
        }
    }
}

/// The index of a word among others, if it is one of them.
pub(super) fn position<T>(words: &[T], word: &T) -> Option<usize> {
    let all = words.as_ptr_range();
    let word = std::ptr::from_ref(word);
    all.contains(&word).then(|| (word.addr() - all.start.addr()) / size_of::<T>())
}
