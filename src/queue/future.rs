//! Wait at a queue without a thread: the same looks, for any executor.
//!
//! A future looks when it is polled for the first time, and then whenever the helper thread has woken it. It holds no item
//! in between: what a look finds is the answer of that very poll. A change of the queue wakes one waiter only. So a future
//! that is dropped after it was woken and before it looked rings on, and so does one that kept the alarm for the others.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::wait::Looked;
use super::wish::{Collect, Drain, Push, Take, Wish};
use super::{Finished, QueueError, WorkItem, WorkQueue};
use crate::core::NEVER;
use crate::engine::{Finishes, Watch};
use crate::grantee::Grantee;
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
struct Waiter<W: Wish> {
    queue: WorkQueue,
    wish: W,
    timeout: Option<Duration>,
    state: State,
}

enum State {
    New,
    Waiting {
        watch: Watch,
        /// Where the helper knows it by; not any more once it has been woken.
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

impl<W: Wish> Waiter<W> {
    fn new(queue: &WorkQueue, wish: W) -> Self {
        Self { queue: queue.clone(), wish, timeout: None, state: State::New }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<W::Got, QueueError>> {
        let mut watch = match &self.state {
            State::New => Watch { deadline: self.timeout.map_or(NEVER, clock::deadline), alarm: None },
            State::Waiting { watch, ticket, owner } => {
                // In a forked child the ticket and the alarm are the parent's, and this future has to look here, too.
                let is_ours = owner.is_us(self.queue.set.segment());
                if is_ours && helper::is_asleep(&self.queue.set, ticket, context.waker()) {
                    return Poll::Pending;
                }
                Watch { alarm: watch.alarm.filter(|_| is_ours), ..*watch }
            }
            State::Over => return Poll::Pending,
        };
        match self.look(&mut watch, context) {
            Ok(Ok(ticket)) => {
                let owner = Grantee::now(self.queue.set.segment());
                self.state = State::Waiting { watch, ticket, owner };
                Poll::Pending
            }
            Ok(Err(got)) => self.end(Ok(got)),
            Err(error) => {
                self.queue.leave(W::BELL, &watch, &error);
                self.end(Err(error))
            }
        }
    }

    /// Looks; sleeps from then on if there is nothing.
    fn look(&self, watch: &mut Watch, context: &Context<'_>) -> Result<Result<Ticket, W::Got>, QueueError> {
        self.wish.check(&self.queue)?;
        let (seen, wakes_at) = match self.queue.look(&self.wish, watch)? {
            Looked::Here(got) => return Ok(Err(got)),
            Looked::NotNow { seen, until } => (seen, until),
        };
        let sleep = Sleep { on: Doorbell::Work(W::BELL), seen, wakes_at };
        Ok(Ok(helper::watch(&self.queue.set, sleep, context.waker())?))
    }

    fn end(&mut self, answer: Result<W::Got, QueueError>) -> Poll<Result<W::Got, QueueError>> {
        self.state = State::Over;
        Poll::Ready(answer)
    }
}

impl<W: Wish> Drop for Waiter<W> {
    fn drop(&mut self) {
        if let State::Waiting { watch, ticket, owner } = &self.state
            && owner.is_us(self.queue.set.segment())
        {
            let was_asleep = helper::forget(ticket);
            if !was_asleep || watch.alarm.is_some() {
                self.queue.set.engine().ring_on(W::BELL, watch.alarm);
            }
        }
    }
}
