//! The set of limits: acquire, charge, check, change, remove.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use limitset::{AcquireError, Charged, LimitSet as Set, Request, ResolvedRequest, Started};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMappingProxy, PyString, PyTuple};

use crate::acquisition::{self, Acquisition};
use crate::again::Again;
use crate::convert::{self, Amounts, Asked};
use crate::lone::Lone;
use crate::open::{self, Mode, Reopening};
use crate::queue::WorkQueue;
use crate::waiting::{self, Answer, Pending, Translate};
use crate::{error, stats};

/// Limits that are acquired together, all or none, by every process that opens the same name.
///
///     limits = LimitSet([CallLimit(window="minute", capacity=500), ResourceLimit("connections", 8)], name="api")
///     with limits.acquire():
///         ...
///
/// With a name, the set is shared by every process that opens the same name. With mode="process" and no name it gets a
/// generated one, can be pickled to other processes, and is removed when its creator ends. With mode "sync" (the
/// default without a name), "thread" or "asyncio" it lives in the memory of this process.
///
/// All threads of a process may use a set. A forked child becomes a participant of its own.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct LimitSet {
    pub(crate) set: Set,
    pub(crate) config: Py<PyAny>,
    limits: Py<PyTuple>,
    /// The request without amounts, if it is valid for the set.
    usual: Option<ResolvedRequest>,
    again: Lone<Again>,
    mode: Mode,
    reopening: Reopening,
}

/// A charge to come.
type Payment = Pin<Box<dyn Future<Output = Result<Charged, AcquireError>> + Send>>;
/// The future of a charge, and the translation of its answer.
type PaymentAndAnswer = (Payment, Translate<Result<Charged, AcquireError>, Py<PyAny>>);

impl LimitSet {
    pub(crate) fn new(py: Python<'_>, set: Set, mode: Mode, reopening: Reopening) -> PyResult<Self> {
        let config = PyDict::new(py);
        for (key, value) in set.config() {
            config.set_item(key, value)?;
        }
        let config = PyMappingProxy::new(py, config.as_mapping()).into_any().unbind();
        let limits = set.limits().iter().map(|limit| convert::to_python(py, limit));
        let limits = PyTuple::new(py, limits.collect::<PyResult<Vec<_>>>()?)?.unbind();
        let usual = set.request().build().ok();
        Ok(Self { set, config, limits, usual, again: Lone::default(), mode, reopening })
    }

