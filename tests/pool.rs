//! Pools: which set is asked, which is waited for, what is skipped, and what a pool can be made of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "pool/making.rs"]
mod making;
#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use limitset::{
    AcquireError, Acquisition, Balance, CallLimit, Clock, LimitPool, LimitSet, RateLimit, ResourceLimit,
};
use support::{Random, TempName, Worker, listen, say};

const ALL: [Balance; 3] = [Balance::RoundRobin, Balance::Random, Balance::FirstFree];
const ROUNDS: usize = 1_000;
const WORKERS: usize = 8;

fn main() {
    let mut tests: Vec<(&'static str, fn())> = vec![
        ("round_robin_is_exactly_even_and_staggered_by_worker", round_robin),
        ("clones_take_turns_and_workers_do_not", clones),
        ("random_is_as_even_as_chance_is", random),
        ("first_free_takes_the_first_that_is_free_and_never_waits_for_another", first_free),
        ("first_free_never_waits_while_a_set_of_another_process_has_room", first_free_processes),
        ("first_free_waits_for_the_one_that_opens_first", opens_first),
        ("first_free_waits_for_a_time_rather_than_for_somebody", known_before_unknown),
        ("first_free_passes_by_a_set_that_is_cooling_down", cooling_down),
        ("first_free_does_not_wait_where_waiting_is_of_no_use", of_no_use),
        ("a_wait_for_a_set_that_is_removed_goes_on_with_the_others", removed_meanwhile),
        ("a_wait_has_one_deadline_for_all_sets", one_deadline),
        ("removed_sets_are_skipped_and_counted", skipped),
        ("a_pool_of_removed_sets_is_removed", all_removed),
        ("an_acquisition_knows_its_set", acquisition),
        ("statistics_are_of_the_pool_and_of_its_sets", statistics),
    ];
    tests.extend(making::TESTS);
    support::main(&[("hold", hold_role), ("describe", making::role)], tests);
}

fn permit() -> LimitSet {
    LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap()
}

fn calls(capacity: u64, window: Duration) -> LimitSet {
    LimitSet::builder().limit(CallLimit::new(capacity, window)).in_memory().unwrap()
}

/// Sets that always have room.
fn open_sets(count: usize) -> LimitPool {
    LimitPool::new((0..count).map(|_| LimitSet::builder().in_memory().unwrap())).unwrap()
}

fn place(held: Result<Acquisition, AcquireError>) -> usize {
    held.unwrap().pool_index().unwrap()
}

/// By each of the ways to acquire, one after the other.
fn every_way(pool: &LimitPool) -> impl Iterator<Item = Result<Acquisition, AcquireError>> {
    (0..4).map(|way| match way {
        0 => pool.try_acquire(()),
        way => wait(pool, way),
    })
}

/// By each of the ways to wait: 1, 2 and 3.
fn wait(pool: &LimitPool, way: u32) -> Result<Acquisition, AcquireError> {
    match way {
        1 => pool.acquire(()),
        2 => pool.acquire_timeout((), Duration::from_secs(3600)),
        _ => pollster::block_on(pool.acquire_async(())),
    }
}

fn round_robin() {
    for sets in [1, 3, 4, 5] {
        let pool = open_sets(sets);
        for worker in 0..WORKERS {
            let mine = pool.for_worker(worker);
            let places: Vec<_> = (0..ROUNDS).map(|_| place(mine.try_acquire(()))).collect();
            let expected: Vec<_> = (0..ROUNDS).map(|round| (worker + round) % sets).collect();
            assert_eq!(places, expected, "worker {worker} of {sets} sets");
        }
    }
    let result = "each set equally often, each worker from its own on";
    support::proof("2", "round robin: 8 workers, 1000 acquisitions each", result);
}

fn clones() {
    let pool = open_sets(3).for_worker(2);
    let clone = pool.clone();
    let places: Vec<_> =
        (0..3).flat_map(|_| [place(pool.try_acquire(())), place(clone.acquire(()))]).collect();
    assert_eq!(places, [2, 0, 1, 2, 0, 1]);
    assert_eq!(place(pool.for_worker(0).try_acquire(())), 0);
    let waits =
        [place(pool.acquire_timeout((), Duration::ZERO)), place(pollster::block_on(pool.acquire_async(())))];
    assert_eq!(waits, [2, 0]);
}

