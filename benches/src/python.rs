//! What does acquire + release of 3 limits cost in Python, as a `with` block, against a lock of `multiprocessing` and
//! against limiters that share a budget among processes?
//!
//! One Python process in its own virtual environment, under `target/`, runs the batches of all rows: it
//! receives the row and the time to run, and answers with the time of one operation. If the environment
//! cannot be created, the rows say why.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::batches::{Plan, Row, Whose};
use crate::results::{Bench, Group};

const QUESTION: &str = "What does acquire + release of 3 limits cost in Python, as a `with` block?";
const SCRIPT: &str = include_str!("python.py");
const RIVALS: [&str; 2] = ["pyrate-limiter==4.5.1", "concurry==0.13.2"];

pub fn run(plan: Plan) -> Bench {
    let python = Python::start().map(|it| Rc::new(RefCell::new(it)));
    let row = |key: &'static str, whose, name: &str, note: &str| {
        let python = python.clone();
        let measure = move |batch: Duration| match &python {
            Ok(python) => python.borrow_mut().ask(key, batch),
            Err(why) => Err(why.clone()),
        };
        let mut row = Row::timed(format!("python/{key}"), whose, name, Box::new(measure)).note(note);
        // The row runs in one process.
        row.crew = false;
        row
    };
    let rows = vec![
        row("lock", Whose::Theirs, "`multiprocessing.Lock`", "a lock, stuck when its holder dies"),
        row("ours", Whose::Ours, "limitset, `with limits.acquire({\"tokens\": 1})`", ""),
        row("pyrate", Whose::Theirs, "PyrateLimiter, multiprocess bucket", "one rate; nothing to release"),
        row("concurry", Whose::Theirs, "concurry, process mode", "equal limits"),
    ];
    let group = Group::new("3 limits (call, tokens, connection) in Python", "python/lock", rows);
    Bench::measure("python", QUESTION, vec![group], plan, None)
}

/// The process that runs the batches.
struct Python {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Python {
    /// Starts the process. The error is the reason of a failure.
    fn start() -> Result<Python, String> {
        let environment = environment()?;
        let mut command = Command::new(environment.join("bin/python"));
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start Python: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no output of Python")?);
        Ok(Python { child, input, output: BufReader::new(output) })
    }

    /// Runs a batch of a row. Returns nanoseconds per operation.
    fn ask(&mut self, row: &str, batch: Duration) -> Result<f64, String> {
        let input = self.input.as_mut().ok_or("Python has ended")?;
        writeln!(input, "{row} {}", batch.as_nanos()).map_err(|error| error.to_string())?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        match line.trim_end().split_once(' ') {
            Some(("ok", ns)) => ns.parse().map_err(|_| format!("unexpected answer of Python: {line:?}")),
            Some(("no", why)) => Err(why.to_owned()),
            _ => Err(format!("unexpected answer of Python: {line:?}")),
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // At the end of its input the process removes its set and ends.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Creates the virtual environment, with the current limitset and the rivals.
fn environment() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no root")?;
    let target = root.join("target/python");
    let environment = target.join("bench-venv");
    if !environment.join("bin/python").exists() {
        ran(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let python = environment.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let mut ours = Command::new(&python);
    ours.args(pip).args(["--no-deps", "--force-reinstall"]).arg(root.join("ffi/python"));
    ran(ours.env("CARGO_TARGET_DIR", &target))?;
    // Without the rivals, only their rows are not run.
    if let Err(why) = ran(Command::new(&python).args(pip).args(RIVALS)) {
        eprintln!("the rivals in Python are not run: {why}");
    }
    Ok(environment)
}

fn ran(command: &mut Command) -> Result<(), String> {
    let line = format!("{command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}
