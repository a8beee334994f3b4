//! Charges without acquisitions: rates are charged, nothing is held, and charges wait in the queue of acquisitions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::sync::mpsc;
use std::time::Duration;

use limitset::{
    AcquireError, Algorithm, BadRequest, CallLimit, Charged, Clock, LimitSet, RateLimit, ResourceLimit,
};
use support::{TempName, Worker, listen, say};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const SLEEPERS: u64 = 20;
/// Sleepers that pass in each window.
const PER_WINDOW: u64 = 3;

fn main() {
    support::main(
        &[("sleep", sleep_role)],
        vec![
            ("a_charge_is_made_to_all_limits_or_to_none", all_or_none),
            ("calls_come_along_and_permits_do_not", come_along),
            ("naming_a_permit_is_an_error", permits),
            ("no_report_is_owed", no_report),
            ("a_charge_that_can_never_be_does_not_wait", never),
            ("a_charge_that_comes_too_late_is_not_made", too_late),
            ("a_future_that_is_dropped_pays_nothing", dropped),
            ("charges_and_acquisitions_wait_in_one_queue", one_queue),
            ("a_charge_does_not_overtake_who_waits", no_overtaking),
            ("of_20_threads_as_many_pass_per_window_as_the_limit_allows", threads),
            ("of_20_futures_as_many_pass_per_window_as_the_limit_allows", futures),
            ("of_20_threads_of_4_processes_as_many_pass_per_window_as_the_limit_allows", processes),
        ],
    );
}

/// By each of the ways to charge.
fn every_way(set: &LimitSet, amounts: &[(&str, u64)]) -> [Result<Charged, AcquireError>; 3] {
    [
        set.try_charge(amounts),
        set.charge_timeout(amounts, HOUR),
        pollster::block_on(set.charge_async(amounts, Some(HOUR))),
    ]
}

fn consumed(set: &LimitSet) -> Vec<u64> {
    set.stats().unwrap().limits.iter().map(|limit| limit.consumed).collect()
}

fn two_rates() -> LimitSet {
    LimitSet::builder()
        .limit(RateLimit::per_hour("tokens", 100))
        .limit(RateLimit::per_hour("bytes", 10))
        .clock(Clock::Manual)
        .in_memory()
        .unwrap()
}

fn all_or_none() {
    let set = two_rates();
    for answer in every_way(&set, &[("tokens", 10), ("bytes", 3)]) {
        assert!(answer.unwrap().enforced);
    }
    assert_eq!(consumed(&set), [30, 9]);
    let AcquireError::Denied(denial) = set.try_charge([("tokens", 1), ("bytes", 2)]).unwrap_err() else {
        panic!("there is 1 byte left")
    };
    assert_eq!(denial.violations().map(|it| it.key).collect::<Vec<_>>(), ["bytes"]);
    assert_eq!(consumed(&set), [30, 9], "tokens neither");
    let resolved = set.request().amount("tokens", 1).amount("bytes", 1).build().unwrap();
    set.try_charge(&resolved).unwrap();
    assert_eq!(consumed(&set), [31, 10]);
    let unknown = set.try_charge([("beer", 1)]).unwrap_err();
    assert!(matches!(unknown, AcquireError::BadRequest(BadRequest::UnknownKey { .. })), "{unknown}");
}

fn come_along() {
    let set = LimitSet::builder()
        .limit(CallLimit::per_hour(100))
        .limit(RateLimit::per_hour("tokens", 100))
        .limit(ResourceLimit::new("db", 1))
        .in_memory()
        .unwrap();
    let _held = set.try_acquire([("tokens", 0)]).unwrap();
    // All permits are held, which does not matter to a charge.
    for answer in every_way(&set, &[("tokens", 5)]) {
        answer.unwrap();
    }
    assert_eq!(consumed(&set), [4, 15, 1]);
    set.try_charge([("call_count", 7), ("tokens", 1), ("db", 0)]).unwrap();
    assert_eq!(consumed(&set), [11, 16, 1]);
    let nothing = set.try_charge(()).unwrap_err();
    assert!(matches!(nothing, AcquireError::BadRequest(BadRequest::Unnamed { .. })), "{nothing}");
}

