//! Deciding a request: on the fast path if it can be, else under the lock, else in the wait queue.

use super::SharedSet;
use super::error::SetError;
use super::wait::Waiter;
use crate::engine::{Admitted, AtOnce, Entered, Judged, Patience, Standing, Time, Wants, When};
use crate::protocol::{NEVER, Reach};
use crate::sys::clock;

/// A request as the set decides it.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// How much of which limits.
    pub(crate) wants: &'a Wants,
    /// The limits whose use is to be reported, if they need reports.
    pub(crate) owing: u64,
}

/// A granted request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// The number of the request in order of arrival.
    pub(crate) ticket: u64,
    /// The pause after which it was granted.
    pub(crate) admitted: Admitted,
}

/// The status of every limit at the instant of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) judged: Box<[Judged]>,
    /// The instant in set time, or a little before it.
    pub(crate) since: u64,
}

impl Judgement {
    /// The first limit that can never grant what was asked of it.
    pub(crate) fn never(&self) -> Option<(usize, &Judged)> {
        self.judged.iter().enumerate().find(|(_, judged)| judged.standing == Standing::Never)
    }
}

/// The decision about a request that does not wait.
pub(crate) enum Decision {
    /// Charged.
    Granted(Grant),
    /// A limit has too little now, or can never grant so much.
    Denied(Judgement),
    /// Waiters come first.
    Queued { ahead: u64 },
    /// The set admits no request for so many nanoseconds.
    CoolingDown { left: u64 },
    /// The wait queue has no free entry.
    QueueFull,
}

/// What became of a request that may wait.
pub(crate) enum Enqueued {
    Granted(Grant),
    Waiting(Waiter),
    /// Waiting is of no use.
    Denied(Judgement),
    QueueFull,
}

impl SharedSet {
    /// Grants a request if no waiter and no pause is in the way and all limits have enough; most requests end here. None
    /// says only that it takes a closer look.
    #[inline(always)]
    pub(crate) fn try_fast(&self, ask: Ask<'_>, lock_timeout: u64) -> Result<Option<Grant>, SetError> {
        let table = self.engine().table;
        // Each kind has a function of its own, so that none pays for what only others need. Permits do not depend on the
        // time.
        if ask.wants.demand() & table.with_cells() != 0 {
            self.ask_with_guard(ask, lock_timeout)
        } else if ask.wants.demand() & table.rates() != 0 {
            self.ask_for_rates(ask, lock_timeout)
        } else {
            self.ask_for_permits(ask, lock_timeout)
        }
    }

    #[inline(never)]
    fn ask_for_rates(&self, ask: Ask<'_>, lock_timeout: u64) -> Result<Option<Grant>, SetError> {
        self.ask(ask, Some(lock_timeout), When::Reading(self.clock().reading()))
    }

    #[inline(never)]
    fn ask_for_permits(&self, ask: Ask<'_>, lock_timeout: u64) -> Result<Option<Grant>, SetError> {
        self.ask(ask, Some(lock_timeout), When::Last)
    }

    /// [`try_fast`](Self::try_fast) for a request of rates alone, none of which keeps cells.
    #[inline(always)]
    pub(crate) fn try_fast_plain(&self, ask: Ask<'_>) -> Result<Option<Grant>, SetError> {
        self.ask(ask, None, When::Reading(self.clock().reading()))
    }

    #[inline(always)]
    fn ask(&self, ask: Ask<'_>, lock_timeout: Option<u64>, when: When) -> Result<Option<Grant>, SetError> {
        match self.engine().ask_at_once(self.participant()?, ask.wants, ask.owing, when) {
            Some(Ok(AtOnce::Granted { ticket, admitted })) => Ok(Some(Grant { ticket, admitted })),
            Some(Ok(AtOnce::NotThere | AtOnce::Unclear)) => Ok(None),
            None => self.ask_with_guard(ask, lock_timeout.unwrap_or_else(|| self.lock_timeout())),
            Some(Err(fault)) => Err(self.error(fault)),
        }
    }

    /// The fast path for rates that keep cells, and for a caller that has to wait for the lock.
    #[inline(never)]
    fn ask_with_guard(&self, ask: Ask<'_>, lock_timeout: u64) -> Result<Option<Grant>, SetError> {
        self.locked_within(lock_timeout, |engine, guard, now| {
            engine.adopt(guard)?;
            Ok(match engine.enter_at_once(guard, ask.wants, ask.owing, When::At(now)) {
                AtOnce::Granted { ticket, admitted } => Some(Grant { ticket, admitted }),
                AtOnce::NotThere | AtOnce::Unclear => None,
            })
        })
    }

