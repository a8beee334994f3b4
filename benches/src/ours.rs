//! The sets of the benches: named segments, as processes share them, removed at the end.

use std::rc::Rc;

use limitset::{
    Algorithm, CallLimit, Clock, Limit, LimitSet, RateLimit, Report, ResolvedRequest, ResourceLimit, Segment,
};

use crate::sys::unique;

/// More than any loop can use.
const PLENTY: u64 = 1_000_000_000_000;

/// A set in a named segment, removed on drop.
pub struct TempSet {
    pub set: LimitSet,
    pub name: String,
    creator: u32,
}

impl TempSet {
    pub fn new(limits: Vec<Limit>, clock: Clock) -> Rc<TempSet> {
        TempSet::with(limits, clock, Segment::options())
    }

    pub fn with(limits: Vec<Limit>, clock: Clock, options: limitset::SegmentOptions) -> Rc<TempSet> {
        let name = unique("set");
        let builder = LimitSet::builder().limits(limits).clock(clock).segment(options);
        let set = builder.create(&name).expect("a new set");
        Rc::new(TempSet { set, name, creator: std::process::id() })
    }

    /// Attaches to the set as another participant.
    pub fn attach(&self) -> LimitSet {
        LimitSet::attach(&self.name).expect("the set")
    }
}

impl Drop for TempSet {
    fn drop(&mut self) {
        if std::process::id() == self.creator {
            // The set may have been removed by hand.
            let _ = self.set.remove();
        }
    }
}

/// Returns a rate that is never exhausted, counted as in `governor`.
pub fn call() -> Limit {
    CallLimit::per_second(PLENTY).algorithm(Algorithm::Gcra).into()
}

pub fn rate(key: &str) -> Limit {
    RateLimit::per_second(key, PLENTY).algorithm(Algorithm::Gcra).report(Report::Optional).into()
}

pub fn permit(key: &str, count: u64) -> Limit {
    ResourceLimit::new(key, count).into()
}

/// Returns calls, tokens and connections: the set of the front page.
pub fn usual() -> Vec<Limit> {
    vec![call(), rate("tokens"), permit("connections", 64)]
}

/// Returns the request to [`usual`], resolved.
pub fn usual_request(set: &LimitSet) -> ResolvedRequest {
    set.request().amount("tokens", 1).build().expect("a request")
}

/// Returns a request for one of each limit, resolved.
pub fn one_of_each(set: &LimitSet) -> ResolvedRequest {
    let keys = set.limits().iter().map(|limit| limit.name().to_owned());
    keys.fold(set.request(), |request, key| request.amount(key, 1)).build().expect("a request")
}

/// Returns a request for one of the first limit and nothing of the others.
pub fn only_the_first(set: &LimitSet) -> ResolvedRequest {
    let keys = set.limits().iter().map(|limit| limit.name().to_owned()).enumerate();
    let request =
        keys.fold(set.request(), |request, (index, key)| request.amount(key, u64::from(index == 0)));
    request.build().expect("a request")
}

/// Acquires and releases, borrowing the set, as the permits and checks of in-process rivals do.
pub fn take_and_give(set: &LimitSet, request: &ResolvedRequest) {
    set.try_acquire_ref(request).expect("granted").release().expect("released");
}

/// Acquires and releases with an acquisition that could outlive the caller's set, for which users of the set
/// are counted.
pub fn take_and_give_owned(set: &LimitSet, request: &ResolvedRequest) {
    set.try_acquire(request).expect("granted").release().expect("released");
}

/// Checks that a request is denied.
pub fn denied(set: &LimitSet, request: &ResolvedRequest) {
    assert!(matches!(set.try_acquire(request), Err(limitset::AcquireError::Denied(_))), "not denied");
}
