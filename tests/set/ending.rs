//! How an acquisition ends: released, dropped, cancelled, run; and how it grows before that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use limitset::{
    AcquireError, Acquisition, Algorithm, BadRequest, CallLimit, LimitSet, RateLimit, ResourceLimit,
    RunError, UsageError,
};

use crate::worlds::{MINUTE, Set, World, by_refunds, denial, manual, pairs, rules};

rules![
    releasing_returns_permits_and_keeps_charges,
    releasing_without_a_report_is_an_error_that_names_the_rates_and_releases,
    dropping_without_a_report_releases_and_is_counted,
    an_optional_report_and_calls_need_none,
    nothing_is_owed_of_a_rate_of_which_nothing_was_taken,
    every_kind_of_report_is_one,
    cancelling_gives_back_what_the_algorithm_can_take_and_owes_no_report,
    running_releases_and_gives_the_result,
    running_without_a_report_is_counted,
    running_cancels_when_the_body_fails,
    running_cancels_when_the_body_panics,
    a_body_does_not_run_when_the_request_is_refused,
    acquiring_more_adds_exactly_what_is_named,
    acquiring_more_by_a_resolved_request_adds_exactly_what_was_named,
    acquiring_more_is_all_or_none_and_leaves_the_rest_alone,
    acquiring_more_owes_a_report_once,
    acquiring_more_must_name_something,
    an_acquisition_can_end_in_another_thread,
    sets_and_acquisitions_go_where_threads_go,
    what_borrows_its_set_is_acquired_and_ends_like_any_other,
    what_is_over_is_used_again_and_says_only_what_is_new,
    what_is_not_over_or_of_another_set_is_not_used_again,
];

/// Two rates that need reports, calls, and permits.
fn reporting(world: World) -> Set {
    world.open(
        &manual()
            .limits(["input", "output"].map(|key| RateLimit::per_minute(key, 100)))
            .limit(CallLimit::per_minute(10))
            .limit(ResourceLimit::new("connections", 4)),
    )
}

fn releasing_returns_permits_and_keeps_charges(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30), ("connections", 3)]).unwrap();
    assert_eq!(set.owes(), pairs([("input", 1)]));
    held.update("input", 30).unwrap();
    assert_eq!(set.owes(), []);
    held.release().unwrap();
    assert_eq!(set.holds(), []);
    let available = ["input", "output", "call_count", "connections"].map(|key| set.limit(key).available);
    assert_eq!(available, [70, 100, 9, 4]);
}

fn what_borrows_its_set_is_acquired_and_ends_like_any_other(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire_ref([("input", 30), ("connections", 3)]).unwrap();
    assert_eq!((held.charged("input"), held.charged("output")), (Some(30), None));
    assert_eq!(held.update("input", 10).unwrap(), 20);
    assert_eq!(set.holds(), pairs([("connections", 3)]));
    let refused = set.try_acquire_ref([("connections", 2)]).unwrap_err();
    assert!(matches!(refused, AcquireError::Denied(_)), "{refused}");
    drop(held);
    assert_eq!(set.holds(), []);
    set.try_acquire_ref([("output", 5)]).unwrap().cancel().unwrap();
    let unreported = set.try_acquire_ref([("output", 5)]).unwrap().release().unwrap_err();
    assert!(matches!(unreported, UsageError::Unreported { .. }), "{unreported}");
    let available = ["input", "output", "call_count", "connections"].map(|key| set.limit(key).available);
    assert_eq!(available, [90, 95, 8, 4]);
}

fn what_is_over_is_used_again_and_says_only_what_is_new(world: World) {
    let set = reporting(world);
    let [all, some] =
        [vec![("input", 30), ("output", 40)], vec![("output", 7), ("connections", 2)]].map(|it| {
            it.into_iter()
                .fold(set.request(), |request, (key, amount)| request.amount(key, amount))
                .build()
                .unwrap()
        });
    let mut held = set.try_acquire(&all).unwrap();
    held.release_in_place().unwrap_err();
    let first = held.ticket();
    assert!(held.acquire_again(&set, &some, None).unwrap());
    assert!(held.ticket() > first && held.enforced());
    let charged = ["input", "output", "call_count", "connections"].map(|key| held.charged(key));
    assert_eq!(charged, [None, Some(7), Some(1), Some(2)]);
    assert_eq!((set.owes(), set.holds()), (pairs([("output", 1)]), pairs([("connections", 2)])));
    held.update("output", 7).unwrap();
    held.release().unwrap();
    assert_eq!((set.owes(), set.holds()), (vec![], vec![]));
}

