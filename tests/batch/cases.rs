//! The batches: how many workers and items, what the provider answers, and what must come of it.

use std::time::Duration;

use limitset::{CallLimit, Clock, Cooldown, LimitSet, QueueOptions, Reason, ResourceLimit, SegmentOptions};

use crate::conductor::{Outcome, run};
use crate::judge;
use crate::provider::Provider;
use crate::support::{TempName, depth, proof};
use crate::{MS, no_slices, short_slices};

pub(crate) const TESTS: [(&str, fn()); 7] = [
    ("items_that_are_rejected_are_executed_as_often_as_needed_and_done_once", || undisturbed()),
    ("calls_that_are_all_rejected_at_once_begin_one_pause_and_resume_spaced", || together()),
    ("items_that_are_always_rejected_become_dead_letters_with_their_counts", || exactly("never accepted")),
    ("items_whose_workers_always_die_become_dead_letters_with_their_counts", || exactly("deadly")),
    ("no_item_is_lost_or_with_two_workers_or_done_twice_while_workers_are_killed", || killed(patient)),
    ("by_default_what_lost_three_workers_is_a_dead_letter_while_workers_are_killed", || killed(by_default)),
    ("dead_letters_of_all_kinds_keep_their_counts_while_workers_are_killed", || all_kinds_killed()),
];

/// A batch.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workers: usize,
    pub(crate) items: usize,
    /// Places in the queue.
    places: u32,
    connections: u64,
    calls_per_second: u64,
    pub(crate) attempts: u32,
    pub(crate) rate_limits: u32,
    /// How often an item is rejected before it is not.
    pub(crate) rejections: fn(u64) -> u64,
    /// Whether the worker that calls about an item is killed, unless the call is rejected.
    pub(crate) is_deadly: fn(u64) -> bool,
    /// Whether the first call about each item waits until all of them are in flight.
    pub(crate) together: bool,
    /// Whether the slices are short, because workers die.
    has_deaths: bool,
    /// The number if only workers whose call hangs are killed.
    pub(crate) executions: u64,
}

const ATTEMPTS: u32 = 3;
const RATE_LIMITS: u32 = 20;

const PLAIN: Case = Case {
    name: "",
    workers: 0,
    items: 0,
    places: 100,
    connections: 4,
    calls_per_second: 20,
    attempts: ATTEMPTS,
    rate_limits: RATE_LIMITS,
    rejections: |_| 1,
    is_deadly: |_| false,
    together: false,
    has_deaths: false,
    executions: 0,
};

/// Of 20 items, rejected 20 times in all: of all calls, half. Most of them never, some again and again.
fn half_of_all_calls(id: u64) -> u64 {
    const TIMES: [u64; 20] = [0, 1, 0, 2, 0, 0, 5, 1, 0, 1, 0, 3, 1, 0, 0, 2, 0, 1, 0, 3];
    TIMES[usize::try_from(id * 7 % 20).unwrap()]
}

/// What the issue names, as it is and with places for half of the items, so that they are used again.
const ONCE: Case = Case { name: "10/10, all rejected once", workers: 10, items: 10, executions: 20, ..PLAIN };
const TWICE: Case = Case {
    name: "5/15, rejected twice each",
    workers: 5,
    items: 15,
    rejections: |_| 2,
    executions: 45,
    ..PLAIN
};
const HALF: Case = Case {
    name: "5/20, half rejected",
    workers: 5,
    items: 20,
    places: 10,
    rejections: |id| id % 2,
    executions: 30,
    ..PLAIN
};
const MANY: Case = Case {
    name: "20/100, half of all calls rejected",
    workers: 20,
    items: 100,
    places: 40,
    connections: 12,
    calls_per_second: 100,
    rejections: half_of_all_calls,
    executions: 200,
    ..PLAIN
};
/// So patient that most items get through whoever is killed, and some may not.
const PATIENT: u32 = 5;

