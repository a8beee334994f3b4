//! Conversion of amounts, times and limits, from Python and to Python.

use std::time::Duration;

use limitset::{Algorithm, CallLimit, Cooldown, Limit, QueueOptions, RateLimit, Report, ResourceLimit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyInt, PyMemoryView, PyString};
use smallvec::SmallVec;

use crate::error;

/// Requested amounts by key, with Python's own key objects.
pub(crate) struct Asked<'py>(SmallVec<[(Bound<'py, PyString>, u64); 4]>);

impl<'py> Asked<'py> {
    /// Reads a mapping; without one there are no amounts.
    pub(crate) fn new(requested: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(requested) = requested else { return Ok(Self(SmallVec::new())) };
        if let Ok(dict) = requested.cast_exact::<PyDict>() {
            return dict.iter().map(|(key, amount)| pair(key, &amount)).collect::<PyResult<_>>().map(Self);
        }
        let items = requested.call_method0(intern!(requested.py(), "items"));
        let items =
            items.map_err(|_| PyTypeError::new_err("the request must be a dict of amounts by key"))?;
        let pairs = items.try_iter()?.map(|item| {
            let (key, amount) = item?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            pair(key, &amount)
        });
        pairs.collect::<PyResult<_>>().map(Self)
    }

    /// Returns each key with its amount.
    pub(crate) fn pairs(&self) -> PyResult<SmallVec<[(&str, u64); 4]>> {
        self.0.iter().map(|(key, amount)| Ok((key.to_str()?, *amount))).collect()
    }

    /// Returns a copy that outlives the call.
    pub(crate) fn owned(&self) -> PyResult<Amounts> {
        Ok(Amounts(self.pairs()?.into_iter().map(|(key, amount)| (key.to_owned(), amount)).collect()))
    }
}

/// Requested amounts by key, with owned keys.
#[derive(Clone, Debug)]
pub(crate) struct Amounts(Vec<(String, u64)>);

impl Amounts {
    /// Reads a mapping, as `Asked` does.
    pub(crate) fn of(requested: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Asked::new(requested)?.owned()
    }

    /// Returns each key with its amount.
    pub(crate) fn pairs(&self) -> SmallVec<[(&str, u64); 4]> {
        self.0.iter().map(|(key, amount)| (key.as_str(), *amount)).collect()
    }
}

fn pair<'py>(key: Bound<'py, PyAny>, amount: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyString>, u64)> {
    let Ok(key) = key.cast_into::<PyString>() else {
        return Err(PyTypeError::new_err("the key of a limit must be a str"));
    };
    let amount = whole(amount, key.as_any())?;
    Ok((key, amount))
}

/// Reads an amount: a whole number, not negative.
pub(crate) fn whole(amount: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
    amount.extract().map_err(|error| {
        let Ok(key) = key.repr() else { return error };
        if amount.is_instance_of::<PyInt>() {
            let text = format!("invalid amount {amount} of {key}: it must be 0 or more, and fit 64 bits");
            return error::bad_request(amount.py(), text);
        }
        PyTypeError::new_err(format!("the amount of {key} must be an int, not {}", type_name(amount)))
    })
}

fn type_name(it: &Bound<'_, PyAny>) -> String {
    it.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string())
}

/// Reads a length of time: seconds, or a timedelta. `what` names it in errors.
pub(crate) fn duration(time: &Bound<'_, PyAny>, what: &str) -> PyResult<Duration> {
    let seconds = seconds(time, what)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{what} cannot be {seconds} seconds: it must be 0 or more"))
    })
}

/// Reads a timeout. None, or more than a clock can count, is for ever.
pub(crate) fn timeout(time: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(time) = time else { return Ok(None) };
    let seconds = seconds(time, "a timeout")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Ok(Some(time)),
        Err(_) if seconds > 0.0 => Ok(None),
        Err(_) => Err(PyValueError::new_err(format!(
            "a timeout cannot be {seconds} seconds: it must be 0 or more, or None to wait for ever"
        ))),
    }
}

fn seconds(time: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    if let Ok(seconds) = time.extract::<f64>() {
        return Ok(seconds);
    }
    let total = time.call_method0(intern!(time.py(), "total_seconds"));
    let total = total.and_then(|seconds| seconds.extract::<f64>());
    total.map_err(|_| {
        PyTypeError::new_err(format!(
            "{what} must be a number of seconds or a timedelta, not {}",
            type_name(time)
        ))
    })
}

