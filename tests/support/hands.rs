//! What a healthy participant does to a set by hand, under its lock: so that it has the same in an original as in every
//! copy of it, where it goes by the same name.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, reason = "tests")]

use std::sync::atomic::Ordering::Acquire;

use limitset::core::{Env, NEVER, Participant};
use limitset::engine::{Admitted, Charge, Ending, Engine, Entered, Look, Patience, Place, Wants};
use limitset::{Clock, LimitSet};

/// Somebody healthy who waits, as a thread blocked in `acquire` does: it looks when it is rung, and only then.
#[derive(Clone, Debug)]
pub struct Waits {
    wants: Wants,
    place: Place,
}

pub fn me(set: &LimitSet) -> Participant {
    set.segment().participant().unwrap()
}

/// Acquires what has to be there.
pub fn hold(set: &LimitSet, wants: &Wants) -> Vec<Charge> {
    let parts = set.parts().unwrap();
    let mut guard = parts.lock(me(set), NEVER).unwrap();
    let now = parts.now(&guard, 0).unwrap();
    let entered = parts.enter(&mut guard, wants, u64::MAX, None, &Clock::Manual, now).unwrap();
    assert!(matches!(entered, Entered::Granted { .. }), "{entered:?}");
    Charge::of(wants, u64::MAX, parts.table, u64::MAX).collect()
}

/// Joins the queue as `acquire` does; none if there is no room.
pub fn wait(set: &LimitSet, wants: Wants) -> Option<Waits> {
    let parts = set.parts().unwrap();
    let mut guard = parts.lock(me(set), NEVER).unwrap();
    let now = parts.now(&guard, 0).unwrap();
    let patience = Patience { deadline: NEVER, shares_doorbell: false };
    match parts.enter(&mut guard, &wants, u64::MAX, Some(patience), &Clock::Manual, now).unwrap() {
        Entered::Waiting(place) => Some(Waits { wants, place }),
        Entered::Full => None,
        other => panic!("{other:?}"),
    }
}

/// Leaves the queue, from which nothing has come.
pub fn leave(set: &LimitSet, waits: &Waits) {
    let parts = set.parts().unwrap();
    let mut guard = parts.lock(me(set), NEVER).unwrap();
    let now = parts.now(&guard, 0).unwrap();
    assert_eq!(parts.leave(&mut guard, &mut waits.place.clone(), &waits.wants, now), Ok(Look::Waiting));
}

/// Reports, and releases or cancels.
pub fn finish(set: &LimitSet, charges: &[Charge], cancel: bool) {
    let parts = set.parts().unwrap();
    let mut guard = parts.lock(me(set), NEVER).unwrap();
    let now = parts.now(&guard, 0).unwrap();
    let mut charges = charges.to_vec();
    for charge in charges.iter_mut().filter(|charge| charge.owes_report) {
        parts.recharge(&mut guard, charge, charge.charged, now).unwrap();
        charge.owes_report = false;
    }
    let ending = if cancel { Ending::Cancelled } else { Ending::Released(Admitted::default()) };
    parts.finish(&mut guard, &charges, ending, now).unwrap();
}

/// What a sleeper does: looks if it was rung. Gives what it was granted.
pub fn look(set: &LimitSet, waits: &mut Waits) -> Option<Vec<Charge>> {
    let parts = set.parts().unwrap();
    let doorbell = parts.doorbell(waits.place.waiter).unwrap();
    if doorbell.load(Acquire) == waits.place.seen {
        return None;
    }
    let mut guard = parts.lock(me(set), NEVER).unwrap();
    let now = parts.now(&guard, 0).unwrap();
    match parts.look(&mut guard, &mut waits.place, &waits.wants, &Clock::Manual, now).unwrap() {
        Look::Waiting => None,
        Look::Granted => Some(Charge::of(&waits.wants, u64::MAX, parts.table, u64::MAX).collect()),
        answer @ (Look::Refused | Look::Lost) => panic!("{answer:?}: {waits:?}"),
    }
}

/// Every word as it is when what the last holder had begun is undone, and whether that one is dead. Then the lock is taken
/// to the end, as anybody would: after a death, the queue gets what it is owed.
pub fn locked_words<E: Env>(engine: &Engine<'_, E>, me: Participant) -> (Vec<u64>, bool) {
    let mut guard = engine.block.take(me, NEVER.into()).unwrap().guard(&engine.block);
    guard.begin_whole().unwrap();
    let words = (0..engine.block.words.len()).map(|index| guard.get(index).unwrap()).collect();
    let is_stolen = guard.is_stolen();
    // Fails where a defect has left links that make no sense; the words show that.
    let _ = engine.begin(&mut guard);
    guard.unlock().unwrap();
    (words, is_stolen)
}
