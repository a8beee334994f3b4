//! No result depends on a slice: they are an hour long here, and every wake still happens.

use std::collections::BTreeSet;
use std::time::Duration;

use limitset::{Algorithm, Clock, LimitSet, LimitSetBuilder, Order, RateLimit, Report, ResourceLimit};

use crate::hands::{HOUR, Hand, Mode, Scene};

fn permits(key: &str, capacity: u64) -> LimitSetBuilder {
    LimitSet::builder().limit(ResourceLimit::new(key, capacity))
}

/// A rate that gives ten units, and then none within any test.
fn tokens() -> RateLimit {
    RateLimit::new("tokens", 10, 100 * HOUR).report(Report::Optional)
}

/// Somebody holds, somebody waits; `order` lets go.
fn wakes(mode: Mode, builder: LimitSetBuilder, request: &str, order: &str) {
    let scene = Scene::new(mode, builder);
    let mut first = scene.hand();
    let ticket = first.takes(request);
    let mut second = scene.waiter(request);
    first.does(order);
    assert_eq!(scene.waiters(), 0, "granted before the other knows");
    assert!(second.granted() > ticket);
    second.does("release");
    assert_eq!(scene.waiters(), 0);
}

pub(crate) fn by_release(mode: Mode) {
    wakes(mode, permits("db", 1), "db=1", "release");
}

pub(crate) fn by_drop(mode: Mode) {
    wakes(mode, permits("db", 3), "db=2", "drop");
}

pub(crate) fn by_cancel(mode: Mode) {
    wakes(mode, LimitSet::builder().limit(tokens()), "tokens=10", "cancel");
}

pub(crate) fn by_update(mode: Mode) {
    wakes(mode, LimitSet::builder().limit(tokens()), "tokens=6", "update tokens 4");
}

pub(crate) fn by_settle(mode: Mode) {
    wakes(mode, LimitSet::builder().limit(tokens()), "tokens=6", "settle tokens 0");
}

pub(crate) fn by_adjust(mode: Mode) {
    wakes(
        mode,
        LimitSet::builder().limit(tokens().algorithm(Algorithm::Gcra)),
        "tokens=6",
        "adjust tokens -2",
    );
}

pub(crate) fn by_early_return(mode: Mode) {
    wakes(mode, permits("db", 6), "db=4", "update db 1");
}

pub(crate) fn by_panic(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(tokens()).limit(ResourceLimit::new("db", 1)));
    // Two that wait; the first gets its turn, panics, and gives everything back, the tokens too.
    let mut holder = scene.hand();
    holder.takes("tokens=1");
    let mut first = scene.hand();
    first.tell("panic tokens=9");
    scene.wait_for_waiters(1);
    let mut second = scene.waiter("tokens=9");
    holder.does("release");
    assert_eq!(first.hear(), "done");
    second.granted();
}

pub(crate) fn by_more_capacity(mode: Mode) {
    let scene = Scene::new(mode, permits("db", 1));
    let mut holder = scene.hand();
    holder.takes("db=1");
    let mut waiters = [scene.waiter("db=1"), scene.waiter("db=1"), scene.waiter("db=1")];
    scene.limits.reconfigure([ResourceLimit::new("db", 3)]).unwrap();
    assert_eq!(scene.waiters(), 1);
    assert!(waiters[0].granted() < waiters[1].granted());
    holder.does("release");
    waiters[2].granted();
}

pub(crate) fn by_a_faster_rate(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(tokens()));
    scene.hand().takes("tokens=10");
    let mut waiter = scene.waiter("tokens=10");
    // Its alarm was set for hours from now.
    scene.limits.reconfigure([RateLimit::per_second("tokens", 1_000).report(Report::Optional)]).unwrap();
    waiter.granted();
}

pub(crate) fn when_impossible(mode: Mode) {
    let scene = Scene::new(mode, permits("db", 4));
    let mut holder = scene.hand();
    holder.takes("db=2");
    let mut large = scene.waiter("db=4");
    let mut small = scene.waiter("db=1");
    scene.limits.reconfigure([ResourceLimit::new("db", 3)]).unwrap();
    let message = large.refused("Never");
    assert_eq!(message, "4 of \"db\" can never be had: at most 3 at once; ask for less");
    small.granted();
    small.does("release");
    holder.does("release");
    scene.assert_empty();
}

