//! The queue as it stands in the raw words, and what must hold of it whenever nobody is in the middle of something.
//! The numbers are those of docs/format.md.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use limitset::LimitSet;

use crate::{ITEM_WORDS, WORK_WORDS};

pub(crate) const LIMITS: usize = 3;
pub(crate) const SLOTS: u32 = 6;
pub(crate) const WAITERS: u32 = 5;
/// The limits by number; those before the permits are rates, and of the second a report is owed.
pub(crate) const TOKENS: usize = 0;
pub(crate) const BYTES: usize = 1;
pub(crate) const CONNECTIONS: usize = 2;

const NEXT_TICKET: usize = 1;
const HEAD: usize = 5;
const TAIL: usize = 6;
const LENGTH: usize = 7;
const FREE_LIST: usize = 11;
const USED: usize = 17;
const STATISTICS: std::ops::Range<usize> = 18..22;
const FIRST_LIMIT: usize = 32;
const FIRST_RULE: usize = FIRST_LIMIT + 8 * LIMITS;
/// No limit here has window cells.
const FIRST_ROW: usize = FIRST_RULE + 8 * LIMITS;
const ROW: usize = 1 + LIMITS;
/// Words of a work queue, where there is one; those of its items are the last of all.
pub(crate) const FIRST_WORK: usize = FIRST_ROW + SLOTS as usize * ROW;
const FIRST_LINK: usize = FIRST_WORK + WORK_WORDS;
pub(crate) const FIRST_ITEM: usize = FIRST_LINK + 8 * WAITERS as usize;

/// States of an entry.
const FREE: u64 = 0;
pub(crate) const WAITING: u64 = 1;
pub(crate) const GRANTED: u64 = 2;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: u64,
    pub(crate) slot: u64,
    pub(crate) generation: u64,
    pub(crate) ticket: u64,
    next: u64,
    previous: u64,
    pub(crate) amounts: [u64; LIMITS],
    shares_doorbell: bool,
}

/// Every word of a set that the journal guards, and the wishes of its waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) words: Vec<u64>,
    /// Those that were ever used.
    pub(crate) entries: Vec<Entry>,
}

/// What the doorbells say: of every entry, and of every participant.
#[derive(Clone, Debug)]
pub(crate) struct Bells {
    entries: Vec<u32>,
    slots: Vec<u32>,
}

impl Bells {
    pub(crate) fn of(set: &LimitSet) -> Self {
        let parts = set.parts().unwrap();
        let entries = (1..=parts.waiters.count).map(|waiter| parts.doorbell(waiter).unwrap().load(Relaxed));
        let slots = (1..=SLOTS).map(|slot| parts.shared_doorbell(slot).unwrap().load(Relaxed));
        Self { entries: entries.collect(), slots: slots.collect() }
    }
}

impl Words {
    /// `words` as somebody has read them of this set.
    pub(crate) fn new(set: &LimitSet, mut words: Vec<u64>) -> Self {
        assert_eq!(words.len(), FIRST_ITEM + ITEM_WORDS, "the words are as documented");
        words[STATISTICS].fill(0);
        for limit in 0..LIMITS {
            words[FIRST_LIMIT + 8 * limit + 5] = 0; // denied: a statistic
        }
        let waiters = set.parts().unwrap().waiters;
        let used = usize::try_from(words[USED]).unwrap().min(waiters.count);
        let entries = (0..used).map(|place| {
            let link = |word: usize| words[FIRST_LINK + 8 * place + word];
            let noted = |word: usize| waiters.words[place * waiters.stride + word].load(Relaxed);
            let amount = |limit: usize| if noted(1) >> limit & 1 == 0 { 0 } else { noted(16 + limit) };
            Entry {
                state: link(0),
                slot: link(1),
                generation: link(2),
                ticket: link(3),
                next: link(4),
                previous: link(5),
                amounts: std::array::from_fn(amount),
                shares_doorbell: noted(4) != 0,
            }
        });
        Self { entries: entries.collect(), words }
    }

