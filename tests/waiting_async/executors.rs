//! The same under every executor: order, time, many futures, and threads beside them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limitset::{AcquireError, LimitSet, RateLimit, Report, ResourceLimit, RunError, Segment};

use crate::support::proof;
use crate::{assert_empty, in_use, permits, wait_until, waiters};

pub(crate) const TESTS: [(&str, fn()); 6] = [
    ("futures_are_granted_in_order_under_every_executor", || in_order()),
    ("futures_time_out_under_every_executor", || timeouts()),
    ("futures_wait_for_a_rate_under_every_executor", || rates()),
    ("ten_thousand_futures_are_granted_or_told_that_the_queue_is_full", || ten_thousand()),
    ("a_cancelled_body_gives_everything_back_under_every_executor", || cancelled_body()),
    ("futures_and_threads_are_served_in_one_order", || mixed()),
];

pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Runs all jobs to their end, at one time.
pub(crate) type Executor = (&'static str, fn(Vec<Job>));

pub(crate) const EXECUTORS: [Executor; 4] = [
    ("tokio with several threads", |jobs| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        runtime.block_on(tokio_jobs(jobs));
    }),
    ("tokio with one thread", |jobs| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(tokio_jobs(jobs));
    }),
    ("async-executor", |jobs| {
        let executor = async_executor::LocalExecutor::new();
        let tasks: Vec<_> = jobs.into_iter().map(|job| executor.spawn(job)).collect();
        pollster::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
    }),
    ("pollster", |jobs| {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(|| pollster::block_on(job));
            }
        });
    }),
];

async fn tokio_jobs(jobs: Vec<Job>) {
    let mut set = tokio::task::JoinSet::new();
    for job in jobs {
        set.spawn(job);
    }
    while let Some(ended) = set.join_next().await {
        ended.unwrap();
    }
}

fn in_order() {
    for (executor, run) in EXECUTORS {
        let limits = permits(1).in_memory().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let job = |_| -> Job {
            let (limits, order) = (limits.clone(), order.clone());
            Box::pin(async move {
                for _ in 0..10 {
                    let held = limits.acquire_async(()).await.unwrap();
                    order.lock().unwrap().push(held.ticket());
                    held.release().unwrap();
                }
            })
        };
        // All are there before the first is served.
        let held = limits.try_acquire(()).unwrap();
        let first: Job = Box::pin({
            let limits = limits.clone();
            async move {
                std::thread::spawn(move || {
                    wait_until(|| waiters(&limits) == 20);
                    held.release().unwrap();
                });
            }
        });
        run(std::iter::once(first).chain((0..20).map(job)).collect());
        let order = order.lock().unwrap();
        assert!(order.len() == 200 && order.is_sorted(), "{executor}: {order:?}");
        assert_empty(&limits);
    }
}

fn timeouts() {
    for (executor, run) in EXECUTORS {
        let limits = permits(1).in_memory().unwrap();
        let held = limits.try_acquire(()).unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let job = |millis| -> Job {
            let (limits, count) = (limits.clone(), count.clone());
            Box::pin(async move {
                let answer = limits.acquire_async(()).timeout(Duration::from_millis(millis)).await;
                let Err(AcquireError::TimedOut(late)) = answer else { panic!("{executor}: {answer:?}") };
                assert!(late.waited >= Duration::from_millis(millis));
                assert!(late.holders.iter().all(|it| it.is_this_process && it.key == "db"), "{late}");
                count.fetch_add(1, SeqCst);
            })
        };
        run((0..20).map(job).collect());
        assert_eq!(count.load(SeqCst), 20, "{executor}");
        held.release().unwrap();
        assert_empty(&limits);
    }
}

fn rates() {
    for (executor, run) in EXECUTORS {
        let rate = RateLimit::new("tokens", 5, Duration::from_millis(50)).report(Report::Optional);
        let builder = permits(100).limit(rate);
        let limits = builder.in_memory().unwrap();
        let sum = Arc::new(AtomicU64::new(0));
        let job = |amount: u64| -> Job {
            let (limits, sum) = (limits.clone(), sum.clone());
            Box::pin(async move {
                let held = limits.acquire_async([("tokens", 1 + amount % 3)]).await.unwrap();
                sum.fetch_add(held.charged("tokens").unwrap(), SeqCst);
                held.release().unwrap();
            })
        };
        run((0..12).map(job).collect());
        assert_eq!(sum.load(SeqCst), 24, "{executor}");
        assert_eq!(limits.stats().unwrap().limit("tokens").unwrap().consumed, 24, "{executor}");
        assert_empty(&limits);
    }
}

