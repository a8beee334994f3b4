//! Stats of sets, queues and pools, as plain dicts. Times are in seconds.

use std::time::Duration;

use limitset::{LimitStats, PoolStats, QueueStats, Stats};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Sets items of a dict by the names of the fields.
macro_rules! fields {
    ($dict:ident, $from:expr, $($name:ident),*) => {
        $($dict.set_item(stringify!($name), $from.$name)?;)*
    };
}

pub(crate) fn of_set<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let limits = PyDict::new(py);
    for limit in &stats.limits {
        limits.set_item(&limit.key, of_limit(py, limit)?)?;
    }
    all.set_item("limits", limits)?;
    let participants = PyList::empty(py);
    for it in &stats.participants {
        let one = PyDict::new(py);
        one.set_item("pid", it.info.as_ref().map(|info| info.pid))?;
        one.set_item("command", it.info.as_ref().map(|info| info.command.as_str()))?;
        let (holds, owes) = (PyDict::new(py), PyDict::new(py));
        it.holds.iter().try_for_each(|(key, amount)| holds.set_item(key, amount))?;
        it.owes_reports.iter().try_for_each(|(key, amount)| owes.set_item(key, amount))?;
        one.set_item("holds", holds)?;
        one.set_item("owes_reports", owes)?;
        participants.append(one)?;
    }
    all.set_item("participants", participants)?;
    let cooldown = PyDict::new(py);
    cooldown.set_item("remaining", seconds(stats.cooldown.remaining))?;
    cooldown.set_item("next_admission", seconds(stats.cooldown.next_admission))?;
    fields!(cooldown, stats.cooldown, generation, consecutive, participants, absorbed, slow_admissions);
    all.set_item("cooldown", cooldown)?;
    all.set_item("queue", stats.queue.as_ref().map(|queue| of_queue(py, queue)).transpose()?)?;
    fields!(
        all,
        stats,
        waiters,
        steals,
        recoveries,
        sweeps,
        reaped_participants,
        reaped_permits,
        unenforced,
        deposed
    );
    Ok(all)
}

fn of_limit<'py>(py: Python<'py>, limit: &LimitStats) -> PyResult<Bound<'py, PyDict>> {
    let one = PyDict::new(py);
    one.set_item("window", seconds(limit.window))?;
    fields!(
        one, limit, capacity, burst, available, in_use, debt, waiting, granted, denied, refunded, unreported
    );
    fields!(one, limit, consumed, revision);
    Ok(one)
}

pub(crate) fn of_queue<'py>(py: Python<'py>, queue: &QueueStats) -> PyResult<Bound<'py, PyDict>> {
    let one = PyDict::new(py);
    fields!(one, queue, capacity, ready, parked, delayed, leased, results, dead_letters, is_closed);
    fields!(one, queue, pushed, taken, done, retried, rate_limited, redistributed, returned, dead_lettered);
    one.set_item("unfinished", queue.unfinished())?;
    Ok(one)
}

/// Converts the stats of a pool; a set that cannot be read has its error in its place.
pub(crate) fn of_pool<'py>(py: Python<'py>, stats: &PoolStats) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("load_balancing", stats.balance.name())?;
    all.set_item("worker_index", stats.worker)?;
    let sets = PyList::empty(py);
    for it in &stats.sets {
        let one = match &it.set {
            Ok(set) => of_set(py, set)?,
            Err(error) => {
                let one = PyDict::new(py);
                one.set_item("error", error.to_string())?;
                one
            }
        };
        // Counts of this pool alone, not of other workers' pools.
        let answers = PyDict::new(py);
        fields!(answers, it, granted, refused, skipped);
        one.set_item("pool", answers)?;
        sets.append(one)?;
    }
    all.set_item("sets", sets)?;
    Ok(all)
}
