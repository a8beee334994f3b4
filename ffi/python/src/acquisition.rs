//! A granted request: report its use, release it, cancel it. Or a denied one, which is falsy and has the reason.

use std::time::Duration;

use limitset::{AcquireError, Acquisition as Held, LimitSet, Pause, ResolvedRequest, UsageError};
use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;

use crate::convert::{Amounts, Asked, duration, whole};
use crate::error;
use crate::lone::Lone;

/// A granted request: permits that are held, and charges on rates. Or a denied request, with the reason.
///
/// Use it in `with` or `async with`. Leaving the block releases it: permits return, charges stay. If a report was due
/// and not made, Unreported is raised after the release. If the block raises, charges are refunded, too, where the
/// algorithm can refund.
#[pyclass(frozen, module = "limitset")]
pub(crate) struct Acquisition(Lone<Inner>);

struct Inner {
    state: State,
    /// The acquisition was released in place.
    is_released: bool,
    config: Option<Py<PyAny>>,
    /// The set that keeps this object for reuse after its release, if there is one.
    home: Option<Py<crate::set::LimitSet>>,
}

enum State {
    Held(Held),
    Refused(Box<Refusal>),
    Ended,
}

struct Refusal {
    /// The set that was asked; unknown for a pool.
    set: Option<LimitSet>,
    asked: Amounts,
    why: AcquireError,
}

impl Acquisition {
    pub(crate) fn granted(held: Held, config: Py<PyAny>) -> Self {
        Self::new(State::Held(held), Some(config))
    }

    pub(crate) fn refused(
        set: Option<LimitSet>,
        asked: Amounts,
        why: AcquireError,
        config: Option<Py<PyAny>>,
    ) -> Self {
        Self::new(State::Refused(Box::new(Refusal { set, asked, why })), config)
    }

    fn new(state: State, config: Option<Py<PyAny>>) -> Self {
        Self(Lone::new(Inner { state, is_released: false, config, home: None }))
    }

    /// Lets this set keep the object for reuse after its release.
    pub(crate) fn at_home(mut self, set: &Bound<'_, crate::set::LimitSet>) -> Self {
        self.0.get_mut().home = Some(set.clone().unbind());
        self
    }

    /// Moves the acquisition out, for a caller that ends it in another way. Python sees it as ended.
    pub(crate) fn surrender(&self, py: Python<'_>) -> PyResult<Held> {
        let mut it = self.0.take(py)?;
        it.held(py)?;
        it.give_up()
            .ok_or_else(|| error::misuse(py, "ended", "the acquisition has ended: acquire again".to_owned()))
    }

    /// Acquires into this ended acquisition, if it is of this set and the limits allow it at once.
    #[inline]
    pub(crate) fn acquire_again(
        &self,
        set: &Bound<'_, crate::set::LimitSet>,
        request: &ResolvedRequest,
        timeout: Option<Duration>,
    ) -> Result<bool, AcquireError> {
        self.0.try_take(set.py()).map_or(Ok(false), |mut it| it.acquire_again(set, request, timeout))
    }
}

impl Inner {
    fn held(&mut self, py: Python<'_>) -> PyResult<&mut Held> {
        let text = match &mut self.state {
            State::Held(held) if !self.is_released => return Ok(held),
            State::Refused(it) => format!("the request was denied: {}", it.why),
            State::Held(_) | State::Ended => "the acquisition was released before: acquire again".to_owned(),
        };
        Err(error::misuse(py, "ended", text))
    }

    /// Releases the acquisition, once: permits return, charges stay.
    #[inline]
    fn release(&mut self) -> Result<(), UsageError> {
        match &mut self.state {
            State::Held(held) if !std::mem::replace(&mut self.is_released, true) => held.release_in_place(),
            _ => Ok(()),
        }
    }

    /// Cancels the acquisition, once: permits return, charges are refunded.
    fn cancel(&mut self) -> Result<(), UsageError> {
        match self.is_released {
            true => Ok(()),
            false => self.give_up().map_or(Ok(()), Held::cancel),
        }
    }

    /// Moves the acquisition out, to end it.
    fn give_up(&mut self) -> Option<Held> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Held(held) => Some(held),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Acquires into this ended acquisition, if it is of this set and the limits allow it at once.
    #[inline]
    fn acquire_again(
        &mut self,
        set: &Bound<'_, crate::set::LimitSet>,
        request: &ResolvedRequest,
        timeout: Option<Duration>,
    ) -> Result<bool, AcquireError> {
        let State::Held(over) = &mut self.state else { return Ok(false) };
        let is_granted = over.acquire_again(&set.get().set, request, timeout)?;
        if is_granted {
            self.is_released = false;
            self.home = Some(set.clone().unbind());
        }
        Ok(is_granted)
    }
}

