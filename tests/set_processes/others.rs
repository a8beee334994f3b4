//! Another process at the same set.

use limitset::{AcquireError, LimitSet, ManageError, ResourceLimit, UsageError};

use crate::support::{TempName, Worker};
use crate::{builder, limit};

pub(crate) fn user(name: &str, how: &str) -> Worker {
    let mut worker = Worker::start("user", &[name, how]);
    worker.expect("attached");
    worker
}

/// Tells a worker to acquire, which must be granted.
pub(crate) fn acquires(worker: &mut Worker, tokens: u64, connections: u64) {
    worker.tell(&format!("acquire {tokens} {connections}"));
    worker.expect("granted");
}

pub(crate) fn attaching() {
    let name = TempName::new();
    let set = builder().open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    worker.tell("describe");
    for limit in set.limits() {
        worker.expect(&limit.to_string());
    }
    worker.expect("{\"region\": \"eu\"}");
    let pids: Vec<_> = set.stats().unwrap().participants.into_iter().map(|it| it.info.unwrap().pid).collect();
    let expected = [std::process::id(), u32::try_from(worker.pid().as_raw()).unwrap()];
    assert_eq!(pids, expected.map(u64::from));
}

pub(crate) fn sharing() {
    let name = TempName::new();
    let set = builder().open(&name).unwrap();
    let mut worker = user(&name.0, "open");
    acquires(&mut worker, 60, 3);
    let held = set.try_acquire([("tokens", 30)]).unwrap();
    worker.tell("acquire 20 0");
    worker.expect("20 of \"tokens\" wanted, 10 available: try again in 6s");
    set.advance(std::time::Duration::from_secs(6)).unwrap();
    acquires(&mut worker, 20, 0);
    worker.tell("acquire 0 1");
    worker.expect("1 of \"connections\" wanted, 0 available: try again when others have given theirs back");
    let stats = set.stats().unwrap();
    assert_eq!(LimitSet::observe(&name).unwrap().stats().unwrap(), stats);
    let [mine, theirs] = stats.participants.as_slice() else { panic!("{stats:?}") };
    assert_eq!((mine.holds[0].1, mine.owes_reports[0].1), (1, 1));
    assert_eq!((theirs.holds[0].1, theirs.owes_reports[0].1), (3, 2));
    let [tokens, calls, connections] = stats.limits.as_slice() else { panic!("{stats:?}") };
    assert_eq!((tokens.consumed, tokens.granted, tokens.denied, tokens.available), (110, 3, 1, 0));
    assert_eq!((calls.consumed, calls.granted), (3, 3));
    assert_eq!((connections.in_use, connections.denied), (4, 1));
    worker.tell("cancel");
    worker.expect("cancelled");
    held.cancel().unwrap();
    assert_eq!((limit(&set, "tokens").available, limit(&set, "connections").available), (100, 4));
}

pub(crate) fn reconfiguring() {
    let name = TempName::new();
    let set = builder().open(&name).unwrap();
    let mut worker = user(&name.0, "attach");
    acquires(&mut worker, 0, 4);
    worker.tell("acquire 0 5");
    worker.expect("5 of \"connections\" can never be had: at most 4 at once; ask for less");
    set.reconfigure([ResourceLimit::new("connections", 9)]).unwrap();
    acquires(&mut worker, 0, 5);
    worker.tell("reconfigure 2");
    worker.expect("reconfigured");
    assert!(matches!(set.try_acquire([("connections", 3)]), Err(AcquireError::Never { most: 2, .. })));
    let now = limit(&set, "connections");
    assert_eq!((now.capacity, now.revision, now.in_use), (2, 2, 9));
    // Who opens it as it was declared finds no difference.
    assert_eq!(limit(&builder().open(&name).unwrap(), "connections").capacity, 2);
}

pub(crate) fn removing() {
    let name = TempName::new();
    let set = builder().open(&name).unwrap();
    let (mut first, mut second) = (user(&name.0, "open"), user(&name.0, "attach"));
    acquires(&mut second, 10, 1);
    let held = set.try_acquire([("tokens", 10)]).unwrap();
    let observer = LimitSet::observe(&name).unwrap();
    first.tell("remove");
    first.expect("removed");
    assert!(matches!(set.try_acquire([("tokens", 1)]), Err(AcquireError::Removed)));
    assert!(matches!(set.reset(), Err(ManageError::Removed)));
    assert!(matches!(held.release(), Err(UsageError::Removed)));
    for worker in [&mut first, &mut second] {
        worker.tell("acquire 1 0");
        worker.expect("the set was removed: open it again");
    }
    // The name is free, and what comes has nothing to do with what was.
    let new = builder().create(&name).unwrap();
    new.try_acquire([("tokens", 100)]).unwrap().cancel().unwrap();
    assert_eq!(limit(&new, "tokens").granted, 1);
    assert_eq!(observer.stats().unwrap().limit("tokens").unwrap().granted, 2);
    assert!(matches!(set.try_acquire([("tokens", 1)]), Err(AcquireError::Removed)));
}

pub(crate) fn file() {
    let directory = std::env::temp_dir().join(TempName::new().0.as_str());
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("limits");
    let text = path.to_str().unwrap();
    let mut worker = user(text, "open");
    acquires(&mut worker, 60, 1);
    worker.tell("advance 6");
    worker.expect("advanced");
    acquires(&mut worker, 20, 2);
    worker.kill();
    let before = LimitSet::observe(&path).unwrap().stats().unwrap();
    assert_eq!(before.limit("connections").unwrap().in_use, 3);
    assert!(before.participants[0].info.is_none(), "dead, and nobody has looked yet");

    let set = builder().open(&path).unwrap();
    let [tokens, calls, connections] = &set.stats().unwrap().limits[..] else { panic!("three limits") };
    assert_eq!((tokens.consumed, tokens.available, tokens.unreported), (80, 30, 2), "charges and time stay");
    assert_eq!((calls.consumed, calls.available), (2, 9));
    assert_eq!((connections.in_use, connections.available, connections.consumed), (0, 4, 3));
    assert_eq!(set.stats().unwrap().reaped_permits, 3);
    set.try_acquire([("tokens", 30), ("connections", 4)]).unwrap().cancel().unwrap();
    set.remove().unwrap();
    std::fs::remove_dir(&directory).expect("nothing is left");
}
