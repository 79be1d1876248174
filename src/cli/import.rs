//! `nasgauge import`: results of other tools as results of our own.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::run::read;
use super::{Format, Global};
use crate::error::Result;
use crate::recompute::Writing;
use crate::report;
use crate::run::Out;
use crate::run::imports::keep;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Files that another tool wrote, or result directories
    #[arg(
        value_name = "FILE",
        required = true,
        help = "Files that fio (json, json+, terse, normal), iperf3 (-J), CrystalDiskMark, diskspd or elbencho (CSV) wrote, or result directories"
    )]
    files: Vec<PathBuf>,
    /// What was measured: the workload itself, or the server's own disks, or the protocol with memory behind it
    #[arg(long, value_enum)]
    layer: Option<Layer>,
    /// Numbers are written 1.234,5
    #[arg(long)]
    decimal_comma: bool,
    /// The result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a file measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    EndToEnd,
    Storage,
    Protocol,
}

impl Layer {
    const fn stage(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end",
            Self::Storage => "storage",
            Self::Protocol => "protocol",
        }
    }
}

/// The command.
pub(super) fn main(args: &ImportArgs, global: &Global) -> Result<u8> {
    let writing = Writing {
        decimal_comma: args.decimal_comma,
    };
    let out = args
        .out
        .clone()
        .map_or_else(|| Out::Below("results".into()), Out::Exactly);
    let outcome = keep(&args.files, writing, args.layer.map(Layer::stage), &out)?;
    if !global.quiet {
        for note in &outcome.notes {
            eprintln!("nasgauge: {note}");
        }
        eprintln!("results: {}", outcome.directory.display());
    }
    match global.format {
        Format::Table => {
            let (network, storage): (Vec<_>, Vec<_>) = outcome
                .rows
                .iter()
                .cloned()
                .partition(crate::record::Row::is_stream);
            if !storage.is_empty() {
                print!("{}", report::table::rows(&storage));
            }
            if !network.is_empty() {
                print!("{}", report::network::rows(&network));
            }
        }
        Format::Csv => print!("{}", read(&outcome.directory.join("summary.csv"))?),
        Format::Json => println!("{}", read(&outcome.directory.join("record.json"))?),
    }
    Ok(outcome.exit_code())
}