impl Refusal {
    fn error(&self, py: Python<'_>) -> PyErr {
        error::acquire(py, self.set.as_ref(), &self.asked, &self.why)
    }
}

/// Releases the acquisition, and lets its set keep the object for reuse.
#[inline]
fn end_released(it: &Bound<'_, Acquisition>) -> PyResult<Result<(), UsageError>> {
    let mut inner = it.get().0.take(it.py())?;
    let ended = inner.release();
    let home = inner.home.take().map(|home| home.into_bound(it.py()));
    drop(inner);
    if let Some(home) = home {
        home.get().keep(it);
    }
    Ok(ended)
}

/// Leaves the `with` block.
#[inline]
fn leave(it: &Bound<'_, Acquisition>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
    if !exception.is_none() {
        // No error of limitset masks the exception; if the lock is stuck, the core refunds the charge when it is free.
        if let Some(mut inner) = it.get().0.try_take(it.py()) {
            let _ = inner.cancel();
        }
        return Ok(());
    }
    match end_released(it)? {
        // The parent entered the block; only the parent's exit releases.
        Ok(()) | Err(UsageError::Forked) => Ok(()),
        Err(error) => Err(error::usage(it.py(), &error)),
    }
}

#[pymethods]
impl Acquisition {
    /// Whether the request was granted.
    #[getter]
    fn successful(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!matches!(self.0.take(py)?.state, State::Refused(_)))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.successful(py)
    }

    /// The config of the set, shared and read-only.
    #[getter]
    fn config(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let it = self.0.take(py)?;
        Ok(it.config.as_ref().map_or_else(|| py.None(), |config| config.clone_ref(py)))
    }

    /// Whether the limits were asked. False only if they were unavailable and the set is open with
    /// `on_unavailable="allow"`.
    #[getter]
    fn enforced(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.0.take(py)?.state {
            State::Held(held) => Ok(held.enforced()),
            _ => Ok(true),
        }
    }

    /// The position of the set in the pool; None if it was not acquired from a pool.
    #[getter]
    fn pool_index(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        match &self.0.take(py)?.state {
            State::Held(held) => Ok(held.pool_index()),
            _ => Ok(None),
        }
    }

    /// The reason of a denial, as an exception that can be raised; None if the request was granted.
    #[getter]
    fn denial(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.0.take(py)?.state {
            State::Refused(it) => Ok(Some(it.error(py).into_value(py).into_any())),
            _ => Ok(None),
        }
    }

    /// Seconds until the denied request can succeed; None if it was granted, or if the time is not known.
    #[getter]
    fn retry_after(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        match &self.0.take(py)?.state {
            State::Refused(it) => Ok(it.why.retry_after().map(|wait| wait.as_secs_f64())),
            _ => Ok(None),
        }
    }

    /// Returns the acquisition; raises LimitDenied if the request was denied.
    fn or_raise(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        match &slf.get().0.take(slf.py())?.state {
            State::Refused(it) => Err(it.error(slf.py())),
            _ => Ok(slf.clone().unbind()),
        }
    }

    /// Returns the amount of a limit that is charged or held now; None if the request left the limit out.
    #[pyo3(signature = (key, /))]
    fn charged(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        let it = self.0.take(py)?;
        match &it.state {
            State::Held(held) if !it.is_released => Ok(held.charged(key)),
            _ => Ok(None),
        }
    }

    /// Reports the used amounts, by key. The rest of a requested amount is refunded, if the limit's algorithm can
    /// refund; the rest of the permits returns early. Reporting again corrects the report. Returns the refunded
    /// amount.
    fn update(&self, py: Python<'_>, usage: &Bound<'_, PyAny>) -> PyResult<u64> {
        let asked = Asked::new(Some(usage))?;
        let pairs = asked.pairs()?;
        let mut it = self.0.take(py)?;
        let held = it.held(py)?;
        let mut returned = 0;
        for (key, used) in pairs {
            returned += held.update(key, used).map_err(|error| error::usage(py, &error))?;
        }
        Ok(returned)
    }

    /// Reports that all requested amounts were used.
    fn use_all(&self, py: Python<'_>) -> PyResult<()> {
        let mut it = self.0.take(py)?;
        let Ok(held) = it.held(py) else { return Ok(()) };
        let limits = held.set().limits().iter().filter(|limit| limit.must_report());
        let keys: Vec<String> = limits.map(|limit| limit.name().to_owned()).collect();
        for key in keys {
            if let Some(charged) = held.charged(&key) {
                held.settle(&key, charged).map_err(|error| error::usage(py, &error))?;
            }
        }
        Ok(())
    }

    /// Charges `delta` units more of a limit, into debt if need be, or refunds them if it is negative. Counts as a
    /// report. Returns the refunded amount.
    fn adjust(&self, py: Python<'_>, key: &str, delta: i64) -> PyResult<u64> {
        self.0.take(py)?.held(py)?.adjust(key, delta).map_err(|error| error::usage(py, &error))
    }

    /// Reports the real use of a limit: unused units are refunded; use beyond the request is charged, into debt if need
    /// be. Returns the refunded amount.
    fn settle(&self, py: Python<'_>, key: &Bound<'_, PyAny>, actual: &Bound<'_, PyAny>) -> PyResult<u64> {
        let actual = whole(actual, key)?;
        let key = key.extract::<String>()?;
        self.0.take(py)?.held(py)?.settle(&key, actual).map_err(|error| error::usage(py, &error))
    }

    /// Acquires exactly the named amounts in addition, under the same acquisition, all or none. Never waits; raises
    /// LimitDenied.
    fn acquire_more(&self, py: Python<'_>, requested: &Bound<'_, PyAny>) -> PyResult<()> {
        let asked = Asked::new(Some(requested))?;
        let pairs = asked.pairs()?;
        let mut it = self.0.take(py)?;
        let held = it.held(py)?;
        let set = held.set().clone();
        match held.acquire_more(pairs.as_slice()) {
            Ok(()) => Ok(()),
            Err(why) => Err(error::acquire(py, Some(&set), &asked.owned()?, &why)),
        }
    }

    /// Releases the acquisition: permits return, charges stay. Raises Unreported, after the release, if a report was
    /// due and not made. Does nothing the second time, or if the request was denied.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        end_released(slf)?.map_err(|error| error::usage(slf.py(), &error))
    }

    /// Cancels the acquisition: permits return, and charges are refunded where the limit's algorithm can refund.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.0.take(py)?.cancel().map_err(|error| error::usage(py, &error))
    }

    /// Ends the acquisition because the other side answered "too many requests": permits return, charges stay and need
    /// no report, and the whole set pauses, in every process. `retry_after` is the other side's Retry-After: seconds,
    /// a timedelta, or the text of the field.
    #[pyo3(signature = (retry_after = None))]
    fn rate_limited<'py>(
        &self,
        py: Python<'py>,
        retry_after: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wait = retry_after_of(retry_after)?;
        let paused = self.surrender(py)?.rate_limited(wait).map_err(|error| error::usage(py, &error))?;
        pause(py, &paused)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_value, traceback);
        leave(slf, exc_type)
    }

    fn __aenter__(slf: Py<Self>) -> Ready {
        Ready(Some(slf.into_any()))
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __aexit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Ready> {
        let _ = (exc_value, traceback);
        leave(slf, exc_type)?;
        Ok(Ready(None))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let it = self.0.take(py)?;
        Ok(match &it.state {
            State::Held(held) if !it.is_released => format!("<Acquisition {held:?}>"),
            State::Refused(it) => format!("<Acquisition denied: {}>", it.why),
            State::Held(_) | State::Ended => "<Acquisition released>".to_owned(),
        })
    }
}

