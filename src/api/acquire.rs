//! Asking a set: now, waiting for a time or however long it takes, as a future; charging without holding.
//!
//! All of them climb one [`Ladder`].

use std::borrow::Borrow;
use std::time::Duration;

use crate::api::acquisition::Acquisition;
use crate::api::error::{AcquireError, RunError};
use crate::api::future::{AcquireFuture, Started};
use crate::api::ladder::{self, Admission, Joined, Ladder};
use crate::api::request::Request;
use crate::api::set::LimitSet;
use crate::engine::Wants;
use crate::shared::acquire::Ask;
use crate::sys::clock;

/// A charge was made. There is nothing to hold, report or release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charged {
    /// The number of the charge in order of arrival.
    pub ticket: u64,
    /// Whether the limits were asked; see [`Acquisition::enforced`].
    pub enforced: bool,
}

impl From<Acquisition> for Charged {
    fn from(mut acquisition: Acquisition) -> Self {
        acquisition.is_no_trial();
        Self { ticket: acquisition.ticket(), enforced: acquisition.enforced() }
    }
}

impl From<Admission> for Charged {
    #[inline]
    fn from(admission: Admission) -> Self {
        match admission {
            Admission::Granted(grant) => Self { ticket: grant.ticket, enforced: true },
            Admission::NotEnforced => Self { ticket: 0, enforced: false },
        }
    }
}

/// Acquires without waiting; `keep` is how the acquisition keeps its set.
pub(crate) fn try_now<'s, S: Borrow<LimitSet>>(
    set: &'s LimitSet,
    request: &Request<'_>,
    keep: impl Fn(&'s LimitSet) -> S,
) -> Result<Acquisition<S>, AcquireError> {
    let mut scratch = Wants::none();
    let ask = ask(set.keys().wants(request, &mut scratch)?);
    Ok(ladder::now(set.shared(), ask, || request.name())?.hold(keep(set), ask))
}

/// Acquires, and waits for it.
fn wait(
    set: &LimitSet,
    request: &Request<'_>,
    timeout: Option<Duration>,
) -> Result<Acquisition, AcquireError> {
    let mut scratch = Wants::none();
    let ask = ask(set.keys().wants(request, &mut scratch)?);
    Ok(ladder::wait(set.shared(), ask, || request.name(), timeout)?.hold(set.clone(), ask))
}

/// Charges rates without holding anything, and waits for it.
fn pay(set: &LimitSet, request: &Request<'_>, timeout: Option<Duration>) -> Result<Charged, AcquireError> {
    let mut scratch = Wants::none();
    let ask = payment(set.keys().payable(request, &mut scratch)?);
    Ok(ladder::wait(set.shared(), ask, || request.name(), timeout)?.into())
}

/// The charges of a request: all limits report their use, where they need it.
fn ask(wants: &Wants) -> Ask<'_> {
    Ask { wants, owing: u64::MAX }
}

/// Rates that are paid for at once: no report is due.
fn payment(wants: &Wants) -> Ask<'_> {
    Ask { wants, owing: 0 }
}

