//! A worker's side: who it is, what it may use, and when to stop.

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

/// What a worker is given.
#[derive(Debug)]
pub struct Worker {
    pub(super) index: usize,
    pub(super) limits: LimitPool,
}

impl Worker {
    /// Its number among the workers that run: from 0, unique, and used again after a death.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The limits it shares with the others; its balancer begins at its own position.
    pub fn limits(&self) -> &LimitPool {
        &self.limits
    }

    /// Whether it shall stop: finish what is under way, take on nothing new, return.
    pub fn stopping(&self) -> bool {
        process::is_stopping()
    }

    /// Sleeps until it shall stop, or for `at_most`; tells whether it shall.
    pub fn wait_for_stop(&self, at_most: Duration) -> bool {
        let end = clock::deadline(at_most);
        loop {
            let left = end.saturating_sub(clock::monotonic());
            if process::wait_for_stop(left.min(clock::nanos(LOOK_AGAIN))) || left == 0 {
                return process::is_stopping();
            }
        }
    }

    /// Completes when it shall stop.
    pub fn stopped(&self) -> Stopped {
        Stopped(None)
    }
}

/// Completes when a worker shall stop; see [`Worker::stopped`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Stopped(Option<u64>);

/// Those who want to know, each with a number of its own, and whether a thread waits in their place.
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
            // Not under the lock: it may be the last of a task that drops more of these.
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
            // Without a thread the executor has to come back by itself.
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

/// What a worker may return: nothing, or a result. An error is printed and makes the worker count as failed.
pub trait WorkerOutcome {
    /// The exit code of its process.
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
