//! The lock: who holds it, who gets it next, who is woken for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use limitset::core::{Block, Fault, Locked, NEVER, Participant};

use super::LATE;
use crate::mutant::Mutation;
use crate::sweep::{Model, Scenario};
use crate::world::{ModelEnv, Shape, Sleep, World, beside};

/// Invariant: nobody enters while another is inside, unless that one is dead; then who enters is told.
pub fn lock_excludes(mutation: Mutation) {
    let model = Model::exhaustive("lock_excludes", 2, "2, 3", mutation);
    model.sweep(&[1, 2], |scenario| visits(scenario, 2, Sleep::Slices));
}

/// [`lock_excludes`] with three participants; a lost wake is a deadlock.
pub fn lock_excludes_three(mutation: Mutation) {
    let model = Model::exhaustive("lock_excludes_three", 3, "2, 3", mutation).bounded(2);
    model.sweep(&[1, 2, 3], |scenario| visits(scenario, 3, Sleep::UntilNews));
}

fn visits(scenario: Scenario, participants: u32, sleep: Sleep) {
    let world = world(scenario, sleep);
    let live = |world: &World, slot| world.live(slot, |block, me| visit(world, block, me));
    let mut others = Vec::new();
    for slot in 2..=participants {
        others.push(beside(&world, move |world| live(world, slot)));
    }
    live(&world, 1);
    for other in others {
        other.join().unwrap();
    }
    live(&world, LATE).expect("nobody kills the late one");
    world.assert_nobody_deposed();
}

fn world(scenario: Scenario, sleep: Sleep) -> Arc<World> {
    World::new(scenario, Shape { slots: LATE, words: &[0], changes: 1, sleep })
}

/// Takes the lock, leaves a mark while inside, and unlocks.
fn visit(world: &World, block: Block<'_, ModelEnv<'_>>, me: Participant) {
    let locked = block.lock(me, NEVER).unwrap();
    let owner_died = matches!(locked, Locked::OwnerDied(_));
    let guard = locked.guard();
    let inside = world.mark.load(Relaxed);
    assert!(inside == 0 || owner_died, "{me:?} came in while slot {inside} was inside");
    world.mark.store(me.slot.into(), Relaxed);
    // A point to be killed at while inside.
    guard.get(0).unwrap();
    assert_eq!(world.mark.load(Relaxed), me.slot.into(), "somebody came in after {me:?}");
    world.mark.store(0, Relaxed);
    guard.unlock().unwrap();
}

/// Invariant: nobody sleeps for a lock that nobody holds.
pub fn lock_loses_no_wake(mutation: Mutation) {
    let model = Model::exhaustive("lock_loses_no_wake", 2, "3", mutation).bounded(7);
    model.run(|scenario| {
        let world = world(scenario, Sleep::UntilNews);
        let other = beside(&world, |world| world.live(2, |block, me| visit(world, block, me)));
        world.live(1, |block, me| {
            visit(&world, block, me);
            visit(&world, block, me);
        });
        other.join().unwrap();
    });
}

/// Invariant: who gives up waiting leaves nobody asleep who was behind it.
pub fn giving_up_strands_nobody(mutation: Mutation) {
    let model = Model::exhaustive("giving_up_strands_nobody", 3, "3", mutation).bounded(2);
    model.run(|scenario| {
        let world = world(scenario, Sleep::UntilNews);
        let patient = beside(&world, |world| world.live(2, |block, me| visit(world, block, me)));
        let hasty = beside(&world, |world| {
            world.live(3, |block, me| match block.lock(me, 1) {
                Ok(locked) => locked.guard().unlock().unwrap(),
                Err(fault) => assert!(matches!(fault, Fault::Busy { .. }), "{fault:?}"),
            })
        });
        world.live(1, |block, me| {
            visit(&world, block, me);
            visit(&world, block, me);
        });
        patient.join().unwrap();
        hasty.join().unwrap();
        world.assert_nobody_deposed();
    });
}
