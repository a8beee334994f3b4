//! A scenario run in Rust: the named objects, and one function for each kind of step.

use std::collections::HashMap;
use std::thread::JoinHandle;

use limitset::{
    AcquireError, Acquisition, CooldownStats, Finished, LimitPool, LimitSet, LimitStats, ManageError, Pause,
    QueueError, QueueStats, Reason, Request, Statuses, UsageError, WorkItem,
};
use serde_json::{Map, Value, json};

use crate::definition::{self, limits, number, open_status, text, time};
use crate::list::Driver;

/// What a scenario has at hand.
#[derive(Default)]
pub(crate) struct World {
    sets: Vec<LimitSet>,
    pool: Option<LimitPool>,
    held: HashMap<String, Acquisition>,
    items: HashMap<String, WorkItem>,
    finished: HashMap<String, Finished>,
    waiting: HashMap<String, JoinHandle<Result<Acquisition, AcquireError>>>,
}

impl Driver for World {
    fn open(&mut self, scenario: &Value) -> Value {
        let opened = match scenario.get("pool") {
            Some(pool) => definition::pool(pool).map(|pool| {
                self.sets = pool.sets().to_vec();
                self.pool = Some(pool);
            }),
            None => definition::set(&scenario["set"]).map(|set| self.sets.push(set)),
        };
        status(opened.as_ref().map_or_else(open_status, |()| "ok"))
    }

    fn step(&mut self, step: &Value) -> Value {
        match text(step, "do") {
            "try_acquire" | "acquire" => self.acquire(step),
            "start" => self.start(step),
            "finish" => self.finish(step),
            "check" => match asked(self.set(step), step, |set, request| set.check(request)) {
                Ok(statuses) => json!({ "status": "ok", "limits": by_key(&statuses) }),
                Err(refusal) => refused(&refusal),
            },
            "charge" => match asked(self.set(step), step, |set, request| set.try_charge(request)) {
                Ok(charged) => json!({ "status": "ok", "enforced": charged.enforced }),
                Err(refusal) => refused(&refusal),
            },
            "acquire_more" => self.acquire_more(step),
            "update" | "adjust" | "settle" => self.report(step),
            "release" => usage(self.take_held(step, "of").release()),
            "cancel" => usage(self.take_held(step, "of").cancel()),
            "rate_limited" => match self.take_held(step, "of").rate_limited(retry_after(step)) {
                Ok(pause) => paused(&pause),
                Err(error) => status(usage_status(&error)),
            },
            "pause" => match self.set(step).pause(time(step, "ns")) {
                Ok(pause) => paused(&pause),
                Err(error) => status(manage_status(&error)),
            },
            "resume" => match self.set(step).resume() {
                Ok(was_paused) => json!({ "status": "ok", "was_paused": was_paused }),
                Err(error) => status(manage_status(&error)),
            },
            "advance" => managed(self.set(step).advance(time(step, "ns"))),
            "reconfigure" => managed(self.set(step).reconfigure(limits(step))),
            "reset" => managed(self.set(step).reset()),
            "remove" => {
                self.set(step).remove().unwrap();
                status("ok")
            }
            "stats" => self.stats(step),
            "pool_stats" => self.pool_stats(),
            "drop" => {
                let name = text(step, "of");
                let any = (self.held.remove(name), self.items.remove(name), self.finished.remove(name));
                assert!(!matches!(any, (None, None, None)), "nothing to drop: {step}");
                status("ok")
            }
            _ => self.work_step(step),
        }
    }
}

impl World {
    fn set(&self, step: &Value) -> &LimitSet {
        let index = step.get("set").map_or(0, |it| it.as_u64().unwrap());
        &self.sets[usize::try_from(index).unwrap()]
    }

    fn take_held(&mut self, step: &Value, name: &str) -> Acquisition {
        self.held.remove(text(step, name)).unwrap_or_else(|| panic!("nothing held for {step}"))
    }

    fn acquire(&mut self, step: &Value) -> Value {
        let timeout = step.get("timeout_ns").map(|_| time(step, "timeout_ns"));
        let waits = step["do"] == "acquire";
        let answer = match &self.pool {
            Some(pool) if step.get("set").is_none() => {
                asked(self.set(step), step, |_, request| match (waits, timeout) {
                    (false, _) => pool.try_acquire(request),
                    (true, None) => pool.acquire(request),
                    (true, Some(timeout)) => pool.acquire_timeout(request, timeout),
                })
            }
            _ => asked(self.set(step), step, |set, request| match (waits, timeout) {
                (false, _) => set.try_acquire(request),
                (true, None) => set.acquire(request),
                (true, Some(timeout)) => set.acquire_timeout(request, timeout),
            }),
        };
        self.keep(step, "as", answer)
    }