fn permits() {
    let set = LimitSet::builder()
        .limit(CallLimit::per_hour(100))
        .limit(ResourceLimit::new("db", 1))
        .in_memory()
        .unwrap();
    let resolved = set.request().amount("db", 1).build().unwrap();
    let by_request = [set.try_charge(&resolved), set.charge(&resolved)];
    for answer in every_way(&set, &[("db", 1)]).into_iter().chain(by_request) {
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, AcquireError::BadRequest(BadRequest::Permit { key }) if key == "db"),
            "{error}"
        );
    }
    assert_eq!(consumed(&set), [0, 0], "nothing was charged");
    // A permit limit that the request does not name is left alone.
    set.try_charge(&set.request().build().unwrap()).unwrap();
    assert_eq!(consumed(&set), [1, 0]);
}

fn no_report() {
    let set = two_rates();
    for answer in every_way(&set, &[("tokens", 1), ("bytes", 1)]) {
        answer.unwrap();
    }
    let stats = set.stats().unwrap();
    assert!(stats.limits.iter().all(|limit| limit.unreported == 0), "{stats:?}");
    assert!(
        stats.participants.iter().all(|it| it.owes_reports.iter().all(|(_, owed)| *owed == 0)),
        "{stats:?}"
    );
    // Of an acquisition one is owed: this would be seen.
    let held = set.try_acquire([("tokens", 1), ("bytes", 1)]).unwrap();
    let owed = set
        .stats()
        .unwrap()
        .participants
        .iter()
        .flat_map(|it| it.owes_reports.clone())
        .map(|it| it.1)
        .sum::<u64>();
    assert_eq!(owed, 2);
    drop(held);
    assert!(set.stats().unwrap().limits.iter().all(|limit| limit.unreported == 1));
}

fn never() {
    let set = two_rates();
    for answer in every_way(&set, &[("tokens", 1), ("bytes", 11)]) {
        let error = answer.unwrap_err();
        assert!(matches!(&error, AcquireError::Never { key, .. } if **key == *"bytes"), "{error}");
    }
    assert_eq!(consumed(&set), [0, 0]);
}

fn too_late() {
    let set = two_rates();
    set.try_charge([("bytes", 10)]).unwrap();
    let time = Duration::from_millis(2);
    let late = [
        set.charge_timeout([("tokens", 1), ("bytes", 1)], time),
        pollster::block_on(set.charge_async([("tokens", 1), ("bytes", 1)], Some(time))),
    ];
    for answer in late {
        assert!(matches!(answer, Err(AcquireError::TimedOut(_))), "{answer:?}");
    }
    assert_eq!((consumed(&set), set.stats().unwrap().waiters), (vec![0, 10], 0));
}

fn dropped() {
    let set = two_rates();
    set.try_charge([("bytes", 10)]).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut future = Box::pin(set.charge_async([("bytes", 1)], None));
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_eq!(set.stats().unwrap().waiters, 1);
    drop(future);
    assert_eq!(set.stats().unwrap().waiters, 0);
    // One that was granted meanwhile, and never looked.
    let mut future = Box::pin(set.charge_async([("bytes", 1)], None));
    assert!(future.as_mut().poll(&mut context).is_pending());
    set.advance(HOUR).unwrap();
    drop(future);
    set.try_charge([("bytes", 10)]).unwrap();
}

fn wait_for_waiters(set: &LimitSet, count: u64) {
    while set.stats().unwrap().waiters != count {
        std::thread::yield_now();
    }
}

/// One passes per window: blocking and not, paying and acquiring, all in the order in which they came.
fn one_queue() {
    const WAITERS: u64 = 12;
    let limit = CallLimit::new(1, SECOND).algorithm(Algorithm::FixedWindow);
    let set = LimitSet::builder().limit(limit).clock(Clock::Manual).in_memory().unwrap();
    set.try_charge(()).unwrap();
    let (passes, passed) = mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..WAITERS {
            let (set, passes) = (&set, passes.clone());
            scope.spawn(move || {
                let ticket = match number % 4 {
                    0 => set.acquire(()).map(|held| held.ticket()),
                    1 => set.charge(()).map(|it| it.ticket),
                    2 => pollster::block_on(set.acquire_async(())).map(|held| held.ticket()),
                    _ => pollster::block_on(set.charge_async((), None)).map(|it| it.ticket),
                };
                passes.send((number, ticket.unwrap())).unwrap();
            });
            wait_for_waiters(set, number + 1);
        }
        let mut last = 0;
        for number in 0..WAITERS {
            assert!(
                matches!(set.try_charge(()), Err(AcquireError::Queued { ahead }) if ahead == WAITERS - number)
            );
            set.advance(SECOND).unwrap();
            let (who, ticket) = passed.recv().unwrap();
            assert_eq!(who, number, "in order of arrival");
            assert!(ticket > last, "tickets are numbers of arrival");
            last = ticket;
            wait_for_waiters(&set, WAITERS - number - 1);
        }
    });
    support::proof("7", "payers and acquirers, blocking and not, in one queue", "served in order of arrival");
}

