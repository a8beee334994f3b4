//! `limitset demo`: a tour.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// A one-minute tour: four workers, one limit, one death
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