fn what_is_not_over_or_of_another_set_is_not_used_again(world: World) {
    let (set, other) = (reporting(world), reporting(world));
    let request = set.request().amount("connections", 4).build().unwrap();
    let mut held = set.try_acquire(&request).unwrap();
    assert!(!held.acquire_again(&set, &request, None).unwrap(), "it still holds something");
    let mut over = other.try_acquire([("connections", 1)]).unwrap();
    over.release_in_place().unwrap();
    held.release().unwrap();
    assert!(!over.acquire_again(&set, &request, None).unwrap(), "it is of another set");
    assert_eq!((set.holds(), other.holds()), (vec![], vec![]));
    let mut over = set.try_acquire(&request).unwrap();
    over.release_in_place().unwrap();
    let all = set.try_acquire(&request).unwrap();
    assert!(!over.acquire_again(&set, &request, None).unwrap(), "it is not there");
    drop(over);
    assert_eq!(set.holds(), pairs([("connections", 4)]));
    drop(all);
}

fn releasing_without_a_report_is_an_error_that_names_the_rates_and_releases(world: World) {
    let set = reporting(world);
    let held = set.try_acquire([("input", 30), ("output", 40)]).unwrap();
    let error = held.release().unwrap_err();
    assert!(matches!(&error, UsageError::Unreported { keys } if keys == &["input", "output"]), "{error}");
    let message =
        "released, but the use of input, output was not reported: call update, settle or adjust before";
    assert_eq!(error.to_string(), message);
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
    for (key, charged) in [("input", 30), ("output", 40)] {
        let now = set.limit(key);
        assert_eq!((now.unreported, now.consumed, now.available), (1, charged, 100 - charged));
    }
    let mut held = set.try_acquire([("input", 30), ("output", 40)]).unwrap();
    held.update("input", 10).unwrap();
    assert!(matches!(held.release(), Err(UsageError::Unreported { keys }) if keys == ["output"]));
    assert_eq!((set.limit("input").unreported, set.limit("output").unreported), (1, 2));
}

fn dropping_without_a_report_releases_and_is_counted(world: World) {
    let set = reporting(world);
    drop(set.try_acquire([("input", 30), ("connections", 4)]).unwrap());
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
    let now = set.limit("input");
    assert_eq!((now.unreported, now.consumed, now.available, now.refunded), (1, 30, 70, 0));
    assert_eq!(set.limit("call_count").unreported, 0);
    assert_eq!(set.limit("connections").unreported, 0);
}

fn an_optional_report_and_calls_need_none(world: World) {
    let set = world.three_kinds();
    let held = set.try_acquire([("tokens", 100), ("call_count", 3)]).unwrap();
    assert_eq!(set.owes(), []);
    held.release().unwrap();
    // A report is welcome all the same.
    let mut held = set.try_acquire([("tokens", 100)]).unwrap();
    assert_eq!(held.update("tokens", 10).unwrap(), 90);
    held.release().unwrap();
    let now = set.limit("tokens");
    assert_eq!((now.consumed, now.unreported), (110, 0));
}

fn nothing_is_owed_of_a_rate_of_which_nothing_was_taken(world: World) {
    let set = reporting(world);
    let held = set.try_acquire([("input", 0)]).unwrap();
    assert_eq!(set.owes(), []);
    held.release().unwrap();
    assert_eq!(set.limit("input").unreported, 0);
}

fn every_kind_of_report_is_one(world: World) {
    type Report = fn(&mut Acquisition) -> Result<u64, UsageError>;
    let reports: [Report; 6] = [
        |held| held.update("input", 10),
        |held| held.update("input", 0),
        |held| held.adjust("input", 0),
        |held| held.adjust("input", -3),
        |held| held.settle("input", 10),
        |held| held.settle("input", 20),
    ];
    for algorithm in Algorithm::ALL {
        let set = world.open(&manual().limit(RateLimit::per_minute("input", 1_000).algorithm(*algorithm)));
        for report in reports {
            let mut held = set.try_acquire([("input", 10)]).unwrap();
            report(&mut held).unwrap();
            assert_eq!(set.owes(), []);
            held.release().unwrap();
        }
        assert_eq!(set.limit("input").unreported, 0);
    }
}

