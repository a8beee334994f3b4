//! Deaths among those who wait and hold: the others go on, after a slice at the latest.

use std::fs;
use std::time::Duration;

use limitset::{AcquireError, Acquisition, LimitSet, RateLimit, Report, ResourceLimit, Segment};

use crate::forks::interrupt_every;
use crate::hands::{Mode, Scene, refusal};
use crate::support::{Worker, listen, say};

pub(crate) const TESTS: [(&str, fn()); 8] = [
    ("a_killed_holder_lets_a_waiter_through", || holder(wait)),
    ("a_killed_holder_lets_a_future_through", || holder(wait_async)),
    ("a_killed_head_lets_the_waiter_behind_it_through", || head(wait)),
    ("a_killed_head_lets_the_future_behind_it_through", || head(wait_async)),
    ("a_killed_head_does_not_keep_those_out_who_only_try", || head(only_try)),
    ("a_waiter_notices_that_the_name_was_taken_away", || unlinked(wait)),
    ("a_future_notices_that_the_name_was_taken_away", || unlinked(wait_async)),
    ("signals_neither_end_nor_prolong_a_wait", || signals()),
];

type Wait = fn(&LimitSet, u64) -> Result<Acquisition, AcquireError>;

fn wait(limits: &LimitSet, amount: u64) -> Result<Acquisition, AcquireError> {
    limits.acquire([("db", amount)])
}

fn wait_async(limits: &LimitSet, amount: u64) -> Result<Acquisition, AcquireError> {
    pollster::block_on(limits.acquire_async([("db", amount)]))
}

/// Nobody sleeps here, so nobody but those who ask can find the dead.
fn only_try(limits: &LimitSet, amount: u64) -> Result<Acquisition, AcquireError> {
    loop {
        match limits.try_acquire([("db", amount)]) {
            Err(AcquireError::Queued { .. }) => std::thread::yield_now(),
            answer => return answer,
        }
    }
}

fn scene() -> Scene {
    let tokens = RateLimit::per_second("tokens", 10).report(Report::Optional);
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 2)).limit(tokens);
    Scene::with(Mode::Processes, builder, Segment::options())
}

fn holder(wait: Wait) {
    let scene = scene();
    let mut holder = scene.hand();
    holder.takes("db=2");
    // Killed while the other sleeps.
    let (name, mut worker) = (scene.name.0.clone(), Some(holder));
    let killer = std::thread::spawn(move || {
        let limits = LimitSet::observe(&name).unwrap();
        while limits.stats().unwrap().waiters == 0 {
            std::thread::yield_now();
        }
        worker.as_mut().unwrap().worker().kill();
    });
    wait(&scene.limits, 1).unwrap().release().unwrap();
    killer.join().unwrap();
    assert_eq!(scene.limits.stats().unwrap().reaped_permits, 2);
    scene.assert_empty();
}

/// The head wants all, and so keeps those behind it from the one that is left.
fn head(wait: Wait) {
    let scene = scene();
    let held = scene.limits.try_acquire([("db", 1)]).unwrap();
    let mut head = scene.waiter("db=2");
    head.worker().kill();
    wait(&scene.limits, 1).unwrap().release().unwrap();
    held.release().unwrap();
    scene.assert_empty();
}

fn unlinked(wait: Wait) {
    let scene = scene();
    let _held = scene.limits.try_acquire([("db", 2)]).unwrap();
    fs::remove_file(scene.name.path()).unwrap();
    let error = wait(&scene.limits, 1).err().unwrap();
    assert!(matches!(error, AcquireError::Removed), "{error}");
}

/// Role: waits twice, with a signal every millisecond.
pub(crate) fn interrupted_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    interrupt_every(Duration::from_millis(1));
    let late = limits.acquire_timeout((), Duration::from_millis(200)).err().unwrap();
    say(&refusal(&late));
    let late =
        pollster::block_on(limits.acquire_async(()).timeout(Duration::from_millis(200))).err().unwrap();
    say(&refusal(&late));
    let held = limits.acquire(()).unwrap();
    say("granted");
    listen();
    held.release().unwrap();
}

fn signals() {
    let builder = LimitSet::builder().limit(ResourceLimit::new("db", 1));
    let scene = Scene::with(Mode::Processes, builder, Segment::options());
    let held = scene.limits.try_acquire(()).unwrap();
    let mut worker = Worker::start("interrupted", &[&scene.name.0]);
    for _ in 0..2 {
        let answer = worker.hear();
        assert!(answer.starts_with("TimedOut"), "{answer}");
    }
    scene.wait_for_waiters(1);
    held.release().unwrap();
    worker.expect("granted");
}
