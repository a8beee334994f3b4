//! What a set tells about itself, at one instant.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::{Algorithm, CallLimit, LimitSet, RateLimit, Report, ResourceLimit, Stats};

use crate::support::{Random, depth};
use crate::worlds::{MINUTE, Set, World, manual, pairs, rules, three_kinds};

rules![
    a_fresh_set_has_everything_and_has_seen_nothing,
    every_number_of_a_limit_is_told,
    what_is_available_follows_the_clock_without_an_acquire,
    a_participant_has_a_name_and_what_it_holds_and_owes,
    looking_changes_nothing,
    a_snapshot_is_of_one_instant_whoever_writes,
    a_limit_that_does_not_exist_has_no_numbers,
];

fn a_fresh_set_has_everything_and_has_seen_nothing(world: World) {
    let set = world.three_kinds();
    let Stats {
        limits,
        participants,
        steals,
        recoveries,
        sweeps,
        reaped_participants,
        reaped_permits,
        unenforced,
        deposed,
        ..
    } = set.stats().unwrap();
    let keys: Vec<_> = limits.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["call_count", "tokens", "connections"], "in the order of their definition");
    let sizes: Vec<_> = limits.iter().map(|it| (it.capacity, it.window, it.burst, it.available)).collect();
    let expected = [(10, Some(MINUTE), 10, 10), (1_000, Some(MINUTE), 1_000, 1_000), (4, None, 4, 4)];
    assert_eq!(sizes, expected);
    for it in limits {
        let counters = [it.in_use, it.debt, it.waiting, it.granted, it.denied, it.refunded, it.unreported];
        assert_eq!(counters, [0; 7], "{}", it.key);
        assert_eq!((it.consumed, it.revision), (0, 0), "{}", it.key);
    }
    assert_eq!(participants.len(), 1);
    // The first process to attach sweeps for dead participants; private memory has no first process.
    assert_eq!(sweeps, u64::from(world != World::Thread));
    assert_eq!([steals, recoveries, reaped_participants, reaped_permits, unenforced, deposed], [0; 6]);
    set.try_acquire([("tokens", 1)]).unwrap().release().unwrap();
    assert_eq!(set.stats().unwrap().reaped_participants, 0, "taking a row that was nobody's reaps nobody");
}

fn every_number_of_a_limit_is_told(world: World) {
    let tokens = |capacity| RateLimit::per_minute("tokens", capacity).burst(50);
    let set = world.open(&manual().limit(tokens(100)).limit(ResourceLimit::new("connections", 4)));
    let mut first = set.try_acquire([("tokens", 30)]).unwrap();
    let second = set.try_acquire([("tokens", 15), ("connections", 2)]).unwrap();
    assert!(set.try_acquire([("tokens", 6)]).is_err());
    assert!(set.try_acquire([("tokens", 6), ("connections", 2)]).is_err());
    assert!(set.try_acquire([("tokens", 51)]).is_err());
    first.update("tokens", 20).unwrap();
    second.release().unwrap_err();
    set.reconfigure([tokens(200)]).unwrap();
    let it = set.limit("tokens");
    assert_eq!((it.capacity, it.window, it.burst), (200, Some(MINUTE), 50));
    assert_eq!((it.available, it.in_use, it.debt, it.waiting), (15, 35, 0, 0));
    assert_eq!((it.granted, it.denied, it.refunded, it.unreported), (2, 3, 10, 1));
    assert_eq!((it.consumed, it.revision), (35, 1));
    first.settle("tokens", 40).unwrap();
    let it = set.limit("tokens");
    assert_eq!((it.available, it.in_use, it.debt, it.consumed), (0, 50, 5, 55));
    let it = set.limit("connections");
    assert_eq!((it.capacity, it.window, it.burst), (4, None, 4));
    assert_eq!((it.available, it.in_use, it.debt, it.waiting), (3, 1, 0, 0));
    assert_eq!((it.granted, it.denied, it.refunded, it.unreported), (2, 1, 0, 0));
    assert_eq!((it.consumed, it.revision), (3, 0), "permits ever taken");
    first.release().unwrap();
}

fn what_is_available_follows_the_clock_without_an_acquire(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 60, MINUTE);
        let mut held = set.try_acquire([("tokens", 60)]).unwrap();
        held.update("tokens", 60).unwrap();
        held.release().unwrap();
        assert_eq!(set.limit("tokens").available, 0);
        set.advance(Duration::from_secs(20)).unwrap();
        if [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra].contains(algorithm) {
            assert_eq!(set.limit("tokens").available, 20, "{algorithm}");
        }
        set.advance(2 * MINUTE).unwrap();
        let it = set.limit("tokens");
        assert_eq!((it.available, it.in_use, it.consumed), (60, 0, 60), "{algorithm}");
    }
}

