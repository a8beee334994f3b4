//! Death at every machine instruction of what a queue goes through, and at real ones.
//!
//! A victim does one thing to a real set in which others wait, single-stepped: joins the queue, makes room for those
//! who wait, collects a grant, leaves, cleans up after a waiter. After every instruction that changed a byte the
//! segment is copied to another file, where the victim is dead. An observer who may not write looks at the copy, then
//! a healthy participant recovers it. From the first instruction to the last the words may only go from the state
//! before to the state after, in as many steps as the act has transactions. In each of them the queue is whole, and a
//! grant has charged all of what its waiter wanted, or there is none.
//!
//! The healthy one has the same name in the copy as the one who moves the original, so a place in the queue that was
//! taken there is its own here: a living waiter, who was there before the death. It looks when it is rung, never
//! otherwise, and must get through.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "crash_queue/acts.rs"]
mod acts;
#[path = "support/hands.rs"]
mod hands;
#[path = "support/mutant.rs"]
mod mutant;
#[path = "crash_queue/queue.rs"]
mod queue;
#[path = "support/stepped.rs"]
mod stepped;
#[path = "support/mod.rs"]
mod support;
#[path = "crash_queue/survivors.rs"]
mod survivors;
#[path = "support/victim.rs"]
mod victim;

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use acts::{A_WHILE, Act, Ask, NO_SLICE};
use limitset::engine::{Admitted, Charge, Ending, Engine};
use limitset::protocol::NEVER;
use mutant::{Class, Effect, Mutant, Mutation};
use stepped::{Points, Tally, die_in_copies};
use support::{Random, TempName, Worker};
use survivors::{Before, Found, Mine, Side};
use victim::Victim;

const PROMISES: &str = "1,2,3,7";
/// These sets have no work queue.
const WORK_WORDS: usize = 0;
const ITEM_WORDS: usize = 0;
/// Runs with a death at every instruction, each from another state.
const RUNS: u64 = 2;
const RUNS_FULL: u64 = 30;
/// Real kills, spread over all instructions of an act.
const KILLS: u64 = 24;
const KILLS_FULL: u64 = 200;
/// Fewer where the way to the first change is long.
const KILLS_OF_ENROL: u64 = 10;
const KILLS_OF_ENROL_FULL: u64 = 60;
/// At the usual depth one copy of so many is also left to somebody who comes when all are dead.
const INHERITED: u64 = 8;
/// How soon a blocked process finds the dead.
const SHORT: Duration = Duration::from_millis(2);

/// A test that an act survives.
macro_rules! survives {
    ($name:literal, $act:ident) => {
        ($name, || survives(Act::$act))
    };
}

fn main() {
    support::main(
        &[("act", act_role), ("queue", queue_role), ("block", block_role), ("mutated", mutated_role)],
        vec![
            survives!("joining_the_queue_survives_death_at_every_instruction", Enqueue),
            survives!("giving_up_survives_death_at_every_instruction", GiveUp),
            survives!("a_release_that_grants_survives_death_at_every_instruction", Release),
            survives!("a_refund_that_grants_survives_death_at_every_instruction", Refund),
            survives!("a_reconfigure_that_grants_survives_death_at_every_instruction", Reconfigure),
            survives!("an_advance_that_grants_survives_death_at_every_instruction", Advance),
            survives!("collecting_survives_death_at_every_instruction", Collect),
            survives!("cancelling_survives_death_at_every_instruction", Cancel),
            survives!("cancelling_a_grant_survives_death_at_every_instruction", CancelGranted),
            survives!("reaping_a_waiter_survives_death_at_every_instruction", Reap),
            survives!("reaping_a_granted_waiter_survives_death_at_every_instruction", ReapGranted),
            survives!("attaching_after_a_granted_waiter_survives_death_at_every_instruction", Enrol),
            ("mutants_of_a_grant_are_caught", mutants_are_caught),
        ],
    );
}

// ---- what other processes do ----

