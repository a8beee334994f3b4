//! `limitset cooldown`: pauses a set, or ends its pause.

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::grammar::length;
use crate::text;

/// Pause a set in every process, or end its pause
///
/// A longer pause that is already in effect stays. Waiters sleep through the pause. After it comes the slow
/// start of the set's cooldown: a number of admissions with gaps between them, across all processes. --clear
/// ends the pause, not the slow start: the first request is admitted at once, and the gaps follow. During a
/// slow start, --clear ends the current gap.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// Pause for at least this long, as in 30s
    #[arg(long = "for", value_name = "TIME", required_unless_present = "clear", conflicts_with = "clear")]
    time: Option<String>,
    /// End the pause, or the current gap of a slow start, early
    #[arg(long)]
    clear: bool,
}

#[derive(Debug, Serialize)]
struct Paused {
    name: String,
    /// The remaining pause.
    remaining_seconds: Option<f64>,
    /// With --clear: whether there was a pause or a gap to end.
    cleared: Option<bool>,
    /// The number of admissions that are still followed by a gap.
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
            remaining.map_or_else(|| "not paused".to_owned(), |it| format!("paused for {}", text::about(it)))
        }
        None => {
            let was_paused = set.resume()?;
            paused.cleared = Some(was_paused);
            if was_paused { "resumed".to_owned() } else { "was not paused".to_owned() }
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
