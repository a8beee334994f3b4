//! `limitset run`: a command under limits.
//!
//! The command inherits what others know this process to be alive by, so that what is held stays held until both have
//! ended: who kills the wrapper does not let the command go on without its permits.

mod command;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use limitset::error::AttachError;
use limitset::{Acquisition, LimitSet, OnUnavailable, UsageError};
use serde::Serialize;

use self::command::{Ended, Forwarding};
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::{self, Needs};

/// Run a command under limits
///
/// Waits until the limits allow what is needed, runs the command, passes its exit code on, and returns the permits when
/// it has ended. 75 if it was not allowed in time, 127 if there is no such command, 126 if it cannot be run, 128 and the
/// signal's number if a signal ended it. Signals are passed on to the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// What it needs, as in tokens=100; one of each call and resource limit comes along
    #[arg(long, value_name = "KEY=NUMBER")]
    need: Vec<String>,
    /// How long to wait, 0 not at all; for ever if it is not given
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Whether to run the command when the set cannot be asked, or is not there
    #[arg(long, value_name = "POLICY", value_enum, default_value = "deny")]
    on_unavailable: Policy,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    Allow,
    Deny,
}

impl From<Policy> for OnUnavailable {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Allow => Self::Allow,
            Policy::Deny => Self::Deny,
        }
    }
}

/// What is told about a run, on stderr: stdout is the command's.
#[derive(Debug, Serialize)]
struct Run {
    set: String,
    enforced: bool,
    charged: BTreeMap<String, u64>,
    waited_seconds: f64,
    ran_seconds: f64,
    /// Not known if the set could not be asked: then this process became the command.
    exit: Option<u8>,
    signal: Option<i32>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let needs = grammar::needs(&args.need)?;
    let timeout = args.timeout.as_deref().map(grammar::length).transpose()?;
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Failure::usage("no command given"))?;
    // Before anything is charged or waited for.
    command::find(program)?;
    let mut command = Command::new(program);
    command.args(arguments);

    let start = Instant::now();
    let held = acquire(args, &needs, timeout, context)?;
    let mut told = Run {
        set: args.name.clone(),
        enforced: held.as_ref().is_some_and(Acquisition::enforced),
        charged: held.as_ref().map(charged).unwrap_or_default(),
        waited_seconds: start.elapsed().as_secs_f64(),
        ran_seconds: 0.0,
        exit: None,
        signal: None,
    };
    let Some(held) = held.filter(Acquisition::enforced) else {
        // Nothing to keep alive, and so no need to stay. This becomes the command.
        tell(&told, context);
        return Err(command::not_started(program, &command.exec()));
    };
    let start = Instant::now();
    let ended = under(held, command, program, context)?;
    told.ran_seconds = start.elapsed().as_secs_f64();
    (told.exit, told.signal) = (Some(ended.code()), ended.signal());
    tell(&told, context);
    Ok(Exit::Of(ended.code()))
}

fn tell(run: &Run, context: &Context) {
    if context.json {
        // The command may have closed it, and its own end is what counts.
        let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "run": run }));
    }
}

/// Gets what is needed. Nothing if the set is not to be had and the policy is to do without.
fn acquire(
    args: &Args,
    needs: &Needs,
    timeout: Option<Duration>,
    context: &Context,
) -> Result<Option<Acquisition>, Failure> {
    let set = match attach(args, context) {
        Ok(set) => set,
        Err(error @ AttachError::Name(_)) => return Err(error.into()),
        Err(error) if args.on_unavailable == Policy::Allow => {
            warn(context, &format!("not limited: {}", Failure::from(error).message));
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let amounts = needs.amounts();
    let mut held = match timeout {
        None => set.acquire(&amounts[..]),
        Some(Duration::ZERO) => set.try_acquire(&amounts[..]),
        Some(timeout) => set.acquire_timeout(&amounts[..], timeout),
    }?;
    if !held.enforced() {
        warn(context, "not limited: the set could not be asked");
    }
    // Nobody knows better what a command used than who said what it needs.
    for limit in set.limits().iter().filter(|limit| limit.must_report()) {
        if let Some(amount) = held.charged(limit.name()) {
            held.update(limit.name(), amount).map_err(usage)?;
        }
    }
    Ok(Some(held))
}

/// Attaches, under the command's name: others shall see what holds their permits, not that it is wrapped.
fn attach(args: &Args, context: &Context) -> Result<LimitSet, AttachError> {
    const COMM: &str = "/proc/self/comm";
    let own = fs::read(COMM).unwrap_or_default();
    if let Some(name) = args.command.first().and_then(|program| Path::new(program).file_name()) {
        // A name only: without it, they see ours.
        let _ = fs::write(COMM, [b"run:", name.as_bytes()].concat());
    }
    let options = context.segment_options().lends_life(true);
    let builder = LimitSet::builder().segment(options).on_unavailable(args.on_unavailable.into());
    let attached = builder.attach(&args.name);
    let _ = fs::write(COMM, own.trim_ascii_end());
    attached
}

fn charged(held: &Acquisition) -> BTreeMap<String, u64> {
    let limits = held.set().limits().iter();
    limits.filter_map(|limit| Some((limit.name().to_owned(), held.charged(limit.name())?))).collect()
}

/// Runs the command; what is held lives as long as this process or the command.
fn under(
    held: Acquisition,
    command: Command,
    program: &OsString,
    context: &Context,
) -> Result<Ended, Failure> {
    let forwarding = Forwarding::begin()?;
    let spawned = held.set().segment().spawn_lending_life(command, forwarding.signals());
    let (mut child, life) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            // As if it had not been asked for.
            let _ = held.cancel();
            return Err(command::not_started(program, &error));
        }
    };
    let ended = forwarding.wait_for(&mut child)?;
    match life.release(held) {
        Ok(()) | Err(UsageError::Removed) => {}
        // They return as those of a dead process when this one ends.
        Err(error) => warn(context, &error.to_string()),
    }
    Ok(ended)
}

fn usage(error: UsageError) -> Failure {
    Failure::new(Exit::Failed, "failed", error)
}

fn warn(context: &Context, message: &str) {
    let line = if context.json {
        serde_json::json!({ "warning": message }).to_string()
    } else {
        format!("limitset: {message}")
    };
    let _ = writeln!(io::stderr(), "{line}");
}