fn ten_thousand() {
    const FUTURES: u64 = 10_000;
    let limits = permits(1).in_memory().unwrap();
    let places = u64::from(limits.segment().info().waiters);
    assert_eq!(places, 1_024, "the default");
    let held = limits.try_acquire(()).unwrap();
    let (granted, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut jobs: Vec<Job> = Vec::new();
    for _ in 0..FUTURES {
        let (limits, granted, refused) = (limits.clone(), granted.clone(), refused.clone());
        jobs.push(Box::pin(async move {
            match limits.acquire_async(()).await {
                Ok(held) => {
                    granted.fetch_add(1, SeqCst);
                    held.release().unwrap();
                }
                Err(AcquireError::QueueFull { waiters: 1_024 }) => drop(refused.fetch_add(1, SeqCst)),
                Err(other) => panic!("{other}"),
            }
        }));
    }
    let (watched, seen) = (limits.clone(), refused.clone());
    let releaser = std::thread::spawn(move || {
        wait_until(|| seen.load(SeqCst) == FUTURES - places);
        assert_eq!(waiters(&watched), places);
        held.release().unwrap();
    });
    let (_, run) = EXECUTORS[0];
    run(jobs);
    releaser.join().unwrap();
    let (granted, refused) = (granted.load(SeqCst), refused.load(SeqCst));
    let result = format!("{granted} granted, {refused} told that the queue is full, nothing left");
    proof("5,7", "10,000 futures in one process, 1,024 places in the queue", &result);
    assert_eq!((granted, refused), (places, FUTURES - places));
    assert_empty(&limits);
}

fn cancelled_body() {
    for (executor, run) in EXECUTORS {
        let rate = RateLimit::new("tokens", 10, Duration::from_secs(100_000)).report(Report::Optional);
        let limits = LimitSet::builder().limit(rate).limit(ResourceLimit::new("db", 2)).in_memory().unwrap();
        let inside = limits.clone();
        let job: Job = Box::pin(async move {
            let body = async |held: &mut limitset::Acquisition| {
                assert_eq!((held.charged("tokens"), held.charged("db")), (Some(7), Some(1)));
                std::future::pending::<Result<(), ()>>().await
            };
            let mut whole = Box::pin(inside.run_async([("tokens", 7)], body));
            // Polled until the body waits, then dropped.
            std::future::poll_fn(|context| {
                assert!(whole.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            assert_eq!(in_use(&inside, "db"), 1);
            drop(whole);
            let failed = inside.run_async([("tokens", 9)], async |_| Err::<(), _>("no")).await;
            assert!(matches!(failed, Err(RunError::Body("no"))));
        });
        run(vec![job]);
        let stats = limits.stats().unwrap();
        let tokens = stats.limit("tokens").unwrap();
        assert_eq!((tokens.consumed, tokens.refunded, tokens.available), (0, 16, 10), "{executor}");
        assert_empty(&limits);
    }
}

fn mixed() {
    let options = Segment::options();
    let limits = permits(1).segment(options).in_memory().unwrap();
    let order = Mutex::new(Vec::new());
    let held = limits.try_acquire(()).unwrap();
    std::thread::scope(|scope| {
        for count in 0..16 {
            let (limits, order) = (&limits, &order);
            scope.spawn(move || {
                for _ in 0..20 {
                    let held = match count % 2 {
                        0 => limits.acquire(()).unwrap(),
                        _ => pollster::block_on(limits.acquire_async(())).unwrap(),
                    };
                    order.lock().unwrap().push(held.ticket());
                    held.release().unwrap();
                }
            });
        }
        wait_until(|| waiters(&limits) == 16);
        held.release().unwrap();
    });
    let order = order.into_inner().unwrap();
    assert!(order.len() == 320 && order.is_sorted(), "{order:?}");
    assert_empty(&limits);
}
