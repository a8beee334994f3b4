//! The reader: snapshots without the lock, against those who write, die, undo and steal.
//!
//! A reader writes nothing, so its death changes nothing: only writers and thieves are killed here.

use std::sync::Arc;

use limitset::protocol::{Block, Fault, NEVER};
use loom::thread::JoinHandle;

use super::journal::{SHAPE, START, check_late, increment, look};
use crate::mutant::Mutation;
use crate::sweep::Model;
use crate::world::{ModelEnv, World, beside};

const READER: u32 = 3;

/// Invariant: a snapshot is the state after a committed transaction; never a part of one, never one that is
/// undone later, and never called damaged.
pub fn snapshot_is_whole(mutation: Mutation) {
    let model = Model::exhaustive("snapshot_is_whole", 2, "1, 5", mutation);
    model.sweep(&[1], |scenario| {
        let world = World::new(scenario, SHAPE);
        let reader = reader(&world, 2);
        let committed = world.live(1, increment).is_some();
        check_seen(&world, reader, &[committed]);
    });
}

/// [`snapshot_is_whole`] while a thief cleans up after a dead writer, and is killed as well.
pub fn snapshot_during_recovery(mutation: Mutation) {
    let model = Model::exhaustive("snapshot_during_recovery", 2, "1, 5", mutation);
    model.sweep_pairs(1, &[2], |scenario| {
        let world = World::new(scenario, SHAPE);
        let committed = world.live(1, increment).is_some();
        let reader = reader(&world, 1);
        world.live(2, look);
        check_seen(&world, reader, &[committed]);
    });
}

/// Invariant: no snapshot shows a value that only ever existed within a transaction that was given up.
pub fn snapshot_shows_nothing_undone(mutation: Mutation) {
    let model = Model::exhaustive("snapshot_shows_nothing_undone", 2, "1", mutation);
    model.sweep(&[1], |scenario| {
        let world = World::new(scenario, SHAPE);
        let reader = reader(&world, 1);
        world.live(1, |block, me| {
            let mut guard = block.lock(me, NEVER).unwrap().guard();
            let mut change = guard.begin();
            change.set(0, 100).unwrap();
            change.set(0, 200).unwrap();
            drop(change);
        });
        check_seen(&world, reader, &[]);
    });
}

/// Invariant: a reader does not take a writer that has just enrolled for dead, and look into its transaction.
pub fn snapshot_beside_a_newcomer(mutation: Mutation) {
    let model = Model::exhaustive("snapshot_beside_a_newcomer", 2, "1", mutation);
    model.sweep(&[1], |scenario| {
        let world = World::new(scenario, SHAPE);
        world.free(1);
        let reader = reader(&world, 1);
        let committed = world.enrol(1, 1, increment).is_some();
        check_seen(&world, reader, &[committed]);
    });
}

fn reader(world: &Arc<World>, tries: u32) -> JoinHandle<Option<u64>> {
    beside(world, move |world| world.act(READER, |block| snapshot(block, tries)).flatten())
}

/// One snapshot; none if it met a living writer at each try.
fn snapshot(block: Block<'_, ModelEnv<'_>>, tries: u32) -> Option<u64> {
    match block.snapshot(tries) {
        Ok(words) => {
            assert_eq!(words[0], words[1], "half a transaction was seen");
            Some(words[0])
        }
        Err(Fault::Busy { .. }) => None,
        Err(fault) => panic!("a whole block was called {fault:?}"),
    }
}

/// What was seen is not newer than what is found later, and what is found later can be seen.
fn check_seen(world: &World, reader: JoinHandle<Option<u64>>, committed: &[bool]) {
    let seen = reader.join().unwrap();
    let found = check_late(world, committed);
    assert!(
        seen.is_none_or(|seen| (START..=found).contains(&seen)),
        "{seen:?} was seen, {found} found later"
    );
    assert_eq!(world.act(READER, |block| snapshot(block, 1)).flatten(), Some(found));
}
