//! Failures: no such set, bad grammar, no permission, damage, no room. Each has its exit code, its code for
//! programs, and advice; no command panics.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use limitset::{LimitSet, Segment};
use support::{Name, Ran, limitset, run};

/// Every command that takes a set that exists.
fn on_a_set(name: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["show", name],
        vec!["export", name],
        vec!["try", name, "--need", "a=1"],
        vec!["set", name, "a=1"],
        vec!["reset", name],
        vec!["reap", name],
        vec!["rm", name],
        vec!["check", name],
        vec!["check", name, "--repair"],
        vec!["cooldown", name, "--for", "1s"],
    ]
}

#[track_caller]
fn assert_fails(args: &[&str], exit: i32, code: &str, said: &str) {
    let ran = run(args).ends(exit);
    assert!(ran.err().starts_with("limitset: ") && ran.err().contains(said), "{args:?}: {ran:?}");
    assert!(!ran.err().contains("panicked"), "{ran:?}");
    let ran = run(&[args, &["--json"]].concat()).ends(exit);
    let error = ran.error_json()["error"].clone();
    assert_eq!((error["code"].as_str(), error["exit"].as_i64()), (Some(code), Some(exit.into())), "{args:?}");
    assert!(error["message"].as_str().unwrap().contains(said), "{error}");
}

#[test]
fn a_set_that_does_not_exist_is_exit_3_for_every_command() {
    for args in on_a_set("no-such-set-here") {
        assert_fails(&args, 3, "no_such_set", "create it first");
    }
}

#[test]
fn a_name_against_the_rules_is_exit_2_for_every_command() {
    for args in on_a_set("a b") {
        assert_fails(&args, 2, "bad_name", "A-Z a-z 0-9 . _ -");
    }
}

#[test]
fn errors_of_grammar_point_at_the_character() {
    let name = Name::new("grammar");
    let ran = run(&["create", &name, "--limit", "calls=500/min", "--limit", "tokens=5/min:gcar"]).ends(2);
    let err = ran.err();
    let lines: Vec<_> = err.lines().collect();
    assert_eq!(lines[0].split(':').next(), Some("limitset"));
    assert!(lines[0].contains("character 14") && lines[0].contains("gcra"), "{err}");
    assert_eq!(lines[1..], ["  tokens=5/min:gcar", "               ^^^^"], "{err}");
    assert!(!name.path().exists());
    assert_fails(&["create", &name, "--limit", "tokens"], 2, "bad_text", "expected = and a number");
    assert_fails(&["try", &name, "--need", "tokens=x"], 2, "bad_text", "a whole number");
    assert_fails(&["create", &name, "--limit", "a=1/s:burst=0"], 2, "bad_limit", "burst 0");
    assert_fails(
        &["create", &name, "--limit", "a=1", "--limit", "a=2"],
        2,
        "bad_limit",
        "two limits have the key",
    );
    assert_fails(
        &["create", &name, "--limit", "a=1/s:fixed_window:burst=2"],
        2,
        "bad_limit",
        "does not support",
    );
    run(&["create", &name]).ends(2);
    let ran = run(&["fly", "--json"]).ends(2);
    assert_eq!(ran.error_json()["error"]["code"], "usage");
    assert!(run(&["fly"]).ends(2).err().contains("unrecognized subcommand"));
}

#[test]
fn what_to_do_is_said_in_terms_of_the_command() {
    let name = Name::with("words", &["a=1"]);
    assert_fails(&["create", &name, "--limit", "a=1"], 5, "exists", "`limitset rm` it first");
    let plain = Name::new("plain");
    Segment::options().mutex("jobs", 1).create(&*plain).unwrap();
    assert_fails(&["show", &plain], 4, "not_a_set", "use another name");
    let ran = run(&["run", "no-such-set-here", "--on-unavailable", "allow", "--", "true"]).ends(0);
    assert!(ran.err().contains("not limited: there is no set") && ran.err().contains("`limitset create`"));
    let full = Name::new("full");
    let held = LimitSet::builder().segment(Segment::options().slots(1)).create(&*full).unwrap();
    assert_fails(&["reset", &full], 69, "too_many_participants", "--slots");
    drop(held);
}

#[test]
fn a_damaged_header_is_exit_4_for_every_command() {
    let name = Name::with("header", &["a=1"]);
    let file = fs::OpenOptions::new().write(true).open(name.path()).unwrap();
    file.write_all_at(&[0xff; 8], 56).unwrap();
    for args in on_a_set(&name) {
        assert_fails(&args, 4, "malformed", "checksum");
    }
    file.set_len(100).unwrap();
    for args in on_a_set(&name) {
        assert_fails(&args, 4, "malformed", "cut short");
    }
    fs::write(name.path(), "").unwrap();
    for args in on_a_set(&name) {
        assert_fails(&args, 4, "malformed", "0 bytes");
    }
}

