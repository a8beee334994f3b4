//! What was promised, and whether it holds in this run. Every verdict is computed from the rows; none is written down.

use crate::batches::{Distance, Figures};
use crate::bystander;
use crate::growth;
use crate::report::{plain, ratio_text};
use crate::results::Results;

/// A target is met if it is missed by no more than this part.
const SLACK: f64 = 0.10;

/// A distance with fewer rounds says nothing.
const ENOUGH: usize = 5;

/// A line of the table of targets.
pub struct Target {
    pub what: String,
    pub want: String,
    pub measured: String,
    pub verdict: &'static str,
}

#[derive(Clone, Copy)]
enum Want {
    AtMost(f64),
    AtLeast(f64),
}

use Want::{AtLeast, AtMost};

pub fn all(results: &Results) -> Vec<Target> {
    let time = |what: &str, bench: &str, key: &str, other: &str, want: Want| {
        judged(what, want, &measured(results, bench, key, other, false))
    };
    // How many times as much gets done.
    let done = |what: &str, key: &str, other: &str, want: Want| {
        judged(what, want, &measured(results, "processes", key, other, true))
    };
    let mut targets = vec![
        time(
            "1 rate granted (`check_rate`), shared, monotonic clock / governor's check, monotonic clock",
            "uncontended",
            "rate1/ours-charge",
            "rate1/governor",
            AtMost(1.0),
        ),
        time("the same with try + release", "uncontended", "rate1/ours", "rate1/governor", AtMost(1.0)),
        time(
            "1 rate granted (`check_rate`), shared, coarse clock / governor's check, fast clock",
            "uncontended",
            "rate1/ours-charge-coarse",
            "rate1/governor-fast",
            AtMost(1.8),
        ),
        time(
            "the same with try + release",
            "uncontended",
            "rate1/ours-coarse",
            "rate1/governor-fast",
            AtMost(1.8),
        ),
        time(
            "3 limits together (call, tokens, permit), acquire + release / governor's single check, monotonic clocks",
            "uncontended",
            "three/ours",
            "rate1/governor",
            AtMost(1.5),
        ),
        time(
            "1 permit, acquire + release / tokio `Semaphore`",
            "uncontended",
            "permit1/ours",
            "permit1/tokio",
            AtMost(2.0),
        ),
        time("1 permit: SysV SEM_UNDO / ours", "uncontended", "permit1/sysv", "permit1/ours", AtLeast(20.0)),
        done("3 limits: 8 processes on one set / 1 process, throughput", "one/8", "one/1", AtLeast(0.6)),
        redis(results),
        done(
            "8 processes, 3 limits / SysV SEM_UNDO doing 3, throughput",
            "rivals/8",
            "rivals/sysv",
            AtLeast(8.0),
        ),
        time(
            "hand-over to a blocked waiter / futex ping-pong, same CPU",
            "handover",
            "same/ours",
            "same/futex",
            AtMost(1.3),
        ),
        time(
            "3 limits together, acquire + release, from C / from Rust",
            "c",
            "three/c",
            "three/rust",
            AtMost(1.25),
        ),
        time(
            "Python: 3 limits as a `with` block / `with multiprocessing.Lock()`",
            "python",
            "python/ours",
            "python/lock",
            AtMost(1.5),
        ),
        time(
            "Python: PyrateLimiter's multiprocess bucket / 3 limits as a `with` block",
            "python",
            "python/pyrate",
            "python/ours",
            AtLeast(100.0),
        ),
        time(
            "Python: concurry's process mode / 3 limits as a `with` block",
            "python",
            "python/concurry",
            "python/ours",
            AtLeast(100.0),
        ),
    ];
    let curves: [(&str, &str, &[usize]); 3] = [
        ("limits that are not asked for", "idle-limits", &growth::IDLE_LIMITS),
        ("participants", "participants", &growth::PARTICIPANTS),
        ("idle waiters", "waiters", &growth::WAITERS),
    ];
    for (name, curve, sizes) in curves {
        let (least, most) = (sizes[0], sizes[sizes.len() - 1]);
        let what = format!("growth, {least} to {most} {name}");
        let found = measured(results, "growth", &growth::key(curve, most), &growth::key(curve, least), false);
        targets.push(judged(&what, AtMost(1.0), &found));
    }
    targets.push(share(
        "8 participants: kills that a `try_acquire` loop notices within 5 ms of the process being waited for",
        results,
        "deaths",
        "noticed",
        0.95,
    ));
    for cause in bystander::CAUSES {
        let [few, many] = bystander::WAITERS;
        let what = format!("a bystander's first `check` after {cause}, {many} sleeping waiters / {few}");
        let found =
            measured(results, "bystander", &bystander::key(cause, many), &bystander::key(cause, few), false);
        targets.push(judged(&what, AtMost(5.0), &found));
    }
    targets
}