    fn ask<T>(
        &self,
        requested: Option<&Bound<'_, PyAny>>,
        ask: impl FnOnce(Request<'_>) -> T,
    ) -> PyResult<T> {
        if let (None, Some(usual)) = (requested, &self.usual) {
            return Ok(ask(usual.into()));
        }
        let dict = requested.and_then(|it| it.cast_exact::<PyDict>().ok());
        let mut again = dict.and_then(|dict| Some((dict, self.again.try_take(dict.py())?)));
        if let Some((dict, again)) = &again
            && let Some(resolved) = again.resolved(dict)
        {
            return Ok(ask(resolved.into()));
        }
        let asked = Asked::new(requested)?;
        let pairs = asked.pairs()?;
        if let Some((dict, again)) = &mut again {
            again.keep(&self.set, dict, &pairs);
        }
        drop(again);
        Ok(ask(pairs.as_slice().into()))
    }

    /// Acquires by the last request into an ended acquisition, if the limits allow it at once. `None`: the caller takes
    /// the general path.
    #[inline]
    fn acquire_again<'py>(
        slf: &Bound<'py, Self>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Bound<'py, Acquisition>>> {
        let it = slf.get();
        let Some(mut again) = it.again.try_take(slf.py()) else { return Ok(None) };
        let Some(spare) = again.spare() else { return Ok(None) };
        let request = match requested {
            None => it.usual.as_ref(),
            Some(requested) => requested.cast_exact().ok().and_then(|requested| again.resolved(requested)),
        };
        let Some(request) = request else {
            again.put(spare);
            return Ok(None);
        };
        match spare.get().acquire_again(slf, request, timeout) {
            Ok(true) => Ok(Some(spare.into_bound(slf.py()))),
            Ok(false) => {
                again.put(spare);
                Ok(None)
            }
            Err(why) => {
                drop(again);
                Err(error::acquire(slf.py(), Some(&it.set), &Amounts::of(requested)?, &why))
            }
        }
    }

    /// Keeps an ended acquisition for the next request.
    #[inline]
    pub(crate) fn keep(&self, over: &Bound<'_, Acquisition>) {
        if let Some(mut again) = self.again.try_take(over.py()) {
            again.put(over.clone().unbind());
        }
    }

    fn translate(&self, py: Python<'_>, asked: Amounts) -> Translate {
        let (set, config) = (self.set.clone(), self.config.clone_ref(py));
        Box::new(move |py, answer: Answer| match answer {
            Ok(held) => Ok(Acquisition::granted(held, config.clone_ref(py))),
            Err(why) => Err(error::acquire(py, Some(&set), &asked, &why)),
        })
    }

    /// The future of a charge, and the translation of its answer.
    fn payment(
        &self,
        requested: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PaymentAndAnswer> {
        let (set, asked) = (self.set.clone(), Amounts::of(requested)?);
        let (asking, requested, timeout) = (set.clone(), asked.clone(), convert::timeout(timeout)?);
        let future = async move { asking.charge_async(requested.pairs().as_slice(), timeout).await };
        let translate = move |py: Python<'_>, answer: Result<Charged, AcquireError>| match answer {
            Ok(_) => Ok(py.None()),
            Err(why) => Err(error::acquire(py, Some(&set), &asked, &why)),
        };
        Ok((Box::pin(future), Box::new(translate)))
    }

    fn managed<T>(&self, py: Python<'_>, done: Result<T, limitset::ManageError>) -> PyResult<T> {
        done.map_err(|error| error::manage(py, &error))
    }
}

#[pymethods]
impl LimitSet {
    #[new]
    #[pyo3(signature = (
        limits, *, name = None, shared = None, mode = None, config = None, cooldown = None, order = None, clock = None,
        on_unavailable = None, on_difference = None, slots = None, waiters = None, permissions = None, group = None,
        any_owner = false, patience = None, queue = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn open(
        py: Python<'_>,
        limits: &Bound<'_, PyAny>,
        name: Option<&str>,
        shared: Option<bool>,
        mode: Option<&str>,
        config: Option<&Bound<'_, PyAny>>,
        cooldown: Option<&Bound<'_, PyAny>>,
        order: Option<&str>,
        clock: Option<&str>,
        on_unavailable: Option<&str>,
        on_difference: Option<&str>,
        slots: Option<u32>,
        waiters: Option<u32>,
        permissions: Option<u32>,
        group: Option<u32>,
        any_owner: bool,
        patience: Option<&Bound<'_, PyAny>>,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mode = Mode::new(mode, shared, name)?;
        let reopening = Reopening::new(on_unavailable, any_owner, patience)?;
        let mut segment = reopening.segment();
        if let Some(slots) = slots {
            segment = segment.slots(slots);
        }
        if let Some(waiters) = waiters {
            segment = segment.waiters(waiters);
        }
        if let Some(permissions) = permissions {
            segment = segment.mode(permissions);
        }
        if let Some(group) = group {
            segment = segment.group(group);
        }
        let mut builder = reopening.builder().segment(segment).limits(convert::limits(limits)?);
        builder = builder.order(open::order(order)?).clock(open::clock(clock)?);
        builder = builder.on_difference(open::on_difference(on_difference)?);
        if let Some(cooldown) = cooldown {
            builder = builder.cooldown(convert::cooldown(cooldown)?);
        }
        if let Some(queue) = queue {
            builder = builder.queue(convert::queue(queue)?);
        }
        for (key, value) in open::config(config)? {
            builder = builder.config(key, value);
        }
        let set = open::open(py, &builder, mode, name)?;
        Self::new(py, set, mode, reopening)
    }

    /// Attaches to a set that exists; its limits and its config are read from its memory.
    #[staticmethod]
    #[pyo3(signature = (name, *, on_unavailable = None, any_owner = false, patience = None))]
    fn attach(
        py: Python<'_>,
        name: &str,
        on_unavailable: Option<&str>,
        any_owner: bool,
        patience: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let reopening = Reopening::new(on_unavailable, any_owner, patience)?;
        let builder = reopening.builder().segment(reopening.segment());
        let set = py.detach(|| builder.attach(name)).map_err(|error| error::attach(py, &error))?;
        Self::new(py, set, Mode::Process, reopening)
    }