    /// Keeps an acquisition under its name, or cancels it if it has none.
    fn keep(&mut self, step: &Value, name: &str, answer: Result<Acquisition, AcquireError>) -> Value {
        let held = match answer {
            Ok(held) => held,
            Err(refusal) => return refused(&refusal),
        };
        let answer = granted(&held);
        match step[name].as_str() {
            Some(name) => drop(self.held.insert(name.to_owned(), held)),
            None => held.cancel().unwrap(),
        }
        answer
    }

    fn start(&mut self, step: &Value) -> Value {
        let set = self.set(step).clone();
        let before = set.stats().unwrap().waiters;
        let (waiter, its_step) = (set.clone(), step.clone());
        let thread = std::thread::spawn(move || {
            asked(&waiter, &its_step, |set, request| match its_step.get("timeout_ns") {
                None => set.acquire(request),
                Some(_) => set.acquire_timeout(request, time(&its_step, "timeout_ns")),
            })
        });
        while set.stats().unwrap().waiters <= before {
            assert!(!thread.is_finished(), "did not have to wait: {step}");
            std::thread::yield_now();
        }
        self.waiting.insert(text(step, "as").to_owned(), thread);
        status("ok")
    }

    fn finish(&mut self, step: &Value) -> Value {
        let thread = self.waiting.remove(text(step, "of")).expect("a waiter");
        self.keep(step, "of", thread.join().unwrap())
    }

    fn acquire_more(&mut self, step: &Value) -> Value {
        let held = self.held.get_mut(text(step, "of")).expect("something held");
        let set = held.set().clone();
        match asked(&set, step, |_, request| held.acquire_more(request)) {
            Ok(()) => granted(held),
            Err(refusal) => refused(&refusal),
        }
    }

    fn report(&mut self, step: &Value) -> Value {
        let held = self.held.get_mut(text(step, "of")).expect("something held");
        let key = text(step, "key");
        let returned = match text(step, "do") {
            "update" => held.update(key, number(step, "used")),
            "adjust" => held.adjust(key, step["delta"].as_i64().unwrap()),
            _ => held.settle(key, number(step, "actual")),
        };
        match returned {
            Ok(returned) => {
                json!({ "status": "ok", "returned": returned, "charged": held.charged(key) })
            }
            Err(error) => json!({ "status": usage_status(&error), "charged": held.charged(key) }),
        }
    }

    fn stats(&self, step: &Value) -> Value {
        let stats = self.set(step).stats().unwrap();
        let limits: Map<_, _> = stats.limits.iter().map(|it| (it.key.clone(), limit_stats(it))).collect();
        json!({
            "status": "ok",
            "limits": limits,
            "waiters": stats.waiters,
            "cooldown": cooldown_stats(&stats.cooldown),
            "queue": stats.queue.as_ref().map(queue_stats),
        })
    }

    fn pool_stats(&self) -> Value {
        let stats = self.pool.as_ref().expect("a pool").stats();
        let sets: Vec<_> = stats
            .sets
            .iter()
            .map(|it| json!({ "granted": it.granted, "refused": it.refused, "skipped": it.skipped }))
            .collect();
        json!({ "status": "ok", "sets": sets })
    }

