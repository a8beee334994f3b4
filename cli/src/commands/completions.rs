//! `limitset completions`: prints completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;

use crate::args::Cli;
use crate::context::{Context, Outcome};
use crate::exit::Exit;

/// Print completions for a shell
///
/// Example: limitset completions bash > /etc/bash_completion.d/limitset
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Serialize)]
struct Completions {
    shell: String,
    script: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "limitset", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let completions = Completions { shell: args.shell.to_string(), script };
    context.print(&completions, |out| write!(out, "{}", completions.script))?;
    Ok(Exit::Done)
}
