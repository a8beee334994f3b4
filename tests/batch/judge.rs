//! The rules that every finished batch keeps, with any kills; and stricter rules for batches without kills.

use std::collections::BTreeMap;

use limitset::{QueueStats, Reason};

use crate::assert_nothing_held;
use crate::cases::Case;
use crate::conductor::{End, Outcome};
use crate::provider::Provider;

/// Every item is done exactly once or a dead letter, and all counts agree: of items, of the queue, of the set, and of the
/// provider.
pub(crate) fn always(case: &Case, provider: &Provider<'_>, outcome: &Outcome) {
    let ends: BTreeMap<u64, End> = outcome.ends.iter().map(|end| (end.id, *end)).collect();
    assert_eq!(ends.len(), outcome.ends.len(), "an item ended twice: {:?}", outcome.ends);
    assert_eq!(
        ends.into_keys().collect::<Vec<_>>(),
        (0..case.items as u64).collect::<Vec<_>>(),
        "one is lost"
    );
    for end in &outcome.ends {
        item(case, provider, end);
    }
    let sum = |of: fn(&End) -> u64| outcome.ends.iter().map(of).sum::<u64>();
    let given_up = |why| outcome.ends.iter().filter(|end| end.reason == Some(why)).count() as u64;
    let dead_letters = outcome.dead_letters().len() as u64;
    let queue = outcome.stats.queue.unwrap();
    at_rest(&queue);
    assert_eq!(queue.pushed, case.items as u64);
    assert_eq!((queue.done + dead_letters, queue.dead_lettered), (queue.pushed, dead_letters));
    assert_eq!(
        queue.taken,
        sum(|end| end.attempts + end.rate_limits),
        "each hand-out is counted with its item"
    );
    assert_eq!(queue.returned, sum(End::deaths), "each return cost one attempt, and nothing else did");
    let reports = sum(|end| end.rate_limits);
    assert_eq!(
        queue.rate_limited,
        reports - given_up(Reason::RateLimits),
        "all but the last of those were parked"
    );
    assert_eq!(queue.redistributed, queue.rate_limited, "what was parked was handed out again, once");
    let pauses = outcome.stats.cooldown;
    assert_eq!(pauses.generation + pauses.absorbed, reports, "a report begins a pause or is absorbed");
    assert!((1..=reports).contains(&pauses.generation), "{pauses:?}");
    assert!(provider.pauses(pauses.generation) <= pauses.generation);
    let calls = outcome.stats.limit("call_count").unwrap().granted;
    let executions = outcome.executions(provider);
    assert!((executions..=queue.taken).contains(&calls), "{executions} executions, {calls} calls: {queue:?}");
    assert_nothing_held(&outcome.stats);
}

fn at_rest(queue: &QueueStats) {
    assert_eq!((queue.ready, queue.parked, queue.delayed, queue.leased), (0, 0, 0, 0));
    assert_eq!((queue.results, queue.dead_letters, queue.retried, queue.is_closed), (0, 0, 0, true));
}

impl End {
    fn is_done(&self) -> bool {
        self.reason.is_none()
    }

    /// How often it returned from a dead worker.
    pub(crate) fn deaths(&self) -> u64 {
        self.attempts - u64::from(self.is_done())
    }
}

fn item(case: &Case, provider: &Provider<'_>, end: &End) {
    let seen = provider.seen(end.id);
    let expected = (case.rejections)(end.id);
    assert!(provider.is_gone(seen.holder), "{end:?} is still with {}", seen.holder);
    // A worker that dies may have asked and not reported; else a call is a hand-out.
    assert!(seen.executions <= end.attempts + end.rate_limits, "{end:?} {seen:?}");
    assert!(seen.rejections >= end.rate_limits, "{end:?} {seen:?}");
    assert!(seen.rejections - end.rate_limits <= end.deaths(), "{end:?} {seen:?}");
    match end.reason {
        None => {
            assert_eq!(seen.rejections, expected, "{end:?}: done without having been rejected as it should");
            assert!((1..=1 + end.deaths()).contains(&seen.successes), "{end:?} {seen:?}");
            assert!((1..=u64::from(case.attempts)).contains(&end.attempts), "{end:?}");
            assert!(end.rate_limits < case.rate_limits.into(), "{end:?}");
            assert_eq!(end.execution, Some(seen.executions), "the result is of the last execution");
        }
        Some(Reason::Attempts) => {
            assert_eq!(end.attempts, case.attempts.into(), "{end:?}");
            assert!(end.rate_limits < case.rate_limits.into(), "{end:?}");
        }
        Some(Reason::RateLimits) => {
            assert_eq!(end.rate_limits, case.rate_limits.into(), "{end:?}");
            assert!(end.attempts < case.attempts.into(), "{end:?}");
            assert_eq!(seen.successes, 0, "{end:?} {seen:?}");
        }
        other => panic!("nobody gave it up: {other:?}"),
    }
}

/// Where nobody is killed, or only those whose call hangs, everything is known to the unit.
pub(crate) fn exact(case: &Case, provider: &Provider<'_>, outcome: &Outcome) {
    always(case, provider, outcome);
    let mut executions = 0;
    for end in &outcome.ends {
        let expected = case.expected(end.id);
        assert_eq!((end.attempts, end.rate_limits, end.reason), expected, "{end:?}");
        let seen = provider.seen(end.id);
        assert_eq!(
            seen.executions,
            end.attempts + end.rate_limits,
            "each hand-out is one execution: {end:?}"
        );
        assert_eq!(seen.rejections, end.rate_limits, "{end:?}");
        assert_eq!(seen.successes, u64::from(end.reason.is_none()), "{end:?}");
        executions += seen.executions;
    }
    assert_eq!(executions, case.executions, "{}", case.name);
    assert_eq!(outcome.stats.limit("call_count").unwrap().granted, executions);
    assert_eq!(outcome.admissions.len() as u64, executions);
    let generation = outcome.stats.cooldown.generation;
    assert_eq!(provider.pauses(generation), generation, "each pause was begun by one report");
}
