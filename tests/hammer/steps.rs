//! Step by step with a clock, and parameters, that only the test changes, while all processes hammer without a pause.
//!
//! After each change the test waits for a refusal by a rate: then that rate is empty, and stays so until the next
//! change. So the number of grants at that instant is exactly that of the reference, be it in the middle of the
//! tumult. A killed process changes nothing about that: what it was granted is in the set.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::{AcquireError, Algorithm, Clock, Limit, LimitSet, ResourceLimit};
use nix::sys::signal::Signal;

use crate::reference::{Numbers, Rates};
use crate::support::{Random, TempName, Worker, depth, proof};
use crate::{
    CALLS, Case, DROPPED, GRANTS, MOST_INSIDE, UNITS, check_end, check_whole, for_each_case, is_by_rate,
    refusals, shared, stats, stop,
};

/// What disturbs a run.
#[derive(Clone, Copy)]
struct Trouble {
    steps: u64,
    kills: bool,
    changes: bool,
}

/// What all runs came to.
#[derive(Default)]
struct Sum {
    runs: u64,
    steps: u64,
    grants: u64,
    by_units: u64,
    by_calls: u64,
    refusals: u64,
    kills: u64,
    changes: u64,
    steals: u64,
    recoveries: u64,
    reaped: u64,
}

pub(crate) fn undisturbed() {
    let sum = run(Trouble { steps: depth(150, 3_000), kills: false, changes: false });
    proof(
        "1,2",
        "2, 4 and 8 processes of two threads hammer a set, each algorithm, clock in steps",
        &sum.text(),
    );
}

pub(crate) fn with_kills() {
    let sum = run(Trouble { steps: depth(30, 500), kills: true, changes: false });
    proof("1,2,3", "the same while processes are killed at random", &sum.text());
    assert!(sum.reaped > 0, "no kill hit a holder of permits: the test did not test");
}

pub(crate) fn with_changes() {
    let sum = run(Trouble { steps: depth(150, 3_000), kills: false, changes: true });
    proof("1,2", "the same while `reconfigure` changes all three limits", &sum.text());
}

pub(crate) fn with_kills_and_changes() {
    let sum = run(Trouble { steps: depth(16, 300), kills: true, changes: true });
    proof("1,2,3", "the same with kills and `reconfigure`", &sum.text());
}

fn run(trouble: Trouble) -> Sum {
    let mut sum = Sum::default();
    for_each_case(|case| {
        let before = sum.kills;
        one_case(case, trouble, &mut sum);
        assert!(!trouble.kills || sum.kills > before);
    });
    assert!(sum.by_units > 0 && sum.by_calls > 0, "one rate was never in the way");
    sum
}

impl Sum {
    fn text(&self) -> String {
        let Self { runs, steps, grants, by_units, by_calls, refusals, .. } = self;
        let mut text = format!(
            "{runs} runs, {steps} instants: {grants} grants, exactly the reference's at each of them ({by_units} \
             times units were in the way, {by_calls} times calls), {refusals} refusals, 0 in part, 0 left over"
        );
        if self.kills > 0 {
            let Self { kills, steals, recoveries, reaped, .. } = self;
            text += &format!(
                "; {kills} kills, {steals} locks stolen, {recoveries} updates undone, {reaped} permits of the dead \
                 returned"
            );
        }
        if self.changes > 0 {
            text += &format!("; {} changes of all numbers", self.changes);
        }
        text
    }
}

