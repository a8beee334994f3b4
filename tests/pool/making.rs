//! What pools are made of: anything, in whichever mode; and pools as text, for other processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use limitset::{
    AnyLimits, Balance, CallLimit, Limit, LimitPool, LimitSet, PoolDescription, PoolError, ResourceLimit,
    Sharing,
};

use crate::support::{TempName, Worker, listen, say};
use crate::{ALL, open_sets, permit};

pub(crate) const TESTS: [(&str, fn()); 9] = [
    ("nothing_becomes_limits_that_allow_everything", nothing),
    ("limits_become_a_set_for_those_who_share_it", limits),
    ("sets_and_pools_stay_what_they_are", sets_and_pools),
    ("a_set_for_threads_given_to_processes_is_an_error_that_says_so", thread_mode),
    ("a_pool_of_no_sets_is_none", no_sets),
    ("a_description_is_what_it_describes", description),
    ("another_process_attaches_by_description", other_process),
    ("any_path_can_be_described", odd_paths),
    ("what_describes_no_pool_is_an_error", bad_texts),
];

const BOTH: [Sharing; 2] = [Sharing::Threads, Sharing::Processes];

fn pool_of<A: Into<AnyLimits>>(any: A, sharing: Sharing) -> LimitPool {
    any.into().into_pool(sharing).unwrap()
}

fn named(name: &TempName) -> LimitSet {
    LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(name).unwrap()
}

fn nothing() {
    for sharing in BOTH {
        for pool in [
            pool_of((), sharing),
            pool_of(Vec::<Limit>::new(), sharing),
            pool_of::<[CallLimit; 0]>([], sharing),
        ] {
            for _ in 0..1_000 {
                pool.acquire(()).unwrap().release().unwrap();
            }
            pool.try_acquire([("tokens", 1)]).unwrap_err();
            assert_eq!(pool.len(), 1);
        }
    }
}

fn limits() {
    for sharing in BOTH {
        let limit = CallLimit::per_hour(3);
        let mixed: Vec<Limit> = vec![limit.clone().into(), ResourceLimit::new("db", 4).into()];
        for pool in [
            pool_of([limit.clone()], sharing),
            pool_of(vec![limit.clone()], sharing),
            pool_of(mixed, sharing),
        ] {
            let granted = (0..10).filter(|_| pool.try_acquire(()).is_ok()).count();
            assert_eq!(granted, 3);
            let is_shared = sharing == Sharing::Processes;
            assert_eq!(pool.sets()[0].segment().is_shared(), is_shared);
        }
        let bad = AnyLimits::from([CallLimit::per_hour(0)]).into_pool(sharing).unwrap_err();
        assert!(matches!(bad, PoolError::Open(_)), "{bad}");
    }
}

fn sets_and_pools() {
    let names = [TempName::new(), TempName::new()];
    let sets = names.each_ref().map(named);
    for sharing in BOTH {
        let pool = LimitPool::new(sets.clone()).unwrap().balance(Balance::FirstFree);
        let made = [
            (1, pool_of(&sets[0], sharing)),
            (1, pool_of(sets[0].clone(), sharing)),
            (2, pool_of(sets.clone(), sharing)),
            (2, pool_of(sets.to_vec(), sharing)),
            (2, pool_of(&sets[..], sharing)),
            (2, pool_of(&pool, sharing)),
            (2, pool_of(pool, sharing)),
        ];
        for (count, pool) in made {
            assert_eq!(pool.len(), count);
            let _held = pool.try_acquire(()).unwrap();
            assert_eq!(sets[0].stats().unwrap().limit("db").unwrap().in_use, 1, "the very set");
        }
    }
    let pool = LimitPool::new(sets).unwrap().balance(Balance::Random).for_worker(4);
    let stats = pool_of(pool, Sharing::Processes).stats();
    assert_eq!((stats.balance, stats.worker), (Balance::Random, 4));
}

fn thread_mode() {
    let name = TempName::new();
    let refused = [
        (0, AnyLimits::from(permit())),
        (0, AnyLimits::from(&permit())),
        (1, AnyLimits::from([named(&name), permit()])),
        (1, AnyLimits::from(vec![named(&name), permit()])),
        (1, AnyLimits::from(&[named(&name), permit()][..])),
        (0, AnyLimits::from(open_sets(1))),
    ];
    for (expected, any) in refused {
        assert!(any.clone().into_pool(Sharing::Threads).is_ok(), "threads may");
        let error = any.into_pool(Sharing::Processes).unwrap_err();
        assert!(matches!(error, PoolError::ThreadMode { index } if index == expected), "{error}");
        let said = error.to_string();
        assert!(said.contains(&format!("cannot share set {expected} between processes")), "{said}");
    }
    let anonymous = LimitSet::builder().open_anonymous().unwrap();
    assert!(AnyLimits::from(anonymous).into_pool(Sharing::Processes).is_ok());
}

