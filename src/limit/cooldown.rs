//! How a set pauses after a "too many requests" answer, and how it resumes. Pure.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::CooldownSettings;
use crate::code::Code;

/// How a set pauses when a caller [reports](crate::Acquisition::rate_limited) a "too many requests" answer,
/// and how slowly it resumes.
///
/// The first pause is `first` long. Until a request succeeds, each further pause is `factor` times as long as
/// the one before, up to `longest`. A pause is never shorter than the other side asked for (Retry-After),
/// however long that is, unless the report is about a request from before a pause that is over. After a
/// pause, the admissions of all processes together are spaced: by `SlowStart`'s first gap, then by less and
/// less.
///
/// ```
/// use std::time::Duration;
/// use limitset::{CallLimit, Cooldown, LimitSet};
///
/// let limits = LimitSet::builder()
///     .limit(CallLimit::per_minute(500))
///     .cooldown(Cooldown::default().first(Duration::from_secs(2)).slow_start(10, Duration::from_millis(200), Duration::ZERO))
///     .in_memory()?;
/// let held = limits.acquire(())?;
/// // … the answer was 429, Retry-After: 30
/// held.rate_limited(Some(Duration::from_secs(30)))?;
/// assert!(limits.try_acquire(()).is_err(), "no request is admitted before the 30 seconds are over");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Cooldown {
    pub(crate) first: u64,
    pub(crate) longest: u64,
    /// In thousandths, like `jitter`.
    pub(crate) factor: u32,
    pub(crate) jitter: u32,
    pub(crate) slow_admissions: u32,
    pub(crate) first_gap: u64,
    pub(crate) last_gap: u64,
}

/// Thousandths.
const WHOLE: u32 = 1_000;

impl Default for Cooldown {
    /// The default cooldown: 5 seconds, twice as long each time, at most 10 minutes, up to a tenth longer at
    /// random; then 20 admissions with gaps from half a second down to 50 milliseconds.
    fn default() -> Self {
        Self {
            first: nanos(Duration::from_secs(5)),
            longest: nanos(Duration::from_secs(600)),
            factor: 2 * WHOLE,
            jitter: WHOLE / 10,
            slow_admissions: 20,
            first_gap: nanos(Duration::from_millis(500)),
            last_gap: nanos(Duration::from_millis(50)),
        }
    }
}

/// An invalid setting of a [`Cooldown`] or of [`QueueOptions`](crate::QueueOptions).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} cannot be {found}: it has to be {expected}")]
#[non_exhaustive]
pub struct BadSetting {
    /// The name of the setting.
    pub what: &'static str,
    /// The value found.
    pub found: String,
    /// The valid values.
    pub expected: &'static str,
}

impl BadSetting {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        Code::BadSetting
    }
}

impl Cooldown {
    /// Sets the length of the first pause: 5 seconds unless set.
    pub fn first(mut self, pause: Duration) -> Self {
        self.first = nanos(pause);
        self
    }

