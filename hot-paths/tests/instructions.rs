//! No hot path takes more than 5 % more instructions than benches/instructions.txt says. Instructions are counted by
//! valgrind: unlike times, they are the same on a busy machine.
//!
//! `cargo xtask instructions --bless` (or `LIMITSET_BLESS=1`) writes down what they take now.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More than so many percent more is too much.
const SLACK: u64 = 5;

/// How often a path is gone; then twice as often.
const COUNT: u64 = 2_000;

/// The first lines of the file.
const HEAD: &str = "\
# Instructions that one run through each hot path takes, counted by valgrind.
# `cargo xtask test instructions` fails when one takes more than 5 % more than is written here.
# Written by `cargo xtask instructions --bless`; not by hand.
";

type Counts = BTreeMap<String, u64>;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/instructions.txt")
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn hot_paths_take_no_more_instructions_than_written_down() {
    if !has_valgrind() {
        println!(
            "SKIPPED hot_paths_take_no_more_instructions_than_written_down: valgrind is not installed, \
             so nobody knows what the hot paths cost"
        );
        return;
    }
    if cfg!(debug_assertions) {
        println!(
            "SKIPPED hot_paths_take_no_more_instructions_than_written_down: not a release build; \
             run `cargo xtask test instructions`"
        );
        return;
    }
    let now = measured();
    for (path, count) in &now {
        println!("{path}: {count} instructions");
    }
    if std::env::var_os("LIMITSET_BLESS").is_some() {
        std::fs::write(file(), written(&now)).expect("benches/instructions.txt can be written");
        println!("wrote benches/instructions.txt");
        return;
    }
    let text = std::fs::read_to_string(file()).expect("benches/instructions.txt; --bless writes it");
    let (worse, better) = compared(&read(&text), &now);
    for line in &better {
        println!("{line}: write it down with `cargo xtask instructions --bless`");
    }
    assert!(
        worse.is_empty(),
        "{}\nIf that has to be, write it down with `cargo xtask instructions --bless`.",
        worse.join("\n")
    );
}

/// What each path takes.
fn measured() -> Counts {
    let named = [
        ("try_acquire, 1 limit", per_run("1", "try_now")),
        ("release, 1 limit", per_run("1", "release_now")),
        ("try_acquire, 3 limits", per_run("3", "try_now")),
        ("release, 3 limits", per_run("3", "release_now")),
        ("denial, 1 limit", per_run("denied", "try_now")),
    ];
    named.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

fn per_run(path: &str, within: &str) -> u64 {
    let (once, twice) = (total(path, within, COUNT), total(path, within, 2 * COUNT));
    (twice.checked_sub(once).expect("twice as much takes more") + COUNT / 2) / COUNT
}

/// Instructions within a function, in a whole run of the program.
fn total(path: &str, within: &str, count: u64) -> u64 {
    let program = env!("CARGO_BIN_EXE_hot-paths");
    let within = format!("--toggle-collect=hot_paths::{within}*");
    let arguments = ["--tool=callgrind", "--callgrind-out-file=/dev/null", &within, program, path];
    let mut command = Command::new("valgrind");
    let output = command.args(arguments).arg(count.to_string()).output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind or {path} failed:\n{said}");
    collected(&said).filter(|count| *count > 0).unwrap_or_else(|| panic!("no instructions counted:\n{said}"))
}

/// `==42== Collected : 1234567`
fn collected(said: &str) -> Option<u64> {
    let mut counts = said.lines().filter_map(|line| line.split_once("== Collected : "));
    counts.next_back()?.1.trim().parse().ok()
}

fn written(counts: &Counts) -> String {
    let lines = counts.iter().map(|(name, count)| format!("{name}: {count}\n"));
    HEAD.to_owned() + &lines.collect::<String>()
}

fn read(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pair = |line: &str| {
        let (name, count) = line.rsplit_once(": ").expect("`name: count`");
        (name.to_owned(), count.trim().parse().expect("a count"))
    };
    lines.map(pair).collect()
}

/// A line for each path that takes more than it may, and for each that takes much less.
fn compared(before: &Counts, now: &Counts) -> (Vec<String>, Vec<String>) {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (name, count) in now {
        let Some(known) = before.get(name) else {
            worse.push(format!("{name}: takes {count} instructions, and nothing is written down"));
            continue;
        };
        let line = format!("{name}: {known} instructions were written down, now {count}");
        if count * 100 > known * (100 + SLACK) {
            worse.push(line);
        } else if count * 100 < known * (100 - SLACK) {
            better.push(line);
        }
    }
    worse.extend(
        before.keys().filter(|name| !now.contains_key(*name)).map(|name| format!("{name}: not measured")),
    );
    (worse, better)
}

fn counts(pairs: &[(&str, u64)]) -> Counts {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn growth_beyond_the_slack_is_seen_and_less_is_not() {
    let before = counts(&[("a", 1000), ("b", 1000), ("c", 1000)]);
    let (worse, better) = compared(&before, &counts(&[("a", 1051), ("b", 1050), ("c", 900)]));
    assert_eq!(worse, ["a: 1000 instructions were written down, now 1051"]);
    assert_eq!(better, ["c: 1000 instructions were written down, now 900"]);
}

#[test]
fn a_path_that_only_one_side_knows_is_seen() {
    let (worse, _) = compared(&counts(&[("old", 1)]), &counts(&[("new", 1)]));
    assert_eq!(worse, ["new: takes 1 instructions, and nothing is written down", "old: not measured"]);
}

#[test]
fn the_file_is_read_as_it_is_written() {
    let all = counts(&[("release, 1 limit", 12), ("try_acquire, 3 limits", 345)]);
    assert_eq!(read(&written(&all)), all);
}

#[test]
fn counts_are_found_in_what_valgrind_says() {
    assert_eq!(collected("==7== Callgrind\n==7== Collected : 1234567\n==7== \n"), Some(1_234_567));
    assert_eq!(collected("==7== Events    : Ir\n"), None);
}
