//! The work queue of a set: an item is with one participant at a time, comes back when that one dies, is parked when the
//! set pauses, and ends once; who waits for something of that hears of it.
//!
//! One limit of two permits, one or two items; bytes are two words each. The clock stands still until somebody moves it.
//! Sleeps are untimed, so somebody who is not told is a deadlock. Every model ends with a look at the whole queue
//! ([`Depot::check`]), most of them with somebody who takes and finishes what is left ([`Depot::finish`]).

use std::sync::Arc;

use limitset::core::NEVER;
use limitset::engine::{Finishes, Lease, Pushed, Reason, Taken};

use crate::depot::{At, Depot, PAUSE, Plan, Worker, beside};
use crate::mutant::Mutation;
use crate::sweep::{Model, Scenario};
use crate::world::{ModelEnv, Sleep};

/// Attempts, and 429s, that no model comes up to.
const PATIENT: [u32; 2] = [9, 9];

/// A depot with so many items, all of them ready; nobody sleeps but for the lock.
fn ready(scenario: Scenario, items: u32, most: [u32; 2]) -> Arc<Depot> {
    let depot = Depot::new(scenario, Plan { slots: 3, items, most, sleep: Sleep::UntilNews });
    depot.before(3, |worker| {
        for id in 1..=items {
            assert_eq!(worker.push(id.into()), Pushed::Pushed);
        }
    });
    depot
}

/// A depot with room for one item, and none in it.
fn empty(scenario: Scenario, sleep: Sleep) -> Arc<Depot> {
    Depot::new(scenario, Plan { slots: 3, items: 1, most: PATIENT, sleep })
}

/// Takes an item if there is one, and reads its payload.
fn take(worker: &Worker<'_, ModelEnv<'_>>, now: u64) -> bool {
    let Taken::Item(lease) = worker.take(now) else { return false };
    worker.read_payload(&lease);
    true
}

/// Invariant: of two who take three times, each item goes to one; if one is killed at whatever operation, what it had, and
/// nothing else, is handed out once more, with its attempts counted.
pub fn items_are_handed_out_once(mutation: Mutation) {
    let model = Model::exhaustive("items_are_handed_out_once", 2, "1, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let depot = ready(scenario, 2, PATIENT);
        let other = beside(&depot, |depot| depot.live(2, |worker| take(&worker, 0)));
        let mine = depot.live(1, |worker| [take(&worker, 0), take(&worker, 0)]);
        let other = other.join().unwrap();
        if let (Some(mine), Some(other)) = (mine, other) {
            let count = mine.into_iter().chain([other]).filter(|taken| *taken).count();
            assert_eq!(count, 2, "items are left, or there were more than were pushed");
        }
        depot.finish();
    });
}

/// Invariant: who takes an item reads the bytes that were pushed, without the lock; a pusher that is killed at whatever
/// operation has pushed all of it or nothing.
pub fn payload_is_whole(mutation: Mutation) {
    let model = Model::exhaustive("payload_is_whole", 2, "1, 3", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let depot = empty(scenario, Sleep::LockUntilNews);
        let taker = beside(&depot, |depot| depot.live(2, |worker| take(&worker, 0)));
        depot.live(1, |worker| assert_eq!(worker.push(7), Pushed::Pushed));
        taker.join().unwrap();
        depot.finish();
    });
}

/// Invariant: an item that is finished while somebody collects is done once, or comes back if its worker was killed before
/// that; its result is collected as it was written, without the lock, and again if the collector was killed.
pub fn result_is_whole(mutation: Mutation) {
    let model = Model::exhaustive("result_is_whole", 2, "1, 3", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let depot = ready(scenario, 1, PATIENT);
        let lease = depot.before(1, |worker| worker.take_one(0));
        let collector = beside(&depot, |depot| depot.live(2, |worker| collect(&worker)));
        depot.live(1, |worker| worker.done(&lease, true));
        let collected = collector.join().unwrap();
        let counts = depot.check();
        assert_eq!(counts.done + counts.returned, 1, "an item ended twice");
        let left = depot.late(|worker| collect(&worker));
        if collected.is_some() {
            let count = u64::from(collected == Some(true)) + u64::from(left);
            assert_eq!(count, counts.done, "a result was lost, or collected twice");
        }
        depot.finish();
    });
}