    /// Acquires the requested amounts, waiting until the limits allow it. Requests for the same limits are granted in
    /// order of arrival. Raises LimitTimeout after `timeout` seconds, if a timeout is given.
    ///
    /// `requested` has amounts by key. Call and resource limits that it does not name count with 1. Without amounts the
    /// request is one of each call and resource limit, which raises BadRequest in a set with rates: each has to be
    /// named.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn acquire<'py>(
        slf: &Bound<'py, Self>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Acquisition>> {
        let (this, py) = (slf.get(), slf.py());
        let timeout = convert::timeout(timeout)?;
        if let Some(acquired) = Self::acquire_again(slf, requested, timeout)? {
            return Ok(acquired);
        }
        match this.ask(requested, |request| this.set.start_acquire(request, timeout))? {
            Ok(Started::Granted(held)) => {
                Bound::new(py, Acquisition::granted(held, this.config.clone_ref(py)).at_home(slf))
            }
            Ok(Started::Waiting(future)) => {
                let acquired = waiting::wait(py, future, this.translate(py, Amounts::of(requested)?))?;
                Ok(acquired.cast_into()?)
            }
            Err(why) => Err(error::acquire(py, Some(&this.set), &Amounts::of(requested)?, &why)),
        }
    }

    /// Acquires the requested amounts if the limits allow it now. If not, it raises nothing: the acquisition is falsy,
    /// and its `denial` has the reason.
    #[pyo3(signature = (requested = None))]
    fn try_acquire(&self, py: Python<'_>, requested: Option<&Bound<'_, PyAny>>) -> PyResult<Acquisition> {
        match self.ask(requested, |request| self.set.try_acquire(request))? {
            Ok(held) => Ok(Acquisition::granted(held, self.config.clone_ref(py))),
            Err(why) if error::is_refusal(&why) => {
                let config = Some(self.config.clone_ref(py));
                Ok(Acquisition::refused(Some(self.set.clone()), Amounts::of(requested)?, why, config))
            }
            Err(why) => Err(error::acquire(py, Some(&self.set), &Amounts::of(requested)?, &why)),
        }
    }

