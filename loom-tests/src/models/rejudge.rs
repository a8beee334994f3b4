//! What else re-judges the queue of a set: removal, new numbers, refunds; and waiters that share a doorbell.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, SeqCst};

use limitset::engine::{Entered, NewNumbers, Place};
use limitset::protocol::{Block, Env, Fault, NEVER, Waiting};
use limitset::{Limit, RateLimit, ResourceLimit};

use super::queue::permits;
use crate::mutant::Mutation;
use crate::set::{Answer, Life, Plan, Set, beside};
use crate::sweep::{Model, Scenario};
use crate::world::Sleep;

/// Invariant: who is about to sleep when the set is removed does not sleep on, though neither takes the other's lock.
pub fn removal_ends_waiting(mutation: Mutation) {
    let model = Model::exhaustive("removal_ends_waiting", 2, "3, 5", mutation);
    model.run(|scenario| {
        let set = permits(scenario, 1, 2, Sleep::DoorbellUntilWoken);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.acquire(1)));
        set.live(1, 1, |life| remove(&life));
        assert_eq!(waiter.join().unwrap(), Some(Answer::Removed));
        set.world.assert_nobody_deposed();
    });
}

/// [`removal_ends_waiting`] with an entry that was used before.
pub fn removal_finds_used_entries(mutation: Mutation) {
    let model = Model::exhaustive("removal_finds_used_entries", 2, "3, 5", mutation);
    model.run(|scenario| {
        let set = permits(scenario, 1, 2, Sleep::DoorbellUntilWoken);
        let place = set.queue_up(2, 1, NEVER, false);
        set.act(0, 2, 0, |life| life.abandon(&place, 1));
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.acquire(1)));
        set.live(1, 1, |life| remove(&life));
        assert_eq!(waiter.join().unwrap(), Some(Answer::Removed));
        set.world.assert_nobody_deposed();
    });
}

/// Invariant: the same for who sleeps on the doorbell of its participant.
pub fn removal_rings_participants(mutation: Mutation) {
    let model = Model::exhaustive("removal_rings_participants", 2, "3, 5", mutation);
    model.run(|scenario| {
        let set = shared(scenario, 1);
        let waiter = beside(&set, |set| {
            set.live(2, 0, |life| match life.join(1, NEVER, true) {
                Ok(Entered::Waiting(place)) => help(&life, vec![place]),
                Err(Fault::Closed) => vec![Answer::Removed],
                other => panic!("{other:?}"),
            })
        });
        set.live(1, 1, |life| remove(&life));
        assert_eq!(waiter.join().unwrap(), Some(vec![Answer::Removed]));
        set.world.assert_nobody_deposed();
    });
}

/// What a segment does to its set when it is removed.
fn remove<E: Env>(life: &Life<'_, E>) {
    life.engine.block.close_unlocked();
    life.engine.ring_all().unwrap();
}

