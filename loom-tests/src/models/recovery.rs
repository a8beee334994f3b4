//! What the queue is owed by a lock holder that was killed, and that the process which recovers the lock sees to it; killed
//! itself at every operation.
//!
//! A waiter sleeps until its doorbell wakes it, or its alarm where there is one; never because a slice is over. So a ring
//! that is owed and not given is a deadlock. It sleeps before the others begin.

use std::sync::Arc;
use std::time::Duration;

use limitset::core::{Env, NEVER};
use limitset::engine::models::{Draft, Work};
use limitset::{Cooldown, Limit, ResourceLimit};
use loom::thread::yield_now;

use super::queue::permits;
use crate::mutant::Mutation;
use crate::set::{ALWAYS, Answer, Life, Set, Size, Still, beside};
use crate::sweep::{Model, Scenario};
use crate::world::Sleep;

const NOW: u64 = 10;
const END: u64 = 1_000;
const GAP: u64 = 50;

/// Invariant: a waiter whose permit is given back gets it and is told, though the holder is killed at whatever operation of
/// giving it back, and the process that recovers the lock at whatever operation of that.
pub fn recovery_is_recovered(mutation: Mutation) {
    let model = Model::exhaustive("recovery_is_recovered", 2, "3, 7", mutation).bounded_at_any_depth(0);
    model.sweep_pairs(1, &[3], |scenario| {
        let set = permits(scenario, 1, 4, Sleep::DoorbellUntilWoken);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.wait(place, 1, NEVER)));
        yield_now();
        set.live(1, 1, |life| life.release());
        set.live(3, 0, |life| life.engine.sweep(life.me, NEVER, &Still).map(drop).unwrap());
        set.sweep();
        assert_eq!(waiter.join().unwrap(), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: a waiter whose alarm has moved to an earlier instant is told, though the process that ended the pause is killed at
/// whatever operation of that, and the one that recovers the lock at whatever operation. The waiter ahead is stopped.
pub fn moved_alarm_is_recovered(mutation: Mutation) {
    let model = Model::exhaustive("moved_alarm_is_recovered", 2, "3, 7", mutation).bounded_at_any_depth(0);
    model.sweep_pairs(1, &[4], |scenario| {
        let set = paused(scenario, 2, 5);
        let stopped = set.queue_up(2, 1, NEVER, false);
        let place = set.queue_up(3, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(3, 0, |life| life.wait(place, 1, NEVER)));
        yield_now();
        set.live(1, 0, |life| resume(&life));
        set.live(4, 0, |life| life.lock().unwrap().unlock().unwrap());
        set.live(5, 0, |life| {
            let [_, _, until, ..] = set.draft().cooldown();
            let (guard, now) = life.lock_now().unwrap();
            let is_paused = guard.get(until).unwrap() == END;
            life.unlock(guard, now).unwrap();
            if is_paused {
                resume(&life);
            }
        });
        set.world.pass(NOW + GAP);
        assert_eq!(waiter.join().unwrap(), Some(Answer::Granted));
        assert_eq!(set.live(2, 0, |life| life.wait(stopped, 1, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: when a waiter that was told of an earlier alarm for all of its process has its grant, the next one of its process
/// hears of it, though another process' waiter between them knows its own alarm and is stopped.
pub fn collecting_passes_the_alarm_on(mutation: Mutation) {
    let model = Model::exhaustive("collecting_passes_the_alarm_on", 1, "3, 7", mutation);
    model.run(|scenario| {
        let set = paused(scenario, 4, 5);
        let slots = [4, 2, 3, 2];
        let [head, mut first, mut between, mut second] =
            slots.map(|slot| set.queue_up(slot, 1, NEVER, false));
        set.live(1, 0, |life| resume(&life));
        // The head has its grant. The one between hears of the gap behind that, and is stopped then.
        assert_eq!(set.live(3, 0, |life| look(&life, &mut between)), Some(None));
        assert_eq!(set.live(2, 0, |life| look(&life, &mut first)), Some(None));
        set.world.pass(NOW + GAP);
        assert_eq!(set.live(2, 0, |life| look(&life, &mut first)), Some(Some(Answer::Granted)));
        for instant in [NOW + 2 * GAP, NOW + 3 * GAP] {
            assert_eq!(set.live(2, 0, |life| look(&life, &mut second)), Some(None));
            set.world.pass(instant);
        }
        assert_eq!(set.live(2, 0, |life| look(&life, &mut second)), Some(Some(Answer::Granted)));
        for (slot, place) in [(4, head), (3, between)] {
            assert_eq!(set.live(slot, 0, |life| life.wait(place, 1, NEVER)), Some(Answer::Granted));
        }
        set.check();
    });
}

/// Sleeps until there is a reason to look, and looks.
fn look<E: Env>(life: &Life<'_, E>, place: &mut limitset::engine::Place) -> Option<Answer> {
    life.engine.sleep(life.me, place, NEVER, ALWAYS, &life.time(), |_| Ok(())).unwrap();
    life.look(place, 1, NEVER)
}

/// A set with so many free permits, in a pause that ends at `END`; a slow start follows, one admission per `GAP`.
fn paused(scenario: Scenario, permits: u64, slots: u32) -> Arc<Set> {
    let limit = Limit::from(ResourceLimit::new("permit", permits));
    let nanos = Duration::from_nanos;
    let spaced = 10;
    let cooldown = Cooldown::default().jitter(0.0).slow_start(spaced, nanos(GAP), nanos(GAP));
    let waiters = u32::try_from(permits).unwrap();
    let mut draft = Draft::with_work(vec![limit], slots, waiters, cooldown, Work { items: 0, most: [1, 1] });
    let words = draft.cooldown().into_iter().zip([END, 1, END, 1, spaced.into(), 1, 0]);
    words.for_each(|(index, value)| draft.words[index] = value);
    let size = Size { slots, waiters, sleep: Sleep::DoorbellUntilAlarm };
    let set = Set::in_time(scenario, draft, size, Box::new(|_, _| {}));
    set.world.pass(NOW);
    set
}

/// Ends the pause.
fn resume<E: Env>(life: &Life<'_, E>) {
    let (mut guard, now) = life.lock_now().unwrap();
    life.engine.resume(&mut guard, now).unwrap();
    life.unlock(guard, now).unwrap();
}
