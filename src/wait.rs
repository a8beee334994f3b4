//! Wait: acquire when the limits allow it, in order, for a time or however long it takes.

use std::time::Duration;

use crate::acquisition::Acquisition;
use crate::answer::{AcquireError, RunError, Statuses, Trouble};
use crate::background;
use crate::core::Reach;
use crate::engine::{Charge, Ending, Entered, Look, Patience, Place, Wants};
use crate::enter::{Granted, attach_trouble};
use crate::events;
use crate::grantee::Grantee;
use crate::interrupt::Interrupt;
use crate::late::deadline;
use crate::request::Request;
use crate::set::LimitSet;
use crate::sys::clock;

/// How long a caller whose time is up still waits for the lock, to ask at all or to leave the queue in order: longer than it
/// takes to notice that the lock's holder has died. A holder that gets no processor for so long makes the caller late, and
/// nothing worse: the set is called unavailable only when the set's own patience has ended.
pub(crate) const LAST_LOCK: Duration = Duration::from_millis(50);

impl LimitSet {
    /// Acquires what is asked for, waiting until the limits allow it. Those who want the same limits are served in
    /// the order in which they came, unless the set says [otherwise](crate::Order).
    ///
    /// ```
    /// use std::time::Duration;
    /// use limitset::{CallLimit, LimitSet};
    ///
    /// let limits = LimitSet::builder().limit(CallLimit::new(2, Duration::from_millis(10))).in_memory()?;
    /// for _ in 0..6 {
    ///     limits.acquire(())?.release()?; // waits 5 ms each from the third on
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError`] says why waiting is of no use; nothing was charged then.
    pub fn acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        self.acquire_within(&request.into(), None)
    }

    /// As [`acquire`](Self::acquire), for at most `timeout`; if another process keeps the lock of the set, some 50 ms more.
    /// Enrolling, at the first use after a fork, has its own [`patience`](crate::SegmentOptions::patience).
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] after `timeout`, with who holds what; also if the lock of the set was not to be had for so
    /// long, whatever the set's [policy](crate::OnUnavailable) is. Else as `acquire`.
    pub fn acquire_timeout<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Duration,
    ) -> Result<Acquisition, AcquireError> {
        self.acquire_within(&request.into(), Some(timeout))
    }

    /// Acquires as [`acquire`](Self::acquire) does, runs `body`, and releases. If `body` fails or panics, what was
    /// charged is given back where that is possible; if it succeeds without the reports it owes, that is counted as by
    /// dropping the acquisition.
    ///
    /// ```
    /// use limitset::{LimitSet, RateLimit, RunError};
    ///
    /// let limits = LimitSet::builder().limit(RateLimit::per_minute("tokens", 1_000)).in_memory()?;
    /// let answer = limits.run([("tokens", 600)], |held| {
    ///     held.settle("tokens", 250)?;
    ///     Ok::<_, limitset::UsageError>("done")
    /// })?;
    /// assert_eq!(answer, "done");
    /// let failed = limits.run([("tokens", 600)], |_| Err::<(), _>("no answer"));
    /// assert!(matches!(failed, Err(RunError::Body("no answer"))));
    /// assert_eq!(limits.stats()?.limit("tokens").unwrap().consumed, 250);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if nothing was acquired, [`RunError::Body`] if `body` failed.
    pub fn run<'r, T, E>(
        &self,
        request: impl Into<Request<'r>>,
        body: impl FnOnce(&mut Acquisition) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.acquire(request)?.run(body)
    }

    /// As [`run`](Self::run), if the limits allow it now.
    ///
    /// # Errors
    ///
    /// As `run`; nothing is waited for.
    pub fn try_run<'r, T, E>(
        &self,
        request: impl Into<Request<'r>>,
        body: impl FnOnce(&mut Acquisition) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.try_acquire(request)?.run(body)
    }

    fn acquire_within(
        &self,
        request: &Request<'_>,
        timeout: Option<Duration>,
    ) -> Result<Acquisition, AcquireError> {
        let mut scratch = Wants::none();
        let wants = self.keys().wants(request, &mut scratch)?;
        let ask = Ask { wants, owing: u64::MAX, label: request.name() };
        self.wait_for(&ask, timeout)
    }

    /// Asks, and waits for the answer.
    pub(crate) fn wait_for(
        &self,
        ask: &Ask<'_>,
        timeout: Option<Duration>,
    ) -> Result<Acquisition, AcquireError> {
        // Waiting for the lock counts, too.
        let since = timeout.map(|_| clock::monotonic());
        match self.enter_at_once(ask.wants, ask.owing, self.first_patience(timeout)) {
            Ok(Some(granted)) => {
                events::granted(self, ask.label, granted.ticket);
                Ok(ask.acquisition(self, &granted))
            }
            Ok(None) => self.wait_in_order(ask, timeout, since),
            Err(trouble) => self.on_first_trouble(trouble, timeout, ask.label),
        }
    }

    /// The same for those who do not get it at once.
    #[cold]
    fn wait_in_order(
        &self,
        ask: &Ask<'_>,
        timeout: Option<Duration>,
        since: Option<u64>,
    ) -> Result<Acquisition, AcquireError> {
        let waiting = match self.join(ask, timeout, since, false) {
            Ok(Ok(Joined::Granted(acquisition))) => return Ok(acquisition),
            Ok(Ok(Joined::Waiting(waiting))) => waiting,
            Ok(Err(refusal)) => return Err(refusal),
            Err(trouble) => return self.on_trouble(trouble, ask.label),
        };
        waiting.wait(self, ask)
    }

    /// Asks, and joins the queue if it has to. The time runs from `since`, or from now.
    pub(crate) fn join(
        &self,
        ask: &Ask<'_>,
        timeout: Option<Duration>,
        since: Option<u64>,
        shares_doorbell: bool,
    ) -> Result<Result<Joined, AcquireError>, Trouble> {
        let since = since.unwrap_or_else(clock::monotonic);
        let deadline = deadline(since, timeout);
        let entered = self.enter(ask.wants, ask.owing, Some(Patience { deadline, shares_doorbell }));
        let entered = match entered {
            Ok(entered) => entered,
            Err(trouble) => {
                let late = self.late(&trouble, since, deadline).ok_or(trouble)?;
                events::refused(self, ask.label, &late);
                return Ok(Err(late));
            }
        };
        let refusal = match entered {
            Ok(Entered::Granted { ticket, admitted }) => {
                events::granted(self, ask.label, ticket);
                return Ok(Ok(Joined::Granted(ask.acquisition(self, &Granted { ticket, admitted }))));
            }
            Ok(Entered::Waiting(place)) => {
                return Ok(Ok(Joined::Waiting(Waiting { place, deadline, shares_doorbell, since })));
            }
            Ok(_) => AcquireError::QueueFull { waiters: self.segment().info().waiters },
            Err(statuses) => statuses.into_refusal(),
        };
        events::refused(self, ask.label, &refusal);
        Ok(Err(refusal))
    }
}

