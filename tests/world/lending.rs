//! A life lent to a command: what its participant holds lives as long as either of them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use limitset::{LimitSet, ResourceLimit, Segment};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Skipped;
use crate::forks::Forked;
use crate::support::{TempName, Worker, listen, say};

fn attach(name: &str) -> LimitSet {
    LimitSet::builder().segment(Segment::options().lends_life(true)).attach(name).unwrap()
}

fn set() -> (TempName, LimitSet) {
    let name = TempName::new();
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 4)).create(&name).unwrap();
    (name, set)
}

/// A command that does not talk to the test.
fn quiet(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Holds two permits and lends its life.
pub(crate) fn role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    let held = set.acquire([("db", 2)]).unwrap();
    let segment = set.segment();
    match arguments[1].as_str() {
        "sleep" => {
            let (child, _life) = segment.spawn_lending_life(quiet("sleep", &["1000"]), &[]).unwrap();
            say(&child.id().to_string());
            listen();
        }
        // It ends, and leaves something behind that has its descriptors.
        "daemon" => {
            let mut command = quiet("sh", &["-c", "sleep 1000 & echo $!"]);
            command.stdout(Stdio::piped());
            let (mut child, life) = segment.spawn_lending_life(command, &[]).unwrap();
            let mut text = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut text).unwrap();
            child.wait().unwrap();
            assert!(life.is_lent());
            life.release(held).unwrap();
            say(text.trim());
            listen();
            // Somebody else by now, and as good as anybody.
            let held = set.acquire([("db", 1)]).unwrap();
            assert_eq!(held.charged("db"), Some(1));
            held.release().unwrap();
        }
        // Lends its life again after a command that could not be started, and one that ended.
        "again" => {
            let missing = segment.spawn_lending_life(quiet("/nonexistent/command", &[]), &[]);
            assert_eq!(missing.err().unwrap().kind(), std::io::ErrorKind::NotFound);
            let (mut child, life) = segment.spawn_lending_life(quiet("true", &[]), &[]).unwrap();
            let twice = segment.spawn_lending_life(quiet("true", &[]), &[]);
            assert_eq!(twice.err().unwrap().kind(), std::io::ErrorKind::InvalidInput);
            child.wait().unwrap();
            assert!(!life.is_lent());
            life.release(held).unwrap();
            let held = set.acquire([("db", 2)]).unwrap();
            let (mut child, life) = segment.spawn_lending_life(quiet("true", &[]), &[]).unwrap();
            child.wait().unwrap();
            life.release(held).unwrap();
            say("done");
            listen();
        }
        // Could lend it, and only forks.
        "fork" => {
            let child = Forked::new(|| {
                loop {
                    nix::unistd::pause();
                }
            });
            say(&child.pid().to_string());
            listen();
        }
        _ => unreachable!(),
    }
}

fn pid(line: &str) -> Pid {
    Pid::from_raw(line.parse().unwrap())
}

pub(crate) fn by_a_killed_lender() -> Result<(), Skipped> {
    let (name, set) = set();
    let mut worker = Worker::start("lend", &[&name.0, "sleep"]);
    let command = pid(&worker.hear());
    worker.kill();
    assert_eq!(set.reap().unwrap(), 0, "the command holds them");
    assert!(set.try_acquire([("db", 3)]).is_err());
    kill(command, Signal::SIGKILL).unwrap();
    // As soon as the kernel is done with it.
    set.acquire([("db", 4)]).unwrap().release().unwrap();
    assert_eq!(set.stats().unwrap().reaped_permits, 2);
    Ok(())
}

pub(crate) fn to_a_command_that_leaves_something_behind() -> Result<(), Skipped> {
    let (name, set) = set();
    let mut worker = Worker::start("lend", &[&name.0, "daemon"]);
    let left_behind = pid(&worker.hear());
    assert_eq!(set.stats().unwrap().limit("db").unwrap().in_use, 0);
    set.try_acquire([("db", 4)]).unwrap().release().unwrap();
    assert!(kill(left_behind, None).is_ok(), "it lives, and holds nothing");
    worker.tell("go on");
    assert!(worker.finish().success());
    assert_eq!(set.stats().unwrap().participants.len(), 1, "what was left behind is nobody");
    kill(left_behind, Signal::SIGKILL).unwrap();
    Ok(())
}

pub(crate) fn again() -> Result<(), Skipped> {
    let (name, set) = set();
    let mut worker = Worker::start("lend", &[&name.0, "again"]);
    worker.expect("done");
    let stats = set.stats().unwrap();
    assert_eq!((stats.limit("db").unwrap().in_use, stats.reaped_permits), (0, 0));
    assert!(worker.finish().success());
    Ok(())
}

pub(crate) fn by_somebody_who_forked() -> Result<(), Skipped> {
    let (name, set) = set();
    let mut worker = Worker::start("lend", &[&name.0, "fork"]);
    let child = pid(&worker.hear());
    worker.kill();
    set.acquire([("db", 4)]).unwrap().release().unwrap();
    assert!(kill(child, None).is_ok());
    kill(child, Signal::SIGKILL).unwrap();
    Ok(())
}

pub(crate) fn by_who_cannot() -> Result<(), Skipped> {
    let (_name, set) = set();
    let refused = set.segment().spawn_lending_life(quiet("true", &[]), &[]).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    Ok(())
}
