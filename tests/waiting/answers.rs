//! What those are told who have to wait, or would have to.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::{AcquireError, CallLimit, Clock, LimitSet, Order, ResourceLimit};

use crate::hands::{Mode, Scene, no_slices};
use crate::support::{TempName, Worker};

pub(crate) const TESTS: [(&str, fn()); 7] = [
    ("a_message_names_the_process_that_holds_what_was_waited_for", || held_elsewhere()),
    ("this_process_is_named_as_such_if_it_has_opened_the_set_twice", || held_here()),
    ("a_lock_that_others_only_pass_through_is_not_called_unavailable", || hurried()),
    ("a_queue_full_of_the_dead_has_room_again", || full_of_the_dead()),
    ("a_queue_whose_wishes_add_up_to_two_to_the_64_is_a_queue", || round_sum()),
    ("who_waits_as_long_as_a_coarse_clock_says_has_waited_long_enough", || coarse_retry()),
    ("a_wait_by_a_coarse_clock_is_no_row_of_looks_in_vain", || coarse_looks()),
];

fn ahead(answer: Result<impl Sized, AcquireError>) -> u64 {
    match answer {
        Err(AcquireError::Queued { ahead }) => ahead,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("overtaken"),
    }
}

pub(crate) fn queued(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(ResourceLimit::new("db", 3)));
    let mut holder = scene.hand();
    holder.takes("db=2");
    let mut waiters = Vec::new();
    for count in 1..4 {
        waiters.push(scene.waiter("db=2"));
        // One is free, and belongs to those who came first.
        assert_eq!(ahead(scene.limits.try_acquire([("db", 1)])), count);
        assert_eq!(ahead(scene.limits.check([("db", 1)])), count);
        assert_eq!(ahead(scene.limits.try_acquire([("db", 3)])), count);
    }
    let error = scene.limits.try_acquire([("db", 1)]).err().unwrap();
    assert_eq!(error.to_string(), "3 others wait for the same limits: wait too, or try again later");
    assert_eq!(scene.limits.stats().unwrap().limit("db").unwrap().waiting, 6);
    holder.does("release");
    for waiter in &mut waiters {
        waiter.granted();
        waiter.does("release");
    }
    scene.limits.try_acquire([("db", 3)]).unwrap().release().unwrap();
    scene.assert_empty();
}

pub(crate) fn other_limits_pass(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("a", 1)).limit(ResourceLimit::new("b", 2));
    let scene = Scene::new(mode, builder.limit(ResourceLimit::new("c", 2)));
    let mut holder = scene.hand();
    holder.takes("a=1 b=0 c=0");
    let mut first = scene.waiter("a=1 b=1 c=0");
    // What the first wants is not theirs, the rest is.
    let free = [("a", 0), ("b", 0), ("c", 1)];
    scene.limits.check(free).unwrap();
    scene.limits.try_acquire(free).unwrap().release().unwrap();
    scene.hand().takes("a=0 b=0 c=2");
    assert_eq!(ahead(scene.limits.try_acquire([("a", 0), ("b", 2), ("c", 0)])), 1);
    holder.does("release");
    first.granted();
}

pub(crate) fn any_order_passes(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 3)).order(Order::Any);
    let scene = Scene::new(mode, builder);
    let mut holder = scene.hand();
    holder.takes("db=2");
    let mut large = scene.waiter("db=3");
    scene.limits.check([("db", 1)]).unwrap();
    scene.limits.try_acquire([("db", 1)]).unwrap().release().unwrap();
    let mut other = scene.waiter("db=2");
    holder.does("update db 1");
    other.granted();
    assert_eq!(scene.waiters(), 1);
    other.does("release");
    assert_eq!(scene.waiters(), 1);
    holder.does("release");
    large.granted();
}

