//! Tests of the arithmetic: against exact models, by rules that hold for every algorithm, and fact by fact.

mod facts;
mod garbage;
mod long_run;
mod model;
mod reconfigure;
mod rules;
mod schedules;
mod sixth;
mod vectors;
mod windows;

use super::{Algorithm, Changes, Rule, State, Verdict, Word};

/// The operations of an algorithm, in the table or defined by a test.
pub(super) trait Operations {
    fn cells(&self, rule: &Rule) -> u32;
    fn most(&self, rule: &Rule) -> u64;
    fn start(&self, rule: &Rule, now: u64) -> Changes;
    fn reset(&self, rule: &Rule, words: &Words, now: u64) -> Changes;
    fn acquire(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> Verdict;
    fn refund(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> (u64, Changes);
    fn adjust(&self, rule: &Rule, words: &Words, now: u64, delta: i64) -> Changes;
    fn available(&self, rule: &Rule, words: &Words, now: u64) -> i64;
    fn reconfigure(&self, rule: &Rule, new: &Rule, words: &Words, now: u64) -> Changes;
}

/// The operations of the algorithm that the rule names.
pub(super) struct Table;

impl Operations for Table {
    fn cells(&self, rule: &Rule) -> u32 {
        rule.cells()
    }
    fn most(&self, rule: &Rule) -> u64 {
        rule.most()
    }
    fn start(&self, rule: &Rule, now: u64) -> Changes {
        rule.start(now)
    }
    fn reset(&self, rule: &Rule, words: &Words, now: u64) -> Changes {
        rule.reset(&words, now)
    }
    fn acquire(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> Verdict {
        rule.acquire(&words, now, amount)
    }
    fn refund(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> (u64, Changes) {
        rule.refund(&words, now, amount)
    }
    fn adjust(&self, rule: &Rule, words: &Words, now: u64, delta: i64) -> Changes {
        rule.adjust(&words, now, delta)
    }
    fn available(&self, rule: &Rule, words: &Words, now: u64) -> i64 {
        rule.available(&words, now)
    }
    fn reconfigure(&self, rule: &Rule, new: &Rule, words: &Words, now: u64) -> Changes {
        rule.reconfigure(new, &words, now)
    }
}

/// The words of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) three: [u64; 3],
    pub(super) cells: Vec<u64>,
}

impl State for &Words {
    fn word(&self, word: Word) -> u64 {
        match word {
            Word::Level => self.three[0],
            Word::At => self.three[1],
            Word::Remainder => self.three[2],
            Word::Cell(index) => self.cells[index as usize],
        }
    }
}

impl Words {
    pub(super) fn write(&mut self, changes: &Changes) {
        for (index, (word, value)) in changes.iter().enumerate() {
            let again = changes.iter().skip(index + 1).any(|(other, _)| other == word);
            assert!(!again, "each word is named once: {changes:?}");
            match word {
                Word::Level => self.three[0] = value,
                Word::At => self.three[1] = value,
                Word::Remainder => self.three[2] = value,
                Word::Cell(index) => self.cells[index as usize] = value,
            }
        }
    }
}

/// A limit with its words; every decision is written to them.
#[derive(Clone)]
pub(super) struct Limiter<'a> {
    pub(super) operations: &'a dyn Operations,
    pub(super) rule: Rule,
    pub(super) words: Words,
}

impl Limiter<'static> {
    pub(super) fn new(rule: Rule, now: u64) -> Self {
        Limiter::with(&Table, rule, now)
    }
}

impl<'a> Limiter<'a> {
    pub(super) fn with(operations: &'a dyn Operations, rule: Rule, now: u64) -> Self {
        let cells = vec![0; operations.cells(&rule) as usize];
        let mut words = Words { three: [0; 3], cells };
        words.write(&operations.start(&rule, now));
        Self { operations, rule, words }
    }

    pub(super) fn ask(&self, now: u64, amount: u64) -> Verdict {
        self.operations.acquire(&self.rule, &self.words, now, amount)
    }

    pub(super) fn acquire(&mut self, now: u64, amount: u64) -> Answer {
        let verdict = self.ask(now, amount);
        if let Verdict::Admit(changes) = &verdict {
            assert!(changes.iter().count() <= 3, "an acquire changes at most three words: {changes:?}");
            self.words.write(changes);
        }
        verdict.into()
    }

