//! The workload keys as flags, in fio's words.

use clap::Args;

use crate::error::{Error, Result};
use crate::op::Durability;
use crate::payload::Fill;
use crate::spec::workload::{PhaseFile, Rw};
use crate::units::{Bytes, Nanos};

/// A workload on the command line; each flag also overrides that key of a named workload.
#[derive(Debug, Clone, Default, Args)]
#[command(
    next_help_heading = "Workload keys (fio's words; each overrides that key of a named workload)"
)]
pub(super) struct PhaseArgs {
    /// read, write, randread, randwrite, rw or randrw; for small files create, open, stat, list, rename or remove
    #[arg(long, value_parser = parse_key::<Rw>)]
    rw: Option<Rw>,
    /// Block size, such as 4k or 1MiB
    #[arg(long, visible_alias = "block-size", value_name = "SIZE")]
    bs: Option<Bytes>,
    /// Block sizes with shares in percent, such as 4k/70:64k/30
    #[arg(long, value_name = "SPLIT")]
    bssplit: Option<String>,
    /// Operations under way on each lane
    #[arg(long, value_name = "N")]
    iodepth: Option<u16>,
    /// Parallel workers
    #[arg(long, visible_alias = "numjobs", value_name = "N")]
    lanes: Option<u16>,
    /// Bytes of the test file, over all lanes
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Time to measure; a bare number is seconds
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Bytes to move, instead of a time
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Time before measuring starts
    #[arg(long, value_name = "TIME")]
    ramp_time: Option<Nanos>,
    /// Share of reads in mixed patterns
    #[arg(long, value_name = "PERCENT")]
    rwmixread: Option<u8>,
    /// Operations per second over all lanes; latency then counts from the intended start
    #[arg(long, value_name = "N")]
    rate_iops: Option<u32>,
    /// Flush after this many writes of a lane
    #[arg(long, value_name = "N")]
    fsync: Option<u32>,
    /// Flush at the end (default 1)
    #[arg(long, value_name = "0|1", value_parser = parse_switch)]
    end_fsync: Option<bool>,
    /// none, flush or sync
    #[arg(long, value_parser = parse_key::<Durability>)]
    durability: Option<Durability>,
    /// Bypass this computer's page cache on paths
    #[arg(long, value_name = "0|1", value_parser = parse_switch)]
    direct: Option<bool>,
    /// uniform, zipf:THETA or pareto:SHARE
    #[arg(long, value_name = "DISTRIBUTION")]
    random_distribution: Option<String>,
    /// incompressible or zero
    #[arg(long, value_parser = parse_key::<Fill>)]
    payload: Option<Fill>,
    /// Share of the payload that compresses away
    #[arg(long, value_name = "PERCENT")]
    compress_percent: Option<u8>,
    /// Share of 4 KiB blocks that deduplicate
    #[arg(long, value_name = "PERCENT")]
    dedupe_percent: Option<u8>,
    /// Check every byte read
    #[arg(long, value_name = "0|1", value_parser = parse_switch)]
    verify: Option<bool>,
    /// How many small files
    #[arg(long, value_name = "N")]
    nrfiles: Option<u32>,
    /// Bytes in each small file
    #[arg(long, value_name = "SIZE")]
    filesize: Option<Bytes>,
    /// Any workload key as KEY=VALUE, may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// A key's TOML value, so that flags and files accept the same words.
fn parse_key<T: serde::de::DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    let value = toml::Value::String(text.to_owned());
    value
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())
}

fn parse_switch(text: &str) -> std::result::Result<bool, String> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("give 0 or 1".into()),
    }
}

impl PhaseArgs {
    /// Whether a workload is described here at all.
    pub(super) fn describes_a_workload(&self) -> bool {
        self.rw.is_some() || self.set.iter().any(|pair| pair.starts_with("rw="))
    }

    /// The flags as keys; `--set` comes first, so that a flag of its own wins.
    pub(super) fn keys(&self) -> Result<PhaseFile> {
        let flags = PhaseFile {
            name: None,
            rw: self.rw,
            rwmixread: self.rwmixread,
            bs: self.bs,
            bssplit: self.bssplit.clone(),
            iodepth: self.iodepth,
            lanes: self.lanes,
            numjobs: None,
            size: self.size,
            runtime: self.runtime,
            bytes: self.bytes,
            ramp_time: self.ramp_time,
            rate_iops: self.rate_iops,
            fsync: self.fsync,
            end_fsync: self.end_fsync,
            durability: self.durability,
            direct: self.direct,
            random_distribution: self.random_distribution.clone(),
            payload: self.payload,
            compress_percent: self.compress_percent,
            dedupe_percent: self.dedupe_percent,
            verify: self.verify,
            nrfiles: self.nrfiles,
            filesize: self.filesize,
        };
        Ok(flags.or(&self.set_keys()?))
    }

    fn set_keys(&self) -> Result<PhaseFile> {
        let mut table = toml::Table::new();
        for pair in &self.set {
            let wrong = || Error::usage(format!("--set {pair}: not KEY=VALUE"));
            let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
            let value = match (value.parse::<i64>(), value) {
                (Ok(number), _) => toml::Value::Integer(number),
                (Err(_), "true") => toml::Value::Boolean(true),
                (Err(_), "false") => toml::Value::Boolean(false),
                (Err(_), text) => toml::Value::String(text.to_owned()),
            };
            table.insert(key.replace('-', "_"), value);
        }
        toml::Value::Table(table)
            .try_into()
            .map_err(|error: toml::de::Error| Error::usage(format!("--set: {}", error.message())))
    }
}