pub(crate) fn full(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1));
    let scene = Scene::with(mode, builder, no_slices().waiters(2));
    let mut holder = scene.hand();
    holder.takes("db=1");
    let mut waiters = [scene.waiter("db=1"), scene.waiter("db=1")];
    let mut third = scene.hand();
    third.tell("acquire db=1");
    assert_eq!(
        third.refused("QueueFull"),
        "all 2 places in the queue are taken: try again later, or create the set with more waiters"
    );
    assert_eq!(ahead(scene.limits.try_acquire(())), 2);
    holder.does("release");
    waiters[0].granted();
    // There is a place again, and only one.
    third.tell("acquire db=1");
    scene.wait_for_waiters(2);
    holder.tell("acquire db=1");
    holder.refused("QueueFull");
    waiters[0].does("release");
    waiters[1].granted();
    waiters[1].does("release");
    third.granted();
    third.does("release");
    scene.assert_empty();
}

/// Many who have no patience at all: the limit may be late, the lock is only held for a moment.
fn hurried() {
    let limits = LimitSet::builder().limit(ResourceLimit::new("db", 2)).in_memory().unwrap();
    let unavailable = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for count in 0..6 {
            let (limits, unavailable) = (&limits, &unavailable);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let patience = Duration::from_micros(count % 3);
                    match limits.acquire_timeout((), patience) {
                        Ok(held) => held.release().unwrap(),
                        Err(AcquireError::TimedOut(_)) => {}
                        Err(AcquireError::Unavailable(_)) => drop(unavailable.fetch_add(1, Relaxed)),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    // A holder that the machine does not let run for very long is as good as stopped.
    let unavailable = unavailable.into_inner();
    assert!(unavailable <= 12, "{unavailable} of 12000");
    assert_eq!(limits.stats().unwrap().waiters, 0);
}

fn full_of_the_dead() {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1));
    let options = limitset::Segment::options().waiters(2);
    let scene = Scene::with(Mode::Processes, builder, options);
    let held = scene.limits.try_acquire(()).unwrap();
    let mut waiters = [scene.waiter(""), scene.waiter("")];
    waiters.iter_mut().for_each(|waiter| waiter.worker().kill());
    let timed_out = scene.limits.acquire_timeout((), Duration::from_millis(300));
    // Full, if nobody was due to look for the dead yet; never for long.
    let mut answer = timed_out.err().unwrap();
    while matches!(answer, AcquireError::QueueFull { .. }) {
        std::thread::sleep(Duration::from_millis(10));
        answer = scene.limits.acquire_timeout((), Duration::from_millis(1)).err().unwrap();
    }
    assert!(matches!(answer, AcquireError::TimedOut(_)), "{answer}");
    held.release().unwrap();
    scene.assert_empty();
}

pub(crate) fn more(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("a", 3)).limit(ResourceLimit::new("b", 2));
    let scene = Scene::new(mode, builder);
    let mut holder = scene.hand();
    holder.takes("a=2 b=0");
    let mut waiter = scene.waiter("a=2 b=0");
    let answer = holder.ask("more a=1");
    assert!(answer.starts_with("Queued 1 others"), "{answer}");
    holder.does("more b=2");
    assert_eq!(scene.in_use("b"), 2);
    assert_eq!(holder.ask("more b=3").split(' ').next(), Some("Never"));
    holder.does("release");
    waiter.granted();
    assert_eq!((scene.in_use("a"), scene.in_use("b")), (2, 0));
    waiter.does("more a=1");
    waiter.does("release");
    scene.assert_empty();
}

pub(crate) fn never_behind_others(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(ResourceLimit::new("db", 2)));
    let mut holder = scene.hand();
    holder.takes("db=2");
    let _waiter = scene.waiter("db=1");
    let mut hand = scene.hand();
    hand.tell("try db=3");
    hand.refused("Never");
    hand.tell("acquire db=3");
    hand.refused("Never");
    let checked = scene.limits.check([("db", 3)]).err().unwrap();
    assert!(matches!(checked, AcquireError::Never { .. }), "{checked}");
}

/// Acquires inside of an acquisition, with a permit of which there is one.
pub(crate) fn nested(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1)).limit(CallLimit::per_second(1_000));
    let scene = Scene::new(mode, builder);
    let mut hand = scene.hand();
    hand.takes("");
    hand.tell("acquire within=40");
    let message = hand.refused("TimedOut");
    let pid = match mode {
        Mode::Processes => u32::try_from(hand.worker().pid().as_raw()).unwrap(),
        _ => std::process::id(),
    };
    let held = format!(": 1 of \"db\" wanted, 0 available; held by this process ({pid}): 1 of \"db\"");
    assert!(message.starts_with("nothing granted in "), "{message}");
    assert!(message.ends_with(&held), "{message}");
    hand.does("release");
    scene.assert_empty();
}