/// Invariant: who waits for more than there will ever be, since the limit was lowered, is told so, though somebody
/// before it goes on waiting; also if who lowers it is killed at whatever operation, and somebody else does it again.
pub fn lowered_limit_refuses(mutation: Mutation) {
    let model = Model::exhaustive("lowered_limit_refuses", 2, "3, 5", mutation).bounded(1);
    model.sweep(&[1], |scenario| {
        let set = permits(scenario, 2, 4, Sleep::UntilNews);
        let [first, second] = [(2, 1), (3, 2)].map(|(slot, amount)| set.queue_up(slot, amount, NEVER, false));
        let second = beside(&set, |set| set.live(3, 0, |life| life.wait(second, 2, NEVER)));
        let is_alive = set.live(1, 2, |life| lower(&life)).is_some();
        if !is_alive {
            set.live(4, 0, |life| lower(&life));
        }
        // While the first still waits.
        assert_eq!(second.join().unwrap(), Some(Answer::Never));
        if is_alive {
            set.live(1, 2, |life| life.release());
        }
        assert_eq!(set.live(2, 0, |life| life.wait(first, 1, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// From two permits to one.
fn lower<E: Env>(life: &Life<'_, E>) {
    let numbers = [NewNumbers { limit: 0, capacity: 1, window_nanos: 0, burst: 0 }];
    let mut guard = life.lock().unwrap();
    life.engine.reconfigure(&mut guard, &numbers, 0).unwrap();
    guard.unlock().unwrap();
}

/// Invariant: a token that is given back goes to who waits for it. If who had it is killed at whatever operation, its
/// charge stays; then a reset makes room for who waits.
pub fn refund_is_granted(mutation: Mutation) {
    let model = Model::exhaustive("refund_is_granted", 2, "1, 2, 3, 7", mutation).bounded(1);
    model.sweep(&[1], |scenario| {
        let set = one_token(scenario);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.acquire(1)));
        let refunded = set.live(1, 0, |life| {
            assert!(matches!(life.join_at_once(1), Ok(Entered::Granted { .. } | Entered::Refused)));
            life.refund();
        });
        if refunded.is_none() {
            set.live(3, 0, |life| {
                let mut guard = life.lock().unwrap();
                life.engine.reset(&mut guard, 0).unwrap();
                guard.unlock().unwrap();
            });
        }
        assert_eq!(waiter.join().unwrap(), Some(Answer::Granted));
        set.check();
    });
}

/// A set with one token that never comes again by itself.
fn one_token(scenario: Scenario) -> Arc<Set> {
    let limit = Limit::from(RateLimit::per_second("token", 1));
    let sleep = Sleep::UntilNews;
    Set::new(scenario, Plan { limit, slots: 3, waiters: 2, sleep, held: 0, is_shared: false })
}

/// Invariant: a slot's next owner grants what the last one held to who waits for it; if it is killed at whatever
/// operation, whoever looks for the dead does.
pub fn successor_serves_waiters(mutation: Mutation) {
    let model = Model::exhaustive("successor_serves_waiters", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::DoorbellUntilWoken);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.wait(place, 1, NEVER)));
        set.die(1, 1);
        if set.enrol(1, 1).is_none() {
            set.sweep();
        }
        assert_eq!(waiter.join().unwrap(), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: two threads of one participant that wait get a permit each, one after the other. When their process is
/// killed, at whatever operation of the first, both have left the queue, and who waits behind is served.
pub fn threads_of_one_participant_wait(mutation: Mutation) {
    let model = Model::exhaustive("threads_of_one_participant_wait", 3, "2, 3, 7", mutation).bounded(1);
    model.sweep(&[2], |scenario| {
        let set = Set::new(
            scenario,
            Plan {
                limit: Limit::from(ResourceLimit::new("permit", 1)),
                slots: 4,
                waiters: 3,
                sleep: Sleep::UntilNews,
                held: 1,
                is_shared: false,
            },
        );
        let [first, second, stranger] = [2, 2, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        let stranger = beside(&set, |set| set.live(3, 0, |life| life.wait(stranger, 1, NEVER)));
        let process = beside(&set, |set| {
            let end = set.live(2, 0, |life| {
                assert_eq!(life.wait(first, 1, NEVER), Answer::Granted);
                life.release();
            });
            // The second thread of a dead process does nothing any more.
            end.map(|()| {
                set.act(4, 2, 0, |life| {
                    assert_eq!(life.wait(second, 1, NEVER), Answer::Granted);
                    life.release();
                })
            });
        });
        set.live(1, 1, |life| life.release());
        process.join().unwrap();
        assert_eq!(stranger.join().unwrap(), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: who sleeps on the doorbell of a participant for several waiters of it hears of every grant, also of one
/// that comes between the look at the waiters' own doorbells and the sleep.
pub fn shared_doorbell_tells_of_all(mutation: Mutation) {
    let model = Model::exhaustive("shared_doorbell_tells_of_all", 2, "3, 7", mutation).bounded(3);
    model.run(|scenario| {
        let set = shared(scenario, 2);
        let places = [2, 2].map(|slot| set.queue_up(slot, 1, NEVER, true));
        let helper = beside(&set, |set| set.live(2, 0, |life| help(&life, places.into())));
        set.live(1, 2, |life| {
            life.release_some(1);
            life.release();
        });
        assert_eq!(helper.join().unwrap(), Some(vec![Answer::Granted; 2]));
        set.check();
    });
}

/// Invariant: whoever sees the doorbell of a participant rung sees which of its waiters was meant; also if who granted
/// is killed at whatever operation, and somebody else rings again.
pub fn shared_doorbell_rings_last(mutation: Mutation) {
    let model = Model::exhaustive("shared_doorbell_rings_last", 2, "3, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let set = shared(scenario, 1);
        let place = set.queue_up(2, 1, NEVER, true);
        let helper = beside(&set, |set| set.live(2, 0, |life| help(&life, vec![place])));
        set.live(1, 1, |life| life.release());
        set.sweep();
        assert_eq!(helper.join().unwrap(), Some(vec![Answer::Granted]));
        set.check();
    });
}

/// A set whose participants have doorbells, with so many permits, all held by the owner of slot 1.
fn shared(scenario: Scenario, permits: u64) -> Arc<Set> {
    let limit = Limit::from(ResourceLimit::new("permit", permits));
    let sleep = Sleep::DoorbellUntilWoken;
    Set::new(scenario, Plan { limit, slots: 3, waiters: 2, sleep, held: permits, is_shared: true })
}

/// What the helper thread of a process does for its waiters, until all have an answer: the order of operations of
/// `src/helper.rs`, which runs on the machine only.
fn help<E: Env>(life: &Life<'_, E>, mut places: Vec<Place>) -> Vec<Answer> {
    let Block { env, closed, .. } = life.engine.block;
    let shared = life.engine.shared_doorbell(life.me.slot).unwrap();
    let mut answers = Vec::new();
    while !places.is_empty() {
        // First what the shared doorbell says, then who has been rung.
        let seen = env.load32(shared, Acquire);
        env.fence(SeqCst);
        let is_removed = env.load64(closed, Acquire) != 0;
        let mut is_rung = false;
        places.retain_mut(|place| {
            let doorbell = life.engine.doorbell(place.waiter).unwrap();
            if !is_removed && env.load32(doorbell, Acquire) == place.seen {
                return true;
            }
            is_rung = true;
            let answer = life.look(place, 1, NEVER);
            answers.extend(answer);
            answer.is_none()
        });
        if !is_rung {
            env.wait(Waiting::Doorbell, shared, seen, NEVER);
        }
    }
    answers
}
