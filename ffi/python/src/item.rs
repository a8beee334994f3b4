//! What a worker has, and what a collector has: an item of a work queue, until it is said what became of it.

use std::time::Duration;

use limitset::{Finished as Done, QueueError, Reason, WorkItem as Item};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::acquisition::{Acquisition, Ready, pause, retry_after_of};
use crate::convert::{bytes, duration};
use crate::error;
use crate::lone::Lone;

/// An item of work, held by this process until it says what became of it, once.
///
///     with queue.take() as item:
///         work(item.payload)
///
/// Leaving the block says that it is done, unless something else was said before. If the block raises an Exception, the
/// item is tried again, by whomever, until it was tried too often. If the worker has to stop (KeyboardInterrupt,
/// SystemExit, asyncio.CancelledError and whatever else is no Exception), the item is given back, and that was no attempt.
/// Neither hides the exception.
///
/// An item that nothing is said of goes to somebody else when it is destroyed, or when its process ends, however that
/// happens; then the attempt counts. In a forked child it is the parent's.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct WorkItem(Lone<Item>);

/// A finished item: a result, or a dead letter. Held by this process until it is forgotten, revived or put back.
///
///     with queue.collect() as finished:
///         keep(finished.id, finished.result)
///
/// Leaving the block forgets it, unless something else was said before; if the block raises, it is put back, and can be
/// collected again. So it is when it is destroyed, or when its process ends.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct Finished(Lone<Done>);

impl WorkItem {
    pub(crate) fn new(item: Item) -> Self {
        Self(Lone::new(item))
    }

    fn end(&self, py: Python<'_>, end: impl FnOnce(&mut Item) -> Result<(), QueueError>) -> PyResult<()> {
        end(&mut *self.0.take(py)?).map_err(|error| error::queue(py, &error))
    }

    /// Leaves its block.
    fn leave(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = exception.py();
        if exception.is_none() {
            return left(py, self.0.take(py)?.done());
        }
        // Nothing masks the exception; if the lock is stuck, the core says it when it can.
        if let Some(mut item) = self.0.try_take(py) {
            let has_failed = exception
                .cast::<PyType>()
                .is_ok_and(|it| it.is_subclass_of::<PyException>().unwrap_or(false));
            let _ = if has_failed { item.retry(Duration::ZERO) } else { item.give_back() };
        }
        Ok(())
    }
}

impl Finished {
    pub(crate) fn new(finished: Done) -> Self {
        Self(Lone::new(finished))
    }

    fn end(&self, py: Python<'_>, end: impl FnOnce(&mut Done) -> Result<(), QueueError>) -> PyResult<()> {
        end(&mut *self.0.take(py)?).map_err(|error| error::queue(py, &error))
    }

    /// Leaves its block.
    fn leave(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = exception.py();
        if exception.is_none() {
            return left(py, self.0.take(py)?.forget());
        }
        if let Some(mut finished) = self.0.try_take(py) {
            let _ = finished.put_back();
        }
        Ok(())
    }
}

/// What leaving a block without an exception means.
fn left(py: Python<'_>, ended: Result<(), QueueError>) -> PyResult<()> {
    match ended {
        // It was said in the block; or the block was entered by the parent, and is the parent's to leave.
        Ok(()) | Err(QueueError::Spent | QueueError::Forked) => Ok(()),
        Err(error) => Err(error::queue(py, &error)),
    }
}

