//! `limitset show`: shows one set at one instant.

use std::collections::BTreeMap;
use std::io::{self, Write};

use limitset::{Limit, LimitStats, ParticipantStats, SetObserver, Stats};
use serde::Serialize;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::{LimitText, show_limit};
use crate::table::Table;
use crate::text;

/// Show a set: limits, participants and their holdings, waiters, and what went wrong so far
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The set
    name: String,
}

/// A set at one instant, in the shape of the JSON output.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) segment: ShownSegment,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) order: &'static str,
    pub(crate) clock: &'static str,
    pub(crate) limits: Vec<ShownLimit>,
    pub(crate) participants: Vec<ShownParticipant>,
    pub(crate) waiters: u64,
    pub(crate) cooldown: ShownCooldown,
    pub(crate) queue: Option<ShownQueue>,
    pub(crate) counts: ShownCounts,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownSegment {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// The format version of the segment.
    pub(crate) format_version: u32,
    /// The version of this command.
    pub(crate) version: &'static str,
    pub(crate) instance: String,
    pub(crate) created: String,
    pub(crate) creator_pid: u32,
    pub(crate) creator_uid: u32,
    pub(crate) slots: u32,
    pub(crate) waiters: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownLimit {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    /// The limit in the grammar of `create` and `set`, with its current parameters.
    pub(crate) limit: String,
    pub(crate) algorithm: Option<&'static str>,
    pub(crate) capacity: u64,
    pub(crate) window_seconds: Option<f64>,
    pub(crate) burst: u64,
    pub(crate) available: u64,
    pub(crate) in_use: u64,
    pub(crate) debt: u64,
    pub(crate) waiting: u64,
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    pub(crate) refunded: u64,
    pub(crate) unreported: u64,
    pub(crate) consumed: u64,
    pub(crate) revision: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownParticipant {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
    pub(crate) alive: bool,
    pub(crate) pid: Option<u64>,
    pub(crate) pid_namespace: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) command: Option<String>,
    pub(crate) enrolled: Option<String>,
    pub(crate) holds: BTreeMap<String, u64>,
    pub(crate) owes_reports: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownCooldown {
    pub(crate) remaining_seconds: Option<f64>,
    pub(crate) next_admission_seconds: Option<f64>,
    pub(crate) generation: u64,
    pub(crate) consecutive: u64,
    pub(crate) reports: u64,
    pub(crate) absorbed: u64,
    pub(crate) slow_admissions: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownQueue {
    pub(crate) capacity: u64,
    pub(crate) ready: u64,
    pub(crate) parked: u64,
    pub(crate) delayed: u64,
    pub(crate) leased: u64,
    pub(crate) results: u64,
    pub(crate) dead_letters: u64,
    pub(crate) closed: bool,
    pub(crate) pushed: u64,
    pub(crate) taken: u64,
    pub(crate) done: u64,
    pub(crate) retried: u64,
    pub(crate) returned: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownCounts {
    pub(crate) steals: u64,
    pub(crate) recoveries: u64,
    pub(crate) sweeps: u64,
    pub(crate) reaped_participants: u64,
    pub(crate) reaped_permits: u64,
    pub(crate) unenforced: u64,
    pub(crate) deposed: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let shown = Shown::read(&args.name, &context.observe(&args.name)?)?;
    context.print(&shown, |out| shown.print(context, out))?;
    Ok(Exit::Done)
}

impl Shown {
    /// Reads the current state of a set.
    pub(crate) fn read(name: &str, set: &SetObserver) -> Result<Self, Failure> {
        let stats = set.stats()?;
        let (info, declared) = (set.segment().info(), set.declaration());
        let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Self {
            name: name.to_owned(),
            segment: ShownSegment {
                path: info.path.display().to_string(),
                bytes: info.bytes,
                format_version: info.format_version,
                version: env!("CARGO_PKG_VERSION"),
                instance: hex(info.instance),
                created: text::instant(info.created),
                creator_pid: info.creator_pid,
                creator_uid: info.creator_uid,
                slots: info.slots,
                waiters: info.waiters,
            },
            config: declared.config,
            order: if declared.order == limitset::Order::Any { "any" } else { "arrival" },
            clock: declared.clock.name(),
            limits: declared.limits.iter().filter_map(|it| ShownLimit::read(it, &stats)).collect(),
            participants: stats.participants.iter().map(ShownParticipant::read).collect(),
            waiters: stats.waiters,
            cooldown: ShownCooldown::read(&stats),
            queue: ShownQueue::read(&stats),
            counts: ShownCounts {
                steals: stats.steals,
                recoveries: stats.recoveries,
                sweeps: stats.sweeps,
                reaped_participants: stats.reaped_participants,
                reaped_permits: stats.reaped_permits,
                unenforced: stats.unenforced,
                deposed: stats.deposed,
            },
        })
    }

    pub(crate) fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        let segment = &self.segment;
        writeln!(out, "{}  {}", context.bold(&self.name), segment.path)?;
        writeln!(
            out,
            "{}, format version {} (limitset {}), {} clock, order by {}, room for {} processes and {} waiters",
            text::size(segment.bytes),
            segment.format_version,
            segment.version,
            self.clock,
            self.order,
            segment.slots,
            segment.waiters
        )?;
        writeln!(
            out,
            "created {} by process {} of user {}",
            segment.created, segment.creator_pid, segment.creator_uid
        )?;
        for (key, value) in &self.config {
            writeln!(out, "config {}={}", text::clean(key), text::clean(value))?;
        }
        writeln!(out)?;
        self.limit_table().print(context, out)?;
        if self.cooldown.remaining_seconds.is_some() || self.cooldown.next_admission_seconds.is_some() {
            let left =
                self.cooldown.remaining_seconds.or(self.cooldown.next_admission_seconds).unwrap_or(0.0);
            let text = format!("cooling down: no request is admitted for another {left:.1} s");
            writeln!(out, "\n{}", context.odd(&text))?;
        }
        if let Some(queue) = &self.queue {
            let ShownQueue { capacity, ready, parked, delayed, leased, results, dead_letters, .. } = queue;
            writeln!(
                out,
                "\nwork: {ready} ready, {leased} leased, {parked} parked, {delayed} delayed, {results} results, \
                 {dead_letters} dead letters, of {capacity}"
            )?;
        }
        writeln!(out)?;
        if self.participants.is_empty() {
            writeln!(out, "no process is attached")?;
        } else {
            self.participant_table().print(context, out)?;
        }
        let ShownCounts { recoveries, reaped_permits, unenforced, deposed, .. } = self.counts;
        writeln!(
            out,
            "\n{} waiting; after deaths of processes: {} rolled back, {} returned",
            self.waiters,
            text::count(recoveries, "update", "updates"),
            text::count(reaped_permits, "permit", "permits"),
        )?;
        if unenforced > 0 {
            writeln!(out, "{}", context.odd(&format!("{unenforced} acquisitions were not limited")))?;
        }
        if deposed > 0 {
            let text = format!(
                "{deposed} lock holders lost the lock to another process: run `limitset check`, and report it"
            );
            writeln!(out, "{}", context.bad(&text))?;
        }
        Ok(())
    }

    fn limit_table(&self) -> Table {
        let mut table =
            Table::new(&["limit", "available", "in use", "debt", "waiting", "granted", "denied", "consumed"]);
        for it in &self.limits {
            let numbers = [it.available, it.in_use, it.debt, it.waiting, it.granted, it.denied, it.consumed];
            table.row([it.limit.clone()].into_iter().chain(numbers.map(|number| number.to_string())));
        }
        table
    }

    fn participant_table(&self) -> Table {
        let mut table = Table::new(&["slot", "pid", "user", "command", "since", "holds"]);
        for it in &self.participants {
            let held = |map: &BTreeMap<String, u64>| {
                map.iter().map(|(key, amount)| format!("{key}={amount}")).collect::<Vec<_>>().join(" ")
            };
            let number = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
            table.row([
                it.slot.to_string(),
                number(it.pid),
                number(it.uid),
                it.command.clone().unwrap_or_else(|| "(dead)".to_owned()),
                it.enrolled.clone().unwrap_or_else(|| "-".to_owned()),
                held(&it.holds),
            ]);
        }
        table
    }
}

impl ShownLimit {
    fn read(declared: &Limit, stats: &Stats) -> Option<Self> {
        let now: &LimitStats = stats.limit(declared.name())?;
        Some(Self {
            key: now.key.clone(),
            kind: match declared {
                Limit::Call(_) => "calls",
                Limit::Resource(_) => "resource",
                _ => "rate",
            },
            limit: show_limit(&LimitText::live(declared, now)),
            algorithm: declared.rate_settings().map(|rate| rate.algorithm.name()),
            capacity: now.capacity,
            window_seconds: now.window.map(text::seconds),
            burst: now.burst,
            available: now.available,
            in_use: now.in_use,
            debt: now.debt,
            waiting: now.waiting,
            granted: now.granted,
            denied: now.denied,
            refunded: now.refunded,
            unreported: now.unreported,
            consumed: now.consumed,
            revision: now.revision,
        })
    }
}

impl ShownParticipant {
    fn read(it: &ParticipantStats) -> Self {
        let info = it.info.as_ref();
        Self {
            slot: it.participant.slot,
            generation: it.participant.generation,
            alive: info.is_some(),
            pid: info.map(|info| info.pid),
            pid_namespace: info.map(|info| info.pid_namespace),
            uid: info.map(|info| info.uid),
            command: info.map(|info| info.command.clone()),
            enrolled: info.map(|info| text::instant(info.enrolled)),
            holds: it.holds.iter().cloned().collect(),
            owes_reports: it.owes_reports.iter().cloned().collect(),
        }
    }
}

impl ShownCooldown {
    fn read(stats: &Stats) -> Self {
        let it = &stats.cooldown;
        Self {
            remaining_seconds: it.remaining.map(text::seconds),
            next_admission_seconds: it.next_admission.map(text::seconds),
            generation: it.generation,
            consecutive: it.consecutive,
            reports: it.participants,
            absorbed: it.absorbed,
            slow_admissions: it.slow_admissions,
        }
    }
}

impl ShownQueue {
    fn read(stats: &Stats) -> Option<Self> {
        let it = stats.queue?;
        Some(Self {
            capacity: it.capacity,
            ready: it.ready,
            parked: it.parked,
            delayed: it.delayed,
            leased: it.leased,
            results: it.results,
            dead_letters: it.dead_letters,
            closed: it.is_closed,
            pushed: it.pushed,
            taken: it.taken,
            done: it.done,
            retried: it.retried,
            returned: it.returned,
        })
    }
}
