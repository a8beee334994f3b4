//! Death at every machine instruction of what a set does, and at real ones.
//!
//! A victim does one thing to a real set, single-stepped: acquires, is denied, reports, releases, reconfigures, reaps.
//! After every instruction the bytes of the segment are copied to another file, where the victim is dead. An observer
//! who may not write looks at the copy, then a healthy participant recovers it. Both must find the same words, and from
//! the first instruction to the last those words may only go from the state before to the state after, in as many
//! steps as the act has transactions: all or none. What the dead held returns, and the set still works; also for one
//! who comes when all are dead.
//!
//! Instructions that leave no byte of the segment changed are the same death as the one before, and are judged once:
//! nothing is left of the dead but bytes. (Judging them all would not even end. The victim reads the clock, and that
//! starts over whenever the kernel has moved its clock page on in the middle: so the steps there have to be quick.)
//! Time in the set stands still, so states can be compared word by word; the state moves between runs, so that a stale
//! journal entry cannot undo to the right value by luck.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "crash_set/acts.rs"]
mod acts;
#[path = "support/mutant.rs"]
mod mutant;
#[path = "support/stepped.rs"]
mod stepped;
#[path = "support/mod.rs"]
mod support;
#[path = "crash_set/survivors.rs"]
mod survivors;
#[path = "support/victim.rs"]
mod victim;

use std::time::{Duration, Instant};

use acts::{Act, Amounts, Which};
use limitset::engine::{Engine, NewNumbers, Wants};
use limitset::protocol::NEVER;
use limitset::{Limit, LimitSet, Segment};
use mutant::{Effect, Mutant, Mutation};
use stepped::{Points, Start, Tally, die_in_copies};
use support::{Random, TempName, Worker};
use survivors::{Found, Side};
use victim::Victim;

/// Runs with a death at every instruction, each from another state.
const RUNS: u64 = 3;
const RUNS_FULL: u64 = 30;
/// Real kills, spread over all instructions of an act.
const KILLS: u64 = 30;
const KILLS_FULL: u64 = 200;

/// A test that an act survives.
macro_rules! survives {
    ($name:literal, $act:ident) => {
        ($name, || survives(Act::$act))
    };
}

fn main() {
    support::main(
        &[("act", act_role), ("hold", hold_role), ("wait", wait_role), ("mutated", mutated_role)],
        vec![
            survives!("try_acquire_survives_death_at_every_instruction", Take),
            survives!("a_denied_try_acquire_survives_death_at_every_instruction", Deny),
            survives!("update_survives_death_at_every_instruction", Update),
            survives!("adjust_into_debt_survives_death_at_every_instruction", Debt),
            survives!("settle_survives_death_at_every_instruction", Settle),
            survives!("release_survives_death_at_every_instruction", Release),
            survives!("drop_survives_death_at_every_instruction", Drop),
            survives!("cancel_survives_death_at_every_instruction", Cancel),
            survives!("acquire_more_survives_death_at_every_instruction", More),
            survives!("reconfigure_survives_death_at_every_instruction", Reconfigure),
            survives!("reset_survives_death_at_every_instruction", Reset),
            survives!("advance_survives_death_at_every_instruction", Advance),
            survives!("reaping_survives_death_at_every_instruction", Reap),
            ("mutants_of_the_journal_are_caught", mutants_are_caught),
        ],
    );
}

// ---- what the victims do ----

/// Set, act and amounts, as a role gets them.
fn parse(arguments: &[String]) -> (LimitSet, Which, Act, Amounts) {
    let which = Which::named(&arguments[1]);
    let set = which.builder().attach(&arguments[0]).unwrap();
    (set, which, Act::named(&arguments[2]), Amounts::of(arguments[3].parse().unwrap()))
}

fn act_role(arguments: &[String]) {
    let (set, which, act, amounts) = parse(arguments);
    // Once elsewhere, so that the run below has no first-time work of the loader in it.
    let elsewhere = which.builder().in_memory().unwrap();
    let full = (act == Act::Deny).then(|| acts::take_the_rest(&elsewhere));
    act.perform(&elsewhere, which, &amounts, act.prepare(&elsewhere, which, &amounts));
    drop(full);
    let held = act.prepare(&set, which, &amounts);
    victim::stop_here();
    act.perform(&set, which, &amounts, held);
    victim::leave();
}

