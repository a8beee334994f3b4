//! What can be asked, and in which forms.

use std::collections::HashMap;

use limitset::{AcquireError, BadRequest, CallLimit, RateLimit, Report, Request, ResourceLimit};

use crate::worlds::{Set, World, manual, pairs, rules, three_kinds};

rules![
    every_form_of_a_request_asks_for_the_same,
    nothing_named_means_one_of_each_call_and_permit,
    nothing_named_is_an_error_where_there_is_a_rate_and_names_the_rate,
    rates_that_are_not_named_are_left_alone,
    calls_and_permits_come_along_unless_more_or_less_is_asked,
    an_amount_of_0_leaves_a_limit_alone,
    an_unknown_key_is_an_error_that_names_those_there_are,
    a_key_named_twice_is_an_error,
    a_bad_request_changes_nothing,
    a_request_resolved_for_other_limits_is_refused,
    a_request_resolved_for_equal_limits_is_accepted,
    a_resolved_request_can_be_used_again_and_again,
    a_label_is_kept_and_the_one_given_last_wins,
    an_empty_set_grants_everything_and_knows_no_key,
];

fn takes_five<'r>(set: &Set, request: impl Into<Request<'r>>) {
    let held = set.try_acquire(request).unwrap();
    let charged = ["call_count", "tokens", "connections"].map(|key| held.charged(key));
    assert_eq!(charged, [Some(1), Some(5), Some(1)]);
    held.release().unwrap();
}

fn every_form_of_a_request_asks_for_the_same(world: World) {
    let set = world.three_kinds();
    takes_five(&set, [("tokens", 5)]);
    takes_five(&set, Request::from(&[("tokens", 5)]));
    takes_five(&set, &[("tokens", 5), ("connections", 1)][..]);
    takes_five(&set, vec![("tokens", 5)].as_slice());
    takes_five(&set, &HashMap::from([("tokens", 5)]));
    takes_five(&set, &HashMap::from([("tokens".to_owned(), 5)]));
    takes_five(&set, &set.request().amount("tokens", 5).build().unwrap());
    takes_five(&set, Request::from([("tokens", 5)]).label("chat"));
    assert_eq!(set.limit("tokens").consumed, 8 * 5);
    assert_eq!(set.limit("call_count").consumed, 8);
    assert_eq!((set.limit("connections").consumed, set.limit("connections").in_use), (8, 0));
}

fn nothing_named_means_one_of_each_call_and_permit(world: World) {
    let calls = [CallLimit::per_minute(10), CallLimit::per_day(20).key("rpd")];
    let set = world.open(&manual().limits(calls).limit(ResourceLimit::new("connections", 4)));
    let resolved = set.request().build().unwrap();
    let held = [
        set.try_acquire(()).unwrap(),
        set.try_acquire([]).unwrap(),
        set.try_acquire(&HashMap::<String, u64>::new()).unwrap(),
        set.try_acquire(&resolved).unwrap(),
    ];
    for held in &held {
        let charged = ["call_count", "rpd", "connections"].map(|key| held.charged(key));
        assert_eq!(charged, [Some(1), Some(1), Some(1)]);
    }
    assert_eq!(set.holds(), pairs([("connections", 4)]));
}

fn nothing_named_is_an_error_where_there_is_a_rate_and_names_the_rate(world: World) {
    let set = world.three_kinds();
    let expected = BadRequest::Unnamed { key: "tokens".to_owned() };
    assert!(matches!(set.try_acquire(()), Err(AcquireError::BadRequest(it)) if it == expected));
    assert!(matches!(set.check([]), Err(AcquireError::BadRequest(it)) if it == expected));
    assert_eq!(set.request().build().unwrap_err(), expected);
    assert!(expected.to_string().contains("rate \"tokens\""), "{expected}");
    // Anything named is enough, be it none of the rate.
    set.try_acquire([("tokens", 0)]).unwrap().release().unwrap();
    set.try_acquire([("connections", 1)]).unwrap().release().unwrap();
    assert_eq!(set.limit("tokens").consumed, 0);
}

