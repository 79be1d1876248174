//! `nasgauge workloads`: what is shipped.

use clap::Args;

use crate::catalogue;
use crate::error::Result;

/// Arguments of `workloads`.
#[derive(Debug, Args)]
pub(super) struct WorkloadsArgs {
    /// Show this one's file
    name: Option<String>,
}

/// The command.
pub(super) fn main(args: &WorkloadsArgs) -> Result<u8> {
    match &args.name {
        Some(name) => print!("{}", catalogue::text(name)?.0),
        None => {
            for workload in catalogue::all()? {
                println!("{:<20} {}", workload.name, workload.description);
            }
        }
    }
    Ok(0)
}