#[test]
fn another_format_version_is_told_with_both_numbers() {
    let name = Name::with("version", &["a=1"]);
    let file = fs::OpenOptions::new().write(true).open(name.path()).unwrap();
    file.write_all_at(&999u32.to_ne_bytes(), 8).unwrap();
    let own = Segment::options().private().unwrap().info().format_version;
    assert_fails(&["show", &name], 4, "malformed", &format!("format version 999, this build reads {own}"));
}

#[test]
fn words_of_garbage_never_crash_a_command() {
    let name = Name::with("garbage", &["calls=500/min", "tokens=9/s:sliding_window:report=optional", "a=4"]);
    let whole = fs::read(name.path()).unwrap();
    let set = LimitSet::observe(&*name).unwrap();
    assert!(set.segment().audit().unwrap().is_sound());
    drop(set);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..12 {
        let mut bytes = whole.clone();
        // Everything after the header and the directory is words.
        let every = [1, 7, 29, 101][round % 4];
        for place in (2048..bytes.len() - 8).step_by(8).skip(round).step_by(every) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes[place..place + 8].copy_from_slice(&random.to_ne_bytes());
        }
        fs::write(name.path(), &bytes).unwrap();
        // Before a participant attaches and repairs what can be repaired.
        run(&["check", &name]).ends(4);
        for args in on_a_set(&name).iter().filter(|args| args[0] != "rm") {
            let ran = run(args);
            assert!(ran.code() < 100 && !ran.err().contains("panicked"), "{args:?}: {ran:?}");
        }
        run(&["list"]).ends(0);
    }
}

/// Runs the binary as the user `nobody`. Returns None if this user may not do that.
fn as_nobody(args: &[&str]) -> Option<Ran> {
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED as another user: only root can become one");
        return None;
    }
    // Other users may have no access to the build folder.
    let folder = std::env::temp_dir().join(Name::new("nobody").0.clone());
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.join("limitset");
    // Copied by another process: a child that another test forks now would keep the file open for writing,
    // and a file open for writing cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_limitset")).arg(&binary).status().unwrap();
    assert!(copied.success());
    let ran = Command::new(&binary).args(args).uid(NOBODY).gid(NOBODY).current_dir("/").output();
    fs::remove_dir_all(&folder).unwrap();
    match ran {
        Ok(ran) => Some(Ran(ran)),
        Err(error) => {
            eprintln!("SKIPPED as another user: {error}");
            None
        }
    }
}

