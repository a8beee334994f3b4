//! Futures that wait at a work queue: for items, room, results and the end. Slices never help.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limitset::{Cooldown, LimitSet, QueueError, QueueOptions, TakeFuture, WorkItem, WorkQueue};

use crate::executors::{EXECUTORS, Job};
use crate::polls::Count;
use crate::support::{Random, depth, proof};
use crate::{permits, with_queue};

pub(crate) const TESTS: [(&str, fn()); 14] = [
    ("a_push_wakes_whoever_waits_for_an_item", || items()),
    ("room_results_and_the_end_wake_whoever_waits_for_them", || others()),
    ("a_pushed_item_wakes_one_of_fifty_futures_and_the_end_wakes_all", || one_wakes()),
    ("a_queue_future_dropped_after_any_poll_leaves_nothing_behind", || dropped()),
    ("an_item_that_woke_a_future_dropped_instead_goes_to_another", || dropped_when_woken()),
    ("a_queue_future_does_nothing_before_it_is_polled_and_nothing_after_its_end", || lazy()),
    ("queue_futures_time_out_on_their_own", || timeouts()),
    ("an_item_put_off_wakes_a_future_when_its_time_has_come", || put_off()),
    ("an_item_put_off_wakes_another_future_if_the_one_with_the_alarm_is_dropped", || alarm_passed_on()),
    ("a_parked_item_wakes_a_future_when_the_pause_is_over", || parked()),
    ("a_removal_wakes_every_future_at_the_queue", || removal()),
    ("the_last_waker_of_a_queue_future_is_the_one_that_is_woken", || last_waker()),
    ("items_are_handed_out_once_under_every_executor", || under_executors()),
    ("nothing_is_lost_or_taken_twice_while_futures_are_dropped_at_any_time", || dropped_at_any_time()),
];

