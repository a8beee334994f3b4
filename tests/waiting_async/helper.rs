//! The helper thread, forks, and deaths.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use limitset::{LimitSet, RateLimit, Report, Segment};

use crate::forks::Forked;
use crate::support::{TempName, Worker, listen, say};
use crate::{assert_empty, in_use, is_pending, permits, wait_until, waiters, waiting};

pub(crate) const TESTS: [(&str, fn()); 5] = [
    ("grants_that_a_killed_process_has_not_collected_return", || uncollected()),
    ("a_future_polled_before_a_fork_asks_anew_in_the_child", || ask("fork", "polled")),
    ("a_forked_child_starts_a_helper_of_its_own", || ask("fork", "helper")),
    ("children_forked_while_futures_are_busy_wait_on_their_own", || ask("busy_fork", "")),
    ("one_helper_per_process_comes_when_needed_and_goes_when_idle", || ask("helpers", "")),
];

/// Runs a role that ends well if all is well.
pub(crate) fn ask(role: &str, what: &str) {
    Worker::start(role, &[what]).wait_for_end();
}

pub(crate) fn helpers() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|it| fs::read_to_string(it.unwrap().path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "limitset-helper").count()
}

/// A new thread bears its name a little after its birth.
pub(crate) fn wait_for_helper() {
    wait_until(|| helpers() == 1);
}

pub(crate) fn helpers_role(_: &[String]) {
    let sets: Vec<LimitSet> = (0..5).map(|_| permits(1).in_memory().unwrap()).collect();
    for _ in 0..2 {
        // What need not wait needs no helper.
        for set in &sets {
            pollster::block_on(set.acquire_async(())).unwrap().release().unwrap();
        }
        assert_eq!(helpers(), 0);
        let held: Vec<_> = sets.iter().map(|set| set.try_acquire(()).unwrap()).collect();
        let futures: Vec<_> = sets.iter().chain(&sets).map(|set| waiting(set, Waker::noop())).collect();
        wait_for_helper();
        drop(held);
        drop(futures);
        wait_until(|| helpers() == 0);
        sets.iter().for_each(assert_empty);
    }
    // It keeps no set attached.
    let name = TempName::new();
    let kept = permits(1).create(&name).unwrap();
    let other = LimitSet::attach(&name).unwrap();
    let held = kept.try_acquire(()).unwrap();
    let future = waiting(&other, Waker::noop());
    wait_for_helper();
    drop(future);
    drop(other);
    wait_until(|| kept.segment().participants().len() == 1);
    drop(held);
}

pub(crate) fn fork_role(arguments: &[String]) {
    let limits = permits(1).open_anonymous().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let mut future = Some(waiting(&limits, Waker::noop()));
    wait_for_helper();
    let parents = limits.segment().participant().unwrap();
    let child = Forked::new(|| {
        let mut future = future.take().unwrap();
        assert_eq!(helpers(), 0, "no thread but the forking one is in the child");
        if arguments[0] == "polled" {
            // The place in the queue is the parent's, and stays.
            assert!(is_pending(&mut future, Waker::noop()));
            assert_eq!(waiters(&limits), 2);
            drop(future);
            assert_eq!(waiters(&limits), 1);
            return;
        }
        let held = pollster::block_on(async {
            let held = future.await;
            assert_eq!(helpers(), 1);
            held.unwrap()
        });
        assert_ne!(limits.segment().participant().unwrap(), parents);
        held.release().unwrap();
    });
    if arguments[0] == "polled" {
        child.join();
        assert_eq!(waiters(&limits), 1);
        held.release().unwrap();
        drop(pollster::block_on(future.unwrap()).unwrap());
    } else {
        wait_until(|| waiters(&limits) == 2);
        held.release().unwrap();
        let mine = pollster::block_on(future.unwrap()).unwrap();
        assert_eq!(waiters(&limits), 1, "the child came later");
        drop(mine);
        child.join();
    }
    assert_empty(&limits);
}

/// Forks again and again while other threads keep the helper and its lock busy.
pub(crate) fn busy_fork_role(_: &[String]) {
    let limits = permits(2).segment(Segment::options()).open_anonymous().unwrap();
    let is_over = AtomicBool::new(false);
    let wait = || pollster::block_on(limits.acquire_async([("db", 2)])).unwrap().release().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    wait();
                }
            });
        }
        for _ in 0..20 {
            let child = Forked::new(|| (0..5).for_each(|_| wait()));
            wait();
            child.join();
        }
        is_over.store(true, SeqCst);
    });
    assert_empty(&limits);
}

/// Notes that it was woken.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Asks for ten, learns that they are there, and does not look.
pub(crate) fn uncollected_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(flag.clone());
    let mut futures: Vec<_> =
        (0..10).map(|_| Box::pin(limits.acquire_async([("db", 1), ("tokens", 2)]))).collect();
    for future in &mut futures {
        assert!(matches!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    }
    say("waiting");
    wait_until(|| flag.0.load(SeqCst));
    say("woken");
    listen();
}

fn uncollected() {
    let name = TempName::new();
    let rate = RateLimit::new("tokens", 100, Duration::from_secs(100_000)).report(Report::Optional);
    let limits = permits(10).limit(rate).segment(Segment::options()).create(&name).unwrap();
    let held = limits.try_acquire([("db", 10), ("tokens", 0)]).unwrap();
    let mut worker = Worker::start("uncollected", &[&name.0]);
    worker.expect("waiting");
    assert_eq!(waiters(&limits), 10);
    // Seven are granted, three still wait.
    let mut held = held;
    held.update("db", 3).unwrap();
    worker.expect("woken");
    assert_eq!((waiters(&limits), in_use(&limits, "db")), (3, 10));
    assert_eq!(limits.stats().unwrap().limit("tokens").unwrap().consumed, 14);
    worker.kill();
    // Whoever waits next finds the dead.
    limits.acquire([("db", 7), ("tokens", 100)]).unwrap().release().unwrap();
    held.release().unwrap();
    let stats = limits.stats().unwrap();
    assert_eq!(stats.limit("tokens").unwrap().refunded, 14);
    assert_empty(&limits);
}
