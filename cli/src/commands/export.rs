//! `limitset export`: a set as a file.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Write a set down as `apply` reads it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
