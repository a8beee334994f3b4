//! `cargo xtask prove`: runs every proof at full depth and writes what was found to docs/proof.md. With `--usual` it
//! goes only as deep as the tests do.
//!
//! Tests state what they found on lines `PROOF promises | what | result`; promises are numbers of the table
//! below, separated by commas, or `mutants`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::report::Outcome;
use crate::{parts, test};

/// Parts that prove something about the product, as opposed to the state of its source.
const PROVING: &[&str] =
    &["unit", "processes", "hammer", "waiting", "workers", "batch", "interop", "targets", "loom", "crash"];

/// What the product promises. A number without a line of proof is stated as such.
const PROMISES: &[(&str, &str)] = &[
    ("All or none", "a change of several words is made wholly or not at all, whoever dies when"),
    ("Never over-admit", "no schedule of processes, threads, kills and forks hands out more than there is"),
    (
        "A death hurts nobody",
        "SIGKILL at any instruction hangs nobody, leaks nothing, leaves nothing half done",
    ),
    ("A fork is safe", "a child is a participant of its own and never releases what its parent holds"),
    ("Never a lie", "busy, removed, not now and never are different answers"),
    ("Bad bytes are an error", "a typed one; never a crash, never for ever"),
    ("No starvation", "blocked acquirers are served in order of arrival"),
    ("Exact arithmetic", "the long-run error of a rate is zero"),
];

/// Runs the proofs and writes the page, if all of them held.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    let is_usual = args.first().is_some_and(|argument| argument == "--usual");
    if let Some(unknown) = args.get(usize::from(is_usual)) {
        writeln!(io::stderr(), "xtask: `prove` takes no argument but `--usual`, found `{unknown}`")?;
        return Ok(ExitCode::from(crate::MISUSE));
    }
    let chosen: Vec<_> = parts::PARTS.iter().filter(|part| PROVING.contains(&part.name)).collect();
    let outcomes = test::run_parts(&chosen, !is_usual)?;
    if !outcomes.iter().all(Outcome::ok) {
        writeln!(io::stderr(), "xtask: something did not hold; docs/proof.md is left as it was")?;
        return Ok(ExitCode::FAILURE);
    }
    let path = test::root().join("docs/proof.md");
    std::fs::write(&path, page(&outcomes, &circumstances(), is_usual))?;
    writeln!(io::stdout(), "wrote docs/proof.md")?;
    Ok(ExitCode::SUCCESS)
}

/// When, and with what.
fn circumstances() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, limitset {}, {}, {} on {}, {cpus} CPUs",
        date(seconds),
        env!("CARGO_PKG_VERSION"),
        first_line(Command::new("rustc").arg("--version")),
        first_line(Command::new("uname").arg("-sr")),
        std::env::consts::ARCH,
    )
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("unknown").to_owned()
}

/// Year, month and day of a Unix time.
fn date(seconds: u64) -> String {
    // Days from 0000-03-01, in eras of 400 years: the calendar repeats, and leap days come last in a year.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

struct Proof<'a> {
    part: &'static str,
    promises: Vec<&'a str>,
    what: &'a str,
    result: &'a str,
}

fn page(outcomes: &[Outcome], circumstances: &str, is_usual: bool) -> String {
    let proofs: Vec<Proof<'_>> = outcomes
        .iter()
        .flat_map(|outcome| outcome.proofs.iter().filter_map(|line| parse(outcome.part, line)))
        .collect();
    let (command, depth) = if is_usual {
        ("cargo xtask prove --usual", "Without `--usual` it goes deeper")
    } else {
        ("cargo xtask prove", "The usual test run does the same with fewer rounds")
    };
    let mut text = format!(
        "# Proof\n\nWritten by `{command}`: {circumstances}. Every number is from that run. {depth}.\n"
    );
    for (index, (promise, meaning)) in PROMISES.iter().enumerate() {
        let number = (index + 1).to_string();
        let _ = write!(text, "\n## {number}. {promise}\n\n{}.\n\n", capitalised(meaning));
        text += &table(proofs.iter().filter(|proof| proof.promises.contains(&number.as_str())));
    }
    text += "\n## Mutants\n\nOne thing is broken at a time, in the environment of the protocol and not in its \
             source; each must be caught.\n\n";
    text += &table(proofs.iter().filter(|proof| proof.promises.contains(&"mutants")));
    text += "\n## Tests run\n\n| command | passed | skipped | seconds |\n| --- | ---: | ---: | ---: |\n";
    for outcome in outcomes {
        let (counts, seconds) = (outcome.counts, outcome.elapsed.as_secs());
        let (part, passed, skipped) = (outcome.part, counts.passed, counts.skipped);
        let _ = writeln!(text, "| `cargo xtask test {part}` | {passed} | {skipped} | {seconds} |");
    }
    text
}

fn parse<'a>(part: &'static str, line: &'a str) -> Option<Proof<'a>> {
    let (promises, rest) = line.split_once('|')?;
    let (what, result) = rest.split_once('|')?;
    let promises = promises.split(',').map(str::trim).collect();
    Some(Proof { part, promises, what: what.trim(), result: result.trim() })
}

fn table<'a>(proofs: impl Iterator<Item = &'a Proof<'a>>) -> String {
    let mut text = String::new();
    for proof in proofs {
        let _ = writeln!(text, "| {} | {} | `cargo xtask test {}` |", proof.what, proof.result, proof.part);
    }
    if text.is_empty() {
        return "Nothing in the product to check yet.\n".to_owned();
    }
    format!("| what was tried | what was found | command |\n| --- | --- | --- |\n{text}")
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tally::Counts;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_763_251_200), "2025-11-16");
        assert_eq!(date(4_107_542_400), "2100-03-01");
    }

    #[test]
    fn every_proof_stands_under_its_promises_with_its_command() {
        let outcome = Outcome {
            part: "crash",
            counts: Counts { passed: 3, failed: 0, skipped: 1 },
            skips: Vec::new(),
            proofs: vec!["1, 3 | kills | none lost".to_owned(), "mutants | no journal | torn".to_owned()],
            problems: Vec::new(),
            elapsed: Duration::from_secs(9),
        };
        let text = page(&[outcome], "today", false);
        let row = "| kills | none lost | `cargo xtask test crash` |";
        assert_eq!(text.matches(row).count(), 2, "{text}");
        let (_, mutants) = text.split_once("## Mutants").unwrap();
        assert!(mutants.contains("| no journal | torn |"), "{text}");
        assert!(text.contains("Nothing in the product to check yet."));
        assert!(text.contains("| `cargo xtask test crash` | 3 | 1 | 9 |"));
    }

    #[test]
    fn every_proving_part_exists() {
        assert!(PROVING.iter().all(|name| parts::PARTS.iter().any(|part| part.name == *name)));
    }
}
