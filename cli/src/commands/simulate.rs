//! `limitset simulate`: limits on a virtual clock.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Try limits on a virtual clock: what would be admitted, and when
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A limit, as in tokens=200000/min:gcra:burst=50000
    #[arg(long, required = true, value_name = "LIMIT")]
    limit: Vec<String>,
    /// Requests to try them on
    #[arg(long, value_name = "FILE")]
    trace: Option<std::path::PathBuf>,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
