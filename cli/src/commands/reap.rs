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
    // To attach may return some already: those of a dead process whose slot this one got.
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