/// Converts a limit from Python.
pub(crate) fn limit<'py>(limit: &Bound<'py, PyAny>) -> PyResult<Limit> {
    let py = limit.py();
    let classes = py.import(intern!(py, "limitset._limits"))?;
    let is = |class: &Bound<'py, PyString>| limit.is_instance(&classes.getattr(class)?);
    let get = |field: &Bound<'py, PyString>| limit.getattr(field);
    let key = || get(intern!(py, "key"))?.extract::<String>();
    let capacity = || whole(&get(intern!(py, "capacity"))?, &get(intern!(py, "key"))?);
    let window = || duration(&get(intern!(py, "window"))?, "a window");
    let algorithm = || -> PyResult<Algorithm> {
        let text = get(intern!(py, "algorithm"))?.getattr(intern!(py, "value"))?.extract::<String>()?;
        text.parse()
            .map_err(|error: limitset::limit::UnknownAlgorithm| error::bad_limit(py, error.to_string()))
    };
    let burst = || get(intern!(py, "burst"))?.extract::<Option<u64>>();
    let resolution = || get(intern!(py, "resolution"))?.extract::<Option<u32>>();
    if is(intern!(py, "RateLimit"))? {
        let mut rate = RateLimit::new(key()?, capacity()?, window()?).algorithm(algorithm()?);
        if let Some(burst) = burst()? {
            rate = rate.burst(burst);
        }
        if let Some(resolution) = resolution()? {
            rate = rate.resolution(resolution);
        }
        let must_report = get(intern!(py, "report"))?.is_truthy()?;
        return Ok(rate.report(if must_report { Report::Required } else { Report::Optional }).into());
    }
    if is(intern!(py, "CallLimit"))? {
        let mut calls = CallLimit::new(capacity()?, window()?).key(key()?).algorithm(algorithm()?);
        if let Some(burst) = burst()? {
            calls = calls.burst(burst);
        }
        if let Some(resolution) = resolution()? {
            calls = calls.resolution(resolution);
        }
        return Ok(calls.into());
    }
    if is(intern!(py, "ResourceLimit"))? {
        return Ok(ResourceLimit::new(key()?, capacity()?).into());
    }
    let name = type_name(limit);
    Err(PyTypeError::new_err(format!("{name} is not a limit: use RateLimit, CallLimit or ResourceLimit")))
}

/// Converts an iterable of limits from Python.
pub(crate) fn limits(given: &Bound<'_, PyAny>) -> PyResult<Vec<Limit>> {
    given.try_iter()?.map(|it| limit(&it?)).collect()
}

/// Converts a limit to Python.
pub(crate) fn to_python<'py>(py: Python<'py>, limit: &Limit) -> PyResult<Bound<'py, PyAny>> {
    let class = |name| py.import(intern!(py, "limitset._limits"))?.getattr(name);
    let fields = PyDict::new(py);
    fields.set_item("key", limit.name())?;
    fields.set_item("capacity", limit.capacity())?;
    if let Some(rate) = limit.rate_settings() {
        fields.set_item("window", rate.window.as_secs_f64())?;
        fields.set_item("algorithm", rate.algorithm.name())?;
        fields.set_item("burst", rate.burst)?;
        fields.set_item("resolution", rate.resolution)?;
    }
    let class = match limit {
        Limit::Rate(_) => {
            fields.set_item("report", limit.must_report())?;
            class("RateLimit")?
        }
        Limit::Call(_) => class("CallLimit")?,
        _ => class("ResourceLimit")?,
    };
    class.call((), Some(&fields))
}

/// Converts the options of a work queue from Python.
pub(crate) fn queue(given: &Bound<'_, PyAny>) -> PyResult<QueueOptions> {
    let get = |field: &str| {
        let found = given.getattr(field).map_err(|_| {
            PyTypeError::new_err(format!("a queue must be QueueOptions, not {}", type_name(given)))
        })?;
        if found.is_none() {
            return Ok(None);
        }
        found.extract::<u32>().map(Some).map_err(|error| match found.is_instance_of::<PyInt>() {
            true => error::bad_limit(
                given.py(),
                format!("{field} of a queue cannot be {found}: it must be 0 or more, and fit 32 bits"),
            ),
            false => error,
        })
    };
    let mut options = QueueOptions::new(get("items")?.unwrap_or(0), get("item_bytes")?.unwrap_or(0));
    if let Some(bytes) = get("result_bytes")? {
        options = options.result_bytes(bytes);
    }
    if let Some(attempts) = get("attempts")? {
        options = options.attempts(attempts);
    }
    if let Some(times) = get("rate_limits")? {
        options = options.rate_limits(times);
    }
    Ok(options)
}

/// Reads bytes, a bytearray or a memoryview. `what` names it in errors.
pub(crate) fn bytes(given: &Bound<'_, PyAny>, what: &str) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = given.extract::<PyBackedBytes>() {
        return Ok(bytes);
    }
    if let Ok(view) = given.cast::<PyMemoryView>() {
        return Ok(view.call_method0(intern!(given.py(), "tobytes"))?.extract::<PyBackedBytes>()?);
    }
    let hint = if given.is_instance_of::<PyString>() { ": encode it" } else { "" };
    Err(PyTypeError::new_err(format!("{what} must be bytes, not {}{hint}", type_name(given))))
}

/// Reads the program's own number of an item.
pub(crate) fn id(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    given.extract().map_err(|_| {
        if given.is_instance_of::<PyInt>() {
            return PyValueError::new_err(format!(
                "the id of an item cannot be {given}: it must fit 64 bits"
            ));
        }
        PyTypeError::new_err(format!("the id of an item must be an int, not {}", type_name(given)))
    })
}

/// Converts a cooldown from Python.
pub(crate) fn cooldown(given: &Bound<'_, PyAny>) -> PyResult<Cooldown> {
    let time = |field: &str| duration(&given.getattr(field)?, &format!("{field} of a cooldown"));
    let number = |field: &str| given.getattr(field)?.extract::<f64>();
    let admissions = given.getattr("slow_admissions")?.extract::<u32>()?;
    Ok(Cooldown::default()
        .first(time("first")?)
        .longest(time("longest")?)
        .factor(number("factor")?)
        .jitter(number("jitter")?)
        .slow_start(admissions, time("first_gap")?, time("last_gap")?))
}