fn held_elsewhere() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 5)));
    let (mut first, mut second) = (scene.hand(), scene.hand());
    first.takes("db=3");
    second.takes("db=1");
    let mine = scene.limits.try_acquire([("db", 1)]).unwrap();
    let _ahead = scene.waiter("db=2");
    let error = scene.limits.acquire_timeout([("db", 4)], Duration::from_millis(40)).err().unwrap();
    let message = error.to_string();
    let AcquireError::TimedOut(timed_out) = error else { panic!("{message}") };
    let pids = |worker: &mut Worker| u64::try_from(worker.pid().as_raw()).unwrap();
    let (pid_1, pid_2) = (pids(first.worker()), pids(second.worker()));
    let mut found: Vec<_> =
        timed_out.holders.iter().map(|it| (it.pid, it.amount, it.is_this_process)).collect();
    let mut expected = [(pid_1, 3, false), (pid_2, 1, false), (u64::from(std::process::id()), 1, true)];
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(timed_out.holders.iter().all(|it| it.key == "db" && !it.command.is_empty()));
    assert_eq!((timed_out.ahead, timed_out.bottleneck().unwrap().key), (1, "db"));
    assert!(timed_out.waited >= Duration::from_millis(40));
    assert!(
        message.contains(": 4 of \"db\" wanted, 0 available, 1 others came first; held by "),
        "{message}"
    );
    assert!(message.contains(&format!("process {pid_1} (")), "{message}");
    assert!(message.contains("): 3 of \"db\""), "{message}");
    mine.release().unwrap();
}

fn round_sum() {
    let most = 1 << 62;
    let limits = LimitSet::builder().limit(ResourceLimit::new("bytes", most));
    let limits = limits.segment(no_slices()).in_memory().unwrap();
    let held = limits.acquire([("bytes", most)]).unwrap();
    std::thread::scope(|scope| {
        for queued in 1..=4 {
            scope.spawn(|| limits.acquire([("bytes", most)]).unwrap().release().unwrap());
            while limits.stats().unwrap().waiters < queued {
                std::thread::yield_now();
            }
        }
        assert_eq!(ahead(limits.try_acquire([("bytes", 1)])), 4);
        held.release().unwrap();
    });
    assert_eq!(limits.stats().unwrap().limit("bytes").unwrap().available, most);
}

fn coarse(calls_per_second: u64) -> LimitSet {
    let calls = CallLimit::per_second(calls_per_second).burst(1);
    LimitSet::builder().limit(calls).clock(Clock::Coarse).in_memory().unwrap()
}

fn coarse_retry() {
    let limits = coarse(700);
    let (mut waits, mut in_vain) = (0, 0);
    while waits < 200 {
        let Err(refusal) = limits.try_acquire(()) else { continue };
        let (wait, since) = (refusal.retry_after().unwrap(), std::time::Instant::now());
        while since.elapsed() < wait {}
        waits += 1;
        in_vain += u32::from(limits.try_acquire(()).is_err());
    }
    // The kernel may be late with a step, but that is the exception.
    assert!(in_vain < 40, "{in_vain} of {waits} waits were too short");
}

fn coarse_looks() {
    let limits = coarse(20);
    let sleeps = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = sleeps();
    for _ in 0..21 {
        limits.acquire(()).unwrap().release().unwrap();
    }
    let slept = sleeps() - before;
    assert!(slept < 100, "20 waits slept {slept} times");
}

fn held_here() {
    let name = TempName::new();
    let limits = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(&name).unwrap();
    let again = LimitSet::attach(&name).unwrap();
    let _held = again.try_acquire(()).unwrap();
    let error = limits.acquire_timeout((), Duration::from_millis(5)).err().unwrap();
    assert!(error.to_string().contains("; held by this process ("), "{error}");
}
