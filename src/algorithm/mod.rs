//! Algorithms: how a limit decides about a request. Pure functions: no clock, no memory, no lock, no floating
//! point.
//!
//! ```text
//! (rule, words of the limit, instant, amount)  ->  verdict, words to write
//! ```
//!
//! Each algorithm is one file that implements [`Method`], and one line in the table below.
//! `docs/algorithms.md` explains the algorithms; `docs/extending.md` says how to add one.
//!
//! The words come from shared memory and may hold any value: arithmetic on them uses 128 bits or saturates.

mod fixed_window;
mod gcra;
mod leaky_bucket;
mod parts;
mod sliding_window;
#[cfg(test)]
mod tests;
mod token_bucket;

use std::fmt;
use std::str::FromStr;

pub(crate) use parts::{Changes, Method, Rule, Settled, State, Verdict, Word};
use thiserror::Error;

/// The largest capacity and the largest burst.
pub(crate) const MAX_CAPACITY: u64 = 1 << 62;
/// The longest window, and the longest time to fill a burst: 146 years.
pub(crate) const MAX_WINDOW_NANOS: u64 = 1 << 62;
/// The largest number of sub-windows. The cells of 64 limits with this resolution still fit a segment.
pub(crate) const MAX_RESOLUTION: u32 = 500;
/// The number of sub-windows unless set.
pub(crate) const DEFAULT_RESOLUTION: u32 = 10;

/// Generates the enum, its names and the dispatch from one table.
macro_rules! algorithms {
    ($($(#[$about:meta])* $name:ident = $number:literal, $text:literal, $method:ty;)+) => {
        /// How a limit counts. Every algorithm is exact, uses integers only, and gives the same answer in
        /// every process.
        ///
        /// Algorithms differ after a pause, at the edge of a window, and in whether they refund unused units.
        /// The default is right for most uses; `docs/algorithms.md` compares them.
        ///
        /// ```
        /// use limitset::limit::Algorithm;
        ///
        /// assert_eq!(Algorithm::default(), Algorithm::TokenBucket);
        /// assert_eq!(Algorithm::SlidingWindow.to_string(), "sliding_window");
        /// assert_eq!("sliding-window".parse(), Ok(Algorithm::SlidingWindow));
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$about])* $name,)+
        }

        impl Algorithm {
            /// All algorithms.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the algorithm's name in lower case, for example `token_bucket`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// Returns whether the algorithm refunds unused units.
            pub const fn refunds(self) -> bool {
                match self { $(Self::$name => <$method>::REFUNDS),+ }
            }

            /// Returns whether the largest amount admitted at once can differ from the capacity.
            pub const fn has_burst(self) -> bool {
                match self { $(Self::$name => <$method>::HAS_BURST),+ }
            }

            /// Returns whether [`Rule::settle`] supports this algorithm.
            pub(crate) const fn is_plain(self) -> bool {
                match self { $(Self::$name => <$method>::IS_PLAIN),+ }
            }

            /// Returns whether the algorithm divides its window into sub-windows, whose number can be set.
            pub const fn has_resolution(self) -> bool {
                match self { $(Self::$name => <$method>::HAS_RESOLUTION),+ }
            }

            /// Returns the algorithm's number in a segment. Numbers never change and are never reused.
            pub(crate) const fn number(self) -> u32 {
                match self { $(Self::$name => $number),+ }
            }

            /// Returns the algorithm with that number.
            pub(crate) const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }
        }

        impl Rule {
            /// The number of state words needed beyond the three; all are zero in a new segment.
            pub(crate) fn cells(&self) -> u32 {
                match self.algorithm { $(Algorithm::$name => <$method>::cells(self)),+ }
            }

            /// The largest amount that is ever admitted.
            pub(crate) fn most(&self) -> u64 {
                match self.algorithm { $(Algorithm::$name => <$method>::most(self)),+ }
            }

            /// Returns the state of an unused limit whose cells are zero.
            pub(crate) fn start(&self, now: u64) -> Changes {
                match self.algorithm { $(Algorithm::$name => <$method>::start(self, now)),+ }
            }

            /// Returns the changes that make a used limit unused again.
            pub(crate) fn reset(&self, state: &impl State, now: u64) -> Changes {
                match self.algorithm { $(Algorithm::$name => <$method>::reset(self, state, now)),+ }
            }

            /// Decides about `amount` units. An amount of 0 is always admitted and changes nothing.
            #[inline]
            pub(crate) fn acquire(&self, state: &impl State, now: u64, amount: u64) -> Verdict {
                match self.algorithm { $(Algorithm::$name => acquire::<$method>(self, state, now, amount)),+ }
            }

            /// Does what [`acquire`](Self::acquire) does, on values, for algorithms that keep no cells.
            /// Returns the new state words; none for all other algorithms.
            #[inline(always)]
            pub(crate) fn settle(&self, words: [u64; 3], now: u64, amount: u64) -> Option<Settled> {
                match self.algorithm { $(Algorithm::$name => settle::<$method>(self, words, now, amount)),+ }
            }

            /// Refunds units that were admitted and not used. Returns how many the algorithm refunded (all or
            /// none), and the changes. A refund never raises the limit above its maximum.
            pub(crate) fn refund(&self, state: &impl State, now: u64, amount: u64) -> (u64, Changes) {
                match self.algorithm { $(Algorithm::$name => refund::<$method>(self, state, now, amount)),+ }
            }

            /// Charges `delta` units that were used beyond the admitted ones, into debt if necessary; refunds
            /// if `delta` is negative.
            pub(crate) fn adjust(&self, state: &impl State, now: u64, delta: i64) -> Changes {
                match self.algorithm { $(Algorithm::$name => adjust::<$method>(self, state, now, delta)),+ }
            }

            /// The number of units that would be admitted now; negative is debt.
            pub(crate) fn available(&self, state: &impl State, now: u64) -> i64 {
                match self.algorithm { $(Algorithm::$name => <$method>::available(self, state, now)),+ }
            }

            /// Returns a lower bound of the instant at which `units` can have been admitted, in any number of
            /// requests.
            pub(crate) fn earliest(&self, state: &impl State, now: u64, units: u64) -> u64 {
                match self.algorithm { $(Algorithm::$name => earliest::<$method>(self, state, now, units)),+ }
            }

            /// The latest instant of set time at which a decision was made.
            pub(crate) fn decided_until(&self, state: &impl State) -> u64 {
                match self.algorithm { $(Algorithm::$name => <$method>::decided_until(self, state)),+ }
            }

            /// Changes from this rule to new parameters with the same algorithm and resolution.
            pub(crate) fn reconfigure(&self, new: &Rule, state: &impl State, now: u64) -> Changes {
                match self.algorithm {
                    $(Algorithm::$name => <$method>::reconfigure(self, new, state, now)),+
                }
            }
        }
    };
}

