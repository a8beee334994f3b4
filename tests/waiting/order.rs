//! First come, first served; and nobody burns the processor while waiting.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{
    AcquireError, Algorithm, Clock, Cooldown, LimitSet, RateLimit, Report, ResourceLimit, Segment,
};

use crate::hands::{HOUR, Hand, Mode, Scene, no_slices};
use crate::support::{self, Worker, proof, say};

pub(crate) const TESTS: [(&str, fn()); 7] = [
    ("a_request_for_everything_is_granted_before_all_that_came_after_it", || everything()),
    ("grants_follow_tickets_whatever_the_amounts", || by_ticket()),
    ("a_newcomer_that_leaves_every_waiter_what_it_asked_for_is_let_in", || covered()),
    ("what_several_waiters_asked_for_is_kept_for_all_of_them", || covered_for_all()),
    ("in_a_slow_start_no_newcomer_passes_a_waiter_whatever_it_leaves", || covered_in_a_slow_start()),
    ("a_blocked_process_switches_a_handful_of_times_in_two_seconds", || {
        switches("blocked process, slices of 100 ms", Segment::options(), "slices", 60);
        switches("blocked process, slices of an hour", no_slices(), "", 5);
    }),
    ("a_blocked_future_switches_a_handful_of_times_in_two_seconds", || {
        switches("blocked future, slices of 100 ms", Segment::options(), "slices async", 60);
        switches("blocked future, slices of an hour", no_slices(), "async", 5);
    }),
];

const PERMITS: u64 = 6;

// Words that the processes share.
const HIGHEST_TICKET: usize = 0;
const IS_OVER: usize = 1;
const ROUNDS: usize = 2;

/// Takes one permit again and again, and notes the latest ticket while it holds it.
pub(crate) fn loop_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let words: &[AtomicU64] = limits.segment().words("notes").unwrap();
    say("ready");
    while words[IS_OVER].load(SeqCst) == 0 {
        let held = limits.acquire(()).unwrap();
        words[HIGHEST_TICKET].fetch_max(held.ticket(), SeqCst);
        words[ROUNDS].fetch_add(1, SeqCst);
        held.release().unwrap();
    }
}

fn everything() {
    let options = Segment::options().words("notes", 3);
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", PERMITS));
    let scene = Scene::with(Mode::Processes, builder, options);
    let words = scene.limits.segment().words("notes").unwrap();
    let mut loopers: Vec<Worker> = (0..PERMITS).map(|_| Worker::start("loop", &[&scene.name.0])).collect();
    loopers.iter_mut().for_each(|looper| looper.expect("ready"));
    let requests = support::depth(100, 2_000);
    let mut overtaken = 0;
    for _ in 0..requests {
        // Others are at it in between.
        let goal = words[ROUNDS].load(SeqCst) + PERMITS;
        while words[ROUNDS].load(SeqCst) < goal {
            std::thread::yield_now();
        }
        let all = scene.limits.acquire([("db", PERMITS)]).unwrap();
        // Whoever had a permit before has noted its ticket by now, for it has given the permit back.
        overtaken += u64::from(words[HIGHEST_TICKET].load(SeqCst) > all.ticket());
        all.release().unwrap();
    }
    words[IS_OVER].store(1, SeqCst);
    loopers.iter_mut().for_each(Worker::wait_for_end);
    let rounds = words[ROUNDS].load(SeqCst);
    proof(
        "7",
        "a request for all six permits while six processes loop on one each",
        &format!("{requests} such requests among {rounds} others, {overtaken} overtaken by a later ticket"),
    );
    assert_eq!(overtaken, 0);
    scene.assert_empty();
}

fn by_ticket() {
    let scene = Scene::new(Mode::Processes, LimitSet::builder().limit(ResourceLimit::new("db", 3)));
    let mut holder = scene.hand();
    holder.takes("db=3");
    let mut waiters: Vec<Hand> =
        ["db=1", "db=3", "db=1", "db=2", "db=3"].map(|request| scene.waiter(request)).into();
    holder.does("release");
    // The first fits; the second wants all, and those behind it wait though there is room.
    let first = waiters[0].granted();
    assert_eq!((scene.waiters(), scene.in_use("db")), (4, 1));
    waiters[0].does("release");
    let second = waiters[1].granted();
    assert_eq!((scene.waiters(), scene.in_use("db")), (3, 3));
    waiters[1].does("release");
    let (third, fourth) = (waiters[2].granted(), waiters[3].granted());
    assert_eq!((scene.waiters(), scene.in_use("db")), (1, 3));
    waiters[2].does("release");
    assert_eq!(scene.waiters(), 1);
    waiters[3].does("release");
    let fifth = waiters[4].granted();
    assert!([first, second, third, fourth, fifth].is_sorted());
    waiters[4].does("release");
    scene.assert_empty();
}

