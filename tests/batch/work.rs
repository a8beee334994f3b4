//! A worker process: takes items, acquires, calls the provider, says what became of them.

use limitset::{LimitSet, Pause, WorkItem};

use crate::cases::CASES;
use crate::provider::{Answer, Provider};
use crate::{OnPanic, acquire, end_with_the_test, stats};

/// The payload of an item: workers and collectors check that it belongs to the item.
pub(crate) fn payload(id: u64) -> Vec<u8> {
    format!("item {id}").into_bytes()
}

/// Role, with the name of the set, the case and the number of the worker.
pub(crate) fn role(arguments: &[String]) {
    end_with_the_test();
    let case = &CASES[arguments[1].parse::<usize>().unwrap()];
    let me: u64 = arguments[2].parse().unwrap();
    let set = LimitSet::builder().segment(case.slices()).attach(&arguments[0]).unwrap();
    let provider = Provider::of(&set, case);
    let _tell = OnPanic(|| provider.fail());
    let queue = set.queue().unwrap();
    while let Some(item) = queue.take().unwrap() {
        provider.step();
        work(&set, &provider, item, me);
    }
}

fn work(set: &LimitSet, provider: &Provider<'_>, mut item: WorkItem, me: u64) {
    let id = item.id();
    provider.begin(id, me);
    assert_eq!(item.payload(), payload(id));
    let before = stats(set).cooldown.generation;
    let held = acquire(set);
    provider.note_admission();
    let after = stats(set).cooldown.generation;
    provider.step();
    match provider.call(id) {
        Answer::Success => {
            provider.end(id, me);
            provider.step();
            let result = provider.seen(id).executions.to_ne_bytes();
            // Some give the connection back first, some last.
            if id.is_multiple_of(2) {
                held.release().unwrap();
                provider.step();
                item.done_with(&result).unwrap();
            } else {
                item.done_with(&result).unwrap();
                provider.step();
                held.release().unwrap();
            }
        }
        Answer::TooManyRequests => {
            provider.end(id, me);
            provider.step();
            let pause = item.rate_limited(held, None).unwrap();
            check_pause(&pause, before, after);
            if !pause.absorbed {
                provider.note_pause(pause.generation);
            }
        }
        Answer::None => provider.hang(me),
    }
    provider.step();
}

/// A report begins a pause if and only if no other has begun one since its request was admitted, which was when there had
/// been `before` to `after` pauses.
fn check_pause(pause: &Pause, before: u64, after: u64) {
    if pause.absorbed {
        assert!(pause.generation > before, "{pause:?} since {before}: absorbed, but by no later pause");
    } else {
        let since = pause.generation - 1;
        assert!((before..=after).contains(&since), "{pause:?}, though admitted in {before} to {after}");
        assert!(pause.remaining.is_some(), "{pause:?}");
    }
}
