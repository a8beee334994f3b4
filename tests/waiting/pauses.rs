//! Waiting through a pause: everybody sleeps until it is over and is then granted in order, by the clock alone. Slices
//! are an hour long here, so nothing depends on one.

use std::time::Duration;

use limitset::{AcquireError, Cooldown, LimitSet, LimitSetBuilder, ResourceLimit};

use crate::hands::{HOUR, Hand, Mode, Scene};
use crate::stopped::{resume, stop, stopped_waiters};

const MOMENT: Duration = Duration::from_millis(20);

pub(crate) const TESTS: [(&str, fn()); 4] = [
    ("a_stopped_waiter_does_not_prolong_a_pause_for_others", || stopped_ones_delay_nobody()),
    ("in_a_slow_start_a_newcomer_with_another_wish_does_not_pass_those_who_wait", || newcomers_wait()),
    ("in_a_slow_start_a_release_does_not_let_a_later_waiter_pass_an_earlier_one", || {
        releases_keep_the_order()
    }),
    ("a_stopped_waiter_does_not_stop_the_slow_start", || stopped_ones_do_not_stop_the_slow_start()),
];

/// Without a slow start.
fn permits(capacity: u64) -> LimitSetBuilder {
    slow(capacity, 0, Duration::ZERO)
}

fn slow(capacity: u64, admissions: u32, gap: Duration) -> LimitSetBuilder {
    let cooldown = Cooldown::default().jitter(0.0).slow_start(admissions, gap, gap);
    let limits = [ResourceLimit::new("db", capacity), ResourceLimit::new("other", capacity)];
    LimitSet::builder().limits(limits).cooldown(cooldown)
}

fn only_db(amount: u64) -> String {
    format!("db={amount} other=0")
}

/// In the order in which they came.
fn all_granted(hands: &mut [Hand]) {
    let tickets: Vec<_> = hands.iter_mut().map(Hand::granted).collect();
    assert!(tickets.is_sorted(), "{tickets:?}");
}

pub(crate) fn its_end_wakes_everybody(mode: Mode) {
    let scene = Scene::new(mode, permits(3));
    scene.limits.pause(MOMENT).unwrap();
    let mut hands: Vec<_> = (0..3).map(|_| scene.hand()).collect();
    for hand in &mut hands {
        hand.tell(&format!("acquire {}", only_db(1)));
    }
    for hand in &mut hands {
        hand.granted();
    }
    assert!(scene.limits.stats().unwrap().cooldown.remaining.is_none(), "granted in a pause");
    scene.assert_waiting(0);
}

/// The permit comes back while nobody is admitted.
pub(crate) fn what_came_back_meanwhile_is_granted_at_its_end(mode: Mode) {
    let scene = Scene::new(mode, permits(1));
    let held = scene.limits.try_acquire([("db", 1), ("other", 0)]).unwrap();
    // It waits for the permit, not for the end of a pause.
    let mut waiter = scene.waiter(&only_db(1));
    scene.limits.pause(MOMENT).unwrap();
    held.release().unwrap();
    waiter.granted();
    assert!(scene.limits.stats().unwrap().cooldown.remaining.is_none(), "granted in a pause");
}

pub(crate) fn a_longer_one_is_slept_through_too(mode: Mode) {
    let scene = Scene::new(mode, permits(2));
    let late = scene.limits.try_acquire([("db", 1), ("other", 0)]).unwrap();
    scene.limits.pause(MOMENT).unwrap();
    let mut waiter = scene.waiter(&only_db(1));
    late.rate_limited(Some(3 * MOMENT)).unwrap();
    waiter.granted();
    assert!(scene.limits.stats().unwrap().cooldown.remaining.is_none(), "granted in a pause");
}

pub(crate) fn resuming_wakes_everybody(mode: Mode) {
    let scene = Scene::new(mode, permits(3));
    scene.limits.pause(HOUR).unwrap();
    let mut hands: Vec<_> = (0..3).map(|_| scene.waiter(&only_db(1))).collect();
    assert!(scene.limits.resume().unwrap());
    all_granted(&mut hands);
}

