//! What does it cost one process to acquire and release without contention: one limit, three, three with a
//! permit; granted and denied? Beside it, the cost of equal work with rivals.
//!
//! Our sets are in named segments that any process could open. In-process rivals are not shared at all; rivals that
//! cannot take three together take three in a row, and their rows say so.

use std::rc::Rc;

use limitset::{Clock, Limit, Segment};

use crate::batches::{Plan, Row, Whose};
use crate::floor;
use crate::ours::{self, TempSet};
use crate::redis::{Client, Server};
use crate::results::{Bench, Group};
use crate::rivals::{flock::Flock, governor, leaky, limitador, posix::Posix, ratelimit, raw::Raw};
use crate::rivals::{robust::Robust, sysv::Sysv, tokio};
use crate::sys::{self, unique};

const QUESTION: &str = "What does it cost one process to acquire and release without contention?";

pub fn run(plan: Plan, redis: &Result<Rc<Server>, String>) -> Bench {
    let groups = vec![one_rate(redis), one_permit(), three_rates(redis), three_with_permit(), denial(redis)];
    Bench::measure("uncontended", QUESTION, groups, plan, None)
}

fn one_rate(redis: &Result<Rc<Server>, String>) -> Group<Row> {
    let (exact, fast) = (governor::monotonic(governor::plenty()), governor::fast(governor::plenty()));
    let (ratelimit, leaky) = (ratelimit::Bucket::plenty(), leaky::Bucket::plenty());
    let limitador = limitador::Limits::new(1, u64::MAX / 2);
    let mut rows = vec![
        charge("rate1/ours-charge", "limitset, `try_charge`", Clock::Monotonic),
        take("rate1/ours", "limitset, try + release", vec![ours::call()], Clock::Monotonic),
        take_owned("rate1/ours-owned", vec![ours::call()]),
        charge("rate1/ours-charge-coarse", "limitset, `try_charge`, coarse clock", Clock::Coarse),
        take("rate1/ours-coarse", "limitset, try + release, coarse clock", vec![ours::call()], Clock::Coarse),
        Row::rival("rate1/governor", "governor, monotonic clock", move || exact.granted())
            .note("one process only"),
        Row::rival("rate1/governor-fast", "governor, fast clock", move || fast.granted())
            .note("one process only; time stamp counter"),
        Row::rival("rate1/ratelimit", "ratelimit", move || ratelimit.granted()).note("one process only"),
        Row::rival("rate1/leaky", "leaky-bucket", move || leaky.granted())
            .note("one process only; reads no clock while its balance lasts"),
        Row::rival("rate1/limitador", "limitador, in memory", move || limitador.granted())
            .note("one process only"),
    ];
    rows.push(floor::row("rate1/floor", Some(("the clock", libc::CLOCK_MONOTONIC)), 1));
    rows.push(floor::row("rate1/floor-coarse", Some(("the coarse clock", libc::CLOCK_MONOTONIC_COARSE)), 1));
    rows.extend(redis_rows("rate1/redis", "rate1/redis-pinned", 1, redis, Client::granted));
    Group::new("1 rate limit, granted", "rate1/governor", rows)
}

fn one_permit() -> Group<Row> {
    let permits = tokio::Permits::new(64);
    let (posix, robust, raw) = (Posix::new(64), Robust::new(), Raw::new());
    let rows = vec![
        take("permit1/ours", "limitset, try + release", vec![ours::permit("p", 64)], Clock::Monotonic),
        take_owned("permit1/ours-owned", vec![ours::permit("p", 64)]),
        shared_semaphore(),
        Row::rival("permit1/tokio", "tokio `Semaphore`", move || permits.take_and_give())
            .note("one process only"),
        sysv("permit1/sysv", 1, "SysV semaphore, SEM_UNDO"),
        Row::rival("permit1/posix", "POSIX semaphore, shared", move || posix.take_and_give(1))
            .note("lost when its holder dies"),
        Row::rival("permit1/robust", "robust pthread mutex + counter", move || robust.take_and_give(1))
            .note("lost when its holder dies"),
        Row::rival("permit1/raw", "raw_sync mutex + counter", move || raw.take_and_give(1))
            .note("stuck when its holder dies"),
        flock("permit1/flock", 1),
        floor::row("permit1/floor", None, 2),
    ];
    Group::new("1 permit, acquired and released", "permit1/tokio", rows)
}

