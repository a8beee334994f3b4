//! `limitset apply`: creates and changes sets to match a file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use limitset::error::AttachError;
use limitset::limit::validate;
use limitset::{Limit, LimitSet, Segment, SetObserver};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::{LimitText, show_limit};
use crate::places::Places;
use crate::set_file::{SetFile, group_name, live_limits};
use crate::text;

/// Create or change sets to match a file
///
/// Shows the differences first. Parameters of limits, mode and group are changed live. Any other difference
/// is a conflict, and then no set is changed. Sets that the file does not name are left alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The TOML file; - reads standard input
    file: PathBuf,
    /// Show the differences without changing anything
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Applied {
    dry_run: bool,
    /// Whether the sets now match the file.
    applied: bool,
    sets: Vec<Plan>,
}

/// The changes that one set needs.
#[derive(Debug, Serialize)]
struct Plan {
    name: String,
    /// create, change, keep or conflict.
    action: &'static str,
    changes: Vec<Change>,
    /// Whether the changes were made.
    done: bool,
    #[serde(skip)]
    file: SetFile,
    #[serde(skip)]
    limits: Vec<Limit>,
}

#[derive(Debug, Serialize)]
struct Change {
    what: String,
    from: Option<String>,
    to: Option<String>,
    /// Whether an existing set can be changed in this way.
    possible: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let plans = plans(&args.file, context)?;
    let conflict = plans.iter().find(|plan| plan.action == "conflict").map(|plan| plan.name.clone());
    // Text output shows the differences before any change; JSON output is one document at the end.
    let mut applied = Applied { dry_run: args.dry_run, applied: false, sets: plans };
    if !context.json {
        let mut out = io::stdout().lock();
        applied.sets.iter().try_for_each(|plan| plan.print(context, &mut out))?;
        out.flush()?;
    }
    let is_done = !args.dry_run && conflict.is_none();
    if is_done {
        for plan in &mut applied.sets {
            if let Err(failure) = plan.apply(context) {
                let failure = failure.about(format_args!("[{}]", plan.name));
                return Err(half_done(&applied, failure, context)?);
            }
            plan.done = true;
        }
        applied.applied = true;
    }
    let said = match (&conflict, is_done) {
        (Some(_), _) => None,
        (None, _) if applied.sets.is_empty() => Some("nothing to do: the file describes no set"),
        (None, true) => Some("done"),
        (None, false) => Some("dry run: nothing was changed"),
    };
    context.print(&applied, |out| said.map_or(Ok(()), |said| writeln!(out, "{said}")))?;
    match conflict {
        None => Ok(Exit::Done),
        Some(name) => Err(Failure::new(
            Exit::Conflict,
            "differs",
            format!(
                "cannot apply the file: set {name} differs in ways that cannot be changed live, so nothing was \
                 changed; adjust the file, or stop the set's users, `limitset rm {name}`, and apply again"
            ),
        )),
    }
}

/// Adds the sets that were changed before the failure to its message: they stay changed.
fn half_done(applied: &Applied, mut failure: Failure, context: &Context) -> Result<Failure, Failure> {
    context.print(applied, |_| Ok(()))?;
    let done: Vec<_> = applied.sets.iter().filter(|plan| plan.done).map(|plan| plan.name.as_str()).collect();
    if !done.is_empty() {
        failure.message += &format!("; applied before this failure: {}", done.join(", "));
    }
    Ok(failure)
}

/// Returns the changes that each set of a file needs. Faults in any of the sets are found before the first
/// change.
fn plans(path: &Path, context: &Context) -> Result<Vec<Plan>, Failure> {
    let is_stdin = path.as_os_str() == "-";
    let name = if is_stdin { "standard input".into() } else { path.to_string_lossy() };
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    let text = text.map_err(|error| {
        let failure = match error.kind() {
            io::ErrorKind::InvalidData => Failure::new(Exit::Usage, "bad_file", "the file is not UTF-8 text"),
            _ => error.into(),
        };
        failure.about(&name)
    })?;
    let places = Places::new(&text);
    let plans = || -> Result<Vec<Plan>, Failure> {
        let sets: BTreeMap<String, SetFile> =
            toml::from_str(&text).map_err(|error| places.bad_file(&error))?;
        sets.into_iter().map(|(name, file)| plan(&name, file, &places, context)).collect()
    };
    plans().map_err(|failure| failure.about(&name))
}

