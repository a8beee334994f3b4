//! Waiting without a thread: futures under several executors, dropped, forked, mixed with threads and killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "waiting_async/executors.rs"]
mod executors;
#[path = "support/forks.rs"]
mod forks;
#[path = "waiting_async/helper.rs"]
mod helper;
#[path = "waiting_async/polls.rs"]
mod polls;
#[path = "support/mod.rs"]
mod support;
#[path = "waiting_async/work.rs"]
mod work;
#[path = "waiting_async/work_processes.rs"]
mod work_processes;

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use limitset::{AcquireFuture, LimitSet, LimitSetBuilder, QueueOptions, ResourceLimit, Segment};

fn main() {
    let roles: &[support::Role] = &[
        ("uncollected", helper::uncollected_role),
        ("fork", helper::fork_role),
        ("busy_fork", helper::busy_fork_role),
        ("helpers", helper::helpers_role),
        ("work_acquirer", work_processes::acquirer_role),
        ("work_fork", work_processes::fork_role),
        ("work_helpers", work_processes::helpers_role),
        ("work_holder", work_processes::holder_role),
        ("work_taker", work_processes::taker_role),
    ];
    let mut tests: Vec<(&'static str, fn())> = Vec::new();
    tests.extend(executors::TESTS);
    tests.extend(polls::TESTS);
    tests.extend(helper::TESTS);
    tests.extend(work::TESTS);
    tests.extend(work_processes::TESTS);
    support::main(roles, tests);
}

/// Permits, and slices that never help.
fn permits(capacity: u64) -> LimitSetBuilder {
    let hour = Duration::from_secs(3_600);
    LimitSet::builder()
        .limit(ResourceLimit::new("db", capacity))
        .segment(Segment::options().lock_slice(hour).doorbell_slice(hour))
}

/// A queue for so many items, and slices that never help.
fn with_queue(items: u32) -> LimitSetBuilder {
    permits(1).queue(QueueOptions::new(items, 16).attempts(1_000_000))
}

type Boxed = Pin<Box<AcquireFuture>>;

/// A future that waits.
fn waiting(limits: &LimitSet, waker: &Waker) -> Boxed {
    let mut future = Box::pin(limits.acquire_async(()));
    assert!(is_pending(&mut future, waker));
    future
}

fn is_pending(future: &mut Boxed, waker: &Waker) -> bool {
    future.as_mut().poll(&mut Context::from_waker(waker)).is_pending()
}

fn waiters(limits: &LimitSet) -> u64 {
    limits.stats().unwrap().waiters
}

fn in_use(limits: &LimitSet, key: &str) -> u64 {
    limits.stats().unwrap().limit(key).unwrap().in_use
}

fn assert_empty(limits: &LimitSet) {
    let stats = limits.stats().unwrap();
    assert_eq!(stats.waiters, 0);
    assert!(
        stats.limits.iter().all(|it| it.waiting == 0 && (it.window.is_some() || it.in_use == 0)),
        "{stats:?}"
    );
}

/// Until it is so; the watchdog ends a wait in vain.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
