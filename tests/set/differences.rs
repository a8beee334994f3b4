//! A set that exists and was declared otherwise: what each policy makes of each difference.

use limitset::error::{AttachError, CreateError};
use limitset::{
    Algorithm, CallLimit, Clock, Limit, LimitSet, LimitSetBuilder, OnDifference, OpenError, RateLimit,
    Report, ResourceLimit, Segment,
};

use crate::worlds::{HOUR, World, rules};

rules![
    the_same_definition_opens_under_every_policy,
    the_order_of_limits_is_no_difference,
    different_numbers_fail_or_are_kept_or_are_taken_over,
    numbers_changed_live_are_no_difference_but_are_taken_back_by_reconfigure,
    a_different_config_is_kept_or_an_error,
    other_limits_are_an_error_under_every_policy,
    another_size_or_clock_is_an_error_unless_what_is_there_is_kept,
    taking_over_changes_only_what_differs,
    the_gravest_difference_counts,
];

const POLICIES: [OnDifference; 3] =
    [OnDifference::Fail, OnDifference::KeepCurrent, OnDifference::Reconfigure];

fn base() -> LimitSetBuilder {
    LimitSet::builder()
        .clock(Clock::Manual)
        .segment(Segment::options().slots(4).waiters(2))
        .config("region", "eu")
}

fn limits(tokens: u64, connections: u64) -> [Limit; 3] {
    [
        CallLimit::per_minute(10).into(),
        RateLimit::per_minute("tokens", tokens).into(),
        ResourceLimit::new("connections", connections).into(),
    ]
}

fn declared() -> LimitSetBuilder {
    base().limits(limits(100, 4))
}

/// The found and the expected declaration, if the answer is a difference.
fn difference(answer: Result<LimitSet, OpenError>) -> (String, String) {
    match answer {
        Err(OpenError::Segment(CreateError::Attach(AttachError::Differs { found, expected, .. }))) => {
            (found, expected)
        }
        other => panic!("no difference: {other:?}"),
    }
}

fn capacities(set: &LimitSet) -> Vec<(u64, u64)> {
    set.stats().unwrap().limits.iter().map(|it| (it.capacity, it.revision)).collect()
}

fn the_same_definition_opens_under_every_policy(world: World) {
    let set = world.open(&declared());
    for policy in POLICIES {
        let again = declared().on_difference(policy).open(&set.name).unwrap();
        assert_eq!(again.limits(), set.limits());
        assert_eq!(capacities(&again), [(10, 0), (100, 0), (4, 0)], "{policy:?}");
    }
}

fn the_order_of_limits_is_no_difference(world: World) {
    let set = world.open(&declared());
    let mut turned = limits(100, 4);
    turned.reverse();
    for policy in POLICIES {
        let again = base().limits(turned.clone()).on_difference(policy).open(&set.name).unwrap();
        assert_eq!(again.limits(), set.limits(), "the segment's order counts");
        let held = again.try_acquire([("tokens", 7), ("connections", 2)]).unwrap();
        assert_eq!(set.limit("connections").in_use, 2);
        held.cancel().unwrap();
    }
    // Also where numbers are taken over: each goes to its own key.
    let mut turned = limits(50, 2);
    turned.reverse();
    base().limits(turned).on_difference(OnDifference::Reconfigure).open(&set.name).unwrap();
    assert_eq!(capacities(&set), [(10, 0), (50, 1), (2, 1)]);
}

fn different_numbers_fail_or_are_kept_or_are_taken_over(world: World) {
    let other: [(Limit, &str, &str); 4] = [
        (RateLimit::per_minute("tokens", 50).into(), "100 per 60s", "50 per 60s"),
        (RateLimit::per_hour("tokens", 100).into(), "100 per 60s", "100 per 3600s"),
        (RateLimit::per_minute("tokens", 100).burst(5).into(), "100 per 60s", "at most 5 at once"),
        (ResourceLimit::new("connections", 5).into(), "\"connections\": 4", "\"connections\": 5"),
    ];
    for (limit, was, wanted) in other {
        let set = world.open(&declared());
        let ours = limits(100, 4).map(|it| if it.name() == limit.name() { limit.clone() } else { it });
        let ours = base().limits(ours);
        let (found, expected) = difference(ours.open(&set.name));
        assert!(found.contains(was) && expected.contains(wanted), "{found}; {expected}");
        let kept = ours.clone().on_difference(OnDifference::KeepCurrent).open(&set.name).unwrap();
        assert_eq!(capacities(&kept), [(10, 0), (100, 0), (4, 0)]);
        let changed = ours.on_difference(OnDifference::Reconfigure).open(&set.name).unwrap();
        let now = changed.stats().unwrap().limit(limit.name()).unwrap().clone();
        assert_eq!((now.capacity, now.revision), (limit.capacity(), 1));
        if wanted.contains("5 at once") {
            assert_eq!((now.burst, now.available), (5, 5));
        }
        if wanted.contains("3600s") {
            assert_eq!(now.window, Some(HOUR));
        }
        assert_eq!(changed.limits(), set.limits(), "what was declared stays declared");
    }
}

fn numbers_changed_live_are_no_difference_but_are_taken_back_by_reconfigure(world: World) {
    let set = world.open(&declared());
    set.reconfigure([RateLimit::per_minute("tokens", 50)]).unwrap();
    for policy in [OnDifference::Fail, OnDifference::KeepCurrent] {
        let again = declared().on_difference(policy).open(&set.name).unwrap();
        assert_eq!(capacities(&again), [(10, 0), (50, 1), (4, 0)], "{policy:?}");
    }
    // Who declares what is current, and not what was declared first, differs all the same.
    difference(base().limits(limits(50, 4)).open(&set.name));
    let again = declared().on_difference(OnDifference::Reconfigure).open(&set.name).unwrap();
    assert_eq!(capacities(&again), [(10, 0), (100, 2), (4, 0)]);
}

