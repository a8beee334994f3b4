//! `limitset run`: runs a command under limits.
//!
//! The command inherits the slot lock of this process (a slot handoff). So the permits stay held until both
//! have ended: killing the wrapper does not let the command continue without its permits.

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
/// Waits until the limits grant the request, runs the command, passes its exit code on, and returns the
/// permits when it has ended. The exit code is 75 if the request was not granted in time, 127 if the command
/// was not found, 126 if it cannot be run, and 128 plus the signal's number if a signal ended it. Signals are
/// passed on to the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// The amount needed, as in tokens=100; call and resource limits that are not named default to 1
    #[arg(long, value_name = "KEY=NUMBER")]
    need: Vec<String>,
    /// How long to wait; 0 does not wait; without this option there is no time limit
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Whether to run the command if the set is unavailable or does not exist
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

/// The report about a run, on stderr: stdout belongs to the command.
#[derive(Debug, Serialize)]
struct Run {
    set: String,
    enforced: bool,
    charged: BTreeMap<String, u64>,
    waited_seconds: f64,
    ran_seconds: f64,
    /// None if the set was unavailable: then this process became the command.
    exit: Option<u8>,
    signal: Option<i32>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let needs = grammar::needs(&args.need)?;
    let timeout = args.timeout.as_deref().map(grammar::length).transpose()?;
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Failure::usage("no command given: add one after --"))?;
    // Find the command before anything is charged or waited for.
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
        // There are no permits to keep, so this process becomes the command.
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
        // The command may have closed stderr. Its exit code matters more than this report.
        let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "run": run }));
    }
}

/// Acquires the needs. Returns None if the set is unavailable and the policy is to run the command anyway.
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
        warn(context, "not limited: the set is unavailable");
    }
    // The needs are the best estimate of the command's use: report them.
    for limit in set.limits().iter().filter(|limit| limit.must_report()) {
        if let Some(amount) = held.charged(limit.name()) {
            held.update(limit.name(), amount).map_err(usage)?;
        }
    }
    Ok(Some(held))
}

/// Attaches under the name of the command: other processes see which command holds permits, not the wrapper.
fn attach(args: &Args, context: &Context) -> Result<LimitSet, AttachError> {
    const COMM: &str = "/proc/self/comm";
    let own = fs::read(COMM).unwrap_or_default();
    if let Some(name) = args.command.first().and_then(|program| Path::new(program).file_name()) {
        // Failure is harmless: then the wrapper's own name is shown.
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

/// Runs the command. The permits are held as long as this process or the command lives.
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
            // Roll the acquisition back, because the command did not run.
            let _ = held.cancel();
            return Err(command::not_started(program, &error));
        }
    };
    let ended = forwarding.wait_for(&mut child)?;
    match life.release(held) {
        Ok(()) | Err(UsageError::Removed) => {}
        // The permits are returned like those of a dead participant when this process ends.
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