/// Collects a result if there is one.
fn collect(worker: &Worker<'_, ModelEnv<'_>>) -> bool {
    let Taken::Item(lease) = worker.collect(Finishes::Results) else { return false };
    worker.use_up(&lease);
    true
}

/// Invariant: the item of a dead worker returns once, though its slot's next owner and a sweep both see to it, and goes to
/// one of those who take, before what was never handed out; whoever of them is killed at whatever operation.
pub fn dead_workers_item_returns(mutation: Mutation) {
    let model = Model::exhaustive("dead_workers_item_returns", 2, "1, 3", mutation).bounded(1);
    model.sweep(&[1, 2], |scenario| {
        let depot = ready(scenario, 2, PATIENT);
        depot.before(1, |worker| worker.take_one(0));
        depot.die(1);
        let sweeper = beside(&depot, |depot| {
            depot.live(2, |worker| {
                worker.engine.sweep(worker.me, NEVER, &At(0)).unwrap();
                take(&worker, 0)
            })
        });
        let newcomer = depot.enrol(1, 1, |worker| take(&worker, 0));
        let sweeper = sweeper.join().unwrap();
        let counts = depot.check();
        assert_eq!(counts.returned, counts.taken - counts.leased, "an item returned twice, or not at all");
        if let (Some(newcomer), Some(sweeper)) = (newcomer, sweeper) {
            assert!(newcomer && sweeper, "an item did not return");
            assert_eq!([1, 2].map(|item| depot.attempts(item)), [[2, 0], [1, 0]], "attempts do not add up");
        }
        depot.finish();
    });
}

/// Invariant: an item that was tried often enough when its worker dies is a dead letter, once, and never handed out again.
pub fn attempts_end_in_a_dead_letter(mutation: Mutation) {
    let model = Model::exhaustive("attempts_end_in_a_dead_letter", 2, "1, 3", mutation).bounded(1);
    model.sweep(&[1, 2], |scenario| {
        let depot = ready(scenario, 1, [1, 9]);
        depot.before(1, |worker| worker.take_one(0));
        depot.die(1);
        let sweeper = beside(&depot, |depot| {
            depot.live(2, |worker| {
                worker.engine.sweep(worker.me, NEVER, &At(0)).unwrap();
                assert!(!take(&worker, 0), "a dead letter was handed out");
            })
        });
        depot.enrol(1, 1, |worker| assert!(!take(&worker, 0), "a dead letter was handed out"));
        sweeper.join().unwrap();
        let counts = depot.finish();
        assert_eq!([counts.returned, counts.dead_lettered], [1, 1], "it is not a dead letter once");
        depot.late(|worker| {
            let Taken::Item(lease) = worker.collect(Finishes::DeadLetters) else { panic!("no dead letter") };
            assert_eq!((lease.reason, lease.attempts), (Some(Reason::Attempts), 1));
            worker.read_payload(&lease);
        });
        depot.check();
    });
}

/// Two workers, with an item and a permit each.
fn two_at_work(scenario: Scenario) -> (Arc<Depot>, [Lease; 2]) {
    let depot = ready(scenario, 2, PATIENT);
    let leases = [1, 2].map(|slot| depot.before(slot, |worker| worker.take_one(0)));
    (depot, leases)
}

