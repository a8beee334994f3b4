//! Death at every machine instruction of what a pause and a work queue go through, and at real ones.
//!
//! A victim does one thing to a real set, single-stepped: reports a 429, resumes, pushes an item, takes one, says what
//! became of it, parks it, collects a result, cleans up after a worker. After every instruction that changed a byte the
//! segment is copied to another file, where the victim is dead. An observer who may not write looks at the copy, then a
//! healthy participant recovers it. From the first instruction to the last the words may only go from the state before
//! to the state after, in as many steps as the act has transactions, and each of these states is predicted by a model
//! that knows nothing of the code. In all of them every item is in exactly one list, carries what was pushed, and is
//! counted. Then the dead are cleaned up after, and the healthy one does all the work: each item is done once or is a
//! dead letter, none is lost.
//!
//! The healthy one has the same name in the copy as the one who moves the original, so an item that was taken there, and
//! a place in the queue of the limits, are its own here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "crash_work/acts.rs"]
mod acts;
#[path = "crash_work/defects.rs"]
mod defects;
#[path = "support/hands.rs"]
mod hands;
#[path = "crash_work/model.rs"]
mod model;
#[path = "support/mutant.rs"]
mod mutant;
#[path = "crash_work/picture.rs"]
mod picture;
#[path = "crash_queue/queue.rs"]
mod queue;
#[path = "crash_work/stage.rs"]
mod stage;
#[path = "support/stepped.rs"]
mod stepped;
#[path = "support/mod.rs"]
mod support;
#[path = "crash_work/survivors.rs"]
mod survivors;
#[path = "support/victim.rs"]
mod victim;

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use acts::Act;
use limitset::engine::WorkBell;
use model::Facts;
use picture::{Owner, reopen};
use stage::{A_WHILE, Ask, ITEMS, Mine, NO_SLICE, Stage, builder, result_of, waiter_beside};
use stepped::{Points, Tally, die_in_copies};
use support::{Random, TempName, Worker};
use survivors::{Before, Found, Side};
use victim::Victim;

const PROMISES: &str = "1,2,3";
/// Words of the queue as a whole, and of all its items.
const WORK_WORDS: usize = 32;
const ITEM_WORDS: usize = 14 * ITEMS as usize;
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
        &[("act", act_role), ("hold", hold_role), ("block", block_role), ("mutated", defects::mutated_role)],
        vec![
            survives!("a_report_survives_death_at_every_instruction", Report),
            survives!("a_late_report_survives_death_at_every_instruction", Late),
            survives!("a_pause_by_hand_survives_death_at_every_instruction", PauseByHand),
            survives!("a_resume_that_grants_survives_death_at_every_instruction", Resume),
            survives!("a_success_survives_death_at_every_instruction", Success),
            survives!("a_slow_admission_survives_death_at_every_instruction", Admission),
            survives!("push_survives_death_at_every_instruction", Push),
            survives!("take_survives_death_at_every_instruction", TakeReady),
            survives!("taking_a_parked_item_survives_death_at_every_instruction", TakeParked),
            survives!("taking_a_delayed_item_survives_death_at_every_instruction", TakeDelayed),
            survives!("done_survives_death_at_every_instruction", Done),
            survives!("done_with_survives_death_at_every_instruction", DoneWith),
            survives!("retry_survives_death_at_every_instruction", Retry),
            survives!("the_last_retry_survives_death_at_every_instruction", RetryLast),
            survives!("parking_survives_death_at_every_instruction", Park),
            survives!("the_last_parking_survives_death_at_every_instruction", ParkLast),
            survives!("give_back_survives_death_at_every_instruction", GiveBack),
            survives!("dead_letter_survives_death_at_every_instruction", DeadLetter),
            survives!("dropping_an_item_survives_death_at_every_instruction", Drop),
            survives!("collect_survives_death_at_every_instruction", Collect),
            survives!("forget_survives_death_at_every_instruction", Forget),
            survives!("dropping_a_result_survives_death_at_every_instruction", PutBack),
            survives!("revive_survives_death_at_every_instruction", Revive),
            survives!("close_survives_death_at_every_instruction", Close),
            survives!("reaping_a_worker_survives_death_at_every_instruction", Reap),
            survives!("reaping_a_last_attempt_survives_death_at_every_instruction", ReapLast),
            survives!("reaping_a_collector_survives_death_at_every_instruction", ReapCollector),
            survives!("attaching_after_a_worker_survives_death_at_every_instruction", Enrol),
            ("mutants_of_parking_are_caught", defects::mutants_are_caught),
        ],
    );
}

