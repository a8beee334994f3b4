//! Random damage to a set that is in use: whatever a peer writes over its words, every operation answers, with a
//! typed error or as if nothing were wrong. None panics, none goes on for ever.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;

use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Duration;

use forge::Forged;
use limitset::error::{AttachError, Malformed};
use limitset::{
    Acquisition, Algorithm, CallLimit, Clock, LimitSet, LimitSetBuilder, QueueOptions, RateLimit,
    ResourceLimit, Segment, WorkQueue,
};
use support::{Random, TempName};

const MOMENT: Duration = Duration::from_micros(300);

static PANICS: AtomicU64 = AtomicU64::new(0);

fn builder() -> LimitSetBuilder {
    let segment = Segment::options().slots(3).waiters(4);
    let rate = |key, algorithm| RateLimit::per_second(key, 50).algorithm(algorithm);
    LimitSet::builder()
        .limit(CallLimit::per_second(100))
        .limit(rate("leaky", Algorithm::LeakyBucket))
        .limit(rate("sliding", Algorithm::SlidingWindow).resolution(3))
        .limit(rate("fixed", Algorithm::FixedWindow))
        .limit(rate("gcra", Algorithm::Gcra))
        .limit(ResourceLimit::new("db", 3))
        .clock(Clock::Manual)
        .queue(QueueOptions::new(4, 12))
        .segment(segment.patience(MOMENT).lock_slice(MOMENT / 10).doorbell_slice(MOMENT / 10))
}

/// A few words behind header and definition, some of them with values that hurt more than random ones.
fn spoil(clean: &Forged, random: &mut Random) -> Forged {
    let mut bytes = clean.clone();
    let regions = [forge::STATE_REGION, forge::SLOTS_REGION, forge::WAITERS_REGION, forge::ITEMS_REGION];
    for _ in 0..1 + random.below(8) {
        // Most of what decides anything is in the state.
        let kind = regions[usize::try_from(random.below(8)).unwrap().saturating_sub(4)];
        let (start, length) = (bytes.region(kind), bytes.region_length(kind));
        let at = (start + usize::try_from(random.below(length as u64 - 8)).unwrap()) & !7;
        let value = match random.below(9) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => random.below(8),
            4 => 1 << random.below(64),
            5 => bytes.get64(at).wrapping_add(1),
            6 => bytes.get64(at) ^ 1 << random.below(64),
            7 => u64::MAX >> 1,
            _ => random.next(),
        };
        bytes.set64(at, value);
    }
    bytes
}

/// Everything a user can do. What comes of it does not matter, that something does.
fn use_it(set: &LimitSet, name: &TempName, held: &mut Acquisition) {
    let all = [("leaky", 1), ("sliding", 1), ("fixed", 1), ("gcra", 1)];
    let _ = set.check(all);
    if let Ok(mut more) = set.try_acquire(all) {
        let _ = (more.update("gcra", 0), more.adjust("fixed", 70), more.settle("sliding", 3));
        let _ = more.acquire_more([("db", 1)]);
        let _ = more.cancel();
    }
    let _ = set.acquire_timeout([("db", 2), ("gcra", 40), ("leaky", 1)], MOMENT).map(drop);
    let _ = set.try_charge([("fixed", 1)]);
    let _ = (held.update("db", 1), held.update("gcra", 1), held.adjust("leaky", 1));
    let _ = set.advance(Duration::from_millis(5));
    let _ = set.reconfigure([ResourceLimit::new("db", 2)]);
    let _ = set.reset();
    if let Ok(queue) = set.queue() {
        use_queue(set, &queue);
    }
    let _ = (set.pause(Duration::from_millis(1)), set.resume(), set.advance(Duration::from_secs(1)));
    let _ = set.reap();
    let _ = set.stats().map(|stats| format!("{stats:?}"));
    let _ = LimitSet::observe(name).map(|it| it.stats().map(|stats| format!("{stats:?}")));
    let _ = builder().attach(name).map(|set| set.try_acquire(all).map(drop));
}

