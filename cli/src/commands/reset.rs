//! `limitset reset`: refills every rate.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;

/// Refill every rate as if unused, and forgive debt; permits stay with their holders
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

#[derive(Debug, Serialize)]
struct Done {
    name: String,
    reset: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let set = context.attach(&args.name)?;
    set.reset()?;
    let done = Done { name: args.name.clone(), reset: true };
    context.print(&done, |out| writeln!(out, "{}: every rate was reset", done.name))?;
    Ok(Exit::Done)
}
