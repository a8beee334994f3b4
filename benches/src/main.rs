//! The benches of limitset, run by `cargo xtask bench`: each answers a written question, beside rivals that do the same
//! work. Writes RESULTS.md and results.svg.

mod attach;
mod batches;
mod bystander;
mod c;
mod clocks;
mod crew;
mod deaths;
mod floor;
mod growth;
mod handover;
mod machine;
mod ours;
mod plot;
mod probe;
mod processes;
mod python;
mod redis;
mod report;
mod results;
mod rivals;
mod sys;
mod targets;
mod uncontended;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use batches::Plan;
use machine::Machine;
use redis::Server;
use results::{Bench, Results};

const USAGE: &str = "\
usage: cargo xtask bench [--quick] [--only NAME]... [--out DIR]

  --quick      about a minute: shorter batches, more noise
  --only NAME  only this bench: uncontended, clocks, processes, handover, deaths, attach, c, python,
               bystander or growth;
               prints the page instead of writing it, unless --out is given
  --out DIR    where RESULTS.md and results.svg go; benches/ unless given
";

type RunBench = fn(Plan, &Result<Rc<Server>, String>) -> Bench;

/// The one with threads comes last: the others fork.
const BENCHES: &[(&str, RunBench)] = &[
    ("uncontended", uncontended::run),
    ("clocks", |plan, _| clocks::run(plan)),
    ("processes", processes::run),
    ("handover", |plan, _| handover::run(plan)),
    ("deaths", |plan, _| deaths::run(plan)),
    ("attach", |plan, _| attach::run(plan)),
    ("c", |plan, _| c::run(plan)),
    ("python", |plan, _| python::run(plan)),
    ("bystander", |plan, _| bystander::run(plan)),
    ("growth", |plan, _| growth::run(plan)),
];

#[derive(Default)]
struct Options {
    quick: bool,
    only: Vec<String>,
    out: Option<PathBuf>,
}

fn options(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--out" => options.out = Some(value()?.into()),
            "--only" => {
                let name = value()?;
                if !BENCHES.iter().any(|(known, _)| *known == name) {
                    return Err(format!("there is no bench {name:?}"));
                }
                options.only.push(name);
            }
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprint!("bench: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (results, machine) = run(&options);
    let (page, picture) = (report::page(&results, &machine), plot::svg(&results));
    let folder = match (&options.out, options.only.is_empty()) {
        (Some(out), _) => out.clone(),
        (None, true) => Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        (None, false) => {
            println!("{page}");
            return ExitCode::SUCCESS;
        }
    };
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("RESULTS.md"), page))
        .and_then(|()| std::fs::write(folder.join("results.svg"), picture));
    match written {
        Ok(()) => {
            println!("wrote RESULTS.md and results.svg in {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: cannot write to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> (Results, Machine) {
    let plan = if options.quick { Plan::QUICK } else { Plan::FULL };
    let mut machine = Machine::new(options.quick);
    let redis = Server::start().map(Rc::new);
    match &redis {
        Ok(server) => machine.redis(server.version.clone()),
        Err(why) => eprintln!("Redis is not run: {why}"),
    }
    let mut results = Results::default();
    for (name, bench) in BENCHES {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        let start = Instant::now();
        eprint!("{name} ... ");
        results.benches.push(bench(plan, &redis));
        eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    }
    drop(redis);
    machine.run_ends();
    (results, machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        options(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_understood_or_refused() {
        let all = parsed("--quick --only growth --out x").ok().unwrap();
        assert!(all.quick && all.only == ["growth"] && all.out == Some("x".into()));
        for bad in ["--only", "--only nothing", "--fast", "--out"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
