//! `limitset reap`: what the dead hold.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::text;

/// Return at once what the dead still hold, instead of when somebody misses it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

#[derive(Debug, Serialize)]
struct Done {
    name: String,
    returned_permits: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let set = context.attach(&args.name)?;
    let done = Done { name: args.name.clone(), returned_permits: set.reap()? };
    context.print(&done, |out| {
        writeln!(out, "{}: {} returned", done.name, text::count(done.returned_permits, "permit", "permits"))
    })?;
    Ok(Exit::Done)
}