fn act_role(arguments: &[String]) {
    let (act, ask) = (Act::named(&arguments[1]), Ask::from_text(&arguments[2]));
    let attach = || acts::builder(NO_SLICE).attach(&arguments[0]).unwrap();
    if act == Act::Enrol {
        let elsewhere = TempName::new();
        let first = acts::builder(NO_SLICE).create(&elsewhere).unwrap();
        drop((acts::builder(NO_SLICE).attach(&elsewhere).unwrap(), first, elsewhere));
        victim::stop_here();
        std::mem::forget(attach());
        victim::leave();
    }
    let set = attach();
    acts::rehearse(act);
    let has = act.prepare(&set, &ask);
    victim::stop_here();
    act.perform(&set, &ask, has);
    victim::leave();
}

/// Joins the queue, says so, and waits to be killed.
fn queue_role(arguments: &[String]) {
    let set = acts::builder(NO_SLICE).attach(&arguments[0]).unwrap();
    let asked = acts::ask_for(&set, &Ask::from_text(&arguments[1]));
    support::say("waiting");
    support::listen();
    drop(asked);
}

/// Acquires whatever it is told to, however long that takes.
fn block_role(arguments: &[String]) {
    let slice = Duration::from_nanos(arguments[1].parse().unwrap());
    let set = acts::builder(slice).attach(&arguments[0]).unwrap();
    support::say("ready");
    loop {
        let ask = Ask::from_text(&support::listen());
        let mut held = set.acquire(ask.request()).unwrap();
        support::say("through");
        support::listen();
        held.settle("bytes", ask.bytes).unwrap();
        held.release().unwrap();
        support::say("released");
    }
}

/// Releases as a set does it, in an environment with a defect.
fn mutated_role(arguments: &[String]) {
    let set = acts::builder(NO_SLICE).attach(&arguments[0]).unwrap();
    let wants = Ask::from_text(&arguments[2]).wants();
    let me = set.segment().participant().unwrap();
    let parts = set.parts().unwrap();
    {
        let mut guard = parts.lock(me, NEVER).unwrap();
        parts.adopt(&mut guard).unwrap();
        let now = parts.now(&guard, 0).unwrap();
        parts.take(&mut guard, &wants, 0, now).unwrap().unwrap();
    }
    let charges: Vec<_> = Charge::of(&wants, 0, parts.table, u64::MAX).collect();
    let mutant = Mutant::new(parts.block, &[], defect(&arguments[3]));
    let engine = Engine::new(mutant.block(), parts.waiters.with_env(), parts.table);
    victim::stop_here();
    let mut guard = engine.lock(me, NEVER).unwrap();
    let now = engine.now(&guard, 0).unwrap();
    engine.finish(&mut guard, &charges, Ending::Released(Admitted::default()), now).unwrap();
    guard.unlock().unwrap();
    victim::leave();
}

// ---- scenes ----

type Twin = stepped::Twin<Side>;

fn new_twin() -> Twin {
    let attach = |name: &TempName| {
        // As if nobody had had the first slot yet: so the healthy one gets the same name as the mover.
        let file = OpenOptions::new().read(true).write(true).open(name.path()).unwrap();
        let slots = stepped::region_offset(&file, stepped::SLOTS);
        file.write_all_at(&[0; 128], slots as u64).unwrap();
        Side::attach(name)
    };
    let twin = Twin::new(Side::create, attach);
    assert_eq!(twin.mover.me(), twin.healthy.me());
    twin
}

/// One act, with all who have a part in it in their places.
struct Scene<'a> {
    twin: &'a Twin,
    act: Act,
    mine: Mine,
    before: Before,
    victim: Victim,
    /// Another process in the queue, dead or alive.
    other: Option<Worker>,
}

/// Who is the last in the queue.
enum Last<'a> {
    /// The mover, or nobody where it would come first and the coin says so.
    Mover,
    /// A process that is blocked in `acquire`.
    Blocked(&'a mut Worker),
}

