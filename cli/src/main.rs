//! The `limitset` command: create, inspect and use limits from a shell. It translates the library and has no
//! rules of its own.
//!
//! ```text
//! args       the command line
//! grammar    limits, needs and times as text; errors point at the character
//! context    the context of every command: output format, ownership policy
//! failure    messages, exit codes and codes of failures
//! machine    the checks of doctor
//! places     line and column of a fault in a file of sets
//! set_file   the description of a set in a file
//! text       instants, sizes, counts
//! table      tables with aligned columns
//! commands   the commands, one file each
//! ```

mod args;
mod commands;
mod context;
mod exit;
mod failure;
mod grammar;
mod machine;
mod places;
mod set_file;
mod table;
mod text;

use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;

use crate::args::Cli;
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs a command. A panic in it becomes a failure of one line, which is printed after the command has
/// restored the terminal.
fn spared(command: impl FnOnce() -> Outcome) -> Outcome {
    static WHERE: Mutex<Option<String>> = Mutex::new(None);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|about| {
        // The first of several panics is the cause.
        if let Ok(mut place) = WHERE.lock() {
            place.get_or_insert_with(|| about.to_string());
        }
    }));
    let done = panic::catch_unwind(AssertUnwindSafe(command));
    panic::set_hook(usual);
    done.unwrap_or_else(|_| {
        let place = WHERE.lock().ok().and_then(|mut place| place.take()).unwrap_or_default();
        Err(Failure::new(Exit::Failed, "defect", format!("internal error, please report it: {place}")))
    })
}

/// Reports an invalid command line: as JSON if an argument before `--` is `--json`.
fn misused(error: &clap::Error) -> Exit {
    let own = std::env::args_os().take_while(|arg| arg != "--");
    if own.into_iter().any(|arg| arg == "--json") {
        let failure = Failure::usage(error.to_string().trim_end());
        let _ = failure.print(&Context::new(true, false), &mut io::stderr().lock());
    } else {
        let _ = error.print();
    }
    Exit::Usage
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors and go to stdout. If they cannot be written, nothing is left to
            // do.
            if error.use_stderr() {
                return misused(&error).into();
            }
            let _ = error.print();
            return Exit::Done.into();
        }
    };
    let context = Context::new(cli.json, cli.any_owner);
    match spared(|| commands::run(cli.command, &context)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let _ = io::stdout().flush();
            let _ = failure.print(&context, &mut io::stderr().lock());
            failure.exit.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_one_line() {
        let failure = spared(|| panic!("the sky\nis falling")).unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Failed, "defect"));
        let mut told = Vec::new();
        failure.print(&Context { json: false, any_owner: false, colour: false }, &mut told).unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(
            told.starts_with("limitset: internal error") && told.contains("the sky?is falling"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(spared(|| Ok(Exit::Later)).unwrap(), Exit::Later);
    }
}
