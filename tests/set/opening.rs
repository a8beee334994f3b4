//! Opening a set: invalid declarations, kept declarations, regions beside the set.

use limitset::error::{AttachError, BadOption, CreateError};
use limitset::limit::{BadLimit, MAX_LIMITS};
use limitset::{Algorithm, CallLimit, Limit, LimitSet, OpenError, RateLimit, Report, ResourceLimit, Segment};

use crate::support::TempName;
use crate::worlds::{HOUR, World, manual, rules, three_kinds};

rules![
    a_limit_that_cannot_be_is_refused_by_name,
    a_set_has_at_most_64_limits_and_all_of_them_work,
    a_config_map_has_its_bounds,
    segment_options_that_cannot_be_are_refused,
    every_acquisition_can_read_the_config,
    limits_are_kept_in_order_and_as_declared,
    other_regions_live_beside_the_set,
    every_algorithm_can_be_in_one_set,
    a_set_by_name_can_be_attached_to_without_its_definition,
    creating_a_set_that_exists_is_an_error,
    a_plain_segment_is_not_a_set_nor_the_reverse,
];

fn a_limit_that_cannot_be_is_refused_by_name(world: World) {
    let long = "k".repeat(65);
    let bad: [(Limit, &str); 9] = [
        (RateLimit::per_minute("rows", 0).into(), "limit \"rows\" has capacity 0"),
        (CallLimit::new(1, std::time::Duration::ZERO).into(), "limit \"call_count\" has a window of 0ns"),
        (ResourceLimit::new("files", 0).into(), "limit \"files\" has capacity 0"),
        (ResourceLimit::new("", 1).into(), "limit number 2 has an empty key"),
        (ResourceLimit::new("tokens", 1).into(), "two limits have the key \"tokens\""),
        (ResourceLimit::new(&long, 1).into(), "has 65 bytes"),
        (RateLimit::per_day("rows", u64::MAX).into(), "limit \"rows\" has capacity 18446744073709551615"),
        (CallLimit::per_day(1).burst(0).into(), "limit \"call_count\" has burst 0"),
        (
            RateLimit::per_day("rows", 1).algorithm(Algorithm::FixedWindow).burst(2).into(),
            "limit \"rows\" has a burst of 2, which fixed_window does not support",
        ),
    ];
    for (limit, message) in bad {
        let builder = manual().limit(RateLimit::per_minute("tokens", 1)).limit(limit);
        let Err(OpenError::Limit(error)) = world.try_open(&builder) else { panic!("{message}") };
        assert!(error.to_string().contains(message), "{error}");
    }
}

fn a_set_has_at_most_64_limits_and_all_of_them_work(world: World) {
    let limits = |count: usize| (0..count).map(|n| ResourceLimit::new(format!("r{n}"), 2));
    let too_many = world.try_open(&manual().limits(limits(MAX_LIMITS + 1)));
    let Err(OpenError::Limit(error)) = too_many else { panic!("65 limits") };
    assert!(matches!(&error, BadLimit::TooMany { key, found: 65, most: 64 } if key == "r64"), "{error}");
    let set = world.open(&manual().limits(limits(MAX_LIMITS)));
    let (first, second) = (set.try_acquire(()).unwrap(), set.try_acquire([("r63", 0)]).unwrap());
    let refused = crate::worlds::denial(set.try_acquire(()));
    assert_eq!((refused.statuses().iter().count(), refused.violations().count()), (64, 63));
    drop((first, second));
    assert!(set.stats().unwrap().limits.iter().all(|it| it.in_use == 0 && it.available == 2));
    // The largest transaction there is: 64 rates that need a report, each with cells.
    let sliding = |n| RateLimit::per_minute(format!("r{n}"), 9).algorithm(Algorithm::SlidingWindow);
    let set = world.open(&manual().limits((0..MAX_LIMITS).map(sliding)));
    let all = (0..MAX_LIMITS).fold(set.request(), |request, n| request.amount(format!("r{n}"), 9));
    let all = all.build().unwrap();
    set.try_acquire(&all).unwrap().cancel().unwrap();
    assert_eq!(crate::worlds::denial(set.try_acquire(&all)).violations().count(), 64);
    set.reset().unwrap();
    set.reconfigure((0..MAX_LIMITS).map(sliding)).unwrap();
    drop(set.try_acquire(&all).unwrap());
    assert!(set.stats().unwrap().limits.iter().all(|it| it.unreported == 1 && it.consumed == 18));
}

fn a_config_map_has_its_bounds(world: World) {
    let large = world.try_open(&manual().config("note", "x".repeat(1 << 20)));
    let Err(OpenError::Limit(error)) = large else { panic!("a megabyte of config") };
    assert!(matches!(error, BadLimit::ConfigTooLarge { .. }), "{error}");
    let set =
        world.open(&manual().config("", "").config("größe", "ß\0\n").config("note", "a").config("note", "b"));
    let config: Vec<_> = set.config().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(config, [("", ""), ("größe", "ß\0\n"), ("note", "b")]);
}

fn segment_options_that_cannot_be_are_refused(world: World) {
    let none = world.try_open(&three_kinds().segment(Segment::options().slots(0)));
    assert!(matches!(none, Err(OpenError::Segment(CreateError::Option(BadOption::Count { .. })))));
    let twice = Segment::options().semaphore("db", 1).mutex("db", 1);
    let twice = world.try_open(&three_kinds().segment(twice));
    assert!(matches!(twice, Err(OpenError::Segment(CreateError::Option(BadOption::LabelTwice { .. })))));
}

