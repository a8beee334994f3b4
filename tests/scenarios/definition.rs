//! Sets and pools as scenarios describe them.

use std::time::Duration;

use limitset::{
    Balance, CallLimit, Clock, Cooldown, Limit, LimitPool, LimitSet, LimitSetBuilder, OpenError, Order,
    QueueOptions, RateLimit, Report, ResourceLimit, Segment,
};
use serde_json::Value;

pub(crate) fn pool(pool: &Value) -> Result<LimitPool, OpenError> {
    let sets: Result<Vec<_>, _> = pool["sets"].as_array().unwrap().iter().map(set).collect();
    let balance = match text(pool, "balance") {
        "round_robin" => Balance::RoundRobin,
        "random" => Balance::Random,
        "first_free" => Balance::FirstFree,
        other => panic!("balance {other:?}"),
    };
    let worker = pool.get("worker").map_or(0, |it| it.as_u64().unwrap());
    Ok(LimitPool::new(sets?).unwrap().balance(balance).for_worker(usize::try_from(worker).unwrap()))
}

pub(crate) fn set(set: &Value) -> Result<LimitSet, OpenError> {
    builder(set).in_memory()
}

fn builder(set: &Value) -> LimitSetBuilder {
    let mut builder = LimitSet::builder().clock(Clock::Manual).limits(limits(set));
    for (key, value) in set["config"].as_object().into_iter().flatten() {
        builder = builder.config(key, value.as_str().unwrap());
    }
    match set["order"].as_str() {
        None => {}
        Some("any") => builder = builder.order(Order::Any),
        Some(other) => panic!("order {other:?}"),
    }
    if set.get("waiters").is_some() {
        builder = builder.segment(Segment::options().waiters(small(set, "waiters")));
    }
    if let Some(it) = set.get("cooldown") {
        builder = builder.cooldown(
            Cooldown::default()
                .first(time(it, "first_ns"))
                .longest(time(it, "longest_ns"))
                .factor(it["factor"].as_f64().unwrap())
                .jitter(it["jitter"].as_f64().unwrap())
                .slow_start(small(it, "slow_admissions"), time(it, "first_gap_ns"), time(it, "last_gap_ns")),
        );
    }
    if let Some(it) = set.get("queue") {
        let mut queue = QueueOptions::new(small(it, "items"), small(it, "item_bytes"));
        if it.get("result_bytes").is_some() {
            queue = queue.result_bytes(small(it, "result_bytes"));
        }
        if it.get("attempts").is_some() {
            queue = queue.attempts(small(it, "attempts"));
        }
        if it.get("rate_limits").is_some() {
            queue = queue.rate_limits(small(it, "rate_limits"));
        }
        builder = builder.queue(queue);
    }
    builder
}

pub(crate) fn limits(of: &Value) -> Vec<Limit> {
    of["limits"].as_array().unwrap().iter().map(limit).collect()
}

fn limit(it: &Value) -> Limit {
    let capacity = number(it, "capacity");
    let rest = |name: &str| it.get(name).map(|value| value.as_u64().unwrap());
    let resolution = rest("resolution").map(|it| u32::try_from(it).unwrap());
    let algorithm = it["algorithm"].as_str().map(|name| name.parse().unwrap());
    // Both kinds of rates have these methods, and nothing else in common.
    macro_rules! with_rest {
        ($limit:expr) => {{
            let mut limit = $limit;
            if let Some(algorithm) = algorithm {
                limit = limit.algorithm(algorithm);
            }
            if let Some(burst) = rest("burst") {
                limit = limit.burst(burst);
            }
            if let Some(resolution) = resolution {
                limit = limit.resolution(resolution);
            }
            limit
        }};
    }
    match text(it, "kind") {
        "rate" => {
            let mut limit = with_rest!(RateLimit::new(text(it, "key"), capacity, time(it, "window_ns")));
            if it["report"] == "optional" {
                limit = limit.report(Report::Optional);
            }
            limit.into()
        }
        "call" => {
            let mut limit = with_rest!(CallLimit::new(capacity, time(it, "window_ns")));
            if let Some(key) = it["key"].as_str() {
                limit = limit.key(key);
            }
            limit.into()
        }
        "resource" => ResourceLimit::new(text(it, "key"), capacity).into(),
        other => panic!("kind {other:?}"),
    }
}

/// Returns the status of a set that cannot be opened.
pub(crate) fn open_status(error: &OpenError) -> &'static str {
    match error {
        OpenError::Limit(_) => "bad_limit",
        OpenError::Setting(_) => "bad_setting",
        other => panic!("{other}"),
    }
}

pub(crate) fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {of}"))
}

pub(crate) fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {of}"))
}

fn small(of: &Value, name: &str) -> u32 {
    u32::try_from(number(of, name)).unwrap()
}

pub(crate) fn time(of: &Value, name: &str) -> Duration {
    Duration::from_nanos(number(of, name))
}
