//! How many sleeping waiters are woken when a lock holder dies or the set is changed: those that are granted something, and
//! one of a process whose alarm has moved. All others sleep on.
//!
//! Slices are an hour long for the waiters. A thread that was woken has gone to sleep again by its own will, or is still
//! at it, when the cause is over: the kernel counts that per thread.

use std::collections::BTreeMap;
use std::fs;

use limitset::{Cooldown, LimitSet, LimitSetBuilder, RateLimit, Report, ResourceLimit, Segment};

use crate::hands::{HOUR, Mode, Scene, no_slices};
use crate::support::{Worker, listen, proof};

pub(crate) const TESTS: [(&str, fn()); 6] = [
    ("the_death_of_a_lock_holder_wakes_no_waiter_that_it_owes_nothing", || death()),
    ("more_permits_wake_as_many_waiters_as_get_one", || more_permits()),
    ("a_reconfiguration_that_helps_nobody_wakes_nobody", || nothing_gained()),
    ("a_faster_rate_wakes_one_waiter_of_a_process", || faster_rate()),
    ("a_reset_wakes_as_many_waiters_as_get_something_and_one_more", || reset()),
    ("resuming_wakes_as_many_waiters_as_get_something_and_one_more", || resume()),
];

/// So many wait, in threads of one process.
const WAITERS: u64 = 200;
/// More than these of them are woken by mistake if the rule is broken.
const STRAY: usize = 2;

/// Role: so many threads that wait for one unit of a limit, and keep what they get.
pub(crate) fn crowd_role(arguments: &[String]) {
    let limits = LimitSet::builder().segment(no_slices()).attach(&arguments[0]).unwrap();
    for _ in 0..WAITERS {
        let limits = limits.clone();
        let keys = arguments[1].clone();
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || {
                let _held = limits.acquire(&one_of(&keys)[..]).unwrap();
                loop {
                    std::thread::park();
                }
            })
            .unwrap();
    }
    listen();
}

/// One unit of the first of these limits, and nothing of the others.
fn one_of(keys: &str) -> Vec<(&str, u64)> {
    keys.split(' ').enumerate().map(|(index, key)| (key, u64::from(index == 0))).collect()
}

struct Crowd {
    scene: Scene,
    worker: Worker,
}

impl Crowd {
    /// A set, and a process in which many threads wait for one unit of the first of these limits.
    fn new(builder: LimitSetBuilder, keys: &str, prepare: impl FnOnce(&LimitSet)) -> Self {
        let options = Segment::options().doorbell_slice(HOUR);
        let scene = Scene::with(Mode::Processes, builder, options);
        prepare(&scene.limits);
        let worker = Worker::start("crowd", &[&scene.name.0, keys]);
        scene.wait_for_waiters(WAITERS);
        Self { scene, worker }
    }

    /// How often each thread has gone to sleep by its own will, once all of them sleep.
    fn asleep(&self) -> BTreeMap<u64, u64> {
        'again: loop {
            let mut switches = BTreeMap::new();
            for thread in fs::read_dir(format!("/proc/{}/task", self.worker.pid())).unwrap() {
                let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
                let field = |name: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                    line.split_whitespace().next().unwrap().to_owned()
                };
                if field("State:") != "S" {
                    std::thread::yield_now();
                    continue 'again;
                }
                let count = field("voluntary_ctxt_switches:").parse().unwrap();
                switches.insert(field("Pid:").parse().unwrap(), count);
            }
            return switches;
        }
    }

    /// How many threads `cause` wakes.
    fn woken_by(&self, what: &str, cause: impl FnOnce(&LimitSet)) -> usize {
        let before = self.asleep();
        cause(&self.scene.limits);
        let after = self.asleep();
        let woken = after.iter().filter(|(thread, count)| before.get(thread) != Some(count)).count();
        proof("3, 7", what, &format!("{woken} of {WAITERS} sleeping waiters woken"));
        woken
    }
}