    fn work_step(&mut self, step: &Value) -> Value {
        let queue = match self.set(step).queue() {
            Ok(queue) => queue,
            Err(error) => return status(queue_status(&error)),
        };
        let of = || text(step, "of");
        let done = match text(step, "do") {
            "push" => queue.try_push(number(step, "id"), text(step, "payload").as_bytes()),
            "close" => queue.close(),
            "take" => return self.keep_item(step, queue.try_take()),
            "collect" => return self.keep_finished(step, queue.try_collect()),
            "collect_dead" => return self.keep_finished(step, queue.collect_dead()),
            "park" => {
                let held = self.take_held(step, "held");
                return match self.items.get_mut(of()).unwrap().rate_limited(held, retry_after(step)) {
                    Ok(pause) => paused(&pause),
                    Err(error) => status(queue_status(&error)),
                };
            }
            "forget" => self.finished.get_mut(of()).unwrap().forget(),
            "revive" => self.finished.get_mut(of()).unwrap().revive(),
            what => {
                let item = self.items.get_mut(of()).expect("an item");
                match (what, step["result"].as_str()) {
                    ("done", None) => item.done(),
                    ("done", Some(result)) => item.done_with(result.as_bytes()),
                    ("retry", _) => item.retry(time(step, "ns")),
                    ("dead_letter", _) => item.dead_letter(text(step, "why").as_bytes()),
                    ("give_back", _) => item.give_back(),
                    _ => panic!("unknown step {step}"),
                }
            }
        };
        status(done.as_ref().map_or_else(queue_status, |()| "ok"))
    }

    fn keep_item(&mut self, step: &Value, taken: Result<Option<WorkItem>, QueueError>) -> Value {
        let item = match taken {
            Ok(Some(item)) => item,
            Ok(None) => return status("over"),
            Err(error) => return status(queue_status(&error)),
        };
        let answer = json!({
            "status": "ok",
            "id": item.id(),
            "payload": String::from_utf8_lossy(item.payload()),
            "attempts": item.attempts(),
            "rate_limits": item.rate_limits(),
        });
        if let Some(name) = step["as"].as_str() {
            self.items.insert(name.to_owned(), item);
        }
        answer
    }

    fn keep_finished(&mut self, step: &Value, taken: Result<Option<Finished>, QueueError>) -> Value {
        let finished = match taken {
            Ok(Some(finished)) => finished,
            Ok(None) => return status("over"),
            Err(error) => return status(queue_status(&error)),
        };
        let reason = finished.reason().map(|reason| match reason {
            Reason::Attempts => "attempts",
            Reason::RateLimits => "rate_limits",
            Reason::GivenUp => "given_up",
            other => panic!("{other:?}"),
        });
        let answer = json!({
            "status": "ok",
            "id": finished.id(),
            "payload": String::from_utf8_lossy(finished.payload()),
            "result": String::from_utf8_lossy(finished.result()),
            "attempts": finished.attempts(),
            "rate_limits": finished.rate_limits(),
            "reason": reason,
        });
        if let Some(name) = step["as"].as_str() {
            self.finished.insert(name.to_owned(), finished);
        }
        answer
    }
}

/// Asks with the request of a step, resolved first if it says so.
fn asked<T>(
    set: &LimitSet,
    step: &Value,
    ask: impl FnOnce(&LimitSet, Request<'_>) -> Result<T, AcquireError>,
) -> Result<T, AcquireError> {
    let amounts: HashMap<&str, u64> = step["request"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, amount)| (key.as_str(), amount.as_u64().unwrap()))
        .collect();
    if step["resolved"] == true {
        let mut builder = set.request();
        for (key, amount) in &amounts {
            builder = builder.amount(*key, *amount);
        }
        if let Some(label) = step["label"].as_str() {
            builder = builder.label(label);
        }
        let request = builder.build()?;
        return ask(set, (&request).into());
    }
    let request: Request<'_> = (&amounts).into();
    match step["label"].as_str() {
        Some(label) => ask(set, request.label(label)),
        None => ask(set, request),
    }
}

fn status(word: &str) -> Value {
    json!({ "status": word })
}

fn granted(held: &Acquisition) -> Value {
    let keys = held.set().limits().iter().map(limitset::Limit::name);
    let charged: Map<_, _> =
        keys.filter_map(|key| Some((key.to_owned(), held.charged(key)?.into()))).collect();
    json!({
        "status": "ok",
        "charged": charged,
        "enforced": held.enforced(),
        "pool_index": held.pool_index(),
        "config": held.config(),
    })
}

