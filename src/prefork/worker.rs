//! A worker's side: who it is, what it may use, and when to stop.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::pool::LimitPool;
use crate::sys::fork::PerProcess;
use crate::sys::{clock, process};

/// How long to sleep at most before looking whether the supervisor is gone, in case the kernel's signal was lost.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

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
        Stopped(())
    }
}

/// Completes when a worker shall stop; see [`Worker::stopped`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Stopped(());

/// Those who want to know, and whether a thread waits in their place.
#[derive(Default)]
struct Watch {
    wakers: Vec<Waker>,
    is_running: bool,
}

static WATCH: PerProcess<Mutex<Watch>> = PerProcess::new();

impl Future for Stopped {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if process::is_stopping() {
            return Poll::Ready(());
        }
        let watch = WATCH.get(Mutex::default);
        let mut guard = watch.lock().unwrap_or_else(PoisonError::into_inner);
        if !guard.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            guard.wakers.push(context.waker().clone());
        }
        if !guard.is_running {
            let thread = std::thread::Builder::new().name("limitset-stop".to_owned());
            guard.is_running = thread.spawn(move || wait_and_wake(watch)).is_ok();
        }
        drop(guard);
        if process::is_stopping() { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn wait_and_wake(watch: &Mutex<Watch>) {
    // The handler may run in any thread; it need not be this one.
    let _ = nix::sys::signal::SigSet::all().thread_block();
    while !process::wait_for_stop(clock::nanos(LOOK_AGAIN)) {}
    let mut guard = watch.lock().unwrap_or_else(PoisonError::into_inner);
    let wakers = std::mem::take(&mut guard.wakers);
    guard.is_running = false;
    drop(guard);
    wakers.into_iter().for_each(Waker::wake);
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