pub(crate) fn the_slow_start_lets_everybody_in(mode: Mode) {
    let scene = Scene::new(mode, slow(5, 3, Duration::from_millis(5)));
    scene.limits.pause(HOUR).unwrap();
    let mut hands: Vec<_> = (0..5).map(|_| scene.waiter(&only_db(1))).collect();
    assert!(scene.limits.resume().unwrap());
    all_granted(&mut hands);
    assert_eq!(scene.limits.stats().unwrap().cooldown.slow_admissions, 0);
}

pub(crate) fn patience_ends_in_it(mode: Mode) {
    let scene = Scene::new(mode, permits(1));
    scene.limits.pause(HOUR).unwrap();
    let mut hand = scene.hand();
    hand.tell(&format!("acquire {} within=10", only_db(1)));
    assert!(hand.refused("TimedOut").contains("cooling down"));
    scene.assert_waiting(0);
}

fn stopped_ones_delay_nobody() {
    let scene = Scene::new(Mode::Processes, permits(3));
    scene.limits.pause(HOUR).unwrap();
    let mut stopped = stopped_waiters(&scene, 2, &only_db(1));
    let mut waiter = scene.waiter(&only_db(1));
    assert!(scene.limits.resume().unwrap());
    scene.limits.pause(MOMENT).unwrap();
    waiter.granted();
    stopped.iter_mut().for_each(resume);
    all_granted(&mut stopped);
}

fn newcomers_wait() {
    let scene = Scene::new(Mode::Processes, slow(1, 9, HOUR));
    let held = scene.limits.try_acquire([("db", 1), ("other", 0)]).unwrap();
    let mut stopped = stopped_waiters(&scene, 1, &only_db(1));
    scene.limits.pause(MOMENT).unwrap();
    held.release().unwrap();
    // Whoever asks first when the pause is over finds that the one admission of the next hour is not for it.
    let newcomer = loop {
        match scene.limits.try_acquire([("other", 1), ("db", 0)]) {
            Err(AcquireError::CoolingDown { remaining, .. }) if remaining <= MOMENT => {
                std::thread::yield_now()
            }
            answer => break answer,
        }
    };
    assert!(matches!(newcomer, Err(AcquireError::CoolingDown { .. })), "{newcomer:?}");
    scene.assert_waiting(0);
    resume(&mut stopped[0]);
    stopped[0].granted();
}

fn stopped_ones_do_not_stop_the_slow_start() {
    let scene = Scene::new(Mode::Processes, slow(4, 9, Duration::from_millis(5)));
    scene.limits.pause(2 * MOMENT).unwrap();
    let mut first = scene.waiter(&only_db(1));
    let mut second = scene.waiter(&only_db(1));
    stop(&mut first);
    stop(&mut second);
    let mut third = scene.waiter(&only_db(1));
    third.granted();
    for hand in [&mut first, &mut second] {
        resume(hand);
        hand.granted();
    }
}

/// What comes back is for the later one, but the admission is the earlier one's.
fn releases_keep_the_order() {
    let scene = Scene::new(Mode::Processes, slow(1, 9, HOUR));
    let held = scene.limits.try_acquire([("db", 1), ("other", 0)]).unwrap();
    scene.limits.pause(MOMENT).unwrap();
    let mut first = scene.waiter("db=0 other=1");
    stop(&mut first);
    let mut second = scene.waiter(&only_db(1));
    stop(&mut second);
    while scene.limits.stats().unwrap().cooldown.remaining.is_some() {
        std::thread::yield_now();
    }
    held.release().unwrap();
    scene.assert_waiting(1);
    assert_eq!((scene.in_use("db"), scene.in_use("other")), (0, 1), "granted to the first");
    resume(&mut first);
    first.granted();
    assert!(scene.limits.resume().unwrap());
    resume(&mut second);
    second.granted();
}
