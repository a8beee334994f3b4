//! A work queue at one instant.

use crate::layout::header::Header;
use crate::layout::state::StateMap;
use crate::layout::work::{List, WorkWord};

/// A work queue at one instant; counts of what ever happened are exact whoever was killed when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// How many items there is room for.
    pub capacity: u64,
    /// Waiting for a worker.
    pub ready: u64,
    /// Waiting for the end of the set's pause.
    pub parked: u64,
    /// Waiting for their own time to be tried again.
    pub delayed: u64,
    /// With a worker.
    pub leased: u64,
    /// Results that nobody has collected.
    pub results: u64,
    /// Items that were given up, and that nobody has collected.
    pub dead_letters: u64,
    /// Whether nothing more can be pushed.
    pub is_closed: bool,
    /// How many items were ever pushed.
    pub pushed: u64,
    /// How often an item was handed out.
    pub taken: u64,
    /// How many items were done.
    pub done: u64,
    /// How often an item was put off to be tried again.
    pub retried: u64,
    /// How often an item was parked because the other side wanted less.
    pub rate_limited: u64,
    /// How often a parked item was handed out again.
    pub redistributed: u64,
    /// How often an item came back from a worker that died.
    pub returned: u64,
    /// How many items became dead letters.
    pub dead_lettered: u64,
}

impl QueueStats {
    /// Items that are not finished.
    pub fn unfinished(&self) -> u64 {
        // Words of others: they need not make sense.
        [self.parked, self.delayed, self.leased].into_iter().fold(self.ready, u64::saturating_add)
    }

    pub(crate) fn read(header: &Header, map: &StateMap, get: impl Fn(usize) -> u64) -> Option<Self> {
        if header.items == 0 {
            return None;
        }
        let word = |word| get(map.work(word));
        let length = |list| word(WorkWord::Length(list));
        Some(Self {
            capacity: header.items.into(),
            ready: length(List::Ready),
            parked: length(List::Parked),
            delayed: word(WorkWord::Delayed),
            leased: word(WorkWord::Leased),
            results: length(List::Results),
            dead_letters: length(List::DeadLetters),
            is_closed: word(WorkWord::Closed) != 0,
            pushed: word(WorkWord::Pushed),
            taken: word(WorkWord::Taken),
            done: word(WorkWord::Done),
            retried: word(WorkWord::Retried),
            rate_limited: word(WorkWord::Parkings),
            redistributed: word(WorkWord::Redistributed),
            returned: word(WorkWord::Returned),
            dead_lettered: word(WorkWord::DeadLettered),
        })
    }
}
