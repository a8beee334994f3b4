//! `limitset simulate`: tries limits on a virtual clock. The library decides, on a set in private memory with
//! a manual clock. So an hour takes a moment, and the answer is exact.
//!
//! ```text
//! load   the requests: a trace, or a steady rate
//! play   runs the requests against the limits
//! plot   draws the plot
//! ```

mod load;
mod play;
mod plot;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use limitset::Limit;
use serde::Serialize;

use self::load::Load;
use self::play::Played;
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::{self, LimitText};
use crate::table::Table;
use crate::text;

/// Try limits on a virtual clock: which requests are admitted, and when
///
/// The requests come from a trace, or at a steady rate. A trace is CSV with a heading: a column `time` in
/// seconds, one column per key for the amounts, and optionally `hold`, the seconds that a request holds its
/// permits. With --what-if the requests are tried once more with other limits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A limit, as in tokens=200000/min:gcra:burst=50000
    #[arg(long, required = true, value_name = "LIMIT")]
    limit: Vec<String>,
    /// A limit to compare: replaces the --limit with its key
    #[arg(long, value_name = "LIMIT")]
    what_if: Vec<String>,
    /// A CSV file of requests
    #[arg(long, value_name = "FILE", conflicts_with_all = ["every", "lasting", "need", "hold"])]
    trace: Option<PathBuf>,
    /// Without a trace: the time between two requests
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    every: String,
    /// Without a trace: the time span of the requests
    #[arg(long = "for", id = "lasting", value_name = "TIME", default_value = "1min")]
    lasting: String,
    /// Without a trace: the needs of each request
    #[arg(long, value_name = "KEY=NUMBER")]
    need: Vec<String>,
    /// Without a trace: how long each request holds its permits
    #[arg(long, value_name = "TIME", default_value = "0")]
    hold: String,
    /// How long a request waits before it gives up
    #[arg(long, value_name = "TIME", default_value = "0")]
    wait: String,
    /// Print the outcome of each request
    #[arg(long)]
    each: bool,
}

/// The answer of the command.
#[derive(Debug, Serialize)]
struct Simulated {
    seconds: f64,
    requests: usize,
    wait_seconds: f64,
    scenarios: Vec<Scenario>,
}

#[derive(Debug, Serialize)]
struct Scenario {
    limits: Vec<String>,
    admitted: usize,
    denied: usize,
    never: usize,
    /// The time of the last admission.
    last_admitted_seconds: Option<f64>,
    waited_seconds: Waited,
    /// Units taken, by key.
    taken: std::collections::BTreeMap<String, u64>,
    buckets: Vec<Bucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    each: Option<Vec<Each>>,
}

/// The waiting times of the admitted requests.
#[derive(Debug, Serialize)]
struct Waited {
    p50: f64,
    p95: f64,
    max: f64,
}

/// A part of the simulated time.
#[derive(Clone, Debug, Default, Serialize)]
struct Bucket {
    from_seconds: f64,
    arrived: usize,
    admitted: usize,
    denied: usize,
}

#[derive(Debug, Serialize)]
struct Each {
    at_seconds: f64,
    /// admitted, denied or never.
    outcome: &'static str,
    admitted_at_seconds: Option<f64>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let limits = grammar::limits(&args.limit)?;
    let load = match &args.trace {
        Some(path) => Load::from_trace(path, &limits)?,
        None => Load::steady(args)?,
    };
    let wait = grammar::length(&args.wait)?;
    let mut compared = vec![limits];
    if !args.what_if.is_empty() {
        compared.push(replaced(&args.limit, &args.what_if)?);
    }
    let scenario = |limits: &Vec<Limit>| Scenario::new(limits, &load, wait, args.each);
    let scenarios = compared.iter().map(scenario).collect::<Result<Vec<_>, _>>()?;
    let simulated = Simulated {
        seconds: load.end.as_secs_f64(),
        requests: load.asks.len(),
        wait_seconds: wait.as_secs_f64(),
        scenarios,
    };
    context.print(&simulated, |out| simulated.print(context, out))?;
    Ok(Exit::Done)
}

/// Returns the limits, some of them replaced by others with the same keys.
fn replaced(limits: &[String], others: &[String]) -> Result<Vec<Limit>, Failure> {
    let mut texts = limits.to_vec();
    for other in others {
        let key = LimitText::read(other)?.key;
        let keys = texts.iter().map(|text| LimitText::read(text).map(|it| it.key));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let place = keys.iter().position(|it| *it == key);
        let Some(text) = place.and_then(|place| texts.get_mut(place)) else {
            let known = keys.join(", ");
            return Err(Failure::usage(format!(
                "unknown key {key:?} in --what-if {other}: the keys of --limit are {known}"
            )));
        };
        other.clone_into(text);
    }
    grammar::limits(&texts)
}

/// The number of columns of the plot.
const BUCKETS: usize = 60;

