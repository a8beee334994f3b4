//! Waiting for a pool without blocking a thread.

use std::time::Duration;

use super::{Balance, LimitPool, is_worth_waiting};
use crate::api::acquisition::Acquisition;
use crate::api::error::AcquireError;
use crate::api::request::Request;
use crate::sys::clock;

impl LimitPool {
    /// Acquires from one of the sets, as [`acquire`](Self::acquire), without blocking the thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire): the [`AcquireError`] of the set that the request went to, or
    /// [`AcquireError::Removed`] if all sets were removed.
    pub async fn acquire_async<'r>(
        &self,
        request: impl Into<Request<'r>>,
    ) -> Result<Acquisition, AcquireError> {
        self.acquire_before(request.into(), None).await
    }

    /// Acquires from one of the sets, as [`acquire_timeout`](Self::acquire_timeout), without blocking the thread. The
    /// timeout starts with the first poll.
    ///
    /// ```
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
    /// use std::time::Duration;
    /// use limitset::{AcquireError, Balance, LimitPool, LimitSet, ResourceLimit};
    ///
    /// let set = || LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory();
    /// for balance in [Balance::RoundRobin, Balance::FirstFree] {
    ///     let pool = LimitPool::new([set()?])?.balance(balance);
    ///     let held = block_on(pool.acquire_async_timeout((), Duration::from_secs(60)))?;
    ///     let late = block_on(pool.acquire_async_timeout((), Duration::from_millis(5)));
    ///     assert!(matches!(late, Err(AcquireError::TimedOut(_))));
    ///     held.release()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout): [`AcquireError::TimedOut`] after `timeout`, or another error of
    /// the set that the request went to.
    pub async fn acquire_async_timeout<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Duration,
    ) -> Result<Acquisition, AcquireError> {
        self.acquire_before(request.into(), Some(clock::deadline(timeout))).await
    }

    async fn acquire_before(
        &self,
        request: Request<'_>,
        deadline: Option<u64>,
    ) -> Result<Acquisition, AcquireError> {
        // If a set is removed during the wait, the next round goes to another set.
        let mut turns = self.turns();
        loop {
            let index = match self.balance {
                Balance::FirstFree => match self.first_free(&request) {
                    Err((index, refusal)) if is_worth_waiting(&refusal) => index,
                    answer => return answer.map_err(|(_, refusal)| refusal),
                },
                _ => turns.next().ok_or(AcquireError::Removed)?,
            };
            let set = self.sets.get(index).ok_or(AcquireError::Removed)?;
            let mut future = set.acquire_async(request.clone());
            if let Some(deadline) = deadline {
                let left = deadline.saturating_sub(clock::monotonic());
                future = future.timeout(Duration::from_nanos(left));
            }
            if let Some(answer) = self.counted(index, future.await) {
                return answer;
            }
        }
    }
}
