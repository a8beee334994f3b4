//! The summary at the end of a run.

use std::time::Duration;

use crate::tally::Counts;

/// The outcome of one part.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) part: &'static str,
    pub(crate) counts: Counts,
    /// One line for each skipped test.
    pub(crate) skips: Vec<String>,
    /// The findings of its tests, for `prove`.
    pub(crate) proofs: Vec<String>,
    /// The problems of the part, besides failed tests.
    pub(crate) problems: Vec<String>,
    pub(crate) elapsed: Duration,
}

impl Outcome {
    pub(crate) fn ok(&self) -> bool {
        self.counts.failed == 0 && self.problems.is_empty()
    }
}

/// Returns the summary: one line for each part, every skip and problem, the total, and the counts in the last
/// line.
pub(crate) fn summary(outcomes: &[Outcome], elapsed: Duration) -> String {
    let mut text = String::from("\nsummary\n");
    text +=
        &format!("  {:<14}{:<8}{:>7}{:>8}{:>9}{:>9}\n", "part", "", "passed", "failed", "skipped", "seconds");
    let mut total = Counts::default();
    for outcome in outcomes {
        total += outcome.counts;
        let verdict = if outcome.ok() { "ok" } else { "FAILED" };
        let part = outcome.part;
        let Counts { passed, failed, skipped } = outcome.counts;
        let seconds = outcome.elapsed.as_secs_f64();
        text += &format!("  {part:<14}{verdict:<8}{passed:>7}{failed:>8}{skipped:>9}{seconds:>9.1}\n");
    }
    text += &listing("skipped", outcomes, |outcome| &outcome.skips);
    text += &listing("problems", outcomes, |outcome| &outcome.problems);
    let failed: Vec<_> =
        outcomes.iter().filter(|outcome| !outcome.ok()).map(|outcome| outcome.part).collect();
    let verdict = if failed.is_empty() { "ok".to_owned() } else { format!("FAILED: {}", failed.join(", ")) };
    text + &format!("\ntotal: {:.1} seconds, {verdict}\n{total}\n", elapsed.as_secs_f64())
}

fn listing(title: &str, outcomes: &[Outcome], lines: fn(&Outcome) -> &[String]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for line in lines(outcome) {
            text += &format!("  {}: {line}\n", outcome.part);
        }
    }
    if text.is_empty() { text } else { format!("\n{title}\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(
        part: &'static str,
        passed: usize,
        failed: usize,
        skips: &[&str],
        problems: &[&str],
    ) -> Outcome {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Outcome {
            part,
            proofs: Vec::new(),
            counts: Counts { passed, failed, skipped: skips.len() },
            skips: owned(skips),
            problems: owned(problems),
            elapsed: Duration::from_millis(1500),
        }
    }

    #[test]
    fn the_counts_stand_alone_on_the_last_line() {
        let outcomes = [
            outcome("fmt", 1, 0, &[], &[]),
            outcome("unit", 40, 2, &["SKIPPED a: why"], &[]),
            outcome("loom", 0, 1, &[], &["no test ran"]),
        ];
        let text = summary(&outcomes, Duration::from_secs(5));
        assert_eq!(text.lines().last(), Some("41 passed, 3 failed, 1 skipped"));
        assert!(text.ends_with("skipped\n"));
        assert!(text.contains("total: 5.0 seconds, FAILED: unit, loom\n"), "{text}");
    }

    #[test]
    fn every_part_skip_and_problem_has_its_line() {
        let outcomes = [
            outcome("unit", 3, 0, &["SKIPPED a: why", "SKIPPED b: why"], &[]),
            outcome("docs", 0, 1, &[], &["no"]),
        ];
        let text = summary(&outcomes, Duration::from_secs(3));
        for line in ["  unit: SKIPPED a: why", "  unit: SKIPPED b: why", "  docs: no"] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        let row = |part: &str| text.lines().find(|l| l.trim_start().starts_with(part)).map(words).unwrap();
        assert_eq!(row("unit "), ["unit", "ok", "3", "0", "2", "1.5"]);
        assert_eq!(row("docs "), ["docs", "FAILED", "0", "1", "0", "1.5"]);
    }

    #[test]
    fn a_clean_run_lists_no_skips_and_no_problems() {
        let text = summary(&[outcome("fmt", 1, 0, &[], &[])], Duration::from_secs(1));
        assert!(!text.contains("\nskipped\n") && !text.contains("\nproblems\n"), "{text}");
        assert!(text.ends_with("total: 1.0 seconds, ok\n1 passed, 0 failed, 0 skipped\n"), "{text}");
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }
}
