//! `docs/cli.md` matches the command: every command has its section, every example runs, and the JSON has the
//! shape that the page shows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

mod support;

use std::fs;
use std::path::Path;

use limitset::{Algorithm, CallLimit, LimitSet, QueueOptions, RateLimit, ResourceLimit};
use serde_json::Value;
use support::{Name, run};

fn manual() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md")).unwrap()
}

/// Returns the commands that `limitset help` lists.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).ends(0).out();
    let list = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let list = list.take_while(|line| line.starts_with("  "));
    let names = list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// Returns the code blocks of a page, with their languages.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((language, block.join("\n")));
        }
    }
    found
}

/// Returns the place where the shape of the found JSON differs from the shown one. A shown `null` matches any
/// value that is present. Of lists, the first elements are compared.
fn differs(shown: &Value, found: &Value, at: &str) -> Option<String> {
    match (shown, found) {
        (Value::Null, _) | (_, Value::Null) => None,
        // The user chooses these keys.
        _ if ["/config", "/holds", "/owes_reports", "/charged", "/taken"]
            .iter()
            .any(|end| at.ends_with(end)) =>
        {
            None
        }
        (Value::Object(shown), Value::Object(found)) => {
            let missing = shown.keys().find(|key| !found.contains_key(*key));
            let new = found.keys().find(|key| !shown.contains_key(*key));
            if let Some(key) = missing.or(new) {
                return Some(format!("{at}/{key}"));
            }
            shown.iter().find_map(|(key, value)| differs(value, &found[key], &format!("{at}/{key}")))
        }
        (Value::Array(shown), Value::Array(found)) => {
            let (shown, found) = (shown.first()?, found.first()?);
            differs(shown, found, &format!("{at}/0"))
        }
        (Value::String(_), Value::String(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::Bool(_), Value::Bool(_)) => None,
        _ => Some(format!("{at}: {found}")),
    }
}

#[test]
fn every_command_has_its_section_and_nothing_else_is_described() {
    let text = manual();
    let sections: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let commands = commands();
    for command in &commands {
        assert!(sections.contains(&command.as_str()), "{command} is not in docs/cli.md");
        assert!(text.contains(&format!("[{command}](#{command})")), "{command} is not in its table");
    }
    let is_command = |section: &&&str| section.starts_with(|c: char| c.is_ascii_lowercase());
    for section in sections.iter().filter(is_command) {
        assert!(commands.contains(&(*section).to_owned()), "docs/cli.md describes {section}");
    }
}

#[test]
fn the_shapes_in_the_manual_are_what_is_printed() {
    let (web, new) = (Name::new("manual"), Name::new("manual-new"));
    let limits = ["calls=500/min", "tokens=200000/min:gcra:burst=50000", "connections=8"];
    let file = std::env::temp_dir().join(format!("{}.toml", &*web));
    let text = format!("[{}]\nlimits = {limits:?}\nconfig = {{ region = \"eu\" }}\n", &*web);
    fs::write(&file, &text).unwrap();
    run(&["apply", file.to_str().unwrap()]).ends(0);
    // Another capacity, so that there is a change to apply.
    fs::write(&file, text.replace("200000", "300000")).unwrap();
    let manual = manual();
    let blocks = blocks(&manual);
    let mut seen = Vec::new();
    for pair in blocks.windows(2) {
        let [("sh", command), ("json", shown)] = pair else { continue };
        let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{command}: {error}"));
        let words: Vec<String> = command.split(' ').skip(1).map(str::to_owned).collect();
        let own = |word: &String| match word.as_str() {
            "web" => web.0.clone(),
            "new" => new.0.clone(),
            "limits.toml" => file.to_str().unwrap().to_owned(),
            other => other.to_owned(),
        };
        let args: Vec<_> = words.iter().map(own).collect();
        // Hold something, so that optional fields have a value.
        let held = LimitSet::attach(&*web).ok().filter(|_| words[0] == "show");
        let held = held.as_ref().map(|set| set.acquire([("tokens", 100)]).unwrap());
        let ran = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        drop(held);
        // The output belongs to the command that is run.
        let mut found = if words[0] == "run" { ran.error_json() } else { ran.json() };
        if words[0] == "export" {
            let set = found.as_object_mut().unwrap().remove(&*web).unwrap();
            found["web"] = set;
        }
        let difference = differs(&shown, &found, "");
        assert_eq!(difference, None, "{command}: docs/cli.md shows\n{shown:#}\nit prints\n{found:#}");
        seen.push(words[0].clone());
    }
    fs::remove_file(&file).unwrap();
    seen.dedup();
    let mut expected = commands();
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected, "every command has an example with its JSON");
}