    /// Acquires all available units, and returns their number.
    pub(super) fn take_all(&mut self, now: u64) -> u64 {
        let amount = u64::try_from(self.available(now)).unwrap_or(0);
        assert_eq!(self.acquire(now, amount), Answer::Yes);
        amount
    }

    pub(super) fn refund(&mut self, now: u64, amount: u64) -> u64 {
        let (refunded, changes) = self.operations.refund(&self.rule, &self.words, now, amount);
        assert!(changes.iter().count() <= 3, "a refund changes at most three words: {changes:?}");
        self.words.write(&changes);
        refunded
    }

    pub(super) fn adjust(&mut self, now: u64, delta: i64) {
        self.words.write(&self.operations.adjust(&self.rule, &self.words, now, delta));
    }

    pub(super) fn available(&self, now: u64) -> i64 {
        self.operations.available(&self.rule, &self.words, now)
    }

    pub(super) fn reset(&mut self, now: u64) {
        self.words.write(&self.operations.reset(&self.rule, &self.words, now));
    }

    pub(super) fn reconfigure(&mut self, new: Rule, now: u64) {
        self.words.write(&self.operations.reconfigure(&self.rule, &new, &self.words, now));
        self.rule = new;
    }

    pub(super) fn most(&self) -> u64 {
        self.operations.most(&self.rule)
    }
}

/// A verdict without the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    Later(u64),
    Never,
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Admit(_) => Self::Yes,
            Verdict::Later { at } => Self::Later(at),
            Verdict::Never => Self::Never,
        }
    }
}

/// Random numbers, equal in every run (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns 0 to `most`, small numbers as likely as large ones.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        let even = |it: &mut Self, most: u64| match most.checked_add(1) {
            Some(count) => it.next() % count,
            None => it.next(),
        };
        match even(self, 3) {
            0 => even(self, most.min(3)),
            1 => {
                let bits = even(self, 63);
                even(self, most.min((1 << bits) - 1))
            }
            _ => even(self, most),
        }
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.next() % count).unwrap()]
    }

    /// Returns the next instant: `now`, a little or much later, years later, or earlier.
    pub(super) fn step(&mut self, now: u64, rule: &Rule) -> u64 {
        const TEN_YEARS: u64 = 315_360_000_000_000_000;
        let unit = (rule.window_nanos() / rule.capacity()).max(1);
        let later = match self.next() % 16 {
            0..=3 => 0,
            4 | 5 => self.up_to(3),
            6..=9 => self.up_to(unit.saturating_mul(2)),
            10..=12 => self.up_to(rule.window_nanos()),
            13 => self.up_to(rule.window_nanos().saturating_mul(3)),
            14 if now < 1 << 62 => self.up_to(TEN_YEARS),
            _ => return now - self.up_to(rule.window_nanos().saturating_mul(2).min(now)),
        };
        now.saturating_add(later)
    }
}

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const DAY: u64 = 86_400 * SECOND;

/// Rules of all sorts: even and uneven rates, one unit and very many, bursts below and above the capacity.
pub(super) fn rules(algorithm: Algorithm) -> Vec<Rule> {
    let numbers = [
        (1, SECOND),
        (1, 1),
        (7, 3 * SECOND),
        (3, 7),
        (13, 11),
        (500, MINUTE),
        (100_000, MINUTE),
        (86_399, DAY),
        (1, DAY),
        (999_999_999_989, 7),
        (1_000_000_007, 1_000_000_009),
        (1 << 62, 1 << 40),
    ];
    let rule =
        |(capacity, window)| Rule::new(algorithm, capacity, window).with_wall_offset(1_753_000_000 * SECOND);
    let mut all: Vec<Rule> = numbers.into_iter().map(rule).collect();
    if algorithm.has_burst() {
        for (numbers, burst) in [((7, 3 * SECOND), 1), ((500, MINUTE), 3), ((3, 7), 1_000), ((13, 11), 14)] {
            all.push(rule(numbers).with_burst(burst));
        }
    }
    if algorithm.has_resolution() {
        for (numbers, resolution) in
            [((7, 3 * SECOND), 1), ((500, MINUTE), 3), ((20, 100), 60), ((5, 7), 500)]
        {
            all.push(rule(numbers).with_resolution(resolution));
        }
    }
    all
}
