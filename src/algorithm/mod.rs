//! Decide: what a limit answers. Pure functions: no clock, no memory, no lock, no floating point.
//!
//! ```text
//! (rule, words of the limit, instant, amount)  ->  verdict, words to write
//! ```
//!
//! One algorithm is one file that implements [`Method`], and one line in the table below. `docs/algorithms.md`
//! explains them, `docs/extending.md` says how to add one.
//!
//! The words come from shared memory and may hold anything: arithmetic on them is done in 128 bits or saturates.

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

/// Most units per window and at once.
pub(crate) const MAX_CAPACITY: u64 = 1 << 62;
/// Longest window, and longest time to fill a burst: 146 years.
pub(crate) const MAX_WINDOW_NANOS: u64 = 1 << 62;
/// Most sub-windows: with 64 limits of that resolution the cells still fit a segment.
pub(crate) const MAX_RESOLUTION: u32 = 500;
/// Sub-windows unless set.
pub(crate) const DEFAULT_RESOLUTION: u32 = 10;

/// Makes the enum, its names and the dispatch from one table.
macro_rules! algorithms {
    ($($(#[$about:meta])* $name:ident = $number:literal, $text:literal, $method:ty;)+) => {
        /// How a limit counts: exact, in integers, and the same in every process.
        ///
        /// They differ in what happens after a pause and at the edge of a window, and in whether unused units
        /// can be given back. The default is right for most uses; `docs/algorithms.md` compares them.
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
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name in small letters, `token_bucket` for example.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// Whether unused units can be given back.
            pub const fn refunds(self) -> bool {
                match self { $(Self::$name => <$method>::REFUNDS),+ }
            }

            /// Whether the most at once can be set apart from the rate.
            pub const fn has_burst(self) -> bool {
                match self { $(Self::$name => <$method>::HAS_BURST),+ }
            }

            /// Whether [`Rule::settle`] decides.
            pub(crate) const fn is_plain(self) -> bool {
                match self { $(Self::$name => <$method>::IS_PLAIN),+ }
            }

            /// Whether it divides its window into sub-windows, whose number can be set.
            pub const fn has_resolution(self) -> bool {
                match self { $(Self::$name => <$method>::HAS_RESOLUTION),+ }
            }

            /// Its number in a segment. Never changes, is never used again.
            pub(crate) const fn number(self) -> u32 {
                match self { $(Self::$name => $number),+ }
            }

            /// The algorithm of that number.
            pub(crate) const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }
        }

        impl Rule {
            /// Words needed beyond the three; all zero in a new segment.
            pub(crate) fn cells(&self) -> u32 {
                match self.algorithm { $(Algorithm::$name => <$method>::cells(self)),+ }
            }

            /// The largest amount that is ever admitted.
            pub(crate) fn most(&self) -> u64 {
                match self.algorithm { $(Algorithm::$name => <$method>::most(self)),+ }
            }

            /// The state of a limit that nobody has used yet, its cells being zero.
            pub(crate) fn start(&self, now: u64) -> Changes {
                match self.algorithm { $(Algorithm::$name => <$method>::start(self, now)),+ }
            }

            /// The state of a limit that nobody has used yet, over words that have been used.
            pub(crate) fn reset(&self, state: &impl State, now: u64) -> Changes {
                match self.algorithm { $(Algorithm::$name => <$method>::reset(self, state, now)),+ }
            }

            /// Asks for units. Nothing is asked of the limit with an amount of 0.
            #[inline]
            pub(crate) fn acquire(&self, state: &impl State, now: u64, amount: u64) -> Verdict {
                match self.algorithm { $(Algorithm::$name => acquire::<$method>(self, state, now, amount)),+ }
            }

            /// [`acquire`](Self::acquire) for algorithms that keep no cells: what it makes of the three words. None for
            /// all others.
            #[inline(always)]
            pub(crate) fn settle(&self, words: [u64; 3], now: u64, amount: u64) -> Option<Settled> {
                match self.algorithm { $(Algorithm::$name => settle::<$method>(self, words, now, amount)),+ }
            }

            /// Gives back units that were admitted and not used: how many the algorithm took back (all or
            /// none), and the changes. The limit never rises above its most by it.
            pub(crate) fn refund(&self, state: &impl State, now: u64, amount: u64) -> (u64, Changes) {
                match self.algorithm { $(Algorithm::$name => refund::<$method>(self, state, now, amount)),+ }
            }

            /// `delta` more units were used than admitted, into debt if need be; less if negative, as a refund.
            pub(crate) fn adjust(&self, state: &impl State, now: u64, delta: i64) -> Changes {
                match self.algorithm { $(Algorithm::$name => adjust::<$method>(self, state, now, delta)),+ }
            }

            /// What would be admitted now; negative is debt.
            pub(crate) fn available(&self, state: &impl State, now: u64) -> i64 {
                match self.algorithm { $(Algorithm::$name => <$method>::available(self, state, now)),+ }
            }

            /// Not after the instant at which so many units can have been admitted, in however many requests.
            pub(crate) fn earliest(&self, state: &impl State, now: u64, units: u64) -> u64 {
                match self.algorithm { $(Algorithm::$name => earliest::<$method>(self, state, now, units)),+ }
            }

            /// The latest instant of set time that was decided about.
            pub(crate) fn decided_until(&self, state: &impl State) -> u64 {
                match self.algorithm { $(Algorithm::$name => <$method>::decided_until(self, state)),+ }
            }

            /// Goes over from this rule to other numbers of the same algorithm and resolution.
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
    /// Never more than the capacity in any window of that length, whenever it begins.
    SlidingWindow = 3, "sliding_window", sliding_window::SlidingWindow;
    /// A counter per window, windows aligned to the Unix epoch: minutes, hours and days of UTC.
    FixedWindow = 4, "fixed_window", fixed_window::FixedWindow;
    /// Generic cell rate algorithm: one instant, the theoretical arrival time of the next unit.
    Gcra = 5, "gcra", gcra::Gcra;
}

/// [`Rule::acquire`] by a method.
#[inline(always)]
fn acquire<M: Method>(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
    match amount {
        0 => Verdict::Admit(Changes::NONE),
        amount if amount > M::most(rule) => Verdict::Never,
        amount => M::admit(rule, state, now, amount),
    }
}

/// [`Rule::settle`] by a method.
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

/// [`Rule::earliest`] by a method.
fn earliest<M: Method>(rule: &Rule, state: &impl State, now: u64, units: u64) -> u64 {
    let at_once = units.min(M::most(rule));
    match acquire::<M>(rule, state, now, at_once) {
        Verdict::Later { at } => at.saturating_add(M::time_for_more(rule, units - at_once)),
        _ if units == at_once => now,
        // The rest can only follow when the limit has been used up, which it is not yet.
        _ => now.saturating_add(M::time_for_more(rule, units - at_once)),
    }
}

/// [`Rule::refund`] by a method.
fn refund<M: Method>(rule: &Rule, state: &impl State, now: u64, amount: u64) -> (u64, Changes) {
    if amount == 0 || !M::REFUNDS {
        return (0, Changes::NONE);
    }
    (amount, M::give_back(rule, state, now, amount))
}

/// [`Rule::adjust`] by a method.
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

/// A word that is not the name of an algorithm.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{found:?} is no algorithm; use one of {}", names())]
pub struct UnknownAlgorithm {
    /// The word given.
    pub found: String,
}

fn names() -> String {
    Algorithm::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// By name, words joined by `_` or `-`, in small or capital letters.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_it = |it: &&Self| it.name().eq_ignore_ascii_case(&text.replace('-', "_"));
        Self::ALL.iter().find(is_it).copied().ok_or_else(|| UnknownAlgorithm { found: text.to_owned() })
    }
}