#[test]
fn a_work_queue_has_the_shape_in_the_manual() {
    let name = Name::new("manual-queue");
    let set = LimitSet::builder().queue(QueueOptions::new(4, 8)).open(&*name).unwrap();
    let manual = manual();
    let blocks = blocks(&manual);
    let shown =
        blocks.iter().find(|(language, text)| *language == "json" && text.contains("\"queue\"")).unwrap();
    let shown: Value = serde_json::from_str(&shown.1).unwrap();
    let found = run(&["show", &name, "--json"]).ends(0).json();
    assert!(found["queue"].is_object());
    assert_eq!(differs(&shown["queue"], &found["queue"], ""), None);
    drop(set);
}

#[test]
fn the_set_that_the_readme_creates_is_the_one_that_its_program_opens() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let line = readme.lines().find_map(|line| line.strip_prefix("limitset create openai ")).unwrap();
    let name = Name::new("readme");
    let args: Vec<_> = ["create", &name].into_iter().chain(line.split_whitespace()).collect();
    run(&args).ends(0);
    // As in the README.
    let limits = LimitSet::builder()
        .limit(CallLimit::per_minute(500))
        .limit(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra))
        .limit(ResourceLimit::new("connections", 8))
        .config("region", "us-east-1")
        .open(&*name)
        .unwrap();
    assert_eq!(limits.limits().len(), 3);
}

/// All source files of the command.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else {
            *text += &fs::read_to_string(&path).unwrap();
        }
    }
}

#[test]
fn the_manual_has_every_word_for_an_error() {
    let mut source = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
    let manual = manual();
    // Each exit code is followed by its code for programs.
    let after = source.split("Exit::").skip(1).filter_map(|rest| rest.split_once(','));
    let after = after.filter(|(name, _)| name.chars().all(char::is_alphanumeric));
    let words = after.filter_map(|(_, rest)| rest.trim_start().strip_prefix('"')?.split_once('"'));
    let words: std::collections::BTreeSet<_> = words.map(|(word, _)| word).collect();
    assert!(words.len() > 30, "{words:?}");
    for word in words.iter().filter(|word| **word != "broken_pipe") {
        assert!(manual.contains(&format!("`{word}`")), "{word} is not in docs/cli.md");
    }
}

#[test]
fn a_changed_shape_is_seen() {
    let shown = serde_json::json!({ "a": 1, "b": [{ "c": "x" }], "d": null });
    let same = serde_json::json!({ "a": 2, "b": [], "d": "now" });
    assert_eq!(differs(&shown, &same, ""), None);
    for (found, at) in [
        (serde_json::json!({ "b": [], "d": 1 }), "/a"),
        (serde_json::json!({ "a": 1, "b": [], "d": 1, "e": 1 }), "/e"),
        (serde_json::json!({ "a": "1", "b": [], "d": 1 }), "/a: \"1\""),
        (serde_json::json!({ "a": 1, "b": [{ "c": 2 }], "d": 1 }), "/b/0/c: 2"),
    ] {
        assert_eq!(differs(&shown, &found, "").as_deref(), Some(at));
    }
}

#[test]
fn the_file_in_the_manual_can_be_applied() {
    let manual = manual();
    let blocks = blocks(&manual);
    let (_, text) = blocks.iter().find(|(language, _)| *language == "toml").unwrap();
    let name = Name::new("manual-file");
    let file = std::env::temp_dir().join(format!("{}.toml", &*name));
    // The group may not exist here.
    let text = text.replace("[web", &format!("[{}", &*name)).replace("group = \"www-data\"", "");
    fs::write(&file, text).unwrap();
    let ran = run(&["apply", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    assert_eq!(ran.code(), 0, "{ran:?}");
    run(&["check", &name]).ends(0);
}