    /// Acquires as `acquire` does, for asyncio: await it, or use it directly in `async with`. Uses no thread. If it is
    /// cancelled, it leaves the wait queue and returns a grant that came meanwhile.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn async_acquire<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = convert::timeout(timeout)?;
        let future = self.ask(requested, |request| self.set.acquire_async(request))?;
        let future = match timeout {
            Some(timeout) => future.timeout(timeout),
            None => future,
        };
        let pending = Pending::new(Box::pin(future), self.translate(py, Amounts::of(requested)?));
        py.import(intern!(py, "limitset._asyncio"))?.call_method1(intern!(py, "AsyncAcquire"), (pending,))
    }

    /// Decorates a function, async or not, to acquire before it runs: `@limits.limit(tokens=1500)`. The requested
    /// amounts count as used; if the function raises, they are refunded. Pass keys that are not identifiers in a dict.
    #[pyo3(signature = (requested = None, /, *, timeout = None, **amounts))]
    fn limit<'py>(
        slf: &Bound<'py, Self>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
        amounts: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        limited(slf.as_any(), requested, timeout, amounts)
    }

    /// Charges rates if all of them allow it now; raises LimitDenied if not. Holds nothing: no permits are taken, and
    /// no report is due.
    #[pyo3(signature = (requested = None))]
    fn try_charge(&self, py: Python<'_>, requested: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        match self.ask(requested, |request| self.set.try_charge(request))? {
            Ok(_) => Ok(()),
            Err(why) => Err(error::acquire(py, Some(&self.set), &Amounts::of(requested)?, &why)),
        }
    }

    /// Charges rates as `try_charge` does, waiting until they allow it, in the same wait queue as acquisitions. Raises
    /// LimitTimeout after `timeout` seconds, if a timeout is given.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn charge<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (future, translate) = self.payment(requested, timeout)?;
        waiting::wait(py, future, translate)
    }

    /// Charges rates as `charge` does, for asyncio. Uses no thread. If it is cancelled, it has charged nothing.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn async_charge<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (future, translate) = self.payment(requested, timeout)?;
        waiting::coroutine(py, Pending::new(future, translate))
    }

    /// Charges rates without waiting: an alias of `try_charge`.
    #[pyo3(signature = (requested = None))]
    fn check_rate(&self, py: Python<'_>, requested: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.try_charge(py, requested)
    }

    /// Charges rates, waiting until they allow it: an alias of `charge`.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn check_and_wait<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.charge(py, requested, timeout)
    }

    /// Returns the status of every limit if `try_acquire` would grant the request now; raises LimitDenied if not.
    /// Charges nothing.
    #[pyo3(signature = (requested = None))]
    fn check<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        match self.ask(requested, |request| self.set.check(request))? {
            Ok(found) => error::statuses(py, &found, Some(&self.set)),
            Err(why) => Err(error::acquire(py, Some(&self.set), &Amounts::of(requested)?, &why)),
        }
    }

    /// Returns the state of the set at one instant: limits, participants, and counts of recoveries and errors.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.managed(py, self.set.stats())?;
        stats::of_set(py, &found)
    }

    /// Changes the parameters of limits in place, for every process from its next request on.
    fn reconfigure(&self, py: Python<'_>, limits: &Bound<'_, PyAny>) -> PyResult<()> {
        self.managed(py, self.set.reconfigure(convert::limits(limits)?))
    }

    /// Resets every rate to unused, and clears debt. Permits stay with their holders.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.managed(py, self.set.reset())
    }

    /// Pauses the set, in every process, for at least this number of seconds.
    fn pause<'py>(&self, py: Python<'py>, seconds: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let time = convert::duration(seconds, "a pause")?;
        acquisition::pause(py, &self.managed(py, self.set.pause(time))?)
    }

    /// Ends a pause before its time; returns False if there was none.
    fn resume(&self, py: Python<'_>) -> PyResult<bool> {
        self.managed(py, self.set.resume())
    }

    /// Advances the clock of a set with clock="manual", for every process.
    fn advance(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let time = convert::duration(seconds, "time")?;
        self.managed(py, self.set.advance(time))
    }

    /// Returns the permits of dead participants to the set at once, instead of when a request needs them. Returns their
    /// number.
    fn reap(&self, py: Python<'_>) -> PyResult<u64> {
        self.managed(py, self.set.reap())
    }

    /// Removes the set: from now on every request to it, in any process, raises LimitSetRemoved, and the name is free
    /// again.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        self.set.remove().map_err(|error| error::attach(py, &error))
    }

    /// The name or path by which other processes find the set; None if it is in the memory of this process.
    #[getter]
    fn name(&self) -> Option<String> {
        self.set.segment().name().map(|name| name.to_string_lossy().into_owned())
    }

    /// The mode: "process", "sync", "thread" or "asyncio".
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode.name()
    }

    /// Whether other processes can share the set.
    #[getter]
    fn shared(&self) -> bool {
        self.set.segment().is_shared()
    }

    /// The work queue of the set; raises NoQueue, an AttributeError, if it was opened without one.
    #[getter]
    fn queue(slf: &Bound<'_, Self>) -> PyResult<WorkQueue> {
        WorkQueue::new(slf)
    }

    /// The limits as they were declared.
    #[getter]
    fn limits(&self, py: Python<'_>) -> Py<PyTuple> {
        self.limits.clone_ref(py)
    }

    /// The config of the set, shared and read-only.
    #[getter]
    fn config(&self, py: Python<'_>) -> Py<PyAny> {
        self.config.clone_ref(py)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let text =
            key.cast::<PyString>().map_err(|_| PyTypeError::new_err("the key of a limit must be a str"))?;
        let place =
            self.set.limits().iter().position(|limit| text.to_str().is_ok_and(|it| it == limit.name()));
        let place = place.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))?;
        self.limits.bind(key.py()).get_item(place)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        key.extract::<String>().is_ok_and(|key| self.set.limits().iter().any(|limit| limit.name() == key))
    }

    fn __len__(&self) -> usize {
        self.set.limits().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let keys = self.set.limits().iter().map(limitset::Limit::name);
        Ok(PyTuple::new(py, keys.collect::<Vec<_>>())?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        let limits: Vec<String> = self.set.limits().iter().map(ToString::to_string).collect();
        let place =
            self.name().map_or_else(|| format!("mode={:?}", self.mode.name()), |it| format!("name={it:?}"));
        format!("LimitSet([{}], {place})", limits.join("; "))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let Some(name) = self.name() else {
            return Err(PyTypeError::new_err(
                "cannot pickle a set in the memory of this process: open it with a name, or mode=\"process\"",
            ));
        };
        let reattach = py.import(intern!(py, "limitset._names"))?.getattr(intern!(py, "reattach"))?;
        let instance = pyo3::types::PyBytes::new(py, &self.set.segment().info().instance);
        let options = self.reopening.options(py)?;
        Ok((
            reattach,
            PyTuple::new(py, [name.into_pyobject(py)?.into_any(), instance.into_any(), options.into_any()])?,
        ))
    }
}

/// The decorator of sets and pools.
pub(crate) fn limited<'py>(
    limits: &Bound<'py, PyAny>,
    requested: Option<&Bound<'py, PyAny>>,
    timeout: Option<&Bound<'py, PyAny>>,
    amounts: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = limits.py();
    let amounts = amounts.map_or_else(|| PyDict::new(py), Clone::clone);
    py.import(intern!(py, "limitset._wrap"))?
        .call_method1(intern!(py, "limited"), (limits, requested, timeout, amounts))
}