/// How many of how many. There is no slack: a share is no time.
fn share(what: &str, results: &Results, bench: &str, key: &str, least: f64) -> Target {
    let found = results.bench(bench).and_then(|bench| bench.shares.iter().find(|share| share.key == key));
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let (measured, verdict) = match found {
        Some(share) if share.of > 0 => {
            let part = share.met as f64 / share.of as f64;
            (format!("{} of {}", percent(part), share.of), if part < least { "**missed**" } else { "met" })
        }
        _ => (String::new(), "not run"),
    };
    Target { what: what.to_owned(), want: format!("≥ {}", percent(least)), measured, verdict }
}

/// Against whichever of its two rows is the faster, so that nothing is claimed from the waking of idle processors.
fn redis(results: &Results) -> Target {
    let against = |other| measured(results, "processes", "rivals/8", other, true);
    let (free, pinned) = (against("rivals/redis"), against("rivals/redis-pinned"));
    let least =
        |found: &[(Distance, Figures)]| found.iter().map(|(_, it)| it.median).fold(f64::INFINITY, f64::min);
    let (name, found) = if least(&free) < least(&pinned) { ("spread", free) } else { ("same CPU", pinned) };
    judged(
        &format!("8 processes, 3 limits / Redis (its faster row: {name}), throughput"),
        AtLeast(400.0),
        &found,
    )
}

/// The ratio at each distance that has enough rounds; `inverse` for throughput.
fn measured(
    results: &Results,
    bench: &str,
    key: &str,
    other: &str,
    inverse: bool,
) -> Vec<(Distance, Figures)> {
    let Some(found) = results.bench(bench) else { return Vec::new() };
    let (key, other) = if inverse { (other, key) } else { (key, other) };
    let figures = |distance: &Distance| Some((*distance, results.ratio(bench, key, other, *distance)?));
    found.distances().iter().filter_map(figures).filter(|(_, it)| it.count >= ENOUGH).collect()
}

fn judged(what: &str, want: Want, found: &[(Distance, Figures)]) -> Target {
    let misses = |slack: f64| {
        found.iter().any(|(_, it)| match want {
            AtMost(limit) => it.median > limit * (1.0 + slack),
            AtLeast(limit) => it.median < limit * (1.0 - slack),
        })
    };
    let verdict = match () {
        () if found.is_empty() => "not run",
        () if misses(SLACK) => "**missed**",
        () if found.iter().any(below_two) => "met, but a contended ratio below 2 is no result",
        () if misses(0.0) => "met within 10 %",
        () => "met",
    };
    let parts: Vec<String> = found.iter().map(|(distance, it)| part(*distance, it)).collect();
    let want = match want {
        AtMost(limit) => format!("≤ {}", plain(limit)),
        AtLeast(limit) => format!("≥ {}", plain(limit)),
    };
    Target { what: what.to_owned(), want, measured: parts.join("; "), verdict }
}

/// Whether it is a ratio between processes that share memory, and too small to be believed.
fn below_two((distance, figures): &(Distance, Figures)) -> bool {
    *distance != Distance::NoMatter && figures.median > 0.5 && figures.median < 2.0
}

fn part(distance: Distance, figures: &Figures) -> String {
    let text = ratio_text(figures);
    match distance {
        Distance::Near => format!("near: {text}, {} rounds", figures.count),
        Distance::Far => format!("far: {text}, {} rounds", figures.count),
        Distance::NoMatter | Distance::Unknown => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(want: Want, medians: &[f64]) -> &'static str {
        let figures = |median: f64| Figures { median, low: median, high: median, count: 20 };
        let found: Vec<_> = medians.iter().map(|median| (Distance::NoMatter, figures(*median))).collect();
        judged("", want, &found).verdict
    }

    #[test]
    fn a_small_ratio_between_processes_is_no_result() {
        let figures = Figures { median: 0.8, low: 0.8, high: 0.8, count: 20 };
        assert!(judged("", AtLeast(0.6), &[(Distance::Far, figures)]).verdict.contains("no result"));
        assert_eq!(judged("", AtLeast(0.9), &[(Distance::Far, figures)]).verdict, "**missed**");
        assert_eq!(judged("", AtLeast(0.6), &[(Distance::NoMatter, figures)]).verdict, "met");
    }

    #[test]
    fn a_target_is_met_missed_or_not_run() {
        assert_eq!(verdict(AtMost(2.0), &[1.9]), "met");
        assert_eq!(verdict(AtMost(2.0), &[2.1]), "met within 10 %");
        assert_eq!(verdict(AtMost(2.0), &[2.3]), "**missed**");
        assert_eq!(verdict(AtLeast(20.0), &[21.0]), "met");
        assert_eq!(verdict(AtLeast(20.0), &[18.5]), "met within 10 %");
        assert_eq!(verdict(AtLeast(20.0), &[17.0]), "**missed**");
        assert_eq!(verdict(AtLeast(20.0), &[]), "not run");
    }

    #[test]
    fn the_worse_distance_decides() {
        assert_eq!(verdict(AtLeast(8.0), &[9.0, 3.0]), "**missed**");
    }

    #[test]
    fn without_results_nothing_is_met() {
        assert!(all(&Results::default()).iter().all(|target| target.verdict == "not run"));
    }
}