// ---- what other processes do ----

fn act_role(arguments: &[String]) {
    let (act, id) = (Act::named(&arguments[1]), arguments[2].parse().unwrap());
    let attach = || builder(NO_SLICE).attach(&arguments[0]).unwrap();
    if act == Act::Enrol {
        let elsewhere = TempName::new();
        let first = builder(NO_SLICE).create(&elsewhere).unwrap();
        drop((builder(NO_SLICE).attach(&elsewhere).unwrap(), first, elsewhere));
        victim::stop_here();
        std::mem::forget(attach());
        victim::leave();
    }
    let set = attach();
    if !act.reaps() {
        acts::rehearse(act);
    }
    let has = act.prepare(&set);
    victim::stop_here();
    act.perform(&set, id, has);
    victim::leave();
}

/// Gets what others will have to clean up after, says so, and waits to be killed.
fn hold_role(arguments: &[String]) {
    let set = builder(NO_SLICE).attach(&arguments[0]).unwrap();
    let queue = set.queue().unwrap();
    if Act::named(&arguments[1]) == Act::ReapCollector {
        std::mem::forget(queue.try_collect().unwrap().unwrap());
    } else {
        std::mem::forget(queue.try_take().unwrap().unwrap());
        std::mem::forget(set.try_acquire(Ask(1, 5, 1).request()).unwrap());
    }
    support::say("holding");
    support::listen();
}

/// Takes an item and does it, or acquires, whenever it is told to, however long that takes.
fn block_role(arguments: &[String]) {
    let slice = Duration::from_nanos(arguments[1].parse().unwrap());
    let act = Act::named(&arguments[2]);
    let set = builder(slice).attach(&arguments[0]).unwrap();
    support::say("ready");
    loop {
        support::listen();
        if act.is_of_the_pause() {
            let ask = waiter_beside(act);
            let mut held = set.acquire(ask.request()).unwrap();
            support::say("through");
            support::listen();
            held.settle("tokens", ask.1).unwrap();
            held.release().unwrap();
        } else {
            let mut item = set.queue().unwrap().take().unwrap().unwrap();
            support::say("through");
            support::listen();
            item.done_with(&result_of(item.id())).unwrap();
        }
        support::say("finished");
    }
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
    assert_eq!(twin.mover.owner(), twin.healthy.owner());
    twin
}

/// One act, with all who have a part in it in their places.
struct Scene<'a> {
    twin: &'a Twin,
    act: Act,
    facts: Facts,
    mine: Mine,
    before: Before,
    victim: Victim,
    /// Another process that has something, and is dead.
    other: Option<Worker>,
}

impl<'a> Scene<'a> {
    /// None if this machine does not allow tracing. With a process that is to be blocked, it waits for what the victim
    /// is about; else the mover waits, where it is a limit.
    fn new(
        twin: &'a Twin,
        act: Act,
        role: (&str, &[&str]),
        random: &mut Random,
        blocked: Option<&mut Worker>,
    ) -> Option<Self> {
        let mover = &twin.mover;
        let id = random.next();
        let mut stage = Stage { set: &mover.set, random, is_bare: blocked.is_some() };
        let mut mine = stage.set_up(act);
        let id_text = id.to_string();
        let arguments = [&twin.name.0, act.name(), &id_text];
        let victim = Victim::start(role.0, &[&arguments[..], role.1].concat())?;
        let other = act.reaps().then(|| {
            let mut other = Worker::start("hold", &[&twin.name.0, act.name()]);
            other.expect("holding");
            other.kill();
            other
        });
        let is_blocked = blocked.is_some();
        let is_late = stage.set_up_around(act, &mut mine, |mine| {
            if !is_blocked {
                mine.waits = Some(hands::wait(&mover.set, waiter_beside(act).wants()).unwrap());
            }
        });
        if let Some(worker) = blocked.filter(|_| !act.takes()) {
            block(mover, act, worker);
        }
        let before = Before::of(mover);
        let facts = Facts { now: before.words.now(), me: mover.owner(), id, is_late };
        Some(Self { twin, act, facts, mine, before, victim, other })
    }

