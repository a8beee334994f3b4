//! A blocked request: it sleeps on its doorbell, polls for its grant, and leaves the wait queue.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Ask, Grant, Judgement, Outcome};
use super::deferred::DROP_LOCK_TIMEOUT;
use super::error::SetError;
use super::interrupt::Interrupt;
use super::stats::Stats;
use super::{SharedSet, events};
use crate::engine::{Charge, Ending, Entered, Look, Patience, Place};
use crate::protocol::Reach;
use crate::segment::grantee::Grantee;
use crate::sys::clock;

/// How long a caller whose time is up still waits for the lock, to ask at all or to leave the wait queue in order: longer
/// than it takes to notice that the lock holder has died. A lock holder that gets no processor for so long makes the caller
/// late, and nothing worse: the set is unavailable only when its own lock timeout has expired.
const LAST_LOCK: Duration = Duration::from_millis(50);

/// [`LAST_LOCK`] in nanoseconds.
pub(crate) fn last_lock() -> u64 {
    clock::nanos(LAST_LOCK)
}

/// A request in the wait queue.
pub(crate) struct Waiter {
    pub(super) place: Place,
    pub(super) deadline: u64,
    pub(super) shares_doorbell: bool,
    /// When the caller asked.
    pub(super) since: u64,
}

/// What a poll of a waiter found. After anything but `Waiting`, the waiter has left the wait queue.
pub(crate) enum Polled {
    Waiting,
    Granted(Grant),
    /// The limits were changed and can never grant so much.
    Denied(Judgement),
    QueueFull,
    Interrupted,
    TimedOut(Late),
}

/// A wait that ended without a grant.
pub(crate) struct Late {
    pub(crate) waited: Duration,
    pub(crate) judgement: Judgement,
    /// The waiters that were still ahead.
    pub(crate) ahead: u64,
    /// How long the set would still have admitted no request.
    pub(crate) cooling_down: Option<Duration>,
}

/// What a poll found under the lock.
enum Found {
    Waiting,
    Granted,
    Denied(Judgement),
    /// The entry is another waiter's by now.
    Lost,
    /// The waiter left the wait queue.
    Left {
        judgement: Judgement,
        ahead: u64,
        pause: Option<u64>,
    },
}

impl SharedSet {
    /// How long the first attempt of a request with this timeout waits for the lock.
    #[inline]
    pub(crate) fn first_lock_timeout(&self, timeout: Option<Duration>) -> u64 {
        let most = timeout.map_or(u64::MAX, |timeout| clock::nanos(timeout.max(LAST_LOCK)));
        most.min(self.lock_timeout())
    }
}

