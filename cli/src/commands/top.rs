//! `limitset top`: a live view.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Watch sets live
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sets; all of them if none is named
    names: Vec<String>,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
