//! What a set's limits are, and where their words stand. Fixed when the set was created.

use crate::algorithm::{Rule, State, Word};
use crate::format::Fnv;
use crate::format::state::{LimitWord, RuleWord, StateMap};
use crate::limit::Clock;
use crate::limit::{Algorithm, Cooldown, Definition, GivingUp, Limit, Order};
use crate::protocol::Holdings;

/// The fixed part of a set, as the rules need it.
#[derive(Debug)]
pub struct Table {
    pub(crate) map: StateMap,
    pub(crate) is_manual: bool,
    entries: Vec<Entry>,
    /// Where the row of slot 1 is, and how far it is to the next.
    first_row: usize,
    row_stride: usize,
    /// Which limits are permits.
    permits: u64,
    /// Which are not.
    rates: u64,
    /// Which of those keep cells.
    with_cells: u64,
    /// Of which a report is owed.
    reporting: u64,
    /// Which limits every request takes one of unless it says otherwise: calls and permits.
    automatic: u64,
    digest: u64,
    pub(crate) order: Order,
    pub(crate) cooldown: Cooldown,
    pub(crate) giving_up: GivingUp,
}

/// One limit.
#[derive(Debug)]
pub(super) struct Entry {
    /// Algorithm and sub-windows; none for permits.
    rate: Option<(Algorithm, u32)>,
    kind: Kind,
    /// Where its words begin, its numbers, and its cells.
    pub(super) first_word: usize,
    pub(super) first_number: usize,
    first_cell: usize,
    pub(super) must_report: bool,
}

/// How a limit is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Permits, which somebody holds.
    Permits,
    /// A rate whose three words are all it keeps.
    Plain,
    /// A rate with cells.
    WithCells,
}

/// The numbers of a limit, as they stand side by side: capacity, window, burst.
pub(super) type Numbers = [u64; 3];

impl Entry {
    /// The rule with these numbers; none for permits.
    #[inline(always)]
    pub(super) fn rule(&self, numbers: Numbers, wall_offset: u64) -> Option<Rule> {
        let (algorithm, resolution) = self.rate?;
        let rule = Rule::of_numbers(algorithm, numbers);
        Some(rule.with_resolution(resolution).with_wall_offset(wall_offset))
    }

    /// What kind of limit it is, for those who charge it.
    #[inline(always)]
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The index of a word of its state.
    #[inline(always)]
    pub(super) fn word(&self, word: Word) -> usize {
        StateMap::state_word(self.first_word, self.first_cell, word)
    }
}

impl Table {
    pub(crate) fn new(definition: &Definition, map: StateMap, clock: Clock) -> Self {
        let (mut permits, mut rates, mut with_cells, mut automatic, mut reporting) = (0, 0, 0, 0, 0);
        let mut cell = map.first_cell();
        let mut entries = Vec::new();
        for (index, limit) in definition.limits.iter().enumerate() {
            let rule = limit.rule(0);
            let first_cell = cell;
            cell += rule.map_or(0, |rule| rule.cells() as usize);
            permits |= u64::from(rule.is_none()) << index;
            rates |= u64::from(rule.is_some()) << index;
            automatic |= u64::from(!matches!(limit, Limit::Rate(_))) << index;
            let rate = rule.map(|rule| (rule.algorithm(), rule.resolution()));
            let kind = match rate {
                None => Kind::Permits,
                Some((algorithm, _)) if algorithm.is_plain() => Kind::Plain,
                Some(_) => Kind::WithCells,
            };
            reporting |= u64::from(limit.must_report()) << index;
            with_cells |= u64::from(kind == Kind::WithCells) << index;
            entries.push(Entry {
                rate,
                kind,
                first_word: map.limit(index, LimitWord::Level),
                first_number: map.rule(index, RuleWord::Capacity),
                first_cell,
                must_report: limit.must_report(),
            });
        }
        let limits = Definition { limits: definition.limits.clone(), ..Definition::default() };
        let digest = Fnv::new().bytes(&limits.encode()).0;
        Self {
            map,
            first_row: map.holding_rows(),
            row_stride: 1 + entries.len(),
            is_manual: clock == Clock::Manual,
            entries,
            permits,
            rates,
            with_cells,
            reporting,
            automatic,
            digest,
            order: definition.order,
            cooldown: definition.cooldown.clone(),
            giving_up: definition.giving_up,
        }
    }

    /// For a segment that has room for limits and no definition of them: all of them are permits.
    pub(crate) fn of_permits(map: StateMap) -> Self {
        let permits = || Limit::from(crate::limit::ResourceLimit::new("", u64::MAX));
        let limits = (0..map.limits).map(|_| permits()).collect();
        Self::new(&Definition { limits, ..Definition::default() }, map, Clock::Monotonic)
    }

