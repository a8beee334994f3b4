//! The table of test parts: what each one runs, in the order they run.

use std::path::Path;
use std::{fs, io};

/// One part of `cargo xtask test`, able to run alone.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) work: Work,
}

/// What a part does, and so how it counts.
pub(crate) enum Work {
    /// Commands that succeed or fail as a whole: one check.
    Check(fn() -> Vec<Step>),
    /// Commands whose output says which tests ran; given the repository's root.
    Tests(fn(&Path) -> io::Result<Vec<Step>>),
    /// No segment of a test may outlive the run: one check.
    Leftovers,
}

/// One run of cargo.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Step {
    pub(crate) args: Vec<String>,
    /// The component that provides the cargo subcommand, where it is not cargo's own.
    pub(crate) component: Option<&'static str>,
    /// Added to RUSTDOCFLAGS, after what the caller has already set there.
    pub(crate) rustdoc_flags: Option<&'static str>,
}

/// The Python binding: a workspace of its own.
const PYTHON: &str = "ffi/python/Cargo.toml";

pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "fmt",
        about: "the source is formatted",
        work: Work::Check(|| {
            let rustfmt = |args: &[&str]| Step { component: Some("rustfmt"), ..cargo(args) };
            let python = ["fmt", "--manifest-path", PYTHON, "--check"];
            vec![rustfmt(&["fmt", "--all", "--check"]), rustfmt(&python)]
        }),
    },
    Part {
        name: "clippy",
        about: "no lint warns",
        work: Work::Check(|| {
            let with = |features: &[&str]| {
                let step = cargo(&["clippy", "--workspace", "--all-targets"]).and(features);
                Step { component: Some("clippy"), ..step.and(&["--", "-D", "warnings"]) }
            };
            let python =
                ["clippy", "--manifest-path", PYTHON, "--target-dir", "target/python", "--all-targets"];
            let python = cargo(&python).and(&["--", "-D", "warnings"]);
            vec![with(&[]), with(&["--all-features"]), Step { component: Some("clippy"), ..python }]
        }),
    },
    Part {
        name: "unit",
        about: "unit tests, and the integration tests that need no part of their own",
        work: Work::Tests(unit),
    },
    Part {
        name: "doc-tests",
        about: "the examples in the documentation",
        work: Work::Tests(|_| {
            let args = ["test", "-p", "limitset", "--all-features", "--doc", "--", "--show-output"];
            Ok(vec![cargo(&args)])
        }),
    },
    Part {
        name: "examples",
        about: "every example runs to its end and leaves nothing behind",
        work: Work::Tests(|_| {
            let args = ["test", "-p", "limitset", "--test", "examples", "--", "--nocapture"];
            Ok(vec![cargo(&args)])
        }),
    },
    Part {
        name: "processes",
        about: "several processes on one segment: forks, namespaces, other users",
        work: Work::Tests(|_| {
            let args = ["test", "--release", "--no-fail-fast", "-p", "limitset"];
            let tests = ["--test", "processes", "--test", "set_processes", "--test", "world"];
            Ok(vec![cargo(&args).and(&tests).and(&["--", "--nocapture"])])
        }),
    },
    Part {
        name: "hammer",
        about: "2, 4 and 8 processes hammer one set: exact counts, also through kills and changes",
        work: Work::Tests(|_| {
            let args = ["test", "--release", "--no-fail-fast", "-p", "limitset", "--test", "hammer"];
            Ok(vec![cargo(&args).and(&["--", "--nocapture", "--test-threads=1"])])
        }),
    },
    Part {
        name: "waiting",
        about: "blocked acquirers: order, wakes, stops and kills, among threads, futures and processes",
        work: Work::Tests(|_| {
            let args = ["test", "--no-fail-fast", "-p", "limitset"];
            let tests = ["--test", "waiting", "--test", "waiting_async"];
            Ok(vec![cargo(&args).and(&tests).and(&["--", "--nocapture"])])
        }),
    },
    Part {
        name: "batch",
        about: "work queues and pauses among processes that are killed",
        work: Work::Tests(|_| {
            let args = ["test", "--no-fail-fast", "-p", "limitset", "--test", "batch"];
            Ok(vec![cargo(&args).and(&["--", "--nocapture", "--test-threads=1"])])
        }),
    },
    Part {
        name: "workers",
        about: "supervised workers, and what is told to tracing",
        work: Work::Tests(|_| {
            let prefork = cargo(&["test", "-p", "limitset", "--test", "prefork", "--", "--nocapture"]);
            let events = cargo(&["test", "-p", "limitset", "--features", "tracing", "--test", "events"]);
            Ok(vec![prefork, events.and(&["--", "--nocapture"])])
        }),
    },
    Part {
        name: "cli",
        about: "the limitset command: every command, its JSON, its errors",
        work: Work::Tests(|_| {
            let args = ["test", "--no-fail-fast", "-p", "limitset-cli", "--bins", "--tests"];
            Ok(vec![cargo(&args).and(&["--", "--show-output"])])
        }),
    },
    Part {
        name: "interop",
        about: "beside the crates shared_memory and raw_sync",
        work: Work::Tests(|_| {
            let features = ["--features", "shared_memory,raw_sync"];
            let tests = cargo(&["test", "--release", "-p", "limitset"]).and(&features);
            let units = cargo(&["test", "--release", "-p", "limitset"]).and(&features);
            Ok(vec![
                tests.and(&["--test", "interop", "--", "--nocapture"]),
                units.and(&["--lib", "--", "interop::", "--show-output"]),
            ])
        }),
    },
    Part {
        name: "c",
        about: "the C binding: installed, compiled as C11 and C++17, run plainly and under valgrind",
        work: Work::Tests(|_| {
            Ok(vec![cargo(&["test", "--no-fail-fast", "-p", "limitset-c", "--", "--nocapture"])])
        }),
    },
    Part {
        name: "python",
        about: "the Python binding: rules, processes, servers, stubs, the examples of its pages",
        work: Work::Tests(|_| Ok(vec![cargo(&["run", "--quiet", "-p", "xtask", "--", "python"])])),
    },
    Part {
        name: "targets",
        about: "other processors and C libraries: it compiles; the ARM64 build runs under qemu, beside this one",
        work: Work::Tests(|_| Ok(vec![cargo(&["run", "--quiet", "-p", "xtask", "--", "targets"])])),
    },
    Part {
        name: "loom",
        about: "the protocol under every interleaving of small cases",
        work: Work::Tests(|_| {
            let args = ["test", "--release", "--no-fail-fast", "-p", "loom-tests"];
            Ok(vec![cargo(&args).and(&["--", "--nocapture", "--test-threads=2"])])
        }),
    },
    Part {
        name: "crash",
        about: "a process dies at any instruction, the rest carry on",
        work: Work::Tests(|_| {
            let args = ["test", "--release", "--no-fail-fast", "-p", "limitset"];
            let tests = ["crash_step", "crash_set", "crash_queue", "crash_work", "crash_kill"]
                .map(|test| ["--test", test]);
            Ok(vec![cargo(&args).and(tests.as_flattened()).and(&["--", "--nocapture", "--test-threads=1"])])
        }),
    },
    Part {
        name: "instructions",
        about: "hot paths take no more instructions than benches/instructions.txt says",
        work: Work::Tests(|_| {
            // Only the test: the program has none of its own.
            let args = ["test", "--release", "-p", "hot-paths", "--test", "instructions"];
            Ok(vec![cargo(&args).and(&["--", "--nocapture"])])
        }),
    },
    Part {
        name: "docs",
        about: "the documentation builds without a warning",
        work: Work::Check(|| {
            let with = |features: &[&str]| {
                let step = cargo(&["doc", "--workspace", "--no-deps"]).and(features);
                Step { rustdoc_flags: Some("-D warnings"), ..step }
            };
            vec![with(&[]), with(&["--all-features"])]
        }),
    },
    Part { name: "leftovers", about: "the tests left no segment in /dev/shm", work: Work::Leftovers },
];

