//! The doorbells of the work queue: who is woken by which change.
//!
//! There is one for each thing that can be waited for, shared by all processes. A waiter notes what its doorbell says,
//! looks under the lock, marks the doorbell and sleeps on exactly that value. Every change that helps a waiter changes
//! the doorbell after its commit, so a waiter that looked too early does not fall asleep.
//!
//! | doorbell | rung by                                                                  | wakes |
//! | -------- | ------------------------------------------------------------------------ | ----- |
//! | takers   | an item that is ready, parked or delayed; a clock that was moved; resume | one   |
//! | pushers  | a place that became free                                                 | one   |
//! | collectors | a result                                                               | one   |
//! | drainers | the end of the last item                                                 | all   |
//! | the first three | the end of a closed queue: nothing more will come                 | all   |
//!
//! One change wakes one waiter, because waiters behind one doorbell want the same and one can be helped. **A waiter that
//! was woken rings on**: when it got what it wanted and more is there for the next one, and when it leaves without a look
//! under the lock (an error, a dropped future). So as long as there is something to be had and a waiter sleeps, some other
//! waiter is awake and about to look. A waiter that is killed or stopped after it was woken cannot ring on; for that case
//! every sleep is cut into slices, after which the sleeper looks, and the process that returns what a dead participant had
//! rings once more.
//!
//! **Of all takers one keeps the alarm** for items whose time is to come: its sleep ends when the first of them is due,
//! and the others sleep on. The instant is in the segment, so that each taker knows whether it is kept. The keeper gives it
//! up when it looks again or leaves; if then no taker keeps it and items are left whose time is to come, it rings on.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Engine, Swept, Taken, Time, Vigil};
use crate::core::{Bell, Env, Fault, Guard, NEVER, Participant, Waiting, Wakes};
use crate::layout::work::{List, WorkWord};

/// A doorbell of the work queue, by who sleeps on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkBell {
    /// Those who wait for an item.
    Takers = 0,
    /// Those who wait for room.
    Pushers = 1,
    /// Those who wait for a result.
    Collectors = 2,
    /// Those who wait for the end of all work.
    Drainers = 3,
}

impl WorkBell {
    /// All of them, in the order of the segment.
    pub const ALL: [Self; 4] = [Self::Takers, Self::Pushers, Self::Collectors, Self::Drainers];

    fn bell(self) -> Bell {
        Bell::Shared(self as usize)
    }
}

/// How a taker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// When it gives up, by the clock of deadlines.
    pub deadline: u64,
    /// The instant of set time that it keeps the alarm for, if it does.
    pub alarm: Option<u64>,
}

