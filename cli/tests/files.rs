//! `apply` and `export`: sets as files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use limitset::{
    Algorithm, CallLimit, Clock, Cooldown, LimitSet, Order, QueueOptions, RateLimit, ResourceLimit, Segment,
};
use support::{Name, Ran, limitset, run};

/// A temporary file, removed on drop.
struct Toml(PathBuf);

impl Toml {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{}.toml", Name::new("file").0));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Toml {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn actions(ran: &Ran) -> Vec<(String, String)> {
    let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
    ran.json()["sets"].as_array().unwrap().iter().map(|it| (text(&it["name"]), text(&it["action"]))).collect()
}

#[test]
fn what_is_exported_is_applied_again_to_the_letter() {
    let (name, copy) = (Name::new("export"), Name::new("copy"));
    let set = LimitSet::builder()
        .limit(CallLimit::per_minute(500))
        .limit(CallLimit::per_day(10_000).key("rpd").algorithm(Algorithm::FixedWindow))
        .limit(
            RateLimit::new("odd key = \"x\"", 7, Duration::from_millis(1_500))
                .algorithm(Algorithm::Gcra)
                .burst(3),
        )
        .limit(RateLimit::per_hour("rows", 9).algorithm(Algorithm::SlidingWindow).resolution(24))
        .limit(ResourceLimit::new("db", 8))
        .config("region", "eu")
        .config("odd \"key\"", "two\nlines")
        .order(Order::Any)
        .clock(Clock::Coarse)
        .cooldown(Cooldown::default().first(Duration::from_secs(2)).factor(1.5).slow_start(
            3,
            Duration::from_secs(1),
            Duration::ZERO,
        ))
        .queue(QueueOptions::new(100, 64).attempts(5))
        .segment(Segment::options().slots(20).waiters(30).mode(0o640))
        .create(&*name)
        .unwrap();
    set.reconfigure([CallLimit::per_minute(600)]).unwrap();
    let text = run(&["export", &name]).ends(0).out();
    assert!(text.contains("\"calls=600/min\""), "the numbers of now: {text}");
    let file = Toml::new(&text);
    let kept = run(&["apply", file.path(), "--json"]).ends(0);
    assert_eq!(actions(&kept), [(name.0.clone(), "keep".to_owned())]);
    // An equal set under another name exports equal text.
    let file = Toml::new(&text.replace(&*name, &copy));
    let created = run(&["apply", file.path(), "--json"]).ends(0);
    assert_eq!(actions(&created), [(copy.0.clone(), "create".to_owned())]);
    let again = run(&["export", &copy]).ends(0).out();
    assert_eq!(again.replace(&*copy, &name), text);
    let (a, b) =
        (LimitSet::observe(&*name).unwrap().declaration(), LimitSet::observe(&*copy).unwrap().declaration());
    assert_eq!(
        (a.config, a.order, a.clock, a.cooldown, a.queue),
        (b.config, b.order, b.clock, b.cooldown, b.queue)
    );
}

#[test]
fn apply_creates_and_changes_several_sets_in_place_and_shows_the_difference_first() {
    let (old, new) = (Name::with("apply-old", &["tokens=200000/min:gcra", "db=8"]), Name::new("apply-new"));
    let set = LimitSet::attach(&*old).unwrap();
    let held = set.acquire([("tokens", 0), ("db", 3)]).unwrap();
    let file = Toml::new(&format!(
        "[{}]\nlimits = [\"tokens=300k/min:gcra\", \"db=8\"]\nmode = \"640\"\n\n[{}]\nlimits = [\"calls=5/s\"]\n",
        &*old, &*new
    ));
    let dry = run(&["apply", "--dry-run", file.path()]).ends(0).out();
    assert!(dry.contains("~ limit tokens=200000/min:gcra -> tokens=300000/min:gcra"), "{dry}");
    assert!(dry.contains("~ mode 600 -> 640") && dry.contains("+ limit calls=5/s"), "{dry}");
    assert!(!new.path().exists());
    assert_eq!(set.stats().unwrap().limit("tokens").unwrap().capacity, 200_000);
    run(&["apply", file.path()]).ends(0);
    let stats = set.stats().unwrap();
    let tokens = stats.limit("tokens").unwrap();
    assert_eq!((tokens.capacity, tokens.revision, stats.limit("db").unwrap().revision), (300_000, 1, 0));
    assert_eq!(stats.limit("db").unwrap().in_use, 3, "in place");
    assert_eq!(LimitSet::observe(&*new).unwrap().limits().len(), 1);
    let kept = run(&["apply", file.path(), "--json"]).ends(0);
    assert!(actions(&kept).iter().all(|(_, action)| action == "keep"), "{kept:?}");
    held.release().unwrap();
}