#[test]
fn a_set_of_another_user_is_exit_77() {
    let name = Name::with("foreign", &["a=1"]);
    let Some(ran) = as_nobody(&["show", &name]) else { return };
    assert!(ran.ends(77).err().contains("this user has no permission"));
    fs::set_permissions(name.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let ran = as_nobody(&["try", &name, "--json"]).unwrap().ends(77);
    assert_eq!(ran.error_json()["error"]["code"], "other_owner");
    assert!(ran.error_json()["error"]["message"].as_str().unwrap().contains("--any-owner"));
    as_nobody(&["try", &name, "--any-owner"]).unwrap().ends(0);
    let ran = as_nobody(&["rm", &name, "--any-owner"]).unwrap().ends(77);
    assert!(ran.err().contains("cannot unlink"), "{ran:?}");
    let create = ["create", "/root/limitset-of-nobody", "--limit", "a=1", "--json"];
    let ran = as_nobody(&create).unwrap().ends(77);
    assert_eq!(ran.error_json()["error"]["code"], "no_permission");
    // Changes that only the owner may make are tried first, so nothing is half done.
    let file = std::env::temp_dir().join(format!("{}.toml", &*name));
    fs::write(&file, format!("[{}]\nlimits = [\"a=2\"]\nmode = \"660\"\n", &*name)).unwrap();
    as_nobody(&["apply", file.to_str().unwrap(), "--any-owner"]).unwrap().ends(77);
    fs::remove_file(&file).unwrap();
    assert!(run(&["show", &name]).ends(0).out().contains("a=1"));
    assert!(as_nobody(&["list", "--json"]).unwrap().ends(0).out().contains(&*name));
}

/// Runs a script with its own /dev/shm. Returns None if that is not possible here.
fn with_own_shm(size: &str, script: &str) -> Option<Ran> {
    let own = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm || exit 99\n{script}");
    let binary = env!("CARGO_BIN_EXE_limitset");
    let ran = Command::new("unshare").args(["--mount", "sh", "-c", &own, "sh", binary]).output();
    match ran {
        Ok(ran)
            if ran.status.code() != Some(99)
                && !String::from_utf8_lossy(&ran.stderr).contains("unshare failed") =>
        {
            Some(Ran(ran))
        }
        Ok(ran) => {
            eprintln!("SKIPPED with a /dev/shm of its own: {}", String::from_utf8_lossy(&ran.stderr));
            None
        }
        Err(error) => {
            eprintln!("SKIPPED with a /dev/shm of its own: unshare: {error}");
            None
        }
    }
}

#[test]
fn a_full_shared_memory_is_an_error_that_leaves_nothing() {
    let Some(ran) = with_own_shm("64k", "\"$1\" create full --limit a=1 --json; echo $?; ls -A /dev/shm")
    else {
        return;
    };
    assert_eq!(ran.out(), "1\n", "{ran:?}");
    assert_eq!(ran.error_json()["error"]["code"], "no_space");
    assert!(ran.err().contains("make room"), "{ran:?}");
    let small =
        with_own_shm("64k", "\"$1\" create full --limit a=1 --slots 2 --waiters 2 && \"$1\" check full")
            .unwrap();
    assert_eq!(small.code(), 0, "{small:?}");
    let ran = with_own_shm("64k", "exec \"$1\" doctor --json").unwrap();
    let examined = ran.ends(4).json();
    let checks = examined["checks"].as_array().unwrap();
    let size = checks.iter().find(|it| it["what"] == "/dev/shm: size").unwrap();
    assert_eq!(size["health"], "wrong");
    assert!(size["fix"].as_str().unwrap().contains("--shm-size"), "{size}");
}

#[test]
fn doctor_names_the_fix_for_a_shared_memory_that_is_mounted_wrong() {
    for (options, thing, found, fix) in [
        ("8m,ro", "/dev/shm: mount", "read-only", "remount,rw"),
        ("8m,mode=777", "/dev/shm: permissions", "any user may remove", "chmod 1777"),
        ("8m", "/dev/shm: size", "free of 8192 KiB", "--shm-size"),
    ] {
        let Some(ran) = with_own_shm(options, "exec \"$1\" doctor --json") else { return };
        let checks = ran.json()["checks"].clone();
        let check = checks.as_array().unwrap().iter().find(|it| it["what"] == thing).unwrap().clone();
        let is_small = thing.ends_with("size");
        assert_eq!(check["health"], if is_small { "odd" } else { "wrong" }, "{check}");
        assert_eq!(ran.code(), if is_small { 0 } else { 4 }, "{ran:?}");
        let said = |field: &str| check[field].as_str().unwrap().to_owned();
        assert!(said("found").contains(found), "{check}");
        assert!(said("fix").contains(fix), "{check}");
    }
    let ran = with_own_shm("8m,ro", "exec \"$1\" create full --limit a=1").unwrap().ends(1);
    assert!(ran.err().contains("Read-only file system"), "{ran:?}");
}

#[test]
fn gc_removes_generated_sets_that_nobody_uses_and_nothing_else() {
    let script = r#"
        set -e
        for name in auto-1-ab auto-2-cd auto-mobile mine; do "$1" create $name --limit a=1 >&2; done
        "$1" gc --json
        "$1" run auto-2-cd -- "$1" gc --older-than 0 --dry-run --json
        "$1" run auto-2-cd -- "$1" gc --older-than 0 --json
        ls -A /dev/shm >&2
    "#;
    let Some(ran) = with_own_shm("4m", script) else { return };
    assert_eq!(ran.code(), 0, "{ran:?}");
    let out = ran.out();
    let mut said = serde_json::Deserializer::from_str(&out).into_iter::<serde_json::Value>();
    let mut next = || said.next().unwrap().unwrap();
    let kept = |it: &serde_json::Value| -> Vec<(String, String)> {
        let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
        it["kept"].as_array().unwrap().iter().map(|it| (text(&it["name"]), text(&it["why"]))).collect()
    };
    let young = next();
    assert_eq!(young["removed"].as_array().unwrap().len(), 0, "{young}");
    assert!(kept(&young).iter().all(|(_, why)| why == "too young"), "{young}");
    for dry_run in [true, false] {
        let it = next();
        assert_eq!(
            (it["dry_run"].as_bool(), &it["removed"]),
            (Some(dry_run), &serde_json::json!(["auto-1-ab"]))
        );
        assert_eq!(kept(&it)[0].0, "auto-2-cd");
        assert!(kept(&it)[0].1.contains("in use by process"), "{it}");
    }
    let left = ran.err();
    let left: Vec<_> = left.lines().filter(|line| line.starts_with("limitset.")).collect();
    assert_eq!(left, ["limitset.auto-2-cd", "limitset.auto-mobile", "limitset.mine"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let name = Name::with("pipe", &["a=1"]);
    let mut child = limitset()
        .args(["completions", "zsh"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code(), ran.err()), (0, String::new()));
    drop(name);
}
