//! Work that must not be lost, and that its caller cannot wait for.

use std::time::Duration;

/// How long a destructor waits for a lock before somebody else waits in its place.
pub(crate) const DROP_PATIENCE: Duration = Duration::from_millis(200);

/// Does it in a thread of its own. If there can be none, the work is left to whoever cleans up after this process.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("limitset-return".to_owned()).spawn(work);
}
