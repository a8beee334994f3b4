//! `check`, `check --repair`, `reap` and `doctor`, on sets that lost a process or were damaged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;

use limitset::{LimitSet, Segment};
use serde_json::Value;
use support::{Name, limitset, run, watched};

/// The findings of a check, with their gravity.
fn findings(checked: &Value) -> Vec<(String, String)> {
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let kinds = checked["checks"].as_array().unwrap();
    let findings = kinds.iter().flat_map(|kind| kind["findings"].as_array().unwrap());
    findings.map(|it| (text(&it["gravity"]), text(&it["what"]))).collect()
}

/// A wrapper holds two permits of `db` and is killed. Another process is attached, so that attaching alone
/// does not clean up.
fn after_a_death(name: &Name) -> LimitSet {
    let set = LimitSet::attach(&**name).unwrap();
    // The wrapper shows that it holds the permits by running a command; both are killed.
    let mut holder = limitset()
        .args(["run", name, "--need", "db=2", "--", "sh", "-c", "echo held; kill -9 $PPID; kill -9 $$"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(holder.wait().unwrap().signal(), Some(9));
    set
}

#[test]
fn what_a_death_left_is_no_damage_and_reap_returns_it() {
    watched(|| {
        let name = Name::with("reap", &["db=4"]);
        let set = after_a_death(&name);
        // The command may outlive its wrapper for a moment.
        let checked = loop {
            let checked = run(&["check", &name, "--json"]).ends(0).json();
            if !findings(&checked).is_empty() {
                break checked;
            }
        };
        assert_eq!(checked["sound"], true);
        let found = findings(&checked);
        assert!(found.iter().all(|(gravity, _)| gravity == "pending"), "{found:?}");
        assert!(found[0].1.contains("2 permits of \"db\" are with owner"), "{found:?}");
        let text = run(&["check", &name]).ends(0).out();
        assert!(
            text.contains("pending") && text.contains("which is dead") && text.contains("is sound"),
            "{text}"
        );
        assert_eq!(run(&["reap", &name, "--json"]).ends(0).json()["returned_permits"], 2);
        assert_eq!(set.stats().unwrap().limit("db").unwrap().in_use, 0);
        assert_eq!(findings(&run(&["check", &name, "--json"]).ends(0).json()), []);
    });
}

/// Writes a wrong total of permits to the only limit.
fn spoil_total(name: &Name, total: u64) {
    let segment = Segment::attach(&**name).unwrap();
    let (block, holdings) = segment.state_block().unwrap();
    block.words[holdings.totals].store(total, SeqCst);
}

#[test]
fn a_wrong_total_is_broken_until_it_is_repaired() {
    let name = Name::with("total", &["db=77"]);
    spoil_total(&name, 5);
    let before = fs::read(name.path()).unwrap();
    let checked = run(&["check", &name, "--json"]).ends(4).json();
    assert!(fs::read(name.path()).unwrap() == before, "a check that changes something");
    assert_eq!(checked["sound"], false);
    let broken = ("broken".to_owned(), "5 of \"db\" are taken, its holders have 0".to_owned());
    assert_eq!(findings(&checked), [broken]);
    let text = run(&["check", &name]).ends(4).out();
    assert!(
        text.contains("total is broken: run it again with --repair") || text.contains("--repair"),
        "{text}"
    );
    let repaired = run(&["check", &name, "--repair", "--json"]).ends(0).json();
    assert_eq!(
        repaired["repaired"],
        serde_json::json!(["repaired: 5 of \"db\" are taken, its holders have 0"])
    );
    assert_eq!(findings(&run(&["check", &name, "--json"]).ends(0).json()), []);
    assert!(run(&["check", &name, "--repair"]).ends(0).out().contains("nothing to repair"));
}

#[test]
fn repair_never_lowers_a_total_while_others_are_attached() {
    let name = Name::with("attached", &["db=77"]);
    let set = LimitSet::attach(&*name).unwrap();
    let held = set.acquire([("db", 9)]).unwrap();
    spoil_total(&name, 3);
    let repaired = run(&["check", &name, "--repair", "--json"]).ends(0).json();
    let did = repaired["repaired"][0].as_str().unwrap();
    assert_eq!(did, "raised the total of \"db\" from 3 to 9, the sum of its holders");
    spoil_total(&name, 20);
    let text = run(&["check", &name, "--repair"]).ends(4).out();
    assert!(text.contains("stop its users and run it again"), "{text}");
    held.release().unwrap();
    assert_eq!(set.stats().unwrap().limit("db").unwrap().in_use, 11, "left as it was");
    drop(set);
    run(&["check", &name, "--repair"]).ends(0);
}

#[test]
fn a_journal_that_cannot_be_undone_is_told_and_not_touched() {
    let name = Name::with("journal", &["db=1"]);
    let segment = Segment::attach(&*name).unwrap();
    segment.state_block().unwrap().0.change.store(u64::MAX, SeqCst);
    drop(segment);
    let checked = run(&["check", &name, "--json"]).ends(4).json();
    assert!(findings(&checked)[0].1.contains("was left in the middle of a change"), "{checked}");
    let failed = run(&["check", &name, "--repair"]).ends(4);
    assert!(failed.err().contains("undo journal") && failed.err().contains("remove it"), "{failed:?}");
    run(&["rm", "--force", &name]).ends(0);
}

#[test]
fn a_set_at_work_is_sound_at_every_look() {
    watched(|| {
        let name = Name::with("busy", &["calls=1000000/s", "tokens=1M/s:gcra:report=optional", "db=3"]);
        let mut workers: Vec<_> = (0..3)
            .map(|_| {
                let script = r#"while "$1" run "$2" --need tokens=3 -- true; do :; done"#;
                let mut shell = Command::new("sh");
                shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_limitset"), &name]).stderr(Stdio::null());
                shell.spawn().unwrap()
            })
            .collect();
        for _ in 0..40 {
            let ran = run(&["check", &name]);
            assert_eq!(ran.code(), 0, "{ran:?}");
        }
        // This ends the workers.
        run(&["rm", "--force", &name]).ends(0);
        for worker in &mut workers {
            worker.wait().unwrap();
        }
    });
}

#[test]
fn doctor_finds_damage_and_names_the_fix_for_each_thing() {
    let healthy = run(&["doctor", "--json"]).json();
    let wrong = |it: &Value| -> Vec<String> {
        let checks = it["checks"].as_array().unwrap().iter().filter(|it| it["health"] == "wrong");
        checks.map(|it| it["found"].as_str().unwrap().to_owned()).collect()
    };
    for it in healthy["checks"].as_array().unwrap() {
        assert_eq!(it["fix"].is_null(), it["health"] == "good", "{it}");
    }
    let what: Vec<_> =
        healthy["checks"].as_array().unwrap().iter().map(|it| it["what"].as_str().unwrap()).collect();
    for thing in
        ["kernel", "/dev/shm: mount", "/dev/shm: size", "/dev/shm: permissions", "clock", "a set tried out"]
    {
        assert!(what.contains(&thing), "{what:?}");
    }
    assert!(what.iter().any(|it| it.starts_with("namespaces: ")), "{what:?}");
    let name = Name::new("doctor");
    fs::write(name.path(), "LIMITSET").unwrap();
    let ill = run(&["doctor", "--json"]).ends(4).json();
    assert!(wrong(&ill).iter().any(|found| found.contains(&*name)), "{ill}");
    let text = run(&["doctor"]).ends(4).out();
    assert!(
        text.contains(&format!("fix: when no process uses it: limitset rm --force {}", &*name)),
        "{text}"
    );
}

#[test]
fn doctor_looks_at_the_file_system_of_a_directory() {
    let folder = std::env::temp_dir().join(Name::new("doctor-dir").0.clone());
    fs::create_dir(&folder).unwrap();
    let ran = run(&["doctor", "--path", folder.to_str().unwrap(), "--json"]).json();
    let checks = ran["checks"].as_array().unwrap();
    let found = checks.iter().find(|it| it["what"] == "file system").unwrap();
    assert_eq!(found["health"], "good", "{found}");
    // This fails if `doctor` left a file behind.
    fs::remove_dir(&folder).unwrap();
    let ran = run(&["doctor", "--path", folder.to_str().unwrap()]).ends(4);
    assert!(ran.out().contains("name a directory that exists"), "{ran:?}");
}
