//! The project's own commands. `cargo xtask test` runs every check, the same as CI;
//! `cargo xtask test loom` runs one part of it; `cargo xtask prove` runs the proofs at full depth;
//! `cargo xtask bench` measures; `cargo xtask pictures` makes the pictures of the command.
//!
//! A new subcommand is one row in `COMMANDS`; a new test part is one row in `parts::PARTS`.

mod bench;
mod install_c;
mod leftovers;
mod parts;
mod pictures;
mod prove;
mod python;
mod report;
mod run;
mod tally;
mod targets;
mod test;

use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code for a command line that makes no sense.
const MISUSE: u8 = 2;

struct Subcommand {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> io::Result<ExitCode>,
}

const COMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "test",
        usage: "test [PART...]",
        about: "run all parts, or only those named",
        run: test::command,
    },
    Subcommand {
        name: "prove",
        usage: "prove [--usual]",
        about: "run every proof at full depth, and write docs/proof.md",
        run: prove::command,
    },
    Subcommand {
        name: "bench",
        usage: "bench [--quick] [--only NAME] [--out DIR]",
        about: "measure beside rivals, and write benches/RESULTS.md",
        run: bench::command,
    },
    Subcommand {
        name: "instructions",
        usage: "instructions [--bless]",
        about: "count the instructions of the hot paths; with --bless write them down",
        run: bench::instructions,
    },
    Subcommand {
        name: "install-c",
        usage: "install-c --prefix DIR",
        about: "build the C binding and install header, libraries and pkg-config file",
        run: install_c::command,
    },
    Subcommand {
        name: "python",
        usage: "python [PYTEST ARGUMENT...]",
        about: "build, install and test the Python binding in a virtual environment under target/",
        run: python::command,
    },
    Subcommand {
        name: "targets",
        usage: "targets",
        about: "compile for other processors and C libraries, and test the ARM64 build under qemu",
        run: targets::command,
    },
    Subcommand {
        name: "pictures",
        usage: "pictures",
        about: "make docs/pictures/top.svg and demo.svg from what the command prints, in tmux",
        run: pictures::command,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do if even this cannot be written.
            let _ = writeln!(io::stderr(), "xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> io::Result<ExitCode> {
    let wants_help = args.iter().any(|a| a == "--help" || a == "-h" || a == "help");
    let Some((name, rest)) = args.split_first().filter(|_| !wants_help) else {
        write!(io::stdout(), "{}", usage())?;
        return Ok(ExitCode::SUCCESS);
    };
    match COMMANDS.iter().find(|c| c.name == name) {
        Some(command) => (command.run)(rest),
        None => {
            write!(io::stderr(), "xtask: unknown command `{name}`\n\n{}", usage())?;
            Ok(ExitCode::from(MISUSE))
        }
    }
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n\ncommands:\n");
    for command in COMMANDS {
        text += &format!("  {:<41} {}\n", command.usage, command.about);
    }
    text + "\n" + &parts::list()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_names_every_command_and_every_part() {
        let text = usage();
        assert!(COMMANDS.iter().all(|c| text.contains(c.usage)), "{text}");
        assert!(parts::PARTS.iter().all(|p| text.contains(p.name)), "{text}");
    }
}
