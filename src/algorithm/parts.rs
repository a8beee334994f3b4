//! Building blocks of all algorithms: state words, the rule, changes, verdicts, and the [`Method`] trait.

use std::num::{NonZeroU64, NonZeroU128};

use super::{Algorithm, MAX_CAPACITY, MAX_RESOLUTION, MAX_WINDOW_NANOS};

/// One word of a limit's state. Each algorithm defines the meaning of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Level,
    At,
    Remainder,
    /// Numbered from 0, below [`Rule::cells`].
    Cell(u32),
}

/// Read access to the state words of one limit. Other processes write them, so any word may hold any value.
pub(crate) trait State: Copy {
    fn word(&self, word: Word) -> u64;
}

impl<F: Fn(Word) -> u64 + Copy> State for F {
    fn word(&self, word: Word) -> u64 {
        self(word)
    }
}

/// The largest number of cells that one operation changes.
const MOST_CELLS: usize = 3;

/// Words to write: any of the three, and at most [`MOST_CELLS`] cells. An acquire or a refund changes at most
/// three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    // Separate fields and not a list, so that most decisions keep them in registers.
    pub(crate) level: Option<u64>,
    pub(crate) at: Option<u64>,
    pub(crate) remainder: Option<u64>,
    cells: [(u32, u64); MOST_CELLS],
    cell_count: usize,
}

impl Changes {
    pub(crate) const NONE: Self =
        Self { level: None, at: None, remainder: None, cells: [(0, 0); MOST_CELLS], cell_count: 0 };

    /// Adds a word to write.
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

    /// Iterates over the cells to write.
    #[inline]
    pub(crate) fn cells(&self) -> impl Iterator<Item = (Word, u64)> + '_ {
        self.cells.iter().take(self.cell_count).map(|(cell, value)| (Word::Cell(*cell), *value))
    }

    /// Iterates over all words to write.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Word, u64)> + '_ {
        let words = [(Word::Level, self.level), (Word::At, self.at), (Word::Remainder, self.remainder)];
        words.into_iter().filter_map(|(word, value)| Some((word, value?))).chain(self.cells())
    }
}

/// The answer to a request for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Admitted, once these words are written.
    Admit(Changes),
    /// The request, made alone, succeeds at this instant of set time, and not a nanosecond earlier.
    Later { at: u64 },
    /// The amount exceeds the largest that is ever admitted at once.
    Never,
}

/// Two of the three state words after an admission, for algorithms that keep no cells. The third word, `at`,
/// is then the instant of the decision. Two words, because two words are returned in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    level: u64,
    /// Always less than the capacity or the window.
    remainder: u64,
}

impl Settled {
    /// Not admitted.
    pub(crate) const NOT: Self = Self { level: 0, remainder: u64::MAX };

    /// Returns level and remainder; none if the request was not admitted.
    #[inline(always)]
    pub(crate) fn words(self) -> Option<[u64; 2]> {
        (self != Self::NOT).then_some([self.level, self.remainder])
    }

    /// Applies a verdict to the words.
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

/// The parameters of one limit. The constructors clamp every value into its bounds, because parameters also
/// come from a segment: no division by zero, no product beyond 128 bits.
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
    /// Does what [`new`](Self::new) and [`with_burst`](Self::with_burst) do, with a single check of all
    /// bounds. Only a damaged segment fails this check.
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

    /// A rule of `capacity` units per window: the burst is the capacity, there are ten sub-windows, and
    /// windows start with set time.
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

    /// Sets the largest amount admitted at once, for algorithms that have a burst.
    #[inline(always)]
    pub(crate) fn with_burst(mut self, burst: u64) -> Self {
        self.burst = burst.clamp(1, MAX_CAPACITY);
        self
    }

    /// Sets the number of sub-windows of a sliding window.
    #[inline(always)]
    pub(crate) fn with_resolution(mut self, resolution: u32) -> Self {
        self.resolution = resolution.clamp(1, MAX_RESOLUTION);
        self
    }

