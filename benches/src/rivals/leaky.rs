//! `leaky-bucket`: a balance that is refilled in intervals, within one process. It reads the clock only when the
//! balance does not suffice, so a grant out of a large balance is an atomic subtraction.

use std::time::Duration;

use leaky_bucket::RateLimiter;

pub struct Bucket(RateLimiter);

impl Bucket {
    pub fn plenty() -> Bucket {
        let most = 1 << 50;
        Bucket(RateLimiter::builder().max(most).initial(most).interval(Duration::from_millis(1)).build())
    }

    /// Returns a bucket that stays empty for an hour.
    pub fn empty() -> Bucket {
        Bucket(RateLimiter::builder().max(1).initial(0).interval(Duration::from_secs(3600)).build())
    }

    pub fn granted(&self) {
        assert!(self.0.try_acquire(1), "leaky-bucket refused");
    }

    pub fn denied(&self) {
        assert!(!self.0.try_acquire(1), "leaky-bucket granted");
    }
}