fn cancelling_gives_back_what_the_algorithm_can_take_and_owes_no_report(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = RateLimit::new("tokens", 100, MINUTE).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate).limit(ResourceLimit::new("connections", 4)));
        let held = set.try_acquire([("tokens", 30), ("connections", 2)]).unwrap();
        held.cancel().unwrap();
        let mut held = set.try_acquire([("tokens", 30), ("connections", 2)]).unwrap();
        held.adjust("tokens", 90).unwrap();
        held.cancel().unwrap();
        let back = if algorithm.refunds() { 150 } else { 0 };
        let now = set.limit("tokens");
        assert_eq!((now.consumed, now.refunded, now.unreported), (150 - back, back, 0), "{algorithm}");
        assert_eq!(now.available, if algorithm.refunds() { 100 } else { 0 });
        assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
    }
}

fn running_releases_and_gives_the_result(world: World) {
    let set = reporting(world);
    let answer = set.run([("input", 30)], |held| {
        assert_eq!(set.holds(), pairs([("connections", 1)]));
        held.settle("input", 12)?;
        Ok::<_, UsageError>("done")
    });
    assert_eq!(answer.unwrap(), "done");
    assert_eq!(set.holds(), []);
    assert_eq!((set.limit("input").consumed, set.limit("call_count").consumed), (12, 1));
}

fn running_without_a_report_is_counted(world: World) {
    let set = reporting(world);
    set.run([("input", 30)], |_| Ok::<_, ()>(())).unwrap();
    let now = set.limit("input");
    assert_eq!((now.unreported, now.consumed), (1, 30));
    assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
}

fn running_cancels_when_the_body_fails(world: World) {
    for algorithm in Algorithm::ALL {
        let rate = RateLimit::per_minute("tokens", 100).algorithm(*algorithm);
        let set = world.open(&manual().limit(rate).limit(ResourceLimit::new("connections", 4)));
        let failed = set.run([("tokens", 30)], |_| Err::<(), _>("no answer"));
        assert!(matches!(&failed, Err(RunError::Body("no answer"))));
        assert_eq!(failed.unwrap_err().to_string(), "no answer");
        let now = set.limit("tokens");
        assert_eq!(
            (now.consumed, now.unreported),
            (if algorithm.refunds() { 0 } else { 30 }, 0),
            "{algorithm}"
        );
        assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
    }
}

fn running_cancels_when_the_body_panics(world: World) {
    for algorithm in by_refunds(true) {
        let rate = RateLimit::per_minute("tokens", 100).algorithm(algorithm);
        let set = world.open(&manual().limit(rate).limit(ResourceLimit::new("connections", 4)));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            set.run([("tokens", 30)], |held| -> Result<(), ()> {
                held.adjust("tokens", 20).unwrap();
                // Without the hook: the message is not news.
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        }));
        assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
        let now = set.limit("tokens");
        assert_eq!((now.consumed, now.refunded, now.unreported), (0, 50, 0));
        assert_eq!((set.holds(), set.owes()), (vec![], vec![]));
    }
}

fn a_body_does_not_run_when_the_request_is_refused(world: World) {
    let set = reporting(world);
    let never = set.run([("input", 101)], |_| -> Result<(), ()> { panic!("nothing was acquired") });
    assert!(matches!(never, Err(RunError::Acquire(AcquireError::Never { .. }))));
    let all = set.try_acquire([("connections", 4)]).unwrap();
    let denied = set.try_run([("input", 1)], |_| -> Result<(), ()> { panic!("nothing was acquired") });
    assert!(matches!(denied, Err(RunError::Acquire(AcquireError::Denied(_)))));
    all.release().unwrap();
}

fn acquiring_more_adds_exactly_what_is_named(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30)]).unwrap();
    held.acquire_more([("input", 20), ("output", 5)]).unwrap();
    held.acquire_more([("connections", 2)]).unwrap();
    held.acquire_more([("call_count", 1), ("input", 0)]).unwrap();
    let charged = ["input", "output", "call_count", "connections"].map(|key| held.charged(key));
    assert_eq!(charged, [Some(50), Some(5), Some(2), Some(3)]);
    assert_eq!(set.holds(), pairs([("connections", 3)]));
    // Now all of it can be reported and given back, in one.
    assert_eq!(held.update("input", 45).unwrap(), 5);
    held.update("output", 5).unwrap();
    held.release().unwrap();
    let consumed = ["input", "output", "call_count", "connections"].map(|key| set.limit(key).consumed);
    assert_eq!(consumed, [45, 5, 2, 3]);
    assert_eq!(set.holds(), []);
}

