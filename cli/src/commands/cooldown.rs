//! `limitset cooldown`: pausing a set.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::grammar::length;
use crate::text;

/// Pause a set in every process, or end its pause
///
/// A pause that lasts longer already stays as it is. Who waits sleeps through it. It is followed by the slow start of
/// the set's cooldown.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// Pause it for at least so long, as in 30s
    #[arg(long = "for", value_name = "TIME", required_unless_present = "clear", conflicts_with = "clear")]
    time: Option<String>,
    /// End the pause before its time
    #[arg(long)]
    clear: bool,
}

#[derive(Debug, Serialize)]
struct Paused {
    name: String,
    /// How long it pauses from now.
    remaining_seconds: Option<f64>,
    /// With --clear: whether there was a pause to end.
    cleared: Option<bool>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let time = args.time.as_deref().map(length).transpose()?;
    let set = context.attach(&args.name)?;
    let mut paused = Paused { name: args.name.clone(), remaining_seconds: None, cleared: None };
    let said = match time {
        Some(time) => {
            let remaining = set.pause(time)?.remaining;
            paused.remaining_seconds = remaining.map(text::seconds);
            format!("paused for {}", remaining.map_or_else(|| "no time".to_owned(), text::about))
        }
        None => {
            let was_paused = set.resume()?;
            paused.cleared = Some(was_paused);
            if was_paused { "goes on".to_owned() } else { "was not paused".to_owned() }
        }
    };
    context.print(&paused, |out| writeln!(out, "{}: {said}", paused.name))?;
    Ok(Exit::Done)
}
