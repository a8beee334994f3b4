//! `governor`: GCRA in one atomic word, within one process.

use std::num::NonZeroU32;

use governor::clock::{Clock, MonotonicClock, QuantaClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

pub struct Governor<C: Clock>(RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>);

/// Returns a limiter that reads the clock of limitset.
pub fn monotonic(quota: Quota) -> Governor<MonotonicClock> {
    Governor(RateLimiter::direct_with_clock(quota, MonotonicClock))
}

/// Returns a limiter with governor's default clock: the time stamp counter where it is reliable.
pub fn fast(quota: Quota) -> Governor<QuantaClock> {
    Governor(RateLimiter::direct_with_clock(quota, QuantaClock::default()))
}

/// Returns a quota that is never exhausted.
pub fn plenty() -> Quota {
    Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not 0"))
}

/// Returns a quota that the first request exhausts.
pub fn little() -> Quota {
    Quota::per_hour(NonZeroU32::MIN)
}

impl<C: Clock> Governor<C> {
    pub fn granted(&self) {
        assert!(self.0.check().is_ok(), "governor refused");
    }

    pub fn denied(&self) {
        assert!(self.0.check().is_err(), "governor granted");
    }
}
