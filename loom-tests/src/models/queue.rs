//! The queue of a set: grants on behalf of those who wait, and what becomes of them when somebody dies.
//!
//! One limit of one permit, unless it says otherwise; the clock stands still. Waits are untimed, so somebody who is
//! not told of a grant is a deadlock. Where a third participant waits, it sleeps from the start, and acts when the
//! others have ended: a stopped waiter, which must not matter to them. Every model ends with a look at the whole set ([`Set::check`]).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use limitset::core::{Env, NEVER, Participant};
use limitset::engine::models::Draft;
use limitset::engine::{Admitted, Ending, Entered, Look, Patience, Wants};
use limitset::{Limit, ResourceLimit};

use crate::mutant::{Effect, Mutation};
use crate::set::{ALWAYS, Answer, Life, Plan, Set, Size, beside};
use crate::sweep::{Model, Scenario};
use crate::world::Sleep;

/// A set with so many permits, all held by the owner of slot 1.
pub(super) fn permits(scenario: Scenario, permits: u64, slots: u32, sleep: Sleep) -> Arc<Set> {
    let limit = Limit::from(ResourceLimit::new("permit", permits));
    Set::new(scenario, Plan { limit, slots, waiters: 2, sleep, held: permits, is_shared: false })
}

/// Invariant: who queues up for a permit gets it when its holder gives it back or dies, at whatever operation; and
/// leaves nothing behind if it is killed itself, be it while it queues up, waits, collects or holds.
pub fn waiter_gets_its_grant(mutation: Mutation) {
    let model = Model::exhaustive("waiter_gets_its_grant", 2, "2, 3, 7", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::UntilNews);
        let waiter = beside(&set, |set| {
            set.live(2, 0, |life| {
                assert_eq!(life.acquire(1), Answer::Granted);
                life.release();
            })
        });
        set.live(1, 1, |life| life.release());
        waiter.join().unwrap();
        set.check();
    });
}

/// Invariant: whoever came first has it first, though who came later wants less and would fit before.
pub fn waiters_are_served_in_order(mutation: Mutation) {
    let model = Model::exhaustive("waiters_are_served_in_order", 3, "2, 7", mutation).bounded_at_any_depth(2);
    model.run(|scenario| {
        let set = permits(scenario, 2, 4, Sleep::UntilNews);
        // None of the model's words: two of them never hold permits at one time.
        let last = Arc::new(AtomicU64::new(0));
        let waiters = [(2, 2), (3, 1)].map(|(slot, amount)| {
            let last = Arc::clone(&last);
            beside(&set, move |set| {
                set.live(slot, 0, |life| {
                    let ticket = match life.join(amount, NEVER, false).unwrap() {
                        Entered::Granted { ticket, .. } => ticket,
                        Entered::Waiting(place) => {
                            let ticket = place.ticket;
                            assert_eq!(life.wait(place, amount, NEVER), Answer::Granted);
                            ticket
                        }
                        other => panic!("{other:?}"),
                    };
                    let before = last.swap(ticket + 1, Relaxed);
                    assert!(before <= ticket, "ticket {} was served before ticket {ticket}", before - 1);
                    life.release();
                })
            })
        });
        set.live(1, 2, |life| {
            life.release_some(1);
            life.release();
        });
        for waiter in waiters {
            waiter.join().unwrap();
        }
        set.check();
    });
}

/// Invariant: who gives up while it is granted a permit either has it or has left, never both, and no permit is lost;
/// whoever is killed at whatever operation.
pub fn timeout_against_grant(mutation: Mutation) {
    let model = Model::exhaustive("timeout_against_grant", 2, "2, 3, 5", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::UntilNews);
        let place = set.queue_up(2, 1, 1, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.wait(place, 1, 1)));
        set.live(1, 1, |life| life.release());
        let answer = waiter.join().unwrap();
        assert!(matches!(answer, None | Some(Answer::Granted | Answer::Late)), "{answer:?}");
        set.check();
    });
}

