//! Death at every machine instruction.
//!
//! A victim runs one operation, single-stepped. After every instruction the bytes of its segment are copied to
//! another file, where the victim holds no byte and so is dead, and a healthy participant recovers the copy:
//! all or none, nothing held by the dead, no hang. Then the same with real SIGKILLs at 200 of those points. The
//! state moves between runs; otherwise a stale journal entry would undo to the right value by luck.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mutant.rs"]
mod mutant;
#[path = "support/stepped.rs"]
mod stepped;
#[path = "support/mod.rs"]
mod support;
#[path = "support/victim.rs"]
mod victim;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use limitset::error::{AttachError, SyncError};
use limitset::protocol::{Block, Env, Guard, Holdings, Locked, NEVER, Participant};
use limitset::{Segment, SegmentOptions};
use mutant::Mutant;
use stepped::{Points, SEMAPHORE, Tally, die_after, die_in_copies, region_offset};
use support::{Random, TempName};
use victim::Victim;

const LIMITS: usize = 3;
/// Word of a limit that counts what was ever consumed; its total is word 0.
const CONSUMED: usize = 3;
/// Real kills, spread over all instructions of a run.
const KILLS: u64 = 200;
const KILLS_FULL: u64 = 2_000;
/// Runs with a copy at every instruction, each from another state.
const RUNS: u64 = 3;
const RUNS_FULL: u64 = 20;

fn main() {
    support::main(
        &[
            ("update", update_role),
            ("semaphore", semaphore_role),
            ("reap", reap_role),
            ("hold", hold_role),
            ("mutated", mutated_role),
        ],
        vec![
            ("an_update_of_three_limits_survives_death_at_every_instruction", update_survives),
            ("taking_and_giving_permits_survives_death_at_every_instruction", semaphore_survives),
            ("reaping_the_dead_survives_death_at_every_instruction", reaping_survives),
            ("mutants_of_the_journal_are_caught", mutants_are_caught),
            ("a_stuck_lock_makes_others_busy_and_loses_no_permit", stuck_lock),
        ],
    );
}

fn options() -> SegmentOptions {
    Segment::options()
        .slots(4)
        .waiters(2)
        .limits(3)
        .semaphore("db", 100)
        .lock_slice(Duration::from_micros(20))
}

// ---- what the victims do ----

/// Takes from all three limits in one transaction, as an acquire does.
fn take_three<E: Env>(guard: &mut Guard<'_, E>, holdings: Holdings, amounts: [u64; LIMITS]) {
    holdings.adopt(guard).unwrap();
    let me = guard.holder();
    let mut change = guard.begin();
    for (limit, amount) in amounts.into_iter().enumerate() {
        holdings.take(&mut change, me, limit, amount).unwrap();
        let consumed = holdings.totals + limit * holdings.stride + CONSUMED;
        let value = change.get(consumed).unwrap();
        change.set(consumed, value + amount).unwrap();
    }
    change.commit();
}

fn update(segment: &Segment, amounts: [u64; LIMITS]) {
    let (block, holdings) = segment.state_block().unwrap();
    update_in(block, holdings, segment.participant().unwrap(), amounts);
}

fn update_in<E: Env>(block: Block<'_, E>, holdings: Holdings, me: Participant, amounts: [u64; LIMITS]) {
    let mut guard = block.lock(me, NEVER).unwrap().guard();
    take_three(&mut guard, holdings, amounts);
    guard.unlock().unwrap();
}

fn update_role(arguments: &[String]) {
    let (name, amounts) = name_and_amounts(arguments);
    // Once elsewhere, so that the run below has no first-time work of the loader in it.
    update(&options().private().unwrap(), amounts);
    let segment = options().attach(name).unwrap();
    let (block, holdings) = segment.state_block().unwrap();
    victim::stop_here();
    update_in(block, holdings, segment.participant().unwrap(), amounts);
    victim::leave();
}

/// The same update in an environment with a defect.
fn mutated_role(arguments: &[String]) {
    let [arguments @ .., name_of_mutant] = arguments else { unreachable!() };
    let (name, amounts) = name_and_amounts(arguments);
    let segment = options().attach(name).unwrap();
    let (block, holdings) = segment.state_block().unwrap();
    let mutant = Mutant::new(block, &[], mutant::named(name_of_mutant).unwrap());
    victim::stop_here();
    update_in(mutant.block(), holdings, segment.participant().unwrap(), amounts);
    victim::leave();
}