/// By Hoeffding's inequality a count of n trials is off by more than t with a probability of at most 2 exp(-2 t^2 / n).
/// With t = 200 of n = 1000 that is 2 e^-80 for each of 32 counts: it never happens, and a balancer that prefers
/// a set by 20 % of all trials, or leaves one out, is caught.
fn random() {
    let pool = open_sets(4).balance(Balance::Random);
    let mut sequences = Vec::new();
    for worker in 0..WORKERS {
        let mine = pool.for_worker(worker);
        let places: Vec<_> = (0..ROUNDS).map(|_| place(mine.try_acquire(()))).collect();
        for set in 0..4 {
            let count = places.iter().filter(|place| **place == set).count();
            assert!((50..=450).contains(&count), "worker {worker} took set {set} {count} times of {ROUNDS}");
        }
        sequences.push(places);
    }
    sequences.sort();
    sequences.dedup();
    assert_eq!(sequences.len(), WORKERS, "workers draw alike");
}

/// Acquires and releases at random, and compares with what is free. One wait would be for ever.
fn first_free() {
    const SETS: usize = 4;
    let pool = LimitPool::new((0..SETS).map(|_| permit())).unwrap().balance(Balance::FirstFree);
    let workers: Vec<_> = (0..WORKERS).map(|worker| pool.for_worker(worker)).collect();
    let mut random = Random::new(7);
    let mut held: [Option<Acquisition>; SETS] = Default::default();
    for _ in 0..ROUNDS {
        let chosen = usize::try_from(random.below(8)).unwrap();
        let mut order = (0..SETS).map(|step| (chosen + step) % SETS);
        if let Some(expected) = order.find(|set| held[*set].is_none()) {
            let mine = &workers[chosen];
            let got = match random.below(3) {
                0 => mine.try_acquire(()),
                1 => mine.acquire(()),
                _ => pollster::block_on(mine.acquire_async(())),
            };
            let got = got.unwrap();
            assert_eq!(got.pool_index(), Some(expected));
            held[expected] = Some(got);
        } else {
            assert!(matches!(workers[chosen].try_acquire(()), Err(AcquireError::Denied(_))));
        }
        if random.below(2) == 0 {
            held[usize::try_from(random.below(4)).unwrap()] = None;
        }
    }
}

fn hold_role(arguments: &[String]) {
    let set = LimitSet::attach(&arguments[0]).unwrap();
    let held = set.acquire(()).unwrap();
    say("held");
    listen();
    held.release().unwrap();
    say("released");
    listen();
}

fn first_free_processes() {
    let names = [TempName::new(), TempName::new(), TempName::new()];
    let sets =
        names.iter().map(|name| LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(name).unwrap());
    let pool = LimitPool::new(sets).unwrap().balance(Balance::FirstFree);
    let mut holders: Vec<_> = names[..2].iter().map(|name| Worker::start("hold", &[&name.0])).collect();
    holders.iter_mut().for_each(|holder| holder.expect("held"));
    for worker in 0..WORKERS {
        for answer in every_way(&pool.for_worker(worker)) {
            assert_eq!(place(answer), 2, "the only one with room");
        }
    }
    // What a killed process held is room, too, once somebody has looked.
    holders[1].kill();
    pool.get(1).unwrap().reap().unwrap();
    assert_eq!(place(pool.try_acquire(())), 1);
    holders[0].tell("release");
    holders[0].expect("released");
    assert_eq!(place(pool.acquire(())), 0);
}