/// Invariant: two 429s at one time begin one pause, and each parks its item, ends its acquisition and counts, all of it or
/// nothing; the item of who was killed before that returns. No parked item is handed out before the pause is over, and
/// each once after it.
pub fn item_is_parked_with_the_pause(mutation: Mutation) {
    let model = Model::exhaustive("item_is_parked_with_the_pause", 2, "1, 2, 3", mutation).bounded(3);
    model.sweep(&[1, 2], |scenario| {
        let (depot, [mine, others]) = two_at_work(scenario);
        let other = beside(&depot, move |depot| depot.live(2, |worker| worker.park(&others)));
        let mine = depot.live(1, |worker| worker.park(&mine));
        let other = other.join().unwrap();
        for paused in [mine, other].into_iter().flatten() {
            assert_eq!((paused.until, paused.generation), (PAUSE, 1), "it is another pause");
        }
        let counts = depot.check();
        assert_eq!(counts.pauses, 1, "there was another number of pauses");
        assert_eq!(counts.parkings + counts.returned, 2, "an item was neither parked nor returned, or both");
        assert_eq!(counts.listed, [counts.returned, counts.parkings, 0, 0, 0], "an item is somewhere else");
        for item in [1, 2] {
            let attempts = depot.attempts(item);
            assert!(matches!(attempts, [0, 1] | [1, 0]), "attempts and 429s are {attempts:?}");
        }
        let at_once = depot.late(|worker| {
            let taken: u64 = [0; 2].map(|now| u64::from(take(&worker, now))).iter().sum();
            assert!(!take(&worker, PAUSE - 1), "an item was handed out during the pause");
            taken
        });
        assert_eq!(at_once, counts.returned, "an item was handed out during the pause");
        let counts = depot.finish();
        assert_eq!(
            counts.redistributed, counts.parkings,
            "an item was parked, and not handed out once after it"
        );
    });
}

/// Invariant: after the pause parked items go to one taker each, with what was counted of them; those of a taker that is
/// killed at whatever operation return, and are not handed out as parked ones again.
pub fn parked_items_are_handed_out_once(mutation: Mutation) {
    let model = Model::exhaustive("parked_items_are_handed_out_once", 2, "1, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let (depot, leases) = two_at_work(scenario);
        for (slot, lease) in [1, 2].into_iter().zip(&leases) {
            depot.before(slot, |worker| worker.park(lease));
        }
        let other = beside(&depot, |depot| depot.live(2, |worker| take_parked(&worker)));
        depot.live(1, |worker| [take_parked(&worker), take_parked(&worker)]);
        other.join().unwrap();
        let counts = depot.finish();
        assert_eq!(
            [counts.parkings, counts.redistributed],
            [2, 2],
            "an item was not handed out once after it"
        );
    });
}

/// Takes an item after the pause, if there is one.
fn take_parked(worker: &Worker<'_, ModelEnv<'_>>) {
    if let Taken::Item(lease) = worker.take(PAUSE) {
        worker.read_payload(&lease);
        // More attempts than one if it returned from the dead before.
        assert!(lease.rate_limits == 1 && (1..=2).contains(&lease.attempts), "counts are lost: {lease:?}");
    }
}

/// Invariant: who sleeps for an item gets it when it is pushed; if it is killed at whatever operation, the item comes back.
pub fn taker_hears_of_the_push(mutation: Mutation) {
    let model = Model::exhaustive("taker_hears_of_the_push", 2, "3, 7", mutation).bounded(3);
    model.sweep(&[2], |scenario| push_to_sleeper(&empty(scenario, Sleep::UntilNews)));
}

/// Invariant: who sleeps for an item gets it also if the pusher is killed at whatever operation behind the commit: whoever
/// takes the lock from it rings. Without that the taker would sleep on to the end of its slice: here for ever.
pub fn recovery_rings_takers(mutation: Mutation) {
    let model = Model::exhaustive("recovery_rings_takers", 2, "3, 7", mutation).bounded_at_any_depth(1);
    model.sweep(&[1], |scenario| push_to_sleeper(&empty(scenario, Sleep::LockUntilNews)));
}

/// One pushes, or another one in its place if it was killed before; a third sleeps for it.
fn push_to_sleeper(depot: &Arc<Depot>) {
    let pusher = beside(depot, |depot| {
        if depot.live(1, |worker| worker.push(1)).is_none() {
            // Full, if the dead one had pushed: nobody gives the place back here. Its lock is taken in any case.
            depot.late(|worker| worker.push(1));
        }
    });
    depot.live(2, |worker| {
        let Some(Taken::Item(lease)) = worker.wait_for_item() else { panic!("no item came") };
        worker.read_payload(&lease);
    });
    pusher.join().unwrap();
    depot.finish();
}