    /// Sets Unix time minus set time, in nanoseconds, by which fixed windows are aligned.
    #[inline(always)]
    pub(crate) fn with_wall_offset(mut self, wall_offset: u64) -> Self {
        self.wall_offset = wall_offset;
        self
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The number of units per window.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn window_nanos(&self) -> u64 {
        self.window
    }

    /// The largest amount admitted at once; the capacity, for algorithms without a burst.
    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn resolution(&self) -> u32 {
        self.resolution
    }

    /// Returns the units that flow in `elapsed` at the limit's rate, and the part of a unit left over, in
    /// units of 1/window. When callers carry the remainder from call to call, the sum of all parts is exact
    /// for steps of any size.
    #[inline(always)]
    pub(super) fn flow(&self, elapsed: u64, remainder: u64) -> (u128, u64) {
        divide(
            u128::from(elapsed) * u128::from(self.capacity) + u128::from(self.part(remainder)),
            self.window,
        )
    }

    /// Returns the nanoseconds until `units` more have flown, given the `remainder` that has flown already.
    pub(super) fn time_for(&self, units: u128, remainder: u64) -> u64 {
        let scaled = units.saturating_mul(u128::from(self.window));
        let missing = scaled.saturating_sub(u128::from(self.part(remainder)));
        low(divide_up(missing, self.capacity))
    }

    /// Clamps a stored remainder to the largest valid one.
    #[inline(always)]
    fn part(&self, remainder: u64) -> u64 {
        remainder.min(self.window - 1)
    }
}

/// Returns quotient and remainder. The divisor is never 0, but the compiler cannot know that; the code avoids
/// a panic branch.
#[inline(always)]
pub(super) fn divide(number: u128, by: u64) -> (u128, u64) {
    let by = NonZeroU64::new(by).unwrap_or(NonZeroU64::MIN);
    // The number nearly always fits 64 bits, where a division is several times faster.
    match u64::try_from(number) {
        Ok(number) => (u128::from(number / by), number % by),
        Err(_) => divide_large(number, by),
    }
}

/// Returns the quotient, rounded up. The divisor is never 0.
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

/// Returns the number if it fits 64 bits, else the largest that does.
#[inline(always)]
pub(super) fn low(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Clamps a number to the range of instants.
pub(super) fn instant(number: i128) -> u64 {
    low(number.max(0).cast_unsigned())
}

/// Returns the number if it fits, else the nearest that does.
pub(super) fn signed(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// Returns `limit` minus `used`; negative is debt.
pub(super) fn left(limit: u64, used: u128) -> i64 {
    let used = i128::try_from(used).unwrap_or(i128::MAX);
    signed(i128::from(limit).saturating_sub(used))
}

/// Returns the units that count as used after the capacity or burst changed. The remaining units are the
/// lesser of those under the old and under the new limit: a change never makes room, or lowering and raising
/// a limit would forget its use. A lower limit makes no debt; existing debt stays.
pub(super) fn carried_over(used: u128, old_limit: u64, new_limit: u64) -> u64 {
    let (old, new) = (u128::from(old_limit), u128::from(new_limit));
    let left = old.saturating_sub(used).min(new.saturating_sub(used));
    low((new - left).saturating_add(used.saturating_sub(old)))
}

/// An algorithm: pure functions of a rule, the state words of a limit and an instant of set time.
///
/// [`Rule`]'s methods call these functions and handle the common cases: amounts of 0, amounts above
/// [`most`](Self::most), and signs. A `now` before the last decision counts as the instant of that decision.
/// No state may cause a panic or an overflow.
pub(crate) trait Method {
    /// Whether the algorithm refunds unused units.
    const REFUNDS: bool;
    /// Whether the largest amount admitted at once can differ from the capacity.
    const HAS_BURST: bool;
    /// Whether the algorithm divides its window into sub-windows.
    const HAS_RESOLUTION: bool = false;
    /// Whether the three words are the whole state, and `at` is the instant of the last decision.
    const IS_PLAIN: bool = false;

    /// The number of state words needed beyond the three; all are zero in a new segment.
    fn cells(_rule: &Rule) -> u32 {
        0
    }

    /// The largest amount that is ever admitted.
    fn most(rule: &Rule) -> u64 {
        if Self::HAS_BURST { rule.burst } else { rule.capacity }
    }

    /// Returns the state of an unused limit.
    fn start(rule: &Rule, now: u64) -> Changes;

    /// Returns the changes that make a used limit unused again, as after [`start`](Self::start).
    fn reset(rule: &Rule, _state: &impl State, now: u64) -> Changes {
        Self::start(rule, now)
    }

    /// Decides about `amount`, which is 1 to [`most`](Self::most). Changes at most three words.
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict;

    /// Charges `amount`, which is 1 or more, without a check. Units beyond the available ones become debt.
    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes;

    /// Refunds `amount`, up to the limit. Called only if [`REFUNDS`](Self::REFUNDS). Changes at most three
    /// words.
    fn give_back(_rule: &Rule, _state: &impl State, _now: u64, _amount: u64) -> Changes {
        Changes::NONE
    }

    /// The number of units that would be admitted now; negative is debt.
    fn available(rule: &Rule, state: &impl State, now: u64) -> i64;

    /// Returns a lower bound of the time until `units` more are admitted, on a limit that is used up.
    fn time_for_more(rule: &Rule, units: u64) -> u64 {
        rule.time_for(units.into(), 0).saturating_sub(1)
    }

    /// The latest instant of set time at which a decision was made.
    fn decided_until(_rule: &Rule, state: &impl State) -> u64 {
        state.word(Word::At)
    }

    /// Changes to new parameters. Clamps the available units to them, but never clamps debt.
    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes;
}
