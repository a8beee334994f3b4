//! `limitset reap`: returns the permits of dead participants.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::text;

/// Return the permits of dead participants now, instead of when a request needs them
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
    // Attaching may already return permits: those of a dead participant whose slot this process takes.
    let before = context.observe(&args.name)?.stats()?.reaped_permits;
    let set = context.attach(&args.name)?;
    set.reap()?;
    let returned_permits = set.stats()?.reaped_permits.saturating_sub(before);
    let done = Done { name: args.name.clone(), returned_permits };
    context.print(&done, |out| {
        writeln!(out, "{}: {} returned", done.name, text::count(done.returned_permits, "permit", "permits"))
    })?;
    Ok(Exit::Done)
}