/// Takes, says so, and waits to be killed.
fn hold_role(arguments: &[String]) {
    let (set, which, _, amounts) = parse(arguments);
    Act::Take.perform(&set, which, &amounts, None);
    support::say("holding");
    support::listen();
}

/// Asks the set whenever it is told to, and changes nothing.
fn wait_role(arguments: &[String]) {
    // On a busy machine a victim may stay stopped for longer than the usual patience.
    let patient = Segment::options().patience(Duration::from_secs(300));
    let set = LimitSet::builder().segment(patient).attach(&arguments[0]).unwrap();
    support::say("ready");
    loop {
        support::listen();
        set.check([("call_count", 0), ("tokens", 0), ("connections", 0)]).unwrap();
        support::say("through");
    }
}

/// Takes or reconfigures as the set does it, in an environment with a defect.
fn mutated_role(arguments: &[String]) {
    let (set, which, act, amounts) = parse(arguments);
    let index = |key: &str| set.limits().iter().position(|limit| limit.name() == key).unwrap();
    let mut wants = Wants::none();
    for (key, amount) in which.request(&amounts) {
        wants.set(index(key), amount);
    }
    let new_numbers = acts::new_limits(which, &amounts);
    let new_numbers: Vec<_> =
        new_numbers.iter().map(|limit| numbers_of(index(limit.name()), limit)).collect();
    let me = set.segment().participant().unwrap();
    let parts = set.parts().unwrap();
    let mutant = Mutant::new(parts.block, &[], defect(&arguments[4]));
    let engine = Engine::new(mutant.block(), parts.waiters.with_env(), parts.table);
    victim::stop_here();
    let mut guard = engine.block.lock(me, NEVER).unwrap().guard();
    let now = engine.now(&guard, 0).unwrap();
    if act == Act::Reconfigure {
        engine.reconfigure(&mut guard, &new_numbers, now).unwrap();
    } else {
        let ticket = engine.take(&mut guard, &wants, u64::MAX, now).unwrap();
        assert_eq!(ticket.is_some(), act == Act::Take);
    }
    guard.unlock().unwrap();
    victim::leave();
}

fn numbers_of(index: usize, limit: &Limit) -> NewNumbers {
    let window = match limit {
        Limit::Call(limit) => limit.window(),
        Limit::Rate(limit) => limit.window(),
        _ => Duration::ZERO,
    };
    let window_nanos = u64::try_from(window.as_nanos()).unwrap();
    let burst = if window_nanos == 0 { 0 } else { limit.capacity() };
    NewNumbers { limit: index, capacity: limit.capacity(), window_nanos, burst }
}

// ---- what the healthy make of it ----

type Twin = stepped::Twin<Side>;

/// One act from one state.
struct Scene<'a> {
    twin: &'a Twin,
    which: Which,
    act: Act,
    seed: u64,
    amounts: Amounts,
}

impl<'a> Scene<'a> {
    /// Moves the state on.
    fn new(twin: &'a Twin, which: Which, act: Act, random: &mut Random) -> Self {
        let mover = &twin.mover;
        mover.held.borrow_mut().clear();
        let mut held = acts::move_state(&mover.set, which, random);
        if act == Act::Deny {
            held.push(acts::take_the_rest(&mover.set));
        }
        mover.held.replace(held);
        let seed = random.next();
        Self { twin, which, act, seed, amounts: Amounts::of(seed) }
    }

    /// A victim that is about to act; none if this machine does not allow tracing.
    fn start(&self, role: &str, more: &[&str]) -> Option<Victim> {
        let seed = self.seed.to_string();
        let arguments = [&self.twin.name.0, self.which.name(), self.act.name(), seed.as_str()];
        let victim = Victim::start(role, &[&arguments[..], more].concat())?;
        if self.act == Act::Reap {
            let mut dead = Worker::start("hold", &arguments);
            dead.expect("holding");
            dead.kill();
        }
        Some(victim)
    }

