//! After the grant: reports of less, of more, and again.

use std::time::Duration;

use limitset::limit::MAX_CAPACITY;
use limitset::{Algorithm, CallLimit, RateLimit, Report, UsageError};

use crate::worlds::{MINUTE, World, by_refunds, denial, manual, pairs, rules};

rules![
    what_was_not_used_is_given_back_where_the_algorithm_can,
    what_was_not_used_stays_charged_where_the_algorithm_cannot,
    the_same_report_again_changes_nothing,
    a_report_can_be_corrected_both_ways,
    a_report_above_the_request_is_an_error_and_changes_nothing,
    an_adjustment_may_go_into_debt_at_once,
    debt_is_paid_off_by_time_to_the_nanosecond,
    an_adjustment_gives_back_at_most_what_is_charged,
    an_acquisition_gives_back_only_what_it_charged_itself,
    settling_does_whichever_fits,
    a_refund_never_fills_a_limit_above_its_most,
    permits_can_be_given_back_early,
    permits_cannot_be_had_by_adjusting,
    an_amount_beyond_any_limit_is_an_error,
    a_key_that_was_not_requested_is_an_error_that_names_what_is_held,
    calls_can_be_adjusted_like_rates,
];

fn what_was_not_used_is_given_back_where_the_algorithm_can(world: World) {
    for algorithm in by_refunds(true) {
        let set = world.rate(algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        assert_eq!(held.update("tokens", 250).unwrap(), 350);
        assert_eq!(held.charged("tokens"), Some(250));
        let now = set.limit("tokens");
        assert_eq!((now.available, now.in_use, now.consumed, now.refunded), (750, 250, 250, 350));
        assert_eq!(held.update("tokens", 0).unwrap(), 250);
        held.release().unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.available, now.consumed, now.refunded, now.unreported), (1_000, 0, 600, 0));
    }
}

fn what_was_not_used_stays_charged_where_the_algorithm_cannot(world: World) {
    for algorithm in by_refunds(false) {
        let set = world.rate(algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        assert_eq!(held.update("tokens", 250).unwrap(), 0);
        assert_eq!(held.adjust("tokens", -100).unwrap(), 0);
        assert_eq!(held.settle("tokens", 0).unwrap(), 0);
        assert_eq!(held.charged("tokens"), Some(600));
        held.release().unwrap();
        set.try_acquire([("tokens", 1)]).unwrap().cancel().unwrap();
        let now = set.limit("tokens");
        assert_eq!(
            (now.available, now.consumed, now.refunded, now.unreported),
            (399, 601, 0, 0),
            "{algorithm}"
        );
    }
    assert_eq!(by_refunds(false).count(), 3);
}

fn the_same_report_again_changes_nothing(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        held.update("tokens", 250).unwrap();
        let before = set.stats().unwrap();
        assert_eq!(held.update("tokens", 250).unwrap(), 0);
        assert_eq!(held.settle("tokens", 250).unwrap(), 0);
        assert_eq!(held.adjust("tokens", 0).unwrap(), 0);
        assert_eq!(set.stats().unwrap(), before, "{algorithm}");
        held.release().unwrap();
    }
}

fn a_report_can_be_corrected_both_ways(world: World) {
    for algorithm in by_refunds(true) {
        let set = world.rate(algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        assert_eq!(held.update("tokens", 100).unwrap(), 500);
        assert_eq!(held.update("tokens", 400).unwrap(), 0);
        assert_eq!((held.charged("tokens"), set.limit("tokens").available), (Some(400), 600));
        assert_eq!(held.update("tokens", 300).unwrap(), 100);
        held.release().unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.available, now.consumed, now.refunded), (700, 300, 600));
    }
}

fn a_report_above_the_request_is_an_error_and_changes_nothing(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        let before = set.stats().unwrap();
        let error = held.update("tokens", 601).unwrap_err();
        assert!(matches!(error, UsageError::AboveRequested { used: 601, requested: 600, .. }));
        assert!(error.to_string().starts_with("601 of \"tokens\" used, but only 600 requested"), "{error}");
        assert_eq!(set.stats().unwrap(), before);
        assert_eq!(set.owes(), pairs([("tokens", 1)]), "an error is no report");
        held.update("tokens", 600).unwrap();
        held.release().unwrap();
    }
}

