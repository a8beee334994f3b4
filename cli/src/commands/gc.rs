//! `limitset gc`: removes unused generated sets.

use std::time::{Duration, SystemTime};

use limitset::{Listed, Segment};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::length;

/// Remove generated sets that no process is attached to
///
/// Generated names have the form auto-PID-HEX. Programs give them to sets that they share among their
/// processes without naming them. Sets with other names are never removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep sets younger than this: their creators may be about to attach
    #[arg(long, value_name = "TIME", default_value = "1min")]
    older_than: String,
    /// Show which sets would be removed, without removing them
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Collected {
    dry_run: bool,
    removed: Vec<String>,
    kept: Vec<Kept>,
}

#[derive(Debug, Serialize)]
struct Kept {
    name: String,
    why: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let older_than = length(&args.older_than)?;
    let mut collected = Collected { dry_run: args.dry_run, removed: Vec::new(), kept: Vec::new() };
    for listed in Segment::list()?.into_iter().filter(|it| Segment::is_generated_name(&it.name)) {
        match collect(&listed, older_than, args.dry_run, context) {
            Ok(None) => collected.removed.push(listed.name),
            Ok(Some(why)) => collected.kept.push(Kept { name: listed.name, why }),
            Err(failure) => collected.kept.push(Kept { name: listed.name, why: failure.message }),
        }
    }
    context.print(&collected, |out| {
        let did = if args.dry_run { "would remove" } else { "removed" };
        collected.removed.iter().try_for_each(|name| writeln!(out, "{did} {name}"))?;
        collected.kept.iter().try_for_each(|it| writeln!(out, "kept {}: {}", it.name, it.why))?;
        if collected.removed.is_empty() && collected.kept.is_empty() {
            writeln!(out, "no generated sets")?;
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}

/// Removes one set, or returns the reason to keep it.
fn collect(
    listed: &Listed,
    older_than: Duration,
    dry_run: bool,
    context: &Context,
) -> Result<Option<String>, Failure> {
    let info = match &listed.info {
        Ok(info) => info,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let attached = context.segment_options().observe(&listed.name)?.participants();
    if let Some(first) = attached.first() {
        let more = attached.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Ok(Some(format!("in use by process {} ({}){more}", first.pid, first.command)));
    }
    let age = SystemTime::now().duration_since(info.created).unwrap_or_default();
    if age < older_than {
        return Ok(Some("too young".to_owned()));
    }
    if !dry_run {
        context.segment_options().remove(&listed.name)?;
    }
    Ok(None)
}
