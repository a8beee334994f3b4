//! How many slots a sweep asks the kernel about, and that none is left out for long.

use crate::core::{Fault, NEVER, Participant, Reach, Semaphore, Take};
use crate::engine::{Entered, Patience, Swept, Wants};
use crate::layout::header::RegionKind;
use crate::sys::machine::Machine;
use crate::sys::ofd::QUESTIONS;
use crate::{AcquireError, LimitSet, LimitSetBuilder, ResourceLimit, Segment};

/// More participants than a sweep may ask about, several times over.
const PARTICIPANTS: usize = 1_100;
const EVERYBODY: usize = 0;
const RARE: usize = 1;

/// For each slot that is asked about: one question, and one more to check an answer "free". Besides, the lock's holder.
const MOST_QUESTIONS: u64 = 2 + 3 * 64;
/// To find a dead participant asks about its slot twice, and each "free" is checked.
const QUESTIONS_PER_DEAD: u64 = 4;

#[test]
fn the_first_owner_of_a_row_cleans_up_after_nobody() {
    let limits = LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap();
    limits.try_acquire(()).unwrap().release().unwrap();
    assert_eq!(limits.stats().unwrap().reaped_participants, 0);
}

/// Many attaches of one process: each is a participant with a slot of its own.
struct Crowd {
    builder: LimitSetBuilder,
    name: String,
    sets: Vec<Option<LimitSet>>,
}

impl Crowd {
    fn new(participants: usize) -> Self {
        let slots = u32::try_from(participants).unwrap() + 100;
        let builder = LimitSet::builder()
            .limit(ResourceLimit::new("everybody", participants as u64))
            .limit(ResourceLimit::new("rare", 1))
            .segment(Segment::options().slots(slots).waiters(8).semaphore("door", participants as u64));
        let name = Segment::generated_name();
        let sets = (0..participants).map(|_| Some(builder.open(&name).unwrap())).collect();
        Self { builder, name, sets }
    }

    fn set(&self, number: usize) -> &LimitSet {
        self.sets[number].as_ref().unwrap()
    }

    /// Takes one of a limit, to hold it until the participant dies.
    fn take(&self, number: usize, limit: usize) {
        self.set(number).try_enter(&one_of(limit), 0).unwrap().unwrap();
    }

    /// The participant ends, and leaves behind whatever it holds.
    fn kill(&mut self, number: usize) {
        self.sets[number] = None;
    }

    fn sweep(&self, reach: Reach) -> (Swept, u64) {
        let set = self.set(0);
        let before = QUESTIONS.get();
        let me = set.segment().participant().unwrap();
        let swept = set.engine().sweep_in(me, reach, NEVER, &set.clock()).unwrap();
        (swept, QUESTIONS.get() - before)
    }

