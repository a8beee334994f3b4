//! Processes that are stopped: in the queue they delay nobody; with the lock in hand they delay nobody for longer
//! than that one has patience.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::core::{NEVER, Wakes};
use limitset::engine::WorkBell;
use limitset::{AcquireError, LimitSet, QueueOptions, RateLimit, Report, ResourceLimit, Segment};
use nix::sys::signal::Signal;

use crate::hands::{HOUR, Hand, Mode, Scene, no_slices, refusal};
use crate::support::{Worker, listen, say};

pub(crate) const TESTS: [(&str, fn()); 14] = [
    ("a_stopped_head_of_a_permit_wait_delays_nobody_and_has_its_grant_later", || permits()),
    ("a_stopped_head_of_a_rate_wait_delays_nobody_and_has_its_grant_later", || rates(1)),
    ("two_stopped_heads_of_a_rate_wait_delay_nobody", || rates(2)),
    ("a_stopped_head_that_waits_for_a_rate_delays_nobody_who_wants_its_permits", || rate_and_permit(1)),
    ("two_stopped_heads_that_wait_for_a_rate_delay_nobody_who_wants_their_permits", || rate_and_permit(2)),
    ("one_that_leaves_before_two_stopped_ones_lets_the_next_through_in_time", || leaving(2)),
    ("one_that_leaves_before_four_stopped_ones_lets_the_next_through_in_time", || leaving(4)),
    ("a_refund_before_two_stopped_ones_lets_the_next_through_in_time", || refund()),
    ("a_stopped_one_whose_patience_ended_meanwhile_is_told_of_its_grant", || late_grant()),
    ("one_that_was_impossible_for_a_moment_waits_on", || impossible_for_a_moment()),
    ("a_stuck_lock_holds_nobody_up_for_longer_than_its_patience", || stuck_lock()),
    ("a_waiter_that_gives_up_under_a_stuck_lock_leaves_the_queue_afterwards", || stuck_waiter("")),
    ("a_future_that_gives_up_under_a_stuck_lock_leaves_the_queue_afterwards", || stuck_waiter("async")),
    ("a_removal_wakes_all_though_a_stopped_holder_of_the_lock_was_about_to", || removal_under_a_stuck_lock()),
];

/// Stops a process, and waits until it stands.
pub(crate) fn stop(hand: &mut Hand) {
    let worker = hand.worker();
    worker.signal(Signal::SIGSTOP);
    loop {
        let state = fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap();
        if state.rsplit(')').next().unwrap().trim_start().starts_with('T') {
            return;
        }
        std::thread::yield_now();
    }
}

pub(crate) fn resume(hand: &mut Hand) {
    hand.worker().signal(Signal::SIGCONT);
}

/// Those who wait and are stopped one after the other.
pub(crate) fn stopped_waiters(scene: &Scene, count: usize, request: &str) -> Vec<Hand> {
    let mut hands: Vec<Hand> = (0..count).map(|_| scene.waiter(request)).collect();
    hands.iter_mut().for_each(stop);
    hands
}

fn slow(per_second: u64) -> RateLimit {
    RateLimit::per_second("tokens", per_second).burst(1_000_000).report(Report::Optional)
}

fn permits() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 2)));
    let held = scene.limits.try_acquire([("db", 2)]).unwrap();
    let mut heads = stopped_waiters(&scene, 1, "db=1");
    let mut second = scene.waiter("db=1");
    let mut third = scene.waiter("db=1");
    held.release().unwrap();
    second.granted();
    assert_eq!(scene.in_use("db"), 2, "the stopped one has its permit");
    second.does("release");
    let ticket = third.granted();
    resume(&mut heads[0]);
    assert!(heads[0].granted() < ticket);
    heads[0].does("release");
    third.does("release");
    scene.assert_empty();
}

fn rates(stopped: usize) {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(slow(20)));
    scene.limits.try_acquire([("tokens", 1_000_000)]).unwrap().release().unwrap();
    let mut heads = stopped_waiters(&scene, stopped, "tokens=4");
    let mut next = scene.waiter("tokens=4");
    let ticket = next.granted();
    assert_eq!(scene.waiters(), 0, "those before it have theirs");
    for head in &mut heads {
        resume(head);
        assert!(head.granted() < ticket);
    }
}

