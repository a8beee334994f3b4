//! What must come of an act, predicted without the code under test: the set before it, and after each of its
//! transactions. And what must come of a set when all others are dead.

use std::time::Duration;

use crate::acts::{ADMITTED, Act, BY_HAND, PUT_OFF, RETRY_AFTER};
use crate::picture::{
    BY_ATTEMPTS, BY_RATE_LIMITS, BY_WORKER, DEAD, DEAD_COLLECTED, DELAYED, DONE_COLLECTED, Entry, Held,
    LEASED, Owner, PARKED, Pause, Picture, READY, RESULTS, Row, Work,
};
use crate::stage::{
    Ask, FIRST_GAP, FIRST_PAUSE, LAST_GAP, LONGEST_PAUSE, MOST_ATTEMPTS, MOST_RATE_LIMITS, SLOW_ADMISSIONS,
    WAITER, result_of, why_of,
};

/// What else a prediction depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) now: u64,
    /// The healthy one, who may wait.
    pub(crate) me: Owner,
    /// The number of an item that is pushed.
    pub(crate) id: u64,
    /// Whether what is reported is about the time before a pause.
    pub(crate) is_late: bool,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

impl Act {
    /// The set before the act, and after each of its transactions.
    pub(crate) fn predict(self, before: &Picture, facts: Facts) -> Vec<Picture> {
        let Facts { now, me, id, is_late } = facts;
        let other = before.rows.iter().map(|(slot, row)| (*slot, row.generation)).find(|it| *it != me);
        let other = other.unwrap_or((0, 0));
        let mut steps = vec![before.clone()];
        let mut next = before.clone();
        let work = &mut next.work;
        match self {
            Self::Report | Self::Late => {
                next.end_charges(other);
                next.pause.report(now, is_late, if is_late { nanos(RETRY_AFTER) } else { 0 });
            }
            Self::PauseByHand => {
                next.pause.reports = 0;
                next.pause.generation += 1;
                next.pause.last_until(now + nanos(BY_HAND));
            }
            Self::Resume => {
                next.pause.last_until(now);
                next.pause.count = 0;
                steps.push(next.clone());
                next.admit(me, WAITER, now);
            }
            Self::Success => {
                next.end_charges(other);
                next.pause.count = 0;
            }
            Self::Admission => next.admit(other, ADMITTED, now),
            Self::Push => work.push(id),
            Self::TakeReady => work.take(READY, other),
            Self::TakeParked => work.take(PARKED, other),
            Self::TakeDelayed => work.take(DELAYED, other),
            Self::Park | Self::ParkLast => {
                let mut entry = work.give(other);
                (entry.attempts, entry.rate_limits) = (entry.attempts - 1, entry.rate_limits + 1);
                if entry.rate_limits >= MOST_RATE_LIMITS {
                    work.bury(entry, BY_RATE_LIMITS);
                } else {
                    work.lists[PARKED].push(entry);
                    work.counts.parkings += 1;
                }
                next.end_charges(other);
                next.pause.report(now, is_late, 0);
            }
            Self::Done => {
                let entry = work.give(other);
                work.free.insert(0, entry.place);
                work.counts.done += 1;
            }
            Self::DoneWith => {
                let entry = work.give(other);
                work.lists[RESULTS].push(Entry { result: result_of(entry.id), ..entry });
                work.counts.done += 1;
            }
            Self::Retry | Self::RetryLast => {
                let entry = work.give(other);
                if entry.attempts >= MOST_ATTEMPTS {
                    work.bury(entry, BY_ATTEMPTS);
                } else {
                    let not_before = now + nanos(PUT_OFF);
                    let place = work.lists[DELAYED].partition_point(|it| it.not_before <= not_before);
                    work.lists[DELAYED].insert(place, Entry { not_before, ..entry });
                    work.next_lease += 1;
                    work.counts.retried += 1;
                }
            }
            Self::GiveBack => {
                let entry = work.give(other);
                work.lists[READY].insert(0, Entry { attempts: entry.attempts - 1, ..entry });
            }
            Self::DeadLetter => {
                let entry = work.give(other);
                work.bury(Entry { result: why_of(entry.id), ..entry }, BY_WORKER);
            }
            Self::Drop => {
                let entry = work.give(other);
                work.lists[READY].insert(0, entry);
            }
            Self::Collect => work.collect(other),
            Self::Forget => {
                let entry = work.give(other);
                work.free.insert(0, entry.place);
            }
            Self::PutBack => {
                let entry = work.give(other);
                work.lists[RESULTS].insert(0, entry);
            }
            Self::Revive => {
                let Entry { place, id, .. } = work.give(other);
                work.lists[READY].push(new_entry(place, id));
            }
            Self::Close => work.closed = 1,
            Self::Reap | Self::ReapLast | Self::ReapCollector | Self::Enrol => {
                let dead = before.work.held.values().map(|it| it.owner).find(|it| *it != me).unwrap();
                work.bury_worker(dead);
                steps.push(next.clone());
                next.forget_reports(dead);
                steps.push(next.clone());
                next.rows.get_mut(&dead.0).unwrap().permits = 0;
                steps.push(next.clone());
                next.rows.remove(&dead.0);
                if self == Self::Enrol {
                    next.rows.insert(dead.0, Row { generation: dead.1 + 1, owed: 0, permits: 0 });
                }
            }
        }
        steps.push(next);
        steps.dedup();
        steps
    }
}

