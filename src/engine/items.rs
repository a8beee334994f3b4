//! Items of work as they stand in the segment: their words, the lists they are in, the bytes they carry.
//!
//! An item is in one of these states, changed under the lock only. Those with a list are in it, in order.
//!
//! | state      | list         | who has it    | left by                                                      |
//! | ---------- | ------------ | ------------- | ------------------------------------------------------------ |
//! | free       |              |               | a push                                                       |
//! | ready      | ready        |               | a take                                                       |
//! | parked     | parked       |               | a take, once the set's pause is over                         |
//! | delayed    | (a heap)     |               | a take, once its time has come                               |
//! | leased     |              | a worker      | done, retry, parking, giving up, giving back; a death        |
//! | done       | results      |               | a collect                                                    |
//! | dead       | dead letters |               | a collect                                                    |
//! | collected  |              | a collector   | forgetting it, reviving it, putting it back; a death         |

use std::sync::atomic::Ordering::Relaxed;

use super::Engine;
use crate::core::{Env, Fault, Guard, Participant, Transaction};
use crate::layout::work::{ItemWord, List, WorkWord};

pub(crate) const FREE: u64 = 0;
pub(crate) const READY: u64 = 1;
pub(crate) const PARKED: u64 = 2;
pub(crate) const DELAYED: u64 = 3;
pub(crate) const LEASED: u64 = 4;
pub(crate) const DONE: u64 = 5;
pub(crate) const DEAD: u64 = 6;
/// Collected from the results, and from the dead letters.
pub(super) const DONE_COLLECTED: u64 = 7;
pub(super) const DEAD_COLLECTED: u64 = 8;

/// The bytes of items, beside their words in the state block.
pub struct Items<'a, E: Env> {
    /// How many items there are.
    pub count: usize,
    /// The first item's payload, then its result, and so on every `stride`.
    pub words: &'a [E::U64],
    /// Words from item to item.
    pub stride: usize,
    /// Words of a payload.
    pub payload_words: usize,
    /// Words of a result.
    pub result_words: usize,
}

impl<E: Env> Clone for Items<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Items<'_, E> {}

/// Which bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What was pushed.
    Payload,
    /// What came of it.
    Result,
}

/// An item that the guard's holder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which item.
    pub item: usize,
    /// The participant that it was handed out to.
    pub owner: Participant,
    /// Number of the hand-out.
    pub number: u64,
    /// The program's own number.
    pub id: u64,
    /// How often it was handed out, this time included, 429s apart.
    pub attempts: u64,
    /// How many hand-outs ended with a 429.
    pub rate_limits: u64,
    /// Bytes of its payload.
    pub payload_bytes: usize,
    /// Bytes of its result.
    pub result_bytes: usize,
    /// Why it is a dead letter, if it is one.
    pub reason: Option<Reason>,
}

/// Why an item is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It was tried as often as the queue allows.
    Attempts,
    /// The other side said "too many requests" as often as the queue allows.
    RateLimits,
    /// A worker gave it up.
    GivenUp,
}

impl Reason {
    pub(super) const ALL: [Self; 3] = [Self::Attempts, Self::RateLimits, Self::GivenUp];

    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Attempts => 1,
            Self::RateLimits => 2,
            Self::GivenUp => 3,
        }
    }
}

impl<'a, E: Env> Items<'a, E> {
    /// No items at all.
    pub fn none() -> Self {
        Self { count: 0, words: &[], stride: 0, payload_words: 0, result_words: 0 }
    }

    /// The same items for another environment; see [`Block::with_env`](crate::core::Block::with_env).
    pub fn with_env<F: Env<U32 = E::U32, U64 = E::U64>>(self) -> Items<'a, F> {
        let Self { count, words, stride, payload_words, result_words } = self;
        Items { count, words, stride, payload_words, result_words }
    }

    fn part(&self, item: usize, part: Part) -> Result<&'a [E::U64], Fault> {
        let (start, length) = match part {
            Part::Payload => (0, self.payload_words),
            Part::Result => (self.payload_words, self.result_words),
        };
        let place =
            item.checked_sub(1).filter(|place| *place < self.count).map(|it| it * self.stride + start);
        let found = place.and_then(|place| self.words.get(place..place.checked_add(length)?));
        found.ok_or(Fault::OutOfRange { index: item, words: self.count })
    }
}