/// The heads want a rate that gives nothing yet, and a permit; the next wants the permit only.
fn rate_and_permit(stopped: usize) {
    let permits = u64::try_from(stopped).unwrap() + 1;
    let builder = LimitSet::builder().limit(slow(20)).limit(ResourceLimit::new("db", permits));
    let scene = Scene::new(Mode::Processes, builder);
    let first = scene.limits.try_acquire([("tokens", 1_000_000)]).unwrap();
    let mut heads = stopped_waiters(&scene, stopped, "tokens=4");
    // All that is left is wanted by the heads; what comes back then is enough for the next, too.
    let mut next = scene.waiter("tokens=0");
    first.release().unwrap();
    let ticket = next.granted();
    assert_eq!(scene.waiters(), 0);
    for head in &mut heads {
        resume(head);
        assert!(head.granted() < ticket);
    }
}

/// One who wants very much is ahead, and dies. Those behind had set their alarms for hours later.
fn leaving(stopped: usize) {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(slow(20)));
    let mut held = scene.limits.try_acquire([("tokens", 1_000_000)]).unwrap();
    let mut greedy = scene.waiter("tokens=1000000");
    let mut heads = stopped_waiters(&scene, stopped, "tokens=4");
    let mut next = scene.waiter("tokens=4");
    greedy.worker().kill();
    // Nothing is there at once for those behind.
    let available = scene.limits.stats().unwrap().limit("tokens").unwrap().available;
    held.adjust("tokens", i64::try_from(available).unwrap()).unwrap();
    scene.limits.reap().unwrap();
    assert!(scene.waiters() > 0);
    let ticket = next.granted();
    for head in &mut heads {
        resume(head);
        assert!(head.granted() < ticket);
    }
}

fn refund() {
    let rate = RateLimit::new("tokens", 100, 100 * HOUR).report(Report::Optional);
    let limits = [RateLimit::per_second("calls", 20).burst(100).report(Report::Optional), rate];
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limits(limits));
    scene.limits.try_acquire([("calls", 100)]).unwrap().release().unwrap();
    let mut held = scene.limits.try_acquire([("tokens", 100)]).unwrap();
    let mut heads = stopped_waiters(&scene, 2, "tokens=10 calls=10");
    let mut next = scene.waiter("tokens=10 calls=10");
    // Now only the calls are in the way, for half a second each.
    held.update("tokens", 50).unwrap();
    let ticket = next.granted();
    for head in &mut heads {
        resume(head);
        assert!(head.granted() < ticket);
    }
}

/// It was granted in time; that it looks too late does not matter.
fn late_grant() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 1)));
    let held = scene.limits.try_acquire(()).unwrap();
    let mut head = scene.hand();
    head.tell("acquire within=2000");
    scene.wait_for_waiters(1);
    stop(&mut head);
    held.release().unwrap();
    assert_eq!(scene.in_use("db"), 1);
    // Its patience ends now.
    let error = scene.limits.acquire_timeout((), Duration::from_millis(2_100)).err().unwrap();
    assert!(matches!(error, AcquireError::TimedOut(_)), "{error}");
    resume(&mut head);
    head.granted();
    head.does("release");
    scene.assert_empty();
}

/// By the time it learns that it was impossible, it no longer is.
fn impossible_for_a_moment() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 4)));
    let held = scene.limits.try_acquire([("db", 2)]).unwrap();
    let mut heads = stopped_waiters(&scene, 1, "db=4");
    for capacity in [3, 5] {
        scene.limits.reconfigure([ResourceLimit::new("db", capacity)]).unwrap();
    }
    resume(&mut heads[0]);
    scene.wait_for_waiters(1);
    held.release().unwrap();
    heads[0].granted();
}

/// Role: takes the lock of a set, rings for a taker of its work queue if it is to, and keeps the lock until told.
pub(crate) fn locker_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let engine = limits.parts().unwrap();
    let me = limits.segment().participant().unwrap();
    loop {
        let order = listen();
        let mut guard = engine.lock(me, NEVER).unwrap();
        if order == "ring" {
            engine.ring_work(&mut guard, WorkBell::Takers, Wakes::One).unwrap();
        }
        say("locked");
        listen();
        guard.unlock().unwrap();
        say("unlocked");
    }
}

