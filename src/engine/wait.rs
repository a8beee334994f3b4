//! Waiting for a grant: join the queue, sleep, look, leave.
//!
//! A waiter sleeps on its doorbell until it is rung, until its deadline, or until the instant at which it may be
//! served; then it serves the queue itself, those before it first. So nobody depends on anybody else's being
//! awake. Slices are only there to find the dead.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use smallvec::SmallVec;

use super::queue::{FREE, GRANTED, WAITING};
use super::{Admitted, AtOnce, Engine, Swept, Vigil, Wants, When};
use crate::core::{Env, Fault, Guard, NEVER, Participant, Waited, Waiting};
use crate::layout::state::{LinkWord, RuleWord, StateMap};
use crate::layout::waiters::WaiterWord;
use crate::limit::Order;

/// The clock of a set.
pub trait Time {
    /// What it reads.
    fn reading(&self) -> u64;
    /// When, by the clock of deadlines, it will surely have reached a reading; never, if somebody moves it.
    fn reached(&self, reading: u64) -> u64;
}

/// A place in the queue.
#[derive(Clone, Debug)]
pub struct Place {
    /// The entry.
    pub waiter: usize,
    /// The participant that waits.
    pub owner: Participant,
    /// Its number in the order of arrival.
    pub ticket: u64,
    /// For each limit wanted, what has to be granted before this waiter is through, its own wish included.
    units: SmallVec<[u64; 4]>,
    /// What the doorbell said when the lock was last held.
    pub seen: u32,
    /// When to look again, by the clock of deadlines.
    pub wakes_at: u64,
    /// Once it was granted: when.
    pub admitted: Admitted,
}

/// What came of asking.
#[derive(Clone, Debug)]
pub enum Entered {
    /// Charged.
    Granted {
        /// Its number in the order of arrival.
        ticket: u64,
        /// When.
        admitted: Admitted,
    },
    /// It does not fit now.
    Refused,
    /// The set admits nobody now, whatever is there.
    CoolingDown {
        /// For how long, in nanoseconds of its clock.
        left: u64,
    },
    /// It might fit, but others came first.
    Queued {
        /// How many.
        ahead: u64,
    },
    /// Waiting from now on.
    Waiting(Place),
    /// There is no room in the queue.
    Full,
}

/// What became of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Still waiting.
    Waiting,
    /// Charged, and no longer in the queue.
    Granted,
    /// It can never be had; no longer in the queue.
    Refused,
    /// The entry is not this waiter's any more: its participant was taken for dead, and its place was given up.
    Lost,
}

/// How a request waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until when, by the clock of deadlines.
    pub deadline: u64,
    /// Whether its participant's doorbell is to be rung too.
    pub shares_doorbell: bool,
}

