//! `nasgauge clean`: removes what an interrupted run left.

use std::io::{BufRead, IsTerminal};

use clap::Args;

use super::{Global, inspect};
use crate::error::{Error, Result};
use crate::fleet;
use crate::guard;
use crate::units::Bytes;

/// Arguments of `clean`.
#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    /// A path or a URI
    target: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// The command.
pub(super) fn main(args: &CleanArgs, global: &Global) -> Result<u8> {
    let login = inspect::login(&args.target, global)?;
    let mut control = fleet::control(&login)?;
    let found = guard::leftovers(&mut control).map_err(|error| error.at(&args.target))?;
    if found.is_empty() {
        println!("nothing of nasgauge's is there");
        return Ok(0);
    }
    for leftover in &found {
        let manifest = &leftover.manifest;
        println!(
            "{}: {} of {}",
            leftover.name,
            Bytes(manifest.size),
            manifest.created_utc
        );
    }
    if !args.yes && !confirmed()? {
        println!("nothing removed");
        return Ok(0);
    }
    for leftover in &found {
        guard::clean(&mut control, leftover).map_err(|error| error.at(&args.target))?;
        println!("{}: removed", leftover.name);
    }
    Ok(0)
}

fn confirmed() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::usage(
            "add --yes to remove these without being asked",
        ));
    }
    eprint!("Remove them? [y/N] ");
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Error::usage(format!("no answer could be read: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
