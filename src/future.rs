//! Wait without a thread: the same queue, for any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquisition::Acquisition;
use crate::answer::{AcquireError, RunError};
use crate::engine::Wants;
use crate::events;
use crate::helper::{self, Sleep, Ticket};
use crate::request::{BadRequest, Request};
use crate::set::LimitSet;
use crate::sys::clock;
use crate::wait::{Ask, Joined, Waiting};

impl LimitSet {
    /// As [`acquire`](Self::acquire), without blocking the thread. Needs no particular executor: one helper thread per
    /// process, started when it is first needed, wakes whoever's turn it is.
    ///
    /// Dropping the future leaves the queue and gives back what was granted meanwhile.
    ///
    /// ```
    /// use std::time::Duration;
    /// use limitset::{AcquireError, LimitSet, ResourceLimit};
    ///
    /// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark {
    /// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
    /// #     }
    /// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut context = std::task::Context::from_waker(&waker);
    /// #     loop {
    /// #         if let std::task::Poll::Ready(it) = future.as_mut().poll(&mut context) { return it; }
    /// #         std::thread::park();
    /// #     }
    /// # }
    /// # block_on(async {
    /// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory()?;
    /// let held = limits.acquire_async(()).await?;
    /// let late = limits.acquire_async(()).timeout(Duration::from_millis(5)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut(_))));
    /// held.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As `acquire`, when polled.
    pub fn acquire_async<'r>(&self, request: impl Into<Request<'r>>) -> AcquireFuture {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch).cloned();
        self.future(wants, u64::MAX, request.name())
    }

    /// Acquires what is asked for if the limits allow it now, and joins the queue if not: what is granted at once costs
    /// no future. For callers that wait in their own way, such as bindings of other languages. Time begins now.
    ///
    /// ```
    /// use limitset::{LimitSet, ResourceLimit, Started};
    ///
    /// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory()?;
    /// let Started::Granted(held) = limits.start_acquire((), None)? else { panic!("there is one") };
    /// let Started::Waiting(future) = limits.start_acquire((), None)? else { panic!("there is no other") };
    /// drop(future); // leaves the queue
    /// # held.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), if waiting is of no use.
    #[inline]
    pub fn start_acquire<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Option<Duration>,
    ) -> Result<Started, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        let ask = Ask { wants, owing: u64::MAX, label: request.name() };
        // Waiting for the lock counts, too.
        let since = timeout.map(|_| clock::monotonic());
        match self.enter_at_once(wants, u64::MAX, self.first_patience(timeout)) {
            Ok(Some(granted)) => {
                events::granted(self, ask.label, granted.ticket);
                Ok(Started::Granted(ask.acquisition(self, &granted)))
            }
            Ok(None) => self.start_waiting(&ask, timeout, since),
            Err(trouble) => self.on_first_trouble(trouble, timeout, ask.label).map(Started::Granted),
        }
    }

    #[cold]
    fn start_waiting(
        &self,
        ask: &Ask<'_>,
        timeout: Option<Duration>,
        since: Option<u64>,
    ) -> Result<Started, AcquireError> {
        match self.join(ask, timeout, since, true) {
            Ok(Ok(Joined::Granted(acquisition))) => Ok(Started::Granted(acquisition)),
            Ok(Ok(Joined::Waiting(waiting))) => {
                let mut future = self.future(Ok(ask.wants.clone()), ask.owing, ask.label);
                future.timeout = timeout;
                future.state = State::Waiting { waiting, ticket: None };
                Ok(Started::Waiting(Box::new(future)))
            }
            Ok(Err(refusal)) => Err(refusal),
            Err(trouble) => self.on_trouble(trouble, ask.label).map(Started::Granted),
        }
    }

    pub(crate) fn future(
        &self,
        wants: Result<Wants, BadRequest>,
        owing: u64,
        label: Option<&str>,
    ) -> AcquireFuture {
        let label = label.map(Into::into);
        AcquireFuture { set: self.clone(), wants, owing, label, timeout: None, state: State::New }
    }

    /// As [`run`](Self::run), for a body that awaits. Dropping the future cancels the acquisition.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if nothing was acquired, [`RunError::Body`] if `body` failed.
    pub async fn run_async<'r, T, E>(
        &self,
        request: impl Into<Request<'r>>,
        body: impl AsyncFnOnce(&mut Acquisition) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        let acquire = self.acquire_async(request);
        acquire.await?.run_async(body).await
    }
}

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
        waiting: Waiting,
        /// Where the helper knows it by; gone once it has been woken. None before it is polled.
        ticket: Option<Ticket>,
    },
    Over,
}

impl AcquireFuture {
    /// Gives up with [`AcquireError::TimedOut`] this long after the first poll.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn ask(&self) -> Result<Ask<'_>, &BadRequest> {
        let wants = self.wants.as_ref()?;
        Ok(Ask { wants, owing: self.owing, label: self.label.as_deref() })
    }

    fn start(&mut self, context: &Context<'_>) -> Poll<Result<Acquisition, AcquireError>> {
        let ask = match self.ask() {
            Ok(ask) => ask,
            Err(bad) => return Poll::Ready(Err(bad.clone().into())),
        };
        let waiting = match self.set.join(&ask, self.timeout, None, true) {
            Ok(Ok(Joined::Granted(acquisition))) => return Poll::Ready(Ok(acquisition)),
            Ok(Ok(Joined::Waiting(waiting))) => waiting,
            Ok(Err(refusal)) => return Poll::Ready(Err(refusal)),
            Err(trouble) => return Poll::Ready(self.set.on_trouble(trouble, ask.label)),
        };
        match helper::watch(&self.set, Sleep::of(&waiting), context.waker()) {
            Ok(ticket) => {
                self.state = State::Waiting { waiting, ticket: Some(ticket) };
                Poll::Pending
            }
            Err(trouble) => {
                waiting.abandon(&self.set, &ask);
                Poll::Ready(self.set.on_trouble(trouble, ask.label))
            }
        }
    }

    fn resume(&mut self, context: &Context<'_>) -> Poll<Result<Acquisition, AcquireError>> {
        let (State::Waiting { waiting, ticket, .. }, Ok(wants)) = (&mut self.state, &self.wants) else {
            return Poll::Pending;
        };
        let ask = Ask { wants, owing: self.owing, label: self.label.as_deref() };
        if ticket.is_some_and(|ticket| helper::is_asleep(&self.set, &ticket, context.waker())) {
            return Poll::Pending;
        }
        match waiting.look(&self.set, &ask, false) {
            Some(answer) => {
                self.state = State::Over;
                Poll::Ready(answer)
            }
            None => match helper::watch(&self.set, Sleep::of(waiting), context.waker()) {
                Ok(new) => {
                    *ticket = Some(new);
                    Poll::Pending
                }
                Err(trouble) => {
                    waiting.abandon(&self.set, &ask);
                    self.state = State::Over;
                    Poll::Ready(self.set.on_trouble(trouble, ask.label))
                }
            },
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<Acquisition, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Waiting { waiting, ticket } = &this.state
            && !waiting.grantee().is_us(this.set.segment())
        {
            // The place in the queue was another participant's; this process asks for its own.
            if let Some(ticket) = ticket {
                helper::forget(ticket);
            }
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
        if let (State::Waiting { waiting, ticket }, Ok(ask)) = (&self.state, self.ask()) {
            if let Some(ticket) = ticket {
                helper::forget(ticket);
            }
            waiting.abandon(&self.set, &ask);
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