    /// How many limits there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Which limits every request takes one of unless it says otherwise, a bit for each.
    pub fn automatic(&self) -> u64 {
        self.automatic
    }

    /// The limits that are rates, a bit for each.
    #[inline]
    pub(crate) fn rates(&self) -> u64 {
        self.rates
    }

    /// The limits that are permits, a bit for each.
    #[inline]
    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    /// The limits of which a report is owed, a bit for each.
    #[inline]
    pub(crate) fn reporting(&self) -> u64 {
        self.reporting
    }

    /// Those of them that keep cells.
    #[inline]
    pub(crate) fn with_cells(&self) -> u64 {
        self.with_cells
    }

    /// Those that keep none.
    #[inline]
    pub(crate) fn plain_rates(&self) -> u64 {
        self.rates & !self.with_cells
    }

    /// All limits, a bit for each.
    pub fn all(&self) -> u64 {
        u64::MAX.checked_shr(64 - u32::try_from(self.entries.len()).unwrap_or(64).min(64)).unwrap_or(0)
    }

    /// Tells sets with other limits apart.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    #[inline(always)]
    pub(super) fn entry(&self, limit: usize) -> Option<&Entry> {
        self.entries.get(limit)
    }

    #[inline]
    pub(crate) fn is_permit(&self, limit: usize) -> bool {
        self.permits >> limit & 1 != 0
    }

    #[inline]
    pub(crate) fn must_report(&self, limit: usize) -> bool {
        self.entries.get(limit).is_some_and(|entry| entry.must_report)
    }

    pub(crate) fn refunds(&self, limit: usize) -> bool {
        self.entries.get(limit).and_then(|entry| entry.rate).is_none_or(|(algorithm, _)| algorithm.refunds())
    }

    /// First word of a slot's row; the same as [`Holdings::row`], in fewer steps.
    #[inline(always)]
    pub(super) fn row(&self, slot: u32) -> usize {
        self.first_row + (slot as usize).saturating_sub(1) * self.row_stride
    }

    #[inline]
    pub(crate) fn holdings(&self) -> Holdings {
        let map = self.map;
        Holdings {
            totals: map.limit_words(),
            stride: map.limit_stride(),
            rows: map.holding_rows(),
            limits: self.entries.len(),
            permits: self.permits,
        }
    }

    /// The index of a word of a limit's state.
    #[inline]
    pub(crate) fn word(&self, limit: usize, word: Word) -> usize {
        self.entry(limit).map_or(usize::MAX, |entry| entry.word(word))
    }

    /// The current numbers of a rate, read through `get`; none for permits.
    #[inline]
    pub(crate) fn rule(&self, limit: usize, get: impl Fn(usize) -> u64) -> Option<Rule> {
        let entry = self.entry(limit)?;
        let numbers = [RuleWord::Capacity, RuleWord::WindowNanos, RuleWord::Burst];
        let numbers = numbers.map(|word| get(self.map.rule(limit, word)));
        entry.rule(numbers, get(StateMap::WALL_OFFSET))
    }

    /// The state of a limit, read through `get`.
    #[inline]
    pub(crate) fn state<'a>(
        &'a self,
        limit: usize,
        get: impl Fn(usize) -> u64 + Copy + 'a,
    ) -> impl State + 'a {
        move |word| get(self.word(limit, word))
    }

    /// What would be admitted of a limit at an instant; negative is debt.
    pub(crate) fn available(&self, limit: usize, get: impl Fn(usize) -> u64 + Copy, now: u64) -> i64 {
        match self.rule(limit, get) {
            Some(rule) => rule.available(&self.state(limit, &get), now),
            None => {
                let capacity = i128::from(get(self.map.rule(limit, RuleWord::Capacity)));
                let left = capacity - i128::from(get(self.map.limit(limit, LimitWord::Level)));
                i64::try_from(left).unwrap_or(if left < 0 { i64::MIN } else { i64::MAX })
            }
        }
    }

    /// The largest amount ever admitted of a limit.
    pub(crate) fn most(&self, limit: usize, get: impl Fn(usize) -> u64) -> u64 {
        match self.rule(limit, &get) {
            Some(rule) => rule.most(),
            None => get(self.map.rule(limit, RuleWord::Capacity)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_row_whoever_asks_for_it() {
        for (limits, cells) in [(1, 0), (3, 12), (64, 0)] {
            let map = StateMap { limits, cells, slots: 4095, waiters: 8, items: 0 };
            let table = Table::of_permits(map);
            for slot in [0, 1, 2, 4095, u32::MAX] {
                assert_eq!(table.row(slot), table.holdings().row(slot), "slot {slot} of a set of {limits}");
            }
        }
    }
}
