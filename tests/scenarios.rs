//! The list of scenarios, done in Rust. `scenarios/README.md` says what they are; other languages run the same list.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "scenarios/definition.rs"]
mod definition;
#[path = "scenarios/list.rs"]
mod list;
#[path = "support/mod.rs"]
mod support;
#[path = "scenarios/world.rs"]
mod world;

use std::path::Path;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut trials = vec![Trial::test("what_differs_anywhere_does_not_fit", || {
        list::what_differs_anywhere_does_not_fit();
        Ok(())
    })];
    for (name, scenario) in list::load(&folder) {
        trials.push(Trial::test(name.clone(), move || {
            support::watched(&name, || list::run(&mut world::World::default(), &scenario));
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
