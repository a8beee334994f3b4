//! Sweeps that ask about a few slots each: consecutive ones reach every slot, whoever else sweeps or is killed meanwhile.

use std::sync::Arc;

use limitset::core::semaphore::{CAPACITY, HOLDINGS};
use limitset::core::{Env, NEVER, Reach, Semaphore};
use limitset::engine::models::Draft;
use limitset::{Limit, ResourceLimit};

use super::LATE;
use super::queue::permits;
use crate::mutant::Mutation;
use crate::set::{Answer, Life, Set, Size, Still, beside};
use crate::sweep::{Model, Scenario};
use crate::world::{self, Shape, Sleep, World};

/// The slot whose owner dies: neither the first nor the last that is asked about.
const DEAD: u32 = 3;
/// One slot per sweep, and no holder first: only the turn of a slot brings it up.
const ONE_SLOT: Reach = Reach { wanted: 0, holders: 0, window: 1 };

/// Invariant: after as many windows as there are other participants, every dead one has been found, though two others have
/// swept at one time and one of them was killed at whatever operation.
pub fn windows_take_turns(mutation: Mutation) {
    let model = Model::exhaustive("windows_take_turns", 2, "2, 3", mutation).bounded(3);
    model.sweep(&[1], |scenario| {
        let set = held_by_one(scenario);
        set.die(DEAD, 1);
        let other = beside(&set, |set| sweep_once(set, 2));
        sweep_once(&set, 1);
        other.join().unwrap();
        for _ in 1..LATE {
            sweep_once(&set, LATE);
        }
        let left = set.world.word(set.draft().in_use(0));
        assert_eq!(left, 0, "sweeps passed a dead participant over");
        set.check();
    });
}

/// A set with a permit that the owner of the slot in the middle holds.
fn held_by_one(scenario: Scenario) -> Arc<Set> {
    let mut draft = Draft::new(vec![Limit::from(ResourceLimit::new("permit", 1))], LATE, 1);
    draft.hold(DEAD, 0, 1);
    let size = Size { slots: LATE, waiters: 1, sleep: Sleep::Slices };
    Set::in_time(scenario, draft, size, Box::new(|_, _| {}))
}

fn sweep_once(set: &Set, slot: u32) {
    set.live(slot, 0, |life| life.engine.sweep_in(life.me, ONE_SLOT, NEVER, &Still).unwrap());
}

/// Invariant: the same for the holders of a semaphore, whose sweeps ask about one holder each. One of them may be killed in
/// the middle of giving its permit back, when its row says that it holds nothing.
pub fn holders_take_turns(mutation: Mutation) {
    let model = Model::exhaustive("holders_take_turns", 2, "2, 3", mutation).bounded(3);
    model.sweep(&[1], |scenario| {
        let mut words = vec![0; HOLDINGS.rows];
        words[CAPACITY] = 3;
        words[HOLDINGS.totals] = 3;
        words.extend([1, 1, 1, 1, 1, 1, 1, 0]);
        let shape = Shape { slots: LATE, words: &words, changes: 2, sleep: Sleep::Slices };
        let world = World::new(scenario, shape);
        world.free(DEAD);
        let other = world::beside(&world, |world| sweep_one_holder(world, 2));
        world.live(1, |block, me| {
            Semaphore(&block).give(me, 1, NEVER).unwrap();
            Semaphore(&block).sweep_some(me, 1, NEVER).unwrap();
        });
        other.join().unwrap();
        for _ in 1..LATE {
            sweep_one_holder(&world, LATE);
        }
        let row = |slot: u32| world.word(HOLDINGS.row(slot) + 1);
        let rows: u64 = (1..=LATE).map(row).sum();
        assert_eq!(world.word(HOLDINGS.totals), rows, "the total is not the sum of the rows");
        assert_eq!([1, 2, 3, 4].map(row), [0, 1, 0, 0], "sweeps passed a dead participant over");
        world.assert_nobody_deposed();
    });
}

fn sweep_one_holder(world: &World, slot: u32) {
    world.live(slot, |block, me| Semaphore(&block).sweep_some(me, 1, NEVER).unwrap());
}

/// Invariant: a waiter whose time is up, and that looks at the holders of what it misses before it gives up, is granted what
/// a dead one held. The holder may have been killed at any operation of giving it back; another participant that sweeps at
/// the same time may be killed at any operation, too.
pub fn last_sweep_serves_the_waiter(mutation: Mutation) {
    let model = Model::exhaustive("last_sweep_serves_the_waiter", 2, "2, 3, 7", mutation).bounded(1);
    model.sweep(&[1, 3], |scenario| {
        let set = permits(scenario, 1, LATE, Sleep::Slices);
        let mut place = set.queue_up(2, 1, 0, false);
        // Dead or alive, its permit is free when the waiter looks.
        set.live(1, 1, |life| life.release());
        let other = beside(&set, |set| set.live(3, 0, |life| sweep_holders(&life)));
        let answer = set.live(2, 0, |life| {
            sweep_holders(&life);
            life.look(&mut place, 1, 0)
        });
        other.join().unwrap();
        let answer = answer.expect("nobody kills the waiter");
        assert_eq!(answer, Some(Answer::Granted), "the waiter gave up");
        set.check();
    });
}

fn sweep_holders<E: Env>(life: &Life<'_, E>) {
    life.engine.sweep_in(life.me, Reach::holders_of(1), NEVER, &Still).unwrap();
}
