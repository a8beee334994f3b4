//! Checks of limits: which are valid, and the reason why others are not.

use std::time::Duration;

use thiserror::Error;

use super::{Algorithm, Limit, MAX_CAPACITY, MAX_KEY_BYTES, MAX_LIMITS, MAX_RESOLUTION, MAX_WINDOW, Rate};
use crate::code::Code;

/// An invalid limit, by name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum BadLimit {
    /// A set with too many limits.
    #[error("too many limits: {found}, {key:?} is the first beyond {most}; use several sets")]
    TooMany { key: String, found: usize, most: usize },
    /// An empty key.
    #[error("limit number {number} has an empty key; give it a name of 1 to {most} bytes")]
    KeyEmpty { number: usize, most: usize },
    /// A key that is too long.
    #[error("the key of limit {key:?} has {found} bytes; at most {most} are allowed: shorten it")]
    KeyTooLong { key: String, found: usize, most: usize },
    /// A key with a zero byte.
    #[error("the key of limit {key:?} has a zero byte; use printable characters")]
    KeyZeroByte { key: String },
    /// Two limits with one key.
    #[error("two limits have the key {key:?}; keys are unique within a set: rename one, calls with `key`")]
    KeyTwice { key: String },
    /// A capacity of 0, or one that is too large.
    #[error("limit {key:?} has capacity {found}; it must be 1 to {most}")]
    Capacity { key: String, found: u64, most: u64 },
    /// An empty window, or one that is too long.
    #[error("limit {key:?} has a window of {found:?}; it must be 1 ns to {most:?}")]
    Window { key: String, found: Duration, most: Duration },
    /// A burst of 0, or one that is too large.
    #[error("limit {key:?} has burst {found}; it must be 1 to {most}")]
    Burst { key: String, found: u64, most: u64 },
    /// A burst that takes too long to fill.
    #[error(
        "limit {key:?} would fill its burst of {burst} in {found:?}; at most {most:?} is allowed: lower \
        the burst, or raise the rate"
    )]
    BurstTooSlow { key: String, burst: u64, found: Duration, most: Duration },
    /// A burst for an algorithm without bursts.
    #[error(
        "limit {key:?} has a burst of {found}, which {algorithm} does not support: leave it out, or use \
        another algorithm"
    )]
    NoBurst { key: String, found: u64, algorithm: Algorithm },
    /// No sub-windows, or too many.
    #[error("limit {key:?} has {found} sub-windows; it must be 1 to {most}")]
    Resolution { key: String, found: u32, most: u32 },
    /// Sub-windows for an algorithm without sub-windows.
    #[error(
        "limit {key:?} has {found} sub-windows, which {algorithm} does not support: leave that out, or use \
        sliding_window"
    )]
    NoResolution { key: String, found: u32, algorithm: Algorithm },
    /// A config map that is too large.
    #[error("the config map has {found} bytes; at most {most} are allowed: keep large things elsewhere")]
    ConfigTooLarge { found: usize, most: usize },
}

/// Checks that a set can be created with these limits; returns the first problem otherwise.
///
/// ```
/// use limitset::limit::{BadLimit, RateLimit, validate};
///
/// let wrong = validate(&[RateLimit::per_minute("tokens", 0).into()]).unwrap_err();
/// assert!(matches!(wrong, BadLimit::Capacity { .. }));
/// assert!(wrong.to_string().starts_with("limit \"tokens\" has capacity 0"));
/// ```
///
/// # Errors
///
/// [`BadLimit`] names the limit, the value found, and the valid values.
pub fn validate(limits: &[Limit]) -> Result<(), BadLimit> {
    if let Some(limit) = limits.get(MAX_LIMITS) {
        let (key, found) = (limit.name().to_owned(), limits.len());
        return Err(BadLimit::TooMany { key, found, most: MAX_LIMITS });
    }
    for (index, limit) in limits.iter().enumerate() {
        check_key(index, limit.name())?;
        if limits.iter().take(index).any(|other| other.name() == limit.name()) {
            return Err(BadLimit::KeyTwice { key: limit.name().to_owned() });
        }
        let (key, found, most) = (limit.name().to_owned(), limit.capacity(), MAX_CAPACITY);
        if found == 0 || found > most {
            return Err(BadLimit::Capacity { key, found, most });
        }
        limit.rate().map_or(Ok(()), Rate::check)?;
    }
    Ok(())
}

fn check_key(index: usize, key: &str) -> Result<(), BadLimit> {
    let (found, most) = (key.len(), MAX_KEY_BYTES);
    match key {
        "" => Err(BadLimit::KeyEmpty { number: index + 1, most }),
        key if found > most => Err(BadLimit::KeyTooLong { key: key.to_owned(), found, most }),
        key if key.contains('\0') => Err(BadLimit::KeyZeroByte { key: key.to_owned() }),
        _ => Ok(()),
    }
}

impl BadLimit {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        Code::BadLimit
    }
}

impl Rate {
    /// Checks the parameters other than the capacity, which is valid already.
    fn check(&self) -> Result<(), BadLimit> {
        let (key, algorithm) = (self.key.clone(), self.algorithm);
        if self.window.is_zero() || self.window > MAX_WINDOW {
            return Err(BadLimit::Window { key, found: self.window, most: MAX_WINDOW });
        }
        match self.burst {
            Some(found) if !algorithm.has_burst() => return Err(BadLimit::NoBurst { key, found, algorithm }),
            Some(found) if found == 0 || found > MAX_CAPACITY => {
                return Err(BadLimit::Burst { key, found, most: MAX_CAPACITY });
            }
            Some(burst) => {
                let scaled = u128::from(burst) * u128::from(self.window_nanos());
                let found = duration(scaled.div_ceil(u128::from(self.capacity)));
                if found > MAX_WINDOW {
                    return Err(BadLimit::BurstTooSlow { key, burst, found, most: MAX_WINDOW });
                }
            }
            None => {}
        }
        match self.resolution {
            Some(found) if !algorithm.has_resolution() => {
                Err(BadLimit::NoResolution { key, found, algorithm })
            }
            Some(found) if found == 0 || found > MAX_RESOLUTION => {
                Err(BadLimit::Resolution { key, found, most: MAX_RESOLUTION })
            }
            _ => Ok(()),
        }
    }
}

/// Returns nanoseconds as a duration, saturating.
fn duration(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let part = u32::try_from(nanos % SECOND).unwrap_or_default();
    u64::try_from(nanos / SECOND).map_or(Duration::MAX, |seconds| Duration::new(seconds, part))
}
