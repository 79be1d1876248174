//! `nasgauge diagnose --from`: what limits, by figures that somebody has measured already.

use std::path::PathBuf;

use clap::Args;

use super::{Format, Global};
use crate::error::{Error, Result};
use crate::published::Published;
use crate::report::ladder;

/// Arguments of `diagnose`.
#[derive(Debug, Args)]
pub(super) struct DiagnoseArgs {
    /// Files of figures with their conditions, in the form of fixtures/published
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
}

/// The command.
pub(super) fn main(args: &DiagnoseArgs, global: &Global) -> Result<u8> {
    let mut all = Vec::new();
    for path in &args.from {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
        let published: Published = toml::from_str(&text)
            .map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
        all.push(published);
    }
    match global.format {
        Format::Table => {
            for published in &all {
                print!("{}", ladder::published(published)?);
            }
        }
        Format::Csv => {
            let cases: Vec<_> = all.iter().flat_map(|one| one.case.clone()).collect();
            print!("{}", ladder::verdicts_csv(&cases)?);
        }
        Format::Json => {
            let verdicts: Vec<_> = all
                .iter()
                .flat_map(|one| one.case.iter().map(|shown| (&shown.name, shown.verdict())))
                .collect();
            let text = serde_json::to_string_pretty(&verdicts)
                .map_err(|error| Error::usage(error.to_string()))?;
            println!("{text}");
        }
    }
    Ok(0)
}
