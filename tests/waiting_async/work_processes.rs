//! Futures that wait at a work queue, among processes: wakes, forks and deaths.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use limitset::{LimitSet, QueueError, QueueOptions, ResourceLimit};

use crate::forks::Forked;
use crate::helper::{ask, helpers, wait_for_helper};
use crate::polls::Count;
use crate::support::{TempName, Worker, listen, say};
use crate::{permits, wait_until, waiting, with_queue};

pub(crate) const TESTS: [(&str, fn()); 6] = [
    ("a_push_wakes_a_future_of_another_process", || across()),
    ("an_item_of_a_killed_worker_goes_to_a_future_that_waits", || killed()),
    ("a_queue_that_changes_all_the_time_keeps_no_other_set_from_finding_its_dead", || busy_beside_the_dead()),
    ("a_queue_future_polled_before_a_fork_looks_anew_in_the_child", || ask("work_fork", "polled")),
    ("a_queue_future_of_a_private_set_says_so_in_a_forked_child", || ask("work_fork", "private")),
    ("one_helper_serves_queues_and_limits_and_goes_when_idle", || ask("work_helpers", "")),
];

/// Role: waits for items as a future and tells their numbers.
pub(crate) fn taker_role(arguments: &[String]) {
    let limits = attach(arguments);
    let queue = limits.queue().unwrap();
    let count = Arc::new(Count::default());
    let mut future = Box::pin(queue.take_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(count.clone()))).is_pending());
    say("waits");
    count.wait();
    while let Some(mut item) = pollster::block_on(future).unwrap() {
        say(&item.id().to_string());
        item.done().unwrap();
        future = Box::pin(queue.take_async());
    }
}

/// As the one that opened it: without slices.
fn attach(arguments: &[String]) -> LimitSet {
    let hour = std::time::Duration::from_secs(3_600);
    let segment = limitset::Segment::options().lock_slice(hour).doorbell_slice(hour);
    LimitSet::builder().segment(segment).attach(&arguments[0]).unwrap()
}

fn across() {
    let name = TempName::new();
    let limits = with_queue(4).create(&name).unwrap();
    let queue = limits.queue().unwrap();
    let mut taker = Worker::start("work_taker", &[&name.0]);
    taker.expect("waits");
    for id in 1..=5 {
        queue.push(id, b"").unwrap();
        taker.expect(&id.to_string());
    }
    queue.close().unwrap();
    taker.wait_for_end();
    assert_eq!(queue.stats().unwrap().done, 5);
}

/// Role: takes an item and keeps it.
pub(crate) fn holder_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let _item = limits.queue().unwrap().take().unwrap().unwrap();
    say("has it");
    listen();
}

/// Only a death is found by slices.
fn killed() {
    let name = TempName::new();
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).queue(QueueOptions::new(1, 8));
    let limits = set.create(&name).unwrap();
    let queue = limits.queue().unwrap();
    queue.push(1, b"work").unwrap();
    let mut holder = Worker::start("work_holder", &[&name.0]);
    holder.expect("has it");
    let count = Arc::new(Count::default());
    let mut future = Box::pin(queue.take_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(count.clone()))).is_pending());
    holder.kill();
    let mut item = pollster::block_on(future).unwrap().unwrap();
    assert_eq!((item.id(), item.payload(), item.attempts()), (1, &b"work"[..], 2));
    item.done().unwrap();
    assert_eq!(queue.stats().unwrap().returned, 1);
}

/// Role: acquires and keeps it.
pub(crate) fn acquirer_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let _held = limits.acquire(()).unwrap();
    say("has it");
    listen();
}

/// The helper has always something to do for the one set; the other one has nobody else who would look for the dead.
fn busy_beside_the_dead() {
    let name = TempName::new();
    let limits = LimitSet::builder().limit(ResourceLimit::new("db", 1)).create(&name).unwrap();
    let mut holder = Worker::start("work_acquirer", &[&name.0]);
    holder.expect("has it");
    let busy = with_queue(2).in_memory().unwrap();
    let queue = busy.queue().unwrap();
    let (future, is_over) = (waiting(&limits, Waker::noop()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(mut item) = pollster::block_on(queue.take_async()).unwrap() {
                item.done().unwrap();
            }
        });
        let pusher = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                queue.push(1, b"").unwrap();
            }
            queue.close().unwrap();
        });
        holder.kill();
        pollster::block_on(future).unwrap().release().unwrap();
        is_over.store(true, SeqCst);
        pusher.join().unwrap();
    });
    assert_eq!(limits.stats().unwrap().reaped_permits, 1);
}