impl<E: Env> Engine<'_, E> {
    /// Where a doorbell is; none without a work queue.
    pub fn work_doorbell(&self, bell: WorkBell) -> Option<&E::U32> {
        self.block.bell(bell.bell()).ok()
    }

    /// What a doorbell says: to be asked before the look for what is waited for.
    pub fn work_bell(&self, bell: WorkBell) -> u32 {
        self.work_doorbell(bell).map_or(0, |doorbell| self.block.env.load32(doorbell, Acquire))
    }

    /// Rings a doorbell of the work queue, if there is one; heard as soon as the lock is free.
    pub fn ring_work(&self, guard: &mut Guard<'_, E>, bell: WorkBell, wakes: Wakes) -> Result<(), Fault> {
        if self.items.count == 0 { Ok(()) } else { guard.ring_shared(bell.bell(), wakes) }
    }

    /// Rings after a change that may have finished the last item, or the last that a collector had.
    pub(super) fn ring_if_over(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        if self.unfinished(guard)? != 0 {
            return Ok(());
        }
        self.ring_work(guard, WorkBell::Drainers, Wakes::All)?;
        if self.work_word(guard, WorkWord::Closed)? != 0 {
            self.ring_work(guard, WorkBell::Takers, Wakes::All)?;
            self.ring_work(guard, WorkBell::Collectors, Wakes::All)?;
        }
        Ok(())
    }

    /// Rings for those behind a taker that got an item, or was told that none will come.
    pub(super) fn ring_on_for_takers(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<(), Fault> {
        let delayed = self.first_delayed(guard)?;
        let parked = self.first_of(guard, List::Parked)? != 0;
        let is_parked = parked && self.paused_until(guard, now)?.is_some();
        let is_there = self.first_of(guard, List::Ready)? != 0
            || parked && !is_parked
            || delayed.is_some_and(|(_, not_before)| not_before <= now);
        let is_to_come = delayed.is_some() || is_parked;
        if is_there || is_to_come && self.work_word(guard, WorkWord::Alarm)? <= now {
            self.ring_work(guard, WorkBell::Takers, Wakes::One)?;
        }
        Ok(())
    }

    /// Wakes one waiter in place of one that leaves without a look, or that kept the alarm. Needs no lock.
    pub fn ring_on(&self, bell: WorkBell, alarm: Option<u64>) {
        if let Some(alarm) = alarm {
            self.give_up_alarm(alarm);
        }
        // Without a work queue nobody waits.
        let _ = self.block.ring_shared(bell.bell(), Wakes::One);
    }

    /// After a death: the dead participant may have owed a wake-up, been woken itself, or kept the alarm.
    #[cold]
    pub(super) fn ring_work_bells(&self, guard: &Guard<'_, E>) -> Result<(), Fault> {
        if self.items.count == 0 {
            return Ok(());
        }
        self.set_alarm_word(0)?;
        let is_closed = self.work_word(guard, WorkWord::Closed)? != 0;
        for bell in WorkBell::ALL {
            let all = is_closed || bell == WorkBell::Drainers;
            self.block.ring_shared_again(bell.bell(), if all { Wakes::All } else { Wakes::One })?;
        }
        Ok(())
    }

    /// Hands out the next item to a taker that waits if there is none, and decides whether it keeps the alarm then.
    pub fn take_or_watch(
        &self,
        guard: &mut Guard<'_, E>,
        time: &impl Time,
        watch: &mut Watch,
        now: u64,
    ) -> Result<Taken, Fault> {
        if let Some(alarm) = watch.alarm.take() {
            self.give_up_alarm(alarm);
        }
        let taken = self.take_item(guard, time, now)?;
        let Taken::NotNow { look_at, due } = taken else { return Ok(taken) };
        // A taker that gives up before that would only hand the alarm on.
        if look_at == NEVER || look_at > watch.deadline {
            return Ok(Taken::NotNow { look_at: NEVER, due });
        }
        let kept = self.work_word(guard, WorkWord::Alarm)?;
        if kept > now && kept <= due {
            return Ok(Taken::NotNow { look_at: NEVER, due });
        }
        self.set_alarm_word(due)?;
        watch.alarm = Some(due);
        Ok(taken)
    }

    fn set_alarm_word(&self, at: u64) -> Result<(), Fault> {
        self.block.env.store64(self.block.word(self.table.map.work(WorkWord::Alarm))?, at, Relaxed);
        Ok(())
    }

    fn give_up_alarm(&self, alarm: u64) {
        if let Ok(word) = self.block.word(self.table.map.work(WorkWord::Alarm)) {
            // Another taker may keep an earlier one by now.
            let _ = self.block.env.cas64(word, alarm, 0, Relaxed);
        }
    }

    /// Whether there seems to be something for those who sleep on a doorbell. Without the lock: a hint.
    pub fn seems_worth_a_look(&self, bell: WorkBell) -> bool {
        let word = |word| {
            let word = self.block.word(self.table.map.work(word));
            word.map_or(0, |word| self.block.env.load64(word, Relaxed))
        };
        let any = |words: &[WorkWord]| words.iter().any(|it| word(*it) != 0);
        let (ready, parked) = (WorkWord::Length(List::Ready), WorkWord::Length(List::Parked));
        let is_closed = any(&[WorkWord::Closed]);
        match bell {
            WorkBell::Takers => is_closed || any(&[ready, parked, WorkWord::Delayed]),
            WorkBell::Pushers => {
                is_closed || any(&[WorkWord::Free]) || word(WorkWord::Used) < self.items.count as u64
            }
            WorkBell::Collectors => is_closed || any(&[WorkWord::Length(List::Results)]),
            WorkBell::Drainers => !any(&[ready, parked, WorkWord::Delayed, WorkWord::Leased]),
        }
    }

    /// Sleeps until a doorbell says something else than it did, or until `until`; at most a slice. Once per interval and
    /// segment the sleeper looks for dead participants; `slice_over` is told which were found, and may end it.
    pub fn sleep_for_work(
        &self,
        me: Participant,
        (bell, seen): (WorkBell, u32),
        until: u64,
        vigil: Vigil,
        time: &impl Time,
        mut slice_over: impl FnMut(Swept) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let env = self.block.env;
        let doorbell = self.block.bell(bell.bell())?;
        if seen & 1 == 0 && env.cas32(doorbell, seen, seen | 1, Relaxed).is_err() {
            return Ok(());
        }
        env.wait(Waiting::Doorbell, doorbell, seen | 1, until);
        // A doorbell that rings all the time must not keep its sleepers from looking for dead participants.
        if self.block.sweep_is_due(vigil.interval) {
            let patience = until.min(env.now().saturating_add(vigil.patience));
            let swept = match self.sweep_in(me, vigil.reach, patience, time) {
                Ok(swept) => swept,
                Err(Fault::Busy { .. }) => Swept::default(),
                Err(fault) => return Err(fault),
            };
            slice_over(swept)?;
        }
        Ok(())
    }
}
