//! Converts errors of the core to the exceptions of `limitset._errors`.

use limitset::error::{AttachError, CreateError};
use limitset::{
    AcquireError, Limit, LimitSet, ManageError, OpenError, PoolError, QueueError, Statuses, Unavailable,
    UsageError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::Amounts;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let module = CLASSES.get_or_try_init(py, || py.import("limitset._errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

/// Creates an exception with these fields; if that fails, returns the exception of the failure.
fn with(py: Python<'_>, name: &str, text: String, fields: &Bound<'_, PyDict>) -> PyErr {
    match class(py, name).and_then(|class| class.call((text,), Some(fields))) {
        Ok(instance) => PyErr::from_value(instance),
        Err(error) => error,
    }
}

fn plain(py: Python<'_>, name: &str, text: String) -> PyErr {
    with(py, name, text, &PyDict::new(py))
}

pub(crate) fn bad_request(py: Python<'_>, text: String) -> PyErr {
    plain(py, "BadRequest", text)
}

pub(crate) fn bad_limit(py: Python<'_>, text: String) -> PyErr {
    plain(py, "BadLimit", text)
}

/// Returns whether the error is a denial, which `try_acquire` does not raise.
pub(crate) fn is_refusal(error: &AcquireError) -> bool {
    use AcquireError::{CoolingDown, Denied, QueueFull, Queued};
    matches!(error, Denied(_) | Queued { .. } | CoolingDown { .. } | QueueFull { .. })
}

/// Converts the error of a request. `set` is `None` for a pool.
pub(crate) fn acquire(
    py: Python<'_>,
    set: Option<&LimitSet>,
    asked: &Amounts,
    error: &AcquireError,
) -> PyErr {
    acquire_or_why(py, set, asked, error).unwrap_or_else(|error| error)
}

fn acquire_or_why(
    py: Python<'_>,
    set: Option<&LimitSet>,
    asked: &Amounts,
    error: &AcquireError,
) -> PyResult<PyErr> {
    let text = error.to_string();
    let fields = PyDict::new(py);
    let name = match error {
        AcquireError::Denied(denial) => {
            fields.set_item("statuses", statuses(py, denial.statuses(), set)?)?;
            "LimitDenied"
        }
        AcquireError::Queued { .. } | AcquireError::CoolingDown { .. } | AcquireError::QueueFull { .. } => {
            if let Some(set) = set
                && let Ok(found) = set.status(asked.pairs().as_slice())
            {
                fields.set_item("statuses", statuses(py, &found, Some(set))?)?;
            }
            "LimitDenied"
        }
        AcquireError::TimedOut(late) => {
            fields.set_item("statuses", statuses(py, &late.statuses, set)?)?;
            fields.set_item("ahead", late.ahead)?;
            fields.set_item("waited", late.waited.as_secs_f64())?;
            let cooling_down = late.cooling_down.map(|left| left.as_secs_f64());
            fields.set_item("cooling_down", cooling_down)?;
            let in_the_way = late.bottleneck().map(|it| it.retry_after.map(|wait| wait.as_secs_f64()));
            // Both a pause and a rate have to pass; the time until other holders return permits is unknown.
            let retry_after = match (in_the_way, cooling_down) {
                (Some(None), _) => None,
                (Some(Some(wait)), pause) => Some(wait.max(pause.unwrap_or(0.0))),
                (None, pause) => pause,
            };
            fields.set_item("retry_after", retry_after)?;
            let class = class(py, "Holder")?;
            let holders = late
                .holders
                .iter()
                .map(|it| class.call1((it.pid, &it.command, it.is_this_process, &it.key, it.amount)));
            fields.set_item("holders", holders.collect::<PyResult<Vec<_>>>()?)?;
            "LimitTimeout"
        }
        AcquireError::Never { key, requested, most } => {
            fields.set_item("key", key.as_ref())?;
            fields.set_item("requested", requested)?;
            fields.set_item("most", most)?;
            "AboveCapacity"
        }
        AcquireError::BadRequest(_) => "BadRequest",
        AcquireError::Unavailable(why) => return Ok(unavailable(py, why, text)),
        AcquireError::Removed => "LimitSetRemoved",
        AcquireError::Forked | AcquireError::NotShared => "NotShared",
        _ => "LimitError",
    };
    match error {
        AcquireError::Queued { ahead } => {
            fields.set_item("reason", "queued")?;
            fields.set_item("ahead", ahead)?;
        }
        AcquireError::CoolingDown { .. } => fields.set_item("reason", "cooling_down")?,
        AcquireError::QueueFull { waiters } => {
            fields.set_item("reason", "queue_full")?;
            fields.set_item("waiters", waiters)?;
        }
        _ => {}
    }
    if let Some(wait) = error.retry_after() {
        fields.set_item("retry_after", wait.as_secs_f64())?;
    }
    Ok(with(py, name, text, &fields))
}

fn unavailable(py: Python<'_>, why: &Unavailable, text: String) -> PyErr {
    match why {
        Unavailable::Enrol(AttachError::NotShared) => plain(py, "NotShared", text),
        _ => plain(py, "LimitUnavailable", text),
    }
}

/// Converts the status of every limit. Capacities and windows are the current ones if the set is known, else the
/// declared ones.
pub(crate) fn statuses<'py>(
    py: Python<'py>,
    found: &Statuses,
    set: Option<&LimitSet>,
) -> PyResult<Bound<'py, PyTuple>> {
    let class = class(py, "LimitStatus")?;
    let stats = set.and_then(|set| set.stats().ok());
    let made = found.iter().map(|it| {
        let now = stats.as_ref().and_then(|stats| stats.limit(it.key));
        let declared = found.declared(it.key);
        let capacity = now.map(|now| now.capacity).or(declared.map(Limit::capacity)).unwrap_or(it.most);
        let declared_window = || Some(declared?.rate_settings()?.window);
        let window = now.map_or_else(declared_window, |now| now.window).map(|window| window.as_secs_f64());
        let wait = it.retry_after.map(|wait| wait.as_secs_f64());
        class.call1((it.key, it.requested, it.available, it.most, it.passed, wait, capacity, window))
    });
    PyTuple::new(py, made.collect::<PyResult<Vec<_>>>()?)
}

/// Converts the error of a report or a release.
pub(crate) fn usage(py: Python<'_>, error: &UsageError) -> PyErr {
    let text = error.to_string();
    let reason = match error {
        UsageError::NotRequested { .. } => "not_requested",
        UsageError::AboveRequested { .. } => "above_requested",
        UsageError::AboveCharged { .. } => "above_charged",
        UsageError::Permits { .. } => "permits",
        UsageError::TooMuch { .. } => "too_much",
        UsageError::Unreported { keys } => {
            let fields = PyDict::new(py);
            return match fields.set_item("keys", keys) {
                Ok(()) => with(py, "Unreported", text, &fields),
                Err(error) => error,
            };
        }
        UsageError::Forked => return plain(py, "NotShared", text),
        UsageError::Unavailable(why) => return unavailable(py, why, text),
        UsageError::Removed => return plain(py, "LimitSetRemoved", text),
        _ => return plain(py, "LimitError", text),
    };
    misuse(py, reason, text)
}

/// Creates a UsageError.
pub(crate) fn misuse(py: Python<'_>, reason: &str, text: String) -> PyErr {
    let fields = PyDict::new(py);
    match fields.set_item(intern!(py, "reason"), reason) {
        Ok(()) => with(py, "UsageError", text, &fields),
        Err(error) => error,
    }
}

/// Converts the error of a work queue, or of an item.
pub(crate) fn queue(py: Python<'_>, error: &QueueError) -> PyErr {
    queue_or_why(py, error).unwrap_or_else(|error| error)
}

fn queue_or_why(py: Python<'_>, error: &QueueError) -> PyResult<PyErr> {
    let text = error.to_string();
    let fields = PyDict::new(py);
    let (name, reason) = match error {
        QueueError::NoQueue => {
            return Ok(plain(
                py,
                "NoQueue",
                "this set has no work queue: open it with queue=QueueOptions(...)".to_owned(),
            ));
        }
        QueueError::TooLong { found, most, .. } => {
            fields.set_item("found", found)?;
            fields.set_item("most", most)?;
            return Ok(with(py, "ItemTooLong", text, &fields));
        }
        QueueError::Closed => return Ok(plain(py, "QueueClosed", text)),
        QueueError::Full { .. } => return Ok(plain(py, "QueueFull", text)),
        QueueError::Empty => return Ok(plain(py, "QueueEmpty", text)),
        QueueError::TimedOut => return Ok(plain(py, "QueueTimeout", text)),
        QueueError::Forked | QueueError::NotShared => return Ok(plain(py, "NotShared", text)),
        QueueError::Unavailable(why) => return Ok(unavailable(py, why, text)),
        QueueError::Removed => return Ok(plain(py, "LimitSetRemoved", text)),
        QueueError::Spent => ("QueueError", "spent"),
        QueueError::NotHeld => ("QueueError", "not_held"),
        _ => ("QueueError", ""),
    };
    fields.set_item("reason", reason)?;
    Ok(with(py, name, text, &fields))
}

/// Converts the error of managing a set.
pub(crate) fn manage(py: Python<'_>, error: &ManageError) -> PyErr {
    let text = error.to_string();
    match error {
        ManageError::Limit(_) | ManageError::NotNumbers { .. } | ManageError::ClockMovesItself { .. } => {
            bad_limit(py, text)
        }
        ManageError::UnknownKey { .. } => bad_request(py, text),
        ManageError::Unavailable(why) => unavailable(py, why, text),
        ManageError::Removed => plain(py, "LimitSetRemoved", text),
        ManageError::NotShared => plain(py, "NotShared", text),
        _ => plain(py, "LimitError", text),
    }
}

/// Converts the error of opening a set.
pub(crate) fn open(py: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Segment(CreateError::Attach(error)) => attach(py, error),
        OpenError::Limit(_) | OpenError::Setting(_) | OpenError::Segment(CreateError::Option(_)) => {
            bad_limit(py, error.to_string())
        }
        _ => plain(py, "SegmentError", error.to_string()),
    }
}

/// Converts the error of attaching to a set.
pub(crate) fn attach(py: Python<'_>, error: &AttachError) -> PyErr {
    let name = match error {
        AttachError::Name(_) => "BadLimit",
        AttachError::NotFound { .. } => "SegmentNotFound",
        AttachError::Differs { .. } => "LimitsDiffer",
        AttachError::Removed { .. } => "LimitSetRemoved",
        AttachError::NotShared => "NotShared",
        _ => "SegmentError",
    };
    plain(py, name, error.to_string())
}

/// Converts the error of creating a pool.
pub(crate) fn pool(py: Python<'_>, error: &PoolError) -> PyErr {
    match error {
        PoolError::Open(error) => open(py, error),
        PoolError::Attach(error) => attach(py, error),
        _ => bad_limit(py, error.to_string()),
    }
}