    /// Steps the victim through the act. Gives the number of instructions, and from which on to which one memory
    /// changed.
    fn step_through(
        self,
        tally: &mut Tally,
        mut recover: impl FnMut(&Side, &Before, &Mine, &mut Tally) -> Found,
    ) -> (u64, Range<u64>) {
        let Self { twin, act, facts, mine, before, victim, other } = self;
        let mut states: Vec<Found> = Vec::new();
        let mut changes = Vec::new();
        let victim = std::cell::Cell::new(Some(victim));
        let start = || victim.take();
        let instructions = die_in_copies(twin, Points::Changes, &start, &mut |side| {
            // Of the long way of somebody who attaches, real kills go to where it has the lock.
            if changes.is_empty() || act != Act::Enrol || twin.is_locked() {
                changes.push(twin.instructions.get());
            }
            let found = recover(side, &before, &mine, tally);
            if states.last().is_none_or(|last| !last.words.are(&found.words)) {
                states.push(found);
            }
        });
        let predicted = act.predict(&before.picture, facts);
        let (count, expected) = (states.len(), predicted.len());
        tally.whole(states[0].words.are(&before.words), || format!("{:?} at first", states[0]));
        for _ in expected..count {
            tally.whole(false, || format!("{count} states, one after the other: {states:#?}"));
        }
        tally.whole(count >= expected, || format!("only {count} states: {states:#?}"));
        for (found, expected) in states.iter().zip(&predicted) {
            let is_right = found.picture.as_ref() == Ok(expected);
            tally.whole(is_right, || format!("{:#?} instead of {expected:#?}", found.picture));
        }
        // The victim has done it and is gone, also in the original.
        drop(other);
        let found = twin.mover.recover(&before, tally, None);
        twin.mover.go_on(&found, mine, tally);
        // The first copy is that of before.
        (instructions.unwrap(), changes[1]..changes[changes.len() - 1])
    }
}

