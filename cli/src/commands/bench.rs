//! `limitset bench`: measures a set on this machine. Forked workers acquire and release on an unnamed scratch
//! set, which disappears with them however they end.
//!
//! ```text
//! crew        the workers, and the shared words for their measurements
//! histogram   a compact histogram of latencies
//! ```

mod crew;
mod histogram;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

use self::crew::Measured;
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar;
use crate::table::Table;
use crate::text;

/// Measure a scratch set on this machine: throughput, latency, fairness
///
/// Each worker is a process that acquires one of each limit and releases it, as often as it can.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// The duration; with --tune, for each number of workers
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Limits to measure, as in tokens=200000/min; by default, three that are never exhausted
    #[arg(long, value_name = "LIMIT")]
    limit: Vec<String>,
    /// Find the number of workers where throughput stops growing
    #[arg(long, conflicts_with = "workers")]
    tune: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 =
        text.parse().map_err(|_| format!("{text:?} is not a number of seconds: use 5 or 0.5"))?;
    if (0.01..=3_600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("out of range: use 0.01 to 3600".to_owned())
    }
}

/// The answer of the command.
#[derive(Debug, Serialize)]
struct Benched {
    cores: usize,
    limits: Vec<String>,
    runs: Vec<Run>,
    /// With --tune: the smallest number of workers with nearly the highest throughput.
    best_workers: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Run {
    workers: u32,
    seconds: f64,
    granted: u64,
    denied: u64,
    granted_per_second: f64,
    /// The latency of an acquisition with its release, or of a denial.
    latency_nanos: Latency,
    fairness: Fairness,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Debug, Serialize)]
struct Fairness {
    /// Jain's fairness index: 1 if all workers did equally much, 1/workers if one did everything.
    jain: f64,
    /// The number of operations of each worker.
    each: Vec<u64>,
}

/// The factor from which on throughput counts as growing.
const GROWTH: f64 = 1.05;
/// The search ends after this many runs in a row without growth.
const PATIENCE: usize = 2;

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let usual = if args.tune { 1.0 } else { 5.0 };
    let length = Duration::from_secs_f64(args.seconds.unwrap_or(usual));
    let limits = match args.limit.as_slice() {
        [] => grammar::limits(&["calls=1G/s", "tokens=1G/s:gcra", "connections=1000"])?,
        given => grammar::limits(given)?,
    };
    let progress = Progress { is_shown: !context.json && io::stderr().is_terminal() };
    let measure = |workers: u32| -> Result<Run, Failure> {
        let measured = crew::measure(&limits, workers, length, |done| progress.show(workers, done));
        progress.clear();
        Ok(Run::new(workers, length, &measured?))
    };
    let mut runs = Vec::new();
    if args.tune {
        let mut best = 0.0;
        let mut without_growth = 0;
        for workers in counts(cores) {
            let run = measure(workers)?;
            let is_growing = run.granted_per_second > best * GROWTH;
            best = run.granted_per_second.max(best);
            runs.push(run);
            without_growth = if is_growing { 0 } else { without_growth + 1 };
            if without_growth >= PATIENCE {
                break;
            }
        }
    } else {
        runs.push(measure(args.workers)?);
    }
    let most = runs.iter().map(|run| run.granted_per_second).fold(0.0, f64::max);
    let best = runs.iter().find(|run| run.granted_per_second * GROWTH >= most).map(|run| run.workers);
    let benched = Benched {
        cores,
        limits: limits.iter().map(grammar::show_limit).collect(),
        runs,
        best_workers: best.filter(|_| args.tune),
    };
    context.print(&benched, |out| benched.print(context, out))?;
    Ok(Exit::Done)
}

/// Returns the numbers of workers to try: one, two, then half as many again each time, to well beyond the
/// number of cores.
fn counts(cores: usize) -> impl Iterator<Item = u32> {
    let most = u32::try_from(cores * 4).unwrap_or(256).clamp(8, 256);
    std::iter::successors(Some(1u32), |count| Some((count * 3).div_ceil(2)))
        .take_while(move |count| *count <= most)
}

impl Run {
    fn new(workers: u32, length: Duration, measured: &Measured) -> Self {
        let at = |per_thousand| measured.latency.at(per_thousand);
        let each = measured.each.clone();
        Self {
            workers,
            seconds: length.as_secs_f64(),
            granted: measured.granted,
            denied: measured.denied,
            granted_per_second: number(measured.granted) / measured.took.as_secs_f64().max(f64::MIN_POSITIVE),
            latency_nanos: Latency {
                p50: at(500),
                p90: at(900),
                p99: at(990),
                p999: at(999),
                max: measured.latency.max(),
            },
            fairness: Fairness { jain: jain(&each), each },
        }
    }
}

/// Converts a count to a float, exactly enough for a quotient.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn number(count: u64) -> f64 {
    count as f64
}

fn jain(each: &[u64]) -> f64 {
    let sum: f64 = each.iter().copied().map(number).sum();
    let squares: f64 = each.iter().map(|it| number(*it).powi(2)).sum();
    let count = f64::from(u32::try_from(each.len()).unwrap_or(u32::MAX));
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

/// A progress bar on stderr.
struct Progress {
    is_shown: bool,
}

impl Progress {
    fn show(&self, workers: u32, done: f64) {
        if self.is_shown {
            const WIDTH: f64 = 40.0;
            // Between 0 and the width.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let full = (done.clamp(0.0, 1.0) * WIDTH) as usize;
            let bar = format!("{}{}", "█".repeat(full), "·".repeat(40 - full.min(40)));
            let _ =
                write!(io::stderr(), "\r{bar} {:>3.0}%  {workers} workers ", done.clamp(0.0, 1.0) * 100.0);
        }
    }

    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r{:70}\r", "");
        }
    }
}

impl Benched {
    fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} on {} cores", self.limits.join("  "), self.cores)?;
        writeln!(out)?;
        let mut table = Table::new(&[
            "workers",
            "granted/s",
            "denied",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "fairness",
            "",
        ]);
        let most = self.runs.iter().map(|run| run.granted_per_second).fold(0.0, f64::max);
        for run in &self.runs {
            let Latency { p50, p90, p99, p999, max } = run.latency_nanos;
            let times = [p50, p90, p99, p999, max].map(nanos);
            let [p50, p90, p99, p999, max] = times;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 20")]
            let bar = "█".repeat((run.granted_per_second / most.max(1.0) * 20.0) as usize);
            table.row([
                run.workers.to_string(),
                format!("{:.0}", run.granted_per_second),
                run.denied.to_string(),
                p50,
                p90,
                p99,
                p999,
                max,
                format!("{:.3}", run.fairness.jain),
                if self.runs.len() > 1 { bar } else { String::new() },
            ]);
        }
        table.print(context, out)?;
        if let Some(best) = self.best_workers {
            let text = format!(
                "{}: more workers add at most {:.0}% throughput",
                text::count(best.into(), "worker", "workers"),
                (GROWTH - 1.0) * 100.0
            );
            writeln!(out, "\n{}", context.good(&text))?;
        }
        Ok(())
    }
}

fn nanos(nanos: u64) -> String {
    match nanos {
        0..=9_999 => format!("{nanos}ns"),
        10_000..=9_999_999 => format!("{}us", nanos / 1_000),
        _ => format!("{}ms", nanos / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_small_for_one_who_takes_all() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[20, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!((jain(&[0, 0]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_numbers_of_workers_grow_beyond_the_cores_and_end() {
        assert_eq!(counts(2).collect::<Vec<_>>(), [1, 2, 3, 5, 8]);
        assert!(counts(1_000).all(|count| count <= 256));
    }
}