pub(crate) fn by_reset(mode: Mode) {
    let builder = LimitSet::builder().limit(tokens().algorithm(Algorithm::FixedWindow));
    let scene = Scene::new(mode, builder.clock(Clock::Manual));
    scene.hand().takes("tokens=10");
    let mut waiters = [scene.waiter("tokens=6"), scene.waiter("tokens=6")];
    scene.limits.reset().unwrap();
    assert_eq!(scene.waiters(), 1);
    waiters[0].granted();
    scene.limits.reset().unwrap();
    waiters[1].granted();
}

pub(crate) fn by_a_manual_clock(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(tokens()).clock(Clock::Manual));
    scene.hand().takes("tokens=10");
    let mut waiter = scene.waiter("tokens=1");
    scene.limits.advance(10 * HOUR - Duration::from_nanos(1)).unwrap();
    assert_eq!(scene.waiters(), 1);
    scene.limits.advance(Duration::from_nanos(1)).unwrap();
    assert_eq!(scene.waiters(), 0);
    waiter.granted();
}

pub(crate) fn by_removal(mode: Mode) {
    let scene = Scene::new(mode, LimitSet::builder().limit(tokens()).limit(ResourceLimit::new("db", 1)));
    let mut holder = scene.hand();
    holder.takes("tokens=10");
    let mut waiters = [scene.waiter("tokens=10"), scene.waiter("tokens=0"), scene.waiter("tokens=1 db=0")];
    scene.limits.remove().unwrap();
    for waiter in &mut waiters {
        assert_eq!(waiter.refused("Removed"), "the set was removed: open it again");
    }
}

pub(crate) fn by_the_end_of_patience(mode: Mode) {
    let scene = Scene::new(mode, permits("db", 1));
    let mut holder = scene.hand();
    holder.takes("db=1");
    let mut waiter = scene.hand();
    waiter.tell("acquire db=1 within=30");
    waiter.refused("TimedOut");
    assert_eq!(scene.waiters(), 0);
    holder.does("release");
    scene.assert_empty();
}

pub(crate) fn with_extreme_patience(mode: Mode) {
    let scene = Scene::new(mode, permits("db", 1));
    let mut holder = scene.hand();
    holder.takes("db=1 within=0");
    let mut waiter = scene.hand();
    waiter.tell("acquire db=1 within=0");
    waiter.refused("TimedOut");
    waiter.tell(&format!("acquire db=1 within={}", u64::MAX));
    scene.wait_for_waiters(1);
    holder.does("release");
    waiter.granted();
}

pub(crate) fn at_the_computed_instant(mode: Mode) {
    for algorithm in Algorithm::ALL {
        let rate = RateLimit::new("tokens", 5, Duration::from_millis(100));
        let rate = rate.algorithm(*algorithm).report(Report::Optional);
        let scene = Scene::new(mode, LimitSet::builder().limit(rate));
        let mut hand = scene.hand();
        let tickets: Vec<u64> = (0..4).map(|_| hand.takes("tokens=5")).collect();
        assert!(tickets.is_sorted(), "{algorithm}: {tickets:?}");
        scene.assert_empty();
    }
}

pub(crate) fn at_the_computed_instant_of_a_coarse_clock(mode: Mode) {
    let rate = RateLimit::new("tokens", 5, Duration::from_millis(60)).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(rate).clock(Clock::Coarse));
    let mut hands = [scene.hand(), scene.hand()];
    for _ in 0..5 {
        hands.iter_mut().for_each(|hand| hand.tell("acquire tokens=5"));
        let tickets = hands.iter_mut().map(Hand::granted);
        assert_eq!(tickets.collect::<BTreeSet<_>>().len(), 2);
    }
    scene.assert_empty();
}

pub(crate) fn when_one_ahead_gives_up(mode: Mode) {
    let scene = Scene::new(mode, permits("db", 2));
    let mut holder = scene.hand();
    holder.takes("db=1");
    let mut head = scene.hand();
    head.tell("acquire db=2 within=300");
    scene.wait_for_waiters(1);
    // There is one left, and it is the head's turn.
    let mut second = scene.waiter("db=1");
    head.refused("TimedOut");
    second.granted();
    assert_eq!(scene.in_use("db"), 2);
}