fn an_adjustment_may_go_into_debt_at_once(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 100, MINUTE);
        let mut held = set.try_acquire([("tokens", 80)]).unwrap();
        assert_eq!(held.adjust("tokens", 70).unwrap(), 0);
        assert_eq!(held.charged("tokens"), Some(150));
        // All processes see it before the release.
        let now = set.limit("tokens");
        assert_eq!((now.available, now.debt, now.in_use, now.consumed), (0, 50, 100, 150), "{algorithm}");
        let refused = denial(set.try_acquire([("tokens", 1)]));
        assert_eq!(refused.statuses().get("tokens").unwrap().available, -50);
        held.release().unwrap();
        assert_eq!(set.limit("tokens").debt, 50);
    }
}

fn debt_is_paid_off_by_time_to_the_nanosecond(world: World) {
    for algorithm in Algorithm::ALL {
        // A second pays for one unit, or a minute for sixty.
        let set = world.rate(*algorithm, 60, MINUTE);
        let mut held = set.try_acquire([("tokens", 60)]).unwrap();
        held.adjust("tokens", 30).unwrap();
        held.release().unwrap();
        let wait = denial(set.try_acquire([("tokens", 1)])).retry_after().unwrap();
        if *algorithm == Algorithm::TokenBucket || *algorithm == Algorithm::Gcra {
            assert_eq!(wait, Duration::from_secs(31), "{algorithm}");
        }
        set.advance(wait - Duration::from_nanos(1)).unwrap();
        assert!(set.try_acquire([("tokens", 1)]).is_err(), "{algorithm}");
        set.advance_nanos(1);
        set.check([("tokens", 1)]).unwrap();
        // However much was owed, it is forgotten in the end and no more.
        set.advance(10 * MINUTE).unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.available, now.debt), (60, 0), "{algorithm}");
    }
}

fn an_adjustment_gives_back_at_most_what_is_charged(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        let before = set.stats().unwrap();
        let error = held.adjust("tokens", -601).unwrap_err();
        assert!(matches!(error, UsageError::AboveCharged { asked: 601, charged: 600, .. }));
        assert_eq!(error.to_string(), "601 of \"tokens\" to give back, but only 600 is charged");
        assert!(held.adjust("tokens", i64::MIN).is_err());
        assert_eq!(set.stats().unwrap(), before);
        let given = held.adjust("tokens", -600).unwrap();
        assert_eq!(given, if algorithm.refunds() { 600 } else { 0 });
        held.release().unwrap();
    }
}

fn an_acquisition_gives_back_only_what_it_charged_itself(world: World) {
    for algorithm in by_refunds(true) {
        let set = world.rate(algorithm, 1_000, MINUTE);
        let mut mine = set.try_acquire([("tokens", 300)]).unwrap();
        let mut other = set.try_acquire([("tokens", 500)]).unwrap();
        assert!(mine.adjust("tokens", -301).is_err());
        assert_eq!(mine.update("tokens", 100).unwrap(), 200);
        assert!(mine.adjust("tokens", -101).is_err(), "200 of it are back already");
        mine.cancel().unwrap();
        let now = set.limit("tokens");
        assert_eq!((now.available, now.consumed, now.refunded), (500, 500, 300));
        other.update("tokens", 500).unwrap();
        other.release().unwrap();
        assert_eq!(set.limit("tokens").consumed, 500);
    }
}

fn settling_does_whichever_fits(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 1_000, MINUTE);
        let mut held = set.try_acquire([("tokens", 600)]).unwrap();
        assert_eq!(held.settle("tokens", 1_100).unwrap(), 0);
        let now = set.limit("tokens");
        assert_eq!((now.debt, now.consumed), (100, 1_100), "{algorithm}");
        let given = held.settle("tokens", 200).unwrap();
        assert_eq!(given, if algorithm.refunds() { 900 } else { 0 }, "also of what was charged later");
        let now = set.limit("tokens");
        assert_eq!((now.debt, now.consumed), if algorithm.refunds() { (0, 200) } else { (100, 1_100) });
        held.release().unwrap();
        assert_eq!(set.limit("tokens").unreported, 0);
    }
}

fn a_refund_never_fills_a_limit_above_its_most(world: World) {
    for algorithm in by_refunds(true) {
        let set = world.rate(algorithm, 60, MINUTE);
        let mut held = set.try_acquire([("tokens", 40)]).unwrap();
        set.advance(30 * Duration::from_secs(1)).unwrap();
        held.update("tokens", 0).unwrap();
        assert_eq!(set.limit("tokens").available, 60);
        set.try_acquire([("tokens", 60)]).unwrap().cancel().unwrap();
        let mut all = set.try_acquire([("tokens", 60)]).unwrap();
        assert!(set.try_acquire([("tokens", 1)]).is_err(), "{algorithm}");
        all.update("tokens", 60).unwrap();
        drop((all, held));
    }
}