fn name_and_amounts(arguments: &[String]) -> (&String, [u64; LIMITS]) {
    let amounts: Vec<u64> = arguments[1..].iter().map(|amount| amount.parse().unwrap()).collect();
    (&arguments[0], amounts.try_into().unwrap())
}

/// Takes, says so, and waits to be killed.
fn hold_role(arguments: &[String]) {
    let (name, amounts) = name_and_amounts(arguments);
    let segment = options().attach(name).unwrap();
    update(&segment, amounts);
    support::say("holding");
    support::listen();
}

fn semaphore_role(arguments: &[String]) {
    let work = |segment: &Segment| {
        let db = segment.semaphore("db").unwrap();
        let permit = db.acquire(7).unwrap();
        let more = db.try_acquire(2).unwrap();
        permit.release().unwrap();
        std::mem::forget(more);
    };
    work(&options().private().unwrap());
    let segment = options().attach(&arguments[0]).unwrap();
    victim::stop_here();
    work(&segment);
    victim::leave();
}

fn reap_role(arguments: &[String]) {
    let segment = options().attach(&arguments[0]).unwrap();
    let (block, holdings) = segment.state_block().unwrap();
    let me = segment.participant().unwrap();
    holdings.sweep(&block, me, NEVER).unwrap();
    victim::stop_here();
    // The dead one enrolled, took and died after the line above: see `reaping_survives`.
    holdings.sweep(&block, me, NEVER).unwrap();
    victim::leave();
}

// ---- what the healthy one checks ----

/// Totals, consumed, and the sum of what the slots hold, limit by limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Picture {
    totals: Vec<u64>,
    consumed: Vec<u64>,
    held: Vec<u64>,
    /// Of that, by whoever looks.
    mine: Vec<u64>,
}

impl Picture {
    fn of<E: Env>(guard: &Guard<'_, E>, holdings: Holdings) -> Self {
        let me = guard.holder();
        let row = |slot: u32| holdings.rows + (slot as usize - 1) * (1 + LIMITS);
        let limits = |word: &dyn Fn(usize) -> u64| (0..LIMITS).map(word).collect::<Vec<_>>();
        let get = |index: usize| guard.get(index).unwrap();
        let is_mine = get(row(me.slot)) == me.generation;
        let slots = guard.block().slots.count();
        Self {
            totals: limits(&|limit| get(holdings.totals + limit * holdings.stride)),
            consumed: limits(&|limit| get(holdings.totals + limit * holdings.stride + CONSUMED)),
            held: limits(&|limit| (1..=slots).map(|slot| get(row(slot) + 1 + limit)).sum()),
            mine: limits(&|limit| if is_mine { get(row(me.slot) + 1 + limit) } else { 0 }),
        }
    }
}

fn look(segment: &Segment) -> Picture {
    let (block, holdings) = segment.state_block().unwrap();
    let guard = block.lock(segment.participant().unwrap(), NEVER).unwrap().guard();
    Picture::of(&guard, holdings)
}

/// Recovers the state block as any participant would at its next use; `is_whole` judges what it finds.
fn recover_state(segment: &Segment, tally: &mut Tally, is_whole: &dyn Fn(&Picture) -> bool) {
    let (block, holdings) = segment.state_block().unwrap();
    let me = segment.participant().unwrap();
    let start = Instant::now();
    let locked = block.lock(me, NEVER).unwrap();
    tally.worst_wait = tally.worst_wait.max(start.elapsed());
    tally.steals += u64::from(matches!(locked, Locked::OwnerDied(_)));
    let guard = locked.guard();
    let picture = Picture::of(&guard, holdings);
    guard.unlock().unwrap();
    tally.torn += u64::from(picture.totals != picture.held || !is_whole(&picture));
    holdings.sweep(&block, me, NEVER).unwrap();
    let after = look(segment);
    tally.leaked += u64::from(after.totals != after.mine);
    // The next one works as if nothing had happened.
    update(segment, [1, 2, 3]);
    let later = look(segment);
    let grown: Vec<u64> = after.totals.iter().zip([1, 2, 3]).map(|(total, more)| total + more).collect();
    tally.torn += u64::from(later.totals != grown || later.held != grown);
    tally.points += 1;
}