impl<E: Env> Engine<'_, E> {
    /// The stamp of whoever was just granted something.
    fn admitted_now(&self, guard: &Guard<'_, E>, wants: &Wants) -> Result<Admitted, Fault> {
        let admitted = self.admitted(guard, None)?;
        // Who takes nothing does nothing that could go well.
        Ok(Admitted::new(admitted.pause, admitted.on_trial() && wants.demand() != 0))
    }

    /// Takes what is wanted if it is there and nobody came first, or if it [leaves](Self::leaves_enough) every waiter what it
    /// asked for; else joins the queue, if there is patience.
    pub fn enter(
        &self,
        guard: &mut Guard<'_, E>,
        wants: &Wants,
        owing: u64,
        patience: Option<Patience>,
        time: &impl Time,
        now: u64,
    ) -> Result<Entered, Fault> {
        self.adopt(guard)?;
        let mask = wants.demand();
        let in_order = self.table.order == Order::Arrival;
        let (is_first, gate) = match self.enter_at_once(guard, wants, owing, When::At(now)) {
            AtOnce::Granted { ticket, admitted } => return Ok(Entered::Granted { ticket, admitted }),
            AtOnce::NotThere => (true, None),
            AtOnce::Unclear => {
                if in_order {
                    self.serve(guard, mask, now)?;
                }
                let is_first = !in_order
                    || self.waited_for(guard, mask)? == 0
                    || self.leaves_enough(guard, wants, now)?;
                // Who takes nothing is nobody to hold up.
                let gate = if mask == 0 { None } else { self.gate(guard, now)? };
                if is_first
                    && gate.is_none()
                    && let Some(ticket) = self.take(guard, wants, owing, now)?
                {
                    return Ok(Entered::Granted { ticket, admitted: self.admitted_now(guard, wants)? });
                }
                (is_first, gate)
            }
        };
        let is_possible = self.rates_allow_at(guard, wants, now)?.is_some();
        let Some(patience) = patience.filter(|_| is_possible) else {
            if let Some(at) = gate.filter(|_| is_possible)
                && (is_first || self.paused_until(guard, now)?.is_some())
            {
                return Ok(Entered::CoolingDown { left: at.saturating_sub(now) });
            }
            if is_first || !is_possible {
                return Ok(Entered::Refused);
            }
            return Ok(Entered::Queued { ahead: self.ahead(guard, mask, None)? });
        };
        let Patience { deadline, shares_doorbell } = patience;
        let Some((waiter, ticket)) = self.enqueue(guard, wants, owing, deadline, shares_doorbell)? else {
            return Ok(Entered::Full);
        };
        let mut units = SmallVec::new();
        for (limit, amount) in wants.iter() {
            let word = |word| guard.get(self.table.map.rule(limit, word));
            // Everybody in the queue came before.
            let queued = word(RuleWord::Enqueued)?.wrapping_sub(word(RuleWord::Dequeued)?);
            // At least what it wants itself, should the sum have come round.
            units.push(if in_order { queued.max(amount) } else { amount });
        }
        let (owner, admitted) = (guard.holder(), Admitted::default());
        let mut place = Place { waiter, owner, ticket, units, seen: 0, wakes_at: NEVER, admitted };
        self.set_alarm(guard, &mut place, wants, time, now)?;
        Ok(Entered::Waiting(place))
    }

    /// Looks after a waiter: serves the queue if its time has come, and says what became of it.
    pub fn look(
        &self,
        guard: &mut Guard<'_, E>,
        place: &mut Place,
        wants: &Wants,
        time: &impl Time,
        now: u64,
    ) -> Result<Look, Fault> {
        if !self.is_place_of_holder(guard, place)? {
            return Ok(Look::Lost);
        }
        if self.state_of(guard, place.waiter)? == WAITING {
            self.serve(guard, u64::MAX, now)?;
        }
        let look = match self.state_of(guard, place.waiter)? {
            WAITING => {
                self.recount(guard, place, wants)?;
                self.set_alarm(guard, place, wants, time, now)?;
                return Ok(Look::Waiting);
            }
            GRANTED => Look::Granted,
            _ => Look::Refused,
        };
        self.collect(guard, place, wants.demand(), now)?;
        Ok(look)
    }

    /// Leaves the queue, unless there is a grant or refusal to collect.
    pub fn leave(
        &self,
        guard: &mut Guard<'_, E>,
        place: &mut Place,
        wants: &Wants,
        now: u64,
    ) -> Result<Look, Fault> {
        if !self.is_place_of_holder(guard, place)? {
            return Ok(Look::Lost);
        }
        match self.state_of(guard, place.waiter)? {
            WAITING => {
                let slot = guard.get(self.table.map.link(place.waiter, LinkWord::Slot))?;
                let mut change = guard.begin();
                self.unlink(&mut change, place.waiter, wants)?;
                self.free(&mut change, place.waiter)?;
                change.commit();
                // Those behind may fit.
                self.serve(guard, wants.demand(), now)?;
                self.pass_alarm_on(guard, (slot, wants.demand()), now)?;
                Ok(Look::Waiting)
            }
            state => {
                self.collect(guard, place, wants.demand(), now)?;
                Ok(if state == GRANTED { Look::Granted } else { Look::Refused })
            }
        }
    }

    /// Whether an entry is in use, and still by the guard's holder under the same ticket. An entry that was given up, by
    /// a process that took this participant for dead, may be another waiter's.
    fn is_place_of_holder(&self, guard: &Guard<'_, E>, place: &Place) -> Result<bool, Fault> {
        Ok(place.owner == guard.holder()
            && self.state_of(guard, place.waiter)? != FREE
            && guard.get(self.table.map.link(place.waiter, LinkWord::Ticket))? == place.ticket
            && self.participant_of(guard, place.waiter)? == place.owner)
    }

    /// Collects the answer of a settled waiter, which wanted the limits in `mask`.
    fn collect(&self, guard: &mut Guard<'_, E>, place: &mut Place, mask: u64, now: u64) -> Result<(), Fault> {
        let link = |word| guard.get(self.table.map.link(place.waiter, word));
        let (pause, slot) = (link(LinkWord::Pause)?, link(LinkWord::Slot)?);
        place.admitted = self.admitted(guard, Some(pause))?;
        let passes_on = self.read(place.waiter, WaiterWord::PassesOn)? != 0;
        let mut change = guard.begin();
        self.free(&mut change, place.waiter)?;
        change.commit();
        if passes_on { self.pass_alarm_on(guard, (slot, mask), now) } else { Ok(()) }
    }

    /// Notes what the doorbell says now, and when to look without being rung.
    fn set_alarm(
        &self,
        guard: &Guard<'_, E>,
        place: &mut Place,
        wants: &Wants,
        time: &impl Time,
        now: u64,
    ) -> Result<(), Fault> {
        let at = self.due(guard, place, wants, now)?;
        self.note(place.waiter, WaiterWord::WakesAt, at)?;
        let offset = guard.get(StateMap::CLOCK_OFFSET)?;
        place.wakes_at = if at == NEVER { NEVER } else { time.reached(at.wrapping_sub(offset)) };
        place.seen = self.block.env.load32(self.doorbell(place.waiter)?, Acquire);
        // From now on no ring is pending.
        self.note(place.waiter, WaiterWord::Seen, place.seen.into())
    }

    /// Counts anew what those before want: some may have left, and those behind have joined and left too.
    fn recount(&self, guard: &Guard<'_, E>, place: &mut Place, wants: &Wants) -> Result<(), Fault> {
        place.units = wants.iter().map(|(_, amount)| amount).collect();
        if self.table.order != Order::Arrival {
            return Ok(());
        }
        self.walk(guard, |waiter| {
            if waiter == place.waiter {
                return Ok(false);
            }
            let mask = self.read(waiter, WaiterWord::Mask)?;
            for ((limit, _), units) in wants.iter().zip(&mut place.units) {
                if mask >> limit & 1 != 0 {
                    *units = units.saturating_add(self.read(waiter, WaiterWord::Amount(limit))?);
                }
            }
            Ok(true)
        })
    }

    /// When a waiter may be served, if all goes as fast as it can. Not later than that: others may be stopped.
    fn due(&self, guard: &Guard<'_, E>, place: &Place, wants: &Wants, now: u64) -> Result<u64, Fault> {
        let due = self.flows_by(guard, wants, place.units.iter().copied(), now)?;
        if due > now {
            return Ok(due);
        }
        // Its own rates would allow it: it waits for permits, which ring, or for somebody before it, who may be
        // stopped when the time comes that another rate allows that one's wish.
        let mut first = NEVER;
        if self.waited_for(guard, self.table.rates() & !wants.demand())? == 0 {
            return Ok(first);
        }
        self.walk(guard, |waiter| {
            if waiter == place.waiter {
                return Ok(false);
            }
            if let Some(at) = self.rates_allow_at(guard, &self.wants_of(waiter)?, now)?
                && at > now
            {
                first = first.min(at);
            }
            Ok(true)
        })?;
        Ok(first)
    }

    /// When so many units of each limit that is wanted can have flowed, and the set admits again; `now` if both are so. Permits
    /// apart.
    pub(super) fn flows_by(
        &self,
        guard: &Guard<'_, E>,
        wants: &Wants,
        units: impl Iterator<Item = u64>,
        now: u64,
    ) -> Result<u64, Fault> {
        let get = |index: usize| guard.get(index).unwrap_or(0);
        let mut due = now;
        for ((limit, _), units) in wants.iter().zip(units).filter(|((_, amount), _)| *amount > 0) {
            let Some(rule) = self.table.rule(limit, get) else { continue };
            due = due.max(rule.earliest(&self.table.state(limit, get), now, units));
        }
        // What is given back while nobody is admitted rings nobody.
        Ok(due.max(self.gate(guard, now)?.unwrap_or(now)))
    }

    /// Sleeps until there is a reason to look, or until `deadline`. After each slice, `slice_over` is told which of the
    /// dead were found, and may end it.
    pub fn sleep(
        &self,
        me: Participant,
        place: &Place,
        deadline: u64,
        vigil: Vigil,
        time: &impl Time,
        mut slice_over: impl FnMut(Swept) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let env = self.block.env;
        let doorbell = self.doorbell(place.waiter)?;
        let until = deadline.min(place.wakes_at);
        // Either we see that the set was removed, or whoever removes it sees us and rings.
        env.fence(SeqCst);
        while env.load32(doorbell, Acquire) == place.seen && env.load64(self.block.closed, Relaxed) == 0 {
            if env.wait(Waiting::Doorbell, doorbell, place.seen, until) == Waited::Woken {
                continue;
            }
            // Its deadline or alarm ends a wait like a slice does: alarms that come often must not keep us from the dead.
            if self.block.sweep_is_due(vigil.interval) {
                let patience = deadline.min(env.now().saturating_add(vigil.patience));
                let swept = match self.sweep_in(me, vigil.reach, patience, time) {
                    Ok(swept) => swept,
                    Err(Fault::Busy { .. }) => Swept::default(),
                    Err(fault) => return Err(fault),
                };
                slice_over(swept)?;
            }
            if until != NEVER && env.now() >= until {
                return Ok(());
            }
        }
        Ok(())
    }
}
