//! Several sets behind a balancer.

use std::time::Duration;

use limitset::{Balance, LimitPool as Pool};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::acquisition::Acquisition;
use crate::convert::{self, Amounts, Asked};
use crate::set::{LimitSet, limited};
use crate::waiting::{self, Answer, Coming, Pending, Translate};
use crate::{error, stats};

/// Several sets behind a balancer: regions, accounts. The balancer belongs to this object alone; the sets stay shared.
///
/// `load_balancing` is "round_robin", "random" or "first_free" (the first set with room). Workers with different
/// `worker_index` begin at different sets.
#[pyclass(frozen, weakref, module = "limitset")]
pub(crate) struct LimitPool {
    pool: Pool,
    sets: Vec<Py<LimitSet>>,
    balance: Balance,
}

impl LimitPool {
    fn with(py: Python<'_>, sets: Vec<Py<LimitSet>>, balance: Balance, worker: usize) -> PyResult<Self> {
        let pool = Pool::new(sets.iter().map(|set| set.get().set.clone()));
        let pool = pool.map_err(|error| error::pool(py, &error))?.balance(balance).for_worker(worker);
        Ok(Self { pool, sets, balance })
    }

    fn translate(&self, py: Python<'_>, asked: Amounts) -> Translate {
        let configs: Vec<_> = self.sets.iter().map(|set| set.get().config.clone_ref(py)).collect();
        Box::new(move |py, answer: Answer| match answer {
            Ok(held) => {
                let config = held.pool_index().and_then(|index| configs.get(index));
                Ok(Acquisition::granted(
                    held,
                    config.map_or_else(|| py.None(), |config| config.clone_ref(py)),
                ))
            }
            Err(why) => Err(error::acquire(py, None, &asked, &why)),
        })
    }

    fn future(&self, asked: Amounts, timeout: Option<Duration>) -> Coming {
        let pool = self.pool.clone();
        Box::pin(async move {
            let pairs = asked.pairs();
            match timeout {
                Some(timeout) => pool.acquire_async_timeout(pairs.as_slice(), timeout).await,
                None => pool.acquire_async(pairs.as_slice()).await,
            }
        })
    }
}

/// Looks up a balancer by its name or enum member.
fn balance(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Balance> {
    let Some(given) = given else { return Ok(Balance::default()) };
    let class = py.import(intern!(py, "limitset._limits"))?.getattr(intern!(py, "LoadBalancing"))?;
    let name = class.call1((given,))?.getattr(intern!(py, "value"))?.extract::<String>()?;
    let all = [Balance::RoundRobin, Balance::Random, Balance::FirstFree];
    let found = all.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| PyValueError::new_err(format!("unknown load_balancing {name:?}")))
}

#[pymethods]
impl LimitPool {
    #[new]
    #[pyo3(signature = (limit_sets, *, load_balancing = None, worker_index = 0))]
    fn new(
        py: Python<'_>,
        limit_sets: &Bound<'_, PyAny>,
        load_balancing: Option<&Bound<'_, PyAny>>,
        worker_index: usize,
    ) -> PyResult<Self> {
        let sets = limit_sets.try_iter()?.map(|set| Ok(set?.cast_into::<LimitSet>()?.unbind()));
        Self::with(py, sets.collect::<PyResult<_>>()?, balance(py, load_balancing)?, worker_index)
    }

    /// Creates a pool from None (which allows everything), a list of limits, a set, a list of sets, or a pool. Limits
    /// become a new set, in the given mode.
    #[classmethod]
    #[pyo3(signature = (anything, *, worker_index = 0, mode = "process"))]
    fn of(
        cls: &Bound<'_, PyType>,
        anything: &Bound<'_, PyAny>,
        worker_index: usize,
        mode: &str,
    ) -> PyResult<Self> {
        let py = cls.py();
        if let Ok(pool) = anything.cast::<Self>() {
            let sets = pool.get().sets.iter().map(|set| set.clone_ref(py)).collect();
            return Self::with(py, sets, pool.get().balance, worker_index);
        }
        if let Ok(set) = anything.cast::<LimitSet>() {
            return Self::with(py, vec![set.clone().unbind()], Balance::default(), worker_index);
        }
        let given = if anything.is_none() {
            Vec::new()
        } else {
            anything.try_iter()?.collect::<PyResult<Vec<_>>>()?
        };
        if !given.is_empty() && given.iter().all(|it| it.is_instance_of::<LimitSet>()) {
            return Self::new(py, PyList::new(py, given)?.as_any(), None, worker_index);
        }
        let options = PyDict::new(py);
        options.set_item("mode", mode)?;
        let set = py.get_type::<LimitSet>().call((PyList::new(py, given)?,), Some(&options))?;
        Self::with(py, vec![set.cast_into::<LimitSet>()?.unbind()], Balance::default(), worker_index)
    }

