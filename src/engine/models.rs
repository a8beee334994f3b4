//! A set for model checks: what its words are at first, and where the ones stand that a check looks at.

use super::Table;
use crate::clock::Clock;
use crate::core::Holdings;
use crate::layout::state::{LimitWord, LinkWord, RuleWord, StateMap};
use crate::layout::waiters::WaiterWord;
use crate::layout::work::{ItemWord, List, WorkWord};
use crate::limit::{Cooldown, Definition, GivingUp, Limit};

/// A set that is nowhere yet. All slots have an owner of generation 1 that holds nothing; it is the instant 0.
#[derive(Debug)]
pub struct Draft {
    /// What the words mean.
    pub table: Table,
    /// The state block at first.
    pub words: Vec<u64>,
    /// Words of one entry of the waiters region.
    pub entry_words: usize,
}

/// The work queue of a draft.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// How many items there is room for; 0: there is none.
    pub items: u32,
    /// Attempts, and 429s, after which an item is a dead letter.
    pub most: [u32; 2],
}

impl Draft {
    /// A set of these limits.
    pub fn new(limits: Vec<Limit>, slots: u32, waiters: u32) -> Self {
        Self::with_work(limits, slots, waiters, Cooldown::default(), Work { items: 0, most: [1, 1] })
    }

    /// The same with a cooldown, and a work queue.
    pub fn with_work(limits: Vec<Limit>, slots: u32, waiters: u32, cooldown: Cooldown, work: Work) -> Self {
        let [attempts, rate_limits] = work.most;
        let giving_up = GivingUp { attempts, rate_limits };
        let definition = Definition { limits, cooldown, giving_up, ..Definition::default() };
        let count = u32::try_from(definition.limits.len()).unwrap_or(u32::MAX);
        let rules = || definition.limits.iter().map(|limit| limit.rule(0));
        let cells = rules().flatten().map(|rule| rule.cells()).sum();
        let map = StateMap { limits: count, cells, slots, waiters, items: work.items };
        let table = Table::new(&definition, map, Clock::Monotonic);
        let mut words = vec![0; map.words() as usize];
        let mut set = |index: usize, value| words.get_mut(index).map(|word| *word = value);
        for (limit, rule) in rules().enumerate() {
            set(map.rule(limit, RuleWord::Capacity), definition.limits.get(limit).map_or(0, Limit::capacity));
            let Some(rule) = rule else { continue };
            set(map.rule(limit, RuleWord::WindowNanos), rule.window_nanos());
            set(map.rule(limit, RuleWord::Burst), rule.burst());
            for (word, value) in rule.start(0).iter() {
                set(table.word(limit, word), value);
            }
        }
        for slot in 1..=slots {
            set(table.holdings().row(slot), 1);
        }
        let entry_words = WaiterWord::Amount(count as usize).place();
        Self { table, words, entry_words }
    }

    /// The same with a clock that is moved by hand.
    #[must_use]
    pub fn by_hand(mut self) -> Self {
        self.table.is_manual = true;
        self
    }

    /// Which limits of the set are permits, and how they are counted.
    pub fn holdings(&self) -> Holdings {
        self.table.holdings()
    }

    /// Gives permits of a limit to the owner of a slot.
    pub fn hold(&mut self, slot: u32, limit: usize, amount: u64) {
        let row = self.table.holdings().row(slot) + 1 + limit;
        for index in [self.in_use(limit), row] {
            if let Some(word) = self.words.get_mut(index) {
                *word += amount;
            }
        }
    }

    /// The word with the permits of a limit that are in use.
    pub fn in_use(&self, limit: usize) -> usize {
        self.table.map.limit(limit, LimitWord::Level)
    }

    /// The word with how many acquisitions ever took from a limit.
    pub fn granted(&self, limit: usize) -> usize {
        self.table.map.limit(limit, LimitWord::Granted)
    }

    /// The word with the capacity of a limit.
    pub fn capacity(&self, limit: usize) -> usize {
        self.table.map.rule(limit, RuleWord::Capacity)
    }

