//! The C binding as C programs use it: installed, compiled as C11 and as C++17 with all warnings as errors, linked with the
//! shared and the static library, run plainly and under valgrind, there with the release and with the debug build. And the
//! list of scenarios, which must be answered as in Rust.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "harness/installed.rs"]
mod installed;
#[path = "../../../tests/scenarios/list.rs"]
mod list;
#[path = "harness/programs.rs"]
mod programs;
#[path = "harness/scenario.rs"]
mod scenario;

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Trial};
use programs::{Variant, folder};

/// The programs that name their tests.
const PROGRAMS: [(&str, &[Variant]); 5] = [
    ("basics", &Variant::ALL),
    ("misuse", &Variant::ALL),
    ("waits", &Variant::ALL),
    ("forks", &Variant::ALL),
    // With an allocator of its own, which valgrind would replace and a static library would not see.
    ("allocations", &[Variant::C11, Variant::Cpp17]),
];

fn main() {
    let arguments = Arguments::from_args();
    let trials = match programs::missing_compiler() {
        Some(why) => vec![trial("c_programs".to_owned(), move || skip("c_programs", &why))],
        None => trials(),
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    programs::clean_up();
    conclusion.exit();
}

fn trials() -> Vec<Trial> {
    let mut trials = installed::trials();
    trials.push(trial(
        "what_differs_anywhere_does_not_fit".to_owned(),
        list::what_differs_anywhere_does_not_fit,
    ));
    for (program, variants) in PROGRAMS {
        let source = folder().join("tests/c").join(program).with_extension("c");
        for test in names(&programs::compiled(&source, Variant::C11)) {
            for variant in variants {
                let (source, argument) = (source.clone(), test.clone());
                trials.push(trial(format!("{program}::{test}::{}", variant.name()), move || {
                    programs::run(&source, *variant, &[&argument]);
                }));
            }
        }
    }
    for variant in Variant::ALL {
        trials.push(trial(format!("examples::prefork::{}", variant.name()), move || {
            let said = programs::run(&folder().join("examples/prefork.c"), variant, &[]);
            let expected = "59 requests served, 1 worker killed, at most ";
            assert!(said.is_none_or(|said| said.starts_with(expected)));
        }));
        trials.push(trial(format!("examples::of_the_header::{}", variant.name()), move || {
            let said = programs::run(&installed::example_of_the_header(), variant, &[]);
            assert!(said.is_none_or(|said| said == "done\n"));
        }));
    }
    let scenarios = list::load(&folder().join("../../tests/scenarios"));
    for (name, scenario) in scenarios.clone() {
        trials.push(trial(format!("scenario::{name}"), move || scenario::run(Variant::C11, [&scenario])));
    }
    for variant in [Variant::Valgrind, Variant::ValgrindDebug] {
        let scenarios = scenarios.clone();
        trials.push(trial(format!("scenario::all_in_one_process::{}", variant.name()), move || {
            scenario::run(variant, scenarios.iter().map(|(_, scenario)| scenario));
        }));
    }
    trials
}

fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// Says loudly that a test did not run.
fn skip(name: &str, why: &str) {
    println!("SKIPPED {name}: {why}");
}

fn names(program: &Path) -> Vec<String> {
    let listed = Command::new(program).output().unwrap();
    let names: Vec<_> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(!names.is_empty(), "{} names no test", program.display());
    names
}
