//! `limitset create`: a new set.

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
/// A limit is KEY=NUMBER for what is held and returned, or KEY=NUMBER/TIME for a rate, with options behind colons:
/// calls=500/min, tokens=200000/min:gcra:burst=50000, connections=8. What else a set can have (cooldown, work queue)
/// is described in a file: see `limitset apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name, in /dev/shm; with a / in it, a file. With --path, a label kept in the config map
    #[arg(required_unless_present = "path")]
    name: Option<String>,
    /// A limit, as in tokens=200000/min:gcra:burst=50000; repeat it for more
    #[arg(long = "limit", short, value_name = "LIMIT", required = true)]
    limits: Vec<String>,
    /// An entry of the config map, which every process can read, as in region=eu
    #[arg(long, value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Permissions: 600 unless given; 660 to share with a group
    #[arg(long, value_name = "OCTAL")]
    mode: Option<String>,
    /// The group to share with, by name or number
    #[arg(long)]
    group: Option<String>,
    /// Keep it in this file, which survives a reboot; other commands take the path for a name
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// How many processes can take part: 256 unless given
    #[arg(long, value_name = "NUMBER")]
    slots: Option<u32>,
    /// How many can wait: 1024 unless given
    #[arg(long, value_name = "NUMBER")]
    waiters: Option<u32>,
    /// Who goes first when there is not enough for all: arrival unless given, or any
    #[arg(long)]
    order: Option<String>,
    /// The clock: monotonic unless given, or coarse, or manual
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
                "--config {entry:?} has no =: use KEY=VALUE, as in region=eu"
            )));
        };
        if file.config.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("--config {key:?} is given twice: leave one out")));
        }
    }
    let name = match (&args.path, &args.name) {
        (Some(path), label) => {
            if let Some(label) = label {
                file.config.entry("name".to_owned()).or_insert_with(|| label.clone());
            }
            // Anything with a slash is a path.
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

/// What was created.
fn created(name: &str, set: &LimitSet) -> Created {
    let info = set.segment().info();
    let path = info.path.display().to_string();
    let limits = set.limits().iter().map(show_limit).collect();
    Created { name: name.to_owned(), path, bytes: info.bytes, limits }
}
