//! What every algorithm is written in: a limit's words, the rule, changes, verdicts, and the [`Method`] itself.

use std::num::{NonZeroU64, NonZeroU128};

use super::{Algorithm, MAX_CAPACITY, MAX_RESOLUTION, MAX_WINDOW_NANOS};

/// One word of a limit's state. What it means is the algorithm's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Level,
    At,
    Remainder,
    /// Numbered from 0, below [`Rule::cells`].
    Cell(u32),
}

/// The words of one limit, to be read. They are somebody else's bytes: any value is possible in any of them.
pub(crate) trait State: Copy {
    fn word(&self, word: Word) -> u64;
}

impl<F: Fn(Word) -> u64 + Copy> State for F {
    fn word(&self, word: Word) -> u64 {
        self(word)
    }
}

/// Most cells that one operation changes.
const MOST_CELLS: usize = 3;

/// Words to write: any of the three, and at most [`MOST_CELLS`] cells. An acquire or a refund changes three at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    // Apart, not in a list: so they stay in registers, where most of what is admitted is decided.
    pub(crate) level: Option<u64>,
    pub(crate) at: Option<u64>,
    pub(crate) remainder: Option<u64>,
    cells: [(u32, u64); MOST_CELLS],
    cell_count: usize,
}

impl Changes {
    pub(crate) const NONE: Self =
        Self { level: None, at: None, remainder: None, cells: [(0, 0); MOST_CELLS], cell_count: 0 };

    /// One more word.
    #[inline(always)]
    pub(crate) fn set(mut self, word: Word, value: u64) -> Self {
        match word {
            Word::Level => self.level = Some(value),
            Word::At => self.at = Some(value),
            Word::Remainder => self.remainder = Some(value),
            Word::Cell(cell) => {
                let free = self.cells.get_mut(self.cell_count);
                debug_assert!(free.is_some(), "an operation changes more than {MOST_CELLS} cells");
                if let Some(free) = free {
                    *free = (cell, value);
                    self.cell_count += 1;
                }
            }
        }
        self
    }

    /// The cells among them.
    #[inline]
    pub(crate) fn cells(&self) -> impl Iterator<Item = (Word, u64)> + '_ {
        self.cells.iter().take(self.cell_count).map(|(cell, value)| (Word::Cell(*cell), *value))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Word, u64)> + '_ {
        let words = [(Word::Level, self.level), (Word::At, self.at), (Word::Remainder, self.remainder)];
        words.into_iter().filter_map(|(word, value)| Some((word, value?))).chain(self.cells())
    }
}

/// What came of asking for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Admitted, once these words are written.
    Admit(Changes),
    /// Asking alone succeeds at this instant of set time, and not a nanosecond earlier.
    Later { at: u64 },
    /// More than is ever admitted at once.
    Never,
}

/// Two of the three words of a limit after units were admitted, where the algorithm keeps no cells; the third, `at`, is
/// the instant of the decision then. Two words, because so many are handed back in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    level: u64,
    /// Always less than a capacity or window.
    remainder: u64,
}

impl Settled {
    /// Not admitted.
    pub(crate) const NOT: Self = Self { level: 0, remainder: u64::MAX };

    /// Level and remainder; none if nothing was admitted.
    #[inline(always)]
    pub(crate) fn words(self) -> Option<[u64; 2]> {
        (self != Self::NOT).then_some([self.level, self.remainder])
    }

    /// What a verdict makes of the words.
    #[inline(always)]
    pub(super) fn by(verdict: &Verdict, [level, remainder]: [u64; 2]) -> Self {
        match verdict {
            Verdict::Admit(changes) => Self {
                level: changes.level.unwrap_or(level),
                remainder: changes.remainder.unwrap_or(remainder),
            },
            _ => Self::NOT,
        }
    }
}

/// The numbers of one limit. Whatever it is made of, it is within bounds afterwards, because they come from a
/// segment too: no zero to divide by, no product beyond 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(super) algorithm: Algorithm,
    pub(super) capacity: u64,
    pub(super) window: u64,
    pub(super) burst: u64,
    pub(super) resolution: u32,
    pub(super) wall_offset: u64,
}