/// What is asked for.
pub(crate) struct Ask<'a> {
    pub(crate) wants: &'a Wants,
    /// Of which limits a report comes to be owed, if they need one.
    pub(crate) owing: u64,
    pub(crate) label: Option<&'a str>,
}

impl Ask<'_> {
    pub(crate) fn acquisition(&self, set: &LimitSet, granted: &Granted) -> Acquisition {
        Acquisition::new(set.clone(), self.wants, self.owing, granted)
    }
}

/// What came of joining.
pub(crate) enum Joined {
    Granted(Acquisition),
    Waiting(Waiting),
}

/// Somebody who waits.
pub(crate) struct Waiting {
    pub(crate) place: Place,
    pub(crate) deadline: u64,
    shares_doorbell: bool,
    since: u64,
}

/// What a look brought: nothing yet, or the end of waiting, good or bad.
pub(crate) type Looked = Option<Result<Acquisition, AcquireError>>;

/// What a look under the lock brought.
enum Outcome {
    Waiting,
    Granted,
    Refused(Statuses),
    /// The place is another waiter's by now.
    Lost,
    /// Time is up, and the queue was left; with how many others came first, and how long the set still pauses.
    Late(Statuses, u64, Option<u64>),
}

impl Waiting {
    /// Sleeps and looks until there is an answer.
    fn wait(mut self, set: &LimitSet, ask: &Ask<'_>) -> Result<Acquisition, AcquireError> {
        let interrupt = Interrupt::current();
        loop {
            if let Err(trouble) = self.sleep(set, interrupt) {
                self.abandon(set, ask);
                return set.on_trouble(trouble, ask.label);
            }
            if let Some(answer) = self.look(set, ask, interrupt.is_some_and(Interrupt::is_raised)) {
                return answer;
            }
        }
    }

