//! Wait at a queue without a thread: the same looks, for any executor.
//!
//! A future looks when it is polled for the first time, and then whenever the helper thread has woken it. It holds
//! nothing in between: what a look finds is the answer of that very poll. So there is nothing to give back when a future
//! is dropped, and no wake is lost with it, because every change of the queue wakes all who wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::wait::Looked;
use super::wish::{Collect, Drain, Push, Take, Wish};
use super::{Finished, QueueError, WorkItem, WorkQueue};
use crate::core::NEVER;
use crate::engine::Finishes;
use crate::helper::{self, Doorbell, Sleep, Ticket};
use crate::sys::clock;

impl WorkQueue {
    /// As [`push`](Self::push), without blocking the thread; see [`take_async`](Self::take_async). Dropped, it has pushed
    /// nothing.
    ///
    /// # Errors
    ///
    /// As `push`, when polled.
    pub fn push_async(&self, id: u64, payload: impl Into<Vec<u8>>) -> PushFuture {
        PushFuture(Waiter::new(self, Push { id, payload: payload.into().into() }))
    }

    /// As [`take`](Self::take), without blocking the thread. Needs no particular executor: one helper thread per process,
    /// started when it is first needed, wakes whoever has to look.
    ///
    /// Dropping the future loses nothing: it has an item only when it is over, and hands it out at once. What becomes of
    /// an item that is dropped then is said at [`WorkItem`].
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
    /// As `take`, when polled.
    pub fn take_async(&self) -> TakeFuture {
        TakeFuture(Waiter::new(self, Take))
    }

    /// As [`collect`](Self::collect), without blocking the thread; see [`take_async`](Self::take_async). A result that is
    /// dropped can be collected again.
    ///
    /// # Errors
    ///
    /// As `collect`, when polled.
    pub fn collect_async(&self) -> CollectFuture {
        CollectFuture(Waiter::new(self, Collect(Finishes::Results)))
    }

    /// As [`drain`](Self::drain), without blocking the thread; see [`take_async`](Self::take_async).
    ///
    /// # Errors
    ///
    /// As `drain`, when polled.
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
    /// An item that is pushed when there is room; see [`WorkQueue::push_async`].
    PushFuture(Push<'static>) -> ();
    /// An item to come; see [`WorkQueue::take_async`].
    TakeFuture(Take) -> Option<WorkItem>;
    /// A result to come; see [`WorkQueue::collect_async`].
    CollectFuture(Collect) -> Option<Finished>;
    /// The end of all work that was pushed; see [`WorkQueue::drain_async`].
    DrainFuture(Drain) -> ();
}

/// Somebody who waits for something.
struct Waiter<W> {
    queue: WorkQueue,
    wish: W,
    timeout: Option<Duration>,
    state: State,
}

enum State {
    New,
    Waiting {
        deadline: u64,
        /// Where the helper knows it by; not any more once it has been woken.
        ticket: Ticket,
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

impl<W: Wish> Waiter<W> {
    fn new(queue: &WorkQueue, wish: W) -> Self {
        Self { queue: queue.clone(), wish, timeout: None, state: State::New }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<W::Got, QueueError>> {
        let deadline = match &self.state {
            State::New => self.timeout.map_or(NEVER, clock::deadline),
            State::Waiting { deadline, ticket } => {
                // The helper of a forked child does not know the parent's tickets: this process looks for itself.
                if helper::is_asleep(&self.queue.set, ticket, context.waker()) {
                    return Poll::Pending;
                }
                *deadline
            }
            State::Over => return Poll::Pending,
        };
        match self.look(deadline, context) {
            Ok(Ok(ticket)) => {
                self.state = State::Waiting { deadline, ticket };
                Poll::Pending
            }
            Ok(Err(got)) => self.end(Ok(got)),
            Err(error) => self.end(Err(error)),
        }
    }

    /// Looks; sleeps from then on if there is nothing.
    fn look(&self, deadline: u64, context: &Context<'_>) -> Result<Result<Ticket, W::Got>, QueueError> {
        self.wish.check(&self.queue)?;
        let (seen, wakes_at) = match self.queue.look(&self.wish, deadline)? {
            Looked::Here(got) => return Ok(Err(got)),
            Looked::NotNow { seen, until } => (seen, until),
        };
        let sleep = Sleep { on: Doorbell::Work, seen, wakes_at };
        Ok(Ok(helper::watch(&self.queue.set, sleep, context.waker())?))
    }

    fn end(&mut self, answer: Result<W::Got, QueueError>) -> Poll<Result<W::Got, QueueError>> {
        self.state = State::Over;
        Poll::Ready(answer)
    }
}

impl<W> Drop for Waiter<W> {
    fn drop(&mut self) {
        if let State::Waiting { ticket, .. } = &self.state {
            helper::forget(ticket);
        }
    }
}
