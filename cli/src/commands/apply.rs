//! `limitset apply`: sets as a file describes them.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Create sets, or change them, as a file describes them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file
    file: std::path::PathBuf,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