/// All are used up; the second has room in a moment, the others in hours.
fn opens_first() {
    let hour = Duration::from_secs(3600);
    let soon = Duration::from_millis(20);
    for worker in 0..3 {
        for way in 1..=3 {
            let sets = [calls(1, hour), calls(1, soon), calls(1, 2 * hour)];
            let pool = LimitPool::new(sets).unwrap().balance(Balance::FirstFree).for_worker(worker);
            pool.sets().iter().for_each(|set| set.try_acquire(()).unwrap().release().unwrap());
            assert_eq!(place(wait(&pool, way)), 1);
        }
    }
    let sets = [calls(1, hour), calls(1, hour / 2), calls(1, 2 * hour)];
    let pool = LimitPool::new(sets).unwrap().balance(Balance::FirstFree);
    (0..3).for_each(|_| pool.try_acquire(()).unwrap().release().unwrap());
    let refusal = pool.try_acquire(()).unwrap_err();
    assert!(refusal.retry_after().unwrap() <= hour / 2, "the answer is that of the one that opens first");
}

fn cooling_down() {
    let hour = Duration::from_secs(3600);
    let sets = [calls(100, hour), calls(1, hour)];
    let pool = LimitPool::new(sets).unwrap().balance(Balance::FirstFree);
    pool.acquire(()).unwrap().rate_limited(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(place(pool.acquire(())), 1, "the other one is not paused");
    let refusal = pool.try_acquire(()).unwrap_err();
    assert!(refusal.retry_after().unwrap() < hour / 2, "{refusal}");
    assert_eq!(place(pool.acquire(())), 0, "and it is worth waiting for the end of a pause");

    // A permit comes back sooner than a long pause ends.
    let (paused, busy) = (permit(), permit());
    paused.pause(hour).unwrap();
    let held = busy.try_acquire(()).unwrap();
    let pool = LimitPool::new([paused, busy.clone()]).unwrap().balance(Balance::FirstFree);
    let waiting = std::thread::spawn(move || place(pool.acquire(())));
    while busy.stats().unwrap().waiters == 0 {
        std::thread::yield_now();
    }
    held.release().unwrap();
    assert_eq!(waiting.join().unwrap(), 1);
}

fn known_before_unknown() {
    let soon = Duration::from_millis(20);
    let held = permit();
    let pool = LimitPool::new([held.clone(), calls(1, soon)]).unwrap().balance(Balance::FirstFree);
    let _held = held.try_acquire(()).unwrap();
    pool.acquire(()).unwrap().release().unwrap();
    assert_eq!(place(pool.acquire(())), 1);
}

fn of_no_use() {
    let tokens = |most| LimitSet::builder().limit(RateLimit::per_hour("tokens", most)).in_memory().unwrap();
    let pool = LimitPool::new([tokens(5), tokens(7)]).unwrap().balance(Balance::FirstFree);
    let never = pool.acquire([("tokens", 8)]).unwrap_err();
    assert!(matches!(never, AcquireError::Never { .. }), "{never}");
    assert_eq!(place(pool.acquire([("tokens", 6)])), 1, "one that never can does not stand in the way");
    // One that could later is better than one that never can.
    let late = pool.acquire_timeout([("tokens", 6)], Duration::from_millis(1)).unwrap_err();
    assert!(matches!(late, AcquireError::TimedOut(_)), "{late}");
    let unknown = pool.acquire([("beer", 1)]).unwrap_err();
    assert!(matches!(unknown, AcquireError::BadRequest(_)), "{unknown}");
}

fn wait_for_waiters(set: &LimitSet, count: u64) {
    while set.stats().unwrap().waiters != count {
        std::thread::yield_now();
    }
}

fn removed_meanwhile() {
    for way in 1..=3 {
        let pool = LimitPool::new([permit(), permit()]).unwrap().balance(Balance::FirstFree);
        let held: Vec<_> = pool.sets().iter().map(|set| set.try_acquire(()).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(&pool, way));
            wait_for_waiters(&pool.sets()[0], 1);
            pool.sets()[0].remove().unwrap();
            wait_for_waiters(&pool.sets()[1], 1);
            drop(held);
            assert_eq!(place(waiter.join().unwrap()), 1);
        });
    }
    let pool = LimitPool::new([permit(), permit()]).unwrap();
    let _held: Vec<_> = pool.sets().iter().map(|set| set.try_acquire(()).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.acquire(()));
        for set in pool.sets() {
            wait_for_waiters(set, 1);
            set.remove().unwrap();
        }
        assert!(matches!(waiter.join().unwrap(), Err(AcquireError::Removed)));
    });
}