fn open(items: u32) -> (LimitSet, WorkQueue) {
    let limits = with_queue(items).in_memory().unwrap();
    let queue = limits.queue().unwrap();
    (limits, queue)
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A future that waits, and what counts its wakes.
fn asleep<F: Future + Unpin>(mut future: F) -> (F, Arc<Count>) {
    let count = Arc::new(Count::default());
    assert!(poll(&mut future, &Waker::from(count.clone())).is_pending());
    (future, count)
}

/// What a future has that was woken.
fn woken<F: Future + Unpin>((mut future, count): (F, Arc<Count>)) -> F::Output {
    count.wait();
    let Poll::Ready(answer) = poll(&mut future, Waker::noop()) else { panic!("there is nothing") };
    answer
}

fn taken(answer: Result<Option<WorkItem>, QueueError>) -> WorkItem {
    answer.unwrap().unwrap()
}

fn items() {
    let (_limits, queue) = open(4);
    // Again and again: also one that was awake sleeps again.
    for id in 0..20 {
        let waits = asleep(queue.take_async());
        queue.try_push(id, b"payload").unwrap();
        let mut item = taken(woken(waits));
        assert_eq!((item.id(), item.payload(), item.attempts()), (id, &b"payload"[..], 1));
        // One that comes back, in each way.
        let waits = asleep(queue.take_async());
        match id % 3 {
            0 => item.give_back().unwrap(),
            1 => item.retry(Duration::ZERO).unwrap(),
            _ => drop(item),
        }
        taken(woken(waits)).done().unwrap();
    }
    let waits = asleep(queue.take_async());
    queue.close().unwrap();
    assert!(woken(waits).unwrap().is_none(), "it is over");
}

fn others() {
    let (_limits, queue) = open(1);
    queue.try_push(1, b"").unwrap();
    let room = asleep(queue.push_async(2, "two"));
    let results = asleep(queue.collect_async());
    let end = asleep(queue.drain_async());
    let mut item = queue.try_take().unwrap().unwrap();
    item.done_with(b"one").unwrap();
    woken(end).unwrap();
    let mut result = woken(results).unwrap().unwrap();
    assert_eq!((result.id(), result.result()), (1, &b"one"[..]));
    result.forget().unwrap();
    woken(room).unwrap();
    assert_eq!(queue.try_take().unwrap().unwrap().payload(), b"two");
    // A dropped result wakes whoever waits for one.
    let mut item = queue.try_take().unwrap().unwrap();
    item.done_with(b"two").unwrap();
    let result = queue.try_collect().unwrap().unwrap();
    let results = asleep(queue.collect_async());
    drop(result);
    woken(results).unwrap().unwrap().forget().unwrap();
    let results = asleep(queue.collect_async());
    let room = {
        queue.try_push(3, b"").unwrap();
        asleep(queue.push_async(4, ""))
    };
    queue.close().unwrap();
    assert!(matches!(woken(room), Err(QueueError::Closed)));
    queue.try_take().unwrap().unwrap().done().unwrap();
    assert!(woken(results).unwrap().is_none(), "no result will come");
}

fn one_wakes() {
    let (_limits, queue) = open(4);
    let mut waits: Vec<_> = (0..50).map(|_| asleep(queue.take_async())).collect();
    let woken = |waits: &[(TakeFuture, Arc<Count>)]| waits.iter().position(|it| it.1.0.load(SeqCst) > 0);
    for id in 0..20 {
        queue.try_push(id, b"").unwrap();
        crate::wait_until(|| woken(&waits).is_some());
        let (mut future, _) = waits.remove(woken(&waits).unwrap());
        assert_eq!(woken(&waits), None, "another one was woken");
        let Poll::Ready(answer) = poll(&mut future, Waker::noop()) else { panic!("there is nothing") };
        taken(answer).done().unwrap();
        assert_eq!(woken(&waits), None, "another one was woken when this one had its item");
        waits.push(asleep(queue.take_async()));
    }
    queue.close().unwrap();
    // Each tells the next one.
    while !waits.is_empty() {
        crate::wait_until(|| woken(&waits).is_some());
        let (mut future, _) = waits.remove(woken(&waits).unwrap());
        let Poll::Ready(Ok(None)) = poll(&mut future, Waker::noop()) else { panic!("it is over") };
    }
}

fn dropped() {
    for polls in 0..=6_u64 {
        let (_limits, queue) = open(4);
        let count = Arc::new(Count::default());
        let mut future = queue.take_async();
        for number in 0..polls {
            // Every other poll is after a true wake, for something that is gone by then.
            if number % 2 == 1 {
                count.0.store(0, SeqCst);
                queue.try_push(number, b"").unwrap();
                queue.try_take().unwrap().unwrap().done().unwrap();
                count.wait();
            }
            assert!(poll(&mut future, &Waker::from(count.clone())).is_pending());
        }
        drop(future);
        // The helper may be about to wake it; then it is forgotten.
        crate::wait_until(|| Arc::strong_count(&count) == 1);
        queue.try_push(100, b"").unwrap();
        assert_eq!(queue.try_take().unwrap().unwrap().id(), 100);
        assert_eq!(queue.stats().unwrap().leased, 0);
    }
}

fn dropped_when_woken() {
    let (_limits, queue) = open(4);
    for id in 0..20 {
        let (first, other) = (asleep(queue.take_async()), asleep(queue.take_async()));
        queue.try_push(id, b"").unwrap();
        first.1.wait();
        drop(first);
        let mut item = taken(woken(other));
        assert_eq!((item.id(), item.attempts()), (id, 1), "nobody has tried it before");
        item.done().unwrap();
    }
    // And one that was got and never looked at goes on to the next, as any item that is dropped.
    let waits = asleep(queue.take_async());
    queue.try_push(100, b"").unwrap();
    drop(woken(waits));
    assert_eq!(queue.try_take().unwrap().unwrap().attempts(), 2);
}

fn lazy() {
    let (_limits, queue) = open(1);
    let (push, too_long) = (queue.push_async(1, ""), queue.push_async(1, vec![0; 17]));
    drop(push);
    assert_eq!(queue.stats().unwrap().pushed, 0);
    let refused = pollster::block_on(too_long).unwrap_err();
    assert!(matches!(refused, QueueError::TooLong { found: 17, most: 16, .. }), "{refused}");
    let mut push = queue.push_async(2, "");
    assert!(format!("{push:?}").contains("new"));
    assert!(matches!(poll(&mut push, Waker::noop()), Poll::Ready(Ok(()))));
    assert!(poll(&mut push, Waker::noop()).is_pending(), "there is nothing more to come");
    assert!(format!("{push:?}").contains("over"));
    assert_eq!(queue.stats().unwrap().pushed, 1);
    queue.close().unwrap();
    assert!(matches!(pollster::block_on(queue.push_async(3, "")), Err(QueueError::Closed)));
}

fn timeouts() {
    let (_limits, queue) = open(1);
    let soon = Duration::from_millis(5);
    assert!(matches!(pollster::block_on(queue.take_async().timeout(soon)), Err(QueueError::TimedOut)));
    assert!(matches!(pollster::block_on(queue.collect_async().timeout(soon)), Err(QueueError::TimedOut)));
    pollster::block_on(queue.drain_async().timeout(Duration::ZERO)).unwrap();
    pollster::block_on(queue.push_async(1, "").timeout(Duration::ZERO)).unwrap();
    assert!(matches!(pollster::block_on(queue.push_async(2, "").timeout(soon)), Err(QueueError::TimedOut)));
    assert!(matches!(pollster::block_on(queue.drain_async().timeout(soon)), Err(QueueError::TimedOut)));
    assert_eq!(queue.stats().unwrap().pushed, 1);
}

fn alarm_passed_on() {
    let (_limits, queue) = open(4);
    queue.try_push(1, b"").unwrap();
    let mut item = queue.try_take().unwrap().unwrap();
    item.retry(Duration::from_millis(50)).unwrap();
    // The first one keeps the alarm for all.
    let mut waits: Vec<_> = (0..5).map(|_| asleep(queue.take_async())).collect();
    drop(waits.remove(0));
    // Whoever is woken in its place looks and keeps the alarm.
    let woken = |waits: &[(TakeFuture, Arc<Count>)]| waits.iter().position(|it| it.1.0.load(SeqCst) > 0);
    let mut item = loop {
        crate::wait_until(|| woken(&waits).is_some());
        let place = woken(&waits).unwrap();
        let (future, count) = &mut waits[place];
        count.0.store(0, SeqCst);
        if let Poll::Ready(answer) = poll(future, &Waker::from(count.clone())) {
            break taken(answer);
        }
    };
    assert_eq!(item.attempts(), 2);
    item.done().unwrap();
}

fn put_off() {
    let (_limits, queue) = open(1);
    queue.try_push(1, b"").unwrap();
    queue.try_take().unwrap().unwrap().retry(Duration::from_millis(20)).unwrap();
    let mut item = taken(pollster::block_on(queue.take_async()));
    assert_eq!(item.attempts(), 2);
    // Also if it is put off while somebody sleeps already.
    let waits = asleep(queue.take_async());
    item.retry(Duration::from_millis(20)).unwrap();
    drop(waits);
    taken(pollster::block_on(queue.take_async())).done().unwrap();
}

fn parked() {
    let cooldown = Cooldown::default().first(Duration::from_millis(50)).jitter(0.0);
    let limits = permits(1).cooldown(cooldown).queue(QueueOptions::new(1, 0)).in_memory().unwrap();
    let queue = limits.queue().unwrap();
    queue.try_push(1, b"").unwrap();
    let mut item = queue.try_take().unwrap().unwrap();
    item.rate_limited(limits.try_acquire(()).unwrap(), None).unwrap();
    let item = taken(pollster::block_on(queue.take_async()));
    assert_eq!((item.attempts(), item.rate_limits()), (1, 1));
    assert_eq!(limits.stats().unwrap().cooldown.remaining, None, "handed out in a pause");
}

fn removal() {
    let (limits, queue) = open(1);
    let waits: Vec<_> = (0..20).map(|_| asleep(queue.take_async())).collect();
    limits.remove().unwrap();
    for it in waits {
        assert!(matches!(woken(it), Err(QueueError::Removed)));
    }
}

fn last_waker() {
    let (_limits, queue) = open(1);
    let (mut future, first) = asleep(queue.take_async());
    let last = Arc::new(Count::default());
    assert!(poll(&mut future, &Waker::from(last.clone())).is_pending());
    queue.try_push(1, b"").unwrap();
    last.wait();
    assert_eq!(first.0.load(SeqCst), 0);
    assert!(poll(&mut future, Waker::noop()).is_ready());
}

/// Works until there is nothing left, and notes what it had.
async fn work(queue: WorkQueue, log: Arc<Mutex<Vec<u64>>>) {
    while let Some(mut item) = queue.take_async().await.unwrap() {
        log.lock().unwrap().push(item.id());
        item.done_with(item.id().to_string().as_bytes()).unwrap();
    }
}

fn under_executors() {
    const ITEMS: u64 = 200;
    for (_name, run) in EXECUTORS {
        let (_limits, queue) = open(8);
        let (log, results) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let mut jobs: Vec<Job> = Vec::new();
        for _ in 0..8 {
            jobs.push(Box::pin(work(queue.clone(), log.clone())));
        }
        let pushes = queue.clone();
        jobs.push(Box::pin(async move {
            for id in 0..ITEMS {
                pushes.push_async(id, "").await.unwrap();
            }
            pushes.drain_async().await.unwrap();
            pushes.close().unwrap();
        }));
        let (collects, sum) = (queue.clone(), results.clone());
        jobs.push(Box::pin(async move {
            while let Some(mut result) = collects.collect_async().await.unwrap() {
                sum.fetch_add(str::from_utf8(result.result()).unwrap().parse().unwrap(), SeqCst);
                result.forget().unwrap();
            }
        }));
        run(jobs);
        let mut log = std::mem::take(&mut *log.lock().unwrap());
        log.sort_unstable();
        assert_eq!(log, (0..ITEMS).collect::<Vec<_>>());
        assert_eq!(results.load(SeqCst), ITEMS * (ITEMS - 1) / 2);
        assert_eq!(queue.stats().unwrap().taken, ITEMS);
    }
}

/// Threads and futures at one queue; the futures, and what they got, are dropped at random.
fn dropped_at_any_time() {
    let items = depth(2_000, 20_000);
    let (_limits, queue) = open(2);
    let done = Mutex::new(Vec::new());
    let (drops, losses) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (queue, done, drops, losses) = (&queue, &done, &drops, &losses);
            scope.spawn(move || {
                let mut dice = Random::new(seed);
                let mut futures: Vec<TakeFuture> = (0..5).map(|_| queue.take_async()).collect();
                loop {
                    let place = usize::try_from(dice.below(5)).unwrap();
                    match poll(&mut futures[place], Waker::noop()) {
                        Poll::Ready(Ok(None)) => break,
                        Poll::Ready(item) => {
                            let mut item = taken(item);
                            if dice.below(4) == 0 {
                                losses.fetch_add(1, SeqCst);
                            } else {
                                item.done().unwrap();
                                done.lock().unwrap().push(item.id());
                            }
                        }
                        Poll::Pending if dice.below(3) == 0 => drop(drops.fetch_add(1, SeqCst)),
                        Poll::Pending => {
                            std::thread::yield_now();
                            continue;
                        }
                    }
                    futures[place] = queue.take_async();
                }
            });
        }
        // One that waits in its thread, beside them.
        scope.spawn(|| {
            while let Some(mut item) = queue.take().unwrap() {
                item.done().unwrap();
                done.lock().unwrap().push(item.id());
            }
        });
        for id in 0..items {
            pollster::block_on(queue.push_async(id, "")).unwrap();
        }
        queue.close().unwrap();
    });
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, (0..items).collect::<Vec<_>>());
    let stats = queue.stats().unwrap();
    assert_eq!((stats.done, stats.taken), (items, items + losses.load(SeqCst)));
    assert_eq!((stats.leased, stats.ready, stats.dead_lettered), (0, 0, 0));
    let result = format!("{items} items done once, {} futures dropped", drops.load(SeqCst));
    proof("3", "futures that wait for work, dropped at any time", &result);
}