    /// Steps a victim through the act; gives the number of instructions and every state that was found, in order.
    fn step_through(
        &self,
        start: Start<'_>,
        tally: &mut Tally,
        mut recover: impl FnMut(&Side, &mut Tally) -> Found,
    ) -> Option<(u64, Vec<Found>)> {
        let mut states: Vec<Found> = Vec::new();
        let instructions = die_in_copies(self.twin, Points::Changes, start, &mut |side| {
            let found = recover(side, tally);
            if states.last().is_none_or(|last| last.words != found.words) {
                states.push(found);
            }
        })?;
        let count = states.len();
        for _ in self.act.states()..count {
            tally.whole(false, || format!("{count} states, one after the other: {states:#?}"));
        }
        tally.whole(count >= self.act.states(), || format!("only {count} states: {states:#?}"));
        let (first, last) = (&states[0].picture, &states[count - 1].picture);
        let predicted = self.act.predict(self.which, &self.amounts, &first.limits);
        tally.whole(last.agrees(&predicted, self.act), || format!("{last:?} instead of {predicted:?}"));
        let owed = first.owed("tokens").checked_add_signed(self.act.owes());
        tally.whole(Some(last.owed("tokens")) == owed, || {
            format!("{last:?} owes other reports than {owed:?}")
        });
        Some((instructions, states))
    }

    /// Kills a victim after that many instructions, while somebody else wants the lock. Tells whether that one was
    /// asleep for it; none if the victim came to its end before.
    fn kill_after(&self, instructions: u64, waiter: &mut Worker, tally: &mut Tally) -> Option<bool> {
        let Self { twin, which, act, .. } = *self;
        let mover = &twin.mover;
        let mut victim = self.start("act", &[]).expect("tracing worked before");
        let stats = mover.set.stats().unwrap();
        let before = survivors::Picture::of(&stats);
        let is_there = (0..instructions).all(|_| victim.step());
        let is_locked = is_there && twin.is_locked();
        if is_there {
            waiter.tell("go");
            if is_locked {
                waiter.wait_until_asleep();
            }
            let start = Instant::now();
            victim.kill();
            let seen = survivors::Picture::of(&mover.observer.stats().unwrap());
            waiter.expect("through");
            tally.worst_wait = tally.worst_wait.max(start.elapsed());
            let recovered = mover.picture();
            tally.whole(seen == recovered, || format!("seen {seen:?}, recovered {recovered:?}"));
            tally.steals += mover.set.stats().unwrap().steals - stats.steals;
        }
        let found = mover.recover(tally, None).picture;
        let predicted = act.predict(which, &self.amounts, &before.limits);
        let is_whole = match act {
            Act::Reap => found.without_holders() == before.without_holders(),
            _ => found == before || found.agrees(&predicted, act),
        };
        tally.whole(is_whole, || format!("{found:?} is neither {before:?} nor {predicted:?}"));
        mover.go_on(which, &found, tally);
        is_there.then_some(is_locked)
    }
}

fn new_twin(which: Which) -> Twin {
    Twin::new(|name| Side::create(which, name), |name| Side::attach(which, name))
}

/// Everything for one act.
fn survives(act: Act) {
    victim::stay_on_one_cpu();
    for which in Which::ALL {
        let twin = new_twin(which);
        let mut random = Random::new(7);
        let (mut copies, mut kills) = (Tally::default(), Tally::default());
        let (mut shortest, mut total) = (u64::MAX, 0);
        for _ in 0..support::depth(RUNS, RUNS_FULL) {
            let scene = Scene::new(&twin, which, act, &mut random);
            let stepped = scene.step_through(&|| scene.start("act", &[]), &mut copies, |side, tally| {
                let alone = TempName::new();
                std::fs::copy(twin.copy_name.path(), alone.path()).unwrap();
                let found = side.recover(tally, None);
                side.go_on(which, &found.picture, tally);
                survivors::inherit(which, &alone, &found.picture, tally);
                found
            });
            let Some((instructions, states)) = stepped else {
                println!("SKIPPED {}: this machine does not allow tracing", act.name());
                return;
            };
            (shortest, total) = (shortest.min(instructions), total + instructions);
            // The victim has done it and is gone, with all it held, also in the original.
            let found = twin.mover.recover(&mut copies, None);
            copies.whole(states.last() == Some(&found), || format!("{found:?} in the original"));
            twin.mover.go_on(which, &found.picture, &mut copies);
        }
        let what = format!("{} on a set of {}", act.name(), which.name());
        let points = format!("different states of memory over {total} instructions");
        copies.state(&format!("{what}: dead after every instruction"), &points);
        copies.assert_clean();

        let mut waiter = Worker::start("wait", &[&twin.name.0]);
        waiter.expect("ready");
        let points = support::depth(KILLS, KILLS_FULL);
        let (mut point, mut asleep, mut late) = (0, 0, 0);
        while point < points {
            let scene = Scene::new(&twin, which, act, &mut random);
            let killed = scene.kill_after(shortest * point / points, &mut waiter, &mut kills);
            asleep += u64::from(killed == Some(true));
            // Where a victim was through before, another one dies in its place.
            (point, late) = (point + u64::from(killed.is_some()), late + u64::from(killed.is_none()));
            assert!(
                late <= points / 10,
                "{late} of {points} victims had ended before they were to be killed"
            );
        }
        kills.points -= late;
        let points = format!("kills ({asleep} with another asleep on the lock)");
        kills.state(&format!("{what}: SIGKILL in the middle"), &points);
        assert_eq!(asleep, kills.steals, "whoever slept got the lock of the dead");
        kills.assert_clean();
    }
}

