//! `limitset doctor`: the machine.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Look for what is wrong with this machine, and say how to mend it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
