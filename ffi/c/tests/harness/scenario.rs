//! Drives the C program that runs scenarios: a line for each step, a line of JSON for each answer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::Value;

use crate::list::{self, Driver};
use crate::programs::{self, Variant, folder};

struct InC {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Runs scenarios in C, one after the other in one process.
pub(crate) fn run<'a>(variant: Variant, scenarios: impl IntoIterator<Item = &'a Value>) {
    let source = folder().join("tests/c/scenario.c");
    let Some(mut command) = programs::command(&source, variant) else {
        return programs::skip_valgrind("scenarios");
    };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
    let mut driver = InC { child, input, output };
    scenarios.into_iter().for_each(|scenario| list::run(&mut driver, scenario));
    drop(driver.input.take());
    assert!(driver.child.wait().unwrap().success(), "the program did not end well");
}

impl InC {
    fn ask(&mut self, mut words: Vec<String>, what: &Value) -> Value {
        flatten(what, "", &mut words);
        writeln!(self.input.as_mut().unwrap(), "{}", words.join("\t")).unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{error} in {answer:?}, answered to {what}"))
    }
}

impl Driver for InC {
    fn open(&mut self, scenario: &Value) -> Value {
        let mut definition = scenario.clone();
        definition.as_object_mut().unwrap().retain(|key, _| key == "set" || key == "pool");
        let name = format!("name={}", scenario["name"].as_str().unwrap());
        self.ask(vec![name], &definition)
    }

    fn step(&mut self, step: &Value) -> Value {
        let mut step = step.clone();
        step.as_object_mut().unwrap().remove("expect");
        self.ask(Vec::new(), &step)
    }
}

impl Drop for InC {
    fn drop(&mut self) {
        // After a failure the program may still wait for a step.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes one word for each number and text, with its path.
fn flatten(value: &Value, path: &str, words: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, it)| flatten(it, &below(name), words)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, it)| flatten(it, &below(&index.to_string()), words));
        }
        Value::String(text) => {
            assert!(!text.contains(['\t', '\n']), "{text:?} does not fit a line");
            words.push(format!("{path}={text}"));
        }
        other => words.push(format!("{path}={other}")),
    }
}
