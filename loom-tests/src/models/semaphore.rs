//! The semaphore: permits of the living and the dead, and who is woken for them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use limitset::protocol::semaphore::{CAPACITY, HOLDINGS};
use limitset::protocol::{Block, Env, NEVER, Participant, Semaphore, Take};

use super::LATE;
use crate::mutant::Mutation;
use crate::sweep::{Model, Scenario};
use crate::world::{ModelEnv, Shape, Sleep, World, beside, first_owner};

/// Invariant: the living never hold more permits than there are, and those of the dead return, once.
pub fn permits_balance(mutation: Mutation) {
    let model = Model::exhaustive("permits_balance", 2, "2, 3", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let world = semaphore(scenario, Sleep::Slices, 1, [0, 0, 0, 0]);
        let other = beside(&world, |world| take_and_give(world, 2));
        take_and_give(&world, 1);
        other.join().unwrap();
        check_late(&world, 0);
    });
}

/// A semaphore of which each slot's owner holds so many permits.
fn semaphore(scenario: Scenario, sleep: Sleep, capacity: u64, held: [u64; LATE as usize]) -> Arc<World> {
    let mut words = vec![0; HOLDINGS.rows];
    words[CAPACITY] = capacity;
    words[HOLDINGS.totals] = held.iter().sum();
    words.extend(held.iter().flat_map(|permits| [1, *permits]));
    World::new(scenario, Shape { slots: LATE, words: &words, changes: 2, sleep })
}

/// Takes the only permit if it is free, and gives it back.
fn take_and_give(world: &World, slot: u32) {
    let me = first_owner(slot);
    let is_holding = Cell::new(false);
    let end = world.act(slot, |block| {
        let semaphore = Semaphore(&block);
        if semaphore.try_take(me, 1, NEVER).unwrap() != Take::Taken {
            return;
        }
        is_holding.set(true);
        assert_eq!(world.mark.fetch_add(1, Relaxed), 0, "more permits are held than there are");
        // A point to be killed at while holding.
        block.env.load64(block.closed, Relaxed);
        world.mark.fetch_sub(1, Relaxed);
        is_holding.set(false);
        assert_eq!(semaphore.give(me, 1, NEVER), Ok(1));
    });
    if end.is_none() {
        world.mark.fetch_sub(is_holding.get().into(), Relaxed);
        world.free(slot);
    }
}

/// When all is quiet a late participant finds after a sweep that totals and rows agree with what the living
/// hold, and can take the rest.
fn check_late(world: &World, held: u64) {
    let late = world.live(LATE, |block, me| {
        let semaphore = Semaphore(&block);
        semaphore.sweep(me, NEVER).unwrap();
        let guard = block.lock(me, NEVER).unwrap().guard();
        let word = |index| guard.get(index).unwrap();
        let total = word(HOLDINGS.totals);
        let rows: u64 = (0..LATE as usize).map(|row| word(HOLDINGS.rows + 2 * row + 1)).sum();
        assert_eq!(total, rows, "the total is not the sum of the rows");
        assert_eq!(total, held, "the total is not what the living hold");
        let rest = word(CAPACITY) - total;
        guard.unlock().unwrap();
        assert_eq!(semaphore.try_take(me, rest, NEVER), Ok(Take::Taken));
    });
    late.expect("nobody kills the late one");
    world.assert_nobody_deposed();
}

/// Invariant: what a dead holder held is returned once, though its slot's next owner and a sweep both do it.
pub fn permits_return_once(mutation: Mutation) {
    let model = Model::exhaustive("permits_return_once", 2, "2, 3", mutation);
    model.sweep(&[1, 2], |scenario| {
        let world = semaphore(scenario, Sleep::Slices, 3, [1, 0, 1, 0]);
        world.free(1);
        let sweeper = beside(&world, |world| world.live(2, sweep));
        let newcomer = world.enrol(1, 1, |block, me| {
            assert_eq!(Semaphore(&block).try_take(me, 1, NEVER), Ok(Take::Taken));
        });
        sweeper.join().unwrap();
        check_late(&world, 1 + u64::from(newcomer.is_some()));
    });
}

fn sweep(block: Block<'_, ModelEnv<'_>>, me: Participant) {
    Semaphore(&block).sweep(me, NEVER).unwrap();
}

/// Invariant: who sleeps for a permit gets it when its holder gives it back or dies, at whatever operation.
pub fn sleeper_gets_its_permit(mutation: Mutation) {
    let model = Model::exhaustive("sleeper_gets_its_permit", 2, "3", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let world = semaphore(scenario, Sleep::UntilNews, 1, [1, 0, 0, 0]);
        let sleeper = beside(&world, |world| world.live(2, take_one));
        world.live(1, |block, me| give(block, me, 1));
        let taken = sleeper.join().unwrap().is_some();
        check_late(&world, taken.into());
    });
}

/// [`sleeper_gets_its_permit`] with two sleepers and one gift for both.
pub fn sleepers_get_their_permits(mutation: Mutation) {
    let model = Model::exhaustive("sleepers_get_their_permits", 3, "3", mutation).bounded(2);
    model.run(|scenario| {
        let world = semaphore(scenario, Sleep::UntilNews, 2, [2, 0, 0, 0]);
        let sleepers = [2, 3].map(|slot| beside(&world, move |world| world.live(slot, take_one)));
        world.live(1, |block, me| give(block, me, 2));
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        check_late(&world, 2);
    });
}

/// Takes a permit, sleeping until there is one.
fn take_one(block: Block<'_, ModelEnv<'_>>, me: Participant) {
    assert_eq!(Semaphore(&block).take(me, 1, NEVER, u64::MAX, || Ok(())), Ok(Take::Taken));
}

fn give(block: Block<'_, ModelEnv<'_>>, me: Participant, permits: u64) {
    assert_eq!(Semaphore(&block).give(me, permits, NEVER), Ok(permits));
}

/// Invariant: whoever cleans up after a dead giver wakes those whom it was about to wake. Without that they
/// would sleep on to the end of their slice: here for ever.
pub fn recovery_rings(mutation: Mutation) {
    let model = Model::exhaustive("recovery_rings", 2, "3", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let world = semaphore(scenario, Sleep::DoorbellUntilWoken, 1, [1, 0, 0, 0]);
        let sleeper = beside(&world, |world| world.live(2, take_one));
        world.live(1, |block, me| give(block, me, 1));
        world.live(3, sweep);
        sleeper.join().unwrap();
        check_late(&world, 1);
    });
}

/// Invariant: a slot's next owner that returns what the last one held wakes those who sleep for it; if it is
/// killed before it could, whoever cleans up does.
pub fn adoption_rings(mutation: Mutation) {
    let model = Model::exhaustive("adoption_rings", 2, "3", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let world = semaphore(scenario, Sleep::DoorbellUntilWoken, 2, [2, 0, 0, 0]);
        world.free(1);
        let sleeper = beside(&world, |world| world.live(2, take_one));
        let newcomer = world.enrol(1, 1, |block, me| {
            assert_eq!(Semaphore(&block).try_take(me, 1, NEVER), Ok(Take::Taken));
        });
        if newcomer.is_none() {
            world.live(3, sweep);
        }
        sleeper.join().unwrap();
        check_late(&world, 1 + u64::from(newcomer.is_some()));
    });
}