#[pymethods]
impl WorkItem {
    /// The program's own number.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.id())
    }

    /// What was pushed.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.payload()))
    }

    /// How often it was handed out, this time included, without the times that ended with "too many requests".
    #[getter]
    fn attempts(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.attempts())
    }

    /// How often the other side said "too many requests" to it.
    #[getter]
    fn rate_limits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.rate_limits())
    }

    /// Records that it is done; its place is free. Raises QueueError with the reason "spent" if something was said
    /// before, as all of these do.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Item::done)
    }

    /// Records that it is done, with a result for whoever collects it; until then it keeps its place. Raises ItemTooLong,
    /// and then the item is still held.
    fn done_with(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let result = bytes(result, "a result")?;
        self.end(py, |item| item.done_with(&result))
    }

    /// Lets it be tried again, by whomever, not before so many seconds have passed. Tried often enough, it becomes a dead
    /// letter instead.
    #[pyo3(signature = (after = None))]
    fn retry(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let after = after.map_or(Ok(Duration::ZERO), |after| duration(after, "the time to a retry"))?;
        self.end(py, |item| item.retry(after))
    }

    /// The other side answered "too many requests": ends the acquisition that the request was made with, as its own
    /// rate_limited does, pauses its set, and parks the item until the pause is over, all at one instant. That was no
    /// attempt. `retry_after` is what the other side asked for: seconds, a timedelta, or the text of a Retry-After field.
    #[pyo3(signature = (held, retry_after = None))]
    fn rate_limited<'py>(
        &self,
        held: &Bound<'py, Acquisition>,
        retry_after: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = held.py();
        let wait = retry_after_of(retry_after)?;
        let mut item = self.0.take(py)?;
        let held = held.get().surrender(py)?;
        let paused = item.rate_limited(held, wait).map_err(|error| error::queue(py, &error))?;
        pause(py, &paused)
    }

    /// Gives it up: it becomes a dead letter. `why` is kept as its result. Raises ItemTooLong, and then it is still held.
    #[pyo3(signature = (why = None))]
    fn dead_letter(&self, py: Python<'_>, why: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let why = why.map(|why| bytes(why, "a reason")).transpose()?;
        self.end(py, |item| item.dead_letter(why.as_deref().unwrap_or_default()))
    }

    /// Gives it to another worker, at once, as if it had not been taken: for a worker that has to stop. That was no
    /// attempt.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Item::give_back)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_value, traceback);
        self.leave(exc_type)
    }

    fn __aenter__(slf: Py<Self>) -> Ready {
        Ready::new(Some(slf.into_any()))
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __aexit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Ready> {
        let _ = (exc_value, traceback);
        self.leave(exc_type)?;
        Ok(Ready::new(None))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let it = self.0.take(py)?;
        Ok(format!("<WorkItem id={} attempts={} rate_limits={}>", it.id(), it.attempts(), it.rate_limits()))
    }
}

#[pymethods]
impl Finished {
    /// The program's own number.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.id())
    }

    /// What was pushed.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.payload()))
    }

    /// What came of it; of a dead letter that a worker gave up, why.
    #[getter]
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.result()))
    }

    /// How often it was handed out, without the times that ended with "too many requests".
    #[getter]
    fn attempts(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.attempts())
    }

    /// How often the other side said "too many requests" to it.
    #[getter]
    fn rate_limits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.rate_limits())
    }

    /// Why it is a dead letter: "attempts", "rate_limits" or "given_up"; None if it is done.
    #[getter]
    fn reason(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.0.take(py)?.reason().map(|reason| match reason {
            Reason::Attempts => "attempts",
            Reason::RateLimits => "rate_limits",
            _ => "given_up",
        }))
    }

    /// It is not needed any more; its place is free. Raises QueueError with the reason "spent" if something was said
    /// before, as all of these do.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Done::forget)
    }

    /// Lets it be worked on again, with all counts at zero, behind all that wait; also in a queue that is closed.
    fn revive(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Done::revive)
    }

    /// Lets it be collected again.
    fn put_back(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Done::put_back)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_value, traceback);
        self.leave(exc_type)
    }

    fn __aenter__(slf: Py<Self>) -> Ready {
        Ready::new(Some(slf.into_any()))
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __aexit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Ready> {
        let _ = (exc_value, traceback);
        self.leave(exc_type)?;
        Ok(Ready::new(None))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let it = self.0.take(py)?;
        let end = match it.reason() {
            None => "done",
            Some(_) => "dead letter",
        };
        Ok(format!("<Finished {end} id={} attempts={}>", it.id(), it.attempts()))
    }
}