    /// Sets the factor by which each further pause is longer, until a request succeeds: 2 unless set, from 1
    /// to 1000, to the thousandth.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = thousandths(factor);
        self
    }

    /// Sets the longest pause that follows from `factor`: 10 minutes unless set. The other side may ask for
    /// more.
    pub fn longest(mut self, pause: Duration) -> Self {
        self.longest = nanos(pause);
        self
    }

    /// Sets the fraction of its length by which a pause or a gap may be longer at random, so that other
    /// machines and other sets that paused at the same time do not resume at the same time: 0.1 unless set,
    /// from 0 to 1, to the thousandth.
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = thousandths(part);
        self
    }

    /// Spaces this many admissions of all processes together after a pause, with gaps that fall from `first`
    /// to `last`: 20, from 500 ms to 50 ms, unless set. With 0 admissions there is no slow start.
    pub fn slow_start(mut self, admissions: u32, first: Duration, last: Duration) -> Self {
        (self.slow_admissions, self.first_gap, self.last_gap) = (admissions, nanos(first), nanos(last));
        self
    }

    /// Returns the settings of this cooldown.
    pub fn settings(&self) -> CooldownSettings {
        let part = |thousandths: u32| f64::from(thousandths) / f64::from(WHOLE);
        CooldownSettings {
            first: Duration::from_nanos(self.first),
            longest: Duration::from_nanos(self.longest),
            factor: part(self.factor),
            jitter: part(self.jitter),
            slow_admissions: self.slow_admissions,
            first_gap: Duration::from_nanos(self.first_gap),
            last_gap: Duration::from_nanos(self.last_gap),
        }
    }

    /// Checks that all settings are valid.
    pub(crate) fn check(&self) -> Result<(), BadSetting> {
        let bad = |what, found: String, expected| Err(BadSetting { what, found, expected });
        let part = |thousandths: u32| format!("{}", f64::from(thousandths) / f64::from(WHOLE));
        if self.factor < WHOLE || self.factor > WHOLE * WHOLE {
            return bad("the factor of a cooldown", part(self.factor), "from 1 to 1000");
        }
        if self.jitter > WHOLE {
            return bad("the jitter of a cooldown", part(self.jitter), "from 0 to 1");
        }
        if self.longest < self.first {
            let found = format!("{:?}", Duration::from_nanos(self.longest));
            return bad("the longest pause", found, "at least as long as the first");
        }
        if self.last_gap > self.first_gap {
            let found = format!("{:?}", Duration::from_nanos(self.last_gap));
            return bad("the last gap of a slow start", found, "at most as long as the first");
        }
        Ok(())
    }

    /// The number of admissions that are spaced.
    pub(crate) fn slow_admissions(&self) -> u64 {
        self.slow_admissions.into()
    }

    /// Returns the length of the `count`-th pause in a row, counted from 1. `seed` makes it longer at random.
    pub(crate) fn pause(&self, count: u64, retry_after: u64, seed: u64) -> u64 {
        let mut pause = self.first;
        for _ in 1..count {
            let longer = u128::from(pause) * u128::from(self.factor) / u128::from(WHOLE);
            let longer = u64::try_from(longer).unwrap_or(u64::MAX).min(self.longest);
            if longer == pause {
                break;
            }
            pause = longer;
        }
        self.lengthen(pause.max(retry_after), seed)
    }

    /// Returns the gap after an admission of the slow start, with `left` spaced admissions to follow.
    pub(crate) fn gap(&self, left: u64, seed: u64) -> u64 {
        let last = self.slow_admissions().saturating_sub(1);
        let fall = u128::from(self.first_gap.saturating_sub(self.last_gap));
        // Rounded up to whole nanoseconds, so that a gap is never too short.
        let above = (fall * u128::from(left.min(last))).div_ceil(u128::from(last.max(1)));
        let gap = self.last_gap.saturating_add(u64::try_from(above).unwrap_or(u64::MAX));
        self.lengthen(if last == 0 { self.first_gap } else { gap }, seed)
    }

    /// The longest possible gap.
    pub(crate) fn longest_gap(&self) -> u64 {
        self.first_gap.saturating_add(u64::try_from(self.most_jitter(self.first_gap)).unwrap_or(u64::MAX))
    }

    fn most_jitter(&self, nanos: u64) -> u128 {
        u128::from(nanos) * u128::from(self.jitter) / u128::from(WHOLE)
    }

    fn lengthen(&self, nanos: u64, seed: u64) -> u64 {
        let more = (self.most_jitter(nanos) * u128::from(scramble(seed))) >> 64;
        nanos.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from float saturates")]
fn thousandths(number: f64) -> u32 {
    // NaN becomes a value that `check` rejects.
    if number.is_nan() { u32::MAX } else { (number * f64::from(WHOLE)).round() as u32 }
}

/// Returns the duration in nanoseconds; durations beyond 64 bits saturate.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Hashes a seed to a number that looks random.
fn scramble(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Formats a cooldown: `pauses of 5s, times 2, at most 600s …`.
impl fmt::Display for Cooldown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |thousandths: u32| f64::from(thousandths) / f64::from(WHOLE);
        let time = Duration::from_nanos;
        let Self { first, longest, factor, jitter, slow_admissions, first_gap, last_gap } = self;
        write!(f, "pauses of {:?}, times {}, at most {:?}", time(*first), part(*factor), time(*longest))?;
        write!(f, ", jitter {}, slow start of {slow_admissions}", part(*jitter))?;
        write!(f, " from {:?} to {:?}", time(*first_gap), time(*last_gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn exact() -> Cooldown {
        Cooldown::default().jitter(0.0)
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_retry_after_is_a_floor() {
        let lengths: Vec<_> = (1..10).map(|count| exact().pause(count, 0, 7) / SECOND).collect();
        assert_eq!(lengths, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(exact().pause(u64::MAX, 0, 7), 600 * SECOND);
        assert_eq!(exact().pause(1, 30 * SECOND, 7), 30 * SECOND);
        assert_eq!(exact().pause(8, 30 * SECOND, 7), 600 * SECOND);
        assert_eq!(exact().pause(1, 3_600 * SECOND, 7), 3_600 * SECOND, "also beyond the longest");
        assert_eq!(exact().pause(u64::MAX, u64::MAX, 7), u64::MAX);
        let halves: Vec<_> = (1..5).map(|count| exact().factor(1.5).pause(count, 0, 0)).collect();
        assert_eq!(halves, [5 * SECOND, 7_500_000_000, 11_250_000_000, 16_875_000_000]);
        assert_eq!(exact().first(Duration::ZERO).pause(u64::MAX, 0, 0), 0);
        assert_eq!(exact().factor(1.0).pause(u64::MAX, 0, 0), 5 * SECOND);
    }

    #[test]
    fn jitter_only_lengthens_and_by_no_more_than_its_part() {
        let cooldown = exact().jitter(0.25);
        let pauses: Vec<_> = (0..10_000).map(|seed| cooldown.pause(1, 0, seed)).collect();
        assert!(pauses.iter().all(|pause| (5 * SECOND..=6 * SECOND + SECOND / 4).contains(pause)));
        let mean = pauses.iter().sum::<u64>() / 10_000;
        assert!(mean.abs_diff(5 * SECOND + SECOND * 5 / 8) < SECOND / 50, "{mean}");
        assert_eq!(cooldown.pause(1, u64::MAX, 9), u64::MAX);
    }

    #[test]
    fn gaps_fall_in_a_line_from_the_first_to_the_last() {
        let cooldown = exact().slow_start(5, Duration::from_nanos(100), Duration::from_nanos(20));
        let gaps: Vec<_> = (0..5).rev().map(|left| cooldown.gap(left, 3)).collect();
        assert_eq!(gaps, [100, 80, 60, 40, 20]);
        assert_eq!(cooldown.gap(u64::MAX, 3), 100, "a damaged count");
        let one = exact().slow_start(1, Duration::from_nanos(100), Duration::from_nanos(20));
        assert_eq!(one.gap(0, 3), 100);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let bad = |it: Cooldown| it.check().unwrap_err().to_string();
        assert_eq!(
            bad(exact().factor(0.5)),
            "the factor of a cooldown cannot be 0.5: it has to be from 1 to 1000"
        );
        for factor in [f64::NAN, f64::INFINITY, -3.0, 1000.1] {
            assert!(bad(exact().factor(factor)).contains("factor"), "{factor}");
        }
        for jitter in [f64::NAN, 1.1] {
            assert!(bad(exact().jitter(jitter)).contains("jitter"), "{jitter}");
        }
        assert!(bad(exact().longest(Duration::from_secs(1))).contains("1s: it has to be at least as long"));
        let rising = exact().slow_start(3, Duration::from_secs(1), Duration::from_secs(2));
        assert!(bad(rising).contains("last gap"));
        assert_eq!(exact().check(), Ok(()));
    }
}