fn rates_that_are_not_named_are_left_alone(world: World) {
    let rates = ["input", "output"].map(|key| RateLimit::per_minute(key, 10).report(Report::Optional));
    let set = world.open(&manual().limits(rates));
    let held = set.try_acquire([("output", 10)]).unwrap();
    assert_eq!((held.charged("input"), held.charged("output")), (None, Some(10)));
    // A rate that is not named denies no request, exhausted or not.
    set.try_acquire([("input", 3)]).unwrap().release().unwrap();
    assert_eq!((set.limit("input").granted, set.limit("output").granted), (1, 1));
    assert_eq!((set.limit("input").consumed, set.limit("output").consumed), (3, 10));
}

fn calls_and_permits_come_along_unless_more_or_less_is_asked(world: World) {
    let set = world.three_kinds();
    let usual = set.try_acquire([("tokens", 1)]).unwrap();
    let more = set.try_acquire([("call_count", 7), ("connections", 2)]).unwrap();
    let less = set.try_acquire([("call_count", 0), ("connections", 1)]).unwrap();
    assert_eq!((usual.charged("call_count"), usual.charged("connections")), (Some(1), Some(1)));
    assert_eq!((more.charged("call_count"), more.charged("connections")), (Some(7), Some(2)));
    assert_eq!((less.charged("call_count"), less.charged("connections")), (Some(0), Some(1)));
    assert_eq!((set.limit("call_count").consumed, set.limit("connections").in_use), (8, 4));
    assert_eq!(set.holds(), pairs([("connections", 4)]));
}

fn an_amount_of_0_leaves_a_limit_alone(world: World) {
    let set = world.three_kinds();
    let all = set.try_acquire([("tokens", 1_000), ("call_count", 10), ("connections", 4)]).unwrap();
    // Everything is used up, and nothing is wanted.
    let none = set.try_acquire([("tokens", 0), ("call_count", 0), ("connections", 0)]).unwrap();
    assert_eq!(none.charged("tokens"), Some(0));
    none.release().unwrap();
    for limit in set.stats().unwrap().limits {
        assert_eq!((limit.granted, limit.denied, limit.available), (1, 0, 0), "{limit:?}");
    }
    all.release().unwrap();
}

fn an_unknown_key_is_an_error_that_names_those_there_are(world: World) {
    let set = world.three_kinds();
    let expected = BadRequest::UnknownKey {
        key: "token".to_owned(),
        known: "call_count, tokens, connections".to_owned(),
    };
    let asked = [("tokens", 1), ("token", 1)];
    assert!(matches!(set.try_acquire(asked), Err(AcquireError::BadRequest(it)) if it == expected));
    assert!(matches!(set.check(asked), Err(AcquireError::BadRequest(it)) if it == expected));
    assert_eq!(set.request().amount("token", 1).build().unwrap_err(), expected);
    let message = "there is no limit \"token\" in this set; it has call_count, tokens, connections";
    assert_eq!(expected.to_string(), message);
}

fn a_key_named_twice_is_an_error(world: World) {
    let set = world.three_kinds();
    let expected = BadRequest::KeyTwice { key: "tokens".to_owned() };
    for asked in [[("tokens", 1), ("tokens", 2)], [("tokens", 0), ("tokens", 0)]] {
        assert!(matches!(set.try_acquire(asked), Err(AcquireError::BadRequest(it)) if it == expected));
    }
    let built = set.request().amount("tokens", 1).amount("call_count", 1).amount("tokens", 1).build();
    assert_eq!(built.unwrap_err(), expected);
}

fn a_bad_request_changes_nothing(world: World) {
    let set = world.three_kinds();
    let before = set.stats().unwrap();
    assert!(set.try_acquire([("tokens", 1), ("token", 1)]).is_err());
    assert!(set.try_acquire([("tokens", 1), ("tokens", 1)]).is_err());
    assert!(set.try_acquire(()).is_err());
    assert_eq!(set.stats().unwrap(), before);
}

