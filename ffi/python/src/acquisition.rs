//! What was granted: report its use, release it, cancel it. Or what was refused: it is falsy, and says why.

use std::time::Duration;

use limitset::{AcquireError, Acquisition as Held, LimitSet, Pause, UsageError};
use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;

use crate::convert::{Amounts, Asked, duration, whole};
use crate::error;

/// What was acquired: permits that are held, and charges on rates. Or, if nothing was, why.
///
/// Use it in `with` or `async with`. Leaving the block releases it: permits return, charges stay. If the use of a rate
/// was not reported by then, that is an error, after the release. If the block raises, the charges return too, where
/// the algorithm can take them back.
#[pyclass(module = "limitset")]
pub(crate) struct Acquisition {
    state: State,
    /// What is held was released where it stands.
    is_released: bool,
    config: Option<Py<PyAny>>,
}

enum State {
    Held(Held),
    Refused(Box<Refusal>),
    Ended,
}

struct Refusal {
    /// The set that was asked; a pool does not say which.
    set: Option<LimitSet>,
    asked: Amounts,
    why: AcquireError,
}

/// How an acquisition ends.
enum Ending {
    Released,
    Cancelled,
}

impl Acquisition {
    pub(crate) fn granted(held: Held, config: Py<PyAny>) -> Self {
        Self { state: State::Held(held), is_released: false, config: Some(config) }
    }

    pub(crate) fn refused(
        set: Option<LimitSet>,
        asked: Amounts,
        why: AcquireError,
        config: Option<Py<PyAny>>,
    ) -> Self {
        let state = State::Refused(Box::new(Refusal { set, asked, why }));
        Self { state, is_released: false, config }
    }

    fn held(&mut self, py: Python<'_>) -> PyResult<&mut Held> {
        let text = match &mut self.state {
            State::Held(held) if !self.is_released => return Ok(held),
            State::Refused(it) => format!("nothing was acquired: {}", it.why),
            State::Held(_) | State::Ended => "it was released already: acquire anew".to_owned(),
        };
        Err(error::misuse(py, "ended", text))
    }

    /// Ends it, once.
    fn end(&mut self, ending: Ending) -> Result<(), UsageError> {
        let State::Held(held) = &mut self.state else { return Ok(()) };
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        match ending {
            Ending::Released => held.release_in_place(),
            Ending::Cancelled => self.take().map_or(Ok(()), Held::cancel),
        }
    }

    /// What is held, to end it.
    fn take(&mut self) -> Option<Held> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Held(held) => Some(held),
            other => {
                self.state = other;
                None
            }
        }
    }

    fn leave(&mut self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        if !exception.is_none() {
            // Nothing masks the exception; if the lock is stuck, the core returns the charge when it can.
            let _ = self.end(Ending::Cancelled);
            return Ok(());
        }
        match self.end(Ending::Released) {
            // The block was entered by the parent, and is the parent's to leave.
            Ok(()) | Err(UsageError::Forked) => Ok(()),
            Err(error) => Err(error::usage(py, &error)),
        }
    }
}

#[pymethods]
impl Acquisition {
    /// Whether anything was acquired.
    #[getter]
    fn successful(&self) -> bool {
        !matches!(self.state, State::Refused(_))
    }

    fn __bool__(&self) -> bool {
        self.successful()
    }

    /// The config of the set, shared and read-only.
    #[getter]
    fn config(&self, py: Python<'_>) -> Py<PyAny> {
        self.config.as_ref().map_or_else(|| py.None(), |config| config.clone_ref(py))
    }

    /// Whether the limits were asked. False only if they could not be and the set is open with
    /// `on_unavailable="allow"`.
    #[getter]
    fn enforced(&self) -> bool {
        match &self.state {
            State::Held(held) => held.enforced(),
            _ => true,
        }
    }

    /// The position of its set in the pool that it came from.
    #[getter]
    fn pool_index(&self) -> Option<usize> {
        match &self.state {
            State::Held(held) => held.pool_index(),
            _ => None,
        }
    }

    /// Why nothing was acquired, as an exception that can be raised; None if something was.
    #[getter]
    fn denial(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.state {
            State::Refused(it) => {
                let error = error::acquire(py, it.set.as_ref(), &it.asked, &it.why);
                Some(error.into_value(py).into_any())
            }
            _ => None,
        }
    }