pub(crate) fn fork_role(arguments: &[String]) {
    let is_private = arguments[0] == "private";
    let limits = if is_private { with_queue(4).in_memory() } else { with_queue(4).open_anonymous() }.unwrap();
    let queue = limits.queue().unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let [mut first, mut second] = [(); 2].map(|()| Some(Box::pin(queue.take_async())));
    for future in [&mut first, &mut second].map(|it| it.as_mut().unwrap()) {
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    wait_for_helper();
    let (mut tells, mut told) = std::io::pipe().unwrap();
    let child = Forked::new(|| {
        assert_eq!(helpers(), 0, "no thread but the forking one is in the child");
        let mut future = first.take().unwrap();
        if is_private {
            assert!(matches!(pollster::block_on(future), Err(QueueError::NotShared)));
            return;
        }
        // New ones here may have the numbers that the parent's have there: dropping an inherited one is nothing to them.
        let mut mine = Box::pin(queue.take_async());
        let mine_count = Arc::new(Count::default());
        let mine_waker = Waker::from(mine_count.clone());
        assert!(mine.as_mut().poll(&mut Context::from_waker(&mine_waker)).is_pending());
        drop(second.take());
        assert!(future.as_mut().poll(&mut Context::from_waker(&mine_waker)).is_pending());
        told.write_all(b"!").unwrap();
        let mut item = loop {
            mine_count.wait();
            mine_count.0.store(0, SeqCst);
            let polled = [&mut future, &mut mine]
                .map(|it| it.as_mut().poll(&mut Context::from_waker(&mine_waker)))
                .into_iter()
                .find_map(|poll| if let Poll::Ready(answer) = poll { Some(answer) } else { None });
            if let Some(answer) = polled {
                break answer.unwrap().unwrap();
            }
        };
        assert_eq!(item.id(), 1);
        wait_for_helper();
        item.done().unwrap();
    });
    if is_private {
        child.join();
        queue.push(1, b"").unwrap();
        count.wait();
        pollster::block_on(first.unwrap()).unwrap().unwrap().done().unwrap();
        return;
    }
    tells.read_exact(&mut [0]).unwrap();
    // One of the parent's is woken, or one of the child's; the parent leaves the item to the child.
    queue.push(1, b"").unwrap();
    wait_until(|| count.0.load(SeqCst) > 0 || queue.stats().unwrap().done > 0);
    drop((first, second));
    child.join();
    assert_eq!(queue.stats().unwrap().done, 1);
    queue.push(2, b"").unwrap();
    assert_eq!(pollster::block_on(queue.take_async()).unwrap().unwrap().id(), 2);
}

pub(crate) fn helpers_role(_: &[String]) {
    let limits = with_queue(1).in_memory().unwrap();
    let queue = limits.queue().unwrap();
    // What need not wait needs no helper.
    pollster::block_on(queue.push_async(1, "")).unwrap();
    pollster::block_on(queue.take_async()).unwrap().unwrap().done().unwrap();
    assert_eq!(helpers(), 0);
    let other = permits(1).in_memory().unwrap();
    let held = (limits.try_acquire(()).unwrap(), other.try_acquire(()).unwrap());
    let for_limits = (waiting(&limits, Waker::noop()), waiting(&other, Waker::noop()));
    let count = Arc::new(Count::default());
    let mut for_work = Box::pin(queue.take_async());
    assert!(for_work.as_mut().poll(&mut Context::from_waker(&Waker::from(count.clone()))).is_pending());
    wait_for_helper();
    // What happens to the limits is nothing to those who wait for work.
    drop(held);
    drop(pollster::block_on(for_limits.0).unwrap());
    drop(pollster::block_on(for_limits.1).unwrap());
    assert_eq!(count.0.load(SeqCst), 0);
    queue.try_push(2, b"").unwrap();
    count.wait();
    assert_eq!(helpers(), 1);
    drop(for_work);
    wait_until(|| helpers() == 0);
    // It keeps no set attached.
    let name = TempName::new();
    let kept = with_queue(1).create(&name).unwrap();
    let other = LimitSet::attach(&name).unwrap();
    let mut future = Box::pin(other.queue().unwrap().take_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_for_helper();
    drop(future);
    drop(other);
    wait_until(|| kept.segment().participants().len() == 1);
}
