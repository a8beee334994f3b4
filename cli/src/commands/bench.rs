//! `limitset bench`: measuring.

use crate::context::{Context, Outcome};
use crate::failure::Failure;

/// Measure a scratch set on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many processes
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// How long
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Find the number of workers where throughput stops growing
    #[arg(long)]
    tune: bool,
}

pub(crate) fn run(_args: &Args, _context: &Context) -> Outcome {
    Err(Failure::usage("this command is not part of this build"))
}