algorithms! {
    /// Bursts up to the capacity (or the burst set), continuous refill.
    #[default]
    TokenBucket = 1, "token_bucket", token_bucket::TokenBucket;
    /// A meter that leaks at a constant rate and must not overflow; strictly spaced with a burst of 1.
    LeakyBucket = 2, "leaky_bucket", leaky_bucket::LeakyBucket;
    /// Never more than the capacity in any window of that length, no matter when the window begins.
    SlidingWindow = 3, "sliding_window", sliding_window::SlidingWindow;
    /// A counter per window, windows aligned to the Unix epoch: minutes, hours and days of UTC.
    FixedWindow = 4, "fixed_window", fixed_window::FixedWindow;
    /// Generic cell rate algorithm: one instant, the theoretical arrival time of the next unit.
    Gcra = 5, "gcra", gcra::Gcra;
}

/// Implements [`Rule::acquire`] for one method.
#[inline(always)]
fn acquire<M: Method>(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
    match amount {
        0 => Verdict::Admit(Changes::NONE),
        amount if amount > M::most(rule) => Verdict::Never,
        amount => M::admit(rule, state, now, amount),
    }
}

/// Implements [`Rule::settle`] for one method.
#[inline(always)]
fn settle<M: Method>(
    rule: &Rule,
    [level, at, remainder]: [u64; 3],
    now: u64,
    amount: u64,
) -> Option<Settled> {
    if !M::IS_PLAIN {
        return None;
    }
    let state = |word| match word {
        Word::Level => level,
        Word::At => at,
        Word::Remainder => remainder,
        Word::Cell(_) => 0,
    };
    Some(Settled::by(&acquire::<M>(rule, &state, now, amount), [level, remainder]))
}

/// Implements [`Rule::earliest`] for one method.
fn earliest<M: Method>(rule: &Rule, state: &impl State, now: u64, units: u64) -> u64 {
    let at_once = units.min(M::most(rule));
    match acquire::<M>(rule, state, now, at_once) {
        Verdict::Later { at } => at.saturating_add(M::time_for_more(rule, units - at_once)),
        _ if units == at_once => now,
        // The rest can only follow once the limit is used up, and it is not used up yet.
        _ => now.saturating_add(M::time_for_more(rule, units - at_once)),
    }
}

/// Implements [`Rule::refund`] for one method.
fn refund<M: Method>(rule: &Rule, state: &impl State, now: u64, amount: u64) -> (u64, Changes) {
    if amount == 0 || !M::REFUNDS {
        return (0, Changes::NONE);
    }
    (amount, M::give_back(rule, state, now, amount))
}

/// Implements [`Rule::adjust`] for one method.
fn adjust<M: Method>(rule: &Rule, state: &impl State, now: u64, delta: i64) -> Changes {
    match delta {
        0 => Changes::NONE,
        1.. => M::charge(rule, state, now, delta.unsigned_abs()),
        _ => refund::<M>(rule, state, now, delta.unsigned_abs()).1,
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of parsing a text that names no algorithm.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown algorithm {found:?}; use one of {}", names())]
pub struct UnknownAlgorithm {
    /// The text given.
    pub found: String,
}

fn names() -> String {
    Algorithm::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Parses a name whose words are joined by `_` or `-`, in lower or upper case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_it = |it: &&Self| it.name().eq_ignore_ascii_case(&text.replace('-', "_"));
        Self::ALL.iter().find(is_it).copied().ok_or_else(|| UnknownAlgorithm { found: text.to_owned() })
    }
}
