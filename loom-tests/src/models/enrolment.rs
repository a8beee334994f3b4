//! Enrolment: new owners of slots against those who judge the old ones and steal from them.

use std::sync::atomic::Ordering::Relaxed;

use limitset::protocol::{Block, Participant};

use super::journal::{SHAPE, check_late, increment, look};
use crate::mutant::Mutation;
use crate::sweep::{Model, Scenario};
use crate::world::{ModelEnv, World, beside};

/// Invariant: somebody who enrols while others use the lock is never taken for dead.
pub fn newcomer_is_alive(mutation: Mutation) {
    let model = Model::exhaustive("newcomer_is_alive", 2, "2, 3", mutation);
    model.sweep(&[1, 2], |scenario| {
        let world = World::new(scenario, SHAPE);
        world.free(1);
        let other = beside(&world, |world| world.live(2, increment).is_some());
        let committed = [world.enrol(1, 1, increment).is_some(), other.join().unwrap()];
        check_late(&world, &committed);
    });
}

/// Invariant: who learns from a slot's generation that its last owner is dead finds what that one had begun,
/// and undoes it whole.
pub fn successor_betrays_death(mutation: Mutation) {
    let model = Model::exhaustive("successor_betrays_death", 2, "1, 3", mutation);
    model.sweep(&[1], |scenario| succeed(scenario, |_, _| ()));
}

/// Invariant: what a dead owner of a slot had begun is undone once, whether the slot's next owner or a stranger
/// comes first.
pub fn slot_passes_on(mutation: Mutation) {
    let model = Model::exhaustive("slot_passes_on", 2, "1, 3", mutation);
    model.sweep(&[1], reuse);
}

/// [`slot_passes_on`] with the next owner or the stranger killed as well.
pub fn slot_is_reused(mutation: Mutation) {
    let model = Model::exhaustive("slot_is_reused", 2, "1, 3", mutation).bounded(2);
    model.sweep_pairs(1, &[2, 3], reuse);
}

fn reuse(scenario: Scenario) {
    succeed(scenario, |block, me| {
        look(block, me);
    });
}

fn succeed(scenario: Scenario, next_life: impl FnOnce(Block<'_, ModelEnv<'_>>, Participant)) {
    let world = World::new(scenario, SHAPE);
    let stranger = beside(&world, |world| {
        // Relaxed: what the stranger knows of the dead it has to learn from their slot. If it comes earlier,
        // there is nothing to see that other models do not show.
        if world.mark.load(Relaxed) == 1 {
            world.live(3, look);
        }
    });
    let committed = world.live(1, increment).is_some();
    if !committed {
        world.mark.store(1, Relaxed);
        world.enrol(2, 1, next_life);
    }
    stranger.join().unwrap();
    check_late(&world, &[committed]);
}