/// The parts and what they check, for people.
pub(crate) fn list() -> String {
    let mut text = String::from("parts of `test`, in order:\n");
    for part in PARTS {
        text += &format!("  {:<16} {}\n", part.name, part.about);
    }
    text
}

/// The parts named, in the table's order; all of them when none is named.
/// The error is the first name that is no part.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Part>, &str> {
    if let Some(unknown) = names.iter().find(|name| !PARTS.iter().any(|part| part.name == *name)) {
        return Err(unknown);
    }
    Ok(PARTS.iter().filter(|part| names.is_empty() || names.iter().any(|name| name == part.name)).collect())
}

fn cargo(args: &[&str]) -> Step {
    Step::default().and(args)
}

impl Step {
    fn and(mut self, args: &[&str]) -> Step {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }
}

fn unit(root: &Path) -> io::Result<Vec<Step>> {
    let mut product = cargo(&["test", "--no-fail-fast", "-p", "limitset", "--lib"]);
    for name in unit_test_files(&root.join("tests"))? {
        product = product.and(&["--test", &name]);
    }
    // Captured output of passing tests is shown at the end, or SKIPPED lines would be lost.
    let show = ["--", "--show-output"];
    Ok(vec![product.and(&show), cargo(&["test", "-p", "xtask"]).and(&show)])
}

/// Integration tests that have a part of their own, besides those whose names begin with `crash`.
const OWN_PARTS: &[&str] = &[
    "architectures",
    "batch",
    "events",
    "examples",
    "hammer",
    "interop",
    "prefork",
    "processes",
    "set_processes",
    "waiting",
    "waiting_async",
    "world",
];

/// The integration tests in `folder`, but for those that have a part of their own.
fn unit_test_files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        if let Some(stem) = stem
            && path.extension().is_some_and(|extension| extension == "rs")
            && !stem.starts_with("crash")
            && !OWN_PARTS.contains(&stem.as_str())
        {
            names.push(stem);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parts: &[&Part]) -> Vec<&'static str> {
        parts.iter().map(|part| part.name).collect()
    }

    #[test]
    fn no_name_selects_every_part_and_names_run_in_the_order_of_the_table() {
        assert_eq!(select(&[]).unwrap().len(), PARTS.len());
        let chosen = select(&["crash".into(), "fmt".into(), "crash".into()]).unwrap();
        assert_eq!(names(&chosen), ["fmt", "crash"]);
    }

    #[test]
    fn an_unknown_part_is_named() {
        assert_eq!(select(&["fmt".into(), "lom".into()]).err(), Some("lom"));
    }

    #[test]
    fn part_names_are_unique_and_leftovers_are_looked_for_last() {
        let mut all: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(all.last(), Some(&"leftovers"));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), PARTS.len());
    }

    #[test]
    fn integration_tests_are_found_without_those_that_have_their_own_part() {
        let folder = std::env::temp_dir().join(format!("xtask-parts-{}", std::process::id()));
        fs::create_dir_all(folder.join("support")).unwrap();
        let own = ["crash_step", "crash_kill"].iter().chain(OWN_PARTS).map(|name| format!("{name}.rs"));
        let own = own.collect::<Vec<_>>();
        for name in ["tidy.rs", "attach.rs", "notes.md"].into_iter().chain(own.iter().map(String::as_str)) {
            fs::write(folder.join(name), "").unwrap();
        }
        let found = unit_test_files(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), ["attach", "tidy"]);
    }
}
