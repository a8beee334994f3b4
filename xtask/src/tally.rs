//! Reads the output of test harnesses (libtest and libtest-mimic share the format) and counts.
//!
//! A test that cannot run here prints a line that starts with `SKIPPED ` and returns. The harness
//! then counts it as passed; the tally counts it as skipped instead. Tests that the harness itself
//! reports as ignored are skipped too, and must not print the line as well.
//!
//! A test that measured something worth stating prints a line with `PROOF promises | what | result`;
//! `cargo xtask prove` collects them.

use std::fmt;

/// The number of tests, or checks, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Counts {
    /// Returns whether any test ran to a verdict.
    pub(crate) fn any_ran(&self) -> bool {
        self.passed + self.failed > 0
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The running count over one command's output, fed in chunks of any size.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    unfinished_line: Vec<u8>,
    /// The counts of the harness; its "ignored" is "skipped" here.
    reported: Counts,
    skipped_lines: usize,
    skips: Vec<String>,
    proofs: Vec<String>,
}

/// The findings in one command's output.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) counts: Counts,
    /// A line for every skipped test.
    pub(crate) skips: Vec<String>,
    /// The texts after `PROOF`.
    pub(crate) proofs: Vec<String>,
}

impl Tally {
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished_line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    pub(crate) fn finish(mut self) -> Found {
        self.end_line();
        let counts = Counts {
            passed: self.reported.passed.saturating_sub(self.skipped_lines),
            failed: self.reported.failed,
            skipped: self.reported.skipped + self.skipped_lines,
        };
        Found { counts, skips: self.skips, proofs: self.proofs }
    }

    fn end_line(&mut self) {
        let line = without_colours(&String::from_utf8_lossy(&self.unfinished_line));
        self.unfinished_line.clear();
        let line = line.trim_end();
        if let Some(counts) = result_line(line) {
            self.reported += counts;
            return;
        }
        // On one thread the harness prints the name first, and the test's own output follows it on
        // the same line.
        let (name, rest) = after_test_name(line);
        if let Some(proof) = rest.strip_prefix("PROOF ") {
            self.proofs.push(proof.to_owned());
        } else if rest.starts_with("SKIPPED ") {
            self.skipped_lines += 1;
            self.skips.push(rest.to_owned());
        } else if let Some(why) = rest.strip_prefix("ignored")
            && !name.is_empty()
            && (why.is_empty() || why.starts_with(", "))
        {
            self.skips.push(format!("SKIPPED {name}: ignored{why}"));
        }
    }
}

/// Parses `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; ...`
fn result_line(line: &str) -> Option<Counts> {
    let (verdict, fields) = line.strip_prefix("test result: ")?.split_once(". ")?;
    if verdict != "ok" && verdict != "FAILED" {
        return None;
    }
    let field = |name: &str| {
        fields.split(';').find_map(|field| field.trim().strip_suffix(name)?.trim().parse::<usize>().ok())
    };
    Some(Counts { passed: field("passed")?, failed: field("failed")?, skipped: field("ignored")? })
}

/// Splits `test NAME ... REST`. A line without a test name is all rest.
fn after_test_name(line: &str) -> (&str, &str) {
    match line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
        // Two threads may print at once: a second name can follow the first.
        Some((_, rest)) if rest.starts_with("test ") && rest.contains(" ... ") => after_test_name(rest),
        Some((name, rest)) => (name.trim_end(), rest),
        None => ("", line),
    }
}

/// Removes terminal escape sequences (from ESC to a letter), which `CARGO_TERM_COLOR=always` adds.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            let _sequence = chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSING: &str = "\
   Compiling limitset v0.1.0 (/home/me/limitset)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 1.52s
     Running unittests src/lib.rs (target/debug/deps/limitset-3f1c)

running 2 tests
test math::gcra::tests::a_full_bucket_refuses ... ok
test layout::tests::the_header_is_two_lines ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/tidy.rs (target/debug/deps/tidy-91ab)

running 1 test
test unsafe_lives_in_sys ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.02s

";

    const FAILING: &str = "\
running 3 tests
test a ... ok
test b ... FAILED
test c ... ignored, needs a second machine