    fn sleep(&self, set: &LimitSet, interrupt: Option<&Interrupt>) -> Result<(), Trouble> {
        let me = set.segment().participant().map_err(attach_trouble)?;
        let view = set.segment().view();
        let engine = set.engine();
        if let Some(interrupt) = interrupt {
            let doorbell = engine.doorbell(self.place.waiter).map_err(|fault| set.trouble(fault))?;
            let until = self.deadline.min(self.place.wakes_at);
            return interrupt.sleep(set, engine, doorbell, self.place.seen, until);
        }
        let slept = engine.sleep(me, &self.place, self.deadline, set.vigil(), &set.clock(), |swept| {
            events::swept(set, &swept);
            view.look_at_name()
        });
        slept.map_err(|fault| set.trouble(fault))
    }

    /// Looks for a grant; serves the queue, or leaves it if time is up or the wait is interrupted. After the end there is
    /// nothing to leave.
    pub(crate) fn look(&mut self, set: &LimitSet, ask: &Ask<'_>, is_interrupted: bool) -> Looked {
        let looked = self.look_quietly(set, ask, is_interrupted);
        match &looked {
            // That it was let through unasked has been told.
            Some(Ok(held)) if !held.enforced() => {}
            Some(Ok(held)) => {
                let waited = || Duration::from_nanos(clock::monotonic().saturating_sub(self.since));
                events::waited(set, ask.label, held.ticket(), waited);
            }
            Some(Err(refusal)) => events::refused(set, ask.label, refusal),
            None => {}
        }
        looked
    }

    fn look_quietly(&mut self, set: &LimitSet, ask: &Ask<'_>, is_interrupted: bool) -> Looked {
        let wants = ask.wants;
        let now = clock::monotonic();
        let is_late = now >= self.deadline;
        let left = self.deadline.saturating_sub(now).max(clock::nanos(LAST_LOCK));
        if is_late && !is_interrupted {
            self.sweep_at_last(set, wants);
        }
        let looked = set.locked_within(left.min(set.segment().patience()), |engine, guard, now| {
            let statuses = |guard: &_| {
                let judged = engine.judge(guard, wants, now)?;
                Ok(set.statuses(judged, now))
            };
            let look = engine.look(guard, &mut self.place, wants, &set.clock(), now)?;
            Ok(match look {
                Look::Granted => Outcome::Granted,
                Look::Refused => Outcome::Refused(statuses(guard)?),
                Look::Lost => Outcome::Lost,
                Look::Waiting if !is_late && !is_interrupted => Outcome::Waiting,
                Look::Waiting => {
                    let ahead = engine.ahead(guard, wants.demand(), Some(&self.place))?;
                    let statuses = statuses(guard)?;
                    let paused = engine.gate(guard, now)?.map(|at| at.saturating_sub(now));
                    engine.leave(guard, &mut self.place, wants, now)?;
                    Outcome::Late(statuses, ahead, paused)
                }
            })
        });
        match looked {
            Ok(Outcome::Waiting) => None,
            Ok(Outcome::Late(..)) if !is_late => Some(Err(AcquireError::Interrupted)),
            Ok(Outcome::Late(statuses, ahead, paused)) => {
                let paused = paused.map(Duration::from_nanos);
                Some(Err(AcquireError::TimedOut(Box::new(
                    set.timed_out(self.since, statuses, ahead, paused),
                ))))
            }
            Ok(Outcome::Granted) => {
                let Place { ticket, admitted, .. } = self.place;
                Some(Ok(ask.acquisition(set, &Granted { ticket, admitted })))
            }
            Ok(Outcome::Refused(statuses)) => match statuses.into_refusal() {
                never @ AcquireError::Never { .. } => Some(Err(never)),
                // It was impossible only for a while, and the place is gone.
                _ => self.rejoin(set, ask),
            },
            // This process became another participant while it waited.
            Ok(Outcome::Lost) => self.rejoin(set, ask),
            Err(trouble) => {
                self.abandon(set, ask);
                Some(self.on_trouble(set, ask, trouble))
            }
        }
    }

