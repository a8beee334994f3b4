//! The worker: its number, its limits, and when it has to stop.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::LOOK_AGAIN;
use crate::pool::LimitPool;
use crate::sys::fork::PerProcess;
use crate::sys::{clock, process, thread};

/// The argument of a worker's function: its number, its limits, and whether to stop.
#[derive(Debug)]
pub struct Worker {
    pub(super) index: usize,
    pub(super) limits: LimitPool,
}

impl Worker {
    /// Returns the number of the worker. Numbers start at 0 and are unique among the running workers; a replacement has
    /// the number of the worker that ended.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the limits that the workers share. The balancer starts at the worker's own position.
    pub fn limits(&self) -> &LimitPool {
        &self.limits
    }

    /// Returns whether the worker has to stop: finish its current work, start nothing new, and return.
    pub fn stopping(&self) -> bool {
        process::is_stopping()
    }

    /// Sleeps until the worker has to stop, but for at most `at_most`. Returns whether it has to stop.
    pub fn wait_for_stop(&self, at_most: Duration) -> bool {
        let end = clock::deadline(at_most);
        loop {
            let left = end.saturating_sub(clock::monotonic());
            if process::wait_for_stop(left.min(clock::nanos(LOOK_AGAIN))) || left == 0 {
                return process::is_stopping();
            }
        }
    }

    /// Returns a future that completes when the worker has to stop.
    pub fn stopped(&self) -> Stopped {
        Stopped(None)
    }
}

/// Completes when a worker has to stop; see [`Worker::stopped`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Stopped(Option<u64>);

/// The wakers of all [`Stopped`] futures, by their numbers, and whether a thread waits for them.
#[derive(Default)]
struct Watch {
    wakers: HashMap<u64, Waker>,
    is_running: bool,
}

static WATCH: PerProcess<Mutex<Watch>> = PerProcess::new();
static NUMBERS: AtomicU64 = AtomicU64::new(0);

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            let waker = lock(WATCH.get(Mutex::default)).wakers.remove(&number);
            // Dropped without the lock: this may be the last waker of a task that drops other futures of this kind.
            drop(waker);
        }
    }
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if process::is_stopping() {
            return Poll::Ready(());
        }
        let watch = WATCH.get(Mutex::default);
        let number = *self.0.get_or_insert_with(|| NUMBERS.fetch_add(1, Relaxed));
        let mut guard = lock(watch);
        let replaced = guard.wakers.insert(number, context.waker().clone());
        if !guard.is_running {
            guard.is_running = thread::start(c"limitset-stop", move || wait_and_wake(watch)).is_ok();
        }
        let is_running = guard.is_running;
        drop(guard);
        if !is_running {
            // Without a thread, the executor has to poll again by itself.
            context.waker().wake_by_ref();
        }
        drop(replaced);
        if process::is_stopping() { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn wait_and_wake(watch: &Mutex<Watch>) {
    while !process::wait_for_stop(clock::nanos(LOOK_AGAIN)) {}
    let mut guard = lock(watch);
    let wakers = std::mem::take(&mut guard.wakers);
    guard.is_running = false;
    drop(guard);
    for waker in wakers.into_values() {
        // Code of the program: if it panics, the other futures are woken all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| thread::foreign(|| waker.wake())));
    }
}

/// The return type of a worker's function: `()` or a `Result`. An error is printed, and the worker counts as failed.
pub trait WorkerOutcome {
    /// Returns the exit code of the worker's process.
    fn exit_code(self) -> i32;
}

impl WorkerOutcome for () {
    fn exit_code(self) -> i32 {
        0
    }
}

impl<E: fmt::Display> WorkerOutcome for Result<(), E> {
    fn exit_code(self) -> i32 {
        match self {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("worker {}: {error}", std::process::id());
                1
            }
        }
    }
}