fn one_deadline() {
    let pool = LimitPool::new([permit(), permit()]).unwrap().balance(Balance::FirstFree);
    let _held: Vec<_> = pool.sets().iter().map(|set| set.try_acquire(()).unwrap()).collect();
    for time in [Duration::ZERO, Duration::from_millis(10)] {
        let late = pool.acquire_timeout((), time).unwrap_err();
        let AcquireError::TimedOut(late) = late else { panic!("{late}") };
        assert!(late.waited >= time);
    }
    assert!(pool.sets().iter().all(|set| set.stats().unwrap().waiters == 0));
}

fn skipped() {
    for balance in ALL {
        let pool = open_sets(3).balance(balance);
        pool.sets()[1].remove().unwrap();
        for worker in 0..WORKERS {
            let mine = pool.for_worker(worker);
            for _ in 0..20 {
                for answer in every_way(&mine) {
                    assert_ne!(place(answer), 1, "{balance:?}");
                }
            }
            let stats = mine.stats();
            assert_eq!(stats.sets.iter().map(|set| set.granted).sum::<u64>(), 80);
            assert_eq!((stats.sets[1].granted, stats.sets[0].skipped, stats.sets[2].skipped), (0, 0, 0));
            match balance {
                // Every third turn is that of the removed one.
                Balance::RoundRobin => assert!((26..=27).contains(&stats.sets[1].skipped)),
                Balance::FirstFree => assert_eq!(stats.sets[1].skipped, if worker % 3 == 1 { 80 } else { 0 }),
                _ => {}
            }
        }
    }
}

fn all_removed() {
    for balance in ALL {
        let pool = open_sets(2).balance(balance);
        pool.sets().iter().for_each(|set| set.remove().unwrap());
        for answer in every_way(&pool) {
            assert!(matches!(answer, Err(AcquireError::Removed)), "{balance:?}: {answer:?}");
        }
        assert!(pool.stats().sets.iter().all(|set| set.skipped == 4), "{:?}", pool.stats());
    }
}

fn acquisition() {
    let region = |name: &str| {
        LimitSet::builder().limit(ResourceLimit::new("db", 1)).config("region", name).in_memory().unwrap()
    };
    let pool = LimitPool::new([region("eu"), region("us")]).unwrap();
    for (index, name) in ["eu", "us"].into_iter().enumerate() {
        let held = pool.try_acquire(()).unwrap();
        assert_eq!((held.pool_index(), held.config()["region"].as_str()), (Some(index), name));
        assert_eq!(held.set().config(), pool.get(index).unwrap().config());
        assert_eq!(pool.get(index).unwrap().stats().unwrap().limit("db").unwrap().in_use, 1);
    }
    assert!(pool.get(2).is_none());
    assert_eq!(pool.sets()[0].try_acquire(()).unwrap().pool_index(), None);
}

fn statistics() {
    let set = || LimitSet::builder().limit(CallLimit::per_hour(2)).clock(Clock::Manual).in_memory().unwrap();
    let pool = LimitPool::new([set(), set()]).unwrap().balance(Balance::FirstFree).for_worker(9);
    for _ in 0..4 {
        pool.clone().try_acquire(()).unwrap().release().unwrap();
    }
    pool.try_acquire(()).unwrap_err();
    pool.sets()[0].remove().unwrap();
    pool.try_acquire(()).unwrap_err();
    let stats = pool.stats();
    assert_eq!((stats.balance, stats.worker, pool.len()), (Balance::FirstFree, 9, 2));
    let counts: Vec<_> = stats.sets.iter().map(|set| (set.granted, set.refused, set.skipped)).collect();
    // Worker 9 begins with set 1, which so refused all that set 0 was asked for.
    assert_eq!(counts, [(2, 1, 1), (2, 4, 0)]);
    assert_eq!(stats.sets[1].set.as_ref().unwrap().limit("call_count").unwrap().granted, 2);
    let other = pool.for_worker(9).stats();
    assert!(other.sets.iter().all(|set| (set.granted, set.refused, set.skipped) == (0, 0, 0)));
}