pub(crate) static CASES: [Case; 16] = [
    ONCE,
    TWICE,
    HALF,
    MANY,
    Case { attempts: PATIENT, has_deaths: true, ..ONCE },
    Case { attempts: PATIENT, has_deaths: true, ..TWICE },
    Case { attempts: PATIENT, has_deaths: true, ..HALF },
    Case { attempts: PATIENT, has_deaths: true, ..MANY },
    Case { has_deaths: true, ..ONCE },
    Case { has_deaths: true, ..TWICE },
    Case { has_deaths: true, ..HALF },
    Case { has_deaths: true, ..MANY },
    Case { name: "together", connections: 10, together: true, ..ONCE },
    Case {
        name: "never accepted",
        workers: 5,
        items: 15,
        rate_limits: 4,
        rejections: |id| if id % 5 == 0 { u64::MAX } else { id % 2 },
        // 3 items 4 times; of the others 6 twice and 6 once.
        executions: 30,
        ..PLAIN
    },
    Case {
        name: "deadly",
        workers: 5,
        items: 15,
        is_deadly: |id| id % 5 == 2,
        has_deaths: true,
        // Rejected once; then 3 times in vain, or once.
        executions: 3 * 4 + 12 * 2,
        ..PLAIN
    },
    Case {
        name: "all kinds",
        workers: 8,
        items: 40,
        places: 20,
        rate_limits: 4,
        rejections: |id| if id % 5 == 0 { u64::MAX } else { id % 3 },
        is_deadly: |id| id % 7 == 3,
        has_deaths: true,
        ..PLAIN
    },
];

impl Case {
    fn named(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    /// Its place in the table, by which workers find it.
    pub(crate) fn index(&self) -> usize {
        CASES.iter().position(|case| std::ptr::eq(case, self)).unwrap()
    }

    pub(crate) fn slices(&self) -> SegmentOptions {
        if self.has_deaths { short_slices() } else { no_slices() }
    }

    pub(crate) fn create(&self, name: &TempName) -> LimitSet {
        let cooldown = Cooldown::default().first(Duration::from_secs(1)).jitter(0.0);
        let options = Provider::words(self.slices().slots(48).waiters(64), self);
        LimitSet::builder()
            .limit(CallLimit::per_second(self.calls_per_second))
            .limit(ResourceLimit::new("connections", self.connections))
            .cooldown(cooldown.slow_start(SPACED, FIRST_GAP, LAST_GAP))
            .queue(QueueOptions::new(self.places, 16).attempts(self.attempts).rate_limits(self.rate_limits))
            .clock(Clock::Manual)
            .segment(options)
            .create(name)
            .unwrap()
    }

    /// The time in which another call is allowed.
    pub(crate) fn between_calls(&self) -> Duration {
        Duration::from_secs(1) / u32::try_from(self.calls_per_second).unwrap()
    }

    /// Attempts, 429s and the end of an item, if only workers whose call hangs are killed.
    pub(crate) fn expected(&self, id: u64) -> (u64, u64, Option<Reason>) {
        let (rejections, most) = ((self.rejections)(id), u64::from(self.rate_limits));
        if rejections >= most {
            (0, most, Some(Reason::RateLimits))
        } else if (self.is_deadly)(id) {
            (self.attempts.into(), rejections, Some(Reason::Attempts))
        } else {
            (1, rejections, None)
        }
    }
}

/// The slow start of every case: gaps of 20, 18, … 2 ms.
const SPACED: u32 = 10;
const FIRST_GAP: Duration = Duration::from_millis(20);
const LAST_GAP: Duration = Duration::from_millis(2);

fn exactly(name: &str) {
    let case = Case::named(name);
    let outcome = run(case, 0, 0, judge::exact);
    let dead = outcome.dead_letters();
    assert_eq!(dead.len(), 3, "{dead:?}");
    let (executions, hung) = (case.executions, outcome.hung);
    let counts = format!("{} attempts and {} 429s each", dead[0].attempts, dead[0].rate_limits);
    let result = format!("{executions} executions, {hung} kills; 12 done, 3 dead letters after {counts}");
    proof("1,3", &format!("5 workers, 15 items, 3 of them {name}"), &result);
    assert_eq!(hung, if name == "deadly" { 9 } else { 0 });
}

/// With slices of an hour: no process dies, so no waiter needs a slice.
fn undisturbed() {
    for case in [&CASES[0], &CASES[1], &CASES[2], &CASES[3]] {
        let (mut pauses, mut absorbed) = (0, 0);
        let rounds = depth(2, 30);
        for seed in 0..rounds {
            let outcome = run(case, 0, seed, judge::exact);
            assert_eq!((outcome.stats.queue.unwrap().done, outcome.kills), (case.items as u64, 0));
            pauses += outcome.stats.cooldown.generation;
            absorbed += outcome.stats.cooldown.absorbed;
        }
        let executions = case.executions;
        let result = format!(
            "{rounds} runs: each item done once after exactly {executions} executions, {pauses} pauses begun, {absorbed} \
             late reports absorbed, 0 slices needed"
        );
        proof("2,7", &format!("workers/items {}", case.name), &result);
    }
}

fn together() {
    let case = Case::named("together");
    for seed in 0..depth(3, 30) {
        let outcome = run(case, 0, seed, judge::exact);
        let pauses = outcome.stats.cooldown;
        assert_eq!((pauses.generation, pauses.absorbed, pauses.participants), (1, 9, 10));
        // All at once, then a second of nothing, then one by one.
        let spaced = (0..9).map(|place| 20 * MS - place * (2 * MS));
        let expected: Vec<_> =
            [Duration::ZERO; 9].into_iter().chain([Duration::from_secs(1)]).chain(spaced).collect();
        assert_eq!(outcome.gaps(), expected);
    }
    proof(
        "2,7",
        "10 workers whose first calls are all rejected",
        "1 pause, 9 reports absorbed, 10 resume spaced",
    );
}

fn patient(case: &Case) -> bool {
    case.has_deaths && case.attempts == PATIENT
}

fn by_default(case: &Case) -> bool {
    case.has_deaths && case.attempts == ATTEMPTS && case.name.contains('/')
}

/// The four cases that `choice` is for, and workers that are killed at random.
fn killed(choice: fn(&Case) -> bool) {
    let cases: Vec<&Case> = CASES.iter().filter(|case| choice(case)).collect();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let mut sum = Sum::default();
        for seed in 0..depth(2, 60) {
            let kills = 3 * case.workers as u64;
            sum.add(&run(case, kills, 1 + seed, judge::always));
        }
        sum.tell(&format!("workers/items {}, at most {} attempts", case.name, case.attempts));
    }
}

