//! The journal: transactions of the living and the dead, and who undoes what.

use limitset::protocol::{Block, NEVER, Participant};

use super::LATE;
use crate::mutant::Mutation;
use crate::sweep::{Model, Scenario};
use crate::world::{ModelEnv, Shape, Sleep, World, beside, first_owner};

/// What both words are at first. Not 0, so that an old value that was never saved shows.
pub(super) const START: u64 = 7;
pub(super) const SHAPE: Shape<'_> =
    Shape { slots: LATE, words: &[START, START], changes: 3, sleep: Sleep::Slices };

/// Invariant: two words that only change together are equal whenever somebody holds the lock, and count the
/// transactions that were committed.
pub fn journal_all_or_none(mutation: Mutation) {
    let model = Model::exhaustive("journal_all_or_none", 2, "1, 3", mutation);
    model.sweep(&[1, 2], |scenario| {
        let world = World::new(scenario, SHAPE);
        let other = beside(&world, |world| world.live(2, increment).is_some());
        let committed = [world.live(1, increment).is_some(), other.join().unwrap()];
        check_late(&world, &committed);
    });
}

/// [`journal_all_or_none`] while two others take the lock to look.
pub fn journal_all_or_none_three(mutation: Mutation) {
    let model = Model::exhaustive("journal_all_or_none_three", 3, "1, 3", mutation).bounded(2);
    model.sweep(&[1, 2, 3], |scenario| {
        let world = World::new(scenario, Shape { sleep: Sleep::UntilNews, ..SHAPE });
        let others = [2, 3].map(|slot| beside(&world, move |world| world.live(slot, look)));
        let committed = world.live(1, increment).is_some();
        for other in others {
            other.join().unwrap();
        }
        check_late(&world, &[committed]);
    });
}

/// Adds one to both words in one transaction.
pub(super) fn increment(block: Block<'_, ModelEnv<'_>>, me: Participant) {
    let mut guard = block.lock(me, NEVER).unwrap().guard();
    let mut change = guard.begin();
    let found = [0, 1].map(|index| change.get(index).unwrap());
    assert_eq!(found[0], found[1], "half a transaction was found");
    change.set(0, found[0] + 1).unwrap();
    change.set(1, found[1] + 1).unwrap();
    change.commit();
    guard.unlock().unwrap();
}

/// Takes the lock to look at both words.
pub(super) fn look(block: Block<'_, ModelEnv<'_>>, me: Participant) -> u64 {
    let guard = block.lock(me, NEVER).unwrap().guard();
    let found = [0, 1].map(|index| guard.get(index).unwrap());
    assert_eq!(found[0], found[1], "half a transaction was found");
    guard.unlock().unwrap();
    found[0]
}

/// When all is quiet a late participant gets in and finds what was committed; of those who were killed nobody
/// knows whether they got that far. Tells what it found.
pub(super) fn check_late(world: &World, committed: &[bool]) -> u64 {
    let found = world.live(LATE, look).expect("nobody kills the late one");
    let certain = committed.iter().map(|done| u64::from(*done)).sum::<u64>();
    let expected = START + certain..=START + committed.len() as u64;
    assert!(expected.contains(&found), "{found} found, {expected:?} expected");
    world.assert_nobody_deposed();
    found
}

/// Invariant: whoever finishes what a killed thief of a killed holder left behind finds whole words, and a
/// word that one transaction changed twice as it was at first.
pub fn recovery_survives_kills(mutation: Mutation) {
    let model = Model::exhaustive("recovery_survives_kills", 1, "1, 3", mutation);
    model.sweep_pairs(1, &[2], |scenario| {
        let world = World::new(scenario, SHAPE);
        let first = world.live(1, |block, me| {
            let mut guard = block.lock(me, NEVER).unwrap().guard();
            let mut change = guard.begin();
            change.set(0, 100).unwrap();
            change.set(0, START + 1).unwrap();
            change.set(1, START + 1).unwrap();
            change.commit();
        });
        let second = world.live(2, increment);
        check_late(&world, &[first.is_some(), second.is_some()]);
    });
}

/// Invariant: of two that steal from one dead holder one gets the lock at a time, and neither finds half a
/// transaction.
pub fn thieves_take_turns(mutation: Mutation) {
    let model = Model::exhaustive("thieves_take_turns", 2, "1, 3", mutation);
    model.sweep(&[1], thieves);
}

/// [`thieves_take_turns`] with one of the two killed as well.
pub fn thieves_are_killed(mutation: Mutation) {
    let model = Model::exhaustive("thieves_are_killed", 2, "1, 3", mutation);
    model.sweep_pairs(1, &[2, 3], thieves);
}

fn thieves(scenario: Scenario) {
    let world = World::new(scenario, SHAPE);
    let committed = world.live(1, increment).is_some();
    let other = beside(&world, |world| world.live(3, look));
    world.live(2, look);
    other.join().unwrap();
    check_late(&world, &[committed]);
}

/// Invariant: two threads of one participant exclude each other like strangers, and leave whole words behind
/// when their process is killed, whatever each of them was doing.
///
/// Each thread stops at an operation of its own, or asleep, and only when both have stopped is the byte free.
pub fn threads_of_one_participant(mutation: Mutation) {
    let model = Model::exhaustive("threads_of_one_participant", 2, "1, 3", mutation);
    model.sweep_pairs(1, &[2], |scenario| {
        let world = World::new(scenario, Shape { sleep: Sleep::UntilNews, ..SHAPE });
        let thread = |world: &World, role| {
            let committed = world.act(role, |block| increment(block, first_owner(1))).is_some();
            if !committed {
                world.kill_sleepers();
            }
            committed
        };
        let other = beside(&world, move |world| thread(world, 2));
        let committed = [thread(&world, 1), other.join().unwrap()];
        world.free(1);
        check_late(&world, &committed);
    });
}
