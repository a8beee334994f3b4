//! What does each clock cost, and how much does it save to resolve keys beforehand?

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use limitset::Clock;

use crate::batches::{Plan, Row};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};

const QUESTION: &str = "What does each clock cost, and how much do resolved requests save over string keys?";

pub fn run(plan: Plan) -> Bench {
    Bench::measure("clocks", QUESTION, vec![readings(), sets(), keys()], plan, None)
}

fn readings() -> Group<Row> {
    let quanta = governor::clock::QuantaClock::default();
    let rows = vec![
        system_clock("read/monotonic", "CLOCK_MONOTONIC", libc::CLOCK_MONOTONIC),
        system_clock("read/coarse", "CLOCK_MONOTONIC_COARSE", libc::CLOCK_MONOTONIC_COARSE),
        system_clock("read/boottime", "CLOCK_BOOTTIME", libc::CLOCK_BOOTTIME),
        Row::rival("read/instant", "`Instant::now`", || _ = black_box(Instant::now())),
        Row::rival("read/quanta", "governor's fast clock", move || {
            _ = black_box(governor::clock::Clock::now(&quanta));
        }),
    ];
    Group::new("Reading a clock", "read/monotonic", rows)
}

fn system_clock(key: &'static str, name: &'static str, id: libc::clockid_t) -> Row {
    Row::rival(key, name, move || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: filled by the kernel, and outlives the call.
        unsafe { libc::clock_gettime(id, &raw mut now) };
        black_box(now);
    })
}

fn sets() -> Group<Row> {
    let row = |key: &'static str, clock: Clock| {
        let temp = TempSet::new(vec![ours::call()], clock);
        let request = ours::one_of_each(&temp.set);
        Row::ours(key, format!("limitset, 1 rate, {} clock", clock.name()), move || {
            ours::take_and_give(&temp.set, &request);
        })
    };
    let rows = vec![
        row("clock/monotonic", Clock::Monotonic),
        row("clock/coarse", Clock::Coarse),
        row("clock/manual", Clock::Manual).note("stands still: the cost without a clock"),
    ];
    Group::new("A set with each clock", "clock/monotonic", rows)
}

fn keys() -> Group<Row> {
    let temp = || TempSet::new(ours::usual(), Clock::Monotonic);
    let (one, two, three) = (temp(), temp(), temp());
    let request = ours::usual_request(&one.set);
    let map = HashMap::from([("tokens", 1)]);
    let give = |held: limitset::Acquisition<&limitset::LimitSet>| held.release().expect("released");
    let rows = vec![
        Row::ours("keys/resolved", "resolved request", move || ours::take_and_give(&one.set, &request)),
        Row::ours("keys/array", "`[(\"tokens\", 1)]`", move || {
            give(two.set.try_acquire_ref([("tokens", 1)]).expect("granted"));
        }),
        Row::ours("keys/map", "`&HashMap`", move || {
            give(three.set.try_acquire_ref(&map).expect("granted"));
        }),
    ];
    Group::new("3 limits with a permit, by string keys", "keys/resolved", rows)
}