fn every_acquisition_can_read_the_config(world: World) {
    let set = world.open(&three_kinds().config("region", "eu").config("account", "7"));
    let held = set.try_acquire([("tokens", 1)]).unwrap();
    assert_eq!((held.config()["region"].as_str(), held.config()["account"].as_str()), ("eu", "7"));
    assert!(std::ptr::eq(held.config(), set.config()), "one map, not a copy for each");
    assert!(std::ptr::eq(held.set().config(), set.config()));
    if world == World::Process {
        assert_eq!(LimitSet::attach(&set.name).unwrap().config(), set.config());
    }
    held.release().unwrap();
}

fn limits_are_kept_in_order_and_as_declared(world: World) {
    let declared: [Limit; 5] = [
        ResourceLimit::new("z", 1).into(),
        CallLimit::per_minute(500).into(),
        CallLimit::per_day(10_000).key("rpd").algorithm(Algorithm::FixedWindow).into(),
        RateLimit::new("rows", 7, HOUR).algorithm(Algorithm::SlidingWindow).resolution(24).into(),
        RateLimit::per_second("a", 9).algorithm(Algorithm::Gcra).burst(3).report(Report::Optional).into(),
    ];
    let set = world.open(&manual().limits(declared.clone()));
    assert_eq!(set.limits(), declared);
    if world == World::Process {
        assert_eq!(LimitSet::attach(&set.name).unwrap().limits(), declared);
        assert_eq!(LimitSet::observe(&set.name).unwrap().limits(), declared);
    }
}

fn other_regions_live_beside_the_set(world: World) {
    let beside = Segment::options().slots(4).semaphore("db", 2).mutex("pair", 2).words("own", 1);
    let set = world.open(&three_kinds().segment(beside));
    let held = set.try_acquire([("tokens", 5)]).unwrap();
    let db = set.segment().semaphore("db").unwrap();
    let permit = db.acquire(2).unwrap();
    let pair = set.segment().mutex("pair").unwrap();
    pair.lock().unwrap().guard().update(|words| words.set(0, 7)).unwrap();
    assert_eq!((db.available().unwrap(), pair.snapshot().unwrap()), (0, vec![7, 0]));
    assert_eq!(set.segment().words("own").unwrap().len(), 1);
    assert_eq!(set.limit("connections").in_use, 1);
    permit.release().unwrap();
    held.release().unwrap();
    assert_eq!((db.available().unwrap(), set.limit("connections").in_use), (2, 0));
}

fn every_algorithm_can_be_in_one_set(world: World) {
    let rate = |it: &Algorithm| RateLimit::per_minute(it.name(), 10).algorithm(*it).report(Report::Optional);
    let set = world.open(&manual().limits(Algorithm::ALL.iter().map(rate)));
    let all = Algorithm::ALL.iter().fold(set.request(), |request, it| request.amount(it.name(), 6));
    let all = all.build().unwrap();
    set.try_acquire(&all).unwrap().release().unwrap();
    assert_eq!(crate::worlds::denial(set.try_acquire(&all)).violations().count(), Algorithm::ALL.len());
    assert!(set.stats().unwrap().limits.iter().all(|it| (it.available, it.consumed) == (4, 6)));
    set.advance(2 * crate::worlds::MINUTE).unwrap();
    set.try_acquire(&all).unwrap().release().unwrap();
}

fn a_set_by_name_can_be_attached_to_without_its_definition(world: World) {
    let set = world.open(&three_kinds().config("region", "eu"));
    if world != World::Process {
        let name = TempName::new();
        assert!(matches!(LimitSet::attach(&name), Err(AttachError::NotFound { .. })));
        assert!(matches!(LimitSet::observe(&name), Err(AttachError::NotFound { .. })));
        return;
    }
    // What an attaching builder describes plays no part.
    let other =
        manual().limit(ResourceLimit::new("other", 1)).config("region", "us").attach(&set.name).unwrap();
    assert_eq!((other.limits(), other.config(), other.clock()), (set.limits(), set.config(), set.clock()));
    let held = other.try_acquire([("tokens", 5), ("connections", 3)]).unwrap();
    assert_eq!((set.limit("tokens").consumed, set.limit("connections").in_use), (5, 3));
    other.advance(crate::worlds::MINUTE).unwrap();
    assert_eq!(set.limit("tokens").available, 1_000);
    // Both handles are of one process, each a participant of its own.
    assert_eq!(set.stats().unwrap().participants.len(), 2);
    drop(held);
}

fn creating_a_set_that_exists_is_an_error(world: World) {
    let set = world.three_kinds();
    let again = three_kinds().create(&set.name);
    if world == World::Process {
        assert!(matches!(again, Err(OpenError::Segment(CreateError::Exists { .. }))), "{again:?}");
    } else {
        // The others have no name, so this one was free.
        again.unwrap().remove().unwrap();
    }
}

fn a_plain_segment_is_not_a_set_nor_the_reverse(world: World) {
    let name = TempName::new();
    let options = Segment::options().slots(4).waiters(2).semaphore("db", 1);
    let plain = options.create(&name).unwrap();
    let errors = [
        LimitSet::attach(&name).unwrap_err(),
        LimitSet::observe(&name).map(drop).unwrap_err(),
        match three_kinds().open(&name) {
            Err(OpenError::Segment(CreateError::Attach(error))) => error,
            other => panic!("{other:?}"),
        },
    ];
    for error in errors {
        assert!(matches!(error, AttachError::NotASet { .. }), "{error}");
        assert!(error.to_string().contains(&name.0), "{error}");
    }
    assert_eq!(plain.participants().len(), 1, "who is refused leaves its slot");
    let set = world.open(&manual());
    if world == World::Process {
        let as_plain = Segment::options().slots(4).waiters(2).open(&set.name);
        assert!(matches!(as_plain, Err(CreateError::Attach(AttachError::Differs { .. }))), "{as_plain:?}");
    }
}