/// One who is served lets those behind go on who wanted something else that it wanted too.
pub(crate) fn when_one_ahead_is_served(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("a", 1)).limit(ResourceLimit::new("b", 3));
    let scene = Scene::new(mode, builder.limit(ResourceLimit::new("c", 3)));
    let (mut holder, mut other) = (scene.hand(), scene.hand());
    holder.takes("a=1 b=0 c=0");
    // While they join, not enough is there for them and for those before them.
    other.takes("a=0 b=1 c=2");
    let mut first = scene.waiter("a=1 b=1 c=0");
    let mut second = scene.waiter("a=0 b=2 c=1");
    let mut third = scene.waiter("a=0 b=0 c=1");
    other.does("release");
    assert_eq!(scene.waiters(), 3, "each stands behind the one before it");
    holder.does("release");
    first.granted();
    assert_eq!(scene.waiters(), 0, "nothing that the others want is used up");
    second.granted();
    third.granted();
}

/// The same where the one ahead leaves.
pub(crate) fn when_one_ahead_leaves_a_chain(mode: Mode) {
    let builder = LimitSet::builder().limit(ResourceLimit::new("a", 1)).limit(ResourceLimit::new("b", 3));
    let scene = Scene::new(mode, builder.limit(ResourceLimit::new("c", 3)));
    let (mut holder, mut other) = (scene.hand(), scene.hand());
    holder.takes("a=1 b=0 c=0");
    other.takes("a=0 b=1 c=2");
    let mut first = scene.hand();
    first.tell("acquire a=1 b=1 c=0 within=300");
    scene.wait_for_waiters(1);
    let mut second = scene.waiter("a=0 b=2 c=1");
    let mut third = scene.waiter("a=0 b=0 c=1");
    other.does("release");
    first.refused("TimedOut");
    second.granted();
    third.granted();
}

/// Whoever leaves behind us does not make us oversleep.
pub(crate) fn though_one_behind_gave_up(mode: Mode) {
    let rate = |per_second| RateLimit::per_second("tokens", per_second).burst(100).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(rate(50)));
    scene.hand().takes("tokens=100");
    let mut first = scene.waiter("tokens=40");
    let mut behind = scene.hand();
    behind.tell("acquire tokens=90 within=1");
    behind.refused("TimedOut");
    // Now it sets its alarm anew.
    scene.limits.reconfigure([rate(51)]).unwrap();
    first.granted();
}

/// What is asked for with 0 is not waited for.
pub(crate) fn though_others_wait_for_what_it_wants_none_of(mode: Mode) {
    let calls = RateLimit::per_second("calls", 10).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(tokens()).limit(calls));
    scene.hand().takes("tokens=10 calls=10");
    let _others = scene.waiter("tokens=10 calls=0");
    let mut hand = scene.hand();
    hand.takes("tokens=0 calls=5");
}

/// Without order, one who wants little does not sleep until those before have got their lot.
pub(crate) fn without_order_a_small_one_is_served_in_its_own_time(mode: Mode) {
    let rate = RateLimit::new("tokens", 20, Duration::from_secs(1)).burst(100_000).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(rate).order(Order::Any));
    scene.hand().takes("tokens=100000");
    let _large = scene.waiter("tokens=100000");
    let mut small = scene.hand();
    assert!(small.takes("tokens=1") > 1);
    assert_eq!(scene.waiters(), 1);
}

/// Debt that is made while somebody sleeps only makes it sleep again.
pub(crate) fn though_debt_was_made_meanwhile(mode: Mode) {
    let rate = RateLimit::per_second("tokens", 100).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(rate));
    let mut holder = scene.hand();
    holder.takes("tokens=100");
    let mut waiter = scene.waiter("tokens=10");
    holder.does("adjust tokens 30");
    waiter.granted();
}

/// Sixty-four limits at once, the most there are, wait and are granted as one does.
pub(crate) fn for_as_many_limits_as_there_can_be(mode: Mode) {
    let builder = LimitSet::builder().limits((0..64).map(|it| ResourceLimit::new(format!("r{it}"), 1)));
    let scene = Scene::new(mode, builder);
    let mut holder = scene.hand();
    holder.takes("");
    let mut waiters = [scene.waiter(""), scene.waiter("")];
    for waiter in &mut waiters {
        holder.does("release");
        waiter.granted();
        holder = std::mem::replace(waiter, scene.hand());
    }
    holder.does("release");
    scene.assert_empty();
}
