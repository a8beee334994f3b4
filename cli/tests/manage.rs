//! Creating, inspecting, changing and removing sets, through the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use limitset::{CallLimit, LimitSet, QueueOptions, RateLimit, ResourceLimit, Segment};
use serde_json::json;
use support::{Name, run};

#[test]
fn a_created_set_is_the_one_that_a_program_declares() {
    let name = Name::new("create");
    let ran = run(&[
        "create",
        &name,
        "--limit",
        "calls=500/min",
        "--limit",
        "tokens=200000/min:gcra:burst=50000",
        "-l",
        "connections=8",
        "--config",
        "region=eu",
        "--slots",
        "16",
        "--waiters",
        "32",
    ]);
    assert!(ran.ends(0).out().starts_with(&format!("created {} in /dev/shm/limitset.{}", &*name, &*name)));
    let set = LimitSet::builder()
        .limit(CallLimit::per_minute(500))
        .limit(RateLimit::per_minute("tokens", 200_000).algorithm(limitset::Algorithm::Gcra).burst(50_000))
        .limit(ResourceLimit::new("connections", 8))
        .config("region", "eu")
        .segment(Segment::options().slots(16).waiters(32))
        .open(&*name)
        .unwrap();
    assert_eq!(set.limits().len(), 3);
    let again = run(&["create", &name, "--limit", "a=1", "--json"]).ends(5);
    assert_eq!(again.error_json()["error"]["code"], "exists");
}

