//! Work that must not be lost, and that its caller cannot wait for.

use std::sync::Arc;
use std::time::Duration;

use super::SharedSet;
use super::error::SetError;

/// How long a destructor waits for a lock before another thread waits in its place.
pub(crate) const DROP_LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// Does it in a thread of its own. If there can be none, the work is left to whoever cleans up after this process.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("limitset-return".to_owned()).spawn(work);
}

impl SharedSet {
    /// Runs an operation with this lock timeout. If it expires, another thread waits for the lock and runs the operation
    /// then.
    pub(crate) fn or_deferred_within<T: 'static>(
        self: &Arc<Self>,
        lock_timeout: u64,
        work: impl Fn(&Self, u64) -> Result<T, SetError> + Send + 'static,
    ) -> Result<T, SetError> {
        let done = work(self, lock_timeout);
        if done.as_ref().is_err_and(SetError::is_lock_timeout) {
            let set = self.clone();
            run(move || drop(work(&set, u64::MAX)));
        }
        done
    }

    /// Runs an operation with the usual lock timeout. If it expires, another thread waits for the lock and runs the
    /// operation then.
    pub(crate) fn or_deferred<T: 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Self, u64) -> Result<T, SetError> + Send + 'static,
    ) -> Result<T, SetError> {
        self.or_deferred_within(self.lock_timeout(), work)
    }
}
