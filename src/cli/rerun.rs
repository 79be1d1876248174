//! `nasgauge rerun`: the saved plan of a result directory again.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::error::{Error, Result};
use crate::spec::diagnose::DiagnosePlan;
use crate::spec::network::NetworkPlan;
use crate::spec::plan::Plan;

/// Arguments of `rerun`.
#[derive(Debug, Args)]
pub(super) struct RerunArgs {
    /// A result directory
    directory: PathBuf,
    /// The new result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The command.
pub(super) fn main(args: &RerunArgs, global: &Global) -> Result<u8> {
    let path = args.directory.join("plan.toml");
    let place = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::usage(format!("{place}: {error}")))?;
    if NetworkPlan::is_one(&text) {
        let plan = NetworkPlan::parse(&text, &place)?;
        return super::net::conduct(&plan, args.out.clone(), global);
    }
    if DiagnosePlan::is_one(&text) {
        let plan = DiagnosePlan::parse(&text, &place)?;
        return super::diagnose::conduct(&plan, args.out.clone(), global);
    }
    if crate::run::imports::is_one(&text) {
        return Err(Error::usage(format!(
            "{place} is of results that another tool measured; there is nothing to run again"
        )));
    }
    let plan = Plan::parse(&text, &place)?;
    if plan.embedded {
        return Err(Error::usage(format!(
            "{place} is of a demo, whose servers are gone; run 'nasgauge demo' again"
        )));
    }
    super::run::conduct(&plan, args.out.clone(), global)
}
