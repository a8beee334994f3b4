//! `cargo xtask bench` and `cargo xtask instructions`: the cost of the product, in time and in instructions.
//!
//! The benches are a package with its own workspace, because they depend on many rivals: no other command
//! builds them.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

use crate::test;

/// The manifest of the benches, relative to the root.
const BENCHES: &str = "benches/Cargo.toml";

/// Builds the benches and runs them with these arguments.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    run(&bench_line(args), &[])
}

/// Counts the instructions of the hot paths; saves the counts with `--bless`.
pub(crate) fn instructions(args: &[String]) -> io::Result<ExitCode> {
    let is_blessing = args.first().is_some_and(|argument| argument == "--bless");
    if let Some(unknown) = args.get(usize::from(is_blessing)) {
        writeln!(io::stderr(), "xtask: unknown argument `{unknown}`: `instructions` takes only `--bless`")?;
        return Ok(ExitCode::from(crate::MISUSE));
    }
    let line = ["test", "--release", "-p", "hot-paths", "--test", "instructions", "--", "--nocapture"];
    let set: &[_] = if is_blessing { &[("LIMITSET_BLESS", "1")] } else { &[] };
    run(&line.map(OsString::from), set)
}

fn bench_line(args: &[String]) -> Vec<OsString> {
    let fixed = ["run", "--release", "--locked", "--manifest-path", BENCHES, "--"];
    fixed.into_iter().map(OsString::from).chain(args.iter().map(OsString::from)).collect()
}

/// Runs cargo at the root, and passes its exit code on.
fn run(args: &[OsString], set: &[(&str, &str)]) -> io::Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).envs(set.iter().copied()).current_dir(test::root());
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_passed_through_to_the_benches() {
        let line = bench_line(&["--quick".into(), "--only".into(), "growth".into()]);
        let line: Vec<_> = line.iter().filter_map(|word| word.to_str()).collect();
        let expected = "run --release --locked --manifest-path benches/Cargo.toml -- --quick --only growth";
        assert_eq!(line.join(" "), expected);
    }

    #[test]
    fn a_word_that_instructions_does_not_know_is_refused() {
        let refused = instructions(&["--bles".into()]).unwrap();
        assert_eq!(refused, ExitCode::from(crate::MISUSE));
        assert_eq!(instructions(&["--bless".into(), "x".into()]).unwrap(), ExitCode::from(crate::MISUSE));
    }

    #[test]
    fn the_benches_are_where_they_are_looked_for() {
        assert!(test::root().join(BENCHES).exists());
    }
}