/// Validates the description of a set and returns its limits.
fn check(name: &str, file: &SetFile, places: &Places<'_>, context: &Context) -> Result<Vec<Limit>, Failure> {
    let mut limits = Vec::new();
    for (index, text) in file.limits.iter().enumerate() {
        let limit = LimitText::read(text).map_err(|bad| places.limit_text(name, index, bad))?.limit();
        limits.push(limit);
        // Validate after each limit, to know which one is at fault.
        validate(&limits).map_err(|bad| places.limit(name, index, bad.into()))?;
    }
    let cooldown = file.cooldown().map(drop);
    cooldown.map_err(|bad| places.text_in(name, "cooldown", bad))?;
    for (key, read) in [
        ("mode", file.mode().map(drop)),
        ("group", file.group().map(drop)),
        ("order", file.order().map(drop)),
        ("clock", file.clock().map(drop)),
    ] {
        read.map_err(|failure| places.value(name, key, failure))?;
    }
    let bytes = file.builder(context).and_then(|builder| Ok(builder.bytes()?));
    bytes.map_err(|failure| places.set(name, failure))?;
    Ok(limits)
}

fn plan(name: &str, file: SetFile, places: &Places<'_>, context: &Context) -> Result<Plan, Failure> {
    let limits = check(name, &file, places, context)?;
    let mut plan =
        Plan { name: name.to_owned(), action: "create", changes: Vec::new(), done: false, file, limits };
    let found = LimitSet::builder().segment(Segment::options().any_owner(true)).observe(name);
    let set = match found {
        Ok(set) => set,
        Err(AttachError::NotFound { .. }) => {
            if plan.limits.is_empty() && plan.file.queue.is_none() {
                let what =
                    "a set without limits would limit nothing: add one, as in limits = [\"connections=8\"]";
                let failure = Failure::new(Exit::Usage, "bad_limit", what);
                return Err(places.value(name, "limits", failure));
            }
            let added = |limit: &Limit| change("limit", None, Some(show_limit(limit)), true);
            plan.changes = plan.limits.iter().map(added).collect();
            return Ok(plan);
        }
        Err(error) => return Err(places.set(name, error.into())),
    };
    plan.changes = differences(&plan, &set).map_err(|failure| places.set(name, failure))?;
    plan.action = match plan.changes.as_slice() {
        [] => "keep",
        changes if changes.iter().any(|it| !it.possible) => "conflict",
        _ => "change",
    };
    Ok(plan)
}

fn change(what: &str, from: Option<String>, to: Option<String>, possible: bool) -> Change {
    Change { what: what.to_owned(), from, to, possible }
}

fn differences(plan: &Plan, set: &SetObserver) -> Result<Vec<Change>, Failure> {
    let (file, stats) = (&plan.file, set.stats()?);
    let has = SetFile::of(set, &stats)?;
    let mut changes = limit_changes(&live_limits(set, &stats), &plan.limits);
    let declared = set.declaration();
    let mut fixed = |what: &str, from: String, to: String| {
        if from != to {
            changes.push(change(what, Some(from), Some(to), false));
        }
    };
    fixed("order", format!("{:?}", declared.order), format!("{:?}", file.order()?));
    fixed("clock", declared.clock.name().to_owned(), file.clock()?.name().to_owned());
    fixed("config", format!("{:?}", declared.config), format!("{:?}", file.config));
    fixed("cooldown", declared.cooldown.to_string(), file.cooldown()?.to_string());
    let queue = |it: Option<limitset::QueueOptions>| match it.map(|it| it.settings()) {
        Some(it) => format!(
            "{} items of {} bytes, results of {} bytes, {} attempts, {} rate limits",
            it.items, it.item_bytes, it.result_bytes, it.attempts, it.rate_limits
        ),
        None => "none".to_owned(),
    };
    fixed("queue", queue(declared.queue), queue(file.queue()));
    // Values that the file leaves out stay as they are.
    for (what, from, to) in
        [("slots", declared.slots, file.slots), ("waiters", declared.waiters, file.waiters)]
    {
        fixed(what, from.to_string(), to.unwrap_or(from).to_string());
    }
    let about = fs::metadata(set.segment().info().path)?;
    let mode = about.permissions().mode() & 0o777;
    if let Some(to) = file.mode()?.filter(|to| *to != mode) {
        changes.push(change("mode", Some(format!("{mode:o}")), Some(format!("{to:o}")), true));
    }
    if let Some(to) = file.group()?.filter(|to| *to != about.gid()) {
        let from = has.group.unwrap_or_else(|| group_name(about.gid()));
        changes.push(change("group", Some(from), Some(group_name(to)), true));
    }
    Ok(changes)
}