fn all_kinds_killed() {
    let case = Case::named("all kinds");
    let mut sum = Sum::default();
    for seed in 0..depth(2, 60) {
        let outcome = run(case, 10, 100 + seed, judge::always);
        let dead = outcome.dead_letters();
        for end in &outcome.ends {
            let (.., reason) = case.expected(end.id);
            // Kills can only add dead letters: what must become one does.
            assert!(reason.is_none() || end.reason.is_some(), "{end:?}");
        }
        assert!(dead.iter().any(|end| end.reason == Some(Reason::RateLimits)), "{dead:?}");
        assert!(dead.iter().any(|end| end.reason == Some(Reason::Attempts)), "{dead:?}");
        sum.add(&outcome);
    }
    sum.tell("8 workers, 40 items: some always rejected, some deadly, some neither");
}

/// The results of several runs.
#[derive(Default)]
struct Sum {
    runs: u64,
    kills: u64,
    returned: u64,
    done: u64,
    dead_letters: u64,
    taken: u64,
    pauses: u64,
    stolen: u64,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        let queue = outcome.stats.queue.unwrap();
        assert!(outcome.kills > 0, "nobody was killed: the test did not test");
        self.runs += 1;
        self.kills += outcome.kills + outcome.hung;
        self.returned += queue.returned;
        self.done += queue.done;
        self.dead_letters += queue.dead_lettered;
        self.taken += queue.taken;
        self.pauses += outcome.stats.cooldown.generation;
        self.stolen += outcome.stats.steals;
    }

    fn tell(&self, what: &str) {
        let Self { runs, kills, returned, done, dead_letters, taken, pauses, stolen } = self;
        assert!(*returned > 0, "no kill hit somebody with an item: the test did not test");
        let result = format!(
            "{runs} runs, {kills} kills: {taken} hand-outs, {returned} returned from the dead, {pauses} pauses, {stolen} \
             locks stolen; {done} done once, {dead_letters} dead letters with their counts, 0 lost, 0 with two at a time"
        );
        proof("1,2,3", &format!("{what}, workers killed at random"), &result);
    }
}