/// Somebody waits for a connection and wants two tokens. All others are free for those who come.
fn covered() {
    for algorithm in Algorithm::ALL {
        let tokens =
            RateLimit::new("tokens", 1_000, 1_000 * HOUR).algorithm(*algorithm).report(Report::Optional);
        let scene = Scene::new(
            Mode::Processes,
            LimitSet::builder().limit(tokens).limit(ResourceLimit::new("db", 1)).clock(Clock::Manual),
        );
        let mut holder = scene.hand();
        holder.takes("tokens=0 db=1");
        let mut waiter = scene.waiter("tokens=2 db=1");
        let mut newcomer = scene.hand();
        scene.limits.check([("tokens", 998), ("db", 0)]).unwrap();
        newcomer.takes("tokens=997 db=0");
        assert_eq!(newcomer.ask("try tokens=1 db=0").split(' ').next(), Some("granted"), "{algorithm}");
        // What is left is the waiter's, to the last unit.
        for error in [
            scene.limits.try_acquire([("tokens", 1), ("db", 0)]).map(drop),
            scene.limits.check([("tokens", 1), ("db", 0)]).map(drop),
        ] {
            assert!(matches!(error, Err(AcquireError::Queued { ahead: 1 })), "{algorithm}: {error:?}");
        }
        holder.does("release");
        waiter.granted();
        let left = scene.limits.stats().unwrap().limit("tokens").unwrap().available;
        assert_eq!(left, 0, "{algorithm}");
        waiter.does("release");
        scene.assert_empty();
    }
}

fn covered_for_all() {
    let builder =
        LimitSet::builder().limit(ResourceLimit::new("seats", 10)).limit(ResourceLimit::new("db", 1));
    let scene = Scene::new(Mode::Processes, builder);
    let mut holder = scene.hand();
    holder.takes("seats=0 db=1");
    let mut waiters = ["seats=2 db=1", "seats=3 db=1"].map(|request| scene.waiter(request));
    let mut newcomer = scene.hand();
    newcomer.takes("seats=5 db=0");
    let ahead = scene.limits.try_acquire([("seats", 1), ("db", 0)]).err().unwrap();
    assert!(matches!(ahead, AcquireError::Queued { ahead: 2 }), "{ahead}");
    // One that is served, and one that leaves, need nothing kept for them any more.
    holder.does("release");
    waiters[0].granted();
    assert_eq!((scene.waiters(), scene.in_use("seats")), (1, 7));
    assert!(scene.limits.try_acquire([("seats", 1), ("db", 0)]).is_err());
    waiters[1].worker().kill();
    scene.limits.reap().unwrap();
    scene.limits.try_acquire([("seats", 3), ("db", 0)]).unwrap().release().unwrap();
}

fn covered_in_a_slow_start() {
    let cooldown = Cooldown::default().jitter(0.0).slow_start(10, HOUR, HOUR);
    let builder =
        LimitSet::builder().limit(ResourceLimit::new("seats", 10)).limit(ResourceLimit::new("db", 1));
    let scene = Scene::new(Mode::Processes, builder.cooldown(cooldown).clock(Clock::Manual));
    let mut holder = scene.hand();
    holder.takes("seats=0 db=1");
    let mut waiter = scene.waiter("seats=1 db=1");
    scene.limits.pause(HOUR).unwrap();
    let newcomer = || scene.limits.try_acquire([("seats", 1), ("db", 0)]).err().unwrap();
    assert!(matches!(newcomer(), AcquireError::CoolingDown { .. }));
    scene.limits.advance(2 * HOUR).unwrap();
    // The next admission is the waiter's, and the one after it comes an hour later.
    assert!(matches!(newcomer(), AcquireError::Queued { ahead: 1 }));
    holder.does("release");
    waiter.granted();
    assert!(matches!(newcomer(), AcquireError::CoolingDown { .. }));
}

fn switches(what: &str, options: limitset::SegmentOptions, kind: &str, most: u64) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1));
    let scene = Scene::with(Mode::Processes, builder, options);
    let held = scene.limits.try_acquire(()).unwrap();
    let mut blocked = Worker::start("hand", &[&scene.name.0, kind]);
    blocked.tell("acquire");
    scene.wait_for_waiters(1);
    blocked.wait_until_asleep();
    let before = switched(&blocked);
    std::thread::sleep(Duration::from_secs(2));
    let count = switched(&blocked) - before;
    proof("7", what, &format!("{count} context switches of all its threads in two seconds"));
    assert!(count <= most, "{count} switches");
    held.release().unwrap();
    assert!(blocked.hear().starts_with("granted"));
}

/// How often the threads of a process have gone to sleep of their own will.
fn switched(worker: &Worker) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", worker.pid())).unwrap();
    let counts = threads.map(|thread| {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    counts.sum()
}
