//! Two processes on one set, built for different processors: this machine's, and ARM64 by an emulator.
//!
//! `cargo xtask test targets` builds this file for both and says where the other build is (`LIMITSET_TEST_PEER`) and which
//! emulator runs it (`LIMITSET_TEST_PEER_EMULATOR`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::path::{Path, PathBuf};

use limitset::{Acquisition, CallLimit, LimitSet, LimitSetBuilder, RateLimit, ResourceLimit};
use support::emulated::{run_by, this_program};
use support::{TempName, Worker, listen, proof, say};

fn main() {
    support::main(
        &[("user", user_role)],
        vec![
            ("processes_of_two_architectures_see_the_same_numbers", numbers),
            ("processes_of_two_architectures_never_hold_one_permit_together", exclusion),
            ("permits_of_a_killed_process_return_to_a_waiter_of_another_architecture", deaths),
        ],
    );
}

/// A day of tokens and calls, so that nothing flows back during a test; two connections.
fn builder() -> LimitSetBuilder {
    LimitSet::builder()
        .limit(RateLimit::per_day("tokens", 1_000_000))
        .limit(CallLimit::per_day(1_000_000))
        .limit(ResourceLimit::new("connections", 2))
}

/// Removes the set and the lock file of the exclusion test.
struct Cleanup(TempName);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(marker(&self.0.0));
    }
}

/// A file that exists while a process holds all connections.
fn marker(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("limitset-{name}-held"))
}

/// Starts a process of this build, and one of the other. None if there is no other; says so.
fn both(test: &str, name: &str) -> Option<[Worker; 2]> {
    let Some(peer) = std::env::var_os("LIMITSET_TEST_PEER") else {
        println!("SKIPPED {test}: there is no build for another processor (LIMITSET_TEST_PEER)");
        return None;
    };
    let emulated = run_by(std::env::var_os("LIMITSET_TEST_PEER_EMULATOR"), peer.into());
    let mut workers = [this_program(), emulated].map(|program| Worker::spawn(program, "user", &[name]));
    let found = workers.each_mut().map(Worker::hear);
    assert_ne!(found[0], found[1], "built for one processor");
    Some(workers)
}

/// A process that uses the set as it is told to, line by line.
fn user_role(arguments: &[String]) {
    let name = &arguments[0];
    let set = builder().open(name).unwrap();
    say(std::env::consts::ARCH);
    let mut held: Vec<Acquisition> = Vec::new();
    loop {
        let line = listen();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["acquire", tokens, connections] => {
                let amount = |text: &str| text.parse::<u64>().unwrap();
                let wanted = [("tokens", amount(tokens)), ("connections", amount(connections))];
                held.push(set.acquire(wanted).unwrap());
                say("granted");
            }
            ["settle", tokens] => {
                for mut it in held.drain(..) {
                    it.update("tokens", tokens.parse().unwrap()).unwrap();
                    it.release().unwrap();
                }
                say("settled");
            }
            ["stats"] => say(&numbers_of(&set)),
            ["rounds", count] => {
                (0..count.parse().unwrap()).for_each(|_| one_round(&set, &marker(name)));
                say("done");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Takes both connections, and fails if another process has them.
fn one_round(set: &LimitSet, marker: &Path) {
    let mut held = set.acquire([("tokens", 1), ("connections", 2)]).unwrap();
    let file = File::options().write(true).create_new(true).open(marker);
    drop(file.unwrap_or_else(|error| panic!("two processes hold both connections: {error}")));
    std::fs::remove_file(marker).unwrap();
    held.update("tokens", 1).unwrap();
    held.release().unwrap();
}

fn numbers_of(set: &LimitSet) -> String {
    let stats = set.stats().unwrap();
    let limits = stats.limits.iter().map(|it| {
        format!("{} {}/{} {} {} {}", it.key, it.in_use, it.capacity, it.granted, it.consumed, it.refunded)
    });
    limits.collect::<Vec<_>>().join(", ")
}

fn numbers() {
    let name = Cleanup(TempName::new());
    let Some(mut workers) = both("processes_of_two_architectures_see_the_same_numbers", &name.0.0) else {
        return;
    };
    let set = builder().open(&name.0).unwrap();
    for turn in 0..2 {
        let [first, second] = &mut workers;
        let (one, other) = if turn == 0 { (first, second) } else { (second, first) };
        one.tell("acquire 500 1");
        one.expect("granted");
        other.tell("acquire 300 1");
        other.expect("granted");
        for worker in [&mut *one, &mut *other] {
            worker.tell("stats");
            worker.expect(&numbers_of(&set));
        }
        one.tell("settle 400");
        one.expect("settled");
        other.tell("settle 300");
        other.expect("settled");
    }
    let stats = set.stats().unwrap();
    let [tokens, calls, connections] = stats.limits.as_slice() else { panic!("{stats:?}") };
    assert_eq!((tokens.granted, tokens.consumed, tokens.refunded), (4, 1_400, 200));
    assert_eq!((calls.granted, connections.granted, connections.in_use), (4, 4, 0));
}

fn exclusion() {
    let name = Cleanup(TempName::new());
    let test = "processes_of_two_architectures_never_hold_one_permit_together";
    let Some(mut workers) = both(test, &name.0.0) else { return };
    let set = builder().open(&name.0).unwrap();
    let rounds = support::depth(500, 20_000);
    workers.iter_mut().for_each(|worker| worker.tell(&format!("rounds {rounds}")));
    workers.iter_mut().for_each(|worker| worker.expect("done"));
    let stats = set.stats().unwrap();
    let [tokens, calls, connections] = stats.limits.as_slice() else { panic!("{stats:?}") };
    assert_eq!((tokens.consumed, calls.granted), (2 * rounds, 2 * rounds));
    assert_eq!((connections.consumed, connections.in_use), (4 * rounds, 0));
    assert_eq!((stats.steals, stats.deposed), (0, 0));
    proof(
        "2",
        "an x86_64 and an emulated ARM64 process on one set",
        &format!("{} grants, never two holders", 2 * rounds),
    );
}

fn deaths() {
    let name = Cleanup(TempName::new());
    let test = "permits_of_a_killed_process_return_to_a_waiter_of_another_architecture";
    for survivor in 0..2 {
        let Some(mut workers) = both(test, &name.0.0) else { return };
        let set = builder().open(&name.0).unwrap();
        let before = set.stats().unwrap();
        let [first, second] = &mut workers;
        let (living, dying) = if survivor == 0 { (first, second) } else { (second, first) };
        dying.tell("acquire 7 2");
        dying.expect("granted");
        living.tell("acquire 5 2");
        while set.stats().unwrap().limit("connections").unwrap().waiting == 0 {
            std::thread::yield_now();
        }
        dying.kill();
        living.expect("granted");
        let after = set.stats().unwrap();
        assert_eq!(after.reaped_permits - before.reaped_permits, 2);
        let consumed = |stats: &limitset::Stats| stats.limit("tokens").unwrap().consumed;
        assert_eq!(consumed(&after) - consumed(&before), 12, "rates stay charged");
        living.tell("settle 5");
        living.expect("settled");
        assert_eq!(set.stats().unwrap().limit("connections").unwrap().in_use, 0);
    }
}
