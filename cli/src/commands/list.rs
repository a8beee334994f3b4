//! `limitset list`: lists the sets of this machine.

use limitset::{LimitSet, Listed, Segment};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::grammar::show_limit;
use crate::set_file::live_limits;
use crate::table::Table;
use crate::text;

/// List the sets of this machine
///
/// Lists the sets in /dev/shm. Sets in files are not listed, because they can be anywhere.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// One set, or an unusable file that is named like a set.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// set, segment (without limits) or unusable.
    kind: &'static str,
    limits: Vec<String>,
    participants: Option<usize>,
    waiters: Option<u64>,
    bytes: Option<u64>,
    created: Option<String>,
    generated: bool,
    /// Why it cannot be used.
    error: Option<String>,
}

pub(crate) fn run(_args: &Args, context: &Context) -> Outcome {
    let listed = Segment::list()?;
    let rows: Vec<Row> = listed.iter().map(row).collect();
    context.print(&rows, |out| {
        let mut table = Table::new(&["name", "attached", "waiting", "size", "age", "limits"]);
        for (row, listed) in rows.iter().zip(&listed) {
            let limits = match &row.error {
                Some(error) => error.clone(),
                None if row.kind == "segment" => "(no limits: a plain segment)".to_owned(),
                None => row.limits.join(" "),
            };
            let dash = || "-".to_owned();
            table.row([
                row.name.clone(),
                row.participants.map_or_else(dash, |it| it.to_string()),
                row.waiters.map_or_else(dash, |it| it.to_string()),
                row.bytes.map_or_else(dash, text::size),
                listed.info.as_ref().map_or_else(|_| dash(), |info| text::age(info.created)),
                limits,
            ]);
        }
        if table.is_empty() {
            return writeln!(out, "no sets: create one with `limitset create NAME --limit calls=500/min`");
        }
        table.print(context, out)
    })?;
    Ok(Exit::Done)
}

fn row(listed: &Listed) -> Row {
    let mut row = Row {
        name: listed.name.clone(),
        kind: "unusable",
        limits: Vec::new(),
        participants: None,
        waiters: None,
        bytes: None,
        created: None,
        generated: Segment::is_generated_name(&listed.name),
        error: None,
    };
    match &listed.info {
        Ok(info) => {
            row.kind = "segment";
            row.bytes = Some(info.bytes);
            row.created = Some(text::instant(info.created));
        }
        Err(error) => {
            row.error = Some(error.to_string());
            return row;
        }
    }
    let options = || Segment::options().any_owner(true);
    if let Ok(segment) = options().observe(&listed.name) {
        row.participants = Some(segment.participants().len());
    }
    // The set may be removed, or become unreadable, between two reads.
    let Ok(set) = LimitSet::builder().segment(options()).observe(&listed.name) else { return row };
    row.kind = "set";
    match set.stats() {
        Ok(stats) => {
            row.limits = live_limits(&set, &stats).iter().map(show_limit).collect();
            row.waiters = Some(stats.waiters);
        }
        Err(error) => {
            row.limits = set.limits().iter().map(show_limit).collect();
            row.error = Some(error.to_string());
        }
    }
    row
}
