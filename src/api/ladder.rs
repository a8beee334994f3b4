//! The ladder that every request climbs: the fast path, then a decision under the lock, in which the request may join the
//! wait queue, then the policy for a set that cannot be asked.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::acquisition::Acquisition;
use crate::api::error::{AcquireError, TimedOut};
use crate::api::set::LimitSet;
use crate::api::status::Statuses;
use crate::protocol::NEVER;
use crate::shared::SharedSet;
use crate::shared::acquire::{Ask, Decision, Enqueued, Grant, Judgement};
use crate::shared::error::{OnUnavailable, SetError, Unavailable};
use crate::shared::events;
use crate::shared::interrupt::Interrupt;
use crate::shared::wait::{Late, Polled, Waiter};
use crate::sys::clock;

/// A request that may go ahead.
#[derive(Clone, Copy)]
pub(crate) enum Admission {
    Granted(Grant),
    /// The set could not be asked, and its policy lets requests pass then.
    NotEnforced,
}

impl Admission {
    /// The acquisition that the caller holds from now on.
    #[inline(always)]
    pub(crate) fn hold<S: Borrow<LimitSet>>(self, set: S, ask: Ask<'_>) -> Acquisition<S> {
        match self {
            Self::Granted(grant) => Acquisition::new(set, ask.wants, ask.owing, &grant),
            Self::NotEnforced => Acquisition::not_enforced(set),
        }
    }
}

/// A request that may wait, after the first decision.
pub(crate) enum Joined {
    Admitted(Admission),
    Waiting(Waiter),
}

impl From<Admission> for Joined {
    fn from(admission: Admission) -> Self {
        Self::Admitted(admission)
    }
}

/// Takes the answer of the fast path, or goes on. The label is looked up only where an event may need it.
#[inline(always)]
pub(crate) fn climb<'a, T: From<Admission>>(
    set: &'a Arc<SharedSet>,
    ask: Ask<'a>,
    label: impl FnOnce() -> Option<&'a str>,
    timeout: Option<Duration>,
    fast: Result<Option<Grant>, SetError>,
    go_on: impl FnOnce(Ladder<'a>) -> Result<T, AcquireError>,
) -> Result<T, AcquireError> {
    match fast {
        Ok(Some(grant)) => Ok(T::from(Ladder { set, ask, label: label() }.granted(grant))),
        Ok(None) => go_on(Ladder { set, ask, label: label() }),
        Err(error) => Ok(T::from(Ladder { set, ask, label: label() }.first_failure(error, timeout)?)),
    }
}

/// Decides a request that does not wait.
#[inline(always)]
pub(crate) fn now<'a>(
    set: &'a Arc<SharedSet>,
    ask: Ask<'a>,
    label: impl FnOnce() -> Option<&'a str>,
) -> Result<Admission, AcquireError> {
    climb(set, ask, label, None, set.try_fast(ask, set.lock_timeout()), Ladder::decide)
}

/// Decides a request that waits for its answer.
#[inline(always)]
pub(crate) fn wait<'a>(
    set: &'a Arc<SharedSet>,
    ask: Ask<'a>,
    label: impl FnOnce() -> Option<&'a str>,
    timeout: Option<Duration>,
) -> Result<Admission, AcquireError> {
    // The wait for the lock counts, too.
    let since = timeout.map(|_| clock::monotonic());
    let fast = set.try_fast(ask, set.first_lock_timeout(timeout));
    climb(set, ask, label, timeout, fast, |ladder| ladder.block(timeout, since))
}

/// A request that the fast path did not answer.
#[derive(Clone, Copy)]
pub(crate) struct Ladder<'a> {
    pub(crate) set: &'a Arc<SharedSet>,
    pub(crate) ask: Ask<'a>,
    /// The name of the request in events.
    pub(crate) label: Option<&'a str>,
}

