//! `limitset man`: prints the manual pages.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;
use serde::Serialize;

use crate::args::Cli;
use crate::context::{Context, Outcome};
use crate::exit::Exit;

/// Print the manual page of limitset, or of one of its commands
///
/// Example: limitset man | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command
    command: Option<String>,
    /// Write the pages of all commands into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Page {
    name: String,
    /// The page in roff; none if it was written to a file.
    page: Option<String>,
    path: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let pages = pages()?;
    let mut printed = Vec::new();
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder)?;
        for (name, page) in pages {
            let path = folder.join(format!("{name}.1"));
            fs::write(&path, page)?;
            printed.push(Page { name, page: None, path: Some(path.display().to_string()) });
        }
    } else {
        let wanted =
            args.command.as_ref().map_or_else(|| "limitset".to_owned(), |it| format!("limitset-{it}"));
        let found = pages.into_iter().find(|(name, _)| *name == wanted);
        let Some((name, page)) = found else {
            return Err(crate::failure::Failure::usage(format!(
                "unknown command {wanted:?}: see `limitset help`"
            )));
        };
        printed.push(Page { name, page: Some(page), path: None });
    }
    context.print(&printed, |out| {
        printed.iter().try_for_each(|it| match (&it.page, &it.path) {
            (Some(page), _) => write!(out, "{page}"),
            (None, path) => writeln!(out, "{}", path.as_deref().unwrap_or_default()),
        })
    })?;
    Ok(Exit::Done)
}

/// Returns every page with its name, that of `limitset` first.
fn pages() -> std::io::Result<Vec<(String, String)>> {
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![("limitset".to_owned(), page(command.clone())?)];
    for sub in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let name = format!("limitset-{}", sub.get_name());
        pages.push((name.clone(), page(sub.clone().name(name))?));
    }
    Ok(pages)
}

fn page(command: clap::Command) -> std::io::Result<String> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
