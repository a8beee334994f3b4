//! Who is woken at a work queue: one waiter for one change, and the next one if that waiter cannot use it. Wake-ups are
//! counted by the kernel, as the voluntary context switches of the threads that wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use limitset::core::{NEVER, Reach};
use limitset::engine::{Vigil, WorkBell};
use limitset::{Clock, Interrupt, LimitSet, LimitSetBuilder, QueueError, QueueOptions, Segment, WorkQueue};
use nix::sys::signal::Signal;
use support::{TempName, Worker, listen, proof, say};

const HOUR: Duration = Duration::from_secs(3_600);

fn main() {
    support::main(
        &[("taker", taker_role), ("woken", woken_role)],
        vec![
            ("one_pushed_item_wakes_at_most_two_of_300_takers", pushes),
            ("an_item_put_off_wakes_few_of_100_takers_when_its_time_comes", put_off),
            ("one_freed_place_wakes_at_most_two_of_100_pushers", places),
            ("one_result_wakes_at_most_two_of_100_collectors", results),
            ("closing_a_queue_wakes_every_waiter", closing),
            ("an_item_whose_woken_taker_is_killed_goes_to_the_next_taker", || {
                woken_and(Fate::Killed, "wait")
            }),
            ("an_item_whose_woken_taker_is_stopped_goes_to_the_next_taker", || {
                woken_and(Fate::Stopped, "wait")
            }),
            ("so_it_does_if_the_next_taker_can_be_interrupted", || woken_and(Fate::Stopped, "interrupt")),
            ("so_it_does_if_the_next_taker_is_a_future", || woken_and(Fate::Killed, "future")),
            (
                "an_item_put_off_is_taken_in_time_though_the_taker_with_the_alarm_was_killed",
                alarm_of_the_dead,
            ),
        ],
    );
}

/// A queue, and slices of this length.
fn builder(items: u32, slice: Duration) -> LimitSetBuilder {
    let options = Segment::options().lock_slice(Duration::from_millis(5)).doorbell_slice(slice);
    LimitSet::builder().queue(QueueOptions::new(items, 16).attempts(1_000_000)).segment(options)
}

// ---- threads that wait ----

/// Threads that do the same again and again, and how often each of them slept.
struct Crowd {
    threads: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
}

impl Crowd {
    fn new(count: usize, act: impl Fn() + Clone + Send + 'static) -> Self {
        let (told, ids) = channel();
        let start = Arc::new(Barrier::new(count));
        let threads = (0..count).map(|_| {
            let (act, told, start) = (act.clone(), told.clone(), start.clone());
            std::thread::spawn(move || {
                told.send(nix::unistd::gettid().as_raw()).unwrap();
                start.wait();
                act();
            })
        });
        let threads = threads.collect();
        let ids = ids.into_iter().take(count).collect();
        Self { threads, ids }
    }

