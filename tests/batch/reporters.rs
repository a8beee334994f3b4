//! Who reports "too many requests": late, at one time, killed or stopped right after it or in the middle of it. The
//! pause is one, and lasts exactly as long.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{AcquireError, Acquisition, CallLimit, Clock, Cooldown, LimitSet, QueueError, QueueOptions};
use limitset::{LimitSetBuilder, ResourceLimit, WorkItem};
use nix::sys::signal::Signal;

use crate::support::{Random, TempName, Worker, depth, listen, proof, say};
use crate::{MS, NS, acquire, assert_nothing_held, short_slices, spin, stats, wait_for_waiters};

pub(crate) const TESTS: [(&str, fn()); 6] = [
    ("a_429_of_a_request_sent_before_the_pause_starts_no_second_pause", || late()),
    ("of_reports_at_one_time_exactly_one_begins_the_pause", || at_one_time()),
    ("killing_the_reporter_does_not_shorten_the_pause", || reporter_is_gone(Signal::SIGKILL)),
    ("stopping_the_reporter_neither_shortens_nor_prolongs_the_pause", || reporter_is_gone(Signal::SIGSTOP)),
    ("a_reporter_killed_in_the_middle_has_begun_the_whole_pause_or_none", || killed_in_the_middle()),
    ("what_a_killed_reporter_still_has_returns_and_what_it_parked_stays_parked", || killed_with_more()),
];

const WORKERS: usize = 20;
const PAUSE: Duration = Duration::from_secs(5);

/// Pauses of exactly 5 seconds, 10, and so on; no slow start.
fn builder() -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(PAUSE).jitter(0.0).slow_start(0, MS, MS);
    LimitSet::builder()
        .limit(CallLimit::per_second(1_000))
        .limit(ResourceLimit::new("connections", WORKERS as u64))
        .cooldown(cooldown)
        .queue(QueueOptions::new(8, 8))
        .clock(Clock::Manual)
        .segment(short_slices().slots(32).waiters(32).words("go", 1))
}

/// Role: follows commands, with its oldest acquisition and its oldest item.
pub(crate) fn role(arguments: &[String]) {
    let set = LimitSet::builder().segment(short_slices()).attach(&arguments[0]).unwrap();
    let queue = set.queue().unwrap();
    let mut held: VecDeque<Acquisition> = VecDeque::new();
    let mut items: VecDeque<WorkItem> = VecDeque::new();
    loop {
        let order = listen();
        let answer = match order.as_str() {
            "acquire" => {
                held.push_back(acquire(&set));
                "acquired".to_owned()
            }
            "take" => {
                let item = queue.take().unwrap().unwrap();
                let id = item.id().to_string();
                items.push_back(item);
                id
            }
            "report when all is set" => {
                say("set");
                while set.segment().words("go").unwrap()[0].load(SeqCst) == 0 {
                    std::hint::spin_loop();
                }
                tell(&held.pop_front().unwrap().rate_limited(None).unwrap())
            }
            "report" => tell(&held.pop_front().unwrap().rate_limited(None).unwrap()),
            "park" => {
                let held = held.pop_front().unwrap();
                tell(&items.pop_front().unwrap().rate_limited(held, None).unwrap())
            }
            "finish" => {
                held.pop_front().unwrap().release().unwrap();
                items.pop_front().unwrap().done().unwrap();
                "finished".to_owned()
            }
            other => panic!("{other}"),
        };
        say(&answer);
    }
}

/// `pause 3: 5s`, `within pause 3: none`.
fn tell(pause: &limitset::Pause) -> String {
    let left = pause.remaining.map_or("none".to_owned(), |left| format!("{left:?}"));
    format!("{}pause {}: {left}", if pause.absorbed { "within " } else { "" }, pause.generation)
}

/// Workers that have acquired, one each.
fn admitted(name: &TempName, count: usize) -> Vec<Worker> {
    let mut workers: Vec<Worker> = (0..count).map(|_| Worker::start("report", &[&name.0])).collect();
    workers.iter_mut().for_each(|worker| worker.tell("acquire"));
    workers.iter_mut().for_each(|worker| worker.expect("acquired"));
    workers
}

fn ask(worker: &mut Worker, order: &str) -> String {
    worker.tell(order);
    worker.hear()
}