fn permits_can_be_given_back_early(world: World) {
    let set = world.three_kinds();
    let mut held = set.try_acquire([("connections", 4)]).unwrap();
    assert_eq!(held.update("connections", 3).unwrap(), 1);
    assert_eq!(held.adjust("connections", -1).unwrap(), 1);
    assert_eq!(set.holds(), pairs([("connections", 2)]));
    assert_eq!(held.settle("connections", 1).unwrap(), 1);
    let other = set.try_acquire([("connections", 3)]).unwrap();
    held.release().unwrap();
    assert_eq!(set.holds(), pairs([("connections", 3)]), "what is returned early is not returned again");
    other.release().unwrap();
    let now = set.limit("connections");
    assert_eq!((now.available, now.in_use, now.refunded), (4, 0, 0));
}

fn permits_cannot_be_had_by_adjusting(world: World) {
    let set = world.three_kinds();
    let mut held = set.try_acquire([("connections", 2)]).unwrap();
    let before = set.stats().unwrap();
    for error in [held.adjust("connections", 1).unwrap_err(), held.settle("connections", 3).unwrap_err()] {
        assert!(matches!(&error, UsageError::Permits { key, more: 1 } if key == "connections"), "{error}");
        assert!(error.to_string().starts_with("1 more of \"connections\" cannot be had"), "{error}");
    }
    assert!(matches!(held.update("connections", 3), Err(UsageError::AboveRequested { .. })));
    assert_eq!(set.stats().unwrap(), before);
    // A report cannot get back permits that it has returned.
    held.update("connections", 1).unwrap();
    assert!(matches!(held.update("connections", 2), Err(UsageError::Permits { more: 1, .. })));
    assert_eq!(set.limit("connections").in_use, 1);
    held.release().unwrap();
}

fn an_amount_beyond_any_limit_is_an_error(world: World) {
    for algorithm in Algorithm::ALL {
        let set = world.rate(*algorithm, 10, MINUTE);
        let mut held = set.try_acquire([("tokens", 10)]).unwrap();
        let before = set.stats().unwrap();
        for error in [held.adjust("tokens", i64::MAX), held.settle("tokens", MAX_CAPACITY + 1)] {
            let error = error.unwrap_err();
            assert!(matches!(error, UsageError::TooMuch { most: MAX_CAPACITY, .. }), "{error}");
            assert!(error.to_string().contains("of \"tokens\" is beyond any limit"), "{error}");
        }
        assert_eq!(set.stats().unwrap(), before);
        held.settle("tokens", MAX_CAPACITY).unwrap();
        assert_eq!(set.limit("tokens").consumed, MAX_CAPACITY);
        denial(set.try_acquire([("tokens", 1)]));
        held.release().unwrap();
    }
}

fn a_key_that_was_not_requested_is_an_error_that_names_what_is_held(world: World) {
    let rates = ["input", "output"].map(|key| RateLimit::per_minute(key, 10).report(Report::Optional));
    let set = world.open(&manual().limits(rates).limit(CallLimit::per_minute(5)));
    let mut held = set.try_acquire([("input", 1)]).unwrap();
    for key in ["output", "outputs"] {
        let errors = [held.update(key, 1), held.adjust(key, 1), held.settle(key, 1)];
        for error in errors.map(Result::unwrap_err) {
            assert!(matches!(error, UsageError::NotRequested { .. }));
            let message = format!("this acquisition has nothing of {key:?}; it has input, call_count");
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(held.charged(key), None);
    }
    assert_eq!(set.limit("output").consumed, 0);
    held.release().unwrap();
    let set = world.open(&manual());
    let error = set.try_acquire(()).unwrap().update("input", 1).unwrap_err();
    assert_eq!(error.to_string(), "this acquisition has nothing of \"input\"; it has nothing");
}

fn calls_can_be_adjusted_like_rates(world: World) {
    let set = world.three_kinds();
    let mut held = set.try_acquire([("call_count", 5)]).unwrap();
    assert_eq!(held.update("call_count", 2).unwrap(), 3);
    assert_eq!(held.adjust("call_count", 9).unwrap(), 0);
    let now = set.limit("call_count");
    assert_eq!((now.debt, now.consumed, now.refunded), (1, 11, 3));
    held.release().unwrap();
}
