//! A set is sound at every look: while processes do everything that can be done to it, and are killed at any time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use limitset::error::SyncError;
use limitset::{
    Algorithm, Audit, CallLimit, Cooldown, LimitSet, Observer, QueueOptions, RateLimit, Report,
    ResourceLimit, Segment,
};
use nix::sys::signal::Signal;
use support::{Random, TempName, Worker};

const SHORT: Duration = Duration::from_millis(2);
const WORKERS: usize = 4;

fn main() {
    support::main(
        &[("worker", worker)],
        vec![("a_set_is_sound_at_every_look_while_its_users_are_killed", || {
            kills(support::depth(1_000, 20_000))
        })],
    );
}

fn limits() -> limitset::LimitSetBuilder {
    let rates = Algorithm::ALL.iter().map(|algorithm| {
        RateLimit::new(algorithm.name(), 1_000, Duration::from_millis(10))
            .algorithm(*algorithm)
            .report(Report::Optional)
    });
    LimitSet::builder()
        .limit(CallLimit::per_second(1_000_000))
        .limits(rates)
        .limit(RateLimit::per_second("owed", 1_000_000))
        .limit(ResourceLimit::new("db", 3))
        .cooldown(Cooldown::default().first(SHORT).longest(2 * SHORT).slow_start(3, SHORT, Duration::ZERO))
        .queue(QueueOptions::new(16, 8))
        .segment(Segment::options().slots(8).waiters(8).semaphore("door", 2))
}

/// Does one thing after the other until it is killed.
fn worker(arguments: &[String]) {
    let mut random = Random::new(arguments[1].parse().unwrap());
    let set = LimitSet::attach(&arguments[0]).unwrap();
    loop {
        // Whatever the answer is: it may well be refused.
        let _ = act(&set, &mut random);
    }
}

fn act(set: &LimitSet, random: &mut Random) -> Result<(), Box<dyn std::error::Error>> {
    let rate = Algorithm::ALL[usize::try_from(random.below(5)).unwrap()].name();
    let queue = set.queue()?;
    match random.below(17) {
        0 => set.reset()?,
        1 => set.reconfigure([ResourceLimit::new("db", 1 + random.below(4))])?,
        2 => drop(queue.try_push(random.below(100), b"payload")),
        3 => queue.try_take()?.map_or(Ok(()), |mut item| item.done_with(b"done"))?,
        4 => queue.try_take()?.map_or(Ok(()), |mut item| item.retry(SHORT))?,
        5 => queue.try_take()?.map_or(Ok(()), |mut item| item.dead_letter(b"no"))?,
        6 => queue.try_collect()?.map_or(Ok(()), |mut it| it.forget())?,
        16 => queue.collect_dead()?.map_or(Ok(()), |mut it| it.revive())?,
        7 => drop(set.segment().semaphore("door")?.acquire_timeout(1 + random.below(2), SHORT)),
        8 => {
            let held = set.acquire_timeout([(rate, 1)], SHORT)?;
            if let Some(mut item) = queue.try_take()? {
                item.rate_limited(held, None)?;
            }
        }
        9 => drop(set.try_acquire([("owed", 3)])?),
        10 => {
            let mut held = set.try_acquire([("owed", 3)])?;
            held.adjust("owed", 5)?;
            held.release()?;
        }
        _ => {
            let mut held =
                set.acquire_timeout([(rate, 1 + random.below(500)), ("db", 1 + random.below(2))], SHORT)?;
            held.update(rate, 0)?;
            held.release()?;
        }
    }
    Ok(())
}

/// A look at a set that others change all the time.
fn look(observer: &Observer) -> Audit {
    loop {
        match observer.audit() {
            Ok(audit) => return audit,
            Err(SyncError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn assert_sound(audit: &Audit) {
    assert!(audit.is_sound(), "{audit:#?}");
}

fn kills(rounds: u64) {
    let name = TempName::new();
    let set = limits().create(&name).unwrap();
    let observer = Segment::observe(&name).unwrap();
    let start = |seed: u64| Worker::start("worker", &[&name.0, &seed.to_string()]);
    let mut workers: Vec<_> = (0..WORKERS as u64).map(start).collect();
    let (mut random, mut pending) = (Random::new(7), 0);
    for round in 0..rounds {
        for _ in 0..5 {
            let audit = look(&observer);
            assert_sound(&audit);
            pending += audit.findings().count();
        }
        let victim = usize::try_from(random.below(WORKERS as u64)).unwrap();
        let killed = std::mem::replace(&mut workers[victim], start(100 + round));
        killed.signal(Signal::SIGKILL);
        drop(killed);
    }
    drop(workers);
    assert_sound(&look(&observer));
    // All are dead but this process, which returns what they left.
    set.reap().unwrap();
    let audit = look(&observer);
    let left: Vec<_> =
        audit.checks.iter().filter(|it| it.what != "semaphores").flat_map(|it| &it.findings).collect();
    assert!(left.is_empty(), "{left:#?}");
    let stats = set.stats().unwrap();
    let granted: u64 = stats.limits.iter().map(|limit| limit.granted).sum();
    let queue = stats.queue.unwrap();
    let summary = format!("{granted} grants, {} items taken, {pending} findings pending", queue.taken);
    assert!(granted > rounds && queue.taken > 16, "too little was done: {summary}");
    assert!(pending > 0, "nobody ever died in the middle of something");
}
