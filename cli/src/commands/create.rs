//! `limitset create`: creates a set.

use std::path::PathBuf;

use limitset::LimitSet;
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::show_limit;
use crate::set_file::SetFile;
use crate::text;

/// Create a set of limits
///
/// A limit is KEY=NUMBER for permits that are held and returned, or KEY=NUMBER/TIME for a rate, with options
/// after colons: calls=500/min, tokens=200000/min:gcra:burst=50000, connections=8. A cooldown and a work
/// queue are described in a file: see `limitset apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name, in /dev/shm; a name that contains a / is a file. With --path, a label kept in the config map
    #[arg(required_unless_present = "path")]
    name: Option<String>,
    /// A limit, as in tokens=200000/min:gcra:burst=50000; repeatable
    #[arg(long = "limit", short, value_name = "LIMIT", required = true)]
    limits: Vec<String>,
    /// An entry of the config map, which every process can read, as in region=eu
    #[arg(long, value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Permissions: 600 by default; 660 to share with a group
    #[arg(long, value_name = "OCTAL")]
    mode: Option<String>,
    /// The group to share with, by name or number
    #[arg(long)]
    group: Option<String>,
    /// Keep the set in this file, which survives a reboot; pass the path as NAME to other commands
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// The maximum number of participants: 256 by default
    #[arg(long, value_name = "NUMBER")]
    slots: Option<u32>,
    /// The maximum number of waiters: 1024 by default
    #[arg(long, value_name = "NUMBER")]
    waiters: Option<u32>,
    /// The order of waiters: arrival (default) or any
    #[arg(long)]
    order: Option<String>,
    /// The clock: monotonic (default), coarse or manual
    #[arg(long)]
    clock: Option<String>,
}

#[derive(Serialize)]
struct Created {
    name: String,
    path: String,
    bytes: u64,
    limits: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let mut file = SetFile {
        limits: args.limits.clone(),
        mode: args.mode.clone(),
        group: args.group.clone(),
        slots: args.slots,
        waiters: args.waiters,
        order: args.order.clone(),
        clock: args.clock.clone(),
        ..SetFile::default()
    };
    for entry in &args.config {
        let Some((key, value)) = entry.split_once('=') else {
            return Err(Failure::usage(format!(
                "--config {entry:?} has no \"=\": use KEY=VALUE, as in region=eu"
            )));
        };
        if file.config.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("--config {key:?} is given twice: remove one")));
        }
    }
    let name = match (&args.path, &args.name) {
        (Some(path), label) => {
            if let Some(label) = label {
                file.config.entry("name".to_owned()).or_insert_with(|| label.clone());
            }
            // A name with a slash is a path.
            std::path::absolute(path)?.to_string_lossy().into_owned()
        }
        (None, Some(name)) => name.clone(),
        (None, None) => return Err(Failure::usage("give the set a NAME, or a --path")),
    };
    let set = file.builder(context)?.create(&name)?;
    let created = created(&name, &set);
    context.print(&created, |out| {
        let Created { name, path, bytes, limits } = &created;
        writeln!(out, "created {} in {path} ({})", context.bold(name), text::size(*bytes))?;
        limits.iter().try_for_each(|limit| writeln!(out, "  {limit}"))
    })?;
    Ok(Exit::Done)
}

/// Returns the answer of the command.
fn created(name: &str, set: &LimitSet) -> Created {
    let info = set.segment().info();
    let path = info.path.display().to_string();
    let limits = set.limits().iter().map(show_limit).collect();
    Created { name: name.to_owned(), path, bytes: info.bytes, limits }
}