impl<E: Env> Engine<'_, E> {
    /// Writes the bytes of an item that nobody else can reach.
    pub fn write_bytes(&self, item: usize, part: Part, bytes: &[u8]) -> Result<(), Fault> {
        let words = self.items.part(item, part)?;
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.block.env.store64(word, u64::from_ne_bytes(value), Relaxed);
        }
        Ok(())
    }

    /// Copies the first `count` bytes of an item that nobody else can write to; fewer if there is no room for so many.
    pub fn read_bytes(&self, item: usize, part: Part, count: usize) -> Result<Vec<u8>, Fault> {
        let words = self.items.part(item, part)?;
        let mut bytes: Vec<u8> = words
            .iter()
            .take(count.div_ceil(8))
            .flat_map(|word| self.block.env.load64(word, Relaxed).to_ne_bytes())
            .collect();
        bytes.truncate(count);
        Ok(bytes)
    }

    /// The number in a word, if it can be that of an item; 0 is none.
    pub(super) fn item(&self, number: u64) -> Result<usize, Fault> {
        let item = usize::try_from(number).ok().filter(|item| *item <= self.items.count);
        item.ok_or(Fault::OutOfRange { index: usize::MAX, words: self.items.count })
    }

    pub(super) fn item_word(&self, guard: &Guard<'_, E>, item: usize, word: ItemWord) -> Result<u64, Fault> {
        guard.get(self.table.map.item(item, word))
    }

    pub(super) fn work_word(&self, guard: &Guard<'_, E>, word: WorkWord) -> Result<u64, Fault> {
        guard.get(self.table.map.work(word))
    }

    pub(super) fn set_item(
        &self,
        change: &mut Transaction<'_, '_, E>,
        item: usize,
        word: ItemWord,
        value: u64,
    ) -> Result<(), Fault> {
        change.set(self.table.map.item(item, word), value)
    }

    /// Adds to a word of the queue.
    pub(super) fn count_work(
        &self,
        change: &mut Transaction<'_, '_, E>,
        word: WorkWord,
        by: u64,
    ) -> Result<(), Fault> {
        change.add(self.table.map.work(word), by).map(drop)
    }

    pub(super) fn owner_of(&self, guard: &Guard<'_, E>, item: usize) -> Result<Participant, Fault> {
        let slot = u32::try_from(self.item_word(guard, item, ItemWord::Slot)?).unwrap_or(u32::MAX);
        Ok(Participant { slot, generation: self.item_word(guard, item, ItemWord::Generation)? })
    }

    /// Puts an item that is in no list behind another one of a list; before the first if that is 0.
    pub(super) fn insert(
        &self,
        change: &mut Transaction<'_, '_, E>,
        list: List,
        item: usize,
        behind: usize,
    ) -> Result<(), Fault> {
        let map = self.table.map;
        let next_of_behind = match behind {
            0 => map.work(WorkWord::First(list)),
            behind => map.item(behind, ItemWord::Next),
        };
        let next = self.item(change.get(next_of_behind)?)?;
        let previous_of_next = match next {
            0 => map.work(WorkWord::Last(list)),
            next => map.item(next, ItemWord::Previous),
        };
        change.set(map.item(item, ItemWord::Next), next as u64)?;
        change.set(map.item(item, ItemWord::Previous), behind as u64)?;
        change.set(next_of_behind, item as u64)?;
        change.set(previous_of_next, item as u64)?;
        self.count_work(change, WorkWord::Length(list), 1)
    }

    /// Puts an item behind the last of a list.
    pub(super) fn append(
        &self,
        change: &mut Transaction<'_, '_, E>,
        list: List,
        item: usize,
    ) -> Result<(), Fault> {
        let last = self.item(change.get(self.table.map.work(WorkWord::Last(list)))?)?;
        self.insert(change, list, item, last)
    }

    /// Takes the first item out of its list; the caller gives it another state in the same transaction.
    pub(super) fn remove_first(
        &self,
        change: &mut Transaction<'_, '_, E>,
        list: List,
        item: usize,
    ) -> Result<(), Fault> {
        let map = self.table.map;
        let next = self.item(change.get(map.item(item, ItemWord::Next))?)?;
        let previous_of_next = match next {
            0 => map.work(WorkWord::Last(list)),
            next => map.item(next, ItemWord::Previous),
        };
        change.set(map.work(WorkWord::First(list)), next as u64)?;
        change.set(previous_of_next, 0)?;
        self.count_work(change, WorkWord::Length(list), 1u64.wrapping_neg())
    }

    /// The first item of a list; 0 if there is none.
    pub(super) fn first_of(&self, guard: &Guard<'_, E>, list: List) -> Result<usize, Fault> {
        self.item(self.work_word(guard, WorkWord::First(list))?)
    }
}