    /// Whether the words are the same; wishes are noted before they count.
    pub(crate) fn are(&self, other: &Self) -> bool {
        self.words == other.words
    }

    fn limit(&self, limit: usize, word: usize) -> u64 {
        self.words[FIRST_LIMIT + 8 * limit + word]
    }

    pub(crate) fn in_use(&self) -> u64 {
        self.limit(CONNECTIONS, 0)
    }

    pub(crate) fn consumed(&self, limit: usize) -> u64 {
        self.limit(limit, 3)
    }

    pub(crate) fn granted(&self, limit: usize) -> u64 {
        self.limit(limit, 4)
    }

    pub(crate) fn unreported(&self) -> u64 {
        self.limit(BYTES, 7)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.words[FIRST_RULE + 8 * CONNECTIONS]
    }

    /// Generation of a slot's row, and of each limit the permits it holds or the reports it owes.
    pub(crate) fn row(&self, slot: u64) -> &[u64] {
        let start = FIRST_ROW + (usize::try_from(slot).unwrap() - 1) * ROW;
        &self.words[start..start + ROW]
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, &[u64])> {
        (1..=u64::from(SLOTS)).map(|slot| (slot, self.row(slot)))
    }

    /// Entries in a state.
    pub(crate) fn in_state(&self, state: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.state == state)
    }

    /// Nobody waits, nothing is held or owed.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_empty = |(_, row): (u64, &[u64])| row[1..].iter().all(|amount| *amount == 0);
        self.words[LENGTH] == 0
            && self.in_use() == 0
            && self.entries.iter().all(|entry| entry.state == FREE)
            && self.rows().all(is_empty)
    }

    /// The entries on a list, in order, by number; what is wrong if it does not end or leaves the used ones.
    fn list(&self, first: u64) -> Result<Vec<u64>, String> {
        let (mut found, mut at) = (Vec::new(), first);
        while at != 0 {
            let entry = self.entries.get(usize::try_from(at - 1).unwrap());
            let Some(entry) = entry.filter(|_| found.len() < self.entries.len()) else {
                return Err(format!("the list from {first} goes {found:?}, {at}"));
            };
            found.push(at);
            at = entry.next;
        }
        Ok(found)
    }

    fn numbers(&self, state: u64) -> BTreeSet<u64> {
        let numbered = (1..).zip(&self.entries);
        numbered.filter(|(_, entry)| entry.state == state).map(|(number, _)| number).collect()
    }

    /// The first thing that is wrong, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let must = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
        must(self.words[USED] <= u64::from(WAITERS), "more entries are used than there are")?;

        let queue = self.list(self.words[HEAD])?;
        let entry = |number: u64| &self.entries[usize::try_from(number - 1).unwrap()];
        let mut previous = 0;
        for number in &queue {
            must(entry(*number).previous == previous, "the queue is another one backwards")?;
            let is_later = previous == 0 || entry(*number).ticket > entry(previous).ticket;
            must(is_later, "the queue is not in the order of arrival")?;
            previous = *number;
        }
        must(self.words[TAIL] == previous, "the tail is not the last")?;
        must(self.words[LENGTH] == queue.len() as u64, "the length is not that of the queue")?;
        must(
            queue.iter().copied().collect::<BTreeSet<_>>() == self.numbers(WAITING),
            "who waits is in the queue",
        )?;
        let free = self.list(self.words[FREE_LIST])?;
        must(free.into_iter().collect::<BTreeSet<_>>() == self.numbers(FREE), "what is free is on the list")?;
        must(self.entries.iter().all(|entry| entry.state <= GRANTED), "nobody was refused")?;

        for limit in 0..LIMITS {
            let rule = |word: usize| self.words[FIRST_RULE + 8 * limit + word];
            let waited_for: u64 = self.in_state(WAITING).map(|entry| entry.amounts[limit]).sum();
            must(rule(4).wrapping_sub(rule(5)) == waited_for, "units in the queue are those of who waits")?;
        }
        must(self.in_use() <= self.capacity(), "more permits are out than there are")?;
        let held: u64 = self.rows().map(|(_, row)| row[1 + CONNECTIONS]).sum();
        must(self.in_use() == held, "totals equal holders")?;
        for (slot, row) in self.rows() {
            must(row[0] != 0 || row[1..].iter().all(|amount| *amount == 0), "a row of nobody is empty")?;
            let his: Vec<_> = self.in_state(GRANTED).filter(|entry| entry.slot == slot).collect();
            must(
                his.iter().all(|entry| entry.generation == row[0]),
                "who was granted something owns his row",
            )?;
            let granted: u64 = his.iter().map(|entry| entry.amounts[CONNECTIONS]).sum();
            must(granted <= row[1 + CONNECTIONS], "what was granted is held")?;
            let owed = his.iter().filter(|entry| entry.amounts[BYTES] > 0).count() as u64;
            must(owed <= row[1 + BYTES], "reports of what was granted are owed")?;
        }
        let is_past = |entry: &Entry| entry.state == FREE || entry.ticket < self.words[NEXT_TICKET];
        must(self.entries.iter().all(is_past), "tickets are given out once")
    }

    /// Those who waited in `before` and have been granted what they wanted since.
    fn granted_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (usize, &'a Entry)> {
        let both = self.entries.iter().zip(&before.entries).enumerate();
        both.filter(|(_, (now, then))| {
            (now.state, then.state) == (GRANTED, WAITING) && now.ticket == then.ticket
        })
        .map(|(place, (now, _))| (place, now))
    }

    /// Whether one transaction leads from `before` to here: with a grant, it charges exactly that and nothing else.
    pub(crate) fn check_step_from(&self, before: &Self) -> Result<(), String> {
        let granted: Vec<_> = self.granted_since(before).map(|(_, entry)| entry).collect();
        if granted.len() > 1 {
            return Err("two grants in one transaction".to_owned());
        }
        for limit in 0..LIMITS {
            let amount: u64 = granted.iter().map(|entry| entry.amounts[limit]).sum();
            let (now, then) = (self.consumed(limit), before.consumed(limit));
            let is_charged = if granted.is_empty() { now <= then } else { now == then + amount };
            let count = granted.iter().filter(|entry| entry.amounts[limit] > 0).count() as u64;
            if !is_charged || self.granted(limit) != before.granted(limit) + count {
                return Err(format!("{now} of limit {limit} charged after {then}, granted: {granted:?}"));
            }
        }
        for ((slot, now), (_, then)) in self.rows().zip(before.rows()) {
            let his = granted.first().filter(|entry| entry.slot == slot);
            let permits = his.map_or(0, |entry| entry.amounts[CONNECTIONS]);
            let reports = his.map_or(0, |entry| u64::from(entry.amounts[BYTES] > 0));
            let expected = [then[0], then[1], then[2] + reports, then[3] + permits];
            let has_no_more = now[1..].iter().zip(&then[1..]).all(|(now, then)| now <= then);
            if if granted.is_empty() { !has_no_more } else { *now != expected } {
                return Err(format!("slot {slot} has {now:?} after {then:?}, granted: {granted:?}"));
            }
        }
        Ok(())
    }

    /// Whether everybody who was granted something since `before` has been rung, whatever they sleep on. The first
    /// slot's own doorbell is not in a copy.
    pub(crate) fn check_rings(&self, set: &LimitSet, before: &Self, bells: &Bells) -> Result<(), String> {
        let now = Bells::of(set);
        for (place, entry) in self.granted_since(before) {
            let slot = usize::try_from(entry.slot - 1).unwrap();
            let is_heard = !entry.shares_doorbell || slot == 0 || now.slots[slot] != bells.slots[slot];
            if now.entries[place] == bells.entries[place] || !is_heard {
                return Err(format!("{entry:?} was granted and not rung"));
            }
        }
        Ok(())
    }
}