#[test]
fn mode_group_and_path_are_as_asked() {
    let folder = std::env::temp_dir().join(format!("limitset-cli-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("limits");
    let gid = fs::metadata(&folder).unwrap().gid();
    let known = nix::unistd::Group::from_gid(gid.into()).unwrap();
    let group = known.map_or_else(|| gid.to_string(), |group| group.name);
    let path = file.to_str().unwrap();
    let created = run(&[
        "create", "label", "--path", path, "--limit", "a=1", "--mode", "660", "--group", &group, "--json",
    ]);
    assert_eq!(created.ends(0).json()["path"], path);
    let about = fs::metadata(&file).unwrap();
    assert_eq!((about.permissions().mode() & 0o777, about.gid()), (0o660, gid));
    let shown = run(&["show", path, "--json"]).ends(0).json();
    assert_eq!(shown["config"], json!({ "name": "label" }));
    run(&["rm", path]).ends(0);
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn options_that_make_no_sense_say_what_to_use() {
    for (args, said) in [
        (&["--mode", "999"][..], "octal"),
        (&["--mode", "066"], "use 600 or 660"),
        (&["--group", "no-such-group-here"], "unknown group"),
        (&["--order", "random"], "use arrival or any"),
        (&["--clock", "sundial"], "use monotonic or coarse or manual"),
        (&["--config", "region"], "KEY=VALUE"),
        (&["--config", "a=1", "--config", "a=2"], "given twice"),
        (&["--slots", "0"], "slots asked for"),
    ] {
        let name = Name::new("options");
        let ran = run(&[&["create", &name, "--limit", "a=1"], args].concat()).ends(2);
        assert!(ran.err().contains(said), "{args:?}: {ran:?}");
        assert!(!name.path().exists());
    }
}

#[test]
fn list_shows_sets_plain_segments_and_what_is_neither() {
    let set = Name::with("list-set", &["connections=8"]);
    let (plain, garbage) = (Name::new("list-plain"), Name::new("list-garbage"));
    let segment = Segment::options().semaphore("db", 1).create(&*plain).unwrap();
    fs::write(garbage.path(), "not a segment").unwrap();
    let rows = run(&["list", "--json"]).ends(0).json();
    let row =
        |name: &Name| rows.as_array().unwrap().iter().find(|row| row["name"] == **name).unwrap().clone();
    assert_eq!(row(&set)["limits"], json!(["connections=8"]));
    assert_eq!((row(&set)["kind"].as_str(), row(&set)["participants"].as_u64()), (Some("set"), Some(0)));
    assert_eq!(
        (row(&plain)["kind"].as_str(), row(&plain)["participants"].as_u64()),
        (Some("segment"), Some(1))
    );
    assert_eq!(row(&garbage)["kind"], "unusable");
    assert!(row(&garbage)["error"].as_str().unwrap().contains("not a segment"));
    let table = run(&["list"]).ends(0).out();
    assert!(table.starts_with("NAME") && table.contains("connections=8"), "{table}");
    drop(segment);
}

#[test]
fn show_tells_who_holds_what_and_the_format_version() {
    let name = Name::with("show", &["calls=500/min", "connections=8"]);
    let set = LimitSet::attach(&*name).unwrap();
    let held = set.acquire([("connections", 3)]).unwrap();
    let shown = run(&["show", &name, "--json"]).ends(0).json();
    assert_eq!(shown["segment"]["format_version"], set.segment().info().format_version);
    let connections = &shown["limits"][1];
    assert_eq!((connections["in_use"].as_u64(), connections["available"].as_u64()), (Some(3), Some(5)));
    assert_eq!(shown["limits"][0]["consumed"], 1);
    let me = &shown["participants"][0];
    assert_eq!(
        (me["pid"].as_u64(), &me["holds"]),
        (Some(std::process::id().into()), &json!({ "connections": 3 }))
    );
    let text = run(&["show", &name]).ends(0).out();
    assert!(text.contains("format version") && text.contains("connections=3"), "{text}");
    held.release().unwrap();
}

#[test]
fn colours_are_for_terminals_only_and_not_for_those_who_want_none() {
    let name = Name::with("plain", &["a=1"]);
    assert!(!run(&["show", &name]).ends(0).out().contains('\x1b'));
    let in_a_terminal = |set: &str| {
        let line = format!("{set} exec '{}' check {}", env!("CARGO_BIN_EXE_limitset"), &*name);
        let ran =
            Command::new("script").args(["--quiet", "--return", "--command", &line, "/dev/null"]).output();
        ran.ok()
            .filter(|ran| ran.status.success())
            .map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let Some(coloured) = in_a_terminal("TERM=xterm") else {
        eprintln!("SKIPPED colours in a terminal: there is no `script` here that could make one");
        return;
    };
    assert!(coloured.contains("\x1b[32m"), "{coloured:?}");
    for none in ["TERM=xterm NO_COLOR=1", "TERM=dumb"] {
        let plain = in_a_terminal(none).unwrap();
        assert!(plain.contains("is sound") && !plain.contains('\x1b'), "{none}: {plain:?}");
    }
}

#[test]
fn words_of_others_cannot_control_the_terminal() {
    let name = Name::new("escape");
    let key = "a\u{1b}[2J";
    let builder = LimitSet::builder().limit(ResourceLimit::new(key, 1)).config("b\u{1b}[2J", "c\u{7}");
    let set = builder.create(&*name).unwrap();
    let _held = set.acquire(()).unwrap();
    for args in [
        &["show", &name][..],
        &["list"],
        &["try", &name],
        &["check", &name],
        &["set", &name, "\"a\u{1b}[2J\"=2"],
    ] {
        let ran = run(args);
        assert!(
            !ran.out().contains(['\u{1b}', '\u{7}']) && !ran.err().contains('\u{1b}'),
            "{args:?}: {ran:?}"
        );
    }
    assert!(run(&["show", &name]).ends(0).out().contains("a?[2J"));
    let exported = run(&["export", &name]).ends(0).out();
    assert!(!exported.contains('\u{1b}'), "{exported}");
}

#[test]
fn try_charges_nothing_and_says_when() {
    let name = Name::with("try", &["tokens=60/min:report=optional", "db=1"]);
    let granted = run(&["try", &name, "--need", "tokens=60", "--json"]).ends(0).json();
    assert_eq!((granted["granted"].as_bool(), granted["answer"].as_str()), (Some(true), Some("granted")));
    let set = LimitSet::attach(&*name).unwrap();
    assert_eq!(set.stats().unwrap().limit("tokens").unwrap().consumed, 0);
    let held = set.acquire([("tokens", 60)]).unwrap();
    let denied = run(&["try", &name, "--need", "tokens=30", "--json"]).ends(75).json();
    assert_eq!(denied["answer"], "denied");
    assert!(denied["retry_after_seconds"].is_null(), "it depends on who holds the permit: {denied}");
    held.release().unwrap();
    let denied = run(&["try", &name, "--need", "tokens=30", "--json"]).ends(75).json();
    let wait = denied["retry_after_seconds"].as_f64().unwrap();
    assert!(wait > 0.0 && wait <= 30.0, "{denied}");
    let never = run(&["try", &name, "--need", "tokens=61"]).ends(76);
    assert!(never.out().contains("at most 60 at once"), "{never:?}");
    assert!(run(&["try", &name]).ends(2).err().contains("name it, with 0 if none"));
    assert!(run(&["try", &name, "--need", "tokns=1"]).ends(2).err().contains("it has tokens, db"));
    run(&["cooldown", &name, "--for", "1h"]).ends(0);
    let cooling = run(&["try", &name, "--need", "tokens=0", "--json"]).ends(75).json();
    assert_eq!(cooling["answer"], "cooling_down");
}

#[test]
fn set_changes_numbers_live_and_keeps_what_it_is_not_told() {
    let name =
        Name::with("set", &["calls=500/min", "tokens=200000/min:gcra:burst=50000", "rows=10/s", "db=8"]);
    let set = LimitSet::attach(&*name).unwrap();
    let changed = run(&["set", &name, "tokens=300k", "rows=20", "db=2", "--json"]).ends(0).json();
    let to: Vec<_> =
        changed["changes"].as_array().unwrap().iter().map(|it| it["to"].as_str().unwrap()).collect();
    assert_eq!(to, ["tokens=300000/min:gcra:burst=50000", "rows=20/s", "db=2"]);
    let stats = set.stats().unwrap();
    let numbers = |key: &str| stats.limit(key).map(|it| (it.capacity, it.burst, it.revision)).unwrap();
    assert_eq!(
        [numbers("tokens"), numbers("rows"), numbers("db")],
        [(300_000, 50_000, 1), (20, 20, 1), (2, 2, 1)]
    );
    assert_eq!(numbers("call_count").2, 0);
    let other = run(&["set", &name, "tokens=5/min:leaky_bucket", "db=1"]).ends(5);
    assert!(other.err().contains("only numbers can be changed"), "{other:?}");
    assert_eq!(set.stats().unwrap().limit("db").unwrap().capacity, 2, "all or none");
    assert!(
        run(&["set", &name, "connections=9"]).ends(2).err().contains("it has call_count, tokens, rows, db")
    );
    assert!(run(&["set", &name, "db=0"]).ends(2).err().contains("capacity 0"));
}

#[test]
fn reset_and_cooldown_act_on_every_process() {
    let name = Name::with("reset", &["calls=1/h"]);
    let set = LimitSet::attach(&*name).unwrap();
    set.acquire(()).unwrap().release().unwrap();
    assert!(set.try_acquire(()).is_err());
    assert_eq!(run(&["reset", &name, "--json"]).ends(0).json()["reset"], true);
    set.try_acquire(()).unwrap().release().unwrap();
    let paused = run(&["cooldown", &name, "--for", "30s", "--json"]).ends(0).json();
    assert_eq!(paused["remaining_seconds"], 30.0);
    assert!(set.stats().unwrap().cooldown.remaining.is_some());
    let cleared = run(&["cooldown", &name, "--clear", "--json"]).ends(0).json();
    assert_eq!((&cleared["cleared"], &cleared["slow_admissions"]), (&true.into(), &20.into()));
    assert_eq!(run(&["cooldown", &name, "--clear", "--json"]).ends(0).json()["cleared"], false);
    assert!(set.stats().unwrap().cooldown.remaining.is_none());
    // The slow start continues: one request is admitted at once, and a gap follows it.
    run(&["reset", &name]).ends(0);
    set.try_acquire(()).unwrap().release().unwrap();
    let said = run(&["cooldown", &name, "--clear"]).ends(0).out();
    assert!(said.ends_with("; slow start: a gap follows each of the next 19 admissions\n"), "{said}");
    run(&["cooldown", &name]).ends(2);
    run(&["cooldown", &name, "--for", "5s", "--clear"]).ends(2);
    assert!(run(&["cooldown", &name, "--for", "5 apples"]).ends(2).err().contains('^'));
}

#[test]
fn rm_names_those_attached_and_force_tells_them() {
    let name = Name::with("rm", &["db=1"]);
    let set = LimitSet::attach(&*name).unwrap();
    let refused = run(&["rm", &name]).ends(5);
    assert!(refused.err().contains(&format!("in use by process {}", std::process::id())), "{refused:?}");
    assert!(set.try_acquire(()).is_ok());
    run(&["rm", "--force", &name]).ends(0);
    assert!(matches!(set.try_acquire(()), Err(limitset::AcquireError::Removed)));
    assert!(!name.path().exists());
    run(&["rm", &name]).ends(3);
}

#[test]
fn rm_takes_several_and_tells_what_it_did_before_it_failed() {
    let (a, b) = (Name::with("rm-a", &["db=1"]), Name::with("rm-b", &["db=1"]));
    let ran = run(&["rm", &a, "no-such-set-here", &b, "--json"]).ends(3);
    assert_eq!(ran.json()["removed"], json!([&*a]));
    assert!(b.path().exists());
}

#[test]
fn rm_takes_away_what_is_damaged_only_by_force_and_never_a_strange_file() {
    let name = Name::new("rm-garbage");
    fs::write(name.path(), vec![7; 5_000]).unwrap();
    assert!(run(&["rm", &name]).ends(4).err().contains("rm --force"));
    run(&["rm", "--force", &name]).ends(0);
    assert!(!name.path().exists());
    let file = std::env::temp_dir().join(format!("limitset-cli-strange-{}", std::process::id()));
    fs::write(&file, vec![7; 5_000]).unwrap();
    let ran = run(&["rm", "--force", file.to_str().unwrap()]).ends(4);
    assert!(ran.err().contains("does not begin like a segment") && file.exists(), "{ran:?}");
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_queue_of_work_is_shown() {
    let name = Name::new("work");
    let set = LimitSet::builder()
        .limit(CallLimit::per_minute(5))
        .queue(QueueOptions::new(4, 16))
        .open(&*name)
        .unwrap();
    set.queue().unwrap().push_timeout(1, b"a", Duration::from_secs(60)).unwrap();
    let shown = run(&["show", &name, "--json"]).ends(0).json();
    assert_eq!((shown["queue"]["ready"].as_u64(), shown["queue"]["capacity"].as_u64()), (Some(1), Some(4)));
    assert!(run(&["show", &name]).ends(0).out().contains("work: 1 ready"));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let help = run(&["--help"]).ends(0).out();
    let commands: Vec<_> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .filter(|command| *command != "help")
        .collect();
    assert_eq!(commands.len(), 21, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).ends(0).out();
        assert!(commands.iter().all(|command| script.contains(command)), "{shell}");
    }
    run(&["completions", "cmd.exe"]).ends(2);
    let folder = std::env::temp_dir().join(format!("limitset-cli-man-{}", std::process::id()));
    run(&["man", "--out", folder.to_str().unwrap()]).ends(0);
    for command in &commands {
        let page = fs::read_to_string(folder.join(format!("limitset-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
        assert_eq!(run(&["man", command]).ends(0).out(), page);
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(run(&["man"]).ends(0).out().contains("limitset\\-create(1)"));
    run(&["man", "fly"]).ends(2);
}