#[test]
fn a_difference_that_cannot_be_changed_live_changes_nothing_at_all() {
    let (a, z) = (Name::with("apply-a", &["db=8"]), Name::with("apply-z", &["tokens=5/s", "db=8"]));
    for (limits, rest) in [
        (r#"["tokens=5/s:leaky_bucket", "db=8"]"#, ""),
        (r#"["tokens=5/s", "db=8", "more=1"]"#, ""),
        (r#"["tokens=5/s"]"#, ""),
        (r#"["tokens=5/s", "db=8"]"#, "config = { region = \"eu\" }"),
        (r#"["tokens=5/s", "db=8"]"#, "slots = 7"),
        (r#"["tokens=5/s", "db=8"]"#, "order = \"any\""),
        (r#"["tokens=5/s", "db=8"]"#, "queue = { items = 4, item_bytes = 8 }"),
        (r#"["tokens=5/s", "db=8"]"#, "cooldown = { first = \"1s\" }"),
    ] {
        let file =
            Toml::new(&format!("[{}]\nlimits = [\"db=9\"]\n[{}]\nlimits = {limits}\n{rest}\n", &*a, &*z));
        let ran = run(&["apply", file.path(), "--json"]).ends(5);
        assert_eq!(ran.json()["applied"], false);
        assert_eq!(actions(&ran)[1].1, "conflict", "{limits} {rest}");
        assert_eq!(ran.error_json()["error"]["code"], "differs");
        let set = LimitSet::observe(&*a).unwrap();
        assert_eq!(set.stats().unwrap().limit("db").unwrap().capacity, 8, "{limits} {rest}");
        let text = run(&["apply", file.path()]).ends(5);
        assert!(
            text.out().contains("cannot be changed live") && text.err().contains("limitset rm"),
            "{text:?}"
        );
    }
}

#[test]
fn a_file_that_makes_no_sense_is_pointed_at_before_anything_happens() {
    let name = Name::new("apply-bad");
    let good = format!("[{}]\nlimits = [\"db=9\"]\n", &*name);
    for (bad, said, shown) in [
        ("[x]\nlimts = []\n", "line 4, column 1: unknown field", "4 | limts = []\n  | ^^^^^"),
        ("[x]\nlimits = [\"a=1\"]\nslots = -1\n", "line 5, column 9: ", "        ^^"),
        ("[x]\nlimits = [\"a=1\"]\nqueue = 5\n", "expected a table with the numbers of a work queue", "^"),
        ("[x]\nmode = \"600\"\n", "missing field `limits`", ""),
        ("[x\n", "", "^"),
        (
            "[x]\nlimits = [\n  \"a=1\",\n  \"tokens=5/mni\"]\n",
            "line 6, column 13: [x]: unknown unit of time \"mni\"",
            "\n  |\n6 |   \"tokens=5/mni\"]\n  |             ^^^\n",
        ),
        ("[x]\nlimits = [\"令牌=5/mni\"]\n", "line 4, column 17: [x]: ", "\n  |                   ^^^\n"),
        ("[x]\nlimits = []\n", "line 4, column 10: [x]: a set without limits would limit nothing", "^^"),
        (
            "[x]\nlimits = [\"a=1\"]\ncooldown = { first = \"5\" }\n",
            "line 5, column 24: [x]: unexpected end of input, expected a unit of time",
            "^",
        ),
        ("[x]\nlimits = [\"a=1\"]\ncooldown = { factor = 0.5 }\n", "line 3, column 2: [x]: the factor", "^"),
        ("[x]\nlimits = [\"b=1\", \"a=0\"]\n", "line 4, column 18: [x]: limit \"a\" has capacity 0", "^^^^^"),
        ("[x]\nlimits = [\"a=1\", \"a=1\"]\n", "line 4, column 18: [x]: two limits have the key", "^^^^^"),
        (
            "[x]\nlimits = [\"a=1\"]\nmode = \"9\"\n",
            "line 5, column 8: [x]: mode \"9\" is not an octal",
            "^^^",
        ),
        ("[x]\nlimits = [\"a=1\"]\nslots = 99999\n", "line 3, column 2: [x]: 99999 slots", "^"),
        ("[\"a b\"]\nlimits = [\"a=1\"]\n", "line 3, column 2: [a b]: ", "^^^^^"),
    ] {
        let file = Toml::new(&format!("{good}{bad}"));
        let ran = run(&["apply", file.path()]).ends(2);
        assert!(ran.err().contains(said) && ran.err().contains(shown), "{bad}: {ran:?}");
        assert!(!name.path().exists(), "{bad}");
    }
    assert!(run(&["apply", "/dev/null"]).ends(0).out().contains("describes no set"));
    let file = Toml::new("");
    fs::write(file.path(), [0xff, 0xfe]).unwrap();
    assert!(run(&["apply", file.path()]).ends(2).err().contains("UTF-8"));
    assert!(run(&["apply", "/no/such/file"]).ends(1).err().contains("/no/such/file"));
}

#[test]
fn a_set_can_come_from_standard_input_and_go_to_a_file() {
    let file = std::env::temp_dir().join(Name::new("apply-path").0.clone());
    let mut child =
        limitset().args(["apply", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let text = format!("[\"{}\"]\nlimits = [\"db=9\"]\n", file.display());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let mut child =
        limitset().args(["apply", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"[x]\nlimits = 1\n").unwrap();
    let ran = Ran(child.wait_with_output().unwrap()).ends(2);
    assert!(ran.err().starts_with("limitset: standard input: line 2, column 10: "), "{ran:?}");
    let exported = run(&["export", file.to_str().unwrap(), "--json"]).ends(0).json();
    assert_eq!(exported[file.to_str().unwrap()]["limits"], serde_json::json!(["db=9"]));
    run(&["rm", file.to_str().unwrap()]).ends(0);
    assert!(!file.exists());
}