    /// Acquires from one of the sets, waiting for it if need be; see LimitSet.acquire.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn acquire<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Acquisition>> {
        let asked = Asked::new(requested)?.owned()?;
        let mut future = self.future(asked.clone(), convert::timeout(timeout)?);
        let translate = self.translate(py, asked);
        match waiting::ask(&mut future) {
            std::task::Poll::Ready(answer) => Bound::new(py, translate(py, answer)?),
            std::task::Poll::Pending => Ok(waiting::wait(py, future, translate)?.cast_into()?),
        }
    }

    /// Acquires from one of the sets if it has room now; see LimitSet.try_acquire.
    #[pyo3(signature = (requested = None))]
    fn try_acquire(&self, py: Python<'_>, requested: Option<&Bound<'_, PyAny>>) -> PyResult<Acquisition> {
        let asked = Asked::new(requested)?.owned()?;
        let answer = self.pool.try_acquire(asked.pairs().as_slice());
        match answer {
            Err(why) if error::is_refusal(&why) => Ok(Acquisition::refused(None, asked, why, None)),
            answer => self.translate(py, asked)(py, answer),
        }
    }

    /// Acquires as `acquire` does, for asyncio; see LimitSet.async_acquire.
    #[pyo3(signature = (requested = None, timeout = None))]
    fn async_acquire<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked::new(requested)?.owned()?;
        let future = self.future(asked.clone(), convert::timeout(timeout)?);
        let pending = Pending::new(future, self.translate(py, asked));
        py.import(intern!(py, "limitset._asyncio"))?.call_method1(intern!(py, "AsyncAcquire"), (pending,))
    }

    /// Decorates a function to acquire before it runs; see LimitSet.limit.
    #[pyo3(signature = (requested = None, /, *, timeout = None, **amounts))]
    fn limit<'py>(
        slf: &Bound<'py, Self>,
        requested: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
        amounts: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        limited(slf.as_any(), requested, timeout, amounts)
    }

    /// Returns the state of the sets and the balancer at this moment.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::of_pool(py, &self.pool.stats())
    }

    /// The sets, in order.
    #[getter]
    fn limit_sets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.sets.iter().map(|set| set.clone_ref(py)))
    }

    /// The way in which the pool balances.
    #[getter]
    fn load_balancing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("limitset._limits")?.getattr("LoadBalancing")?.call1((self.balance.name(),))
    }

    /// The worker that the balancer belongs to.
    #[getter]
    fn worker_index(&self) -> usize {
        self.pool.worker()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<LimitSet>> {
        let index = index.extract::<isize>().map_err(|_| {
            PyTypeError::new_err(
                "a pool is indexed by the position of a set, not by the key of a limit: pool[0][key]",
            )
        })?;
        let place =
            if index < 0 { self.sets.len().checked_add_signed(index) } else { usize::try_from(index).ok() };
        let set = place.and_then(|place| self.sets.get(place));
        set.map(|set| set.clone_ref(py)).ok_or_else(|| PyIndexError::new_err("pool index out of range"))
    }

    fn __len__(&self) -> usize {
        self.sets.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.limit_sets(py)?.try_iter()?.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let sets = self.limit_sets(py)?.repr()?;
        Ok(format!(
            "LimitPool({sets}, load_balancing={:?}, worker_index={})",
            self.balance.name(),
            self.pool.worker()
        ))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let remake = py.import(intern!(py, "limitset._names"))?.getattr(intern!(py, "remake_pool"))?;
        let sets = PyList::new(py, self.sets.iter().map(|set| set.clone_ref(py)))?.into_any();
        let name = self.balance.name().into_pyobject(py)?.into_any();
        let worker = self.pool.worker().into_pyobject(py)?.into_any();
        Ok((remake, PyTuple::new(py, [sets, name, worker])?))
    }
}
