//! `limitset cooldown`: pausing a set.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::grammar::length;
use crate::text;

/// Pause a set in every process, or end its pause
///
/// A pause that lasts longer already stays as it is. Who waits sleeps through it. It is followed by the slow start of
/// the set's cooldown: so many admissions with a gap between them, in all processes together. --clear ends the pause, not
/// the slow start: the first is admitted at once, and the gaps follow. In a slow start it ends the gap that lasts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// Pause it for at least so long, as in 30s
    #[arg(long = "for", value_name = "TIME", required_unless_present = "clear", conflicts_with = "clear")]
    time: Option<String>,
    /// End the pause, or the gap of a slow start, before its time
    #[arg(long)]
    clear: bool,
}

#[derive(Debug, Serialize)]
struct Paused {
    name: String,
    /// How long it pauses from now.
    remaining_seconds: Option<f64>,
    /// With --clear: whether there was a pause or a gap to end.
    cleared: Option<bool>,
    /// How many admissions are still to have a gap before the next.
    slow_admissions: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let time = args.time.as_deref().map(length).transpose()?;
    let set = context.attach(&args.name)?;
    let mut paused =
        Paused { name: args.name.clone(), remaining_seconds: None, cleared: None, slow_admissions: 0 };
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
    paused.slow_admissions = set.stats()?.cooldown.slow_admissions;
    let slowly = match paused.slow_admissions {
        0 => String::new(),
        1 => "; slow start: a gap follows the next admission".to_owned(),
        many => format!("; slow start: a gap follows each of the next {many} admissions"),
    };
    context.print(&paused, |out| writeln!(out, "{}: {said}{slowly}", paused.name))?;
    Ok(Exit::Done)
}