fn late() {
    let name = TempName::new();
    let set = builder().create(&name).unwrap();
    let mut workers = admitted(&name, WORKERS);
    let second = Duration::from_secs(1);
    assert_eq!(ask(&mut workers[0], "report"), "pause 1: 5s");
    for (worker, left) in workers[1..5].iter_mut().zip((1..5).rev()) {
        set.advance(second).unwrap();
        assert_eq!(ask(worker, "report"), format!("within pause 1: {left}s"));
    }
    set.advance(second).unwrap();
    assert_eq!(stats(&set).cooldown.remaining, None);
    for worker in &mut workers[5..15] {
        assert_eq!(ask(worker, "report"), "within pause 1: none", "also when the pause is over");
    }
    // Also when others have been admitted since, and one of them has begun the next pause.
    assert_eq!(ask(&mut workers[0], "acquire"), "acquired");
    assert_eq!(ask(&mut workers[0], "report"), "pause 2: 10s");
    for worker in &mut workers[15..] {
        assert_eq!(ask(worker, "report"), "within pause 2: 10s");
    }
    let end = stats(&set);
    assert_eq!((end.cooldown.generation, end.cooldown.absorbed), (2, 19));
    assert_eq!((end.cooldown.consecutive, end.cooldown.participants), (2, 6));
    assert_nothing_held(&end);
    let result =
        "20 reports of requests sent before it: 1 pause, 19 absorbed, during it, after it and in the next";
    proof("2,7", "late 429s of 20 processes", result);
}

fn at_one_time() {
    let rounds = depth(20, 500);
    let name = TempName::new();
    let set = builder().create(&name).unwrap();
    let mut workers = admitted(&name, WORKERS);
    for round in 1..=rounds {
        workers.iter_mut().for_each(|worker| worker.tell("report"));
        let mut answers: Vec<String> = workers.iter_mut().map(Worker::hear).collect();
        answers.sort_unstable();
        let mut expected = vec![format!("within pause {round}: 5s"); WORKERS];
        expected[0] = format!("pause {round}: 5s");
        assert_eq!(answers, expected);
        assert_nothing_held(&stats(&set));
        // All of them join during the pause, and are admitted when it ends.
        workers.iter_mut().for_each(|worker| worker.tell("acquire"));
        wait_for_waiters(&set, WORKERS as u64);
        assert!(set.resume().unwrap());
        workers.iter_mut().for_each(|worker| worker.expect("acquired"));
    }
    let end = stats(&set).cooldown;
    assert_eq!((end.generation, end.absorbed), (rounds, rounds * (WORKERS as u64 - 1)));
    proof(
        "2,7",
        "20 processes report at one time",
        &format!("{rounds} times: {rounds} pauses, {} absorbed", end.absorbed),
    );
}