failures:

---- b stdout ----

thread 'b' (4242) panicked at src/lib.rs:9:17:
assertion `left == right` failed
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    b

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p limitset --lib`
";

    /// `--show-output` prints the output of passing tests after the last of them.
    const SHOWN: &str = "\
running 2 tests
test a ... ok
test b ... ok

successes:

---- b stdout ----
SKIPPED b: /dev/shm is read-only


successes:
    a
    b

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    /// libtest-mimic pads names, and on one thread prints the name before the test runs.
    const MIMIC: &str = "\
     Running tests/crash_step.rs (target/release/deps/crash_step-77)

running 3 tests
test acquire             ... ok
test release_under_load  ... SKIPPED release_under_load: ptrace is not permitted
ok
test [slow] wait         ... ignored

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 3.21s

";

    fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    fn tally(output: &str) -> (Counts, Vec<String>) {
        let mut tally = Tally::default();
        tally.feed(output.as_bytes());
        let Found { counts, skips, .. } = tally.finish();
        (counts, skips)
    }

    #[test]
    fn several_result_lines_add_up() {
        assert_eq!(tally(PASSING), (counts(3, 0, 0), vec![]));
        assert_eq!(tally(&[PASSING, FAILING].concat()).0, counts(4, 1, 1));
    }

    #[test]
    fn failures_are_counted_and_ignored_tests_are_skipped() {
        let why = "SKIPPED c: ignored, needs a second machine".to_owned();
        assert_eq!(tally(FAILING), (counts(1, 1, 1), vec![why]));
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let line = "SKIPPED b: /dev/shm is read-only".to_owned();
        assert_eq!(tally(SHOWN), (counts(1, 0, 1), vec![line]));
    }

    #[test]
    fn a_skip_on_the_line_of_the_name_counts() {
        let first = "SKIPPED release_under_load: ptrace is not permitted".to_owned();
        let second = "SKIPPED [slow] wait: ignored".to_owned();
        assert_eq!(tally(MIMIC), (counts(1, 0, 2), vec![first, second]));
    }

    #[test]
    fn names_printed_by_two_threads_do_not_hide_a_skip() {
        assert_eq!(after_test_name("test a ... test b ... SKIPPED b: why"), ("b", "SKIPPED b: why"));
    }

    #[test]
    fn chunks_may_split_the_output_anywhere() {
        let output = [PASSING, FAILING, SHOWN, MIMIC].concat();
        let whole = tally(&output);
        for size in [1, 2, 7, 64] {
            let mut split = Tally::default();
            output.as_bytes().chunks(size).for_each(|chunk| split.feed(chunk));
            let Found { counts, skips, .. } = split.finish();
            assert_eq!((counts, skips), whole, "chunks of {size}");
        }
    }

    #[test]
    fn proofs_are_collected_wherever_the_harness_puts_them() {
        let mut tally = Tally::default();
        tally.feed(b"test a ... PROOF 1 | a | b\nPROOF mutants | c | d\nno PROOF here\n");
        assert_eq!(tally.finish().proofs, ["1 | a | b", "mutants | c | d"]);
    }

    #[test]
    fn a_last_line_without_an_end_counts() {
        assert_eq!(tally("test result: ok. 7 passed; 0 failed; 0 ignored").0, counts(7, 0, 0));
    }

    #[test]
    fn colours_do_not_hide_a_result() {
        let line = "test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. 4 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(tally(line).0, counts(4, 0, 0));
    }

    #[test]
    fn only_the_start_of_a_line_speaks() {
        let output = "the count of SKIPPED lines\nno test result: ok. 9 passed; 0 failed; 0 ignored\n\
                      ignored\ntest result: who knows\n";
        assert_eq!(tally(output), (counts(0, 0, 0), vec![]));
        assert!(!tally(output).0.any_ran());
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let mut tally = Tally::default();
        tally.feed(b"\xff\xfe\n");
        tally.feed(PASSING.as_bytes());
        assert_eq!(tally.finish().counts, counts(3, 0, 0));
    }
}