impl Scenario {
    fn new(limits: &[Limit], load: &Load, wait: Duration, each: bool) -> Result<Self, Failure> {
        let fates = play::play(limits, load, wait)?;
        let mut waits: Vec<Duration> =
            fates.iter().filter_map(|it| Some(it.admitted?.saturating_sub(it.at))).collect();
        waits.sort_unstable();
        let percentile = |percent: usize| {
            let place = (waits.len() * percent).div_ceil(100).saturating_sub(1);
            waits.get(place).map_or(0.0, Duration::as_secs_f64)
        };
        let count = |is: fn(&Played) -> bool| fates.iter().filter(|it| is(it)).count();
        let mut taken = std::collections::BTreeMap::new();
        for fate in fates.iter().filter(|it| it.admitted.is_some()) {
            for (key, amount) in &fate.taken {
                let sum: &mut u64 = taken.entry(key.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        Ok(Self {
            limits: limits.iter().map(grammar::show_limit).collect(),
            admitted: count(|it| it.admitted.is_some()),
            denied: count(|it| it.admitted.is_none() && !it.is_never),
            never: count(|it| it.is_never),
            last_admitted_seconds: fates.iter().filter_map(|it| it.admitted).max().map(|at| at.as_secs_f64()),
            waited_seconds: Waited { p50: percentile(50), p95: percentile(95), max: percentile(100) },
            taken,
            buckets: buckets(&fates, load.end),
            each: each.then(|| fates.iter().map(Each::new).collect()),
        })
    }
}

/// Divides the time into parts. Arrivals and denials count at their arrival, admissions when they were
/// admitted.
fn buckets(fates: &[Played], end: Duration) -> Vec<Bucket> {
    let last = fates.iter().map(|it| it.admitted.unwrap_or(it.at)).max().unwrap_or_default();
    let end = end.max(last).max(Duration::from_nanos(1));
    let count = u128::try_from(BUCKETS).unwrap_or(1);
    let place = |at: Duration| {
        let place = usize::try_from(at.as_nanos() * count / end.as_nanos()).unwrap_or(usize::MAX);
        place.min(BUCKETS - 1)
    };
    let mut buckets = vec![Bucket::default(); BUCKETS];
    for (index, bucket) in (0u32..).zip(&mut buckets) {
        bucket.from_seconds =
            end.as_secs_f64() * f64::from(index) / f64::from(u32::try_from(BUCKETS).unwrap_or(1));
    }
    for fate in fates {
        if let Some(bucket) = buckets.get_mut(place(fate.at)) {
            bucket.arrived += 1;
            bucket.denied += usize::from(fate.admitted.is_none());
        }
        if let Some(bucket) = fate.admitted.and_then(|at| buckets.get_mut(place(at))) {
            bucket.admitted += 1;
        }
    }
    buckets
}

impl Each {
    fn new(fate: &Played) -> Self {
        let outcome = match fate {
            it if it.admitted.is_some() => "admitted",
            it if it.is_never => "never",
            _ => "denied",
        };
        let admitted_at_seconds = fate.admitted.map(|at| at.as_secs_f64());
        Self { at_seconds: fate.at.as_secs_f64(), outcome, admitted_at_seconds }
    }
}

impl Simulated {
    fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        let requests = text::count(self.requests as u64, "request", "requests");
        let wait = match self.wait_seconds {
            0.0 => "without waiting".to_owned(),
            wait => format!("each waits up to {}", text::about(Duration::from_secs_f64(wait))),
        };
        writeln!(out, "{requests} in {}, {wait}", text::about(Duration::from_secs_f64(self.seconds)))?;
        let most = self.scenarios.iter().flat_map(|it| &it.buckets);
        let most = most.map(|it| it.admitted + it.denied).max().unwrap_or(0);
        for scenario in &self.scenarios {
            writeln!(out, "\n{}", context.bold(&scenario.limits.join("  ")))?;
            plot::plot(&scenario.buckets, most, context, out)?;
        }
        writeln!(out)?;
        let mut table =
            Table::new(&["limits", "admitted", "denied", "never", "waited p50", "p95", "max", "taken"]);
        let seconds = |it: f64| text::about(Duration::from_secs_f64(it));
        for it in &self.scenarios {
            let taken: Vec<_> =
                it.taken.iter().map(|(key, amount)| format!("{}={amount}", grammar::show_key(key))).collect();
            let Waited { p50, p95, max } = it.waited_seconds;
            table.row([
                it.limits.join(" "),
                it.admitted.to_string(),
                it.denied.to_string(),
                it.never.to_string(),
                seconds(p50),
                seconds(p95),
                seconds(max),
                taken.join(" "),
            ]);
        }
        table.print(context, out)?;
        if let [as_is, what_if] = self.scenarios.as_slice() {
            let (before, after) = (as_is.admitted, what_if.admitted);
            let change = if after >= before {
                format!("{} more", after - before)
            } else {
                format!("{} fewer", before - after)
            };
            writeln!(out, "\nwhat if {}: {change} would be admitted", what_if.limits.join(" "))?;
        }
        for scenario in self.scenarios.iter().filter(|it| it.each.is_some()) {
            writeln!(out, "\n{}", context.bold(&scenario.limits.join("  ")))?;
            let mut table = Table::new(&["at", "outcome", "admitted at"]);
            for it in scenario.each.iter().flatten() {
                let admitted = it.admitted_at_seconds.map_or_else(|| "-".to_owned(), |at| format!("{at:.6}"));
                table.row([format!("{:.6}", it.at_seconds), it.outcome.to_owned(), admitted]);
            }
            table.print(context, out)?;
        }
        Ok(())
    }
}