impl<'a> Scene<'a> {
    /// None if this machine does not allow tracing.
    fn new(
        twin: &'a Twin,
        act: Act,
        role: (&str, &[&str]),
        random: &mut Random,
        mut last: Last<'_>,
    ) -> Option<Self> {
        let mover = &twin.mover;
        shuffle(mover, random);
        let mut mine = Mine { held: act.mover_holds().map(|ask| mover.hold(&ask)), waits: None };
        let last_ask = Ask::random(act.last_wants(), random);
        let is_blocked = matches!(last, Last::Blocked(_));
        let is_needed = is_blocked || random.below(2) == 0;
        let mut last_waits = |mine: &mut Mine| match &mut last {
            Last::Mover => mine.waits = Some(mover.wait(&last_ask).unwrap()),
            Last::Blocked(worker) => {
                let waiting = mover.set.stats().unwrap().waiters;
                worker.tell(&last_ask.to_text());
                while mover.set.stats().unwrap().waiters == waiting {
                    std::thread::yield_now();
                }
            }
        };
        if act.comes_after_the_last() && is_needed {
            last_waits(&mut mine);
        }
        let asks = act.victim_asks(random).to_text();
        let arguments = [&twin.name.0, act.name(), &asks];
        let victim = Victim::start(role.0, &[&arguments[..], role.1].concat())?;
        let other = act.other_wants().map(|connections| {
            let ask = Ask::random(connections, random).to_text();
            let mut other = Worker::start("queue", &[&twin.name.0, &ask]);
            other.expect("waiting");
            // A blocked process finds the dead, and then the victim would have less to do than the last time.
            if act.reaps() || !is_blocked && random.below(2) == 0 {
                other.kill();
            }
            other
        });
        if !act.comes_after_the_last() {
            last_waits(&mut mine);
        }
        if act.mover_releases() {
            mover.finish(&mine.held.take().unwrap(), false);
        }
        Some(Self { twin, act, mine, before: Before::of(mover), victim, other })
    }

    /// Steps the victim through the act. Gives the number of instructions, and from which on to which one memory
    /// changed.
    fn step_through(
        self,
        tally: &mut Tally,
        mut recover: impl FnMut(&Side, &Before, &Mine, &mut Tally) -> Found,
    ) -> (u64, Range<u64>) {
        let Self { twin, act, mine, before, victim, other } = self;
        let mut states: Vec<Found> = Vec::new();
        let mut changes = Vec::new();
        let victim = std::cell::Cell::new(Some(victim));
        let start = || victim.take();
        let instructions = die_in_copies(twin, Points::Changes, &start, &mut |side| {
            changes.push(twin.instructions.get());
            let found = recover(side, &before, &mine, tally);
            if states.last().is_none_or(|last| !last.words.are(&found.words)) {
                states.push(found);
            }
        });
        let count = states.len();
        for _ in act.states()..count {
            tally.whole(false, || format!("{count} states, one after the other: {states:#?}"));
        }
        tally.whole(count >= act.states(), || format!("only {count} states: {states:#?}"));
        for pair in states.windows(2) {
            let step = pair[1].words.check_step_from(&pair[0].words);
            let step = step.and_then(|()| survivors::check_available(&pair[0], &pair[1]));
            tally.whole(step.is_ok(), || format!("{step:?} in {pair:#?}"));
        }
        let last = &states[count - 1].words;
        let waiting = last.in_state(queue::WAITING).count();
        // Only whoever joined or comes behind a grant that was not given back still waits.
        let expected = match act {
            Act::Enqueue => 1 + usize::from(mine.waits.is_some()),
            Act::GiveUp => usize::from(mine.waits.is_some()),
            Act::Collect => 1,
            _ => 0,
        };
        tally.whole(waiting == expected, || format!("{waiting} wait instead of {expected}: {last:?}"));
        // The victim has done it and is gone, also in the original.
        drop(other);
        let found = twin.mover.recover(&before, tally, None);
        twin.mover.go_on(act, &found, mine, tally);
        // The first copy is that of before.
        (instructions.unwrap(), changes[1]..changes[changes.len() - 1])
    }
}

