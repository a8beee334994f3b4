//! How does the cost of a request grow: with limits that it does not name, with limits that it names, with
//! participants, with waiters for other limits? All but the second should be flat.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use limitset::{AcquireFuture, Clock, Limit, LimitSet, Segment};

use crate::batches::{Plan, Row};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};

const QUESTION: &str = "How does the cost of acquire + release grow with limits, participants and waiters that do not concern it?";

/// The sizes of each curve, smallest first.
pub const IDLE_LIMITS: [usize; 4] = [0, 3, 15, 63];
pub const LIMITS: [usize; 5] = [1, 2, 4, 8, 16];
pub const PARTICIPANTS: [usize; 4] = [1, 8, 64, 512];
pub const WAITERS: [usize; 4] = [0, 1, 16, 256];

pub fn run(plan: Plan) -> Bench {
    let groups = vec![
        curve(
            "idle-limits",
            "Limits in the set that are not requested (1 rate requested)",
            &IDLE_LIMITS,
            idle_limits,
        ),
        curve("limits", "Limits requested", &LIMITS, limits),
        curve("participants", "Participants enrolled", &PARTICIPANTS, participants),
        curve("waiters", "Waiters for another limit of the set", &WAITERS, waiters),
    ];
    Bench::measure("growth", QUESTION, groups, plan, None)
}

/// Returns the key of a point of a curve.
pub fn key(curve: &str, size: usize) -> String {
    format!("growth/{curve}/{size}")
}

fn curve(name: &str, title: &str, sizes: &[usize], op: impl Fn(usize) -> Box<dyn FnMut()>) -> Group<Row> {
    let rows = sizes.iter().map(|size| Row::ours(key(name, *size), size.to_string(), op(*size)));
    Group::new(title, key(name, sizes[0]), rows.collect())
}

fn idle_limits(count: usize) -> Box<dyn FnMut()> {
    let others = (0..count).map(|index| ours::rate(&format!("other-{index}")));
    let temp = TempSet::new([ours::call()].into_iter().chain(others).collect(), Clock::Monotonic);
    first_of(temp)
}

fn limits(count: usize) -> Box<dyn FnMut()> {
    let limits: Vec<Limit> = (0..count).map(|index| ours::rate(&format!("rate-{index}"))).collect();
    let temp = TempSet::new(limits, Clock::Monotonic);
    let request = ours::one_of_each(&temp.set);
    Box::new(move || ours::take_and_give(&temp.set, &request))
}

fn participants(count: usize) -> Box<dyn FnMut()> {
    let temp = TempSet::with(ours::usual(), Clock::Monotonic, Segment::options().slots(1024));
    // Each attached set is a separate participant.
    let others: Vec<LimitSet> = (1..count).map(|_| temp.attach()).collect();
    let request = ours::one_of_each(&temp.set);
    Box::new(move || {
        let _others = &others;
        ours::take_and_give(&temp.set, &request);
    })
}

fn waiters(count: usize) -> Box<dyn FnMut()> {
    let limits = vec![ours::call(), ours::permit("busy", 1)];
    let temp = TempSet::with(limits, Clock::Monotonic, Segment::options().waiters(1024));
    let busy = temp.set.request().amount("call_count", 0).amount("busy", 1).build().expect("a request");
    let held = temp.set.try_acquire(&busy).expect("the only permit");
    let waiting: Vec<_> = (0..count).map(|_| wait(&temp.set, &busy)).collect();
    let mut op = first_of(temp);
    Box::new(move || {
        let _idle = (&held, &waiting);
        op();
    })
}

/// Joins the wait queue, and stays there.
fn wait(set: &LimitSet, request: &limitset::ResolvedRequest) -> Pin<Box<AcquireFuture>> {
    let mut future = Box::pin(set.acquire_async(request));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "does not wait");
    future
}

fn first_of(temp: Rc<TempSet>) -> Box<dyn FnMut()> {
    let request = ours::only_the_first(&temp.set);
    Box::new(move || ours::take_and_give(&temp.set, &request))
}