    /// Decides a request that does not wait.
    pub(crate) fn try_acquire(&self, ask: Ask<'_>) -> Result<Decision, SetError> {
        Ok(match self.enter(ask, None)? {
            Outcome::Entered(Entered::Granted { ticket, admitted }) => {
                Decision::Granted(Grant { ticket, admitted })
            }
            Outcome::Entered(Entered::Queued { ahead }) => Decision::Queued { ahead },
            Outcome::Entered(Entered::CoolingDown { left }) => Decision::CoolingDown { left },
            Outcome::Entered(_) => Decision::QueueFull,
            Outcome::Denied(judgement) => Decision::Denied(judgement),
        })
    }

    /// Decides a request that may wait: it joins the wait queue if it has to. The time runs from `since`.
    pub(crate) fn enqueue(
        &self,
        ask: Ask<'_>,
        timeout: Option<u64>,
        since: u64,
        shares_doorbell: bool,
    ) -> Result<Enqueued, SetError> {
        let deadline = timeout.map_or(NEVER, |timeout| since.saturating_add(timeout));
        Ok(match self.enter(ask, Some(Patience { deadline, shares_doorbell }))? {
            Outcome::Entered(Entered::Granted { ticket, admitted }) => {
                Enqueued::Granted(Grant { ticket, admitted })
            }
            Outcome::Entered(Entered::Waiting(place)) => {
                Enqueued::Waiting(Waiter { place, deadline, shares_doorbell, since })
            }
            Outcome::Entered(_) => Enqueued::QueueFull,
            Outcome::Denied(judgement) => Enqueued::Denied(judgement),
        })
    }

    /// Asks the engine; looks for dead participants once before it refuses for want of something that they may hold.
    pub(super) fn enter(&self, ask: Ask<'_>, patience: Option<Patience>) -> Result<Outcome, SetError> {
        let left = |it: Patience| it.deadline.saturating_sub(clock::monotonic());
        let mut may_sweep = true;
        loop {
            let within = patience.map_or(u64::MAX, |it| left(it).max(super::wait::last_lock()));
            let within = within.min(self.lock_timeout());
            let answer = self.locked_within(within, |engine, guard, now| {
                let entered = engine.enter(guard, ask.wants, ask.owing, patience, &self.clock(), now)?;
                // Entries of the wait queue, and waiters ahead of this request, may belong to dead participants.
                let is_crowded = matches!(entered, Entered::Full | Entered::Queued { .. });
                if is_crowded && may_sweep && self.is_time_to_sweep() {
                    return Ok(None);
                }
                if !matches!(entered, Entered::Refused) {
                    return Ok(Some(Outcome::Entered(entered)));
                }
                let judged = engine.judge(guard, ask.wants, now)?;
                if may_sweep && self.is_sweep_due(&judged) {
                    return Ok(None);
                }
                engine.count_denied(guard, &judged)?;
                Ok(Some(Outcome::Denied(self.judgement(judged, now))))
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            self.sweep_within(within, Reach::BOUNDED.wanting(ask.wants.demand()))?;
            may_sweep = false;
        }
    }

    /// Decides a request without charging it.
    pub(crate) fn check(&self, wants: &Wants) -> Result<Checked, SetError> {
        let mut may_sweep = true;
        loop {
            let answer = self.locked(|engine, guard, now| {
                let answer = engine.check(guard, wants, now)?;
                let needs_sweep = match &answer {
                    crate::engine::Checked::Queued { .. } => may_sweep && self.is_time_to_sweep(),
                    crate::engine::Checked::Judged(judged) => may_sweep && self.is_sweep_due(judged),
                    crate::engine::Checked::CoolingDown { .. } => false,
                };
                if needs_sweep {
                    return Ok(None);
                }
                Ok(Some(match answer {
                    crate::engine::Checked::CoolingDown { left } => Checked::CoolingDown { left },
                    crate::engine::Checked::Queued { ahead } => Checked::Queued { ahead },
                    crate::engine::Checked::Judged(judged) => Checked::Judged(self.judgement(judged, now)),
                }))
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            self.sweep_within(self.lock_timeout(), Reach::BOUNDED.wanting(wants.demand()))?;
            may_sweep = false;
        }
    }

    /// The status of every limit, whether waiters or a pause are in the way or not.
    pub(crate) fn status(&self, wants: &Wants) -> Result<Judgement, SetError> {
        self.locked(|engine, guard, now| Ok(self.judgement(engine.judge(guard, wants, now)?, now)))
    }

    pub(super) fn judgement(&self, judged: Vec<Judged>, now: u64) -> Judgement {
        Judgement { judged: judged.into_boxed_slice(), since: now.saturating_sub(self.clock().lag()) }
    }
}

/// What the engine answered to a request.
pub(super) enum Outcome {
    Entered(Entered),
    Denied(Judgement),
}

/// The decision about a request that is not charged.
pub(crate) enum Checked {
    CoolingDown {
        left: u64,
    },
    Queued {
        ahead: u64,
    },
    /// Neither waiters nor a pause are in the way.
    Judged(Judgement),
}