/// Moves the state on: another time, other free entries in another order, other tickets.
fn shuffle(side: &Side, random: &mut Random) {
    side.set.advance(A_WHILE + Duration::from_nanos(random.below(1_000_000_000))).unwrap();
    let held = side.hold(&Ask { tokens: 1, bytes: 1, connections: acts::PERMITS });
    let mut waiting: Vec<_> = (0..random.below(queue::WAITERS.into()))
        .map(|_| side.wait(&Ask::random(1, random)).unwrap())
        .collect();
    while !waiting.is_empty() {
        let one = usize::try_from(random.below(waiting.len() as u64)).unwrap();
        side.leave(&waiting.swap_remove(one));
    }
    side.finish(&held, true);
}

/// Everything for one act.
fn survives(act: Act) {
    victim::stay_on_one_cpu();
    let twin = new_twin();
    let mut random = Random::new(11);
    let mut copies = Tally::default();
    let (mut range, mut total) = (u64::MAX..u64::MAX, 0);
    let is_inherited = |point: u64| point.is_multiple_of(support::depth(INHERITED, 1));
    for _ in 0..support::depth(RUNS, RUNS_FULL) {
        let Some(scene) = Scene::new(&twin, act, ("act", &[]), &mut random, Last::Mover) else {
            println!("SKIPPED {}: this machine does not allow tracing", act.name());
            return;
        };
        let (instructions, changes) = scene.step_through(&mut copies, |side, before, mine, tally| {
            let alone = is_inherited(tally.points).then(TempName::new);
            alone.iter().for_each(|alone| {
                std::fs::copy(twin.copy_name.path(), alone.path()).unwrap();
            });
            let found = side.recover(before, tally, None);
            side.go_on(act, &found, mine.clone(), tally);
            alone.iter().for_each(|alone| survivors::inherit(alone, &found, tally));
            found
        });
        range = range.start.min(changes.start)..range.end.min(changes.end);
        total += instructions;
        copies.assert_clean();
    }
    let points = format!("different states of memory over {total} instructions");
    copies.state_for(PROMISES, &format!("{}: dead after every instruction", act.name()), &points);
    kills(&twin, act, range, &mut random);
}

/// Really kills victims, somewhere between the first change of memory and the last, with a process blocked in
/// `acquire` that must get through.
fn kills(twin: &Twin, act: Act, range: Range<u64>, random: &mut Random) {
    let mover = &twin.mover;
    // Where the dead are the victim's business, the blocked one must not be quicker.
    let slice = if act.reaps() { NO_SLICE } else { SHORT };
    let mut blocked = Worker::start("block", &[&twin.name.0, &slice.as_nanos().to_string()]);
    blocked.expect("ready");
    let mut tally = Tally::default();
    let points = match act {
        Act::Enrol => support::depth(KILLS_OF_ENROL, KILLS_OF_ENROL_FULL),
        _ => support::depth(KILLS, KILLS_FULL),
    };
    let (mut point, mut late) = (0, 0);
    while point < points {
        let last = Last::Blocked(&mut blocked);
        let scene = Scene::new(twin, act, ("act", &[]), random, last).expect("tracing worked before");
        let Scene { mut victim, other, mine, .. } = scene;
        let steals = mover.set.stats().unwrap().steals;
        let instructions = range.start + (range.end - range.start) * point / points;
        let is_there = (0..instructions).all(|_| victim.step());
        // Where a victim was through before, another one dies in its place.
        (point, late) = (point + u64::from(is_there), late + u64::from(!is_there));
        assert!(late <= points / 10, "{late} of {points} victims had ended before they were to be killed");
        victim.kill();
        let start = Instant::now();
        let seen = mover.observer.stats();
        tally.whole(seen.is_ok(), || format!("{seen:?}"));
        let seen = mover.words().check();
        tally.whole(seen.is_ok(), || format!("{seen:?}"));
        if act.reaps() {
            mover.set.reap().unwrap();
        }
        mine.held.iter().for_each(|held| mover.finish(held, false));
        if act.may_need_time() {
            mover.set.advance(A_WHILE).unwrap();
        }
        blocked.expect("through");
        tally.worst_wait = tally.worst_wait.max(start.elapsed());
        blocked.tell("release");
        blocked.expect("released");
        drop(other);
        let before = Before::of(mover);
        let found = mover.recover(&before, &mut tally, None);
        mover.set.reap().unwrap();
        tally.steals += mover.set.stats().unwrap().steals - steals;
        mover.go_on_after_kill(&found, &mut tally);
        assert_eq!((tally.torn, tally.leaked), (0, 0), "{tally:?}");
    }
    tally.points -= late;
    let what = format!("{}: SIGKILL in the middle, another blocked in acquire", act.name());
    tally.state_for(PROMISES, &what, "kills");
    tally.assert_clean();
}