impl Waiter {
    /// How long the request has waited.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(clock::monotonic().saturating_sub(self.since))
    }

    /// Sleeps until there is a reason to poll.
    pub(crate) fn sleep(&self, set: &SharedSet, interrupt: Option<&Interrupt>) -> Result<(), SetError> {
        let me = set.participant()?;
        let view = set.segment().view();
        let engine = set.engine();
        if let Some(interrupt) = interrupt {
            let doorbell = engine.doorbell(self.place.waiter).map_err(|fault| set.error(fault))?;
            let until = self.deadline.min(self.place.wakes_at);
            return interrupt.sleep(set, doorbell, self.place.seen, until);
        }
        let slept = engine.sleep(me, &self.place, self.deadline, set.vigil(), &set.clock(), |swept| {
            events::swept(set, &swept);
            view.look_at_name()
        });
        slept.map_err(|fault| set.error(fault))
    }

    /// Looks for a grant; grants to the waiters ahead first. Leaves the wait queue if time is up or the wait is
    /// interrupted.
    pub(crate) fn poll(
        &mut self,
        set: &SharedSet,
        ask: Ask<'_>,
        is_interrupted: bool,
    ) -> Result<Polled, SetError> {
        let wants = ask.wants;
        let now = clock::monotonic();
        let is_late = now >= self.deadline;
        let left = self.deadline.saturating_sub(now).max(last_lock());
        if is_late && !is_interrupted {
            self.sweep_at_last(set, ask);
        }
        let found = set.locked_within(left.min(set.lock_timeout()), |engine, guard, now| {
            let judgement = |guard: &_| Ok(set.judgement(engine.judge(guard, wants, now)?, now));
            Ok(match engine.look(guard, &mut self.place, wants, &set.clock(), now)? {
                Look::Granted => Found::Granted,
                Look::Refused => Found::Denied(judgement(guard)?),
                Look::Lost => Found::Lost,
                Look::Waiting if !is_late && !is_interrupted => Found::Waiting,
                Look::Waiting => {
                    let ahead = engine.ahead(guard, wants.demand(), Some(&self.place))?;
                    let judgement = judgement(guard)?;
                    let pause = engine.gate(guard, now)?.map(|at| at.saturating_sub(now));
                    engine.leave(guard, &mut self.place, wants, now)?;
                    Found::Left { judgement, ahead, pause }
                }
            })
        })?;
        Ok(match found {
            Found::Waiting => Polled::Waiting,
            Found::Granted => {
                let Place { ticket, admitted, .. } = self.place;
                Polled::Granted(Grant { ticket, admitted })
            }
            Found::Denied(judgement) if judgement.never().is_some() => Polled::Denied(judgement),
            // The limits could not grant it only for a while, and the entry is gone.
            Found::Denied(_) => self.rejoin(set, ask)?,
            // This process became another participant while it waited.
            Found::Lost => self.rejoin(set, ask)?,
            Found::Left { .. } if !is_late => Polled::Interrupted,
            Found::Left { judgement, ahead, pause } => {
                let cooling_down = pause.map(Duration::from_nanos);
                Polled::TimedOut(Late { waited: self.waited(), judgement, ahead, cooling_down })
            }
        })
    }

    /// Before a waiter gives up: returns what dead participants hold of what it wants, which may be all that it lacks. The
    /// error names every holder, so every holder is looked at.
    fn sweep_at_last(&self, set: &SharedSet, ask: Ask<'_>) {
        let permits = ask.wants.demand() & set.engine().holdings().permits;
        if permits != 0 && set.segment().is_shared() {
            // The poll that follows finds out if the lock is stuck or the set was removed.
            let _ = set.sweep_within(last_lock(), Reach::holders_of(permits));
        }
    }

    /// The participant whose entry it is.
    pub(crate) fn grantee(&self) -> Grantee {
        Grantee::new(self.place.owner)
    }

    /// When the caller asked, and when its time is up.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.since, self.deadline)
    }

    /// Joins the wait queue anew.
    fn rejoin(&mut self, set: &SharedSet, ask: Ask<'_>) -> Result<Polled, SetError> {
        let patience = Patience { deadline: self.deadline, shares_doorbell: self.shares_doorbell };
        Ok(match set.enter(ask, Some(patience))? {
            Outcome::Entered(Entered::Waiting(place)) => {
                self.place = place;
                Polled::Waiting
            }
            Outcome::Entered(Entered::Granted { ticket, admitted }) => {
                Polled::Granted(Grant { ticket, admitted })
            }
            Outcome::Entered(_) => Polled::QueueFull,
            Outcome::Denied(judgement) => Polled::Denied(judgement),
        })
    }

    /// Leaves the wait queue and gives back what was granted meanwhile, if this process still is the participant that waits.
    /// If the lock is stuck, another thread does so as
    /// soon as it can.
    pub(crate) fn leave(&self, set: &Arc<SharedSet>, ask: Ask<'_>) {
        let grantee = self.grantee();
        if !grantee.is_us(set.segment()) {
            return;
        }
        let (place, wants, owing) = (self.place.clone(), ask.wants.clone(), ask.owing);
        let leave = move |set: &SharedSet, lock_timeout| {
            set.locked_as(grantee, lock_timeout, |engine, guard, now| {
                if engine.leave(guard, &mut place.clone(), &wants, now)? != Look::Granted {
                    return Ok(());
                }
                let charges: Vec<_> = Charge::of(&wants, owing, engine.table, place.ticket).collect();
                engine.finish(guard, &charges, Ending::Cancelled, now)
            })
        };
        // The caller is gone: there is no one to report an error to.
        let _ = set.or_deferred_within(clock::nanos(DROP_LOCK_TIMEOUT), leave);
    }
}

/// A participant that holds permits which a request lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process number of the participant; 0 if it is dead.
    pub pid: u64,
    /// The name of its command, at most 16 bytes.
    pub command: String,
    /// Whether it is this very process.
    pub is_this_process: bool,
    /// The limit.
    pub key: String,
    /// How many permits it holds.
    pub amount: u64,
}

impl SharedSet {
    /// The participants that hold permits of these limits.
    pub(crate) fn holders(&self, keys: &[String]) -> Vec<Holder> {
        // This process may have opened the set more than once.
        let me = (u64::from(std::process::id()), clock::pid_namespace());
        let participants = Stats::read(self.segment().view(), self.keys()).map(|stats| stats.participants);
        let mut holders = Vec::new();
        for it in participants.unwrap_or_default() {
            for (key, amount) in it.holds.into_iter().filter(|(key, _)| keys.contains(key)) {
                let info = it.info.as_ref();
                holders.push(Holder {
                    pid: info.map_or(0, |info| info.pid),
                    command: info.map_or_else(String::new, |info| info.command.clone()),
                    is_this_process: info.is_some_and(|info| (info.pid, info.pid_namespace) == me),
                    key,
                    amount,
                });
            }
        }
        holders
    }
}
