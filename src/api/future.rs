//! Wait without a thread: the same queue, for any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::api::acquisition::Acquisition;
use crate::api::error::AcquireError;
use crate::api::ladder::{Joined, Ladder};
use crate::api::request::BadRequest;
use crate::api::set::LimitSet;
use crate::engine::Wants;
use crate::shared::acquire::Ask;
use crate::shared::helper_thread::{self, Sleep, Ticket};
use crate::shared::wait::Waiter;

/// What came of [`LimitSet::start_acquire`].
#[derive(Debug)]
pub enum Started {
    /// It was granted at once.
    Granted(Acquisition),
    /// It waits in the queue, and was not polled yet.
    Waiting(Box<AcquireFuture>),
}

/// An acquisition to come; see [`LimitSet::acquire_async`].
#[must_use = "nothing is asked for before it is polled"]
pub struct AcquireFuture {
    set: LimitSet,
    wants: Result<Wants, BadRequest>,
    owing: u64,
    label: Option<Box<str>>,
    timeout: Option<Duration>,
    state: State,
}

enum State {
    New,
    Waiting {
        waiter: Waiter,
        /// Where the helper knows it by; gone once it has been woken. None before it is polled.
        ticket: Option<Ticket>,
    },
    Over,
}

impl AcquireFuture {
    /// A future that asks when it is first polled.
    pub(crate) fn new(
        set: LimitSet,
        wants: Result<Wants, BadRequest>,
        owing: u64,
        label: Option<&str>,
    ) -> Self {
        Self { set, wants, owing, label: label.map(Into::into), timeout: None, state: State::New }
    }

    /// A future that waits already.
    pub(crate) fn waiting(
        set: LimitSet,
        ask: Ask<'_>,
        label: Option<&str>,
        timeout: Option<Duration>,
        waiter: Waiter,
    ) -> Self {
        let mut future = Self::new(set, Ok(ask.wants.clone()), ask.owing, label);
        future.timeout = timeout;
        future.state = State::Waiting { waiter, ticket: None };
        future
    }

    /// Gives up with [`AcquireError::TimedOut`] this long after the first poll.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn ask(&self) -> Result<Ask<'_>, &BadRequest> {
        let wants = self.wants.as_ref()?;
        Ok(Ask { wants, owing: self.owing })
    }

    fn start(&mut self, context: &Context<'_>) -> Poll<Result<Acquisition, AcquireError>> {
        let ask = match self.ask() {
            Ok(ask) => ask,
            Err(bad) => return Poll::Ready(Err(bad.clone().into())),
        };
        let ladder = Ladder { set: self.set.shared(), ask, label: self.label.as_deref() };
        let waiter = match ladder.join(self.timeout, None, true) {
            Ok(Joined::Admitted(admission)) => {
                return Poll::Ready(Ok(admission.hold(self.set.clone(), ask)));
            }
            Ok(Joined::Waiting(waiter)) => waiter,
            Err(refusal) => return Poll::Ready(Err(refusal)),
        };
        match helper_thread::watch(self.set.shared(), Sleep::of(&waiter), context.waker()) {
            Ok(ticket) => {
                self.state = State::Waiting { waiter, ticket: Some(ticket) };
                Poll::Pending
            }
            Err(error) => {
                waiter.leave(self.set.shared(), ask);
                let answer = ladder.unavailable(error);
                Poll::Ready(answer.map(|admission| admission.hold(self.set.clone(), ask)))
            }
        }
    }

    fn resume(&mut self, context: &Context<'_>) -> Poll<Result<Acquisition, AcquireError>> {
        let (State::Waiting { waiter, ticket, .. }, Ok(wants)) = (&mut self.state, &self.wants) else {
            return Poll::Pending;
        };
        let ask = Ask { wants, owing: self.owing };
        let ladder = Ladder { set: self.set.shared(), ask, label: self.label.as_deref() };
        if ticket.is_some_and(|ticket| helper_thread::is_asleep(self.set.shared(), &ticket, context.waker()))
        {
            return Poll::Pending;
        }
        if let Some(answer) = ladder.poll(waiter, false) {
            let answer = answer.map(|admission| admission.hold(self.set.clone(), ask));
            self.state = State::Over;
            return Poll::Ready(answer);
        }
        match helper_thread::watch(self.set.shared(), Sleep::of(waiter), context.waker()) {
            Ok(new) => {
                *ticket = Some(new);
                Poll::Pending
            }
            Err(error) => {
                waiter.leave(self.set.shared(), ask);
                let answer = ladder.unavailable(error);
                let answer = answer.map(|admission| admission.hold(self.set.clone(), ask));
                self.state = State::Over;
                Poll::Ready(answer)
            }
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<Acquisition, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Waiting { waiter, ticket } = &this.state
            && !waiter.grantee().is_us(this.set.segment())
        {
            if let Some(ticket) = ticket {
                helper_thread::forget(ticket);
            }
            // The place in the queue is the parent's; this process asks for its own.
            this.state = State::New;
        }
        let answer = match this.state {
            State::New => this.start(context),
            State::Waiting { .. } => this.resume(context),
            State::Over => Poll::Pending,
        };
        if answer.is_ready() {
            this.state = State::Over;
        }
        answer
    }
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        if let (State::Waiting { waiter, ticket }, Ok(ask)) = (&self.state, self.ask()) {
            if let Some(ticket) = ticket {
                helper_thread::forget(ticket);
            }
            waiter.leave(self.set.shared(), ask);
        }
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::New => "new",
            State::Waiting { .. } => "waiting",
            State::Over => "over",
        };
        f.debug_struct("AcquireFuture").field("state", &state).finish_non_exhaustive()
    }
}
