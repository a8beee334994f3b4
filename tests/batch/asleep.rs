//! Asleep through a pause of the real clock, with slices of an hour: whoever waits has an alarm of its own for the end of
//! the pause, and for each gap of the slow start. Without it these tests would not end.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{CallLimit, Cooldown, LimitSet, LimitSetBuilder, QueueOptions, ResourceLimit};

use crate::support::{TempName, Worker, listen, proof, say};
use crate::{MS, acquire, assert_nothing_held, end_with_the_test, no_slices, stats, wait_for_waiters};

pub(crate) const TESTS: [(&str, fn()); 3] = [
    ("twenty_who_waited_before_the_pause_are_granted_after_it_without_slices", || before_the_pause()),
    ("twenty_who_came_during_the_pause_are_granted_after_it_without_slices", || during_the_pause()),
    ("parked_items_go_to_those_who_sleep_when_the_pause_is_over_without_slices", || parked()),
];

const WORKERS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(200);

// Words.
const COUNT: usize = 0;
/// Tickets in the order of admission; or how often each item was taken.
const LOG: usize = 1;

fn builder(connections: u64, spaced: u32) -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(PAUSE).jitter(0.0).slow_start(spaced, 5 * MS, MS);
    let words = u32::try_from(LOG).unwrap() + u32::try_from(WORKERS).unwrap();
    LimitSet::builder()
        .limit(CallLimit::per_second(1_000))
        .limit(ResourceLimit::new("connections", connections))
        .cooldown(cooldown)
        .queue(QueueOptions::new(u32::try_from(WORKERS).unwrap(), 8))
        .segment(no_slices().slots(32).waiters(32).words("notes", words))
}

fn attach(arguments: &[String]) -> LimitSet {
    LimitSet::builder().segment(no_slices()).attach(&arguments[0]).unwrap()
}

fn notes(set: &LimitSet) -> &[AtomicU64] {
    set.segment().words("notes").unwrap()
}

/// Role: when it is told to, waits; writes its ticket down while it holds what it got.
pub(crate) fn acquire_role(arguments: &[String]) {
    let set = attach(arguments);
    say("ready");
    listen();
    end_with_the_test();
    let held = acquire(&set);
    assert_eq!(stats(&set).cooldown.remaining, None, "admitted in a pause");
    let place = notes(&set)[COUNT].fetch_add(1, SeqCst);
    notes(&set)[LOG + usize::try_from(place).unwrap()].store(held.ticket(), SeqCst);
    held.release().unwrap();
}

fn ready(role: &str, name: &TempName) -> Vec<Worker> {
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(role, &[&name.0])).collect();
    workers.iter_mut().for_each(|worker| worker.expect("ready"));
    workers
}

/// All have been admitted; one after the other, if there was one connection, in the order in which they came.
fn check_all_admitted(set: &LimitSet, mut workers: Vec<Worker>, connections: u64) {
    workers.iter_mut().for_each(Worker::wait_for_end);
    let words = notes(set);
    assert_eq!(words[COUNT].load(SeqCst), WORKERS);
    let tickets: Vec<u64> = words[LOG..].iter().map(|it| it.load(SeqCst)).collect();
    let mut sorted = tickets.clone();
    sorted.sort_unstable();
    if connections == 1 {
        assert_eq!(tickets, sorted);
    }
    sorted.dedup();
    assert_eq!(sorted.len(), tickets.len(), "{tickets:?}");
    let end = stats(set);
    assert_eq!(end.cooldown.generation, 1);
    assert_nothing_held(&end);
}

/// One connection or enough for all; at once or spaced; among those that are, the last few are not.
const KINDS: [(u64, u32); 5] = [(1, 0), (1, 20), (20, 0), (20, 20), (20, 10)];

fn before_the_pause() {
    for (connections, spaced) in KINDS {
        let name = TempName::new();
        let set = builder(connections, spaced).create(&name).unwrap();
        // Whoever holds everything gives it back in the instant in which the pause begins.
        let all = set.try_acquire([("connections", connections)]).unwrap();
        let mut workers = ready("sleep", &name);
        for (worker, place) in workers.iter_mut().zip(1..) {
            worker.tell("go");
            wait_for_waiters(&set, place);
        }
        workers.iter().for_each(Worker::wait_until_asleep);
        all.rate_limited(None).unwrap();
        check_all_admitted(&set, workers, connections);
    }
    let result = format!("{} times 20 processes, all admitted, in order, 0 slices needed", KINDS.len());
    proof("7", "asleep in acquire through a pause of 200 ms of the real clock", &result);
}

/// On a slow machine some come when it is over; how many did not is told.
fn during_the_pause() {
    let mut asleep = 0;
    for (connections, spaced) in KINDS {
        let name = TempName::new();
        let set = builder(connections, spaced).create(&name).unwrap();
        let mut workers = ready("sleep", &name);
        acquire(&set).rate_limited(None).unwrap();
        workers.iter_mut().for_each(|worker| worker.tell("go"));
        let mut most = 0;
        while stats(&set).cooldown.remaining.is_some() {
            most = most.max(stats(&set).waiters);
            std::thread::yield_now();
        }
        asleep += most;
        check_all_admitted(&set, workers, connections);
    }
    let result = format!("{} times 20 processes, {asleep} of them came in time, all admitted", KINDS.len());
    proof("7", "joining during a pause of 200 ms of the real clock", &result);
}

/// Role: takes items until there are none.
pub(crate) fn take_role(arguments: &[String]) {
    let set = attach(arguments);
    end_with_the_test();
    let queue = set.queue().unwrap();
    say("ready");
    while let Some(mut item) = queue.take().unwrap() {
        assert_eq!(stats(&set).cooldown.remaining, None, "handed out in a pause");
        assert_eq!((item.attempts(), item.rate_limits()), (1, 1));
        notes(&set)[LOG + usize::try_from(item.id()).unwrap()].fetch_add(1, SeqCst);
        item.done().unwrap();
    }
}

fn parked() {
    let name = TempName::new();
    let set = builder(WORKERS, 0).create(&name).unwrap();
    let queue = set.queue().unwrap();
    let mut items = Vec::new();
    for id in 0..WORKERS {
        queue.push(id, b"").unwrap();
        items.push((queue.try_take().unwrap().unwrap(), acquire(&set)));
    }
    queue.close().unwrap();
    let mut workers = ready("sleep for work", &name);
    workers.iter().for_each(Worker::wait_until_asleep);
    let absorbed = items
        .into_iter()
        .map(|(mut item, held)| item.rate_limited(held, None).unwrap().absorbed)
        .collect::<Vec<_>>();
    assert_eq!(absorbed.iter().filter(|it| !**it).count(), 1, "one pause, however slow the machine");
    workers.iter_mut().for_each(Worker::wait_for_end);
    assert!(notes(&set)[LOG..].iter().all(|taken| taken.load(SeqCst) == 1));
    let end = stats(&set);
    let counts = end.queue.unwrap();
    assert_eq!((counts.done, counts.rate_limited, counts.redistributed), (WORKERS, WORKERS, WORKERS));
    assert_nothing_held(&end);
    proof(
        "7",
        "20 processes asleep in take through a pause of 200 ms",
        "all 20 parked items handed out, 0 slices needed",
    );
}
