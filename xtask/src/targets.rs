//! `cargo xtask targets`: other processors and C libraries. One part of `cargo xtask test`.
//!
//! It checks that the library, the command and the C binding compile for each target, and that a 32-bit target is refused
//! in words. Then it runs tests of the ARM64 build under qemu, and lets an ARM64 and a native process share one set.
//!
//! It installs what it needs: targets by rustup, the cross compiler and qemu by apt-get if it runs as root. Whatever
//! cannot be had is skipped with a line that says so.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::test;

/// Targets that everything compiles for. The first is this project's usual one: it is there on most machines.
const TARGETS: [&str; 4] =
    ["x86_64-unknown-linux-gnu", ARM64, "aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl"];
const ARM64: &str = "aarch64-unknown-linux-gnu";
/// A target that is refused.
const NARROW: &str = "i686-unknown-linux-gnu";
/// What the refusal says.
const REFUSAL: &str = "64-bit only";

/// The emulator of ARM64 programs, and the linker that makes them.
const EMULATOR: &str = "qemu-aarch64";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Debian's packages for both, and for the C library.
const PACKAGES: [&str; 3] = ["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
/// Where those put the C library of ARM64.
const ARM64_ROOT: &str = "/usr/aarch64-linux-gnu";

/// Tests of the ARM64 build, as arguments of `cargo test`.
const EMULATED: [&str; 7] = ["--lib", "--test", "set", "--test", "processes", "--test", "set_processes"];
/// Long tests that say little about a processor, by a part of their names: only at full depth.
const LONG: [&str; 7] = [
    "math::tests::schedules",
    "math::tests::long_run",
    "math::tests::garbage",
    "math::tests::rules",
    "many_small_refills_add_up",
    "processes_that_open_a_name_at_once",
    "hundreds_of_children_that_enrol_at_once",
];

/// Runs all of it; takes no argument.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    if let Some(unknown) = args.first() {
        writeln!(io::stderr(), "xtask: `targets` takes no argument, found `{unknown}`")?;
        return Ok(ExitCode::from(crate::MISUSE));
    }
    let mut checks = Checks::default();
    for target in TARGETS {
        checks.add(&format!("{target}_compiles"), compiles(target)?)?;
    }
    checks.add("a_32_bit_target_is_refused_in_words", narrow_target_is_refused()?)?;
    let is_emulated = emulation();
    if let Err(why) = &is_emulated {
        checks.add("tests_of_the_ARM64_build", Verdict::Skipped(why.clone()))?;
        checks.add("an_ARM64_process_beside_a_native_one", Verdict::Skipped(why.clone()))?;
    }
    checks.sum_up()?;
    let mut is_good = checks.failed == 0;
    if is_emulated.is_ok() {
        is_good &= run_emulated()?;
        is_good &= run_side_by_side()?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How a check ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    /// With the reason.
    Skipped(String),
}

impl From<bool> for Verdict {
    fn from(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Bad }
    }
}

/// Counts the checks, and tells of them as a test harness does.
#[derive(Default)]
struct Checks {
    passed: usize,
    failed: usize,
}

impl Checks {
    fn add(&mut self, name: &str, verdict: Verdict) -> io::Result<()> {
        // As a harness counts: a test that says that it skips has passed.
        *(if verdict == Verdict::Bad { &mut self.failed } else { &mut self.passed }) += 1;
        match verdict {
            Verdict::Good => writeln!(io::stdout(), "test {name} ... ok"),
            Verdict::Bad => writeln!(io::stdout(), "test {name} ... FAILED"),
            Verdict::Skipped(why) => writeln!(io::stdout(), "SKIPPED {name}: {why}"),
        }
    }

    fn sum_up(&self) -> io::Result<()> {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        let Self { passed, failed } = self;
        writeln!(io::stdout(), "test result: {verdict}. {passed} passed; {failed} failed; 0 ignored")
    }
}

fn compiles(target: &str) -> io::Result<Verdict> {
    if let Err(why) = have_target(target) {
        return Ok(Verdict::Skipped(why));
    }
    let packages = ["-p", "limitset", "-p", "limitset-cli", "-p", "limitset-c"];
    Ok(cargo().args(["check", "--quiet", "--target", target]).args(packages).status()?.success().into())
}

fn narrow_target_is_refused() -> io::Result<Verdict> {
    if let Err(why) = have_target(NARROW) {
        return Ok(Verdict::Skipped(why));
    }
    let check = cargo().args(["check", "--quiet", "-p", "limitset", "--target", NARROW]).output()?;
    let said = String::from_utf8_lossy(&check.stderr);
    let is_refused = !check.status.success() && says_first(&said, REFUSAL);
    if !is_refused {
        write!(io::stdout(), "{NARROW} was not refused with \"{REFUSAL}\" first:\n{said}")?;
    }
    Ok(is_refused.into())
}

/// Whether the first error of a compiler says something.
fn says_first(output: &str, what: &str) -> bool {
    output.lines().find(|line| line.starts_with("error")).is_some_and(|line| line.contains(what))
}

