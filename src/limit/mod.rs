//! Definitions of limits, as plain data. Limits are checked when a set is opened with them, or by
//! [`validate`].
//!
//! ```
//! use limitset::limit::{Algorithm, CallLimit, Limit, RateLimit, ResourceLimit, validate};
//!
//! let limits: [Limit; 4] = [
//!     CallLimit::per_minute(500).into(),
//!     CallLimit::per_day(10_000).key("rpd").into(),
//!     RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra).into(),
//!     ResourceLimit::new("connections", 8).into(),
//! ];
//! validate(&limits)?;
//! # Ok::<(), limitset::limit::BadLimit>(())
//! ```

use std::time::Duration;

mod clock;
mod cooldown;
mod definition;
mod settings;
mod validate;
mod work;

pub use self::clock::Clock;
pub use self::cooldown::{BadSetting, Cooldown};
pub use self::definition::Order;
#[cfg(test)]
pub(crate) use self::definition::tests::definition as definition_for_tests;
pub(crate) use self::definition::{Definition, Differs, config_fits};
pub use self::settings::{CooldownSettings, QueueSettings, RateSettings};
pub use self::validate::{BadLimit, validate};
pub use self::work::QueueOptions;
pub(crate) use self::work::{GivingUp, MAX_ITEM_BYTES, MAX_ITEMS};
use crate::algorithm::{self, Rule};
pub use crate::algorithm::{Algorithm, UnknownAlgorithm};

/// The key of a [`CallLimit`] without an explicit key.
pub const CALL_COUNT: &str = "call_count";
/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 64;
/// The largest number of limits in one set.
pub const MAX_LIMITS: usize = 64;
/// The largest capacity and the largest burst: 2^62, so that sums of units, and debt, fit 64 bits.
pub const MAX_CAPACITY: u64 = algorithm::MAX_CAPACITY;
/// The longest window, and the longest time a burst may take to fill: 2^62 nanoseconds, some 146 years.
pub const MAX_WINDOW: Duration = Duration::from_nanos(algorithm::MAX_WINDOW_NANOS);
/// The largest number of sub-windows of [`Algorithm::SlidingWindow`].
pub const MAX_RESOLUTION: u32 = algorithm::MAX_RESOLUTION;
/// The number of sub-windows of [`Algorithm::SlidingWindow`] unless set.
pub const DEFAULT_RESOLUTION: u32 = algorithm::DEFAULT_RESOLUTION;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Whether the holder of an acquisition must report its use of a rate before the release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Report {
    /// A release without a report returns an error, although it releases. For use that is known only
    /// afterwards.
    #[default]
    Required,
    /// The requested amount counts as used unless another amount is reported.
    Optional,
}

/// The common part of [`RateLimit`] and [`CallLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) key: String,
    pub(crate) capacity: u64,
    pub(crate) window: Duration,
    pub(crate) algorithm: Algorithm,
    pub(crate) burst: Option<u64>,
    pub(crate) resolution: Option<u32>,
}

/// Units per time, with any number of units per request: tokens, bytes, rows.
///
/// ```
/// use std::time::Duration;
/// use limitset::limit::{Algorithm, RateLimit, Report};
///
/// let tokens = RateLimit::per_minute("tokens", 200_000);
/// let bytes = RateLimit::new("bytes", 7_000_000, Duration::from_secs(3)).burst(1_000_000);
/// let rows = RateLimit::per_hour("rows", 1_000)
///     .algorithm(Algorithm::SlidingWindow)
///     .resolution(60)
///     .report(Report::Optional);
/// # _ = (tokens, bytes, rows);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RateLimit {
    pub(crate) rate: Rate,
    pub(crate) report: Report,
}

/// Calls per time: each request needs 1 unless it asks for more, and there is nothing to report.
///
/// ```
/// use limitset::limit::CallLimit;
///
/// assert_eq!(CallLimit::per_minute(500).name(), "call_count");
/// assert_eq!(CallLimit::per_day(10_000).key("rpd").name(), "rpd");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct CallLimit {
    pub(crate) rate: Rate,
}

/// Permits that are held and returned: connections, slots, licences. Each request holds 1 unless it asks for
/// more.
///
/// ```
/// use limitset::limit::ResourceLimit;
///
/// let connections = ResourceLimit::new("connections", 8);
/// assert_eq!(connections.capacity(), 8);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ResourceLimit {
    pub(crate) key: String,
    pub(crate) capacity: u64,
}

/// Defines the builders and getters common to both kinds of rates.
macro_rules! rate_methods {
    () => {
        /// Sets how the limit counts: [`Algorithm::TokenBucket`] unless set.
        pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
            self.rate.algorithm = algorithm;
            self
        }

        /// Sets the largest amount admitted at once, if it differs from the capacity: less to smooth, more to
        /// let savings add up over several windows. Window algorithms have no burst.
        pub fn burst(mut self, burst: u64) -> Self {
            self.rate.burst = Some(burst);
            self
        }

        /// Sets the number of sub-windows of [`Algorithm::SlidingWindow`]: more are more exact, and take 16
        /// bytes each.
        pub fn resolution(mut self, sub_windows: u32) -> Self {
            self.rate.resolution = Some(sub_windows);
            self
        }

        /// Returns the key by which requests name this limit.
        pub fn name(&self) -> &str {
            &self.rate.key
        }

        /// Returns the number of units per window.
        pub fn capacity(&self) -> u64 {
            self.rate.capacity
        }

        /// Returns the length of the window.
        pub fn window(&self) -> Duration {
            self.rate.window
        }
    };
}

