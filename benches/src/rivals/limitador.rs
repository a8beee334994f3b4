//! `limitador` in memory: fixed windows by string keys and conditions, within one process; several limits of a
//! namespace are checked in one call.

use std::collections::HashMap;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

pub struct Limits {
    limiter: RateLimiter,
    namespace: Namespace,
    context: Context<'static>,
}

impl Limits {
    /// Returns `count` limits of this capacity.
    pub fn new(count: u64, capacity: u64) -> Limits {
        let limiter = RateLimiter::new(1000);
        for index in 0..count {
            // Limits of one namespace are told apart by their windows.
            limiter.add_limit(Limit::new("bench", capacity, 3600 + index, vec![], vec![]));
        }
        let context = Context::from(HashMap::<String, String>::new());
        Limits { limiter, namespace: "bench".into(), context }
    }

    fn limited(&self) -> bool {
        let asked = self.limiter.check_rate_limited_and_update(&self.namespace, &self.context, 1);
        asked.expect("an answer").limited
    }

    pub fn granted(&self) {
        assert!(!self.limited(), "limitador refused");
    }

    pub fn denied(&self) {
        assert!(self.limited(), "limitador granted");
    }
}
