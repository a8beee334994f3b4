//! Opening a set, and reopening it in another process.

use std::time::Duration;

use limitset::{
    Clock, LimitSet as Set, LimitSetBuilder, OnDifference, OnUnavailable, Order, Segment, SegmentOptions,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{convert, error};

/// Where a set lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sync,
    Thread,
    Asyncio,
    Process,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Sync, Self::Thread, Self::Asyncio, Self::Process];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Thread => "thread",
            Self::Asyncio => "asyncio",
            Self::Process => "process",
        }
    }

    /// Returns the mode; a name implies that processes share the set.
    pub(crate) fn new(mode: Option<&str>, shared: Option<bool>, name: Option<&str>) -> PyResult<Self> {
        let usual = if name.is_some() { Self::Process } else { Self::Sync };
        let mode =
            mode.map_or(Ok(usual), |mode| named(mode, "mode", &Self::ALL.map(|it| (it.name(), it))))?;
        if mode != Self::Process && name.is_some() {
            let text = format!(
                "name and mode={:?} exclude each other: a named set is shared by processes; leave one of them out",
                mode.name()
            );
            return Err(PyValueError::new_err(text));
        }
        if mode == Self::Process && shared == Some(false) {
            return Err(PyValueError::new_err(
                "shared=False and process mode exclude each other: leave shared=False out, or use another mode",
            ));
        }
        Ok(mode)
    }
}

/// Looks up the value of a setting by its word.
fn named<T: Copy>(found: &str, what: &str, words: &[(&str, T)]) -> PyResult<T> {
    words.iter().find(|(word, _)| *word == found).map(|(_, it)| *it).ok_or_else(|| {
        let known = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        PyValueError::new_err(format!("unknown {what} {found:?}: use one of {known}"))
    })
}

pub(crate) fn order(found: Option<&str>) -> PyResult<Order> {
    found.map_or(Ok(Order::default()), |it| {
        named(it, "order", &[("arrival", Order::Arrival), ("any", Order::Any)])
    })
}

pub(crate) fn clock(found: Option<&str>) -> PyResult<Clock> {
    let words = [("monotonic", Clock::Monotonic), ("coarse", Clock::Coarse), ("manual", Clock::Manual)];
    found.map_or(Ok(Clock::default()), |it| named(it, "clock", &words))
}

pub(crate) fn on_difference(found: Option<&str>) -> PyResult<OnDifference> {
    use OnDifference::{Fail, KeepCurrent, Reconfigure};
    let words = [("fail", Fail), ("keep_current", KeepCurrent), ("reconfigure", Reconfigure)];
    found.map_or(Ok(Fail), |it| named(it, "on_difference", &words))
}

/// Reads the config map; all of it must be text.
pub(crate) fn config(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(String, String)>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let bad =
        || PyTypeError::new_err("config must be a dict from str to str: processes in any language read it");
    let items = given.call_method0(intern!(given.py(), "items")).map_err(|_| bad())?;
    items.try_iter()?.map(|item| item?.extract::<(String, String)>().map_err(|_| bad())).collect()
}

/// Options of one process, which a pickled set takes along.
#[derive(Clone)]
pub(crate) struct Reopening {
    on_unavailable: OnUnavailable,
    any_owner: bool,
    patience: Option<Duration>,
}

impl Reopening {
    pub(crate) fn new(
        on_unavailable: Option<&str>,
        any_owner: bool,
        patience: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let words = [("deny", OnUnavailable::Deny), ("allow", OnUnavailable::Allow)];
        let on_unavailable =
            on_unavailable.map_or(Ok(OnUnavailable::Deny), |it| named(it, "on_unavailable", &words))?;
        let patience = patience.map(|it| convert::duration(it, "patience")).transpose()?;
        Ok(Self { on_unavailable, any_owner, patience })
    }

    pub(crate) fn segment(&self) -> SegmentOptions {
        let segment = Segment::options().any_owner(self.any_owner);
        match self.patience {
            Some(patience) => segment.patience(patience),
            None => segment,
        }
    }

    pub(crate) fn builder(&self) -> LimitSetBuilder {
        Set::builder().on_unavailable(self.on_unavailable)
    }

    /// Returns the arguments for `LimitSet.attach`.
    pub(crate) fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = PyDict::new(py);
        if self.on_unavailable == OnUnavailable::Allow {
            options.set_item("on_unavailable", "allow")?;
        }
        if self.any_owner {
            options.set_item("any_owner", true)?;
        }
        if let Some(patience) = self.patience {
            options.set_item("patience", patience.as_secs_f64())?;
        }
        Ok(options)
    }
}

/// Opens the set in shared or private memory, as its mode says.
pub(crate) fn open(
    py: Python<'_>,
    builder: &LimitSetBuilder,
    mode: Mode,
    name: Option<&str>,
) -> PyResult<Set> {
    let opened = match (mode, name) {
        // Without the GIL: another process may be in the middle of opening the set.
        (Mode::Process, Some(name)) => py.detach(|| builder.open(name)),
        (Mode::Process, None) => {
            let names = py.import(intern!(py, "limitset._names"))?;
            let name = names.call_method0(intern!(py, "new_name"))?.extract::<String>()?;
            let made = builder.create(&name);
            if made.is_ok() {
                names.call_method1(intern!(py, "remove_at_exit"), (name,))?;
            }
            made
        }
        _ => builder.in_memory(),
    };
    opened.map_err(|error| error::open(py, &error))
}

/// Removes a set by its name, for all processes.
#[pyfunction]
#[pyo3(signature = (name, /, *, any_owner = false))]
pub(crate) fn remove(py: Python<'_>, name: &str, any_owner: bool) -> PyResult<()> {
    let options = Segment::options().any_owner(any_owner);
    py.detach(|| options.remove(name)).map_err(|error| error::attach(py, &error))
}