fn one_case(case: Case, trouble: Trouble, sum: &mut Sum) {
    let name = TempName::new();
    let set = case.create(&name, Clock::Manual, 1);
    let mut workers = case.start("hammer", &name);
    workers.iter_mut().for_each(|worker| worker.expect("ready"));
    let mut random = Random::new(case.processes + trouble.steps);
    let mut rates = Rates::new(case.units, case.calls);
    let (mut expected, mut revision, mut most_permits) = (0, 0, case.permits);
    let mut killed = 0;
    for step in 0..trouble.steps {
        // Only one thing changes between two instants at which the state is known: what came first, a grant or the
        // second change, nobody could tell.
        if step > 0 && trouble.changes && random.below(3) == 0 {
            let (units, calls) = (other(case.units, &mut random), other(case.calls, &mut random));
            let permits = 1 + random.below(2 * case.processes);
            rates.units.reconfigure(units);
            rates.calls.reconfigure(calls);
            reconfigure(&set, units, calls, permits);
            revision += 1;
            most_permits = most_permits.max(permits);
        } else if step > 0 {
            let nanos = some_time(&mut random, &rates);
            rates.advance(nanos);
            set.advance(Duration::from_nanos(nanos)).unwrap();
        }
        let victims = if trouble.kills { some_of(case.processes, &mut random) } else { Vec::new() };
        if !victims.is_empty() {
            // The kills shall fall anywhere into the work that has just become possible.
            std::thread::sleep(Duration::from_micros(random.below(1_500)));
        }
        victims.iter().for_each(|victim| workers[*victim].signal(Signal::SIGKILL));
        for victim in &victims {
            workers[*victim].kill();
            killed += 1;
            let seed = (1_000 + killed).to_string();
            workers[*victim] = Worker::start("hammer", &[&name.0, &seed]);
        }
        let (granted, calls_bind) = rates.drain(UNITS, CALLS);
        expected += granted;
        sum.by_calls += u64::from(calls_bind);
        sum.by_units += u64::from(!calls_bind);
        let stats = drained(&set, most_permits);
        let found = check_whole(&stats);
        assert_eq!(found, expected, "granted after step {step} of {case:?}, {rates:?}");
        let revisions: Vec<u64> = stats.limits.iter().map(|limit| limit.revision).collect();
        assert_eq!(revisions, [revision; 3]);
        victims.iter().for_each(|victim| workers[*victim].expect("ready"));
    }
    if trouble.kills {
        let nanos = case.units.window;
        rates.advance(nanos);
        set.advance(Duration::from_nanos(nanos)).unwrap();
        std::thread::sleep(Duration::from_micros(random.below(1_500)));
        workers.iter().for_each(|worker| worker.signal(Signal::SIGKILL));
        workers.iter_mut().for_each(Worker::kill);
        killed += case.processes;
        alone(&set);
        expected += rates.drain(UNITS, CALLS).0;
    } else {
        stop(&set, &mut workers);
    }
    let stats = stats(&set);
    assert_eq!(check_whole(&stats), expected, "granted after the last step of {case:?}");
    check_end(&stats);
    let words = shared(&set);
    let (counted, dropped) = (words[GRANTS].load(SeqCst), words[DROPPED].load(SeqCst));
    let unreported = stats.limit("units").unwrap().unreported;
    if trouble.kills {
        assert!(counted <= expected && dropped <= unreported, "the dead may have failed to count");
    } else {
        assert_eq!((counted, dropped), (expected, unreported));
        let most_inside = words[MOST_INSIDE].load(SeqCst);
        assert!(most_inside <= most_permits, "{most_inside} held one of {most_permits} permits");
        assert_eq!((stats.steals, stats.recoveries, stats.reaped_permits), (0, 0, 0), "nobody died");
    }
    sum.runs += 1;
    sum.steps += trouble.steps;
    sum.grants += expected;
    sum.refusals += refusals(&stats);
    sum.kills += killed;
    sum.changes += revision;
    sum.steals += stats.steals;
    sum.recoveries += stats.recoveries;
    sum.reaped += stats.reaped_permits;
    set.remove().unwrap();
}

/// All processes are dead: their permits return, and all that is left of the rates can be acquired.
fn alone(set: &LimitSet) {
    let held = stats(set).limit("permits").unwrap().in_use;
    assert_eq!(set.reap().unwrap(), held);
    loop {
        match set.try_acquire([("units", UNITS)]) {
            Ok(acquired) => drop(acquired),
            Err(AcquireError::Denied(denial)) if is_by_rate(&denial) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Waits until a rate has refused after now, and looks at the set all the while.
fn drained(set: &LimitSet, most_permits: u64) -> limitset::Stats {
    let before = refusals(&stats(set));
    loop {
        let stats = stats(set);
        check_whole(&stats);
        let in_use = stats.limit("permits").unwrap().in_use;
        assert!(in_use <= most_permits, "{in_use} of {most_permits} permits are out");
        if refusals(&stats) > before {
            return stats;
        }
        std::thread::yield_now();
    }
}

/// At least one, at most all of them.
fn some_of(processes: u64, random: &mut Random) -> Vec<usize> {
    let certain = random.below(processes);
    let chosen = (0..processes).filter(|it| *it == certain || random.below(2) == 0);
    chosen.map(|it| usize::try_from(it).unwrap()).collect()
}

/// From a nanosecond to several windows; mostly a part of one, and often to where something ends or just before.
fn some_time(random: &mut Random, rates: &Rates) -> u64 {
    let rate = if random.below(2) == 0 { &rates.units } else { &rates.calls };
    let window = rate.numbers.window;
    match random.below(10) {
        0 => 1 + random.below(5_000),
        1 => window + random.below(3 * window),
        // The last grants become a window old.
        2 => window - random.below(2),
        // The next window that is aligned begins.
        3 => (window - rate.at % window).saturating_sub(random.below(2)),
        4 => rate.numbers.sub_window(),
        _ => random.below(window / 2),
    }
}

/// Numbers up to twice as large, or down to a third. A sliding window keeps its length: what it remembers of the
/// time before a longer one is not promised to the unit.
fn other(first: Numbers, random: &mut Random) -> Numbers {
    let mut near = |number: u64| number / 3 + random.below(number * 5 / 3);
    let (capacity, window) = (near(first.capacity), near(first.window));
    let burst = if first.algorithm.has_burst() { near(first.burst) } else { capacity };
    let window = if first.algorithm == Algorithm::SlidingWindow { first.window } else { window };
    Numbers { capacity, window, burst, ..first }
}

fn reconfigure(set: &LimitSet, units: Numbers, calls: Numbers, permits: u64) {
    let limits: [Limit; 3] =
        [units.units().into(), calls.calls().into(), ResourceLimit::new("permits", permits).into()];
    set.reconfigure(limits).unwrap();
}
