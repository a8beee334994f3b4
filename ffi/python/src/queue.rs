//! The work queue of a set: push, take, collect, wait for the end.

use limitset::{Finished as Done, QueueError, WorkItem as Item, WorkQueue as Queue};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::{self, bytes};
use crate::item::{Finished, WorkItem};
use crate::set::LimitSet;
use crate::waiting::{self, Pending, Translate, coroutine};
use crate::{error, stats};

/// A queue of work in the memory of a set, shared by every process that opens it.
///
///     limits = LimitSet([...], name="api", queue=QueueOptions(items=1000, item_bytes=64))
///     limits.queue.push(1, b"Oslo")
///     for item in limits.queue:          # in any number of processes
///         with item:
///             item.done_with(item.payload.upper())
///
/// An item is some bytes and a number of the program's own. One worker at a time has it, and finishes or returns it. If
/// the worker is killed instead, the item goes to another one. No item is lost, and no two workers have an item at one
/// time; but a worker that is killed may have done the work already, so an item may be worked on more than once.
///
/// `for item in queue` and `async for item in queue` take items until the queue is closed and all items are finished.
/// Finish each item before taking the next, as `with item:` does: an item that the loop still has is not finished.
#[pyclass(frozen, module = "limitset")]
pub(crate) struct WorkQueue {
    queue: Queue,
    set: Py<LimitSet>,
}

/// Adds a timeout to a future, if there is one.
macro_rules! within {
    ($future:expr, $timeout:expr) => {
        match $timeout {
            Some(timeout) => $future.timeout(timeout),
            None => $future,
        }
    };
}

impl WorkQueue {
    pub(crate) fn new(set: &Bound<'_, LimitSet>) -> PyResult<Self> {
        let queue = set.get().set.queue().map_err(|error| error::queue(set.py(), &error))?;
        Ok(Self { queue, set: set.clone().unbind() })
    }
}

fn taken(py: Python<'_>, answer: Result<Option<Item>, QueueError>) -> PyResult<Option<WorkItem>> {
    Ok(answer.map_err(|error| error::queue(py, &error))?.map(WorkItem::new))
}

fn collected(py: Python<'_>, answer: Result<Option<Done>, QueueError>) -> PyResult<Option<Finished>> {
    Ok(answer.map_err(|error| error::queue(py, &error))?.map(Finished::new))
}

fn nothing(py: Python<'_>, answer: Result<(), QueueError>) -> PyResult<Py<PyAny>> {
    answer.map(|()| py.None()).map_err(|error| error::queue(py, &error))
}

