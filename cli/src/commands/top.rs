//! `limitset top`: a live view of sets: usage, holders and waiters.
//!
//! ```text
//! screen   takes over the terminal, and restores it in every case
//! state    the observed sets, their history and the selection
//! draw     draws the state
//! ```

mod draw;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use self::screen::{Event, Key, Screen};
use self::state::State;
use super::show::Shown;
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar;

/// Watch sets live: usage, holders and waiters
///
/// Keys: up and down select, Tab switches between sets and processes, s sorts by the next column, r reverses
/// the order, space pauses, + and - change the pace, q ends. If stdout is not a terminal, the sets are
/// printed once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sets; all sets by default
    names: Vec<String>,
    /// The interval between two updates
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    interval: String,
}

/// The shortest interval. A shorter one shows nothing more and slows the participants down.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let interval = grammar::length(&args.interval)?.clamp(SHORTEST, LONGEST);
    let mut state = State::new(&args.names, *context);
    state.look()?;
    // A named set must exist at the start; its later removal is shown.
    if let Some(failure) = state.first_failure().filter(|_| !args.names.is_empty()) {
        return Err(failure);
    }
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if context.json || !is_terminal || std::env::var_os("TERM").is_none_or(|term| term == "dumb") {
        return snapshot(&state, context);
    }
    watch(state, interval)
}

/// Prints the current state once, for pipes and programs.
fn snapshot(state: &State, context: &Context) -> Outcome {
    let sets: Vec<&Shown> = state.shown().collect();
    context.print(&sets, |out| {
        if sets.is_empty() {
            return writeln!(out, "no sets");
        }
        for (index, set) in sets.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            set.print(context, out)?;
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}

fn watch(mut state: State, mut interval: Duration) -> Outcome {
    let mut screen = Screen::take_over()?;
    let mut next = Instant::now() + interval;
    loop {
        screen.draw(|frame| draw::draw(frame, &mut state, interval))?;
        let event = screen.next_event(next.saturating_duration_since(Instant::now()))?;
        match event {
            Event::Key(Key::Quit) => return Ok(Exit::Done),
            Event::Key(Key::Faster) => interval = (interval / 2).max(SHORTEST),
            Event::Key(Key::Slower) => interval = (interval * 2).min(LONGEST),
            Event::Key(key) => state.press(key),
            Event::Ended(signal) => return Ok(Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
            Event::Redraw | Event::Nothing => {}
        }
        if Instant::now() >= next {
            if !state.stands_still() {
                state.look()?;
            }
            next = Instant::now() + interval;
        }
    }
}

impl From<state::Unreadable> for Failure {
    fn from(error: state::Unreadable) -> Self {
        error.0
    }
}