// ---- defects ----

/// Defects that a victim's death shows.
const OF_THE_VICTIM: [&str; 6] = [
    "no_journal",
    "length_after_word",
    "stale_old_value",
    "commit_before_apply",
    ENTRY_NOT_NAMED.name,
    ENTRY_DROPPED.name,
];
const ENTRY_NOT_NAMED: Mutation = Mutation {
    name: "entry_not_named",
    breaks: "a journal entry says that it is about other words",
    effect: Effect::NameUnusedWords,
};
const ENTRY_DROPPED: Mutation = Mutation {
    name: "entry_dropped",
    breaks: "the row of the second limit of a grant changes before its entry counts",
    effect: Effect::LoseLength(14),
};
/// Defects of whoever recovers.
const OF_THE_SURVIVOR: [&str; 3] = ["skip_recovery", "undo_restores_nothing", NO_SECOND_RING.name];
const NO_SECOND_RING: Mutation = Mutation {
    name: "no_second_ring",
    breaks: "whoever takes the lock from the dead does not ring for them",
    effect: Effect::RingNothing(Class::Bell),
};

fn defect(name: &str) -> Mutation {
    let own = [ENTRY_NOT_NAMED, ENTRY_DROPPED, NO_SECOND_RING];
    mutant::named(name).or(own.into_iter().find(|own| own.name == name)).unwrap()
}

/// Without a defect nothing is torn; with each of these, something is.
fn mutants_are_caught() {
    victim::stay_on_one_cpu();
    let mut random = Random::new(5);
    let none = mutant::CONTROL.name;
    let of_victims = OF_THE_VICTIM.into_iter().map(|name| (name, none));
    let of_survivors = OF_THE_SURVIVOR.into_iter().map(|name| (none, name));
    for (victim, survivor) in std::iter::once((none, none)).chain(of_victims).chain(of_survivors) {
        let twin = new_twin();
        let act = Act::Release;
        let role = ("mutated", &[victim][..]);
        let Some(scene) = Scene::new(&twin, act, role, &mut random, Last::Mover) else {
            println!("SKIPPED mutants of a grant: this machine does not allow tracing");
            return;
        };
        let mut tally = Tally::default();
        let (instructions, _) = scene.step_through(&mut tally, |side, before, _, tally| {
            side.recover(before, tally, Some(defect(survivor)))
        });
        let (name, whose) = if victim == none { (survivor, "a survivor") } else { (victim, "the dying") };
        if name == none {
            tally.assert_clean();
            continue;
        }
        assert!(tally.torn > 0, "{name} of {whose} was not caught: {tally:?}");
        let what = format!("`{name}` of {whose} in a {}: {}", act.name(), defect(name).breaks);
        support::proof(
            "mutants",
            &what,
            &format!("{} findings over {instructions} instructions", tally.torn),
        );
    }
}
