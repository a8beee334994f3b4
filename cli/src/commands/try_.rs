//! `limitset try`: checks a request without charging it.

use limitset::{AcquireError, LimitStatus, Statuses};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::needs;
use crate::table::Table;
use crate::text;

/// Check whether a request would be granted now, without charging it
///
/// Exits with 0 if it would be granted, 75 if not now, 76 if never.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// The amount needed, as in tokens=100; call and resource limits that are not named default to 1
    #[arg(long, value_name = "KEY=NUMBER")]
    need: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Tried {
    granted: bool,
    /// granted, denied, queued, cooling_down or never.
    answer: &'static str,
    message: Option<String>,
    retry_after_seconds: Option<f64>,
    /// The number of conflicting waiters ahead.
    ahead: Option<u64>,
    limits: Vec<TriedLimit>,
}

#[derive(Debug, Serialize)]
struct TriedLimit {
    key: String,
    requested: u64,
    /// The available amount; a negative amount is debt.
    available: i64,
    most: u64,
    passed: bool,
    retry_after_seconds: Option<f64>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let needs = needs(&args.need)?;
    let set = context.attach(&args.name)?;
    let (exit, tried) = match set.check(needs.amounts().as_slice()) {
        Ok(statuses) => {
            let limits = limits(&statuses);
            let tried = Tried {
                granted: true,
                answer: "granted",
                message: None,
                retry_after_seconds: None,
                ahead: None,
                limits,
            };
            (Exit::Done, tried)
        }
        Err(error) => refused(error)?,
    };
    context.print(&tried, |out| {
        match &tried.message {
            None => writeln!(out, "{}", context.good("would be granted"))?,
            Some(message) => writeln!(out, "{}: {message}", context.bad(tried.answer))?,
        }
        if tried.limits.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&["limit", "needed", "available", "most", "in"]);
        for it in &tried.limits {
            let wait = match (it.passed, it.retry_after_seconds) {
                (true, _) => "now".to_owned(),
                (false, Some(seconds)) => format!("{seconds:.3} s"),
                (false, None) => "when permits are returned".to_owned(),
            };
            let numbers = [it.requested.to_string(), it.available.to_string(), it.most.to_string()];
            table.row([it.key.clone()].into_iter().chain(numbers).chain([wait]));
        }
        table.print(context, out)
    })?;
    Ok(exit)
}

/// Returns the answer for a denied request. Other errors are failures.
fn refused(error: AcquireError) -> Result<(Exit, Tried), Failure> {
    let mut tried = Tried {
        granted: false,
        answer: "",
        message: Some(error.to_string()),
        retry_after_seconds: error.retry_after().map(text::seconds),
        ahead: None,
        limits: Vec::new(),
    };
    match &error {
        AcquireError::Denied(denial) => tried.limits = limits(denial.statuses()),
        AcquireError::Queued { ahead } => tried.ahead = Some(*ahead),
        AcquireError::CoolingDown { .. } | AcquireError::Never { .. } => {}
        _ => return Err(error.into()),
    }
    let failure = Failure::from(error);
    tried.answer = failure.code;
    Ok((failure.exit, tried))
}

fn limits(statuses: &Statuses) -> Vec<TriedLimit> {
    let tried = |it: LimitStatus<'_>| TriedLimit {
        key: it.key.to_owned(),
        requested: it.requested,
        available: it.available,
        most: it.most,
        passed: it.passed,
        retry_after_seconds: it.retry_after.map(text::seconds),
    };
    statuses.iter().map(tried).collect()
}
