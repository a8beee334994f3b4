//! What a set of limits promises, each rule in three worlds from one source: private memory (thread mode), a
//! segment by name (process mode), and one without a name. Time stands still until a test moves it, so every
//! number is exact.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "set/answers.rs"]
mod answers;
#[path = "set/cooldown.rs"]
mod cooldown;
#[path = "set/differences.rs"]
mod differences;
#[path = "set/ending.rs"]
mod ending;
#[path = "set/manage.rs"]
mod manage;
#[path = "set/opening.rs"]
mod opening;
#[path = "set/requests.rs"]
mod requests;
#[path = "set/stats.rs"]
mod stats;
#[path = "support/mod.rs"]
mod support;
#[path = "set/usage.rs"]
mod usage;
#[path = "set/work.rs"]
mod work;
#[path = "set/worlds.rs"]
mod worlds;

use libtest_mimic::{Arguments, Trial};
use worlds::World;

fn main() {
    let topics = [
        ("requests", requests::RULES),
        ("answers", answers::RULES),
        ("usage", usage::RULES),
        ("ending", ending::RULES),
        ("manage", manage::RULES),
        ("stats", stats::RULES),
        ("cooldown", cooldown::RULES),
        ("work", work::RULES),
        ("opening", opening::RULES),
    ];
    let mut trials = Vec::new();
    for (topic, rules) in topics {
        for (rule, test) in rules {
            for world in World::ALL {
                trials.push(trial(format!("{topic}::{rule}::{}", world.name()), move || test(world)));
            }
        }
    }
    // Only a name can be opened again.
    for (rule, test) in differences::RULES {
        let by_name = World::Process;
        trials.push(trial(format!("differences::{rule}::{}", by_name.name()), move || test(by_name)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name.clone(), move || {
        support::watched(&name, test);
        Ok(())
    })
}
