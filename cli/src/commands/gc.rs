//! `limitset gc`: generated sets that nobody uses.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Remove generated sets that nobody is attached to
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