/// Returns how long the set is paused, as told to a request.
fn closed_for(set: &LimitSet) -> Option<Duration> {
    match set.try_acquire(()) {
        Err(AcquireError::CoolingDown { remaining, .. }) => Some(remaining),
        Ok(held) => {
            held.cancel().unwrap();
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn reporter_is_gone(signal: Signal) {
    let name = TempName::new();
    let set = builder().create(&name).unwrap();
    let mut workers = admitted(&name, 1);
    let (mut reporter, mut waiter) = (workers.remove(0), Worker::start("report", &[&name.0]));
    assert_eq!(ask(&mut reporter, "report"), "pause 1: 5s");
    waiter.tell("acquire");
    wait_for_waiters(&set, 1);
    if signal == Signal::SIGKILL {
        reporter.kill();
        set.reap().unwrap();
    } else {
        reporter.signal(signal);
    }
    assert_eq!(closed_for(&set), Some(PAUSE));
    set.advance(PAUSE - NS).unwrap();
    assert_eq!((closed_for(&set), stats(&set).waiters), (Some(NS), 1), "not shorter");
    set.advance(NS).unwrap();
    assert_eq!((closed_for(&set), stats(&set).waiters), (None, 0), "not longer");
    waiter.expect("acquired");
    if signal == Signal::SIGSTOP {
        reporter.signal(Signal::SIGCONT);
        assert_eq!(ask(&mut reporter, "acquire"), "acquired");
        assert_eq!(ask(&mut reporter, "report"), "pause 2: 10s", "it goes on like everybody");
    }
}

fn killed_in_the_middle() {
    let name = TempName::new();
    let set = builder().create(&name).unwrap();
    let mut random = Random::new(5);
    let go = &set.segment().words("go").unwrap()[0];
    let rounds = depth(100, 2_000);
    let (mut begun, mut aim) = (0, 16);
    for _ in 0..rounds {
        let mut reporter = admitted(&name, 1).remove(0);
        go.store(0, SeqCst);
        assert_eq!(ask(&mut reporter, "report when all is set"), "set");
        go.store(1, SeqCst);
        spin(aim / 2 + random.below(aim));
        reporter.kill();
        // No process has reaped yet.
        let found = stats(&set);
        let pauses = found.cooldown.generation - begun;
        let in_use = found.limit("connections").unwrap().in_use;
        let left = found.cooldown.remaining;
        assert!(
            (pauses, in_use, left) == (0, 1, None) || (pauses, in_use, left) == (1, 0, Some(PAUSE)),
            "in part: {pauses} pauses, {in_use} permits, {left:?}"
        );
        begun += pauses;
        // Later if it came too early, earlier if too late: so most come about the time of the report.
        aim = if pauses == 0 { aim * 5 / 4 } else { 4.max(aim * 3 / 4) };
        set.reap().unwrap();
        assert_eq!(closed_for(&set), left, "whoever cleans up");
        assert_eq!(set.resume().unwrap(), pauses == 1);
        assert_nothing_held(&stats(&set));
    }
    let stolen = stats(&set).steals;
    let result = format!("{begun} had begun the whole pause, the others none; {stolen} locks stolen");
    proof("1,3", &format!("{rounds} reporters killed about the time of their report"), &result);
}

fn killed_with_more() {
    for reaped_by_others in [false, true] {
        let name = TempName::new();
        let set = builder().create(&name).unwrap();
        let queue = set.queue().unwrap();
        (1..=3).for_each(|id| queue.push(id, b"").unwrap());
        let mut worker = Worker::start("report", &[&name.0]);
        for (order, answer) in
            [("take", "1"), ("acquire", "acquired"), ("take", "2"), ("acquire", "acquired")]
        {
            assert_eq!(ask(&mut worker, order), answer);
        }
        assert_eq!(ask(&mut worker, "park"), "pause 1: 5s");
        // A stopped process keeps its permits, and the pause goes on.
        worker.signal(Signal::SIGSTOP);
        set.advance(Duration::from_secs(1)).unwrap();
        assert_eq!(set.reap().unwrap(), 0);
        let stopped = stats(&set);
        let leased = |stats: &limitset::Stats| {
            let queue = stats.queue.unwrap();
            (queue.parked, queue.leased, queue.ready, queue.returned)
        };
        assert_eq!((leased(&stopped), stopped.limit("connections").unwrap().in_use), ((1, 1, 1, 0), 1));
        worker.kill();
        if reaped_by_others {
            // Of the two that it waits for, one does not come before it has found the dead.
            let mut other = Worker::start("report", &[&name.0]);
            let mut taken = [ask(&mut other, "take"), ask(&mut other, "take")];
            taken.sort_unstable();
            assert_eq!(taken, ["2", "3"]);
            other.kill();
        }
        set.reap().unwrap();
        let end = stats(&set);
        let again = u64::from(reaped_by_others);
        assert_eq!(leased(&end), (1, 0, 2, 1 + 2 * again));
        assert_nothing_held(&end);
        assert_eq!((end.cooldown.remaining, end.cooldown.generation), (Some(PAUSE * 4 / 5), 1));
        assert_eq!(closed_for(&set), Some(PAUSE * 4 / 5), "as long as if nobody had died");
        // Each with its own counts; the parked one not before the pause is over, but then before all others.
        let mut items = Vec::new();
        let mut take = || match queue.try_take() {
            Ok(item) => items.push(item.unwrap()),
            Err(error) => assert!(matches!(error, QueueError::Empty), "{error}"),
        };
        (0..3).for_each(|_| take());
        set.advance(PAUSE * 4 / 5).unwrap();
        take();
        let mut found: Vec<_> = items.iter().map(|it| (it.id(), it.attempts(), it.rate_limits())).collect();
        assert_eq!(found.pop(), Some((1, 1, 1)));
        found.sort_unstable();
        assert_eq!(found, [(2, 2 + again, 0), (3, 1 + again, 0)]);
    }
}