// ---- defects ----

/// Defects that a victim's death shows.
const OF_THE_VICTIM: [&str; 5] =
    ["no_journal", "length_after_word", "stale_old_value", "commit_before_apply", ENTRY_NOT_NAMED.name];
const ENTRY_NOT_NAMED: Mutation = Mutation {
    name: "entry_not_named",
    breaks: "a journal entry says that it is about other words",
    effect: Effect::NameUnusedWords,
};
/// Defects of whoever recovers.
const OF_THE_SURVIVOR: [&str; 2] = ["skip_recovery", "undo_restores_nothing"];

/// Without a defect nothing is torn; with each of these, something is.
fn mutants_are_caught() {
    victim::stay_on_one_cpu();
    let mut random = Random::new(3);
    let of_both = [(mutant::CONTROL.name, mutant::CONTROL.name)].into_iter();
    let of_victims = OF_THE_VICTIM.into_iter().map(|name| (name, mutant::CONTROL.name));
    let of_survivors = OF_THE_SURVIVOR.into_iter().map(|name| (mutant::CONTROL.name, name));
    let all: Vec<_> = of_both.chain(of_victims).chain(of_survivors).collect();
    let sets = support::depth(1, 2);
    for (which, _) in Which::ALL.into_iter().zip(0..sets) {
        for act in [Act::Take, Act::Reconfigure] {
            for (victim, survivor) in &all {
                if !is_caught(which, act, victim, survivor, &mut random) {
                    return;
                }
            }
        }
        for name in [mutant::CONTROL.name, "undo_restores_nothing"] {
            if !is_caught(which, Act::Deny, name, mutant::CONTROL.name, &mut random) {
                return;
            }
        }
    }
}

fn defect(name: &str) -> Mutation {
    mutant::named(name).unwrap_or_else(|| {
        assert_eq!(name, ENTRY_NOT_NAMED.name);
        ENTRY_NOT_NAMED
    })
}

/// False if this machine does not allow tracing.
fn is_caught(which: Which, act: Act, victim: &str, survivor: &str, random: &mut Random) -> bool {
    let none = mutant::CONTROL.name;
    let twin = new_twin(which);
    let scene = Scene::new(&twin, which, act, random);
    let mut tally = Tally::default();
    let start = || scene.start("mutated", &[victim]);
    let Some((instructions, _)) =
        scene.step_through(&start, &mut tally, |side, tally| side.recover(tally, Some(defect(survivor))))
    else {
        println!("SKIPPED mutants of the journal: this machine does not allow tracing");
        return false;
    };
    let (name, whose) = if victim == none { (survivor, "a survivor") } else { (victim, "the dying") };
    if name == none {
        tally.assert_clean();
        return true;
    }
    assert!(tally.torn > 0, "{name} of {whose} in {act:?} was not caught: {tally:?}");
    let breaks = defect(name).breaks;
    let what = format!("`{name}` of {whose} in {} on a set of {}: {breaks}", act.name(), which.name());
    support::proof("mutants", &what, &format!("{} findings over {instructions} instructions", tally.torn));
    true
}