    /// The words with the units of a limit that ever joined the queue, and that left it again.
    pub fn queued(&self, limit: usize) -> [usize; 2] {
        [RuleWord::Enqueued, RuleWord::Dequeued].map(|word| self.table.map.rule(limit, word))
    }

    /// The words with the first in the queue, the last, and how many there are.
    pub fn queue(&self) -> [usize; 3] {
        [StateMap::QUEUE_HEAD, StateMap::QUEUE_TAIL, StateMap::QUEUE_LENGTH]
    }

    /// The words with the first free entry, and with how many were ever used.
    pub fn entries(&self) -> [usize; 2] {
        [StateMap::FREE_WAITERS, StateMap::USED_WAITERS]
    }

    /// The words with the state of an entry, and with what follows it in its list.
    pub fn link(&self, waiter: usize) -> [usize; 2] {
        [LinkWord::State, LinkWord::Next].map(|word| self.table.map.link(waiter, word))
    }

    /// The words with the slot, the generation and the ticket of whose entry it is.
    pub fn owner(&self, waiter: usize) -> [usize; 3] {
        [LinkWord::Slot, LinkWord::Generation, LinkWord::Ticket].map(|word| self.table.map.link(waiter, word))
    }

    /// The words about pauses: when the next is admitted, how many pauses there were, when the last one ends, how many
    /// in a row, how many admissions are spaced, how many reports there were of the last one, how many were absorbed.
    pub fn cooldown(&self) -> [usize; 7] {
        [
            StateMap::NEXT_ADMISSION,
            StateMap::COOLDOWN_GENERATION,
            StateMap::COOLDOWN_UNTIL,
            StateMap::COOLDOWN_COUNT,
            StateMap::SLOW_ADMISSIONS_LEFT,
            StateMap::COOLDOWN_REPORTS,
            StateMap::COOLDOWN_ABSORBED,
        ]
    }

    /// The words with the instant of the last decision, and with what a manual clock reads.
    pub fn time(&self) -> [usize; 2] {
        [StateMap::LAST_NOW, StateMap::MANUAL_NOW]
    }

    /// The words with the first of the items that are ready, parked, done, dead letters, free.
    pub fn item_lists(&self) -> [usize; 5] {
        use List::{DeadLetters, Parked, Ready, Results};
        let [ready, parked, results, dead] = [Ready, Parked, Results, DeadLetters].map(WorkWord::First);
        [ready, parked, results, dead, WorkWord::Free].map(|word| self.table.map.work(word))
    }

    /// The words with how many items there are in those lists but the last, and then how many are delayed.
    pub fn item_counts(&self) -> [usize; 5] {
        use List::{DeadLetters, Parked, Ready, Results};
        let [ready, parked, results, dead] = [Ready, Parked, Results, DeadLetters].map(WorkWord::Length);
        [ready, parked, results, dead, WorkWord::Delayed].map(|word| self.table.map.work(word))
    }

    /// The word with the item in a cell of the heap of delayed items.
    pub fn delayed(&self, cell: usize) -> usize {
        self.table.map.item(cell, ItemWord::HeapCell)
    }

    /// The words with how many items are at work, were ever used; pushed, taken, done, parked, redistributed, returned,
    /// and dead-lettered.
    pub fn work_counts(&self) -> [usize; 9] {
        let words = [
            WorkWord::Leased,
            WorkWord::Used,
            WorkWord::Pushed,
            WorkWord::Taken,
            WorkWord::Done,
            WorkWord::Parkings,
            WorkWord::Redistributed,
            WorkWord::Returned,
            WorkWord::DeadLettered,
        ];
        words.map(|word| self.table.map.work(word))
    }

    /// The words with the state of an item, what follows it in its list, its id, attempts and 429s.
    pub fn item(&self, item: usize) -> [usize; 5] {
        let words = [ItemWord::State, ItemWord::Next, ItemWord::Id, ItemWord::Attempts, ItemWord::RateLimits];
        words.map(|word| self.table.map.item(item, word))
    }
}