struct Locker(Worker);

impl Locker {
    fn new(scene: &Scene) -> Self {
        Self(Worker::start("locker", &[&scene.name.0]))
    }

    /// Takes the lock and stops.
    fn lock(&mut self) {
        self.stop_after("lock");
    }

    fn stop_after(&mut self, order: &str) {
        self.0.tell(order);
        self.0.expect("locked");
        self.0.signal(Signal::SIGSTOP);
    }

    fn unlock(&mut self) {
        self.0.signal(Signal::SIGCONT);
        self.0.tell("unlock");
        self.0.expect("unlocked");
    }
}

fn stuck_lock() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 2)));
    let mut locker = Locker::new(&scene);
    let held = scene.limits.try_acquire(()).unwrap();
    locker.lock();
    let pid = locker.0.pid().to_string();
    let within = Duration::from_millis(50);
    let answers = [
        scene.limits.acquire_timeout((), within).err().unwrap(),
        pollster::block_on(scene.limits.acquire_async(()).timeout(within)).err().unwrap(),
    ];
    for answer in answers {
        let message = refusal(&answer);
        // There is room: it must not be called limited. It is late, because of the process that has the lock.
        assert!(message.starts_with("TimedOut") && message.contains(&pid), "{message}");
    }
    drop(held);
    locker.unlock();
    while scene.in_use("db") > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.limits.acquire([("db", 2)]).unwrap().release().unwrap();
    scene.assert_empty();
}

fn stuck_waiter(kind: &str) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1));
    let scene = Scene::with(Mode::Processes, builder, no_slices());
    let mut locker = Locker::new(&scene);
    let held = scene.limits.try_acquire(()).unwrap();
    let mut waiter = Worker::start("hand", &[&scene.name.0, kind]);
    waiter.tell("acquire within=400");
    scene.wait_for_waiters(1);
    locker.lock();
    let answer = waiter.hear();
    assert!(answer.starts_with("TimedOut"), "{answer}");
    locker.unlock();
    scene.wait_for_waiters(0);
    held.release().unwrap();
    scene.assert_empty();
    // It can wait and be granted as before.
    waiter.tell("acquire");
    assert!(waiter.hear().starts_with("granted"));
}

/// Role: waits for work, or for limits, until the set is removed.
pub(crate) fn sleeper_role(arguments: &[String]) {
    let options = Segment::options().doorbell_slice(HOUR);
    let limits = LimitSet::builder().segment(options).attach(&arguments[0]).unwrap();
    say(&match arguments[1].as_str() {
        "work" => format!("{:?}", limits.queue().unwrap().take().unwrap_err()),
        _ => format!("{:?}", limits.acquire(()).unwrap_err()),
    });
}

/// A process that rings wakes the sleepers when it unlocks. One that has rung and is stopped before that wakes none of them.
fn removal_under_a_stuck_lock() {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1)).queue(QueueOptions::new(1, 8));
    let scene = Scene::with(Mode::Processes, builder, Segment::options().doorbell_slice(HOUR));
    let mut locker = Locker::new(&scene);
    let _held = scene.limits.try_acquire(()).unwrap();
    let mut waiter = Worker::start("sleeper", &[&scene.name.0, "limits"]);
    scene.wait_for_waiters(1);
    let engine = scene.limits.parts().unwrap();
    let bell = engine.work_doorbell(WorkBell::Takers).unwrap();
    let mut taker = Worker::start("sleeper", &[&scene.name.0, "work"]);
    while bell.load(Relaxed) & 1 == 0 {
        std::thread::yield_now();
    }
    taker.wait_until_asleep();
    let before = bell.load(Relaxed);
    locker.stop_after("ring");
    assert_ne!(bell.load(Relaxed) >> 1, before >> 1, "the stopped one owes the wake");
    scene.limits.remove().unwrap();
    taker.expect("Removed");
    waiter.expect("Removed");
}