fn three_rates(redis: &Result<Rc<Server>, String>) -> Group<Row> {
    let governors = [(); 3].map(|()| governor::monotonic(governor::plenty()));
    let buckets = [(); 3].map(|()| ratelimit::Bucket::plenty());
    let leaky = [(); 3].map(|()| leaky::Bucket::plenty());
    let limitador = limitador::Limits::new(3, u64::MAX / 2);
    let limits = vec![ours::call(), ours::rate("tokens"), ours::rate("bytes")];
    let in_a_row = "one process only; three in a row, not together";
    let mut rows = vec![
        take("rates3/ours", "limitset, try + release", limits, Clock::Monotonic),
        Row::rival("rates3/governor", "governor, monotonic clock, x3", move || {
            governors.iter().for_each(governor::Governor::granted);
        })
        .note(in_a_row),
        Row::rival("rates3/ratelimit", "ratelimit, x3", move || {
            buckets.iter().for_each(ratelimit::Bucket::granted);
        })
        .note(in_a_row),
        Row::rival("rates3/leaky", "leaky-bucket, x3", move || leaky.iter().for_each(leaky::Bucket::granted))
            .note(in_a_row),
        Row::rival("rates3/limitador", "limitador, in memory, 3 limits", move || limitador.granted())
            .note("one process only; one call"),
    ];
    rows.extend(redis_rows("rates3/redis", "rates3/redis-pinned", 3, redis, Client::granted));
    Group::new("3 rate limits, granted", "rates3/governor", rows)
}

fn three_with_permit() -> Group<Row> {
    let permits = tokio::Three::new();
    let (posix, robust, raw) = (Posix::new(64), Robust::new(), Raw::new());
    let no_rates = "permits only, no rates";
    let rows = vec![
        take("three/ours", "limitset, try + release", ours::usual(), Clock::Monotonic),
        take_owned("three/ours-owned", ours::usual()),
        take("three/ours-coarse", "limitset, try + release, coarse clock", ours::usual(), Clock::Coarse),
        Row::rival("three/tokio", "tokio `Semaphore`, x3", move || permits.take_and_give())
            .note("one process only; permits only, three in a row, not together"),
        sysv("three/sysv", 3, "SysV semaphores, SEM_UNDO, 3 in one call").note(no_rates),
        Row::rival("three/posix", "POSIX semaphores, shared, x3", move || posix.take_and_give(3))
            .note("permits only, three in a row, not together; lost when their holder dies"),
        Row::rival("three/robust", "robust pthread mutex + 3 counters", move || robust.take_and_give(3))
            .note("permits only; lost when their holder dies"),
        Row::rival("three/raw", "raw_sync mutex + 3 counters", move || raw.take_and_give(3))
            .note("permits only; stuck when their holder dies"),
        flock("three/flock", 3),
        floor::row("three/floor", Some(("the clock", libc::CLOCK_MONOTONIC)), 2),
    ];
    Group::new(
        "3 limits with a permit (call, tokens, connection), acquired and released",
        "rate1/governor",
        rows,
    )
}

fn denial(redis: &Result<Rc<Server>, String>) -> Group<Row> {
    let (exact, fast) = (governor::monotonic(governor::little()), governor::fast(governor::little()));
    exact.granted();
    fast.granted();
    let (ratelimit, leaky) = (ratelimit::Bucket::empty(), leaky::Bucket::empty());
    let (limitador, permits, posix) = (limitador::Limits::new(1, 0), tokio::Permits::new(0), Posix::new(0));
    let one_process = "one process only";
    let mut rows = vec![
        refuse("denied/ours", "limitset, 1 rate", vec![spent()]),
        refuse("denied/ours-permit", "limitset, 1 permit", vec![ours::permit("p", 1)]),
        refuse("denied/ours3", "limitset, 3 limits, the rate denied", {
            vec![spent(), ours::rate("tokens"), ours::permit("connections", 64)]
        }),
        Row::rival("denied/governor", "governor, monotonic clock", move || exact.denied()).note(one_process),
        Row::rival("denied/governor-fast", "governor, fast clock", move || fast.denied()).note(one_process),
        Row::rival("denied/ratelimit", "ratelimit", move || ratelimit.denied()).note(one_process),
        Row::rival("denied/leaky", "leaky-bucket", move || leaky.denied()).note(one_process),
        Row::rival("denied/limitador", "limitador, in memory", move || limitador.denied()).note(one_process),
        Row::rival("denied/tokio", "tokio `Semaphore`", move || permits.denied()).note(one_process),
        match Sysv::new(1, 0) {
            Ok(it) => Row::rival("denied/sysv", "SysV semaphore", move || it.denied()),
            Err(why) => Row::not_run("denied/sysv", Whose::Theirs, "SysV semaphore", &why),
        },
        Row::rival("denied/posix", "POSIX semaphore, shared", move || posix.denied()),
    ];
    let denied = |redis: &Server| redis.refused_client(3);
    rows.extend(redis_rows_of("denied/redis", "denied/redis-pinned", 3, redis, denied, Client::denied));
    Group::new("Denied", "denied/governor", rows)
}

/// Returns a rate that the first request exhausts.
fn spent() -> Limit {
    limitset::CallLimit::per_day(1).algorithm(limitset::Algorithm::Gcra).into()
}

