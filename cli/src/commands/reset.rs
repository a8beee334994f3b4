//! `limitset reset`: rates as new.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Make every rate as if nobody had used it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
