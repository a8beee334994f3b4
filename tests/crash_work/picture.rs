//! The work queue and the pause as they stand in the raw words, and what must hold of them whenever nobody is in the
//! middle of something. The numbers are those of docs/format.md.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use limitset::LimitSet;

use crate::ITEM_WORDS;
use crate::queue::{self, BYTES, CONNECTIONS, FIRST_ITEM, FIRST_WORK};
use crate::stage::{ITEMS, MOST_ATTEMPTS, MOST_RATE_LIMITS, payload_of, result_of, why_of};

/// Where items are: in lists, and in the heap of those that are delayed, which counts as a list here.
pub(crate) const READY: usize = 0;
pub(crate) const PARKED: usize = 1;
pub(crate) const DELAYED: usize = 2;
pub(crate) const RESULTS: usize = 3;
pub(crate) const DEAD: usize = 4;
const STATE_OF: [u64; 5] = [1, 2, 3, 5, 6];
/// The words of each list; the heap has none.
const WORDS_OF: [Option<usize>; 5] = [Some(0), Some(3), None, Some(6), Some(9)];
/// How many items the heap has.
const HEAP_LENGTH: usize = FIRST_WORK + 12;

/// States of items that are in no list.
const FREE: u64 = 0;
pub(crate) const LEASED: u64 = 4;
pub(crate) const DONE_COLLECTED: u64 = 7;
pub(crate) const DEAD_COLLECTED: u64 = 8;

/// Why an item is a dead letter.
pub(crate) const BY_ATTEMPTS: u64 = 1;
pub(crate) const BY_RATE_LIMITS: u64 = 2;
pub(crate) const BY_WORKER: u64 = 3;

const FREE_LIST: usize = FIRST_WORK + 14;
const CLOSED: usize = FIRST_WORK + 17;
const COLLECTED: usize = FIRST_WORK + 27;

/// Slot and generation.
pub(crate) type Owner = (u64, u64);

/// An item, as far as it matters where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: u64,
    pub(crate) id: u64,
    pub(crate) attempts: u64,
    pub(crate) rate_limits: u64,
    /// Only of those that are delayed.
    pub(crate) not_before: u64,
    pub(crate) reason: u64,
    pub(crate) result: Vec<u8>,
}

/// An item that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) state: u64,
    pub(crate) owner: Owner,
    pub(crate) lease: u64,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) taken: u64,
    pub(crate) done: u64,
    pub(crate) retried: u64,
    pub(crate) parkings: u64,
    pub(crate) redistributed: u64,
    pub(crate) returned: u64,
    pub(crate) dead_lettered: u64,
}

/// The work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) lists: [Vec<Entry>; 5],
    /// By place.
    pub(crate) held: BTreeMap<u64, Held>,
    /// Places that were used and are free, the next one first.
    pub(crate) free: Vec<u64>,
    pub(crate) used: u64,
    pub(crate) closed: u64,
    pub(crate) next_lease: u64,
    pub(crate) counts: Counts,
}

/// The words of the pause: one transaction changes all that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) generation: u64,
    pub(crate) until: u64,
    pub(crate) next_admission: u64,
    pub(crate) count: u64,
    pub(crate) slow_left: u64,
    pub(crate) reports: u64,
    pub(crate) absorbed: u64,
}

/// What a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) generation: u64,
    pub(crate) owed: u64,
    pub(crate) permits: u64,
}

/// Everything that acts are predicted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) work: Work,
    pub(crate) pause: Pause,
    /// By slot; those that somebody has.
    pub(crate) rows: BTreeMap<u64, Row>,
    pub(crate) unreported: u64,
    pub(crate) consumed: [u64; 3],
}

/// Every word of a set that the journal guards, the wishes of its waiters, and what its items carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) queue: queue::Words,
    /// Payload and result of each place: all bytes that there is room for.
    bytes: Vec<(Vec<u8>, Vec<u8>)>,
}