/// The same for the semaphore, through its public face; first as an observer who may not write.
fn recover_semaphore(segment: &Segment, tally: &mut Tally) {
    let db = segment.semaphore("db").unwrap();
    let seen = db.state().unwrap();
    let held: u64 = seen.holders.iter().map(|(_, held)| held).sum();
    tally.torn += u64::from(seen.taken != held);
    let steals = db.statistics().unwrap().steals;
    let start = Instant::now();
    let permit = db.acquire(3).unwrap();
    tally.worst_wait = tally.worst_wait.max(start.elapsed());
    tally.steals += db.statistics().unwrap().steals - steals;
    let returned = db.reap().unwrap();
    let after = db.state().unwrap();
    let me: Participant = segment.participant().unwrap();
    tally.leaked += u64::from(after.taken != 3 || after.holders != [(me, 3)] || returned > held);
    permit.release().unwrap();
    tally.leaked += u64::from(db.available().unwrap() != 100);
    tally.points += 1;
}

// ---- the segment and its copy ----

type Twin = stepped::Twin<Segment>;

fn new_twin() -> Twin {
    let twin = Twin::new(|name| options().create(name).unwrap(), |name| options().attach(name).unwrap());
    assert_eq!(twin.healthy.participant().unwrap().slot, 1);
    twin
}

/// Gives the mover other holdings than before.
fn move_state(mover: &Segment, random: &mut Random) {
    let (block, holdings) = mover.state_block().unwrap();
    let me = mover.participant().unwrap();
    let mut guard = block.lock(me, NEVER).unwrap().guard();
    take_three(&mut guard, holdings, [(); LIMITS].map(|()| 1 + random.below(1_000_000)));
    let mut change = guard.begin();
    for limit in 0..LIMITS {
        holdings.give(&mut change, me, limit, random.below(1_000_000)).unwrap();
    }
    change.commit();
}

/// Everything for one operation. `prepare` moves the state and tells how to start a victim and how to judge.
fn survives(what: &str, mut recover: impl FnMut(&Twin, &Segment, &mut Tally, &Expected), role: Role) {
    victim::stay_on_one_cpu();
    let twin = new_twin();
    let mut random = Random::new(7);
    let (mut copies, mut kills) = (Tally::default(), Tally::default());
    let mut shortest = u64::MAX;
    for _ in 0..support::depth(RUNS, RUNS_FULL) {
        let expected = Expected::new(&twin, &mut random);
        let start = || role(&twin, &expected);
        let judge = &mut |segment: &Segment| recover(&twin, segment, &mut copies, &expected);
        let Some(instructions) = die_in_copies(&twin, Points::All, &start, judge) else {
            println!("SKIPPED {what}: this machine does not allow tracing");
            return;
        };
        shortest = shortest.min(instructions);
        // The victim is gone, with all it held, also in the original.
        recover(&twin, &twin.mover, &mut kills, &expected);
    }
    copies.state(&format!("{what}: dead after every instruction"), "instructions");
    let points = support::depth(KILLS, KILLS_FULL);
    let (mut point, mut late) = (0, 0);
    while point < points {
        let expected = Expected::new(&twin, &mut random);
        // Where a victim was through before, another one dies in its place.
        let is_killed = die_after(shortest * point / points, &|| role(&twin, &expected));
        (point, late) = (point + u64::from(is_killed), late + u64::from(!is_killed));
        assert!(late <= points / 10, "{late} of {points} victims had ended before they were to be killed");
        recover(&twin, &twin.mover, &mut kills, &expected);
    }
    kills.points -= late;
    kills.state(&format!("{what}: SIGKILL in the middle"), "kills");
    copies.assert_clean();
    kills.assert_clean();
}

/// What may be found after a death: the picture before, and what the victim adds.
struct Expected {
    before: Picture,
    amounts: [u64; LIMITS],
}

impl Expected {
    fn new(twin: &Twin, random: &mut Random) -> Self {
        move_state(&twin.mover, random);
        Self { before: look(&twin.mover), amounts: [(); LIMITS].map(|()| 1 + random.below(1_000)) }
    }

    fn arguments(&self) -> [String; LIMITS] {
        self.amounts.map(|amount| amount.to_string())
    }

    /// All of the victim's changes, or none.
    fn all_or_none(&self, found: &Picture) -> bool {
        let plus = |values: &[u64]| -> Vec<u64> {
            values.iter().zip(self.amounts).map(|(value, amount)| value + amount).collect()
        };
        let none = (&found.totals, &found.consumed) == (&self.before.totals, &self.before.consumed);
        let (totals, consumed) = (plus(&self.before.totals), plus(&self.before.consumed));
        none || (&found.totals, &found.consumed) == (&totals, &consumed)
    }
}

