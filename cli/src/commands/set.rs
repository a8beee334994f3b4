//! `limitset set`: changes parameters of limits, live.

use limitset::{Limit, LimitSet, Stats};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::grammar::{LimitText, show_limit};
use crate::text;

/// Change parameters of limits, all at once, for every process from its next request on
///
/// Values that are left out stay: the algorithm, the time, a burst of its own. Keys, kinds and algorithms
/// cannot change.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
    /// The new limit, as in tokens=300000/min
    #[arg(required = true, value_name = "LIMIT")]
    limits: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    key: String,
    from: String,
    to: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let texts = args.limits.iter().map(|text| LimitText::read(text)).collect::<Result<Vec<_>, _>>()?;
    let set = context.attach(&args.name)?;
    let before = set.stats()?;
    let limits = texts.iter().map(|text| wanted(&set, &before, text)).collect::<Vec<Limit>>();
    set.reconfigure(limits.clone())?;
    let mut changed = Changed { name: args.name.clone(), changes: Vec::new() };
    for to in &limits {
        let declared = set.limits().iter().find(|it| it.name() == to.name());
        let from = declared.zip(before.limit(to.name())).map(|(it, now)| LimitText::live(it, now));
        let from = from.as_ref().map(show_limit).unwrap_or_default();
        changed.changes.push(Change { key: to.name().to_owned(), from, to: show_limit(to) });
    }
    context.print(&changed, |out| {
        let told = |it: &Change| text::clean(&format!("{} -> {}", it.from, it.to));
        changed.changes.iter().try_for_each(|it| writeln!(out, "{}: {}", changed.name, told(it)))
    })?;
    Ok(Exit::Done)
}

/// Returns the new limit. An unknown key is passed on, and the set refuses it.
fn wanted(set: &LimitSet, before: &Stats, text: &LimitText) -> Limit {
    let declared = set.limits().iter().find(|it| it.name() == text.key);
    match declared.zip(before.limit(&text.key)) {
        Some((declared, now)) => text.changed(declared, now),
        None => text.limit(),
    }
}