fn refused(refusal: &AcquireError) -> Value {
    let nanos = |time: Option<std::time::Duration>| time.map(nanos);
    let mut answer = match refusal {
        AcquireError::Denied(denial) => json!({
            "status": "denied",
            "bottleneck": denial.bottleneck().map(|it| it.key.to_owned()),
            "limits": by_key(denial.statuses()),
        }),
        AcquireError::Queued { ahead } => json!({ "status": "queued", "ahead": ahead }),
        AcquireError::CoolingDown { .. } => status("cooling_down"),
        AcquireError::QueueFull { waiters } => json!({ "status": "queue_full", "waiters": waiters }),
        AcquireError::TimedOut(it) => json!({
            "status": "timed_out",
            "bottleneck": it.bottleneck().map(|it| it.key.to_owned()),
            "limits": by_key(&it.statuses),
            "ahead": it.ahead,
        }),
        AcquireError::Never { key, requested, most } => {
            json!({ "status": "never", "key": key.as_ref(), "requested": requested, "most": most })
        }
        AcquireError::BadRequest(_) => status("bad_request"),
        AcquireError::Removed => status("removed"),
        other => panic!("{other}"),
    };
    answer["retry_after_ns"] = nanos(refusal.retry_after()).into();
    answer
}

fn by_key(statuses: &Statuses) -> Value {
    let limits = statuses.iter().map(|it| {
        let status = json!({
            "requested": it.requested,
            "available": it.available,
            "most": it.most,
            "passed": it.passed,
            "retry_after_ns": it.retry_after.map(nanos),
        });
        (it.key.to_owned(), status)
    });
    Value::Object(limits.collect())
}

fn limit_stats(it: &LimitStats) -> Value {
    json!({
        "capacity": it.capacity,
        "window_ns": it.window.map(nanos),
        "burst": it.burst,
        "available": it.available,
        "in_use": it.in_use,
        "debt": it.debt,
        "waiting": it.waiting,
        "granted": it.granted,
        "denied": it.denied,
        "refunded": it.refunded,
        "unreported": it.unreported,
        "consumed": it.consumed,
        "revision": it.revision,
    })
}

fn cooldown_stats(it: &CooldownStats) -> Value {
    json!({
        "generation": it.generation,
        "remaining_ns": it.remaining.map(nanos),
        "next_admission_ns": it.next_admission.map(nanos),
        "consecutive": it.consecutive,
        "participants": it.participants,
        "absorbed": it.absorbed,
        "slow_admissions": it.slow_admissions,
    })
}

fn queue_stats(it: &QueueStats) -> Value {
    json!({
        "capacity": it.capacity, "ready": it.ready, "parked": it.parked, "delayed": it.delayed,
        "leased": it.leased, "results": it.results, "dead_letters": it.dead_letters,
        "is_closed": it.is_closed, "pushed": it.pushed, "taken": it.taken, "done": it.done,
        "retried": it.retried, "rate_limited": it.rate_limited, "redistributed": it.redistributed,
        "returned": it.returned, "dead_lettered": it.dead_lettered,
    })
}

fn paused(pause: &Pause) -> Value {
    json!({
        "status": "ok",
        "remaining_ns": pause.remaining.map(nanos),
        "generation": pause.generation,
        "absorbed": pause.absorbed,
    })
}

fn retry_after(step: &Value) -> Option<std::time::Duration> {
    step.get("retry_after_ns").map(|_| time(step, "retry_after_ns"))
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

fn usage(done: Result<(), UsageError>) -> Value {
    status(done.as_ref().map_or_else(usage_status, |()| "ok"))
}

fn usage_status(error: &UsageError) -> &'static str {
    match error {
        UsageError::NotRequested { .. } => "not_requested",
        UsageError::AboveRequested { .. } => "above_requested",
        UsageError::AboveCharged { .. } => "above_charged",
        UsageError::Permits { .. } => "permits",
        UsageError::TooMuch { .. } => "too_much",
        UsageError::Unreported { .. } => "unreported",
        UsageError::Removed => "removed",
        other => panic!("{other}"),
    }
}

fn managed(done: Result<(), ManageError>) -> Value {
    status(done.as_ref().map_or_else(manage_status, |()| "ok"))
}

fn manage_status(error: &ManageError) -> &'static str {
    match error {
        ManageError::Limit(_) => "bad_limit",
        ManageError::UnknownKey { .. } => "unknown_key",
        ManageError::NotNumbers { .. } => "not_numbers",
        ManageError::Removed => "removed",
        other => panic!("{other}"),
    }
}

fn queue_status(error: &QueueError) -> &'static str {
    match error {
        QueueError::NoQueue => "no_queue",
        QueueError::TooLong { .. } => "too_long",
        QueueError::Closed => "closed",
        QueueError::Full { .. } => "full",
        QueueError::Empty => "empty",
        QueueError::Spent => "spent",
        QueueError::Removed => "removed",
        other => panic!("{other}"),
    }
}
