//! `limitset set`: live numbers.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Change numbers of limits, for every process at once
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
