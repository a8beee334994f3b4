//! The list of scenarios, and the comparison of an answer with the expected one. See `README.md` beside this.
#![allow(unreachable_pub, reason = "used by the tests of more than one package")]

use std::path::Path;

use serde_json::Value;

/// Does the steps of a scenario, in some language.
pub trait Driver {
    /// Opens the set or pool of a scenario.
    fn open(&mut self, scenario: &Value) -> Value;
    /// Does a step, and gives the whole answer.
    fn step(&mut self, step: &Value) -> Value;
}

/// All scenarios in the files of a folder, by name.
pub fn load(folder: &Path) -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder of scenarios")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut all: Vec<(String, Value)> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("text");
        let file: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for scenario in file["scenarios"].as_array().expect("a list of scenarios") {
            let name = scenario["name"].as_str().expect("a name").to_owned();
            assert!(all.iter().all(|(other, _)| *other != name), "two scenarios have the name {name}");
            all.push((name, scenario.clone()));
        }
    }
    assert!(!all.is_empty(), "no scenario in {}: nothing would be tested", folder.display());
    all
}

/// Runs a scenario; fails with the first step whose answer does not fit.
pub fn run(driver: &mut dyn Driver, scenario: &Value) {
    let expected = scenario.get("opens").cloned().unwrap_or_else(|| serde_json::json!({ "status": "ok" }));
    let answer = driver.open(scenario);
    if let Err(why) = fits(&expected, &answer, "opens") {
        panic!("{}: {why}\nwhole answer: {answer}", scenario["name"]);
    }
    let none = Vec::new();
    for (index, step) in scenario["steps"].as_array().unwrap_or(&none).iter().enumerate() {
        let answer = driver.step(step);
        let expected = step.get("expect").unwrap_or_else(|| panic!("step {index} expects nothing: {step}"));
        assert!(expected.get("status").is_some(), "step {index} expects no status: {step}");
        if let Err(why) = fits(expected, &answer, "expect") {
            panic!("{} step {index}: {why}\nstep: {step}\nwhole answer: {answer}", scenario["name"]);
        }
    }
}

/// Whether an answer has all that is expected; else where it has not.
fn fits(expected: &Value, found: &Value, place: &str) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(members), Value::Object(_)) => {
            for (name, value) in members {
                fits(value, found.get(name).unwrap_or(&Value::Null), &format!("{place}.{name}"))?;
            }
            Ok(())
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.try_for_each(|(index, (it, other))| fits(it, other, &format!("{place}[{index}]")))
        }
        _ if expected == found => Ok(()),
        _ => Err(format!("{place} is {found}, expected {expected}")),
    }
}

/// A test of the comparison itself: it can fail.
pub fn what_differs_anywhere_does_not_fit() {
    use serde_json::json;
    let found = json!({ "a": 1, "b": { "c": [1, { "d": "x", "e": 2 }] } });
    for good in [json!({}), json!({ "b": { "c": [1, { "d": "x" }] } }), json!({ "z": null })] {
        assert_eq!(fits(&good, &found, "it"), Ok(()));
    }
    let bad = [json!({ "a": 2 }), json!({ "a": null }), json!({ "z": 1 }), json!({ "b": 1 })];
    let deep = [json!({ "b": { "c": [1] } }), json!({ "b": { "c": [1, { "d": "y" }] } })];
    for bad in bad.into_iter().chain(deep) {
        assert!(fits(&bad, &found, "it").is_err(), "{bad}");
    }
}