impl RateLimit {
    /// Creates a limit of `capacity` units per `window`.
    pub fn new(key: impl Into<String>, capacity: u64, window: Duration) -> Self {
        Self { rate: Rate::new(key.into(), capacity, window), report: Report::default() }
    }

    /// Creates a limit of `capacity` units per second.
    pub fn per_second(key: impl Into<String>, capacity: u64) -> Self {
        Self::new(key, capacity, SECOND)
    }

    /// Creates a limit of `capacity` units per minute.
    pub fn per_minute(key: impl Into<String>, capacity: u64) -> Self {
        Self::new(key, capacity, MINUTE)
    }

    /// Creates a limit of `capacity` units per hour.
    pub fn per_hour(key: impl Into<String>, capacity: u64) -> Self {
        Self::new(key, capacity, HOUR)
    }

    /// Creates a limit of `capacity` units per day of 24 hours.
    pub fn per_day(key: impl Into<String>, capacity: u64) -> Self {
        Self::new(key, capacity, DAY)
    }

    /// Sets whether use must be reported: required unless set.
    pub fn report(mut self, report: Report) -> Self {
        self.report = report;
        self
    }

    rate_methods!();
}

impl CallLimit {
    /// Creates a limit of `capacity` calls per `window`.
    pub fn new(capacity: u64, window: Duration) -> Self {
        Self { rate: Rate::new(CALL_COUNT.to_owned(), capacity, window) }
    }

    /// Creates a limit of `capacity` calls per second.
    pub fn per_second(capacity: u64) -> Self {
        Self::new(capacity, SECOND)
    }

    /// Creates a limit of `capacity` calls per minute.
    pub fn per_minute(capacity: u64) -> Self {
        Self::new(capacity, MINUTE)
    }

    /// Creates a limit of `capacity` calls per hour.
    pub fn per_hour(capacity: u64) -> Self {
        Self::new(capacity, HOUR)
    }

    /// Creates a limit of `capacity` calls per day of 24 hours.
    pub fn per_day(capacity: u64) -> Self {
        Self::new(capacity, DAY)
    }

    /// Sets another key than [`CALL_COUNT`], for a second limit on calls in one set.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.rate.key = key.into();
        self
    }

    rate_methods!();
}

impl ResourceLimit {
    /// Creates a limit of `capacity` permits in all.
    pub fn new(key: impl Into<String>, capacity: u64) -> Self {
        Self { key: key.into(), capacity }
    }

    /// Returns the key by which requests name this limit.
    pub fn name(&self) -> &str {
        &self.key
    }

    /// Returns the number of permits.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

/// One limit of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Units per time.
    Rate(RateLimit),
    /// Calls per time.
    Call(CallLimit),
    /// Permits that are held and returned.
    Resource(ResourceLimit),
}

impl Limit {
    /// Returns the key by which requests name this limit.
    pub fn name(&self) -> &str {
        match self {
            Self::Rate(it) => it.name(),
            Self::Call(it) => it.name(),
            Self::Resource(it) => it.name(),
        }
    }

    /// Returns the number of units per window, or of permits.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Rate(it) => it.capacity(),
            Self::Call(it) => it.capacity(),
            Self::Resource(it) => it.capacity(),
        }
    }

    /// Returns whether use must be reported before the release.
    pub fn must_report(&self) -> bool {
        matches!(self, Self::Rate(it) if it.report == Report::Required)
    }

    /// Returns the parameters of a rate, with windows aligned by `wall_offset`; none for a resource.
    pub(crate) fn rule(&self, wall_offset: u64) -> Option<Rule> {
        self.rate().map(|rate| rate.rule().with_wall_offset(wall_offset))
    }

    pub(crate) fn rate(&self) -> Option<&Rate> {
        match self {
            Self::Rate(it) => Some(&it.rate),
            Self::Call(it) => Some(&it.rate),
            Self::Resource(_) => None,
        }
    }
}

impl From<RateLimit> for Limit {
    fn from(limit: RateLimit) -> Self {
        Self::Rate(limit)
    }
}

impl From<CallLimit> for Limit {
    fn from(limit: CallLimit) -> Self {
        Self::Call(limit)
    }
}

impl From<ResourceLimit> for Limit {
    fn from(limit: ResourceLimit) -> Self {
        Self::Resource(limit)
    }
}

impl Rate {
    fn new(key: String, capacity: u64, window: Duration) -> Self {
        Self { key, capacity, window, algorithm: Algorithm::default(), burst: None, resolution: None }
    }

    pub(crate) fn window_nanos(&self) -> u64 {
        u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX)
    }

    fn rule(&self) -> Rule {
        Rule::new(self.algorithm, self.capacity, self.window_nanos())
            .with_burst(self.burst.unwrap_or(self.capacity))
            .with_resolution(self.resolution.unwrap_or(DEFAULT_RESOLUTION))
    }
}