/// Invariant: who sleeps for room can push when an item ends; if its worker is killed at whatever operation, it comes
/// back to who waits.
pub fn pusher_hears_of_room(mutation: Mutation) {
    let model = Model::exhaustive("pusher_hears_of_room", 2, "3, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let depot = ready(scenario, 1, PATIENT);
        let lease = depot.before(1, |worker| worker.take_one(0));
        let worker = beside(&depot, move |depot| depot.live(1, |worker| worker.done(&lease, false)));
        depot.live(2, |worker| assert_eq!(worker.wait_for_room(2), Some(Pushed::Pushed)));
        worker.join().unwrap();
        depot.finish();
    });
}

/// Invariant: who sleeps for a result gets it when an item is done; if its worker is killed at whatever operation before,
/// the item comes back to who waits.
pub fn collector_hears_of_the_result(mutation: Mutation) {
    let model = Model::exhaustive("collector_hears_of_the_result", 2, "3, 7", mutation).bounded(3);
    model.sweep(&[1], |scenario| {
        let depot = ready(scenario, 1, PATIENT);
        let lease = depot.before(1, |worker| worker.take_one(0));
        let worker = beside(&depot, move |depot| depot.live(1, |worker| worker.done(&lease, true)));
        depot.live(2, |worker| {
            let Some(Taken::Item(lease)) = worker.wait_for_result() else { panic!("no result came") };
            worker.use_up(&lease);
        });
        worker.join().unwrap();
        depot.finish();
    });
}

/// Invariant: who sleeps for an item that is parked gets it when somebody moves the clock to the end of the pause; also if
/// that one is killed at whatever operation, and somebody else does it again.
pub fn taker_hears_that_the_pause_is_over(mutation: Mutation) {
    let model = Model::exhaustive("taker_hears_that_the_pause_is_over", 2, "3, 7", mutation).bounded(1);
    model.sweep(&[1, 2], |scenario| {
        let depot = empty(scenario, Sleep::LockUntilNews);
        depot.before(1, |worker| worker.push(1));
        let lease = depot.before(1, |worker| worker.take_one(0));
        depot.before(1, |worker| worker.park(&lease));
        let clock = beside(&depot, |depot| {
            if depot.live(1, |worker| worker.let_pause_pass()).is_none() {
                depot.late(|worker| worker.let_pause_pass());
            }
        });
        depot.live(2, |worker| {
            let Some(Taken::Item(lease)) = worker.wait_for_item() else { panic!("no item came") };
            assert_eq!([lease.attempts, lease.rate_limits], [1, 1]);
        });
        clock.join().unwrap();
        assert_eq!(depot.finish().redistributed, 1);
    });
}

/// Invariant: who waits for an item of a closed queue learns that all is over when the last one ends, or gets that one if
/// its worker is killed at whatever operation before. Nobody else looks for the dead here.
pub fn taker_hears_that_all_is_over(mutation: Mutation) {
    let model = Model::exhaustive("taker_hears_that_all_is_over", 2, "3, 7", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let depot = ready(scenario, 1, PATIENT);
        let lease = depot.before(1, |worker| worker.take_one(0));
        depot.before(3, |worker| worker.close());
        let worker = beside(&depot, move |depot| depot.live(1, |worker| worker.done(&lease, false)));
        let is_over = depot.live(2, |worker| {
            while let Some(Taken::Item(lease)) = worker.wait_for_item() {
                worker.done(&lease, false);
            }
        });
        worker.join().unwrap();
        let counts = depot.finish();
        if is_over.is_some() {
            assert_eq!((counts.done, counts.taken - counts.returned), (1, 1), "it was not over");
        }
    });
}

/// Invariant: who is told that no result will come is told the truth, though another one has the last result and is killed
/// at whatever operation.
pub fn collector_hears_that_all_is_over(mutation: Mutation) {
    let model = Model::exhaustive("collector_hears_that_all_is_over", 2, "3, 7", mutation).bounded(2);
    model.sweep(&[1], |scenario| {
        let depot = ready(scenario, 1, PATIENT);
        depot.before(3, |worker| {
            let lease = worker.take_one(0);
            worker.done(&lease, true);
            worker.close();
        });
        let patient = beside(&depot, |depot| {
            depot.live(2, |worker| {
                while let Some(Taken::Item(lease)) = worker.wait_for_result() {
                    worker.use_up(&lease);
                }
            })
        });
        depot.live(1, |worker| collect(&worker));
        patient.join().unwrap();
        assert_eq!(depot.finish().listed, [0; 5], "a result came after all was over");
    });
}