fn one_permit() -> LimitSetBuilder {
    LimitSet::builder().limit(ResourceLimit::new("db", 1))
}

/// The permit stays with this process.
fn hold(limits: &LimitSet, keys: &str) {
    std::mem::forget(limits.try_acquire(&one_of(keys)[..]).unwrap());
}

fn death() {
    let crowd = Crowd::new(one_permit(), "db", |limits| hold(limits, "db"));
    let mut locker = Worker::start("locker", &[&crowd.scene.name.0]);
    locker.tell("lock");
    locker.expect("locked");
    let woken = crowd.woken_by("the holder of the lock is killed", |limits| {
        locker.kill();
        let _ = limits.check(());
        assert_eq!(limits.stats().unwrap().steals, 1);
    });
    assert!(woken <= STRAY, "{woken} were woken for nothing");
}

fn more_permits() {
    let crowd = Crowd::new(one_permit(), "db", |limits| hold(limits, "db"));
    let woken = crowd.woken_by("reconfigure gives three permits more", |limits| {
        limits.reconfigure([ResourceLimit::new("db", 4)]).unwrap();
    });
    assert!((3..=3 + STRAY).contains(&woken), "{woken} were woken for three permits");
    assert_eq!(crowd.scene.waiters(), WAITERS - 3);
}

fn nothing_gained() {
    let builder = one_permit().limit(RateLimit::per_second("tokens", 10).report(Report::Optional));
    let crowd = Crowd::new(builder, "db tokens", |limits| hold(limits, "db tokens"));
    let woken = crowd.woken_by("reconfigure changes another limit", |limits| {
        limits.reconfigure([RateLimit::per_second("tokens", 20).report(Report::Optional)]).unwrap();
    });
    assert!(woken <= STRAY, "{woken} were woken for nothing");
}

/// Ten units, and then none within any test.
fn tokens() -> RateLimit {
    RateLimit::new("tokens", 10, 1_000 * HOUR).report(Report::Optional)
}

fn use_up(limits: &LimitSet) {
    limits.try_acquire([("tokens", 10)]).unwrap().release().unwrap();
}

fn faster_rate() {
    let crowd = Crowd::new(LimitSet::builder().limit(tokens()), "tokens", use_up);
    let woken = crowd.woken_by("reconfigure makes a rate faster, though not fast", |limits| {
        limits.reconfigure([RateLimit::new("tokens", 10, 900 * HOUR).report(Report::Optional)]).unwrap();
    });
    assert!((1..=1 + STRAY).contains(&woken), "{woken} were woken to set one alarm");
}

fn reset() {
    let crowd = Crowd::new(LimitSet::builder().limit(tokens()), "tokens", use_up);
    let woken = crowd.woken_by("reset makes room for ten", |limits| limits.reset().unwrap());
    assert!((10..=11 + STRAY).contains(&woken), "{woken} were woken for ten tokens");
    assert_eq!(crowd.scene.waiters(), WAITERS - 10);
}

fn resume() {
    let cooldown = Cooldown::default().slow_start(5, HOUR, HOUR);
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 10)).cooldown(cooldown);
    let crowd = Crowd::new(builder, "db", |limits| {
        limits.pause(100 * HOUR).unwrap();
    });
    let woken = crowd.woken_by("a pause is ended by hand, one admission an hour", |limits| {
        limits.resume().unwrap();
    });
    assert!((1..=2 + STRAY).contains(&woken), "{woken} were woken for one admission");
    assert_eq!(crowd.scene.waiters(), WAITERS - 1);
    // The hour is over for the next one, whose alarm was passed on to it.
    let woken = crowd.woken_by("… and the gap after the first is ended by hand", |limits| {
        limits.resume().unwrap();
    });
    assert!((1..=2 + STRAY).contains(&woken), "{woken} were woken for one admission");
    assert_eq!(crowd.scene.waiters(), WAITERS - 2);
}