    /// Before a waiter gives up: returns what dead processes hold of what it wants, which may be all that it waits for.
    /// The error would name them. It names every holder, so here too every holder is looked at.
    fn sweep_at_last(&self, set: &LimitSet, wants: &Wants) {
        let permits = wants.demand() & set.engine().holdings().permits;
        if permits != 0 && set.segment().is_shared() {
            // A lock that is busy, or a set that was removed, is found by the look that follows.
            let _ = set.sweep_within(clock::nanos(LAST_LOCK), Reach::holders_of(permits));
        }
    }

    /// What trouble means to a caller that has waited in the queue.
    fn on_trouble(
        &self,
        set: &LimitSet,
        ask: &Ask<'_>,
        trouble: Trouble,
    ) -> Result<Acquisition, AcquireError> {
        match set.late(&trouble, self.since, self.deadline) {
            Some(late) => Err(late),
            None => set.on_trouble(trouble, ask.label),
        }
    }

    /// Joins the queue anew.
    fn rejoin(&mut self, set: &LimitSet, ask: &Ask<'_>) -> Looked {
        let patience = Patience { deadline: self.deadline, shares_doorbell: self.shares_doorbell };
        Some(match set.enter(ask.wants, ask.owing, Some(patience)) {
            Ok(Ok(Entered::Waiting(place))) => {
                self.place = place;
                return None;
            }
            Ok(Ok(Entered::Granted { ticket, admitted })) => {
                Ok(ask.acquisition(set, &Granted { ticket, admitted }))
            }
            Ok(Ok(_)) => Err(AcquireError::QueueFull { waiters: set.segment().info().waiters }),
            Ok(Err(statuses)) => Err(statuses.into_refusal()),
            Err(trouble) => self.on_trouble(set, ask, trouble),
        })
    }

    /// The participant whose place it is.
    pub(crate) fn grantee(&self) -> Grantee {
        Grantee::new(self.place.owner)
    }

    /// Leaves the queue and gives back what was granted meanwhile, if this process still is the participant that waits.
    /// If the lock is stuck, another thread does so when it can.
    pub(crate) fn abandon(&self, set: &LimitSet, ask: &Ask<'_>) {
        let grantee = self.grantee();
        if !grantee.is_us(set.segment()) {
            return;
        }
        let (place, wants, owing) = (self.place.clone(), ask.wants.clone(), ask.owing);
        let leave = move |set: &LimitSet, patience| {
            set.locked_as(grantee, patience, |engine, guard, now| {
                if engine.leave(guard, &mut place.clone(), &wants, now)? != Look::Granted {
                    return Ok(());
                }
                let charges: Vec<_> = Charge::of(&wants, owing, engine.table, place.ticket).collect();
                engine.finish(guard, &charges, Ending::Cancelled, now)
            })
        };
        // Nobody is left to tell.
        let _ = set.or_in_background_within(clock::nanos(background::DROP_PATIENCE), leave);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use super::*;
    use crate::core::NEVER;
    use crate::layout::waiters::WaiterWord;
    use crate::{ResourceLimit, Started};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Somebody asks for an hour while the lock is held, and then has to join the queue. Its deadline must lie an hour
    /// after it asked, not after it had the lock.
    fn asks_under_a_held_lock(ask: impl FnOnce(&LimitSet) + Send) {
        let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap();
        let held = set.try_acquire(()).unwrap();
        let engine = set.engine();
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