impl LimitSet {
    /// Acquires what is asked for if the limits allow it now; see [`Request`] for what can be asked.
    ///
    /// Never waits for a limit. It waits for the set's lock, which is held for less than a microsecond at a time, at most
    /// as long as the segment's [lock timeout](crate::SegmentOptions::patience).
    ///
    /// # Errors
    ///
    /// [`AcquireError`] says what is in the way; nothing was charged then.
    pub fn try_acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        try_now(self, &request.into(), Self::clone)
    }

    /// Acquires as [`try_acquire`](Self::try_acquire) does, for an acquisition that ends before the set is dropped. That
    /// saves counting one more user of the set, which is a good part of the cost of an acquisition.
    ///
    /// ```
    /// use limitset::{LimitSet, ResourceLimit};
    ///
    /// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 2)).in_memory()?;
    /// let held = limits.try_acquire_ref(())?;
    /// assert_eq!(held.charged("connections"), Some(1));
    /// held.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As `try_acquire`.
    pub fn try_acquire_ref<'s, 'r>(
        &'s self,
        request: impl Into<Request<'r>>,
    ) -> Result<Acquisition<&'s Self>, AcquireError> {
        try_now(self, &request.into(), |set| set)
    }

    /// Acquires what is asked for, waiting until the limits allow it. Requests for the same limits are served in order of
    /// arrival, unless the set says [otherwise](crate::Order).
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
        wait(self, &request.into(), None)
    }

    /// Acquires as [`acquire`](Self::acquire) does, for at most `timeout`; if the lock of the set is stuck, some 50 ms
    /// more. Enrolling, at the first use after a fork, has its own
    /// [lock timeout](crate::SegmentOptions::patience).
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] after `timeout`, with the holders of missing permits; else as `acquire`.
    pub fn acquire_timeout<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Duration,
    ) -> Result<Acquisition, AcquireError> {
        wait(self, &request.into(), Some(timeout))
    }

    /// Acquires as [`acquire`](Self::acquire) does, runs `body`, and releases. If `body` fails or panics, its charges are
    /// refunded where that is possible; if it succeeds without the reports that are due, that is counted as by dropping
    /// the acquisition.
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

    /// Runs `body` as [`run`](Self::run) does, if the limits allow it now.
    ///
    /// # Errors
    ///
    /// As `run`; it never waits for a limit.
    pub fn try_run<'r, T, E>(
        &self,
        request: impl Into<Request<'r>>,
        body: impl FnOnce(&mut Acquisition) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.try_acquire(request)?.run(body)
    }

    /// Acquires as [`acquire`](Self::acquire) does, without blocking the thread. Needs no particular executor: one helper
    /// thread per process, started when it is first needed, wakes the futures.
    ///
    /// Dropping the future leaves the wait queue and gives back what was granted meanwhile.
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
        AcquireFuture::new(self.clone(), wants, u64::MAX, request.name())
    }

    /// Runs `body` as [`run`](Self::run) does, for a body that awaits. Dropping the future cancels the acquisition.
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

    /// Acquires what is asked for if the limits allow it now, and joins the wait queue if not: a request that is granted at
    /// once costs no future. For callers that wait in their own way, such as bindings of other languages. The timeout
    /// begins now.
    ///
    /// ```
    /// use limitset::{LimitSet, ResourceLimit, Started};
    ///
    /// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory()?;
    /// let Started::Granted(held) = limits.start_acquire((), None)? else { panic!("there is one") };
    /// let Started::Waiting(future) = limits.start_acquire((), None)? else { panic!("there is no other") };
    /// drop(future); // leaves the wait queue
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
        let ask = ask(self.keys().wants(&request, &mut scratch)?);
        // The wait for the lock counts, too.
        let since = timeout.map(|_| clock::monotonic());
        let fast = self.shared().try_fast(ask, self.shared().first_lock_timeout(timeout));
        let label = || request.name();
        let joined =
            ladder::climb(self.shared(), ask, label, timeout, fast, |it| it.join(timeout, since, true))?;
        Ok(match joined {
            Joined::Admitted(admission) => Started::Granted(admission.hold(self.clone(), ask)),
            Joined::Waiting(waiter) => {
                let future = AcquireFuture::waiting(self.clone(), ask, request.name(), timeout, waiter);
                Started::Waiting(Box::new(future))
            }
        })
    }

    /// Charges rates if all of them allow it now: the rates that are named, and 1 of each call limit that is not. Permits
    /// are left alone, and no report is due. ([`check`](Self::check) looks and never charges.)
    ///
    /// ```
    /// use limitset::{CallLimit, LimitSet, RateLimit, ResourceLimit};
    ///
    /// let limits = LimitSet::builder()
    ///     .limit(CallLimit::per_minute(10))
    ///     .limit(RateLimit::per_minute("tokens", 1_000))
    ///     .limit(ResourceLimit::new("connections", 8))
    ///     .in_memory()?;
    /// limits.try_charge([("tokens", 700)])?;
    /// assert!(limits.try_charge([("tokens", 700)]).is_err());
    /// assert!(limits.try_charge([("connections", 1)]).is_err(), "permits are held, not paid");
    /// assert_eq!(limits.stats()?.limit("call_count").unwrap().consumed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`BadRequest::Permit`](crate::BadRequest::Permit) if a permit is named.
    #[inline]
    pub fn try_charge<'r>(&self, request: impl Into<Request<'r>>) -> Result<Charged, AcquireError> {
        let request = request.into();
        let set = self.shared();
        if let Some(resolved) = request.resolved()
            && let Some(wants) = self.keys().plain_rates(resolved)
        {
            // The shortest way.
            let ask = payment(wants);
            let fast = set.try_fast_plain(ask);
            let admission = ladder::climb(set, ask, || resolved.label(), None, fast, Ladder::decide)?;
            return Ok(Admission::into(admission));
        }
        let mut scratch = Wants::none();
        let ask = payment(self.keys().payable(&request, &mut scratch)?);
        Ok(ladder::now(set, ask, || request.name())?.into())
    }

    /// Charges rates as [`try_charge`](Self::try_charge) does, waiting in the same queue as acquisitions do.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`BadRequest::Permit`](crate::BadRequest::Permit) if a permit is named.
    pub fn charge<'r>(&self, request: impl Into<Request<'r>>) -> Result<Charged, AcquireError> {
        pay(self, &request.into(), None)
    }

    /// Charges rates as [`charge`](Self::charge) does, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout), and [`BadRequest::Permit`](crate::BadRequest::Permit) if a permit is
    /// named.
    pub fn charge_timeout<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Duration,
    ) -> Result<Charged, AcquireError> {
        pay(self, &request.into(), Some(timeout))
    }

    /// Charges rates as [`charge`](Self::charge) does, for at most `timeout` if there is one, without blocking the thread.
    ///
    /// # Errors
    ///
    /// As `charge`, and [`AcquireError::TimedOut`] after `timeout`.
    pub async fn charge_async<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Option<Duration>,
    ) -> Result<Charged, AcquireError> {
        let future = {
            let request = request.into();
            let mut scratch = Wants::none();
            let wants = self.keys().payable(&request, &mut scratch).cloned();
            AcquireFuture::new(self.clone(), wants, 0, request.name())
        };
        let future = match timeout {
            Some(timeout) => future.timeout(timeout),
            None => future,
        };
        Ok(future.await?.into())
    }
}