fn a_different_config_is_kept_or_an_error(world: World) {
    let set = world.open(&declared());
    for other in [declared().config("region", "us"), declared().config("account", "7")] {
        for policy in [OnDifference::Fail, OnDifference::Reconfigure] {
            let (found, _) = difference(other.clone().on_difference(policy).open(&set.name));
            assert!(found.starts_with("config") && found.contains("\"eu\""), "{found}");
        }
        let kept = other.on_difference(OnDifference::KeepCurrent).open(&set.name).unwrap();
        assert_eq!(kept.config(), set.config());
    }
}

fn other_limits_are_an_error_under_every_policy(world: World) {
    let set = world.open(&declared());
    let replace = |key: &str, by: Option<Limit>| -> Vec<Limit> {
        let all =
            limits(100, 4).into_iter().flat_map(|it| if it.name() == key { by.clone() } else { Some(it) });
        all.collect()
    };
    let more = limits(100, 4).into_iter().chain([ResourceLimit::new("files", 1).into()]).collect();
    let sliding = RateLimit::per_minute("tokens", 100).algorithm(Algorithm::SlidingWindow);
    let optional = RateLimit::per_minute("tokens", 100).report(Report::Optional);
    let others: [(Vec<Limit>, &str, &str); 8] = [
        (replace("connections", None), "resource \"connections\": 4", "no limit \"connections\""),
        (more, "no limit \"files\"", "resource \"files\": 1"),
        (replace("connections", Some(ResourceLimit::new("files", 4).into())), "no limit \"files\"", "files"),
        (
            replace("connections", Some(CallLimit::per_minute(4).key("connections").into())),
            "resource",
            "calls",
        ),
        (replace("tokens", Some(ResourceLimit::new("tokens", 100).into())), "rate", "resource"),
        (replace("tokens", Some(sliding.into())), "token_bucket", "sliding_window"),
        (replace("tokens", Some(optional.into())), "rate \"tokens\"", "report optional"),
        (vec![], "calls \"call_count\"", "no limit \"call_count\""),
    ];
    for (limits, was, wanted) in others {
        for policy in POLICIES {
            let answer = base().limits(limits.clone()).on_difference(policy).open(&set.name);
            let (found, expected) = difference(answer);
            assert!(found.contains(was) && expected.contains(wanted), "{policy:?}: {found}; {expected}");
        }
    }
    assert_eq!(capacities(&set), [(10, 0), (100, 0), (4, 0)]);
    let left = set.stats().unwrap().participants.len();
    assert_eq!(left, 1, "who is refused leaves its slot");
}

fn another_size_or_clock_is_an_error_unless_what_is_there_is_kept(world: World) {
    let set = world.open(&declared());
    let options = || Segment::options().slots(4).waiters(2);
    let others = [
        (declared().segment(options().slots(5)), "4 slots", "5 slots"),
        (declared().segment(options().waiters(3)), "2 waiters", "3 waiters"),
        (declared().segment(options().semaphore("db", 1)), "no such region", "semaphore \"db\" of 1"),
        (declared().clock(Clock::Monotonic), "a manual clock", "a monotonic clock"),
    ];
    for (other, was, wanted) in others {
        for policy in [OnDifference::Fail, OnDifference::Reconfigure] {
            let answer = other.clone().on_difference(policy).open(&set.name);
            assert_eq!(difference(answer), (was.to_owned(), wanted.to_owned()), "{policy:?}");
        }
        let kept = other.on_difference(OnDifference::KeepCurrent).open(&set.name).unwrap();
        assert_eq!((kept.clock(), kept.segment().info().slots), (Clock::Manual, 4));
    }
}

fn taking_over_changes_only_what_differs(world: World) {
    let set = world.open(&declared());
    set.try_acquire([("tokens", 30)]).unwrap().release().unwrap_err();
    let held = set.try_acquire([("connections", 4)]).unwrap();
    let ours = base().limits(limits(50, 4)).on_difference(OnDifference::Reconfigure);
    let changed = ours.open(&set.name).unwrap();
    assert_eq!(capacities(&changed), [(10, 0), (50, 1), (4, 0)]);
    assert_eq!((set.limit("tokens").available, set.limit("tokens").consumed), (50, 30));
    ours.open(&set.name).unwrap();
    assert_eq!(capacities(&changed), [(10, 0), (50, 1), (4, 0)], "the second time nothing differs");
    assert_eq!(set.limit("connections").in_use, 4);
    held.release().unwrap();
}

fn the_gravest_difference_counts(world: World) {
    let set = world.open(&declared());
    // Numbers and config: nothing of the numbers is taken over.
    let both = base().limits(limits(50, 4)).config("region", "us").on_difference(OnDifference::Reconfigure);
    let (found, _) = difference(both.open(&set.name));
    assert!(found.starts_with("config"), "{found}");
    // Numbers and slots: the same.
    let slots = base().limits(limits(50, 4)).segment(Segment::options().slots(5).waiters(2));
    let (found, _) = difference(slots.on_difference(OnDifference::Reconfigure).open(&set.name));
    assert_eq!(found, "4 slots");
    assert_eq!(capacities(&set), [(10, 0), (100, 0), (4, 0)]);
}