fn acquiring_more_by_a_resolved_request_adds_exactly_what_was_named(world: World) {
    let set = reporting(world);
    let more = set.request().amount("input", 20).build().unwrap();
    let mut held = set.try_acquire(&more).unwrap();
    held.acquire_more(&more).unwrap();
    let charged = ["input", "call_count", "connections"].map(|key| held.charged(key));
    assert_eq!(charged, [Some(40), Some(1), Some(1)], "calls and permits came along the first time only");
    held.cancel().unwrap();
}

fn acquiring_more_is_all_or_none_and_leaves_the_rest_alone(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30), ("connections", 2)]).unwrap();
    let other = set.try_acquire([("output", 90), ("connections", 1)]).unwrap();
    let before = set.stats().unwrap();
    let refused = denial(held.acquire_more([("input", 1), ("output", 11), ("connections", 1)]));
    assert_eq!(refused.violations().map(|it| it.key).collect::<Vec<_>>(), ["output"]);
    assert!(matches!(held.acquire_more([("input", 101)]), Err(AcquireError::Never { .. })));
    assert_eq!((held.charged("input"), held.charged("connections")), (Some(30), Some(2)));
    let after = set.stats().unwrap();
    assert_eq!(after.participants, before.participants);
    for (after, before) in after.limits.iter().zip(&before.limits) {
        assert_eq!((after.available, after.consumed), (before.available, before.consumed));
    }
    held.acquire_more([("input", 1), ("output", 10), ("connections", 1)]).unwrap();
    held.cancel().unwrap();
    other.cancel().unwrap();
    assert!(set.stats().unwrap().limits.iter().all(|it| it.available == it.capacity));
}

fn acquiring_more_owes_a_report_once(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30)]).unwrap();
    held.acquire_more([("input", 10), ("output", 10)]).unwrap();
    assert_eq!(set.owes(), pairs([("input", 1), ("output", 1)]), "for input one was owed already");
    held.update("input", 40).unwrap();
    held.update("output", 10).unwrap();
    assert_eq!(set.owes(), []);
    held.acquire_more([("input", 10)]).unwrap();
    assert_eq!(set.owes(), pairs([("input", 1)]), "what is new is not reported yet");
    assert!(matches!(held.release(), Err(UsageError::Unreported { keys }) if keys == ["input"]));
    assert_eq!((set.limit("input").unreported, set.limit("output").unreported), (1, 0));
    assert_eq!(set.owes(), []);
}

fn acquiring_more_must_name_something(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30)]).unwrap();
    let error = held.acquire_more(()).unwrap_err();
    assert!(matches!(error, AcquireError::BadRequest(BadRequest::NothingMore)), "{error}");
    let unknown = held.acquire_more([("inputs", 1)]);
    assert!(matches!(unknown, Err(AcquireError::BadRequest(BadRequest::UnknownKey { .. }))));
    let twice = held.acquire_more([("input", 1), ("input", 1)]);
    assert!(matches!(twice, Err(AcquireError::BadRequest(BadRequest::KeyTwice { .. }))));
    held.cancel().unwrap();
}

fn an_acquisition_can_end_in_another_thread(world: World) {
    let set = reporting(world);
    let mut held = set.try_acquire([("input", 30), ("connections", 3)]).unwrap();
    let ended = std::thread::spawn(move || {
        held.update("input", 10).unwrap();
        held.release()
    });
    ended.join().unwrap().unwrap();
    assert_eq!((set.holds(), set.limit("input").consumed), (vec![], 10));
}

fn sets_and_acquisitions_go_where_threads_go(world: World) {
    fn goes_anywhere<T: Send + 'static>() {}
    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    goes_anywhere::<Acquisition>();
    goes_anywhere::<AcquireError>();
    is_shared::<LimitSet>();
    is_shared::<limitset::ResolvedRequest>();
    is_shared::<limitset::SetObserver>();
    let set = reporting(world);
    let clones: Vec<_> = (0..4).map(|_| set.limits.clone()).collect();
    let held: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            clones.iter().map(|set| scope.spawn(|| set.try_acquire([("input", 5)]).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(clones);
    assert_eq!(set.holds(), pairs([("connections", 4)]), "clones are one participant");
    drop(held);
    assert_eq!(set.limit("input").consumed, 20);
}