fn must(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// Opens a queue again that was closed.
pub(crate) fn reopen(set: &LimitSet) {
    let parts = set.parts().unwrap();
    let me = set.segment().participant().unwrap();
    let mut guard = parts.lock(me, limitset::core::NEVER).unwrap();
    let mut change = guard.begin();
    change.set(CLOSED, 0).unwrap();
    change.commit();
}

impl Words {
    /// `words` as somebody has read them of this set.
    pub(crate) fn new(set: &LimitSet, words: Vec<u64>) -> Self {
        let items = set.parts().unwrap().items;
        let bytes = |from: usize, count: usize| {
            let words = items.words[from..from + count].iter();
            words.flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect::<Vec<u8>>()
        };
        let both = (0..items.count).map(|place| {
            let start = place * items.stride;
            (bytes(start, items.payload_words), bytes(start + items.payload_words, items.result_words))
        });
        Self { bytes: both.collect(), queue: queue::Words::new(set, words) }
    }

    /// Whether the words are the same; bytes are written before they count.
    pub(crate) fn are(&self, other: &Self) -> bool {
        self.queue.are(&other.queue)
    }

    fn word(&self, index: usize) -> u64 {
        self.queue.words[index]
    }

    /// The instant that a decision would be about.
    pub(crate) fn now(&self) -> u64 {
        (self.word(16) + self.word(4)).max(self.word(0))
    }

    fn item(&self, place: u64, word: usize) -> u64 {
        let place = usize::try_from(place).unwrap();
        self.word(FIRST_ITEM + (place - 1) * (ITEM_WORDS / ITEMS as usize) + word)
    }

    fn entry(&self, place: u64) -> Entry {
        let item = |word: usize| self.item(place, word);
        let result = &self.bytes[usize::try_from(place).unwrap() - 1].1;
        Entry {
            place,
            id: item(3),
            attempts: item(7),
            rate_limits: item(8),
            not_before: if item(0) == STATE_OF[DELAYED] { item(9) } else { 0 },
            reason: item(12),
            result: result[..result.len().min(usize::try_from(item(11)).unwrap())].to_vec(),
        }
    }

    /// The places from `first` on, by the links from each to the next.
    fn chain(&self, first: u64) -> Result<Vec<u64>, String> {
        let (mut found, mut at) = (Vec::new(), first);
        while at != 0 {
            if at > self.word(FREE_LIST + 1) || found.len() >= ITEMS as usize {
                return Err(format!("the list from {first} goes {found:?}, {at}"));
            }
            found.push(at);
            at = self.item(at, 1);
        }
        Ok(found)
    }

    /// The places of the items in the heap, in the order in which they come due.
    fn heap(&self) -> Result<Vec<u64>, String> {
        let due = |place: u64| (self.item(place, 9), self.item(place, 6));
        let mut places = Vec::new();
        for cell in 1..=self.word(HEAP_LENGTH) {
            must(cell <= self.word(FREE_LIST + 1), "more items are delayed than were used")?;
            let place = self.item(cell, 13);
            must((1..=self.word(FREE_LIST + 1)).contains(&place), "a cell of the heap names an item")?;
            must(self.item(place, 0) == STATE_OF[DELAYED], "what is in the heap is delayed")?;
            if cell > 1 {
                must(due(self.item(cell / 2, 13)) < due(place), "no item comes due before the one above it")?;
            }
            places.push(place);
        }
        places.sort_by_key(|place| due(*place));
        Ok(places)
    }

    /// The set as people see it; an error if the words are not whole.
    pub(crate) fn picture(&self) -> Result<Picture, String> {
        self.queue.check()?;
        let used = self.word(FREE_LIST + 1);
        must(used <= u64::from(ITEMS), "more items are used than there are")?;
        let mut lists: [Vec<Entry>; 5] = Default::default();
        let mut listed = BTreeSet::new();
        for place in self.heap()? {
            must(listed.insert(place), "an item is in one list")?;
            lists[DELAYED].push(self.entry(place));
        }
        for (number, list) in lists.iter_mut().enumerate() {
            let Some(words) = WORDS_OF[number] else { continue };
            let [first, last, length] = std::array::from_fn(|word| self.word(FIRST_WORK + words + word));
            let mut previous = 0;
            for place in self.chain(first)? {
                must(self.item(place, 2) == previous, "a list is another one backwards")?;
                must(self.item(place, 0) == STATE_OF[number], "an item is in the list of its state")?;
                must(listed.insert(place), "an item is in one list")?;
                list.push(self.entry(place));
                previous = place;
            }
            must(last == previous, "the last of a list is its last")?;
            must(length == list.len() as u64, "the length of a list is that of the list")?;
        }
        let free = self.chain(self.word(FREE_LIST))?;
        for place in &free {
            must(self.item(*place, 0) == FREE && listed.insert(*place), "what is on the free list is free")?;
        }
        let mut held = BTreeMap::new();
        for place in (1..=used).filter(|place| !listed.contains(place)) {
            let item = |word: usize| self.item(place, word);
            let state = item(0);
            must([LEASED, DONE_COLLECTED, DEAD_COLLECTED].contains(&state), "what is in no list is held")?;
            let (owner, lease) = ((item(4), item(5)), item(6));
            held.insert(place, Held { entry: self.entry(place), state, owner, lease });
        }
        let is_unused = |place| self.item(place, 0) == FREE;
        must((used + 1..=ITEMS.into()).all(is_unused), "what was never used is free")?;
        let count = |number: usize| self.word(FIRST_WORK + 19 + number);
        let counts = Counts {
            pushed: count(0),
            taken: count(1),
            done: count(2),
            retried: count(3),
            parkings: count(4),
            redistributed: count(5),
            returned: count(6),
            dead_lettered: count(7),
        };
        let (closed, next_lease) = (self.word(CLOSED), self.word(CLOSED + 1));
        let work = Work { lists, held, free, used, closed, next_lease, counts };
        let rows = self.queue.rows().filter(|(_, row)| row[0] != 0).map(|(slot, row)| {
            (slot, Row { generation: row[0], owed: row[1 + BYTES], permits: row[1 + CONNECTIONS] })
        });
        let pause = Pause {
            generation: self.word(3),
            until: self.word(8),
            next_admission: self.word(2),
            count: self.word(9),
            slow_left: self.word(10),
            reports: self.word(23),
            absorbed: self.word(24),
        };
        let picture = Picture {
            rows: rows.collect(),
            unreported: self.queue.unreported(),
            consumed: std::array::from_fn(|limit| self.queue.consumed(limit)),
            work,
            pause,
        };
        self.check_items(&picture)?;
        Ok(picture)
    }

    /// What must hold of the items, and of their counts.
    fn check_items(&self, picture: &Picture) -> Result<(), String> {
        let Work { lists, held, counts, next_lease, .. } = &picture.work;
        let leased = held.values().filter(|it| it.state == LEASED).count() as u64;
        must(self.word(FREE_LIST + 2) == leased, "as many are leased as are counted")?;
        let collected = held.len() as u64 - leased;
        must(self.word(COLLECTED) == collected, "as many are collected as are counted")?;
        must(leased + counts.done <= counts.taken && counts.taken <= *next_lease, "hand-outs are counted")?;
        for it in held.values() {
            let row = picture.rows.get(&it.owner.0);
            must(row.is_some_and(|row| row.generation == it.owner.1), "who has an item owns a row")?;
            must(it.lease < *next_lease, "hand-outs have numbers of their own")?;
        }
        let leases: BTreeSet<_> = held.values().map(|it| it.lease).collect();
        must(leases.len() == held.len(), "no two hand-outs have one number")?;
        must(lists[DELAYED].is_sorted_by_key(|it| it.not_before), "the earliest comes first")?;
        must(
            counts.parkings == counts.redistributed + lists[PARKED].len() as u64,
            "what was parked is parked or was handed out again",
        )?;
        must(picture.work.revivals().is_some(), "every item is unfinished, done or given up")?;
        must(picture.work.quiet_ends().is_some(), "every hand-out has one end")?;

        for (place, (payload, _)) in (1..).zip(&self.bytes).take(usize::try_from(picture.work.used).unwrap())
        {
            let (state, entry) = (self.item(place, 0), self.entry(place));
            if state == FREE {
                continue;
            }
            let pushed = payload_of(entry.id);
            let is_whole = self.item(place, 10) == pushed.len() as u64 && payload.starts_with(&pushed);
            must(is_whole, "items carry what was pushed")?;
            must(entry.result.len() as u64 == self.item(place, 11), "results have room")?;
            let (attempts, rate_limits) = (entry.attempts, entry.rate_limits);
            let is_within = attempts <= MOST_ATTEMPTS && rate_limits <= MOST_RATE_LIMITS;
            let is_right = match state {
                LEASED => attempts > 0 && rate_limits < MOST_RATE_LIMITS,
                5 | DONE_COLLECTED => entry.reason == 0,
                6 | DEAD_COLLECTED => match entry.reason {
                    BY_ATTEMPTS => attempts == MOST_ATTEMPTS,
                    BY_RATE_LIMITS => rate_limits == MOST_RATE_LIMITS,
                    reason => reason == BY_WORKER,
                },
                _ => attempts < MOST_ATTEMPTS && rate_limits < MOST_RATE_LIMITS && entry.reason == 0,
            };
            must(is_within && is_right, "no item is tried too often, or given up too early")?;
            let result = match (state, entry.reason) {
                (5 | DONE_COLLECTED, _) => result_of(entry.id),
                (_, BY_WORKER) => why_of(entry.id),
                _ => Vec::new(),
            };
            must(entry.result == result, "results are what was written")?;
        }
        Ok(())
    }
}

impl Work {
    /// Items that are not finished.
    pub(crate) fn unfinished(&self) -> Vec<&Entry> {
        let leased = self.held.values().filter(|it| it.state == LEASED).map(|it| &it.entry);
        self.lists[..=DELAYED].iter().flatten().chain(leased).collect()
    }

    /// How often a dead letter was revived: what was pushed, or revived, is unfinished, done or was given up.
    pub(crate) fn revivals(&self) -> Option<u64> {
        let Counts { pushed, done, dead_lettered, .. } = self.counts;
        (self.unfinished().len() as u64 + done + dead_lettered).checked_sub(pushed)
    }

    /// Ends of hand-outs that have no count of their own: given back, dropped, given up, or tried too often.
    pub(crate) fn quiet_ends(&self) -> Option<u64> {
        let Counts { taken, done, retried, parkings, returned, .. } = self.counts;
        let leased = self.held.values().filter(|it| it.state == LEASED).count() as u64;
        taken.checked_sub(done + retried + parkings + returned + leased)
    }
}