impl Picture {
    /// What a participant acquired goes back, and is no longer to be reported.
    fn end_charges(&mut self, who: Owner) {
        let row = self.rows.get_mut(&who.0).unwrap();
        (row.owed, row.permits) = (0, 0);
    }

    fn admit(&mut self, who: Owner, ask: Ask, now: u64) {
        let row = self.rows.get_mut(&who.0).unwrap();
        row.owed += u64::from(ask.1 > 0);
        row.permits += ask.2;
        self.consumed.iter_mut().zip([ask.0, ask.1, ask.2]).for_each(|(all, one)| *all += one);
        self.pause.admit(now);
    }

    fn forget_reports(&mut self, who: Owner) {
        let row = self.rows.get_mut(&who.0).unwrap();
        self.unreported += std::mem::take(&mut row.owed);
    }

    /// When all but these are dead and cleaned up after.
    pub(crate) fn without_all_but(&self, living: &[Owner]) -> Self {
        let mut left = self.clone();
        for (slot, row) in &self.rows {
            let owner = (*slot, row.generation);
            if !living.contains(&owner) {
                left.work.bury_worker(owner);
                left.forget_reports(owner);
                left.rows.remove(slot);
            }
        }
        left
    }
}

impl Pause {
    fn report(&mut self, now: u64, is_late: bool, retry_after: u64) {
        if is_late {
            self.reports += 1;
            self.absorbed += 1;
            if self.until > now && now + retry_after > self.until {
                self.last_until(now + retry_after);
            }
            return;
        }
        self.count += 1;
        let longer = nanos(FIRST_PAUSE).saturating_mul(1 << (self.count - 1).min(30));
        self.reports = 1;
        self.generation += 1;
        self.last_until(now + longer.min(nanos(LONGEST_PAUSE)).max(retry_after));
    }

    fn last_until(&mut self, until: u64) {
        (self.until, self.next_admission) = (until, until);
        self.slow_left = SLOW_ADMISSIONS.into();
    }

    /// Gaps fall from the first to the last, in equal steps.
    fn admit(&mut self, now: u64) {
        if self.next_admission == 0 {
            return;
        }
        if self.slow_left == 0 {
            self.next_admission = 0;
            return;
        }
        self.slow_left -= 1;
        let fall = nanos(FIRST_GAP - LAST_GAP) / u64::from(SLOW_ADMISSIONS - 1);
        self.next_admission = now + nanos(LAST_GAP) + fall * self.slow_left;
    }
}

fn new_entry(place: u64, id: u64) -> Entry {
    Entry { place, id, attempts: 0, rate_limits: 0, not_before: 0, reason: 0, result: Vec::new() }
}

impl Work {
    fn push(&mut self, id: u64) {
        let place = if self.free.is_empty() {
            self.used += 1;
            self.used
        } else {
            self.free.remove(0)
        };
        self.lists[READY].push(new_entry(place, id));
        self.counts.pushed += 1;
    }

    fn hold(&mut self, entry: Entry, state: u64, owner: Owner) {
        let lease = self.next_lease;
        self.next_lease += 1;
        self.held.insert(entry.place, Held { entry, state, owner, lease });
    }

    fn take(&mut self, list: usize, owner: Owner) {
        let mut entry = self.lists[list].remove(0);
        (entry.attempts, entry.not_before) = (entry.attempts + 1, 0);
        self.counts.taken += 1;
        self.counts.redistributed += u64::from(list == PARKED);
        self.hold(entry, LEASED, owner);
    }

    fn collect(&mut self, owner: Owner) {
        let entry = self.lists[RESULTS].remove(0);
        self.hold(entry, DONE_COLLECTED, owner);
    }

    /// The item that a participant has, which no longer has it.
    fn give(&mut self, owner: Owner) -> Entry {
        let place = *self.held.iter().find(|(_, it)| it.owner == owner).unwrap().0;
        self.held.remove(&place).unwrap().entry
    }

    fn bury(&mut self, entry: Entry, reason: u64) {
        self.lists[DEAD].push(Entry { reason, ..entry });
        self.counts.dead_lettered += 1;
    }

    /// What a dead participant had goes to others.
    fn bury_worker(&mut self, owner: Owner) {
        let places: Vec<_> =
            self.held.values().filter(|it| it.owner == owner).map(|it| it.entry.place).collect();
        for place in places {
            let Held { entry, state, .. } = self.held.remove(&place).unwrap();
            match state {
                DONE_COLLECTED => self.lists[RESULTS].insert(0, entry),
                DEAD_COLLECTED => self.lists[DEAD].insert(0, entry),
                _ => {
                    self.counts.returned += 1;
                    if entry.attempts >= MOST_ATTEMPTS {
                        self.bury(entry, BY_ATTEMPTS);
                    } else {
                        self.lists[READY].insert(0, entry);
                    }
                }
            }
        }
    }

    /// Whether there is something to take at this instant.
    pub(crate) fn has_some(&self, pause: &Pause, now: u64) -> bool {
        !self.lists[READY].is_empty()
            || self.lists[DELAYED].first().is_some_and(|it| it.not_before <= now)
            || !self.lists[PARKED].is_empty() && pause.until <= now
    }
}
