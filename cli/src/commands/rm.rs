//! `limitset rm`: removes sets.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use limitset::error::AttachError;
use limitset::{ParticipantInfo, Segment};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;

/// Remove sets
///
/// Requests to a removed set fail, and its name is free again. Refuses to remove a set that other processes
/// are attached to, and lists them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sets
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Remove also a set that is in use, or one that is damaged and can no longer be opened
    #[arg(long, short)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let mut removed = Removed { removed: Vec::new() };
    for name in &args.names {
        let done = remove(name, args.force, context);
        if let Err(failure) = done {
            // The sets removed so far stay removed: print them.
            context.print(&removed, |out| {
                removed.removed.iter().try_for_each(|it| writeln!(out, "removed {it}"))
            })?;
            return Err(failure);
        }
        removed.removed.push(name.clone());
    }
    context.print(&removed, |out| removed.removed.iter().try_for_each(|it| writeln!(out, "removed {it}")))?;
    Ok(Exit::Done)
}

fn remove(name: &str, force: bool, context: &Context) -> Result<(), Failure> {
    let options = context.segment_options();
    if !force {
        let observed = Segment::options().any_owner(true).observe(name);
        let attached = observed.map_err(|error| by_force(error, name))?.participants();
        if !attached.is_empty() {
            return Err(Failure::new(Exit::Conflict, "in_use", in_use(name, &attached)));
        }
    }
    match options.remove(name) {
        Err(AttachError::Malformed { path, .. }) if force => Ok(unlink(&path)?),
        done => Ok(done?),
    }
}

/// Adds `--force` to the advice for a segment that cannot be opened.
fn by_force(error: AttachError, name: &str) -> Failure {
    let is_malformed = matches!(error, AttachError::Malformed { .. });
    let mut failure = Failure::from(error);
    if is_malformed {
        failure.message += &format!("; `limitset rm --force {name}` removes it, even if a process uses it");
    }
    failure
}

fn in_use(name: &str, attached: &[ParticipantInfo]) -> String {
    let one = |it: &ParticipantInfo| {
        let ended = if has_ended(it) {
            ", ended, but its command still runs: see `fuser` of the segment"
        } else {
            ""
        };
        format!("{} ({}, user {}{ended})", it.pid, it.command, it.uid)
    };
    let shown: Vec<_> = attached.iter().take(8).map(one).collect();
    let more = attached.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "cannot remove {name}: in use by process {}{more}; stop these processes, or use --force, which makes their \
         requests fail",
        shown.join(", ")
    )
}

/// Returns whether the participant's process has ended, so that only a command that inherited its slot lock
/// keeps the slot.
fn has_ended(it: &ParticipantInfo) -> bool {
    let ours = fs::metadata("/proc/self/ns/pid").is_ok_and(|ours| ours.ino() == it.pid_namespace);
    ours && !Path::new(&format!("/proc/{}", it.pid)).exists()
}

/// Unlinks a file that is not a usable segment, if it is in /dev/shm or begins like a segment.
fn unlink(path: &Path) -> Result<(), Failure> {
    let mut start = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut start)?;
    let is_named = path.parent() == Some(Path::new("/dev/shm"));
    if !is_named && start != b"LIMITSET" {
        let message = format!(
            "cannot remove {}: it does not begin like a segment; delete the file by hand if it is not needed",
            path.display()
        );
        return Err(Failure::new(Exit::Unsound, "malformed", message));
    }
    Ok(fs::remove_file(path)?)
}