impl Rule {
    /// The same as [`new`](Self::new) and [`with_burst`](Self::with_burst), with one look at whether all is within bounds,
    /// which it is unless somebody damaged the segment.
    #[inline(always)]
    pub(crate) fn of_numbers(algorithm: Algorithm, [capacity, window, burst]: [u64; 3]) -> Self {
        let numbers = [capacity, window, burst].map(|number| number.wrapping_sub(1));
        if numbers.iter().fold(0, |all, number| all | number) >= MAX_CAPACITY.min(MAX_WINDOW_NANOS) {
            return Self::bounded(algorithm, [capacity, window, burst]);
        }
        let resolution = super::DEFAULT_RESOLUTION;
        Self { algorithm, capacity, window, burst, resolution, wall_offset: 0 }
    }

    #[cold]
    fn bounded(algorithm: Algorithm, [capacity, window, burst]: [u64; 3]) -> Self {
        Self::new(algorithm, capacity, window).with_burst(burst)
    }

    /// `capacity` units per window; as many at once, ten sub-windows, windows from the start of set time.
    #[inline(always)]
    pub(crate) fn new(algorithm: Algorithm, capacity: u64, window_nanos: u64) -> Self {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        let window = window_nanos.clamp(1, MAX_WINDOW_NANOS);
        Self {
            algorithm,
            capacity,
            window,
            burst: capacity,
            resolution: super::DEFAULT_RESOLUTION,
            wall_offset: 0,
        }
    }

    /// Most units at once, where the algorithm tells them from the capacity.
    #[inline(always)]
    pub(crate) fn with_burst(mut self, burst: u64) -> Self {
        self.burst = burst.clamp(1, MAX_CAPACITY);
        self
    }

    /// Sub-windows of a sliding window.
    #[inline(always)]
    pub(crate) fn with_resolution(mut self, resolution: u32) -> Self {
        self.resolution = resolution.clamp(1, MAX_RESOLUTION);
        self
    }

