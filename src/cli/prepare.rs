//! `nasgauge prepare`: lays a test file once, so that later runs need not.

use clap::Args;

use super::{Global, run};
use crate::error::Result;
use crate::spec::plan::Plan;
use crate::spec::repeats::Repeats;
use crate::spec::workload::{PhaseFile, Rw, Workload};
use crate::units::Bytes;

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub(super) struct PrepareArgs {
    /// A path or a URI
    target: String,
    /// Bytes to lay
    #[arg(long, value_name = "SIZE")]
    size: Bytes,
    /// Accepted for the habit of it: prepared files always stay, 'nasgauge clean URI' removes them
    #[arg(long, hide = true)]
    keep: bool,
    /// Allow writing over the content of the device with this serial number
    #[arg(long, value_name = "SERIAL")]
    destroy: Option<String>,
}

/// The command: a run that keeps its file and reads a little of it back, verified.
pub(super) fn main(args: &PrepareArgs, global: &Global) -> Result<u8> {
    let _ = args.keep;
    let sample = PhaseFile {
        rw: Some(Rw::RandRead),
        bs: Some(Bytes(args.size.0.min(64 << 10))),
        size: Some(args.size),
        bytes: Some(Bytes(args.size.0.min(16 << 20))),
        verify: Some(true),
        ..PhaseFile::default()
    };
    let phase = sample.resolve("prepare")?;
    let workload = Workload {
        name: "prepare".into(),
        description: "a verified sample of the file laid".into(),
        repeats: Repeats::ONCE,
        phases: vec![phase],
    };
    let plan = Plan {
        keep: true,
        destroy: args.destroy.clone(),
        ..Plan::new("prepare", vec![args.target.clone()], vec![workload])
    };
    run::conduct(&plan, None, global)
}
