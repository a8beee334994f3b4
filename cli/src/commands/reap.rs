//! `limitset reap`: returning what the dead hold.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Return at once what the dead still hold
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
