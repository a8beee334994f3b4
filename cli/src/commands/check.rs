//! `limitset check`: verifies the consistency of a set.

use std::io::{self, Write};

use limitset::error::AttachError;
use limitset::{Audit, AuditCheck, Finding, Gravity, Segment};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Check the consistency of a set: totals against holders, journals, lists, checksums
///
/// Changes nothing and is safe while the set is in use. Exits with 4 if something is broken. Leftovers of a
/// dead process are not damage: the next participant cleans them up.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// Repair what can be repaired without risk, list the repairs, and check again
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    sound: bool,
    /// How many processes were attached.
    participants: usize,
    checks: Vec<Kind>,
    /// With --repair: the repairs made.
    repaired: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Kind {
    what: &'static str,
    looked_at: u64,
    findings: Vec<Found>,
    /// How many more findings there are.
    untold: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    /// broken or pending.
    gravity: &'static str,
    what: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let (others, mut audit) = look(&args.name)?;
    let mut repaired = None;
    if args.repair {
        let mut did = repair(&args.name, context)?;
        let after = look(&args.name)?.1;
        let is_gone = |it: &&Finding| after.findings().all(|left| left != *it);
        did.extend(audit.findings().filter(is_gone).map(|it| format!("repaired: {}", it.what)));
        repaired = Some(did);
        audit = after;
    }
    let checks = audit.checks.iter().map(Kind::of).collect();
    let checked =
        Checked { name: args.name.clone(), sound: audit.is_sound(), participants: others, checks, repaired };
    context.print(&checked, |out| checked.print(context, out))?;
    Ok(if checked.sound { Exit::Done } else { Exit::Unsound })
}

/// Returns the number of participants, and the audit.
fn look(name: &str) -> Result<(usize, Audit), Failure> {
    let segment = Segment::options().any_owner(true).observe(name)?;
    Ok((segment.participants().len(), segment.audit()?))
}

/// Repairs what can be repaired, and returns a list of the repairs. Attaching is itself a repair: a process
/// that finds no other participant clears what dead ones left.
fn repair(name: &str, context: &Context) -> Result<Vec<String>, Failure> {
    let set = match context.builder().attach(name) {
        Ok(set) => set,
        Err(AttachError::NotASet { .. }) => {
            context.segment_options().attach(name)?;
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    let repaired = set.repair()?;
    let mut did = Vec::new();
    if repaired.returned_permits > 0 {
        did.push(format!(
            "returned {} of dead participants",
            text::count(repaired.returned_permits, "permit", "permits")
        ));
    }
    for (key, from, to) in repaired.raised_totals {
        did.push(format!("raised the total of {key:?} from {from} to {to}, the sum of its holders"));
    }
    Ok(did)
}

impl Kind {
    fn of(check: &AuditCheck) -> Self {
        let found = |gravity| if gravity == Gravity::Broken { "broken" } else { "pending" };
        let findings = check.findings.iter();
        let findings =
            findings.map(|it| Found { gravity: found(it.gravity), what: it.what.clone() }).collect();
        Self { what: check.what, looked_at: check.looked_at, findings, untold: check.untold }
    }
}

impl Checked {
    fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        for done in self.repaired.iter().flatten() {
            writeln!(out, "{done}")?;
        }
        if self.repaired.as_ref().is_some_and(Vec::is_empty) {
            writeln!(out, "nothing to repair, or nothing that can be repaired without risk")?;
        }
        for check in &self.checks {
            let is_broken = check.findings.iter().any(|it| it.gravity == "broken");
            let mark = match (is_broken, check.findings.is_empty()) {
                (true, _) => context.bad("broken"),
                (false, true) => context.good("ok    "),
                (false, false) => context.odd("left  "),
            };
            writeln!(out, "{mark}  {} ({})", check.what, check.looked_at)?;
            for it in &check.findings {
                writeln!(out, "          {}: {}", it.gravity, it.what)?;
            }
            if check.untold > 0 {
                writeln!(out, "          and {} more", check.untold)?;
            }
        }
        if self.sound {
            return writeln!(out, "{}", context.good(&format!("{} is sound", self.name)));
        }
        let next = match self.repaired {
            None => "run it again with --repair, preferably while no process is attached",
            Some(_) if self.participants > 0 => {
                "stop its users and run it again: more can be repaired while no process is attached"
            }
            Some(_) => {
                "the remaining damage cannot be repaired in place: stop its users, `limitset rm` it, and create it \
                 again (`limitset export` saves its definition, if that is intact)"
            }
        };
        writeln!(out, "{}: {next}", context.bad(&format!("{} is broken", self.name)))
    }
}
