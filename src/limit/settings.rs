//! What a limit, and a cooldown, were set to: to show them, and to write them down.

use std::time::Duration;

use super::{Algorithm, Limit, QueueOptions};

/// The settings of a rate, as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSettings {
    /// Units per window.
    pub capacity: u64,
    /// Length of the window.
    pub window: Duration,
    /// How it counts.
    pub algorithm: Algorithm,
    /// Most units at once, if that was set.
    pub burst: Option<u64>,
    /// Sub-windows, if they were set.
    pub resolution: Option<u32>,
}

/// The settings of a [`Cooldown`](super::Cooldown); see there for what each means.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CooldownSettings {
    /// Length of the first pause.
    pub first: Duration,
    /// The longest pause that follows from `factor`.
    pub longest: Duration,
    /// How many times as long each further pause is.
    pub factor: f64,
    /// By which part of its length a pause may be longer at random.
    pub jitter: f64,
    /// How many admissions the slow start spaces.
    pub slow_admissions: u32,
    /// Its first gap.
    pub first_gap: Duration,
    /// Its last gap.
    pub last_gap: Duration,
}

impl Limit {
    /// The settings of a rate; none for what is held and returned.
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

/// The settings of [`QueueOptions`]; see there for what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSettings {
    /// How many items there is room for.
    pub items: u32,
    /// Most bytes of an item.
    pub item_bytes: u32,
    /// Most bytes of a result.
    pub result_bytes: u32,
    /// How often an item is tried.
    pub attempts: u32,
    /// How often the other side may say "too many requests" to an item.
    pub rate_limits: u32,
}

impl QueueOptions {
    /// What they were set to.
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
