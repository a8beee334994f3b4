//! `limitset completions`: for shells.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