    fn field(thread: i32, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    /// How often all of them together have gone to sleep.
    fn sleeps(&self) -> u64 {
        self.ids.iter().map(|it| Self::field(*it, "voluntary_ctxt_switches:").parse::<u64>().unwrap()).sum()
    }

    /// Waits until all of them sleep and have stayed so for several looks.
    fn wait_until_asleep(&self) {
        let mut last = 0;
        let mut same = 0;
        while same < 3 {
            let asleep = self.ids.iter().all(|it| Self::field(*it, "State:").starts_with('S'));
            let sleeps = self.sleeps();
            same = if asleep && sleeps == last { same + 1 } else { 0 };
            last = sleeps;
            std::thread::yield_now();
        }
    }

    /// How often they were woken by what `act` does so often, each time from a sleep of all of them.
    fn wakes(&self, times: u64, mut act: impl FnMut(u64)) -> u64 {
        self.wait_until_asleep();
        let before = self.sleeps();
        for time in 0..times {
            act(time);
            self.wait_until_asleep();
        }
        self.sleeps() - before
    }

    fn join(self) {
        self.threads.into_iter().for_each(|it| it.join().unwrap());
    }
}

/// Takes items until there will be none, and does them.
fn work(queue: &WorkQueue, done: &AtomicU64) {
    while let Some(mut item) = queue.take().unwrap() {
        item.done().unwrap();
        done.fetch_add(1, SeqCst);
    }
}

fn wait_for(count: &AtomicU64, wanted: u64) {
    while count.load(SeqCst) < wanted {
        std::thread::yield_now();
    }
}

fn assert_few(wakes: u64, times: u64, most: u64, what: &str) {
    assert!(wakes <= most * times, "{wakes} wake-ups by {times} times {what}");
    proof("8", what, &format!("{wakes} wake-ups by {times}"));
}

fn pushes() {
    let set = builder(8, HOUR).in_memory().unwrap();
    let queue = set.queue().unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let takers = Crowd::new(300, {
        let (queue, done) = (queue.clone(), done.clone());
        move || work(&queue, &done)
    });
    let wakes = takers.wakes(20, |time| {
        queue.push(time, b"").unwrap();
        wait_for(&done, time + 1);
    });
    assert_few(wakes, 20, 2, "one item for 300 takers that sleep");
    // Several at one time wake as many.
    let wakes = takers.wakes(4, |time| {
        (0..5).for_each(|id| queue.push(id, b"").unwrap());
        wait_for(&done, 20 + 5 * (time + 1));
    });
    assert_few(wakes, 20, 2, "one of five items for 300 takers that sleep");
    queue.close().unwrap();
    takers.join();
    assert_eq!(queue.stats().unwrap().done, 40);
}

/// Twice for each item: when it is put off, so that a taker sets its alarm, and when its time comes; and as often for a
/// taker that had an alarm for an item that another one took.
fn put_off() {
    let set = builder(8, HOUR).in_memory().unwrap();
    let queue = set.queue().unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let takers = Crowd::new(100, {
        let (queue, done) = (queue.clone(), done.clone());
        move || {
            while let Some(mut item) = queue.take().unwrap() {
                if item.attempts() == 1 {
                    item.retry(Duration::from_millis(item.id())).unwrap();
                } else {
                    item.done().unwrap();
                    done.fetch_add(1, SeqCst);
                }
            }
        }
    });
    let wakes = takers.wakes(10, |time| {
        // The later one first, and then the other one before it.
        [30, 10].into_iter().for_each(|id| queue.push(id, b"").unwrap());
        wait_for(&done, 2 * (time + 1));
    });
    assert_few(wakes, 20, 5, "one item for 100 takers that sleep, put off once");
    queue.close().unwrap();
    takers.join();
}

fn places() {
    let set = builder(1, HOUR).in_memory().unwrap();
    let queue = set.queue().unwrap();
    queue.push(1_000, b"").unwrap();
    let pushers = Crowd::new(100, {
        let queue = queue.clone();
        move || {
            let pushed = (0..).map(|id| queue.push(id, b"")).find(Result::is_err).unwrap();
            assert!(matches!(pushed, Err(QueueError::Closed)));
        }
    });
    let wakes = pushers.wakes(20, |time| {
        queue.take().unwrap().unwrap().done().unwrap();
        while queue.stats().unwrap().pushed < time + 2 {
            std::thread::yield_now();
        }
    });
    assert_few(wakes, 20, 2, "one place for 100 pushers that sleep");
    queue.close().unwrap();
    pushers.join();
}

fn results() {
    let set = builder(8, HOUR).in_memory().unwrap();
    let queue = set.queue().unwrap();
    let collected = Arc::new(AtomicU64::new(0));
    let collectors = Crowd::new(100, {
        let (queue, collected) = (queue.clone(), collected.clone());
        move || {
            while let Some(mut result) = queue.collect().unwrap() {
                result.forget().unwrap();
                collected.fetch_add(1, SeqCst);
            }
        }
    });
    let wakes = collectors.wakes(20, |time| {
        queue.push(time, b"").unwrap();
        queue.take().unwrap().unwrap().done_with(b"result").unwrap();
        wait_for(&collected, time + 1);
    });
    assert_few(wakes, 20, 2, "one result for 100 collectors that sleep");
    queue.close().unwrap();
    collectors.join();
}

fn closing() {
    let set = builder(1, HOUR).in_memory().unwrap();
    let queue = set.queue().unwrap();
    queue.push(1, b"").unwrap();
    let mut item = queue.take().unwrap().unwrap();
    let crowd = |act: fn(&WorkQueue)| {
        let queue = queue.clone();
        Crowd::new(20, move || act(&queue))
    };
    let crowds = [
        crowd(|queue| assert!(queue.take().unwrap().is_none())),
        crowd(|queue| assert!(queue.collect().unwrap().is_none())),
        crowd(|queue| assert!(matches!(queue.push(2, b""), Err(QueueError::Closed)))),
        crowd(|queue| queue.drain().unwrap()),
    ];
    crowds.iter().for_each(Crowd::wait_until_asleep);
    queue.close().unwrap();
    item.done().unwrap();
    crowds.into_iter().for_each(Crowd::join);
}

// ---- takers in processes of their own ----

const SLICE: Duration = Duration::from_millis(50);

fn attach(arguments: &[String]) -> LimitSet {
    let options = Segment::options().lock_slice(Duration::from_millis(5)).doorbell_slice(SLICE);
    LimitSet::builder().segment(options).attach(&arguments[0]).unwrap()
}

/// Role: a taker that does nothing any more once it has been woken.
fn woken_role(arguments: &[String]) {
    let set = attach(arguments);
    let parts = set.parts().unwrap();
    let me = set.segment().participant().unwrap();
    let seen = parts.work_bell(WorkBell::Takers);
    assert!(matches!(set.queue().unwrap().try_take(), Err(QueueError::Empty)));
    say("looked");
    let vigil = Vigil { interval: u64::MAX, patience: 0, reach: Reach::ALL };
    while parts.work_bell(WorkBell::Takers) | 1 == seen | 1 {
        let bell = (WorkBell::Takers, seen);
        parts.sleep_for_work(me, bell, NEVER, vigil, &Clock::Monotonic, |_| Ok(())).unwrap();
    }
    say("woken");
    listen();
}

/// Role: takes items in this way and tells their numbers.
fn taker_role(arguments: &[String]) {
    static NEVER_RAISED: Interrupt = Interrupt::new();
    let set = attach(arguments);
    let queue = set.queue().unwrap();
    say("ready");
    let take = || match arguments[1].as_str() {
        "interrupt" => NEVER_RAISED.during(|| queue.take()).unwrap(),
        "future" => pollster::block_on(queue.take_async()).unwrap(),
        _ => queue.take().unwrap(),
    };
    while let Some(mut item) = take() {
        item.done().unwrap();
        say(&item.id().to_string());
    }
    say("over");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Killed,
    Stopped,
}

fn start(role: &str, arguments: &[&str], hello: &str) -> Worker {
    let mut worker = Worker::start(role, arguments);
    worker.expect(hello);
    worker.wait_until_asleep();
    worker
}

fn woken_and(fate: Fate, how: &str) {
    let name = TempName::new();
    let set = builder(8, SLICE).create(&name).unwrap();
    let queue = set.queue().unwrap();
    // It sleeps first, so it is woken first.
    let mut woken = start("woken", &[&name.0], "looked");
    let mut next = start("taker", &[&name.0, how], "ready");
    queue.push(1, b"").unwrap();
    woken.expect("woken");
    match fate {
        Fate::Killed => woken.kill(),
        Fate::Stopped => woken.signal(Signal::SIGSTOP),
    }
    next.expect("1");
    queue.push(2, b"").unwrap();
    next.expect("2");
    queue.close().unwrap();
    next.expect("over");
}

fn alarm_of_the_dead() {
    let name = TempName::new();
    let set = builder(8, SLICE).create(&name).unwrap();
    let queue = set.queue().unwrap();
    queue.push(1, b"").unwrap();
    let mut item = queue.take().unwrap().unwrap();
    let mut first = start("taker", &[&name.0, "wait"], "ready");
    item.retry(Duration::from_secs(1)).unwrap();
    first.wait_until_asleep();
    let mut next = start("taker", &[&name.0, "wait"], "ready");
    first.kill();
    next.expect("1");
    queue.close().unwrap();
    next.expect("over");
}
