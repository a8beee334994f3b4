//! The command line.

use clap::{Parser, Subcommand};

use crate::commands;

/// Limits that hold across processes: create, inspect and use them from a shell
#[derive(Debug, Parser)]
#[command(name = "limitset", version, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    /// Print JSON in the shape that docs/cli.md describes; errors too, on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Accept sets that belong to another user
    #[arg(long, global = true)]
    pub(crate) any_owner: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

pub(crate) const AFTER: &str = "NAME is a set in /dev/shm; a NAME that contains a / is a file. \
Exit codes: 0 success, 1 failed, 2 usage, 3 no such set, 4 unsound, 5 conflict, 69 unavailable, \
75 denied or timed out, 76 never (exceeds a limit's maximum), 77 no permission.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(commands::create::Args),
    Apply(commands::apply::Args),
    Export(commands::export::Args),
    List(commands::list::Args),
    Show(commands::show::Args),
    Top(commands::top::Args),
    Run(commands::run::Args),
    Try(commands::try_::Args),
    Set(commands::set::Args),
    Reset(commands::reset::Args),
    Rm(commands::rm::Args),
    Reap(commands::reap::Args),
    Gc(commands::gc::Args),
    Cooldown(commands::cooldown::Args),
    Check(commands::check::Args),
    Doctor(commands::doctor::Args),
    Simulate(commands::simulate::Args),
    Bench(commands::bench::Args),
    Demo(commands::demo::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}