fn use_queue(set: &LimitSet, queue: &WorkQueue) {
    let _ = (queue.try_push(7, b"seven"), queue.push_timeout(8, b"eight", MOMENT));
    if let Ok(Some(mut item)) = queue.try_take() {
        let _ = (format!("{item:?}"), item.payload().len(), item.done_with(b"result"));
    }
    if let (Ok(Some(mut item)), Ok(held)) = (queue.take_timeout(MOMENT), set.try_acquire([("fixed", 1)])) {
        let _ = item.rate_limited(held, Some(MOMENT));
    }
    for _ in 0..4 {
        let _ = queue.try_take().map(|item| item.map(|mut item| item.retry(MOMENT)));
        let _ = queue.try_take().map(|item| item.map(|mut item| item.dead_letter(b"why")));
    }
    let _ = queue.try_collect().map(|result| result.map(|mut result| result.forget()));
    let _ = queue.collect_dead().map(|dead| dead.map(|mut dead| dead.revive()));
    let _ = (queue.drain_timeout(MOMENT), queue.stats().map(|stats| stats.unfinished()), queue.close());
}

#[test]
fn words_that_a_peer_damages_are_an_error_or_work_but_never_a_panic_or_a_hang() {
    let rounds = support::depth(600, 20_000);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        PANICS.fetch_add(1, Relaxed);
        before(what);
    }));
    let mut random = Random::new(7);
    support::watched("random damage to a set", || {
        for round in 0..rounds {
            let name = TempName::new();
            let set = builder().create(&name).unwrap();
            let mut held = set.try_acquire([("db", 2), ("gcra", 3), ("leaky", 1)]).unwrap();
            // Two who wait, in a queue that can be damaged under them.
            let mut waiting = pin!(set.acquire_async([("db", 2)]));
            let mut waiting_too = pin!(set.acquire_async([("db", 1), ("gcra", 50)]));
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert!(waiting_too.as_mut().poll(&mut context).is_pending());
            assert_eq!(set.stats().unwrap().waiters, 2);
            // A result, a dead letter, an item put off, one at work, and a slow start.
            let queue = set.queue().unwrap();
            (0..4).for_each(|id| queue.try_push(id, b"payload").unwrap());
            let mut items = [(); 4].map(|()| queue.try_take().unwrap().unwrap());
            items[0].done_with(b"result").unwrap();
            items[1].dead_letter(b"why").unwrap();
            items[2].retry(MOMENT).unwrap();
            set.pause(MOMENT).unwrap();
            set.advance(MOMENT).unwrap();

            let clean = Forged::read(&name.path());
            let file = std::fs::OpenOptions::new().write(true).open(name.path()).unwrap();
            file.write_all_at(&spoil(&clean, &mut random).0, 0).unwrap();
            use_it(&set, &name, &mut held);
            let _ = items[3].done();
            drop(items);
            let _ = waiting.as_mut().poll(&mut context).map(|answer| answer.map(drop));
            if random.below(2) == 0 {
                let _ = held.release();
            } else {
                drop(held);
            }
            // Threads that wait for a lock that nobody has find it free.
            file.write_all_at(&clean.0, 0).unwrap();
            assert_eq!(PANICS.load(Relaxed), 0, "round {round}");
        }
    });
    support::proof("6", &format!("{rounds} sets damaged at random while in use"), "no panic, no hang");
}

#[test]
fn a_definition_with_any_byte_changed_is_refused() {
    let name = TempName::new();
    builder().config("region", "eu").create(&name).unwrap();
    let clean = Forged::read(&name.path());
    let start = clean.region(forge::DEFINITION_REGION);
    // The head, six limits, and the config map with its two lengths; padding follows.
    let length = 128 + 6 * 128 + 8 + "regioneu".len();
    for at in start..start + length {
        let mut bytes = clean.clone();
        bytes.0[at] ^= 0x11;
        bytes.write(&name.path());
        let answers = [builder().attach(&name).map(drop), LimitSet::observe(&name).map(drop)];
        for answer in answers {
            let is_right =
                matches!(&answer, Err(AttachError::Malformed { what: Malformed::Definition { .. }, .. }));
            assert!(is_right, "byte {}: {answer:?}", at - start);
        }
    }
    clean.write(&name.path());
    builder().attach(&name).unwrap();
}