/// Reads a Retry-After. A text that is neither seconds nor a date counts as none.
pub(crate) fn retry_after_of(wait: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(wait) = wait else { return Ok(None) };
    let py = wait.py();
    if !wait.is_instance_of::<pyo3::types::PyString>() {
        return duration(wait, "retry_after").map(Some);
    }
    let seconds = py.import("limitset._http")?.call_method1(intern!(py, "retry_after"), (wait,))?;
    if seconds.is_none() { Ok(None) } else { duration(&seconds, "retry_after").map(Some) }
}

/// Converts a pause for Python.
pub(crate) fn pause<'py>(py: Python<'py>, paused: &Pause) -> PyResult<Bound<'py, PyAny>> {
    let remaining = paused.remaining.map(|left| left.as_secs_f64());
    py.import("limitset._http")?.getattr("Pause")?.call1((remaining, paused.generation, paused.absorbed))
}

/// An awaitable that is ready from the beginning.
#[pyclass(module = "limitset._limitset")]
pub(crate) struct Ready(Option<Py<PyAny>>);

impl Ready {
    pub(crate) fn new(value: Option<Py<PyAny>>) -> Self {
        Self(value)
    }
}

#[pymethods]
impl Ready {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Err(PyStopIteration::new_err((self.0.take().unwrap_or_else(|| py.None()),)))
    }
}