fn a_request_resolved_for_other_limits_is_refused(world: World) {
    let set = world.three_kinds();
    let tokens = || RateLimit::per_minute("tokens", 1_000).report(Report::Optional);
    let (calls, connections) = (|| CallLimit::per_minute(10), || ResourceLimit::new("connections", 4));
    let others = [
        manual().limit(calls()).limit(tokens()),
        // The same in another order: numbers of limits would be mixed up.
        manual().limit(tokens()).limit(calls()).limit(connections()),
        manual().limit(calls()).limit(tokens()).limit(ResourceLimit::new("connections", 5)),
        manual().limit(calls()).limit(RateLimit::per_minute("tokens", 1_000)).limit(connections()),
    ];
    for other in others {
        let other = world.open(&other);
        let resolved = other.request().amount("tokens", 5).build().unwrap();
        other.try_acquire(&resolved).unwrap().cancel().unwrap();
        let answers = [set.try_acquire(&resolved).map(drop), set.check(&resolved).map(drop), {
            let mut held = set.try_acquire([("tokens", 1)]).unwrap();
            held.acquire_more(&resolved)
        }];
        for answer in answers {
            let answer = answer.unwrap_err();
            assert!(matches!(answer, AcquireError::BadRequest(BadRequest::OtherLimits)), "{answer}");
        }
    }
}

fn a_request_resolved_for_equal_limits_is_accepted(world: World) {
    let set = world.three_kinds();
    let twin = World::Thread.open(&three_kinds().config("region", "eu"));
    let resolved = twin.request().amount("tokens", 5).build().unwrap();
    takes_five(&set, &resolved);
    assert_eq!(twin.limit("tokens").consumed, 0);
    // Numbers changed live make no other set of it.
    set.reconfigure([CallLimit::per_minute(20)]).unwrap();
    takes_five(&set, &resolved);
}

fn a_resolved_request_can_be_used_again_and_again(world: World) {
    let set = world.three_kinds();
    let resolved = set.request().amount("tokens", 300).build().unwrap();
    let clone = resolved.clone();
    let held: Vec<_> = (0..3).map(|_| set.try_acquire(&clone).unwrap()).collect();
    assert!(set.try_acquire(&resolved).is_err(), "only 100 are left");
    assert_eq!((set.limit("tokens").consumed, set.limit("connections").in_use), (900, 3));
    drop(held);
    assert_eq!(set.limit("connections").in_use, 0);
}

fn a_label_is_kept_and_the_one_given_last_wins(world: World) {
    let set = world.three_kinds();
    assert_eq!(Request::from([("tokens", 5)]).name(), None);
    assert_eq!(Request::from([("tokens", 5)]).label("chat").name(), Some("chat"));
    let resolved = set.request().amount("tokens", 5).label("batch").build().unwrap();
    assert_eq!(Request::from(&resolved).name(), Some("batch"));
    assert_eq!(Request::from(&resolved).label("chat").name(), Some("chat"));
    takes_five(&set, Request::from(&resolved).label("chat"));
}

fn an_empty_set_grants_everything_and_knows_no_key(world: World) {
    let set = world.open(&manual().config("region", "eu"));
    let held = set.try_acquire(()).unwrap();
    assert!(held.enforced());
    assert_eq!(held.config()["region"], "eu");
    held.release().unwrap();
    set.run((), |_| Ok::<_, ()>(())).unwrap();
    assert_eq!(set.check(()).unwrap().iter().count(), 0);
    let unknown = set.try_acquire([("tokens", 1)]).unwrap_err().to_string();
    assert_eq!(unknown, "there is no limit \"tokens\" in this set; it has none");
    assert!(set.limits().is_empty() && set.stats().unwrap().limits.is_empty());
    set.reset().unwrap();
}
