//! Futures that are polled and dropped by hand: at any time, with any waker.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use limitset::{AcquireError, BadRequest, LimitSet, RateLimit, Report};

use crate::{Boxed, assert_empty, in_use, is_pending, permits, wait_until, waiters, waiting};

pub(crate) const TESTS: [(&str, fn()); 10] = [
    ("a_future_dropped_after_any_poll_leaves_nothing_behind", || dropped(false)),
    ("a_future_dropped_after_its_grant_gives_it_back", || dropped(true)),
    ("a_dropped_head_lets_the_next_through", || dropped_head()),
    ("a_future_does_nothing_before_it_is_polled", || lazy()),
    ("the_last_waker_is_the_one_that_is_woken", || last_waker()),
    ("a_waker_that_owns_another_future_may_be_dropped", || owning_wakers()),
    ("a_waker_that_panics_hurts_no_other_future", || panicking_waker()),
    ("a_waker_may_poll_its_future_itself", || polling_waker()),
    ("a_removal_wakes_every_future", || removal()),
    ("futures_of_more_sets_than_the_kernel_watches_at_once_are_woken", || many_sets()),
];

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Count(pub(crate) AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Count {
    pub(crate) fn wait(&self) {
        wait_until(|| self.0.load(SeqCst) > 0);
    }
}

fn dropped(is_granted: bool) {
    let rate = RateLimit::new("tokens", 10, Duration::from_secs(100_000)).report(Report::Optional);
    for polls in 0..=10 {
        let limits = permits(1).limit(rate.clone()).in_memory().unwrap();
        let held = limits.try_acquire([("tokens", 1)]).unwrap();
        let count = Arc::new(Count::default());
        let mut future = Box::pin(limits.acquire_async([("tokens", 9)]));
        for poll in 0..polls {
            // Every other poll is after a true wake: the set is judged anew.
            if poll % 2 == 1 {
                count.0.store(0, SeqCst);
                limits.parts().unwrap().ring_all().unwrap();
                count.wait();
            }
            assert!(is_pending(&mut future, &Waker::from(count.clone())));
        }
        assert_eq!(waiters(&limits), u64::from(polls > 0));
        if is_granted {
            held.release().unwrap();
            assert_eq!(in_use(&limits, "db"), u64::from(polls > 0), "granted, if it had asked");
            drop(future);
        } else {
            drop(future);
            held.release().unwrap();
        }
        assert_empty(&limits);
        assert_eq!(limits.stats().unwrap().limit("tokens").unwrap().consumed, 1, "{polls} polls");
        limits.try_acquire([("tokens", 9)]).unwrap().release().unwrap();
    }
}

fn dropped_head() {
    let limits = permits(2).in_memory().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let mut large = Box::pin(limits.acquire_async([("db", 2)]));
    assert!(is_pending(&mut large, Waker::noop()));
    let count = Arc::new(Count::default());
    let mut small = waiting(&limits, &Waker::from(count.clone()));
    drop(large);
    count.wait();
    assert!(!is_pending(&mut small, Waker::noop()));
    drop(held);
    assert_empty(&limits);
}

fn lazy() {
    let limits = permits(1).in_memory().unwrap();
    let futures: Vec<_> = (0..5).map(|_| limits.acquire_async(())).collect();
    let wrong = limits.acquire_async([("nothing", 1)]);
    assert_eq!((waiters(&limits), in_use(&limits, "db")), (0, 0));
    drop(futures);
    let wrong = pollster::block_on(wrong).err().unwrap();
    assert!(matches!(wrong, AcquireError::BadRequest(BadRequest::UnknownKey { .. })), "{wrong}");
    let never = pollster::block_on(limits.acquire_async([("db", 2)])).err().unwrap();
    assert!(matches!(never, AcquireError::Never { .. }), "{never}");
    let mut over = Box::pin(limits.acquire_async(()));
    assert!(!is_pending(&mut over, Waker::noop()));
    assert!(is_pending(&mut over, Waker::noop()), "there is nothing more to come");
    assert_empty(&limits);
}

fn last_waker() {
    let limits = permits(1).in_memory().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut future = waiting(&limits, &Waker::from(first.clone()));
    // Polled on in another thread.
    let waker = Waker::from(last.clone());
    let mut future = std::thread::spawn(move || {
        assert!(is_pending(&mut future, &waker));
        future
    })
    .join()
    .unwrap();
    held.release().unwrap();
    last.wait();
    assert_eq!(first.0.load(SeqCst), 0);
    assert!(!is_pending(&mut future, Waker::noop()));
    assert_empty(&limits);
}

/// As the wakers of simple executors own their task, with all the futures in it.
struct Owner(#[expect(dead_code, reason = "owned")] Mutex<Vec<Boxed>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

fn owning_wakers() {
    let limits = permits(2).in_memory().unwrap();
    let held = limits.try_acquire([("db", 2)]).unwrap();
    let owner = || Waker::from(Arc::new(Owner(Mutex::new(vec![waiting(&limits, Waker::noop())]))));
    // Replaced by another waker.
    let mut future = waiting(&limits, &owner());
    assert!(is_pending(&mut future, Waker::noop()));
    assert_eq!(waiters(&limits), 1, "what it owned is gone");
    // Dropped with the future that it would have woken.
    assert!(is_pending(&mut future, &owner()));
    drop(future);
    assert_eq!(waiters(&limits), 0);
    // Woken, and dropped then: what it owned had been granted too.
    let future = waiting(&limits, &owner());
    held.release().unwrap();
    wait_until(|| in_use(&limits, "db") == 1);
    drop(future);
    assert_empty(&limits);
}

#[derive(Default)]
struct Panics(Count);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.0.fetch_add(1, SeqCst);
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

fn panicking_waker() {
    let limits = permits(1).in_memory().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let panics = Arc::new(Panics::default());
    let bad = waiting(&limits, &Waker::from(panics.clone()));
    let count = Arc::new(Count::default());
    let mut good = waiting(&limits, &Waker::from(count.clone()));
    held.release().unwrap();
    panics.0.wait();
    drop(bad);
    count.wait();
    assert!(!is_pending(&mut good, Waker::noop()));
    // And the next one too.
    let held = limits.try_acquire(()).unwrap();
    let count = Arc::new(Count::default());
    let mut next = waiting(&limits, &Waker::from(count.clone()));
    held.release().unwrap();
    count.wait();
    assert!(!is_pending(&mut next, Waker::noop()));
    assert_empty(&limits);
}

/// Polls when it is woken, right there.
struct Polls {
    future: Mutex<Option<Boxed>>,
    tickets: Mutex<Vec<u64>>,
}

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        let mut future = self.future.lock().unwrap();
        let waker = Waker::from(self.clone());
        if let Some(waiting) = future.as_mut()
            && let Poll::Ready(held) = waiting.as_mut().poll(&mut Context::from_waker(&waker))
        {
            *future = None;
            self.tickets.lock().unwrap().push(held.unwrap().ticket());
        }
    }
}

