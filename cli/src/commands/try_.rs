//! `limitset try`: a dry run.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Say whether a request would be granted now, and charge nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
