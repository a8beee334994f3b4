//! The `limitset` command: make, see and use limits from a shell. It translates the library and has no rules of its
//! own.
//!
//! ```text
//! args       the command line
//! grammar    limits, needs and times as text; errors point at the character
//! context    what every command is given: how to print, whom to trust
//! failure    what went wrong, and with which exit code
//! machine    what doctor looks at
//! set_file   a set as a file describes it
//! text       instants, sizes, counts
//! table      aligned columns for people
//! commands   one file each
//! ```

mod args;
mod commands;
mod context;
mod exit;
mod failure;
mod grammar;
mod machine;
mod set_file;
mod table;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Says what is wrong with a command line that was not understood, as it asked for as far as it was.
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
            // Help and version are no errors, and go to stdout. Nothing is left to do if they cannot be written.
            if error.use_stderr() {
                return misused(&error).into();
            }
            let _ = error.print();
            return Exit::Done.into();
        }
    };
    let context = Context::new(cli.json, cli.any_owner);
    match commands::run(cli.command, &context) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let _ = io::stdout().flush();
            let _ = failure.print(&context, &mut io::stderr().lock());
            failure.exit.into()
        }
    }
}
