//! `limitset doctor`: diagnoses this machine.

use std::path::PathBuf;

use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::machine::{self, Examined, Health};

/// Diagnose problems of this machine, and suggest fixes
///
/// Checks /dev/shm, permissions, namespaces, the clock, the kernel and every set, and tries a set out. Exits
/// with 4 if something is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also check the file system of this directory, for sets in files
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Examination {
    healthy: bool,
    checks: Vec<Examined>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let checks = machine::examine(args.path.as_deref());
    let healthy = checks.iter().all(|it| it.health != Health::Wrong);
    let examination = Examination { healthy, checks };
    context.print(&examination, |out| {
        for it in &examination.checks {
            let mark = match it.health {
                Health::Good => context.good("ok   "),
                Health::Odd => context.odd("note "),
                Health::Wrong => context.bad("wrong"),
            };
            writeln!(out, "{mark}  {}: {}", it.what, it.found)?;
            if let Some(fix) = &it.fix {
                writeln!(out, "         fix: {fix}")?;
            }
        }
        Ok(())
    })?;
    Ok(if healthy { Exit::Done } else { Exit::Unsound })
}