type Role = fn(&Twin, &Expected) -> Option<Victim>;

fn start_update(twin: &Twin, expected: &Expected) -> Option<Victim> {
    let [a, b, c] = expected.arguments();
    Victim::start("update", &[&twin.name.0, &a, &b, &c])
}

fn update_survives() {
    let judge = |_: &Twin, segment: &Segment, tally: &mut Tally, expected: &Expected| {
        recover_state(segment, tally, &|found| expected.all_or_none(found));
    };
    survives("update of three limits", judge, start_update);
}

fn semaphore_survives() {
    let judge =
        |_: &Twin, segment: &Segment, tally: &mut Tally, _: &Expected| recover_semaphore(segment, tally);
    survives("semaphore", judge, |twin, _| Victim::start("semaphore", &[&twin.name.0]));
}

fn reaping_survives() {
    let judge = |_: &Twin, segment: &Segment, tally: &mut Tally, expected: &Expected| {
        // The dead one's charge stays, whoever returns its permits and however far that got.
        let consumed = |found: &Picture| {
            found
                .consumed
                .iter()
                .zip(&expected.before.consumed)
                .zip(expected.amounts)
                .all(|((found, before), amount)| *found == before + amount)
        };
        recover_state(segment, tally, &consumed);
    };
    survives("reaping", judge, |twin, expected| {
        let reaper = Victim::start("reap", &[&twin.name.0])?;
        let [a, b, c] = expected.arguments();
        let mut dead = support::Worker::start("hold", &[&twin.name.0, &a, &b, &c]);
        dead.expect("holding");
        dead.kill();
        Some(reaper)
    });
}

/// Without a defect nothing is torn; with each of these, something is.
fn mutants_are_caught() {
    victim::stay_on_one_cpu();
    let mut random = Random::new(3);
    for name in std::iter::once(mutant::CONTROL.name).chain(mutant::JOURNAL_MUTATIONS) {
        let twin = new_twin();
        let expected = Expected::new(&twin, &mut random);
        let [a, b, c] = expected.arguments();
        let start = || Victim::start("mutated", &[&twin.name.0, &a, &b, &c, name]);
        let mut tally = Tally::default();
        let judge = &mut |segment: &Segment| {
            recover_state(segment, &mut tally, &|found| expected.all_or_none(found));
        };
        let Some(instructions) = die_in_copies(&twin, Points::All, &start, judge) else {
            println!("SKIPPED mutants of the journal: this machine does not allow tracing");
            return;
        };
        if name == mutant::CONTROL.name {
            tally.assert_clean();
        } else {
            assert!(tally.torn > 0, "{name} was not caught: {tally:?}");
            let breaks = mutant::named(name).unwrap().breaks;
            let result = format!("{} findings over {instructions} instructions", tally.torn);
            support::proof("mutants", &format!("`{name}`: {breaks}"), &result);
        }
    }
}

/// A process is stopped exactly while it holds the semaphore's lock.
fn stuck_lock() {
    let name = TempName::new();
    let segment = options().patience(Duration::from_millis(20)).create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let (kept, dropped, released) = (db.acquire(1).unwrap(), db.acquire(2).unwrap(), db.acquire(4).unwrap());
    let Some(mut victim) = Victim::start("semaphore", &[&name.0]) else {
        println!("SKIPPED stuck lock: this machine does not allow tracing");
        return;
    };
    let file = File::open(name.path()).unwrap();
    let lock = region_offset(&file, SEMAPHORE) as u64;
    let mut word = [0; 4];
    while word == [0; 4] {
        assert!(victim.step(), "the victim never held the lock");
        file.read_exact_at(&mut word, lock).unwrap();
    }
    assert!(matches!(db.try_acquire(1), Err(SyncError::Busy { slot: 2, .. })));
    let newcomer = options().patience(Duration::from_millis(20)).attach(&name);
    assert!(matches!(newcomer, Err(AttachError::Busy { .. })), "{newcomer:?}");
    assert_eq!(segment.participants().len(), 2, "its slot was given back");
    assert!(matches!(released.release(), Err(SyncError::Busy { slot: 2, .. })));
    drop(dropped);
    victim.kill();
    while db.available().unwrap() != 99 {
        std::thread::sleep(Duration::from_millis(1));
    }
    kept.release().unwrap();
    assert_eq!(db.available().unwrap(), 100);
}