/// Installs a target unless the compiler has it; the error says why it cannot be had.
fn have_target(target: &str) -> Result<(), String> {
    let rustc = ["--print", "target-libdir", "--target", target];
    let folder = Command::new("rustc").args(rustc).current_dir(test::root()).output();
    let folder = folder.map(|found| PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    if folder.is_ok_and(|folder| folder.is_dir()) {
        return Ok(());
    }
    let add = Command::new("rustup").args(["target", "add", target]).current_dir(test::root()).output();
    match add {
        Ok(added) if added.status.success() => Ok(()),
        Ok(added) => Err(format!("`rustup target add {target}` failed: {}", last_line(&added.stderr))),
        Err(error) => Err(format!("the compiler lacks {target}, and rustup cannot be run: {error}")),
    }
}

/// Makes sure that ARM64 programs can be linked and run; the error says what is missing.
fn emulation() -> Result<(), String> {
    have_target(ARM64)?;
    if missing_tool().is_none() {
        return Ok(());
    }
    if is_root() {
        // What is still missing afterwards is told below.
        let _ = apt_get(&["update"]);
        let _ = apt_get(&[&["install", "-y", "--no-install-recommends"], &PACKAGES[..]].concat());
    }
    match missing_tool() {
        None => Ok(()),
        Some(tool) => Err(format!("there is no {tool}: install {}", PACKAGES.join(" "))),
    }
}

fn apt_get(args: &[&str]) -> io::Result<()> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.output().map(drop)
}

/// The first tool that cannot be run.
fn missing_tool() -> Option<&'static str> {
    let answers = |tool: &&'static str| {
        let mut ask = Command::new(tool);
        ask.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ask.status().is_ok_and(|status| status.success())
    };
    let tools = [EMULATOR, LINKER].into_iter().find(|tool| !answers(tool));
    let has_library = Path::new(ARM64_ROOT).join("lib/ld-linux-aarch64.so.1").exists();
    tools.or((!has_library).then_some(ARM64_ROOT))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// The tests of the ARM64 build.
fn run_emulated() -> io::Result<bool> {
    let mut tests = emulated_cargo();
    tests.args(["test", "--no-fail-fast", "-p", "limitset", "--target", ARM64]).args(EMULATED);
    // Tests start processes of their own, which the kernel alone cannot run.
    tests.env("LIMITSET_TEST_EMULATOR", EMULATOR).args(["--", "--nocapture"]);
    if std::env::var_os("LIMITSET_FULL_DEPTH").is_none() {
        writeln!(io::stdout(), "only at full depth: {}", LONG.join(", "))?;
        tests.args(LONG.iter().flat_map(|long| ["--skip", long]));
    }
    Ok(tests.status()?.success())
}

/// Processes of both architectures on one set.
fn run_side_by_side() -> io::Result<bool> {
    let line = ["test", "-p", "limitset", "--test", "architectures"];
    let mut build = emulated_cargo();
    build.args(line).args(["--no-run", "--target", ARM64, "--message-format=json"]);
    let built = build.stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8_lossy(&built.stdout);
    let Some(peer) = executable(&messages) else { return Ok(false) };
    let mut tests = cargo();
    tests.args(line).args(["--", "--nocapture"]);
    tests.env("LIMITSET_TEST_PEER", peer).env("LIMITSET_TEST_PEER_EMULATOR", EMULATOR);
    Ok(tests.env("QEMU_LD_PREFIX", ARM64_ROOT).status()?.success())
}

/// The path of the program that cargo says it has built.
fn executable(messages: &str) -> Option<&str> {
    messages.lines().rev().find_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next())
}

fn emulated_cargo() -> Command {
    let mut command = cargo();
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR);
    command.env("QEMU_LD_PREFIX", ARM64_ROOT);
    command
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(test::root());
    command
}

fn last_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim_end().lines().next_back().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_must_come_before_other_errors() {
        assert!(says_first("warning: x\nerror: limitset is 64-bit only\nerror[E0308]: y", REFUSAL));
        assert!(!says_first("error[E0308]: y\nerror: limitset is 64-bit only", REFUSAL));
        assert!(!says_first("", REFUSAL));
    }

    #[test]
    fn the_program_is_found_among_the_messages_of_cargo() {
        let messages =
            "{\"executable\":null}\n{\"a\":1,\"executable\":\"/t/deps/x-1\",\"b\":2}\n{\"reason\":\"end\"}";
        assert_eq!(executable(messages), Some("/t/deps/x-1"));
        assert_eq!(executable("{\"executable\":null}"), None);
    }

    #[test]
    fn a_target_that_nobody_has_says_why() {
        let why = have_target("no-such-machine").unwrap_err();
        assert!(why.contains("no-such-machine"), "{why}");
    }

    #[test]
    fn an_argument_is_refused() {
        assert_eq!(command(&["x".to_owned()]).unwrap(), ExitCode::from(crate::MISUSE));
    }
}