    /// Seconds until the same request can succeed; None if something was acquired, or if that is not known.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        match &self.state {
            State::Refused(it) => it.why.retry_after().map(|wait| wait.as_secs_f64()),
            _ => None,
        }
    }

    /// Itself; raises LimitDenied if nothing was acquired.
    fn or_raise(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        match &slf.state {
            State::Refused(it) => Err(error::acquire(py, it.set.as_ref(), &it.asked, &it.why)),
            _ => Ok(slf.into()),
        }
    }

    /// How much of a limit is charged or held now; None if it was left alone.
    #[pyo3(signature = (key, /))]
    fn charged(&self, key: &str) -> Option<u64> {
        match &self.state {
            State::Held(held) if !self.is_released => held.charged(key),
            _ => None,
        }
    }

    /// Reports how much of what was requested was used, by key. What was not is given back, if the limit's algorithm
    /// can take it; of permits, the rest is given back early. Reporting again corrects the report. Gives how much was
    /// given back.
    fn update(&mut self, py: Python<'_>, usage: &Bound<'_, PyAny>) -> PyResult<u64> {
        let asked = Asked::new(Some(usage))?;
        let pairs = asked.pairs()?;
        let held = self.held(py)?;
        let mut returned = 0;
        for (key, used) in pairs {
            returned += held.update(key, used).map_err(|error| error::usage(py, &error))?;
        }
        Ok(returned)
    }

    /// Reports that everything that was asked for was used.
    fn use_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let Ok(held) = self.held(py) else { return Ok(()) };
        let limits = held.set().limits().iter().filter(|limit| limit.must_report());
        let keys: Vec<String> = limits.map(|limit| limit.name().to_owned()).collect();
        for key in keys {
            if let Some(charged) = held.charged(&key) {
                held.settle(&key, charged).map_err(|error| error::usage(py, &error))?;
            }
        }
        Ok(())
    }

    /// Charges so much more of a limit than so far, into debt if need be, or gives it back if it is negative. Counts
    /// as a report. Gives how much was given back.
    fn adjust(&mut self, py: Python<'_>, key: &str, delta: i64) -> PyResult<u64> {
        self.held(py)?.adjust(key, delta).map_err(|error| error::usage(py, &error))
    }

    /// Reports what was used of a limit, be it less or more than requested: what is too much is given back, what is
    /// missing is charged, into debt if need be. Gives how much was given back.
    fn settle(&mut self, py: Python<'_>, key: &Bound<'_, PyAny>, actual: &Bound<'_, PyAny>) -> PyResult<u64> {
        let actual = whole(actual, key)?;
        let key = key.extract::<String>()?;
        self.held(py)?.settle(&key, actual).map_err(|error| error::usage(py, &error))
    }

    /// Acquires more under the same acquisition: exactly what is named, all or none. Never waits; raises LimitDenied.
    fn acquire_more(&mut self, py: Python<'_>, requested: &Bound<'_, PyAny>) -> PyResult<()> {
        let asked = Asked::new(Some(requested))?;
        let pairs = asked.pairs()?;
        let held = self.held(py)?;
        let set = held.set().clone();
        match held.acquire_more(pairs.as_slice()) {
            Ok(()) => Ok(()),
            Err(why) => Err(error::acquire(py, Some(&set), &asked.owned()?, &why)),
        }
    }

    /// Ends it: permits return, charges stay. Raises Unreported, after the release, if the use of a rate that needs a
    /// report was not reported. Does nothing the second time, or if nothing was acquired.
    fn release(&mut self, py: Python<'_>) -> PyResult<()> {
        self.end(Ending::Released).map_err(|error| error::usage(py, &error))
    }

    /// Ends it as if it had not been: permits return, and charges too where the limit's algorithm can take them back.
    fn cancel(&mut self, py: Python<'_>) -> PyResult<()> {
        self.end(Ending::Cancelled).map_err(|error| error::usage(py, &error))
    }

    /// Ends it because the other side answered "too many requests": permits return, charges stay and need no report,
    /// and the whole set pauses, in every process. `retry_after` is what the other side asked for: seconds, a
    /// timedelta, or the text of a Retry-After field.
    #[pyo3(signature = (retry_after = None))]
    fn rate_limited<'py>(
        &mut self,
        py: Python<'py>,
        retry_after: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wait = retry_after.map(|wait| retry_after_of(wait)).transpose()?.flatten();
        self.held(py)?;
        let Some(held) = self.take() else {
            return Err(error::misuse(py, "ended", "nothing is held".to_owned()));
        };
        let paused = held.rate_limited(wait).map_err(|error| error::usage(py, &error))?;
        pause(py, &paused)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &mut self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_value, traceback);
        self.leave(py, exc_type)
    }

    fn __aenter__(slf: Py<Self>) -> Ready {
        Ready(Some(slf.into_any()))
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __aexit__(
        &mut self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Ready> {
        let _ = (exc_value, traceback);
        self.leave(py, exc_type)?;
        Ok(Ready(None))
    }

    fn __repr__(&self) -> String {
        match &self.state {
            State::Held(held) if !self.is_released => format!("<Acquisition {held:?}>"),
            State::Refused(it) => format!("<Acquisition refused: {}>", it.why),
            State::Held(_) | State::Ended => "<Acquisition released>".to_owned(),
        }
    }
}

/// What the other side asked for. A text that is neither seconds nor a date asks for nothing.
fn retry_after_of(wait: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let py = wait.py();
    if !wait.is_instance_of::<pyo3::types::PyString>() {
        return duration(wait, "retry_after").map(Some);
    }
    let seconds = py.import("limitset._http")?.call_method1(intern!(py, "retry_after"), (wait,))?;
    if seconds.is_none() { Ok(None) } else { duration(&seconds, "retry_after").map(Some) }
}

/// A pause, for Python.
pub(crate) fn pause<'py>(py: Python<'py>, paused: &Pause) -> PyResult<Bound<'py, PyAny>> {
    let remaining = paused.remaining.map(|left| left.as_secs_f64());
    py.import("limitset._http")?.getattr("Pause")?.call1((remaining, paused.generation, paused.absorbed))
}

/// An awaitable that is over before it begins.
#[pyclass(module = "limitset._limitset")]
pub(crate) struct Ready(Option<Py<PyAny>>);

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
