//! `cargo xtask test`: runs the parts, counts the tests in their output, and prints a summary.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::leftovers::{self, SHARED_MEMORY};
use crate::parts::{self, Part, Step, Work};
use crate::report::{Outcome, summary};
use crate::run;
use crate::tally::{Counts, Tally};

/// Runs the parts named in `args`, or all parts. The exit code is 0 only if there are no failures.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    let chosen = match parts::select(args) {
        Ok(chosen) => chosen,
        Err(unknown) => {
            write!(io::stderr(), "xtask: unknown part `{unknown}`\n\n{}", parts::list())?;
            return Ok(ExitCode::from(crate::MISUSE));
        }
    };
    let outcomes = run_parts(&chosen, false)?;
    Ok(if outcomes.iter().all(Outcome::ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs these parts, optionally at full depth, and prints the summary.
pub(crate) fn run_parts(chosen: &[&'static Part], full_depth: bool) -> io::Result<Vec<Outcome>> {
    let start = Instant::now();
    // The last part, if run alone, has no earlier snapshot to compare with: every leftover counts.
    let before =
        if chosen.len() > 1 { leftovers::find(Path::new(SHARED_MEMORY)) } else { Ok(BTreeSet::new()) };
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut runner = Runner { cargo, root: root(), full_depth, out: io::stdout() };
    let mut outcomes = Vec::new();
    for part in chosen {
        writeln!(io::stdout(), "\n=== {}: {}", part.name, part.about)?;
        outcomes.push(runner.run(part, before.as_ref().unwrap_or(&BTreeSet::new()))?);
    }
    write!(io::stdout(), "{}", summary(&outcomes, start.elapsed()))?;
    Ok(outcomes)
}

/// Returns the repository's root, also if it was moved after the build.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map(Path::to_owned).unwrap_or(manifest)
}

/// The context in which the parts run.
struct Runner<W> {
    cargo: OsString,
    root: PathBuf,
    /// Sets an environment variable that tests read: more rounds, larger models.
    full_depth: bool,
    out: W,
}

impl<W: Write> Runner<W> {
    fn run(&mut self, part: &Part, before: &BTreeSet<String>) -> io::Result<Outcome> {
        let start = Instant::now();
        let mut outcome = Outcome {
            part: part.name,
            counts: Counts::default(),
            skips: Vec::new(),
            proofs: Vec::new(),
            problems: Vec::new(),
            elapsed: start.elapsed(),
        };
        match part.work {
            Work::Check(steps) => {
                for step in steps() {
                    self.step(&step, &mut outcome)?;
                }
                outcome.counts = Counts { passed: 1, ..Counts::default() };
            }
            Work::Tests(steps) => match steps(&self.root) {
                Ok(steps) => {
                    for step in steps {
                        let counts = self.step(&step, &mut outcome)?;
                        outcome.counts += counts;
                        if !counts.any_ran() {
                            self.problem(&mut outcome, format!("no test ran: {}", step.line()))?;
                        }
                    }
                }
                Err(error) => self.problem(&mut outcome, format!("cannot find the tests: {error}"))?,
            },
            Work::Leftovers => {
                self.look_for_leftovers(before, &mut outcome)?;
                outcome.counts = Counts { passed: 1, ..Counts::default() };
            }
        }
        outcome.settle(matches!(part.work, Work::Tests(_)));
        outcome.elapsed = start.elapsed();
        Ok(outcome)
    }

    /// Runs one step. Returns an error only if the own output cannot be written; all other errors are
    /// problems of the part.
    fn step(&mut self, step: &Step, outcome: &mut Outcome) -> io::Result<Counts> {
        if let Some(component) = step.component
            && !self.has_subcommand(step)
        {
            self.problem(outcome, missing(component))?;
            return Ok(Counts::default());
        }
        writeln!(self.out, "$ {}", step.line())?;
        let mut tally = Tally::default();
        let command = self.command(step);
        let ending = run::stream(command, |chunk| {
            tally.feed(chunk);
            self.out.write_all(chunk)?;
            self.out.flush()
        });
        match ending {
            Ok(ending) => {
                if !ending.status.success() {
                    self.problem(outcome, format!("{}: {}", step.line(), ending.status))?;
                }
                if ending.survivor {
                    self.problem(outcome, format!("{}: left a process behind", step.line()))?;
                }
            }
            Err(error) => self.problem(outcome, format!("{}: {error}", step.line()))?,
        }
        let found = tally.finish();
        outcome.skips.extend(found.skips);
        outcome.proofs.extend(found.proofs);
        Ok(found.counts)
    }

    fn command(&self, step: &Step) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args(&step.args).current_dir(&self.root);
        if self.full_depth {
            command.env("LIMITSET_FULL_DEPTH", "1");
        }
        if let Some(flags) = step.rustdoc_flags {
            let mut all = std::env::var_os("RUSTDOCFLAGS").unwrap_or_default();
            if !all.is_empty() {
                all.push(" ");
            }
            all.push(flags);
            command.env("RUSTDOCFLAGS", all);
        }
        command
    }

    /// Returns whether cargo has the step's subcommand, which may be a component that is not installed.
    fn has_subcommand(&self, step: &Step) -> bool {
        let mut command = Command::new(&self.cargo);
        command.args(step.args.iter().take(1)).arg("--version").current_dir(&self.root);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn problem(&mut self, outcome: &mut Outcome, text: String) -> io::Result<()> {
        writeln!(self.out, "{}: {text}", outcome.part)?;
        outcome.problems.push(text);
        Ok(())
    }

    fn look_for_leftovers(&mut self, before: &BTreeSet<String>, outcome: &mut Outcome) -> io::Result<()> {
        match leftovers::find(Path::new(SHARED_MEMORY)) {
            Ok(found) => {
                for name in found.difference(before) {
                    self.problem(outcome, format!("{SHARED_MEMORY}/{name} was left behind"))?;
                }
                Ok(())
            }
            Err(error) => self.problem(outcome, format!("cannot list {SHARED_MEMORY}: {error}")),
        }
    }
}

impl Step {
    /// Returns the command line.
    fn line(&self) -> String {
        let prefix = self.rustdoc_flags.map(|flags| format!("RUSTDOCFLAGS=\"{flags}\" ")).unwrap_or_default();
        format!("{prefix}cargo {}", self.args.join(" "))
    }
}

impl Outcome {
    /// Counts at least one failure for a part with a problem. A check counts nothing else.
    fn settle(&mut self, has_tests: bool) {
        if self.problems.is_empty() {
            return;
        }
        if !has_tests {
            self.counts = Counts { failed: 1, ..Counts::default() };
        }
        self.counts.failed = self.counts.failed.max(1);
    }
}

fn missing(component: &str) -> String {
    format!(
        "{component} is not installed. With rustup: `rustup component add {component}`; \
         otherwise install your distribution's package for it."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a part with a shell as its "cargo". The output is captured, because the output of this process is
    /// counted too.
    fn shell(work: Work) -> Outcome {
        let part = Part { name: "sample", about: "", work };
        let mut runner = Runner { cargo: "sh".into(), root: root(), full_depth: false, out: Vec::new() };
        runner.run(&part, &BTreeSet::new()).unwrap()
    }

    fn script(text: &str) -> Step {
        Step { args: vec!["-c".into(), text.into()], ..Step::default() }
    }

    fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn a_check_counts_once() {
        let good = shell(Work::Check(|| vec![script("true"), script("true")]));
        assert_eq!((good.ok(), good.counts), (true, counts(1, 0, 0)));
        let bad = shell(Work::Check(|| vec![script("false"), script("true")]));
        assert_eq!((bad.ok(), bad.counts), (false, counts(0, 1, 0)));
    }

    #[test]
    fn a_command_that_runs_no_test_fails_its_part() {
        let none = shell(Work::Tests(|_| {
            Ok(vec![
                script("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"),
                script("echo 'test result: ok. 0 passed; 0 failed; 0 ignored'"),
            ])
        }));
        assert_eq!((none.ok(), none.counts), (false, counts(2, 1, 0)));
        assert!(none.problems[0].starts_with("no test ran"), "{:?}", none.problems);
    }

    #[test]
    fn tests_that_were_all_skipped_fail_their_part() {
        let text = "echo 'SKIPPED a: why'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let mut part = Outcome { problems: vec![], ..shell(Work::Check(Vec::new)) };
        let mut runner = Runner { cargo: "sh".into(), root: root(), full_depth: false, out: Vec::new() };
        let found = runner.step(&script(text), &mut part).unwrap();
        assert_eq!((found, found.any_ran()), (counts(0, 0, 1), false));
        assert_eq!(part.skips, ["SKIPPED a: why"]);
    }

    #[test]
    fn failures_are_counted_as_the_harness_counts_them() {
        let bad = shell(Work::Tests(|_| {
            Ok(vec![script("echo 'test result: FAILED. 5 passed; 3 failed; 0 ignored'; exit 101")])
        }));
        assert_eq!((bad.ok(), bad.counts), (false, counts(5, 3, 0)));
    }

    #[test]
    fn a_command_that_dies_without_a_result_is_a_failure() {
        let died = shell(Work::Tests(|_| {
            Ok(vec![script("echo 'test result: ok. 5 passed; 0 failed; 0 ignored'; kill -9 $$")])
        }));
        assert_eq!((died.ok(), died.counts), (false, counts(5, 1, 0)));
    }

    #[test]
    fn a_missing_component_is_named_with_what_to_do() {
        let check = shell(Work::Check(|| {
            vec![Step { args: vec!["no-such-file".into()], component: Some("rustfmt"), ..Step::default() }]
        }));
        assert_eq!(check.counts, counts(0, 1, 0));
        assert!(check.problems[0].contains("rustup component add rustfmt"), "{:?}", check.problems);
    }

    #[test]
    fn a_step_reads_as_it_would_be_typed() {
        let step = Step { rustdoc_flags: Some("-D warnings"), ..script("x") };
        assert_eq!(step.line(), "RUSTDOCFLAGS=\"-D warnings\" cargo -c x");
    }
}