impl Ladder<'_> {
    /// Decides a request that does not wait, under the lock.
    #[cold]
    pub(crate) fn decide(self) -> Result<Admission, AcquireError> {
        let decision = match self.set.try_acquire(self.ask) {
            Ok(decision) => decision,
            Err(error) => return self.unavailable(error),
        };
        match grant_or_refusal(self.set, decision) {
            Ok(grant) => Ok(self.granted(grant)),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// Blocks the thread until there is an answer.
    #[cold]
    fn block(self, timeout: Option<Duration>, since: Option<u64>) -> Result<Admission, AcquireError> {
        let mut waiter = match self.join(timeout, since, false)? {
            Joined::Admitted(admission) => return Ok(admission),
            Joined::Waiting(waiter) => waiter,
        };
        let interrupt = Interrupt::current();
        loop {
            if let Err(error) = waiter.sleep(self.set, interrupt) {
                waiter.leave(self.set, self.ask);
                return self.late_or_unavailable(error, waiter.times());
            }
            if let Some(answer) = self.poll(&mut waiter, interrupt.is_some_and(Interrupt::is_raised)) {
                return answer;
            }
        }
    }

    /// Decides a request that may wait, under the lock. The timeout runs from `since`, or from now.
    pub(crate) fn join(
        self,
        timeout: Option<Duration>,
        since: Option<u64>,
        shares_doorbell: bool,
    ) -> Result<Joined, AcquireError> {
        let since = since.unwrap_or_else(clock::monotonic);
        let refusal = match self.set.enqueue(self.ask, timeout.map(clock::nanos), since, shares_doorbell) {
            Ok(Enqueued::Granted(grant)) => return Ok(Joined::Admitted(self.granted(grant))),
            Ok(Enqueued::Waiting(waiter)) => return Ok(Joined::Waiting(waiter)),
            Ok(Enqueued::Denied(judgement)) => Statuses::new(self.set, judgement).into_refusal(),
            Ok(Enqueued::QueueFull) => queue_full(self.set),
            Err(error) => {
                let deadline = timeout.map_or(NEVER, |timeout| since.saturating_add(clock::nanos(timeout)));
                return self.late_or_unavailable(error, (since, deadline)).map(Joined::Admitted);
            }
        };
        Err(self.refused(refusal))
    }

    /// Polls a waiter: none while it has to wait on. After an answer it has left the wait queue.
    pub(crate) fn poll(
        self,
        waiter: &mut Waiter,
        is_interrupted: bool,
    ) -> Option<Result<Admission, AcquireError>> {
        let refusal = match waiter.poll(self.set, self.ask, is_interrupted) {
            Ok(Polled::Waiting) => return None,
            Ok(Polled::Granted(grant)) => {
                events::waited(self.set, self.label, grant.ticket, || waiter.waited());
                return Some(Ok(Admission::Granted(grant)));
            }
            Ok(Polled::Denied(judgement)) => Statuses::new(self.set, judgement).into_refusal(),
            Ok(Polled::QueueFull) => queue_full(self.set),
            Ok(Polled::Interrupted) => AcquireError::Interrupted,
            Ok(Polled::TimedOut(late)) => timed_out(self.set, late),
            Err(error) => {
                waiter.leave(self.set, self.ask);
                return Some(self.late_or_unavailable(error, waiter.times()));
            }
        };
        Some(Err(self.refused(refusal)))
    }

    #[inline(always)]
    fn granted(self, grant: Grant) -> Admission {
        events::granted(self.set, self.label, grant.ticket);
        Admission::Granted(grant)
    }

    /// Answers a caller whose first attempt failed. It waited for the lock exactly as long as its timeout lets it.
    #[cold]
    fn first_failure(self, error: SetError, timeout: Option<Duration>) -> Result<Admission, AcquireError> {
        let since = clock::monotonic().saturating_sub(self.set.first_lock_timeout(timeout));
        let deadline = timeout.map_or(NEVER, |timeout| since.saturating_add(clock::nanos(timeout)));
        self.late_or_unavailable(error, (since, deadline))
    }

    /// Answers a caller that could not get the lock. If its own time is up, it is late, whatever the policy is for a set that
    /// cannot be asked: this set might have answered.
    pub(crate) fn late_or_unavailable(
        self,
        error: SetError,
        (since, deadline): (u64, u64),
    ) -> Result<Admission, AcquireError> {
        let now = clock::monotonic();
        match error {
            SetError::Unavailable(Unavailable::LockTimeout(holder)) if now >= deadline => {
                let waited = Duration::from_nanos(now.saturating_sub(since));
                let judgement = Judgement { judged: Box::default(), since: now };
                Err(self.refused(AcquireError::TimedOut(Box::new(TimedOut {
                    waited,
                    statuses: Statuses::new(self.set, judgement),
                    lock_holder: Some(holder.pid),
                    ahead: 0,
                    cooling_down: None,
                    holders: Vec::new(),
                }))))
            }
            error => self.unavailable(error),
        }
    }

    /// Applies the policy for a set that cannot be asked.
    #[cold]
    pub(crate) fn unavailable(self, error: SetError) -> Result<Admission, AcquireError> {
        match error {
            SetError::Unavailable(why) if self.set.on_unavailable() == OnUnavailable::Allow => {
                self.set.count_unenforced();
                events::not_enforced(self.set, self.label, &why);
                Ok(Admission::NotEnforced)
            }
            error => Err(error.into()),
        }
    }

    /// Reports a refusal to `tracing`.
    fn refused(self, refusal: AcquireError) -> AcquireError {
        if cfg!(not(feature = "tracing")) {
            return refusal;
        }
        let (set, label) = (self.set, self.label);
        match &refusal {
            AcquireError::Denied(denial) => {
                for limit in denial.violations() {
                    events::denied(set, label, limit.key, limit.requested, limit.available);
                }
            }
            AcquireError::Never { key, requested, most } => {
                events::denied(set, label, key, *requested, i64::try_from(*most).unwrap_or(i64::MAX));
            }
            AcquireError::Queued { ahead } => events::queued(set, label, *ahead),
            AcquireError::CoolingDown { remaining, .. } => events::cooling_down(set, label, *remaining),
            AcquireError::TimedOut(late) => events::timed_out(set, label, late.waited),
            _ => {}
        }
        refusal
    }
}

/// The grant, or the error that a decision means to the caller.
pub(crate) fn grant_or_refusal(set: &SharedSet, decision: Decision) -> Result<Grant, AcquireError> {
    Err(match decision {
        Decision::Granted(grant) => return Ok(grant),
        Decision::Denied(judgement) => Statuses::new(set, judgement).into_refusal(),
        Decision::Queued { ahead } => AcquireError::Queued { ahead },
        Decision::CoolingDown { left } => cooling_down(set, left),
        Decision::QueueFull => queue_full(set),
    })
}

/// The error of a set that admits no request for so many nanoseconds.
pub(crate) fn cooling_down(set: &SharedSet, left: u64) -> AcquireError {
    let remaining = Duration::from_nanos(left.saturating_add(set.clock().lag()));
    let now = Instant::now();
    AcquireError::CoolingDown { until: now.checked_add(remaining).unwrap_or(now), remaining }
}

fn queue_full(set: &SharedSet) -> AcquireError {
    AcquireError::QueueFull { waiters: set.segment().info().waiters }
}

fn timed_out(set: &SharedSet, late: Late) -> AcquireError {
    let Late { waited, judgement, ahead, cooling_down } = late;
    let statuses = Statuses::new(set, judgement);
    let missing: Vec<_> = statuses.iter().filter(|it| !it.passed).map(|it| it.key.to_owned()).collect();
    let holders = set.holders(&missing);
    AcquireError::TimedOut(Box::new(TimedOut {
        waited,
        statuses,
        lock_holder: None,
        ahead,
        cooling_down,
        holders,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use super::*;
    use crate::format::waiters::WaiterWord;
    use crate::protocol::NEVER;
    use crate::{ResourceLimit, Started};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A request with a timeout of an hour finds the lock held, and then has to join the wait queue. Its deadline must be an
    /// hour after the call, not after the lock was free.
    fn asks_under_a_held_lock(ask: impl FnOnce(&LimitSet) + Send) {
        let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap();
        let held = set.try_acquire(()).unwrap();
        let engine = set.shared().engine();
        let guard = engine.block.lock(set.segment().participant().unwrap(), NEVER).unwrap().guard();
        let before = clock::monotonic();
        thread::scope(|scope| {
            scope.spawn(|| ask(&set));
            while engine.block.sleepers.load(Relaxed) == 0 {
                thread::yield_now();
            }
            let waits_for_the_lock = clock::monotonic();
            guard.unlock().unwrap();
            while set.stats().unwrap().waiters == 0 {
                thread::yield_now();
            }
            let deadline = engine.waiters.words[WaiterWord::Deadline.place()].load(Relaxed);
            held.release().unwrap();
            let hour = clock::nanos(HOUR);
            assert!((before + hour..=waits_for_the_lock + hour).contains(&deadline));
        });
    }

    #[test]
    fn the_wait_for_the_lock_and_the_wait_in_the_queue_have_one_deadline() {
        asks_under_a_held_lock(|set| drop(set.acquire_timeout((), HOUR).unwrap()));
    }

    #[test]
    fn a_wait_that_was_only_started_has_the_same_deadline() {
        asks_under_a_held_lock(|set| {
            let Started::Waiting(future) = set.start_acquire((), Some(HOUR)).unwrap() else { panic!("held") };
            // Until the grant, or the other thread might not see that it waits.
            while set.stats().unwrap().waiters > 0 {
                thread::yield_now();
            }
            drop(future);
        });
    }
}