fn no_sets() {
    for sharing in BOTH {
        let error = AnyLimits::from(Vec::<LimitSet>::new()).into_pool(sharing).unwrap_err();
        assert!(matches!(error, PoolError::NoSets), "{error}");
    }
    assert!(matches!(LimitPool::new([]), Err(PoolError::NoSets)));
}

fn description() {
    let names = [TempName::new(), TempName::new()];
    let sets = names.each_ref().map(named);
    for balance in ALL {
        let described = LimitPool::new(sets.clone()).unwrap().balance(balance).describe().unwrap();
        let text = described.to_string();
        assert_eq!(text, format!("{}:{}:{}", balance.name(), names[0].0, names[1].0));
        assert_eq!(text.parse(), Ok(described.clone()));
        let pool = described.attach().unwrap();
        assert_eq!((pool.len(), pool.stats().balance), (2, balance));
    }
    let error = LimitPool::new([sets[0].clone(), permit()]).unwrap().describe().unwrap_err();
    assert!(matches!(error, PoolError::NoName { index: 1 }), "{error}");
    let anonymous = LimitSet::builder().open_anonymous().unwrap();
    let error = LimitPool::new([anonymous]).unwrap().describe().unwrap_err();
    assert!(error.to_string().contains("open it by name"), "{error}");
}

/// Takes from a pool that it knows by text alone.
pub(crate) fn role(arguments: &[String]) {
    let pool = arguments[0].parse::<PoolDescription>().unwrap().attach().unwrap().for_worker(1);
    let held = pool.acquire(()).unwrap();
    say(&held.pool_index().unwrap().to_string());
    listen();
}

fn other_process() {
    let names = [TempName::new(), TempName::new()];
    let pool = LimitPool::new(names.each_ref().map(named)).unwrap().balance(Balance::FirstFree);
    let text = pool.describe().unwrap().to_string();
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start("describe", &[&text])).collect();
    let mut places: Vec<_> = workers.iter_mut().map(Worker::hear).collect();
    places.sort();
    assert_eq!(places, ["0", "1"], "each has one, and both are taken");
    pool.try_acquire(()).unwrap_err();
    workers[0].kill();
    let back: u64 = pool.sets().iter().map(|set| set.reap().unwrap()).sum();
    assert_eq!(back, 1);
    pool.try_acquire(()).unwrap().release().unwrap();
}

fn odd_paths() {
    let folder = std::env::temp_dir().join(format!("limitset-pool-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let odd: [&[u8]; 4] = [b"eu:1", b"50% and more", b"caf\xe9", "caf\u{e9}".as_bytes()];
    let sets = odd.map(|name| {
        LimitSet::builder()
            .limit(ResourceLimit::new("db", 1))
            .open(folder.join(OsStr::from_bytes(name)))
            .unwrap()
    });
    let described = LimitPool::new(sets).unwrap().describe().unwrap();
    let text = described.to_string();
    let parsed = text.parse::<PoolDescription>();
    let attached = parsed.as_ref().map(PoolDescription::attach);
    let count = attached.map(|pool| pool.map(|pool| pool.len()));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.is_ascii(), "{text}");
    assert_eq!(parsed, Ok(described));
    assert_eq!(count.unwrap().unwrap(), 4, "{text}");
}

fn bad_texts() {
    for text in [
        "",
        "random",
        "random:",
        "random:a:",
        ":a",
        "random::a",
        "Random:a",
        "first:a",
        "random:a%",
        "random:%4",
        "random:%zz",
        "random:%+f",
        "random:%é",
        "random:a%00",
    ] {
        let error = text.parse::<PoolDescription>().unwrap_err();
        assert_eq!(error.found, text);
        assert!(error.to_string().contains("round_robin:name:name"), "{error}");
    }
    let name = TempName::new();
    let gone = format!("random:{}", name.0).parse::<PoolDescription>().unwrap();
    assert!(matches!(gone.attach(), Err(PoolError::Attach(_))));
    let bad_name = "random:-x".parse::<PoolDescription>().unwrap();
    assert!(matches!(bad_name.attach(), Err(PoolError::Attach(_))));
}