    /// Does something with the semaphore, as a participant.
    fn at_the_door<T>(
        &self,
        number: usize,
        act: impl FnOnce(Semaphore<'_, Machine>, Participant) -> Result<T, Fault>,
    ) -> T {
        let segment = self.set(number).segment();
        let region = segment.view().region("door", RegionKind::Semaphore, "semaphore").unwrap();
        let block = segment.view().block(&region).unwrap();
        act(Semaphore(&block), segment.participant().unwrap()).unwrap()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.builder.open(&self.name).map(|set| set.remove());
    }
}

fn one_of(limit: usize) -> Wants {
    let mut wants = Wants::none();
    wants.set(limit, 1);
    wants
}

#[test]
fn a_sweep_asks_about_a_bounded_number_of_slots_however_many_hold_what_is_wanted() {
    let crowd = Crowd::new(PARTICIPANTS);
    (0..PARTICIPANTS).for_each(|number| crowd.take(number, EVERYBODY));
    let (sweeps, before) = (crowd.set(0).stats().unwrap().sweeps, QUESTIONS.get());
    let refused = crowd.set(0).try_acquire([("everybody", 1)]).map(drop).unwrap_err();
    let asked = QUESTIONS.get() - before;
    assert!(matches!(refused, AcquireError::Denied { .. }), "{refused}");
    assert_eq!(crowd.set(0).stats().unwrap().sweeps, sweeps + 1, "it looked for dead holders first");
    assert!((1..=MOST_QUESTIONS).contains(&asked), "{asked} questions");
    for _ in 0..40 {
        let (swept, asked) = crowd.sweep(Reach::BOUNDED.wanting(1 << EVERYBODY));
        assert_eq!(swept, Swept::default());
        assert!(asked <= MOST_QUESTIONS, "{asked} questions");
    }
    let (_, asked) = crowd.sweep(Reach::ALL);
    assert!(asked >= PARTICIPANTS as u64 - 1, "the control: {asked} questions about all");
}

#[test]
fn consecutive_sweeps_find_every_dead_participant_within_a_round_of_windows() {
    let mut crowd = Crowd::new(PARTICIPANTS);
    let dead = [1, 63, 64, 65, 500, 777, PARTICIPANTS - 1];
    dead.iter().for_each(|number| crowd.take(*number, EVERYBODY));
    dead.iter().for_each(|number| crowd.kill(*number));
    let (mut found, mut sweeps) = (0, 0);
    while found < dead.len() as u64 {
        // Nobody wants what they hold: only the windows find them.
        let (swept, asked) = crowd.sweep(Reach::BOUNDED);
        let most = MOST_QUESTIONS + QUESTIONS_PER_DEAD * swept.participants;
        assert!(asked <= most, "{asked} questions, {} dead", swept.participants);
        found += swept.participants;
        sweeps += 1;
        assert!(sweeps <= PARTICIPANTS.div_ceil(64), "{found} found");
    }
    assert_eq!(crowd.set(0).stats().unwrap().reaped_permits, dead.len() as u64);
}

#[test]
fn the_dead_holder_of_a_wanted_limit_is_found_by_the_first_sweep_wherever_the_window_is() {
    let mut crowd = Crowd::new(PARTICIPANTS);
    for number in [1, 70, 500, 1_000, PARTICIPANTS - 1] {
        crowd.take(number, RARE);
        crowd.kill(number);
        let (swept, _) = crowd.sweep(Reach::BOUNDED.wanting(1 << RARE));
        assert_eq!((swept.participants, swept.permits), (1, 1), "participant {number}");
    }
}

#[test]
fn a_dead_waiter_at_the_head_of_the_queue_is_found_by_the_first_sweep() {
    let mut crowd = Crowd::new(PARTICIPANTS);
    crowd.take(0, RARE);
    for number in [70, 500, PARTICIPANTS - 1] {
        let patience = Patience { deadline: NEVER, shares_doorbell: false };
        let entered = crowd.set(number).enter(&one_of(RARE), 0, Some(patience)).unwrap();
        assert!(matches!(entered, Ok(Entered::Waiting(_))), "{entered:?}");
        crowd.kill(number);
        assert_eq!(crowd.sweep(Reach::BOUNDED).0.participants, 1, "participant {number}");
        assert_eq!(crowd.set(0).stats().unwrap().waiters, 0);
    }
}

#[test]
fn every_holder_is_asked_about_before_a_waiter_gives_up() {
    let mut crowd = Crowd::new(200);
    (1..200).for_each(|number| crowd.take(number, EVERYBODY));
    let dead = [70, 130, 199];
    dead.iter().for_each(|number| crowd.kill(*number));
    // One is free, three are with dead participants.
    let held = crowd.set(0).acquire_timeout([("everybody", 4)], std::time::Duration::ZERO).unwrap();
    held.release().unwrap();
    let refused = crowd.set(0).acquire_timeout([("everybody", 5)], std::time::Duration::ZERO);
    let Err(AcquireError::TimedOut(late)) = refused.map(drop) else { panic!("granted") };
    assert_eq!(late.holders.len(), 196);
    assert!(late.holders.iter().all(|holder| holder.pid != 0), "no dead process is named");
}

#[test]
fn sweeps_of_a_semaphore_ask_about_a_bounded_number_of_holders_and_leave_none_out() {
    let mut crowd = Crowd::new(PARTICIPANTS);
    for number in 0..PARTICIPANTS {
        assert_eq!(crowd.at_the_door(number, |door, me| door.try_take(me, 1, NEVER)), Take::Taken);
    }
    let dead = [1, 64, 500, PARTICIPANTS - 1];
    dead.iter().for_each(|number| crowd.kill(*number));
    let mut found = 0;
    for _ in 0..PARTICIPANTS.div_ceil(64) {
        let before = QUESTIONS.get();
        let returned = crowd.at_the_door(0, |door, me| door.sweep_some(me, 64, NEVER));
        let asked = QUESTIONS.get() - before;
        assert!(asked <= 64 + QUESTIONS_PER_DEAD * returned, "{asked} questions, {returned} returned");
        found += returned;
    }
    assert_eq!(found, dead.len() as u64);
}
