//! An item of a work queue that a worker has taken, and a finished item that a collector has taken.

use std::time::Duration;

use limitset::{Finished as Done, QueueError, Reason, WorkItem as Item};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::acquisition::{Acquisition, Ready, pause, retry_after_of};
use crate::convert::{bytes, duration};
use crate::error;
use crate::lone::Lone;

/// An item of work. This process has it until it finishes or returns it, once.
///
///     with queue.take() as item:
///         work(item.payload)
///
/// Leaving the block marks the item as done, unless the block has finished or returned it. If the block raises an
/// Exception, the item returns to the queue for another attempt, or becomes a dead letter after its last one. If the
/// worker has to stop (KeyboardInterrupt, SystemExit, asyncio.CancelledError and all that is not an Exception), the
/// item is given back, and the attempt does not count. The exception passes through the block.
///
/// If the object is destroyed, or its process ends for any reason, the item goes to another worker, and the attempt
/// counts. In a forked child the item stays the parent's.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct WorkItem(Lone<Item>);

/// A finished item: a result, or a dead letter. This process has it until it forgets it, revives it or puts it back.
///
///     with queue.collect() as finished:
///         keep(finished.id, finished.result)
///
/// Leaving the block forgets the item, unless the block has revived it or put it back. If the block raises, if the
/// object is destroyed, or if its process ends, the item is put back and can be collected again.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct Finished(Lone<Done>);

impl WorkItem {
    pub(crate) fn new(item: Item) -> Self {
        Self(Lone::new(item))
    }

    fn end(&self, py: Python<'_>, end: impl FnOnce(&mut Item) -> Result<(), QueueError>) -> PyResult<()> {
        end(&mut *self.0.take(py)?).map_err(|error| error::queue(py, &error))
    }

    /// Leaves the `with` block.
    fn leave(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = exception.py();
        if exception.is_none() {
            return left(py, self.0.take(py)?.done());
        }
        // No error of limitset masks the exception; if the lock is stuck, the core returns the item when it is free.
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

    /// Leaves the `with` block.
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

/// Converts the answer to leaving a block without an exception.
fn left(py: Python<'_>, ended: Result<(), QueueError>) -> PyResult<()> {
    match ended {
        // The block has ended the item; or the parent entered the block, and only the parent's exit ends the item.
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

    /// The payload that was pushed.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.payload()))
    }

    /// How often a worker took it, this time included, except the times that ended with "too many requests".
    #[getter]
    fn attempts(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.attempts())
    }

    /// How often it was answered "too many requests".
    #[getter]
    fn rate_limits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.rate_limits())
    }

    /// Marks the item as done; its place is free. Raises QueueError with the reason "spent" if the item was finished or
    /// returned before, as all methods that end an item do.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Item::done)
    }

    /// Marks the item as done, with a result; it keeps its place until a process has collected the result. If it raises
    /// ItemTooLong, this process still has the item.
    fn done_with(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let result = bytes(result, "a result")?;
        self.end(py, |item| item.done_with(&result))
    }

    /// Returns the item to the queue, for any worker to take again after `after` seconds. After its last attempt it
    /// becomes a dead letter instead.
    #[pyo3(signature = (after = None))]
    fn retry(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let after = after.map_or(Ok(Duration::ZERO), |after| duration(after, "the time to a retry"))?;
        self.end(py, |item| item.retry(after))
    }

    /// Reports that the other side answered "too many requests": ends the acquisition as its own rate_limited does,
    /// pauses its set, and parks the item until the pause is over, all at one instant. The attempt does not count.
    /// `retry_after` is the other side's Retry-After: seconds, a timedelta, or the text of the field.
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

    /// Makes the item a dead letter. `why` is kept as its result. If it raises ItemTooLong, this process still has the
    /// item.
    #[pyo3(signature = (why = None))]
    fn dead_letter(&self, py: Python<'_>, why: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let why = why.map(|why| bytes(why, "a reason")).transpose()?;
        self.end(py, |item| item.dead_letter(why.as_deref().unwrap_or_default()))
    }

    /// Returns the item to the queue at once, as if it had not been taken: for a worker that has to stop. The attempt
    /// does not count.
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

    /// The payload that was pushed.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.payload()))
    }

    /// The result; for a dead letter that a worker gave up, the worker's reason.
    #[getter]
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.take(py)?.result()))
    }

    /// How often a worker took it, except the times that ended with "too many requests".
    #[getter]
    fn attempts(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.attempts())
    }

    /// How often it was answered "too many requests".
    #[getter]
    fn rate_limits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.take(py)?.rate_limits())
    }

    /// The reason why it is a dead letter: "attempts", "rate_limits" or "given_up"; None if it is done.
    #[getter]
    fn reason(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.0.take(py)?.reason().map(|reason| match reason {
            Reason::Attempts => "attempts",
            Reason::RateLimits => "rate_limits",
            _ => "given_up",
        }))
    }

    /// Frees the place of the item. Raises QueueError with the reason "spent" if it was forgotten, revived or put back
    /// before, as all methods that end it do.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Done::forget)
    }

    /// Returns the item to the end of the queue, with all counts at zero; also if the queue is closed.
    fn revive(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Done::revive)
    }

    /// Puts the item back, to be collected again.
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
