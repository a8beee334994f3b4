//! Builds every example and runs it: each must end by itself and well, say something, and leave no segment behind.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};

mod support;

type Outcome<T> = Result<T, Failed>;

fn main() {
    let trials = names().into_iter().map(|name| {
        let run = name.clone();
        Trial::test(name.clone(), move || support::watched(&name, || runs_well(&run)))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(root().join("examples")).expect("a folder of examples");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let sources = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut names: Vec<_> =
        sources.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

fn runs_well(name: &str) -> Outcome<()> {
    let folder = env::temp_dir().join(format!("limitset-example-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(build(name)?);
    if name == "algorithms" {
        command.arg(&folder); // not over the pictures in the repository
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let output = child.wait_with_output()?;
    fs::remove_dir_all(&folder)?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if !output.status.success() || said[0].is_empty() {
        return Err(format!("{}\n{}{}", output.status, said[0], said[1]).into());
    }
    // Names of segments in examples end with the number of their process.
    match segment_of(pid) {
        Some(left) => {
            fs::remove_file(&left)?;
            Err(format!("left {}", left.display()).into())
        }
        None => Ok(()),
    }
}

/// Has cargo build the example, and say where.
fn build(name: &str) -> Outcome<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--message-format=json", "--example", name])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo cannot build {name}: {}", output.status).into());
    }
    let executable = |line: &[u8]| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    };
    let found = output.stdout.split(|byte| *byte == b'\n').find_map(executable);
    Ok(found.ok_or_else(|| format!("cargo does not say where {name} is"))?)
}

fn segment_of(pid: u32) -> Option<PathBuf> {
    let entries = fs::read_dir("/dev/shm").ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let ending = format!("-{pid}");
    paths.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("limitset.example-") && name.ends_with(&ending)
    })
}