    /// Unix time minus set time, in nanoseconds: fixed windows are aligned by it.
    #[inline(always)]
    pub(crate) fn with_wall_offset(mut self, wall_offset: u64) -> Self {
        self.wall_offset = wall_offset;
        self
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per window.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn window_nanos(&self) -> u64 {
        self.window
    }

    /// Most units at once; the capacity, where the algorithm does not tell them apart.
    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn resolution(&self) -> u32 {
        self.resolution
    }

    /// Units that flow in `elapsed` at the rate of the limit, and the part of a unit left over, in units of
    /// 1/window. Carried from call to call, the sum of all parts is exact, whatever the steps.
    #[inline(always)]
    pub(super) fn flow(&self, elapsed: u64, remainder: u64) -> (u128, u64) {
        divide(
            u128::from(elapsed) * u128::from(self.capacity) + u128::from(self.part(remainder)),
            self.window,
        )
    }

    /// Nanoseconds until `units` more have flown, when `remainder` has already.
    pub(super) fn time_for(&self, units: u128, remainder: u64) -> u64 {
        let scaled = units.saturating_mul(u128::from(self.window));
        let missing = scaled.saturating_sub(u128::from(self.part(remainder)));
        low(divide_up(missing, self.capacity))
    }

    /// A stored remainder as far as it can be one.
    #[inline(always)]
    fn part(&self, remainder: u64) -> u64 {
        remainder.min(self.window - 1)
    }
}

/// Quotient and remainder. The divisor is not 0; the compiler does not know that, and should not have to think of a panic.
#[inline(always)]
pub(super) fn divide(number: u128, by: u64) -> (u128, u64) {
    let by = NonZeroU64::new(by).unwrap_or(NonZeroU64::MIN);
    // Nearly always the number fits 64 bits, and dividing those is several times faster.
    match u64::try_from(number) {
        Ok(number) => (u128::from(number / by), number % by),
        Err(_) => divide_large(number, by),
    }
}

/// Quotient, rounded up. The divisor is not 0.
#[inline(always)]
pub(super) fn divide_up(number: u128, by: u64) -> u128 {
    let (quotient, remainder) = divide(number, by);
    quotient + u128::from(remainder != 0)
}

#[cold]
fn divide_large(number: u128, by: NonZeroU64) -> (u128, u64) {
    let by = NonZeroU128::from(by);
    (number / by, low(number % by))
}

/// The number if it fits 64 bits, else the largest that does.
#[inline(always)]
pub(super) fn low(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The number as an instant: not before 0, not behind the last one.
pub(super) fn instant(number: i128) -> u64 {
    low(number.max(0).cast_unsigned())
}

/// The number if it fits, else the nearest that does.
pub(super) fn signed(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// What is left of `limit` when `used` is gone; negative is debt.
pub(super) fn left(limit: u64, used: u128) -> i64 {
    let used = i128::try_from(used).unwrap_or(i128::MAX);
    signed(i128::from(limit).saturating_sub(used))
}

/// What counts as used after a limit changed. What is left is what both limits leave: a change never makes room, or
/// going down and up again would forget what was used. A lower limit makes no debt; what was debt stays.
pub(super) fn carried_over(used: u128, old_limit: u64, new_limit: u64) -> u64 {
    let (old, new) = (u128::from(old_limit), u128::from(new_limit));
    let left = old.saturating_sub(used).min(new.saturating_sub(used));
    low((new - left).saturating_add(used.saturating_sub(old)))
}

/// An algorithm: pure functions of a rule, the words of a limit and an instant of set time.
///
/// Called through [`Rule`]'s methods, which deal with what is the same for all: amounts of 0 and above
/// [`most`](Self::most), and signs. Every `now` that is not behind the last one counts as the last one.
/// Nothing may panic or overflow, whatever the words.
pub(crate) trait Method {
    /// Whether units that were not used can be given back.
    const REFUNDS: bool;
    /// Whether the most at once can differ from the capacity.
    const HAS_BURST: bool;
    /// Whether it divides its window into sub-windows.
    const HAS_RESOLUTION: bool = false;
    /// Whether its three words are all it keeps, and `at` is the instant of the last decision.
    const IS_PLAIN: bool = false;

    /// Words needed beyond the three; all zero in a new segment.
    fn cells(_rule: &Rule) -> u32 {
        0
    }

    /// The largest amount that is ever admitted.
    fn most(rule: &Rule) -> u64 {
        if Self::HAS_BURST { rule.burst } else { rule.capacity }
    }

    /// The state of a limit that nobody has used yet.
    fn start(rule: &Rule, now: u64) -> Changes;

    /// As [`start`](Self::start), over words that have been used.
    fn reset(rule: &Rule, _state: &impl State, now: u64) -> Changes {
        Self::start(rule, now)
    }

    /// Decides about `amount`, which is 1 to [`most`](Self::most). At most three changes.
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict;

    /// Takes `amount`, which is 1 or more, be it there or not: what is missing is debt.
    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes;

    /// Gives `amount` back, up to the limit. Called only if [`REFUNDS`](Self::REFUNDS). At most three changes.
    fn give_back(_rule: &Rule, _state: &impl State, _now: u64, _amount: u64) -> Changes {
        Changes::NONE
    }

    /// What would be admitted now; negative is debt.
    fn available(rule: &Rule, state: &impl State, now: u64) -> i64;

    /// Not more than the time that passes until so many units follow on a limit that is used up.
    fn time_for_more(rule: &Rule, units: u64) -> u64 {
        rule.time_for(units.into(), 0).saturating_sub(1)
    }

    /// The latest instant of set time that was decided about.
    fn decided_until(_rule: &Rule, state: &impl State) -> u64 {
        state.word(Word::At)
    }

    /// Goes over to other numbers. Clamps what is available to them, never what is owed.
    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes;
}
