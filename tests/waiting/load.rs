//! A busy machine is no unavailable set: a caller whose time is up before it had the lock is late, under every policy.

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::{AcquireError, LimitSet, OnUnavailable, RateLimit, Report, ResourceLimit, Segment};

use crate::hands::{Mode, Scene};
use crate::support::{Worker, depth, listen, proof, say};

pub(crate) const TESTS: [(&str, fn()); 3] = [
    ("a_timeout_at_a_stuck_lock_is_late_and_only_the_patience_lets_requests_pass", || stuck()),
    ("peers_of_low_priority_under_load_let_no_request_pass_unasked", || peers(&["renice", "-n", "19", "-p"])),
    ("idle_class_peers_under_load_let_no_request_pass_unasked", || peers(&["chrt", "--idle", "--pid", "0"])),
];

/// Role: asks again and again, until told to end.
pub(crate) fn peer_role(arguments: &[String]) {
    let limits = LimitSet::attach(&arguments[0]).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            say("ready");
            while !is_over.load(Relaxed) {
                let _ = limits.try_acquire([("tokens", 1)]);
            }
        });
        listen();
        is_over.store(true, Relaxed);
    });
}

/// Role: burns a processor.
pub(crate) fn burner_role(_: &[String]) {
    std::thread::spawn(|| {
        loop {
            black_box(0);
        }
    });
    say("ready");
    listen();
}

fn stuck() {
    let builder = LimitSet::builder()
        .limit(ResourceLimit::new("db", 2))
        .limit(RateLimit::per_second("tokens", 100).report(Report::Optional))
        .on_unavailable(OnUnavailable::Allow);
    let options = Segment::options().patience(Duration::from_millis(400));
    let scene = Scene::with(Mode::Processes, builder, options);
    let limits = &scene.limits;
    let mut locker = Worker::start("locker", &[&scene.name.0]);
    locker.tell("lock");
    locker.expect("locked");
    let moment = Duration::from_millis(5);
    let answers = [
        limits.acquire_timeout([("tokens", 1)], moment).map(drop),
        limits.acquire_timeout([("tokens", 1)], Duration::ZERO).map(drop),
        limits.start_acquire([("tokens", 1)], Some(moment)).map(drop),
        limits.charge_timeout([("tokens", 1)], moment).map(drop),
        pollster::block_on(limits.acquire_async([("tokens", 1)]).timeout(moment)).map(drop),
    ];
    for answer in answers {
        let Err(AcquireError::TimedOut(late)) = &answer else { panic!("{answer:?}") };
        assert_eq!(late.lock_holder, u64::try_from(locker.pid().as_raw()).ok());
        assert_eq!(late.statuses.iter().count(), 0);
        assert!(late.to_string().contains("held the lock of the set"), "{late}");
    }
    assert_eq!(limits.stats().unwrap().unenforced, 0);
    // The set's own patience is another matter.
    assert!(!limits.acquire([("tokens", 1)]).unwrap().enforced());
    assert!(!limits.acquire_timeout([("tokens", 1)], Duration::from_secs(600)).unwrap().enforced());
    assert_eq!(limits.stats().unwrap().unenforced, 2);
    locker.tell("unlock");
    locker.expect("unlocked");
    limits.acquire_timeout([("tokens", 1)], moment).unwrap().release().unwrap();
}

/// Two peers that get the processor last hold the lock while four others burn it; `tool` makes a process such a peer.
fn peers(tool: &[&str]) {
    let builder = LimitSet::builder()
        .limit(RateLimit::per_second("tokens", 5).report(Report::Optional))
        .on_unavailable(OnUnavailable::Allow);
    let scene = Scene::with(Mode::Processes, builder, Segment::options());
    let mut peers = [(); 2].map(|()| Worker::start("peer", &[&scene.name.0]));
    peers.iter_mut().for_each(|peer| peer.expect("ready"));
    for peer in &peers {
        for thread in std::fs::read_dir(format!("/proc/{}/task", peer.pid())).unwrap() {
            let thread = thread.unwrap().file_name();
            let changed = Command::new(tool[0]).args(&tool[1..]).arg(&thread).output();
            if !changed.as_ref().is_ok_and(|it| it.status.success()) {
                return println!("SKIPPED peers made slow by {}: {changed:?}", tool[0]);
            }
        }
    }
    let mut burners = [(); 4].map(|()| Worker::start("burner", &[]));
    burners.iter_mut().for_each(|burner| burner.expect("ready"));
    let attempts = depth(200, 4_000);
    let (mut granted, mut late) = (0, 0);
    for _ in 0..attempts {
        match scene.limits.acquire_timeout([("tokens", 1)], Duration::from_millis(5)) {
            Ok(held) => {
                granted += u64::from(held.enforced());
                held.release().unwrap();
            }
            Err(AcquireError::TimedOut(it)) => late += u64::from(it.lock_holder.is_some()),
            Err(other) => panic!("{other}"),
        }
    }
    let unenforced = scene.limits.stats().unwrap().unenforced;
    proof(
        "1",
        &format!("requests for 5 ms beside peers made slow by {} and four busy processes", tool[0]),
        &format!("{attempts} requests, {granted} granted, {late} late at the lock, {unenforced} unenforced"),
    );
    assert_eq!(unenforced, 0);
}
