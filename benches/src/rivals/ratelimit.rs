//! `ratelimit`: a token bucket in atomic words, within one process.

use std::time::Duration;

use ratelimit::Ratelimiter;

pub struct Bucket(Ratelimiter);

impl Bucket {
    pub fn plenty() -> Bucket {
        let bucket = Ratelimiter::builder(1_000_000_000).max_tokens(1_000_000_000);
        Bucket(bucket.initial_available(1_000_000_000).build().expect("a bucket"))
    }

    /// Returns a bucket that stays empty for an hour.
    pub fn empty() -> Bucket {
        let bucket = Ratelimiter::builder(1).period(Duration::from_secs(3600)).max_tokens(1);
        Bucket(bucket.initial_available(0).build().expect("a bucket"))
    }

    pub fn granted(&self) {
        assert!(self.0.try_wait().is_ok(), "ratelimit refused");
    }

    pub fn denied(&self) {
        assert!(self.0.try_wait().is_err(), "ratelimit granted");
    }
}
