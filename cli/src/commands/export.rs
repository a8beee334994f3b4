//! `limitset export`: writes sets in the format of `apply`.

use std::collections::BTreeMap;

use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::set_file::SetFile;

/// Write sets in the format of `apply`, with their current parameters
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sets
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let mut sets = BTreeMap::new();
    for name in &args.names {
        let set = context.observe(name)?;
        let stats = set.stats()?;
        sets.insert(name.clone(), SetFile::of(&set, &stats)?);
    }
    let text = toml::to_string_pretty(&sets).map_err(|error| Failure::new(Exit::Failed, "failed", error))?;
    context.print(&sets, |out| write!(out, "{text}"))?;
    Ok(Exit::Done)
}
