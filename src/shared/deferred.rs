//! Work that must not be lost, and that its caller cannot wait for.

use std::time::Duration;

use crate::api::error::{Trouble, Unavailable};
use crate::api::set::LimitSet;

/// How long a destructor waits for a lock before somebody else waits in its place.
pub(crate) const DROP_PATIENCE: Duration = Duration::from_millis(200);

/// Does it in a thread of its own. If there can be none, the work is left to whoever cleans up after this process.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("limitset-return".to_owned()).spawn(work);
}

impl LimitSet {
    /// Does something with the patience given to it. If somebody was stopped while holding the lock, another thread
    /// waits in our place and does it then.
    pub(crate) fn or_in_background_within<T: 'static>(
        &self,
        patience: u64,
        work: impl Fn(&Self, u64) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let done = work(self, patience);
        if let Err(Trouble::Unavailable(Unavailable::Busy { .. })) = done {
            let set = self.clone();
            run(move || drop(work(&set, u64::MAX)));
        }
        done
    }

    /// The same with the usual patience.
    pub(crate) fn or_in_background<T: 'static>(
        &self,
        work: impl Fn(&Self, u64) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        self.or_in_background_within(self.segment().patience(), work)
    }
}
