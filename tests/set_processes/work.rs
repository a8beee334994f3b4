//! A work queue among processes: what a dead worker had, what a child inherits, and a lock that is stuck.

use std::time::Duration;

use limitset::{AcquireError, LimitSet, QueueError, QueueOptions, Unavailable};

use crate::forks::Forked;
use crate::others::user;
use crate::stuck::{go_on, stop_inside};
use crate::support::{TempName, Worker};
use crate::{HOUR, builder, options};

fn with_queue() -> limitset::LimitSetBuilder {
    builder().queue(QueueOptions::new(8, 8))
}

/// Somebody who has the next item.
fn worker_with_an_item(name: &TempName) -> Worker {
    let mut worker = user(&name.0, "attach");
    worker.tell("take");
    worker.expect("taken");
    worker
}

pub(crate) fn busy() {
    let name = TempName::new();
    let set = with_queue().segment(options().doorbell_slice(Duration::from_millis(1))).open(&name).unwrap();
    let queue = set.queue().unwrap();
    (1..=3).for_each(|id| queue.push(id, b"").unwrap());
    worker_with_an_item(&name).kill();
    // There is always something else to do, and always room: nobody ever waits.
    let mut next = 4;
    let returned = loop {
        queue.try_push(next, b"").unwrap();
        next += 1;
        let mut item = queue.try_take().unwrap().unwrap();
        item.done().unwrap();
        if item.id() == 1 {
            break item.attempts();
        }
    };
    assert_eq!((returned, queue.stats().unwrap().returned), (2, 1));
}

pub(crate) fn collector() {
    let name = TempName::new();
    let set = with_queue().segment(options().doorbell_slice(HOUR)).open(&name).unwrap();
    let queue = set.queue().unwrap();
    queue.push(1, b"").unwrap();
    queue.close().unwrap();
    queue.take().unwrap().unwrap().done_with(b"result").unwrap();
    let mut worker = user(&name.0, "attach");
    worker.tell("collect");
    worker.expect("taken");
    worker.kill();
    set.reap().unwrap();
    let mut result = queue.collect().unwrap().unwrap();
    assert_eq!(result.result(), b"result");
    result.forget().unwrap();
    assert!(queue.collect().unwrap().is_none());
}

/// The lock is held by a stopped process, and there is somebody dead to clean up after.
pub(crate) fn stuck() {
    let name = TempName::new();
    let slice = Duration::from_millis(1);
    let impatient = options().patience(Duration::from_millis(20)).doorbell_slice(slice);
    let set = with_queue().segment(impatient).open(&name).unwrap();
    let queue = set.queue().unwrap();
    queue.push(1, b"").unwrap();
    let mut dead = worker_with_an_item(&name);
    queue.push(2, b"").unwrap();
    let mut item = queue.take().unwrap().unwrap();
    let mut stopped = stop_inside(&name);
    dead.kill();
    for answer in [queue.take().map(drop), queue.push(3, b""), queue.drain(), queue.close()] {
        let Err(QueueError::Unavailable(why)) = answer else { panic!("{answer:?}") };
        assert!(matches!(*why, Unavailable::LockTimeout(_)), "{why}");
    }
    // What is said of an item is not lost.
    assert!(matches!(item.done(), Err(QueueError::Unavailable(_))));
    assert!(matches!(item.done(), Err(QueueError::Spent)));
    go_on(&mut stopped);
    while queue.stats().unwrap().done == 0 {
        std::thread::yield_now();
    }
    let item = queue.take().unwrap().unwrap();
    assert_eq!((item.id(), item.attempts()), (1, 2));
}

/// Runs in a process with one thread.
pub(crate) fn forked(name: &str) {
    let set = with_queue().segment(options().doorbell_slice(HOUR)).open(name).unwrap();
    let queue = set.queue().unwrap();
    (1..=4).for_each(|id| queue.push(id, b"mine").unwrap());
    queue.take().unwrap().unwrap().done_with(b"result").unwrap();
    let mut items = [queue.take().unwrap(), queue.take().unwrap()].map(Option::unwrap);
    let mut result = queue.collect().unwrap().unwrap();
    let held = set.try_acquire([("tokens", 1)]).unwrap();
    let before = queue.stats().unwrap();
    Forked::new(|| inherit(&set, &mut items[0], &mut result)).join();
    let mut after = queue.stats().unwrap();
    // What the child did as itself.
    assert_eq!((after.done, after.taken), (before.done + 1, before.taken + 1));
    (after.done, after.taken, after.ready) = (before.done, before.taken, before.ready);
    assert_eq!(after, before, "a child changed something of its parent's");
    items[0].done().unwrap();
    items[1].rate_limited(held, None).unwrap();
    result.forget().unwrap();
    // A child that dies with an item of its own.
    set.resume().unwrap();
    Forked::new(|| std::mem::forget(set.queue().unwrap().take())).join();
    set.reap().unwrap();
    assert_eq!(queue.stats().unwrap().returned, 1);
    let mut again = queue.take().unwrap().unwrap();
    assert_eq!((again.id(), again.attempts(), again.rate_limits()), (3, 2, 1));
    again.done().unwrap();
}

fn inherit(set: &LimitSet, item: &mut limitset::WorkItem, result: &mut limitset::Finished) {
    let mine = || set.try_acquire([("tokens", 1)]);
    assert!(matches!(item.done(), Err(QueueError::Forked)));
    assert!(matches!(item.done_with(b"theirs"), Err(QueueError::Forked)));
    assert!(matches!(item.retry(Duration::ZERO), Err(QueueError::Forked)));
    assert!(matches!(item.give_back(), Err(QueueError::Forked)));
    assert!(matches!(item.dead_letter(b""), Err(QueueError::Forked)));
    assert!(matches!(result.forget(), Err(QueueError::Forked)));
    assert!(matches!(result.revive(), Err(QueueError::Forked)));
    assert_eq!(item.payload(), b"mine");
    // It is a participant of its own.
    let mut own = set.queue().unwrap().take().unwrap().unwrap();
    own.done().unwrap();
    let held = mine().unwrap();
    assert!(matches!(item.rate_limited(held, None), Err(QueueError::Forked)));
    assert!(matches!(mine(), Err(AcquireError::CoolingDown { .. })), "the 429 was its own");
    assert!(set.resume().unwrap());
}
