//! `limitset run`: a command under limits.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Run a command under limits
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// What it needs, as in tokens=100; one of each call and resource limit comes along
    #[arg(long, value_name = "KEY=NUMBER")]
    need: Vec<String>,
    /// How long to wait; for ever if it is not given
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// What to do when the set cannot be asked
    #[arg(long, value_name = "POLICY", default_value = "deny")]
    on_unavailable: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
