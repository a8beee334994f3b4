//! Waits that are ended from outside: by another thread, by a signal handler; and all that must not end them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{
    AcquireError, CallLimit, Clock, Interrupt, LimitPool, LimitSet, QueueError, QueueOptions, ResourceLimit,
    Segment,
};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use support::watched;

const HOUR: Duration = Duration::from_secs(3_600);

/// A word of its own for each test, which lives as long as a signal handler may need it.
fn interrupt() -> &'static Interrupt {
    Box::leak(Box::default())
}

fn one_connection() -> LimitSet {
    // Nothing may depend on a slice.
    let options = Segment::options().doorbell_slice(HOUR);
    LimitSet::builder().limit(ResourceLimit::new("connections", 1)).segment(options).in_memory().unwrap()
}

fn until_waiters(set: &LimitSet, count: u64) {
    while set.stats().unwrap().waiters != count {
        std::thread::yield_now();
    }
}

fn is_interrupted<T>(answer: &Result<T, AcquireError>) -> bool {
    matches!(answer, Err(AcquireError::Interrupted))
}

#[test]
fn a_raised_interrupt_ends_a_wait_and_leaves_the_queue() {
    watched("a_raised_interrupt_ends_a_wait", || {
        let (set, stop) = (one_connection(), interrupt());
        let held = set.acquire(()).unwrap();
        let waiter = std::thread::spawn({
            let set = set.clone();
            move || stop.during(|| set.acquire(()).map(drop))
        });
        until_waiters(&set, 1);
        stop.raise();
        assert!(is_interrupted(&waiter.join().unwrap()));
        assert_eq!(set.stats().unwrap().waiters, 0);
        held.release().unwrap();
        let stats = set.stats().unwrap();
        assert_eq!((stats.limits[0].in_use, stats.limits[0].granted), (0, 1), "nothing was charged");
    });
}

#[test]
fn all_who_look_at_it_are_ended_and_nobody_else() {
    watched("all_who_look_at_it", || {
        let (set, stop) = (one_connection(), interrupt());
        let held = set.acquire(()).unwrap();
        let others = std::thread::spawn({
            let set = set.clone();
            move || set.acquire(()).map(drop)
        });
        until_waiters(&set, 1);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let set = set.clone();
                std::thread::spawn(move || stop.during(|| set.acquire_timeout((), HOUR).map(drop)))
            })
            .collect();
        until_waiters(&set, 4);
        stop.raise();
        for waiter in waiters {
            assert!(is_interrupted(&waiter.join().unwrap()));
        }
        until_waiters(&set, 1);
        held.release().unwrap();
        others.join().unwrap().unwrap();
    });
}

#[test]
fn what_can_be_had_at_once_is_given_and_no_wait_begins() {
    watched("what_can_be_had_at_once", || {
        let (set, stop) = (one_connection(), interrupt());
        stop.raise();
        let held = stop.during(|| set.acquire(())).unwrap();
        assert!(is_interrupted(&stop.during(|| set.acquire(()))));
        let pool = LimitPool::new([set.clone()]).unwrap();
        assert!(is_interrupted(&stop.during(|| pool.acquire(()))));
        assert!(matches!(
            stop.during(|| set.acquire_timeout((), Duration::ZERO)),
            Err(AcquireError::TimedOut(_) | AcquireError::Interrupted)
        ));
        stop.clear();
        assert!(!stop.is_raised());
        let late = stop.during(|| set.acquire_timeout((), Duration::from_millis(1)));
        assert!(matches!(late, Err(AcquireError::TimedOut(_))), "time is up as it always is");
        held.release().unwrap();
    });
}

#[test]
fn outside_of_its_call_it_ends_nothing_and_the_inner_of_two_counts() {
    watched("outside_of_its_call", || {
        let (set, outer, inner) = (one_connection(), interrupt(), interrupt());
        let _held = set.acquire(()).unwrap();
        outer.raise();
        let moment = Duration::from_millis(1);
        let timed_out =
            |answer: Result<_, AcquireError>| matches!(answer.map(drop), Err(AcquireError::TimedOut(_)));
        assert!(timed_out(set.acquire_timeout((), moment)));
        outer.during(|| {
            assert!(timed_out(inner.during(|| set.acquire_timeout((), moment))));
            assert!(is_interrupted(&set.acquire_timeout((), HOUR)));
        });
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| outer.during(|| panic!("on purpose"))));
        assert!(caught.is_err());
        assert!(timed_out(set.acquire_timeout((), moment)), "a panic leaves nothing behind");
    });
}

