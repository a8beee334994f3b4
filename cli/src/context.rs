//! Context that is passed to every command: the output format, the ownership policy, and ways to open a set.

use std::env;
use std::io::{self, IsTerminal, Write};

use limitset::{LimitSet, LimitSetBuilder, Segment, SegmentOptions, SetObserver};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;

/// The result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

/// How the command was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Print JSON, for programs.
    pub(crate) json: bool,
    /// Accept sets of other users.
    pub(crate) any_owner: bool,
    /// Stdout takes colours.
    pub(crate) colour: bool,
}

impl Context {
    pub(crate) fn new(json: bool, any_owner: bool) -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let colour = !json && io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb;
        Self { json, any_owner, colour }
    }

    /// Prints a command's answer: as JSON with `--json`, otherwise as text.
    pub(crate) fn print<T: Serialize + ?Sized>(
        &self,
        answer: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = (|| {
            if self.json {
                serde_json::to_writer_pretty(&mut out, answer)?;
                writeln!(out)?;
            } else {
                text(&mut out)?;
            }
            out.flush()
        })();
        written.map_err(|error| Failure::from(error).about("could not write the answer"))
    }

    /// Returns the text in bold, if stdout supports colours.
    pub(crate) fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// Returns the text in green, for good news.
    pub(crate) fn good(&self, text: &str) -> String {
        self.styled("32", text)
    }

    /// Returns the text in red, for errors.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.styled("31", text)
    }

    /// Returns the text in yellow, for warnings.
    pub(crate) fn odd(&self, text: &str) -> String {
        self.styled("33", text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns the segment options that follow from the command line.
    pub(crate) fn segment_options(&self) -> SegmentOptions {
        Segment::options().any_owner(self.any_owner)
    }

    /// Returns a builder with these segment options.
    pub(crate) fn builder(&self) -> LimitSetBuilder {
        LimitSet::builder().segment(self.segment_options())
    }

    /// Attaches to an existing set.
    pub(crate) fn attach(&self, name: &str) -> Result<LimitSet, Failure> {
        Ok(self.builder().attach(name)?)
    }

    /// Observes a set, also one of another user: an observer does not trust the segment's content.
    pub(crate) fn observe(&self, name: &str) -> Result<SetObserver, Failure> {
        Ok(LimitSet::builder().segment(Segment::options().any_owner(true)).observe(name)?)
    }
}
