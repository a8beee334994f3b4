//! The settings of a limit and of a cooldown, for display and serialization.

use std::time::Duration;

use super::{Algorithm, Limit, QueueOptions};

/// The settings of a rate, as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSettings {
    /// Units per window.
    pub capacity: u64,
    /// The length of the window.
    pub window: Duration,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The largest amount admitted at once, if it was set.
    pub burst: Option<u64>,
    /// The number of sub-windows, if it was set.
    pub resolution: Option<u32>,
}

/// The settings of a [`Cooldown`](super::Cooldown), which documents each of them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CooldownSettings {
    /// The length of the first pause.
    pub first: Duration,
    /// The longest pause that follows from `factor`.
    pub longest: Duration,
    /// The factor by which each further pause is longer.
    pub factor: f64,
    /// The fraction of its length by which a pause may be longer at random.
    pub jitter: f64,
    /// The number of admissions that the slow start spaces.
    pub slow_admissions: u32,
    /// The first gap of the slow start.
    pub first_gap: Duration,
    /// The last gap of the slow start.
    pub last_gap: Duration,
}

impl Limit {
    /// Returns the settings of a rate; none for a resource.
    ///
    /// ```
    /// use limitset::{Algorithm, Limit, RateLimit};
    ///
    /// let tokens = Limit::from(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra).burst(50_000));
    /// let settings = tokens.rate_settings().unwrap();
    /// assert_eq!((settings.algorithm, settings.burst), (Algorithm::Gcra, Some(50_000)));
    /// ```
    pub fn rate_settings(&self) -> Option<RateSettings> {
        let rate = self.rate()?;
        Some(RateSettings {
            capacity: rate.capacity,
            window: rate.window,
            algorithm: rate.algorithm,
            burst: rate.burst,
            resolution: rate.resolution,
        })
    }
}

/// The settings of [`QueueOptions`], which documents each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The number of items that fit.
    pub items: u32,
    /// The largest item, in bytes.
    pub item_bytes: u32,
    /// The largest result, in bytes.
    pub result_bytes: u32,
    /// The number of attempts at an item.
    pub attempts: u32,
    /// The number of "too many requests" answers an item may get.
    pub rate_limits: u32,
}

impl QueueOptions {
    /// Returns the settings of these options.
    pub fn settings(&self) -> QueueSettings {
        QueueSettings {
            items: self.items,
            item_bytes: self.payload_bytes,
            result_bytes: self.result_bytes,
            attempts: self.giving_up.attempts,
            rate_limits: self.giving_up.rate_limits,
        }
    }
}
