//! The commands, one file each: arguments, execution, output.

pub(crate) mod apply;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod cooldown;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod gc;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod reap;
pub(crate) mod reset;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod top;
pub(crate) mod try_;

use crate::args::Command;
use crate::context::{Context, Outcome};

pub(crate) fn run(command: Command, context: &Context) -> Outcome {
    match command {
        Command::Create(args) => create::run(&args, context),
        Command::Apply(args) => apply::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::List(args) => list::run(&args, context),
        Command::Show(args) => show::run(&args, context),
        Command::Top(args) => top::run(&args, context),
        Command::Run(args) => run::run(&args, context),
        Command::Try(args) => try_::run(&args, context),
        Command::Set(args) => set::run(&args, context),
        Command::Reset(args) => reset::run(&args, context),
        Command::Rm(args) => rm::run(&args, context),
        Command::Reap(args) => reap::run(&args, context),
        Command::Gc(args) => gc::run(&args, context),
        Command::Cooldown(args) => cooldown::run(&args, context),
        Command::Check(args) => check::run(&args, context),
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Simulate(args) => simulate::run(&args, context),
        Command::Bench(args) => bench::run(&args, context),
        Command::Demo(args) => demo::run(&args, context),
        Command::Completions(args) => completions::run(&args, context),
        Command::Man(args) => man::run(&args, context),
    }
}
