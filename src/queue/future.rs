//! Waiting at a queue without blocking a thread, for any executor.
//!
//! A future polls the queue when it is polled for the first time, and then whenever the helper thread has woken it. It
//! holds nothing in between: an item that is found is returned by that very poll. So a dropped future has nothing to
//! return, and no wake-up is lost with it, because every change of the queue wakes all waiters.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::op::{Collect, Drain, Op, Push, Take};
use super::wait::Polled;
use super::{Finished, QueueError, WorkItem, WorkQueue};
use crate::engine::{Finishes, Watch};
use crate::protocol::NEVER;
use crate::segment::grantee::Grantee;
use crate::shared::helper_thread::{self, Doorbell, Sleep, Ticket};
use crate::sys::clock;

impl WorkQueue {
    /// Adds an item, as [`push`](Self::push), without blocking the thread; see [`take_async`](Self::take_async). A
    /// future that is dropped before it completes has pushed nothing.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), when polled: [`QueueError::TooLong`], [`QueueError::Closed`], or
    /// [`QueueError::Unavailable`].
    pub fn push_async(&self, id: u64, payload: impl Into<Vec<u8>>) -> PushFuture {
        PushFuture(Waiter::new(self, Push { id, payload: payload.into().into() }))
    }

    /// Takes the next item, as [`take`](Self::take), without blocking the thread. It works with any executor: one
    /// helper thread per process, started when it is first needed, wakes the futures that have to poll.
    ///
    /// Dropping the future loses nothing: it gets an item only in the poll that completes it. [`WorkItem`] says what
    /// happens to an item that is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use limitset::{LimitSet, QueueError, QueueOptions};
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
    /// let limits = LimitSet::builder().queue(QueueOptions::new(10, 64)).in_memory()?;
    /// let queue = limits.queue()?;
    /// let late = queue.take_async().timeout(Duration::from_millis(5)).await;
    /// assert!(matches!(late, Err(QueueError::TimedOut)));
    ///
    /// queue.push_async(1, "Oslo").await?;
    /// queue.close()?;
    /// while let Some(mut item) = queue.take_async().await? {
    ///     item.done()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take), when polled: [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn take_async(&self) -> TakeFuture {
        TakeFuture(Waiter::new(self, Take))
    }

    /// Takes the oldest result, as [`collect`](Self::collect), without blocking the thread; see
    /// [`take_async`](Self::take_async). A result that is dropped can be collected again.
    ///
    /// # Errors
    ///
    /// As [`collect`](Self::collect), when polled: [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn collect_async(&self) -> CollectFuture {
        CollectFuture(Waiter::new(self, Collect(Finishes::Results)))
    }

    /// Waits until all items are finished, as [`drain`](Self::drain), without blocking the thread; see
    /// [`take_async`](Self::take_async).
    ///
    /// # Errors
    ///
    /// As [`drain`](Self::drain), when polled: [`QueueError::Unavailable`] or [`QueueError::Removed`].
    pub fn drain_async(&self) -> DrainFuture {
        DrainFuture(Waiter::new(self, Drain))
    }
}

macro_rules! futures {
    ($($(#[$about:meta])* $name:ident($wish:ty) -> $got:ty;)*) => {$(
        $(#[$about])*
        #[must_use = "nothing is asked for before it is polled"]
        pub struct $name(Waiter<$wish>);

        impl $name {
            /// Gives up with [`QueueError::TimedOut`] this long after the first poll.
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.0.timeout = Some(timeout);
                self
            }
        }

        impl Future for $name {
            type Output = Result<$got, QueueError>;

            fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                self.get_mut().0.poll(context)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("state", &self.0.state.name()).finish_non_exhaustive()
            }
        }
    )*};
}

futures! {
    /// Pushes an item when there is room; see [`WorkQueue::push_async`].
    PushFuture(Push<'static>) -> ();
    /// Takes an item when there is one; see [`WorkQueue::take_async`].
    TakeFuture(Take) -> Option<WorkItem>;
    /// Takes a result when there is one; see [`WorkQueue::collect_async`].
    CollectFuture(Collect) -> Option<Finished>;
    /// Completes when all items are finished; see [`WorkQueue::drain_async`].
    DrainFuture(Drain) -> ();
}

/// A future that waits for an operation.
struct Waiter<W: Op> {
    queue: WorkQueue,
    op: W,
    timeout: Option<Duration>,
    state: State,
}

enum State {
    New,
    Waiting {
        watch: Watch,
        /// Identifies this waiter to the helper thread, until it is woken.
        ticket: Ticket,
        /// The participant that waits.
        owner: Grantee,
    },
    Over,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Waiting { .. } => "waiting",
            Self::Over => "over",
        }
    }
}

impl<W: Op> Waiter<W> {
    fn new(queue: &WorkQueue, op: W) -> Self {
        Self { queue: queue.clone(), op, timeout: None, state: State::New }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<W::Output, QueueError>> {
        let mut watch = match &self.state {
            State::New => Watch { deadline: self.timeout.map_or(NEVER, clock::deadline), alarm: None },
            State::Waiting { watch, ticket, owner } => {
                // In a forked child the ticket and the alarm are the parent's, and this future has to poll here, too.
                let is_ours = owner.is_us(self.queue.set.segment());
                if is_ours && helper_thread::is_asleep(self.queue.set.shared(), ticket, context.waker()) {
                    return Poll::Pending;
                }
                Watch { alarm: watch.alarm.filter(|_| is_ours), ..*watch }
            }
            State::Over => return Poll::Pending,
        };
        match self.start(&mut watch, context) {
            Ok(Progress::Asleep(ticket)) => {
                let owner = Grantee::now(self.queue.set.segment());
                self.state = State::Waiting { watch, ticket, owner };
                Poll::Pending
            }
            Ok(Progress::Ready(output)) => self.end(Ok(output)),
            Err(error) => {
                self.queue.leave(W::BELL, &watch, &error);
                self.end(Err(error))
            }
        }
    }

    /// Polls the queue; sleeps from then on if there is nothing.
    fn start(&self, watch: &mut Watch, context: &Context<'_>) -> Result<Progress<W::Output>, QueueError> {
        self.op.check(&self.queue)?;
        let (seen, wakes_at) = match self.queue.poll(&self.op, watch)? {
            Polled::Ready(output) => return Ok(Progress::Ready(output)),
            Polled::Pending { seen, until } => (seen, until),
        };
        let sleep = Sleep { on: Doorbell::Work(W::BELL), seen, wakes_at };
        Ok(Progress::Asleep(helper_thread::watch(self.queue.set.shared(), sleep, context.waker())?))
    }

    fn end(&mut self, answer: Result<W::Output, QueueError>) -> Poll<Result<W::Output, QueueError>> {
        self.state = State::Over;
        Poll::Ready(answer)
    }
}

impl<W: Op> Drop for Waiter<W> {
    fn drop(&mut self) {
        if let State::Waiting { watch, ticket, owner } = &self.state
            && owner.is_us(self.queue.set.segment())
        {
            let was_asleep = helper_thread::forget(ticket);
            if !was_asleep || watch.alarm.is_some() {
                self.queue.set.shared().ring_on(W::BELL, watch);
            }
        }
    }
}

/// What one poll of a future has come to.
enum Progress<T> {
    Ready(T),
    /// The helper thread wakes the future.
    Asleep(Ticket),
}