fn polling_waker() {
    let limits = permits(1).in_memory().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let future = Mutex::new(Some(Box::pin(limits.acquire_async(()))));
            Arc::new(Polls { future, tickets: Mutex::default() })
        })
        .collect();
    tasks.iter().for_each(|task| task.clone().wake());
    assert_eq!(waiters(&limits), 10);
    held.release().unwrap();
    wait_until(|| tasks.iter().all(|task| !task.tickets.lock().unwrap().is_empty()));
    let tickets: Vec<u64> = tasks.iter().map(|task| task.tickets.lock().unwrap()[0]).collect();
    assert!(tickets.is_sorted(), "{tickets:?}");
    assert_empty(&limits);
}

fn removal() {
    let limits = permits(1).in_memory().unwrap();
    let held = limits.try_acquire(()).unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let count = Arc::new(Count::default());
            (waiting(&limits, &Waker::from(count.clone())), count)
        })
        .collect();
    limits.remove().unwrap();
    for (mut future, count) in tasks {
        count.wait();
        let answer = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Err(AcquireError::Removed))), "{answer:?}");
    }
    drop(held);
}

fn many_sets() {
    let sets: Vec<LimitSet> = (0..140).map(|_| permits(1).in_memory().unwrap()).collect();
    for count_of_sets in [3, 140] {
        let sets = &sets[..count_of_sets];
        let mut held: Vec<_> = sets.iter().map(|set| Some(set.try_acquire(()).unwrap())).collect();
        let counts: Vec<_> = sets.iter().map(|_| Arc::new(Count::default())).collect();
        let wakers = counts.iter().map(|count| Waker::from(count.clone()));
        let mut futures: Vec<_> = sets.iter().zip(wakers).map(|(set, waker)| waiting(set, &waker)).collect();
        for index in 0..sets.len() {
            let index = index * 37 % sets.len();
            drop(held[index].take());
            counts[index].wait();
            assert!(!is_pending(&mut futures[index], Waker::noop()));
        }
        sets.iter().for_each(assert_empty);
    }
}