/// Invariant: a ring finds a waiter whom it helps, whatever others wait for.
pub fn rings_find_whom_they_help(mutation: Mutation) {
    let model = Model::exhaustive("rings_find_whom_they_help", 3, "3, 7", mutation).bounded(1);
    model.run(|scenario| {
        let plan = Plan { slots: 4, items: 1, most: PATIENT, sleep: Sleep::LockUntilNews };
        let depot = Depot::new(scenario, plan);
        depot.before(1, |worker| worker.push(1));
        let lease = depot.before(1, |worker| worker.take_one(0));
        let pusher = beside(&depot, |depot| depot.live(2, |worker| worker.wait_for_room(2)));
        let worker = beside(&depot, move |depot| depot.live(1, |worker| worker.done(&lease, false)));
        // The one that sleeps first is not the one that the first ring helps.
        depot.live(3, |worker| {
            let Some(Taken::Item(lease)) = worker.wait_for_item() else { panic!("no item came") };
            assert_eq!(lease.id, 2);
        });
        pusher.join().unwrap();
        worker.join().unwrap();
        depot.finish();
    });
}

/// Invariant: a waiter that was woken and leaves without a look tells the next one, who gets the item.
pub fn leaving_taker_rings_on(mutation: Mutation) {
    let model = Model::exhaustive("leaving_taker_rings_on", 3, "3, 7", mutation).bounded(2);
    model.run(|scenario| {
        let plan = Plan { slots: 4, items: 1, most: PATIENT, sleep: Sleep::LockUntilNews };
        let depot = Depot::new(scenario, plan);
        let pusher = beside(&depot, |depot| depot.live(1, |worker| worker.push(1)));
        let leaver = beside(&depot, |depot| depot.live(3, |worker| worker.sleep_and_leave()));
        let taken = depot.live(2, |worker| worker.wait_for_item());
        assert!(matches!(taken, Some(Some(Taken::Item(_)))), "no item came");
        // The ring was for the other one: it has not left yet.
        depot.late(|worker| worker.close());
        pusher.join().unwrap();
        leaver.join().unwrap();
        depot.finish();
    });
}

/// Invariant: two items that come by one ring, which wakes one taker, go to both: the one that was woken tells the other.
pub fn takers_ring_on(mutation: Mutation) {
    let model = Model::exhaustive("takers_ring_on", 3, "3, 7", mutation).bounded(2);
    model.run(|scenario| {
        let plan = Plan { slots: 4, items: 2, most: PATIENT, sleep: Sleep::LockUntilNews };
        let depot = Depot::new(scenario, plan);
        let pusher = beside(&depot, |depot| depot.live(1, |worker| worker.push_both()));
        let taker = beside(&depot, |depot| depot.live(2, |worker| worker.wait_for_item()));
        let mine = depot.live(3, |worker| worker.wait_for_item());
        pusher.join().unwrap();
        for taken in [mine, taker.join().unwrap()] {
            assert!(matches!(taken, Some(Some(Taken::Item(_)))), "no item came");
        }
        depot.finish();
    });
}

/// Invariant: who is about to sleep for an item when the set is removed does not sleep on, though neither takes the other's
/// lock.
pub fn removal_ends_waiting_for_work(mutation: Mutation) {
    let model = Model::exhaustive("removal_ends_waiting_for_work", 2, "3, 5", mutation);
    model.run(|scenario| {
        let depot = empty(scenario, Sleep::LockUntilNews);
        let taker = beside(&depot, |depot| depot.live(2, |worker| worker.wait_for_item()));
        depot.live(1, |worker| worker.engine.block.close_unlocked());
        assert_eq!(taker.join().unwrap(), Some(None), "an item of a set that was removed");
        depot.world.assert_nobody_deposed();
    });
}