/// Returns the differences between limits. Only parameters can be changed; the order of the limits does not
/// matter.
fn limit_changes(has: &[Limit], wanted: &[Limit]) -> Vec<Change> {
    let mut changes = Vec::new();
    for to in wanted {
        let Some(from) = has.iter().find(|it| it.name() == to.name()) else {
            changes.push(change("limit", None, Some(show_limit(to)), false));
            continue;
        };
        if !is_same(from, to) {
            let possible = is_same_but_for_numbers(from, to);
            changes.push(change("limit", Some(show_limit(from)), Some(show_limit(to)), possible));
        }
    }
    for from in has.iter().filter(|from| !wanted.iter().any(|it| it.name() == from.name())) {
        changes.push(change("limit", Some(show_limit(from)), None, false));
    }
    changes
}

/// Returns whether two limits are equal. Values that were left out are compared as the defaults that the
/// library uses.
fn is_same(a: &Limit, b: &Limit) -> bool {
    let numbers = |it: &Limit| {
        let burst = |rate: &limitset::limit::RateSettings| rate.burst.unwrap_or(rate.capacity);
        (it.capacity(), it.rate_settings().map(|rate| (rate.window, burst(&rate))))
    };
    is_same_but_for_numbers(a, b) && numbers(a) == numbers(b)
}

fn is_same_but_for_numbers(a: &Limit, b: &Limit) -> bool {
    let shape = |it: &Limit| {
        let resolution = |rate: &limitset::limit::RateSettings| {
            let usual = rate.algorithm.has_resolution().then_some(limitset::limit::DEFAULT_RESOLUTION);
            rate.resolution.or(usual)
        };
        let rate = it.rate_settings().map(|rate| (rate.algorithm, resolution(&rate)));
        (std::mem::discriminant(it), it.must_report(), rate)
    };
    shape(a) == shape(b)
}

impl Plan {
    fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        let action = match self.action {
            "create" => context.good("create"),
            "change" => context.odd("change"),
            "conflict" => context.bad("conflict"),
            other => other.to_owned(),
        };
        writeln!(out, "{}: {action}", context.bold(&self.name))?;
        for it in &self.changes {
            let why = if it.possible || self.action == "create" { "" } else { "  (cannot be changed live)" };
            let clean = |text: &Option<String>| text.as_deref().map(text::clean);
            match (clean(&it.from), clean(&it.to)) {
                (Some(from), Some(to)) => writeln!(out, "  ~ {} {from} -> {to}{why}", it.what)?,
                (None, Some(to)) => writeln!(out, "  {} {} {to}{why}", context.good("+"), it.what)?,
                (Some(from), None) => writeln!(out, "  {} {} {from}{why}", context.bad("-"), it.what)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn apply(&self, context: &Context) -> Result<(), Failure> {
        match self.action {
            "create" => {
                self.file.builder(context)?.create(&self.name)?;
            }
            "change" => {
                let set = context.attach(&self.name)?;
                let is_new = |limit: &&Limit| {
                    let text = show_limit(limit);
                    self.changes.iter().any(|it| it.what == "limit" && it.to.as_ref() == Some(&text))
                };
                let limits: Vec<Limit> = self.limits.iter().filter(is_new).cloned().collect();
                // Changes that only the owner may make come first: if they fail, nothing has been changed.
                let path = set.segment().info().path;
                if let Some(group) =
                    self.file.group()?.filter(|_| self.changes.iter().any(|it| it.what == "group"))
                {
                    chown(&path, None, Some(group)).map_err(|error| Failure::from(error).about("group"))?;
                }
                if let Some(mode) =
                    self.file.mode()?.filter(|_| self.changes.iter().any(|it| it.what == "mode"))
                {
                    let mode = fs::Permissions::from_mode(mode);
                    fs::set_permissions(&path, mode).map_err(|error| Failure::from(error).about("mode"))?;
                }
                if !limits.is_empty() {
                    set.reconfigure(limits)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