fn take(key: &'static str, name: &str, limits: Vec<Limit>, clock: Clock) -> Row {
    let temp = TempSet::new(limits, clock);
    let request = ours::one_of_each(&temp.set);
    Row::ours(key, name, move || ours::take_and_give(&temp.set, &request))
}

/// Returns a row with an acquisition that could outlive the caller's set.
fn take_owned(key: &'static str, limits: Vec<Limit>) -> Row {
    let temp = TempSet::new(limits, Clock::Monotonic);
    let request = ours::one_of_each(&temp.set);
    let op = move || ours::take_and_give_owned(&temp.set, &request);
    Row::ours(key, "limitset, try + release, owned", op)
        .note("may outlive the caller's set: users are counted")
}

fn charge(key: &'static str, name: &str, clock: Clock) -> Row {
    let temp = TempSet::new(vec![ours::call()], clock);
    let request = ours::one_of_each(&temp.set);
    let op = move || _ = temp.set.try_charge(&request).expect("granted");
    Row::ours(key, name, op).note("charges, holds nothing: the work of `governor`'s check")
}

/// Returns a row whose first request takes everything, so that all later requests are denied.
fn refuse(key: &'static str, name: &str, limits: Vec<Limit>) -> Row {
    let temp = TempSet::new(limits, Clock::Monotonic);
    let request = ours::one_of_each(&temp.set);
    let held = temp.set.try_acquire(&request).expect("the first is granted");
    Row::ours(key, name, move || {
        let _held = &held;
        ours::denied(&temp.set, &request);
    })
    .note("names the limits that deny, and when to retry")
}

/// Returns a row with the crate's semaphore, without a set.
fn shared_semaphore() -> Row {
    let name = unique("semaphore");
    let segment = Segment::options().semaphore("p", 64).create(&name).expect("a segment");
    let semaphore = segment.semaphore("p").expect("a semaphore");
    let segment = TempSegment(segment);
    Row::ours("permit1/ours-semaphore", "limitset, `SharedSemaphore`", move || {
        let _segment = &segment;
        semaphore.try_acquire(1).expect("a permit").release().expect("released");
    })
}

/// A segment that is removed on drop.
struct TempSegment(Segment);

impl Drop for TempSegment {
    fn drop(&mut self) {
        // The segment may have been removed by hand.
        let _ = self.0.remove_here();
    }
}

fn sysv(key: &'static str, count: u16, name: &str) -> Row {
    match Sysv::new(count, 64) {
        Ok(it) => Row::rival(key, name, move || it.take_and_give()),
        Err(why) => Row::not_run(key, Whose::Theirs, name, &why),
    }
}

fn flock(key: &'static str, count: usize) -> Row {
    let name = if count == 1 { "flock + counter" } else { "flock + 3 counters" };
    match Flock::new() {
        Ok(it) => {
            let opened = it.open();
            Row::rival(key, name, move || opened.take_and_give(count)).note("lost when its holder dies")
        }
        Err(why) => Row::not_run(key, Whose::Theirs, name, &why),
    }
}

fn redis_rows(
    key: &'static str,
    pinned: &'static str,
    buckets: usize,
    redis: &Result<Rc<Server>, String>,
    op: fn(&mut Client),
) -> [Row; 2] {
    redis_rows_of(key, pinned, buckets, redis, move |server| server.client(buckets), op)
}

/// Returns two rows: unpinned, and on one processor with the server, which then need not be woken from
/// idleness.
fn redis_rows_of(
    key: &'static str,
    pinned_key: &'static str,
    buckets: usize,
    redis: &Result<Rc<Server>, String>,
    client: impl Fn(&Server) -> Client,
    op: fn(&mut Client),
) -> [Row; 2] {
    let name = format!("Redis, Unix socket, {buckets} token bucket{}", if buckets == 1 { "" } else { "s" });
    let pinned_name = format!("{name}, same CPU");
    match redis {
        Err(why) => [(key, name), (pinned_key, pinned_name)]
            .map(|(key, name)| Row::not_run(key, Whose::Theirs, name, why)),
        Ok(server) => {
            let (mut free, mut pinned) = (client(server), client(server));
            let free = Row::rival(key, name, move || op(&mut free));
            let mut pinned = Row::rival(pinned_key, pinned_name, move || op(&mut pinned))
                .note("pinned with its server: claims use this row");
            let (server, mut inner) = (Rc::clone(server), pinned.measure);
            let cpu = sys::cpus()[0];
            pinned.measure = Box::new(move |batch| {
                let everywhere = sys::affinity(0).map_err(|error| error.to_string())?;
                sys::lock_mapping(cpu);
                server.pin(Some(cpu), &everywhere);
                let result = inner(batch);
                server.pin(None, &everywhere);
                sys::set_affinity(0, &everywhere);
                result
            });
            [free, pinned]
        }
    }
}
