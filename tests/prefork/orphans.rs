//! A supervisor that is killed: its workers stop, each in its way, and their permits return.

use std::time::Duration;

use limitset::{LimitSet, ResourceLimit, Restart};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Uid, geteuid, setuid};

use crate::support::{self, TempName, say};
use crate::{be_deaf, exit, prefork, until};

pub(crate) const TESTS: [(&str, fn()); 7] = [
    ("workers_of_a_killed_supervisor_stop", || stop("polite")),
    ("workers_of_a_killed_supervisor_that_do_not_listen_are_ended", || stop("deaf")),
    ("workers_of_a_killed_supervisor_stop_although_they_changed_their_user", changed_user),
    ("workers_of_a_supervisor_that_dies_as_it_forks_are_ended", stillborn),
    ("tasks_of_a_killed_supervisor_stop", || stop("async")),
    ("a_supervisor_within_a_worker_stops_with_its_own", || stop("nested")),
    ("workers_of_a_supervisor_that_unwinds_are_ended", || stop("panic")),
];

/// How many workers there are, each with a permit.
const WORKERS: usize = 3;

pub(crate) fn role(arguments: &[String]) {
    let way = arguments[0].as_str();
    let set = LimitSet::attach(&arguments[1]).unwrap();
    // Seconds are the least that an alarm knows.
    let options = || prefork(WORKERS).limits(&set).drain_time(Duration::from_secs(1));
    if way == "stillborn" {
        let _workers = options().start(|_| be_deaf()).unwrap();
        raise(Signal::SIGKILL).unwrap();
    }
    if way == "panic" {
        let tell = |_: &limitset::WorkerExit| panic!("as this test wants it");
        let run = options().restart(Restart::Never).on_exit(tell).run(|worker| {
            let _held = worker.limits().acquire(()).unwrap();
            say("ready");
            if worker.index() > 0 {
                be_deaf();
            }
            support::listen();
            exit(1);
        });
        run.unwrap();
    }
    let run = options().run(|worker| match way {
        "nested" => drop(prefork(1).limits(worker.limits()).run(|inner| work("polite", inner)).unwrap()),
        way => work(way, worker),
    });
    drop(run);
}

fn work(way: &str, worker: &limitset::Worker) {
    if way == "unprivileged" {
        setuid(Uid::from_raw(65_534)).unwrap();
    }
    let _held = worker.limits().acquire(()).unwrap();
    say("ready");
    match way {
        "deaf" => be_deaf(),
        "async" => pollster::block_on(worker.stopped()),
        "unprivileged" => until(|| worker.wait_for_stop(Duration::from_secs(60))),
        _ => until(|| worker.stopping()),
    }
}

fn changed_user() {
    if geteuid().is_root() {
        stop("unprivileged");
    } else {
        println!("SKIPPED a worker that changes its user: that takes root");
    }
}

/// Some workers find their supervisor dead before they can ask the kernel to be told of it.
fn stillborn() {
    let name = TempName::new();
    let _set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(&name).unwrap();
    let start = |_| support::Worker::start("orphans", &["stillborn", &name.0]);
    for mut supervisor in (0..16).map(start).collect::<Vec<_>>() {
        assert_eq!(supervisor.hear_until_silence(), [""; 0]);
    }
}

fn stop(way: &str) {
    let name = TempName::new();
    let permits = ResourceLimit::new("db", WORKERS as u64);
    let set = LimitSet::builder().limit(permits).open(&name).unwrap();
    let mut supervisor = support::Worker::start("orphans", &[way, &name.0]);
    for _ in 0..WORKERS {
        supervisor.expect("ready");
    }
    assert_eq!(set.stats().unwrap().limit("db").unwrap().in_use, WORKERS as u64);
    if way == "panic" {
        supervisor.tell("end");
    } else {
        supervisor.kill();
    }
    // Nobody has the other end of its output any more.
    assert_eq!(supervisor.hear_until_silence(), [""; 0]);
    // Its output is closed a moment before the kernel has buried the rest of a process.
    until(|| {
        set.reap().unwrap();
        set.stats().unwrap().limit("db").unwrap().in_use == 0
    });
    support::proof(
        "3",
        &format!("supervisor of {WORKERS} workers ({way}) killed"),
        "all ended, permits back",
    );
}