fn a_participant_has_a_name_and_what_it_holds_and_owes(world: World) {
    let permits = ["sockets", "files"].map(|key| ResourceLimit::new(key, 10));
    let set = world.open(&manual().limits(permits).limit(RateLimit::per_minute("tokens", 100)));
    let held = set.try_acquire([("tokens", 1), ("sockets", 3)]).unwrap();
    let more = set.try_acquire([("tokens", 1), ("sockets", 4), ("files", 0)]).unwrap();
    let stats = set.stats().unwrap();
    let [me] = stats.participants.as_slice() else { panic!("{stats:?}") };
    assert_eq!(me.participant, set.segment().participant().unwrap());
    let info = me.info.as_ref().expect("alive");
    assert_eq!((info.slot, info.generation), (me.participant.slot, me.participant.generation));
    assert_eq!(info.pid, u64::from(std::process::id()));
    assert_eq!(me.holds, pairs([("sockets", 7), ("files", 1)]));
    assert_eq!(me.owes_reports, pairs([("tokens", 2)]));
    more.cancel().unwrap();
    assert_eq!((set.holds(), set.owes()), (pairs([("sockets", 3), ("files", 1)]), pairs([("tokens", 1)])));
    held.cancel().unwrap();
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
}

fn looking_changes_nothing(world: World) {
    let set = world.three_kinds();
    let held = set.try_acquire([("tokens", 5)]).unwrap();
    set.advance(MINUTE).unwrap();
    let once = set.stats().unwrap();
    assert_eq!(set.stats().unwrap(), once);
    if world == World::Process {
        let observer = LimitSet::observe(&set.name).unwrap();
        assert_eq!(observer.stats().unwrap(), once);
        assert_eq!((observer.limits(), observer.config()), (set.limits(), set.config()));
        assert_eq!(observer.segment().participants().len(), 1, "an observer takes no slot");
        assert_eq!(set.stats().unwrap(), once);
        set.remove().unwrap();
        // Stats that were read stay readable.
        assert_eq!(observer.stats().unwrap().limits, once.limits);
        assert!(LimitSet::observe(&set.name).is_err());
    }
    drop(held);
}

/// Three writers take 3 tokens and 2 permits at a time, give tokens back or not, and end in all ways.
fn write_until(set: &Set, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(seed);
    let mut granted = 0;
    while !stop.load(Relaxed) {
        let Ok(mut held) = set.try_acquire([("tokens", 3), ("connections", 2)]) else { continue };
        granted += 1;
        match random.below(4) {
            0 => held.cancel().unwrap(),
            1 => drop(held),
            2 => held.settle("tokens", 3 * random.below(3)).map(drop).unwrap(),
            _ => {
                held.acquire_more([("tokens", 3)]).unwrap();
                held.update("tokens", 6).unwrap();
                held.release().unwrap();
            }
        }
    }
    granted
}

fn is_consistent(stats: &Stats) {
    let (tokens, permits) = (stats.limit("tokens").unwrap(), stats.limit("connections").unwrap());
    let calls = stats.limit("call_count").unwrap();
    // Nothing is refilled: time stands still. The charged units are exactly the missing ones.
    assert_eq!(tokens.consumed % 3, 0);
    assert_eq!(tokens.capacity - tokens.consumed, tokens.available, "{tokens:?}");
    assert_eq!(calls.capacity - calls.consumed, calls.available, "{calls:?}");
    // A call is taken with every grant but those of more, and never given back but by cancelling.
    assert_eq!(calls.consumed + calls.refunded, permits.granted);
    assert_eq!(calls.granted, permits.granted, "all or none");
    assert_eq!(permits.consumed, 2 * permits.granted);
    assert!(permits.in_use <= permits.capacity && permits.in_use.is_multiple_of(2));
    let held: u64 = stats.participants.iter().flat_map(|it| &it.holds).map(|(_, amount)| amount).sum();
    assert_eq!(held, permits.in_use, "who holds what adds up");
    let owed: u64 = stats.participants.iter().flat_map(|it| &it.owes_reports).map(|(_, amount)| amount).sum();
    assert!(owed <= permits.in_use / 2, "who owes a report holds permits");
    assert!(tokens.granted >= permits.granted && tokens.unreported <= tokens.granted);
    assert_eq!((stats.steals, stats.recoveries, stats.deposed), (0, 0, 0));
}

fn a_snapshot_is_of_one_instant_whoever_writes(world: World) {
    let set = world.open(
        &manual()
            .limit(RateLimit::per_minute("tokens", 1 << 50))
            .limit(CallLimit::per_minute(1 << 50))
            .limit(ResourceLimit::new("connections", 4)),
    );
    let observer = (world == World::Process).then(|| LimitSet::observe(&set.name).unwrap());
    let stop = AtomicBool::new(false);
    let snapshots = depth(2_000, 50_000);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3)
            .map(|seed| {
                let (set, stop) = (&set, &stop);
                scope.spawn(move || write_until(set, seed, stop))
            })
            .collect();
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut looks, mut last) = (0, 0);
            while looks < snapshots || last < 1_000 {
                looks += 1;
                let stats = set.stats().unwrap();
                is_consistent(&stats);
                if let Some(observer) = &observer {
                    is_consistent(&observer.stats().unwrap());
                }
                let granted = stats.limit("tokens").unwrap().granted;
                assert!(granted >= last, "time goes on");
                last = granted;
                assert!(writers.iter().all(|it| !it.is_finished()), "a writer failed");
            }
        }));
        stop.store(true, Relaxed);
        let granted: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        looked.unwrap();
        assert_eq!(set.limit("connections").granted, granted);
    });
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
}

fn a_limit_that_does_not_exist_has_no_numbers(world: World) {
    let set = world.open(&three_kinds().limit(RateLimit::per_day("rows", 1).report(Report::Optional)));
    let stats = set.stats().unwrap();
    assert!(stats.limit("rows").is_some() && stats.limit("row").is_none() && stats.limit("").is_none());
}