/// Invariant: what was granted to somebody who no longer wants it goes to who waits behind; whoever of the two before
/// is killed at whatever operation.
pub fn cancel_passes_the_grant_on(mutation: Mutation) {
    let model = Model::exhaustive("cancel_passes_the_grant_on", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 4, Sleep::UntilNews);
        let [fickle, patient] = [2, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        let fickle = beside(&set, move |set| set.live(2, 0, |life| life.abandon(&fickle, 1)));
        set.live(1, 1, |life| life.release());
        fickle.join().unwrap();
        assert_eq!(set.live(3, 0, |life| life.wait(patient, 1, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: whoever is killed, the holder that grants, the head of the queue while it waits, once it was granted or
/// while it grants itself, at whatever operation: who waits behind gets the permit.
pub fn the_dead_pass_their_turn_on(mutation: Mutation) {
    let model = Model::exhaustive("the_dead_pass_their_turn_on", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 4, Sleep::UntilNews);
        let [first, second] = [2, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        let first = beside(&set, |set| {
            set.live(2, 0, |life| {
                assert_eq!(life.wait(first, 1, NEVER), Answer::Granted);
                life.release();
            })
        });
        set.live(1, 1, |life| life.release());
        first.join().unwrap();
        assert_eq!(set.live(3, 0, |life| life.wait(second, 1, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// [`the_dead_pass_their_turn_on`], one after the other, with both killed: the holder at whatever operation, and the head
/// of the queue at whatever operation of cleaning up after it, collecting or granting.
pub fn the_dead_come_in_pairs(mutation: Mutation) {
    let model = Model::exhaustive("the_dead_come_in_pairs", 1, "2, 3, 7", mutation);
    model.sweep_pairs(1, &[2], |scenario| {
        let set = permits(scenario, 1, 4, Sleep::UntilNews);
        let [first, second] = [2, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        set.live(1, 1, |life| life.release());
        set.live(2, 0, |life| {
            assert_eq!(life.wait(first, 1, NEVER), Answer::Granted);
            life.release();
        });
        assert_eq!(set.live(3, 0, |life| life.wait(second, 1, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: whoever cleans up after somebody who died granting tells those who were granted something. Without that
/// they would sleep on to the end of their slice: here for ever.
pub fn recovery_rings_waiters(mutation: Mutation) {
    let model = Model::exhaustive("recovery_rings_waiters", 2, "3", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::DoorbellUntilWoken);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| life.wait(place, 1, NEVER)));
        set.live(1, 1, |life| life.release());
        set.sweep();
        assert_eq!(waiter.join().unwrap(), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: a newcomer never gets what is kept for somebody who waits for more, whether its holder gives it back bit
/// by bit or dies.
pub fn newcomer_does_not_overtake(mutation: Mutation) {
    let model = Model::exhaustive("newcomer_does_not_overtake", 2, "5, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let set = permits(scenario, 2, 4, Sleep::UntilNews);
        let place = set.queue_up(2, 2, NEVER, false);
        let newcomer = beside(&set, |set| {
            set.live(3, 0, |life| {
                let entered = life.join_at_once(1).unwrap();
                // Behind the waiter, or refused since the waiter has it.
                let is_behind = matches!(entered, Entered::Queued { ahead: 1 } | Entered::Refused);
                assert!(is_behind, "a newcomer overtook: {entered:?}");
            })
        });
        set.live(1, 2, |life| {
            life.release_some(1);
            life.release();
        });
        newcomer.join().unwrap();
        assert_eq!(set.live(2, 0, |life| life.wait(place, 2, NEVER)), Some(Answer::Granted));
        set.check();
    });
}

/// Invariant: a process that was taken for dead and enrolled anew, such as one that took its lent slot lock back, finds
/// that its place is lost, and leaves alone whose the entry is by now: that waiter gets the permit, whether the holder
/// gives it back or is killed at whatever operation.
pub fn lost_place_is_left_alone(mutation: Mutation) {
    let model = Model::exhaustive("lost_place_is_left_alone", 2, "2, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let set = permits(scenario, 1, 4, Sleep::UntilNews);
        let mut lost = set.queue_up(2, 1, NEVER, false);
        set.die(2, 0);
        set.enrol(0, 2).expect("nobody kills it");
        let waiter = beside(&set, |set| {
            set.live(3, 0, |life| {
                assert_eq!(life.acquire(1), Answer::Granted);
                life.release();
            })
        });
        let again = Participant { slot: 2, generation: 2 };
        set.act_as(0, again, 0, |life| {
            life.abandon(&lost, 1);
            assert_eq!(life.look(&mut lost, 1, NEVER), Some(Answer::Lost));
        });
        set.live(1, 1, |life| life.release());
        waiter.join().unwrap();
        set.check();
    });
}

/// The limits of [`covered_newcomer_delays_nobody`]: one connection, and two seats.
const CONNECTION: usize = 0;
const SEATS: usize = 1;

/// Invariant: a newcomer that leaves a waiter what it asked for is let in, a second one that does not is not; and the waiter gets
/// all it asked for as soon as what it lacks is given back. Also if the holder of that is killed at whatever operation.
pub fn covered_newcomer_delays_nobody(mutation: Mutation) {
    let model = Model::exhaustive("covered_newcomer_delays_nobody", 2, "5, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let limits = [("connection", 1), ("seat", 2)].map(|(key, most)| ResourceLimit::new(key, most).into());
        let mut draft = Draft::new(limits.into(), 4, 2);
        draft.hold(1, CONNECTION, 1);
        let size = Size { slots: 4, waiters: 2, sleep: Sleep::UntilNews };
        let set = Set::in_time(scenario, draft, size, Box::new(|_, _| {}));
        let both = wants(&[(CONNECTION, 1), (SEATS, 1)]);
        let forever = Patience { deadline: NEVER, shares_doorbell: false };
        let joined = set.act(0, 2, 0, |life| ask(&life, &both, Some(forever)));
        let Some(Entered::Waiting(mut place)) = joined else { panic!("{joined:?} instead of waiting") };
        let newcomer = beside(&set, |set| {
            set.live(3, 0, |life| {
                let seat = wants(&[(SEATS, 1)]);
                let first = ask(&life, &seat, None);
                assert!(
                    matches!(first, Entered::Granted { .. }),
                    "a newcomer was held up for nothing: {first:?}"
                );
                let second = ask(&life, &seat, None);
                // Behind the waiter, or refused since the waiter has it.
                let is_behind = matches!(second, Entered::Queued { ahead: 1 } | Entered::Refused);
                assert!(is_behind, "a newcomer overtook: {second:?}");
            })
        });
        set.live(1, 1, |life| {
            let (mut guard, now) = life.lock_now().unwrap();
            let ending = Ending::Released(Admitted::default());
            life.engine.finish(&mut guard, &life.charges(1), ending, now).unwrap();
            life.unlock(guard, now).unwrap();
        });
        newcomer.join().unwrap();
        set.sweep();
        let looked = set.live(2, 0, |life| {
            life.engine.sleep(life.me, &place, NEVER, ALWAYS, &life.time(), |_| Ok(())).unwrap();
            let (mut guard, now) = life.lock_now().unwrap();
            let look = life.engine.look(&mut guard, &mut place, &both, &life.time(), now).unwrap();
            life.unlock(guard, now).unwrap();
            look
        });
        assert_eq!(looked, Some(Look::Granted));
        assert_eq!([CONNECTION, SEATS].map(|limit| set.world.word(set.draft().in_use(limit))), [1, 2]);
        set.world.assert_nobody_deposed();
    });
}

/// Asks; with patience, joins the queue if it has to.
fn ask<E: Env>(life: &Life<'_, E>, wants: &Wants, patience: Option<Patience>) -> Entered {
    let (mut guard, now) = life.lock_now().unwrap();
    let overtaken = match life.effect() {
        Effect::Overtake => life.engine.take(&mut guard, wants, u64::MAX, now).unwrap(),
        _ => None,
    };
    let entered = match overtaken {
        Some(ticket) => Entered::Granted { ticket, admitted: Admitted::default() },
        None => life.engine.enter(&mut guard, wants, u64::MAX, patience, &life.time(), now).unwrap(),
    };
    life.unlock(guard, now).unwrap();
    entered
}

/// So much of each of these limits.
fn wants(amounts: &[(usize, u64)]) -> Wants {
    let mut wants = Wants::none();
    for (limit, amount) in amounts {
        wants.set(*limit, *amount);
    }
    wants
}