#[test]
fn who_can_be_interrupted_is_served_woken_and_told_like_everybody() {
    watched("who_can_be_interrupted_is_served", || {
        let stop = interrupt();
        let (set, clocked) = (one_connection(), LimitSet::builder().clock(Clock::Manual));
        let held = set.acquire(()).unwrap();
        let wait = |set: &LimitSet| {
            let set = set.clone();
            std::thread::spawn(move || stop.during(|| set.acquire(())))
        };
        let first = wait(&set);
        until_waiters(&set, 1);
        let second = wait(&set);
        until_waiters(&set, 2);
        held.release().unwrap();
        let granted = first.join().unwrap().unwrap();
        assert_eq!(set.stats().unwrap().waiters, 1, "in order");
        granted.release().unwrap();
        let last = second.join().unwrap().unwrap();
        let third = wait(&set);
        until_waiters(&set, 1);
        set.remove().unwrap();
        assert!(matches!(third.join().unwrap(), Err(AcquireError::Removed)));
        drop(last);

        let slow = clocked.limit(CallLimit::per_second(1)).in_memory().unwrap();
        slow.acquire(()).unwrap().release().unwrap();
        let by_time = wait(&slow);
        until_waiters(&slow, 1);
        slow.advance(Duration::from_secs(1)).unwrap();
        by_time.join().unwrap().unwrap().release().unwrap();
        // A clock that moves itself: nobody rings.
        let real =
            LimitSet::builder().limit(CallLimit::new(1, Duration::from_millis(20))).in_memory().unwrap();
        for _ in 0..3 {
            stop.during(|| real.acquire(())).unwrap().release().unwrap();
        }
    });
}

#[test]
fn a_work_queue_lets_go_of_who_is_interrupted() {
    watched("a_work_queue_lets_go", || {
        let set = LimitSet::builder().queue(QueueOptions::new(1, 8)).in_memory().unwrap();
        let queue = set.queue().unwrap();
        type Wait = fn(&limitset::WorkQueue) -> Result<(), QueueError>;
        let on_empty: [Wait; 2] = [|queue| queue.take().map(drop), |queue| queue.collect().map(drop)];
        let on_full: [Wait; 2] = [|queue| queue.push(2, b""), |queue| queue.drain()];
        let interrupted = |wait: Wait, is_early: bool| {
            let (queue, stop) = (queue.clone(), interrupt());
            if is_early {
                stop.raise();
            }
            let waiter = std::thread::spawn(move || stop.during(|| wait(&queue)));
            stop.raise();
            assert!(matches!(waiter.join().unwrap(), Err(QueueError::Interrupted)));
        };
        for is_early in [true, false] {
            on_empty.iter().for_each(|wait| interrupted(*wait, is_early));
        }
        // Somebody who is not interrupted gets what comes.
        let stop = interrupt();
        let taker = std::thread::spawn({
            let queue = queue.clone();
            move || stop.during(|| queue.take().unwrap().unwrap().id())
        });
        queue.push(7, b"x").unwrap();
        assert_eq!(taker.join().unwrap(), 7);
        // Dropped, it is there again.
        for is_early in [true, false] {
            on_full.iter().for_each(|wait| interrupted(*wait, is_early));
        }
    });
}

#[test]
fn a_signal_handler_may_raise_it_and_signals_alone_end_nothing() {
    static STOP: Interrupt = Interrupt::new();
    static SEEN: AtomicBool = AtomicBool::new(false);
    extern "C" fn stop(_: i32) {
        STOP.raise();
    }
    extern "C" fn note(_: i32) {
        SEEN.store(true, SeqCst);
    }
    fn handle(signal: Signal, handler: extern "C" fn(i32)) {
        // Without SA_RESTART: system calls end with EINTR.
        let action = SigAction::new(SigHandler::Handler(handler), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handlers only store to atomics and make a futex call, which any handler may.
        unsafe { sigaction(signal, &action) }.unwrap();
    }
    watched("a_signal_handler_may_raise_it", || {
        handle(Signal::SIGUSR1, note);
        handle(Signal::SIGUSR2, stop);
        let set = one_connection();
        let held = set.acquire(()).unwrap();
        let (tell, told) = std::sync::mpsc::channel::<Pthread>();
        let waiter = std::thread::spawn({
            let set = set.clone();
            move || {
                tell.send(pthread_self()).unwrap();
                STOP.during(|| set.acquire(()).map(drop))
            }
        });
        let thread = told.recv().unwrap();
        until_waiters(&set, 1);
        pthread_kill(thread, Signal::SIGUSR1).unwrap();
        while !SEEN.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(!waiter.is_finished() && set.stats().unwrap().waiters == 1, "it waits on");
        pthread_kill(thread, Signal::SIGUSR2).unwrap();
        assert!(is_interrupted(&waiter.join().unwrap()));
        held.release().unwrap();
    });
}