/// Boxes a translation.
fn later<A, T>(translate: fn(Python<'_>, A) -> PyResult<T>) -> Translate<A, T>
where
    A: 'static,
    T: 'static,
{
    Box::new(translate)
}

#[pymethods]
impl WorkQueue {
    /// The set that the queue belongs to.
    #[getter]
    fn limit_set(&self, py: Python<'_>) -> Py<LimitSet> {
        self.set.clone_ref(py)
    }

    /// Adds an item; waits while the queue is full. `id` is the program's own and means nothing to the queue. Raises
    /// QueueTimeout after `timeout` seconds, if a timeout is given, QueueClosed or ItemTooLong; nothing was added then.
    #[pyo3(signature = (id, payload, timeout = None))]
    fn push<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        payload: &Bound<'py, PyAny>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (id, payload) = (convert::id(id)?, bytes(payload, "a payload")?);
        let timeout = convert::timeout(timeout)?;
        match self.queue.try_push(id, &payload) {
            Err(QueueError::Full { .. }) => {}
            answer => return nothing(py, answer).map(|none| none.into_bound(py)),
        }
        waiting::wait(py, within!(self.queue.push_async(id, payload.to_vec()), timeout), later(nothing))
    }

    /// Adds an item if there is room now; raises QueueFull if not.
    fn try_push(&self, py: Python<'_>, id: &Bound<'_, PyAny>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let (id, payload) = (convert::id(id)?, bytes(payload, "a payload")?);
        self.queue.try_push(id, &payload).map_err(|error| error::queue(py, &error))
    }

    /// Adds an item as `push` does, for asyncio. Uses no thread. If it is cancelled, it has added nothing.
    #[pyo3(signature = (id, payload, timeout = None))]
    fn async_push<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        payload: &Bound<'py, PyAny>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (id, payload) = (convert::id(id)?, bytes(payload, "a payload")?);
        let future = within!(self.queue.push_async(id, payload.to_vec()), convert::timeout(timeout)?);
        coroutine(py, Pending::new(future, later(nothing)))
    }

    /// Takes the next item; waits while there is none. Returns None if the queue is closed and all items are finished.
    /// Raises QueueTimeout after `timeout` seconds, if a timeout is given.
    ///
    /// Parked items come first, once their pause is over; then delayed items whose time has come; then the other items
    /// in the order in which they were pushed.
    #[pyo3(signature = (timeout = None))]
    fn take<'py>(&self, py: Python<'py>, timeout: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        waiting::wait(py, within!(self.queue.take_async(), convert::timeout(timeout)?), later(taken))
    }

    /// Takes the next item if there is one now; raises QueueEmpty if not. Returns None as `take` does.
    fn try_take(&self, py: Python<'_>) -> PyResult<Option<WorkItem>> {
        taken(py, self.queue.try_take())
    }

    /// Takes an item as `take` does, for asyncio. Uses no thread. If it is cancelled, it has taken nothing.
    #[pyo3(signature = (timeout = None))]
    fn async_take<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = within!(self.queue.take_async(), convert::timeout(timeout)?);
        coroutine(py, Pending::new(future, later(taken)))
    }

    /// Takes the oldest result that no process has collected; waits while there is none. Returns None if the queue is
    /// closed and no result is left or will come. Raises QueueTimeout after `timeout` seconds, if a timeout is given.
    ///
    /// The result keeps its place until it is forgotten. Forget it, or put it back, before collecting the next.
    #[pyo3(signature = (timeout = None))]
    fn collect<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        waiting::wait(py, within!(self.queue.collect_async(), convert::timeout(timeout)?), later(collected))
    }

    /// Takes the oldest result if there is one now; raises QueueEmpty if not. Returns None as `collect` does.
    fn try_collect(&self, py: Python<'_>) -> PyResult<Option<Finished>> {
        collected(py, self.queue.try_collect())
    }

    /// Takes a result as `collect` does, for asyncio. Uses no thread. If it is cancelled, it has taken nothing.
    #[pyo3(signature = (timeout = None))]
    fn async_collect<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = within!(self.queue.collect_async(), convert::timeout(timeout)?);
        coroutine(py, Pending::new(future, later(collected)))
    }

    /// Takes the oldest dead letter, without waiting, to forget or to revive it. Raises QueueEmpty if there is none
    /// now; returns None if the queue is closed and all items are finished.
    fn collect_dead(&self, py: Python<'_>) -> PyResult<Option<Finished>> {
        collected(py, self.queue.collect_dead())
    }

    /// Waits until all pushed items are finished: done, or dead letters. Raises QueueTimeout after `timeout` seconds,
    /// if a timeout is given.
    #[pyo3(signature = (timeout = None))]
    fn drain<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        waiting::wait(py, within!(self.queue.drain_async(), convert::timeout(timeout)?), later(nothing))
    }

    /// Waits as `drain` does, for asyncio. Uses no thread.
    #[pyo3(signature = (timeout = None))]
    fn async_drain<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = within!(self.queue.drain_async(), convert::timeout(timeout)?);
        coroutine(py, Pending::new(future, later(nothing)))
    }

    /// Closes the queue: no process can push any more. Workers go on until all items are finished.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.queue.close().map_err(|error| error::queue(py, &error))
    }

    /// Returns the state of the queue at one instant: the number of items in each state, and counts since its creation.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.queue.stats().map_err(|error| error::queue(py, &error))?;
        stats::of_queue(py, &found)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, take) = (slf.py(), slf.getattr(intern!(slf.py(), "take"))?);
        py.import(intern!(py, "builtins"))?.call_method1(intern!(py, "iter"), (take, py.None()))
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "limitset._asyncio"))?.call_method1(intern!(py, "AsyncItems"), (slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<WorkQueue of {}>", self.set.bind(py).repr()?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let getattr = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "getattr"))?;
        let set = self.set.bind(py).clone().into_any();
        Ok((getattr, PyTuple::new(py, [set, intern!(py, "queue").clone().into_any()])?))
    }
}
