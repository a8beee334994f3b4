//! `limitset list`: the sets of this machine.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// List the sets of this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