fn no_overtaking() {
    let set = two_rates();
    set.try_charge([("bytes", 5)]).unwrap();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| set.charge([("bytes", 9)]));
        wait_for_waiters(&set, 1);
        // There is room for this charge, but a waiter came first.
        assert!(matches!(set.try_charge([("bytes", 1)]), Err(AcquireError::Queued { ahead: 1 })));
        assert!(set.try_charge([("tokens", 1), ("bytes", 0)]).is_ok(), "nobody waits for tokens");
        set.advance(HOUR).unwrap();
        large.join().unwrap().unwrap();
        set.try_charge([("bytes", 1)]).unwrap();
    });
}

fn set_of(algorithm: Algorithm) -> limitset::LimitSetBuilder {
    let limit = RateLimit::new("tokens", 2 * PER_WINDOW, SECOND).algorithm(algorithm);
    LimitSet::builder().limit(limit).clock(Clock::Manual)
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::Gcra,
];

/// Moves the clock on window by window while sleepers wait for 2 tokens each, and counts who passes.
fn count_windows(set: &LimitSet, mut next_pass: impl FnMut(), algorithm: Algorithm) {
    // What passes at once: a window's worth, or by what flows evenly, as much as may come at once.
    wait_for_waiters(set, SLEEPERS);
    let mut left = SLEEPERS;
    while left > 0 {
        set.advance(SECOND).unwrap();
        let passing = PER_WINDOW.min(left);
        for _ in 0..passing {
            next_pass();
        }
        left -= passing;
        // Exactly so many: whoever was granted more would be missing here, and there is nothing left for them.
        let stats = set.stats().unwrap();
        let tokens = stats.limit("tokens").unwrap();
        assert_eq!(stats.waiters, left, "{algorithm:?}");
        assert_eq!(tokens.consumed, 2 * (PER_WINDOW + SLEEPERS - left), "{algorithm:?}");
        assert_eq!(tokens.granted, PER_WINDOW + SLEEPERS - left, "{algorithm:?}");
    }
}

/// Uses up what passes at once.
fn exhausted(set: &LimitSet) {
    for _ in 0..PER_WINDOW {
        set.try_charge([("tokens", 2)]).unwrap();
    }
    set.try_charge([("tokens", 2)]).unwrap_err();
}

fn threads() {
    for algorithm in ALGORITHMS {
        let set = set_of(algorithm).in_memory().unwrap();
        exhausted(&set);
        let (passes, passed) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                scope.spawn(|| {
                    set.charge([("tokens", 2)]).unwrap();
                    passes.send(()).unwrap();
                });
            }
            count_windows(&set, || passed.recv().unwrap(), algorithm);
        });
    }
    let result = "exactly 3 per window, by each of the five algorithms";
    support::proof("2,8", "20 sleepers that pay, manual clock", result);
}

fn futures() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for algorithm in ALGORITHMS {
        let set = set_of(algorithm).in_memory().unwrap();
        exhausted(&set);
        let (passes, passed) = mpsc::channel();
        for _ in 0..SLEEPERS {
            let (set, passes) = (set.clone(), passes.clone());
            runtime.spawn(async move {
                set.charge_async([("tokens", 2)], None).await.unwrap();
                passes.send(()).unwrap();
            });
        }
        count_windows(&set, || passed.recv().unwrap(), algorithm);
    }
}

fn sleep_role(arguments: &[String]) {
    let set = LimitSet::attach(&arguments[0]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..SLEEPERS / 4 {
            scope.spawn(|| {
                set.charge([("tokens", 2)]).unwrap();
                say("passed");
            });
        }
    });
    listen();
}

fn processes() {
    for algorithm in ALGORITHMS {
        let name = TempName::new();
        let set = set_of(algorithm).open(&name).unwrap();
        exhausted(&set);
        let (passes, passed) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (name, passes) = (&name.0, passes.clone());
                scope.spawn(move || {
                    let mut worker = Worker::start("sleep", &[name]);
                    for _ in 0..SLEEPERS / 4 {
                        worker.expect("passed");
                        passes.send(()).unwrap();
                    }
                    assert!(worker.finish().success());
                });
            }
            count_windows(&set, || passed.recv().unwrap(), algorithm);
        });
    }
}