/// Lets a process ask for what it cannot have yet, and waits until it sleeps.
fn block(mover: &Side, act: Act, worker: &mut Worker) {
    if act.is_of_the_pause() {
        let waiting = mover.set.stats().unwrap().waiters;
        worker.tell("acquire");
        while mover.set.stats().unwrap().waiters == waiting {
            std::thread::yield_now();
        }
    } else {
        // Rings, so that nobody is known to sleep.
        mover.set.advance(Duration::ZERO).unwrap();
        worker.tell("take");
        while mover.set.parts().unwrap().work_bell(WorkBell::Takers) & 1 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Everything for one act.
fn survives(act: Act) {
    victim::stay_on_one_cpu();
    let twin = new_twin();
    let mut random = Random::new(17);
    let mut copies = Tally::default();
    let (mut range, mut total) = (u64::MAX..u64::MAX, 0);
    let is_inherited = |point: u64| point.is_multiple_of(support::depth(INHERITED, 1));
    for _ in 0..support::depth(RUNS, RUNS_FULL) {
        let Some(scene) = Scene::new(&twin, act, ("act", &[]), &mut random, None) else {
            println!("SKIPPED {}: this machine does not allow tracing", act.name());
            return;
        };
        let (instructions, changes) = scene.step_through(&mut copies, |side, before, mine, tally| {
            let alone = is_inherited(tally.points).then(TempName::new);
            alone.iter().for_each(|alone| {
                std::fs::copy(twin.copy_name.path(), alone.path()).unwrap();
            });
            let found = side.recover(before, tally, None);
            side.go_on(&found, mine.clone(), tally);
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

/// Really kills victims, somewhere between the first change of memory and the last, with a process blocked in `take`,
/// or in `acquire` where the act is about the pause, that must get through.
fn kills(twin: &Twin, act: Act, range: Range<u64>, random: &mut Random) {
    let mover = &twin.mover;
    // Where the dead are the victim's business, the blocked one must not be quicker.
    let slice = if act.reaps() { NO_SLICE } else { SHORT };
    let mut blocked = Worker::start("block", &[&twin.name.0, &slice.as_nanos().to_string(), act.name()]);
    blocked.expect("ready");
    let rows = mover.words().picture().unwrap().rows;
    let living: Vec<Owner> = rows.iter().map(|(slot, row)| (*slot, row.generation)).collect();
    let mut tally = Tally::default();
    let points = match act {
        Act::Enrol => support::depth(KILLS_OF_ENROL, KILLS_OF_ENROL_FULL),
        _ => support::depth(KILLS, KILLS_FULL),
    };
    let (mut point, mut late) = (0, 0);
    while point < points {
        let scene = Scene::new(twin, act, ("act", &[]), random, Some(&mut blocked));
        let Scene { mut victim, other, mine, .. } = scene.expect("tracing worked before");
        let steals = mover.set.stats().unwrap().steals;
        let instructions = range.start + (range.end - range.start) * point / points;
        let is_there = (0..instructions).all(|_| victim.step());
        // Where a victim was through before, another one dies in its place.
        (point, late) = (point + u64::from(is_there), late + u64::from(!is_there));
        assert!(late <= points / 10, "{late} of {points} victims had ended before they were to be killed");
        if act.takes() {
            // It finds the lock held, or the item gone, or gets it.
            blocked.tell("take");
        }
        victim.kill();
        let start = Instant::now();
        let seen = mover.observer.stats();
        tally.whole(seen.is_ok(), || format!("{seen:?}"));
        if act.reaps() {
            mover.set.reap().unwrap();
        }
        let mine = let_through(mover, act, mine, &living, random, &mut tally);
        blocked.expect("through");
        tally.worst_wait = tally.worst_wait.max(start.elapsed());
        blocked.tell("finish");
        blocked.expect("finished");
        drop(other);
        mover.set.reap().unwrap();
        tally.steals += mover.set.stats().unwrap().steals - steals;
        let found = mover.recover(&Before::of(mover), &mut tally, None);
        mover.go_on_beside(&living, &found, mine, &mut tally);
        assert_eq!((tally.torn, tally.leaked), (0, 0), "{tally:?}");
    }
    tally.points -= late;
    let where_blocked = if act.is_of_the_pause() { "acquire" } else { "take" };
    let what = format!("{}: SIGKILL in the middle, another blocked in {where_blocked}", act.name());
    tally.state_for(PROMISES, &what, "kills");
    tally.assert_clean();
}

/// Does what it takes for the blocked process to get through, and nothing where it must do so by itself. Gives what the
/// mover still has.
fn let_through(
    mover: &Side,
    act: Act,
    mine: Mine,
    living: &[Owner],
    random: &mut Random,
    tally: &mut Tally,
) -> Mine {
    let words = mover.words();
    let seen = words.picture();
    tally.whole(seen.is_ok(), || format!("{seen:?}"));
    let Ok(seen) = seen else { return mine };
    if act.is_of_the_pause() {
        mine.held.iter().for_each(|held| hands::finish(&mover.set, held, false));
        mover.set.advance(A_WHILE).unwrap();
        return Mine { held: None, ..mine };
    }
    let left = seen.without_all_but(living);
    let is_through = left.work.held.values().any(|it| it.owner != mover.owner());
    if !is_through && !left.work.has_some(&left.pause, words.now()) {
        if left.work.lists[picture::PARKED..=picture::DELAYED].iter().any(|list| !list.is_empty()) {
            mover.set.advance(A_WHILE).unwrap();
        } else {
            if left.work.closed != 0 {
                reopen(&mover.set);
            }
            Stage { set: &mover.set, random, is_bare: true }.push();
        }
    }
    mine
}
