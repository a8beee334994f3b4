//! The output of the tour: text, and a picture of the workers. On a terminal the picture is redrawn in place.
//! With `--json` there is no output.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::crew::Seen;
use crate::context::Context;

/// The interval between two pictures.
pub(super) const TICK: Duration = Duration::from_millis(40);
/// Time to look at the picture.
pub(super) const READING: Duration = Duration::from_secs(8);
pub(super) const GLANCE: Duration = Duration::from_secs(3);
/// The pause between two lines of text.
const LINE: Duration = Duration::from_millis(900);

pub(super) struct Stage {
    context: Context,
    is_fast: bool,
    is_live: bool,
    /// The number of picture lines on the screen.
    drawn: usize,
}

impl Stage {
    pub(super) fn new(context: Context, is_fast: bool) -> Self {
        let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { context, is_fast, is_live: is_terminal && !is_dumb && !context.json, drawn: 0 }
    }

    pub(super) fn title(&mut self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.line(&self.context.bold(text))?;
        self.pause();
        Ok(())
    }

    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        self.line(&format!("   {text}"))?;
        self.pause();
        Ok(())
    }

    fn line(&self, text: &str) -> io::Result<()> {
        if self.context.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    fn pause(&self) {
        if !self.is_fast && !self.context.json {
            std::thread::sleep(LINE);
        }
    }

    pub(super) fn has_lasted(&self, since: Instant, at_least: Duration) -> bool {
        self.is_fast || self.context.json || since.elapsed() >= at_least
    }

    /// Redraws the picture in place.
    pub(super) fn show(&mut self, seen: &Seen) -> io::Result<()> {
        if self.is_live { self.draw(seen) } else { Ok(()) }
    }

    /// Keeps the picture on the screen; the next one is drawn below it.
    pub(super) fn leave(&mut self, seen: &Seen) -> io::Result<()> {
        if !self.context.json && !self.is_live {
            self.draw(seen)?;
        }
        self.drawn = 0;
        Ok(())
    }

    fn draw(&mut self, seen: &Seen) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\x1b[{}A", self.drawn)?;
        }
        let lines = self.picture(seen);
        for line in &lines {
            let clear = if self.is_live { "\x1b[2K" } else { "" };
            writeln!(out, "{clear}{line}")?;
        }
        self.drawn = if self.is_live { lines.len() } else { 0 };
        out.flush()
    }

    fn picture(&self, seen: &Seen) -> Vec<String> {
        let context = &self.context;
        let full = usize::try_from(seen.held).unwrap_or(0);
        let free = usize::try_from(seen.capacity).unwrap_or(0).saturating_sub(full);
        let bar = format!("{}{}", context.odd(&"██████ ".repeat(full)), "······ ".repeat(free));
        let mut lines = vec![format!(
            "     connections  {bar} {} of {}, {} waiting",
            seen.held, seen.capacity, seen.waiting
        )];
        for (index, worker) in seen.workers.iter().enumerate() {
            let state = match worker {
                it if it.pid.is_none() => context.bad("dead "),
                it if it.holds > 0 => context.good("holds"),
                _ => "waits".to_owned(),
            };
            let pid = worker.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let past = "▪".repeat(usize::try_from(worker.granted.div_ceil(4)).unwrap_or(0).min(36));
            lines.push(format!("     worker {index} {pid:>8}  {state} {:>4} {past}", worker.granted));
        }
        lines
    }
}
