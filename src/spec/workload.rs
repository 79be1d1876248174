//! Workloads: what to do to a target, in fio's words, complete.
//!
//! Read first: a [`Workload`] is a list of [`Phase`]s. `file` reads them from TOML and flags, where every key may be left
//! out; `check` says what is impossible. Must not know: targets, the engine, where a file came from.

mod check;
mod file;
mod files;

use serde::{Deserialize, Serialize};

use crate::op::{Direction, Durability, FileOp};
use crate::payload::{Content, Fill};
use crate::spec::repeats::Repeats;
use crate::units::{Bytes, Nanos};

pub use file::PhaseFile;
pub use files::Files;

/// A named list of phases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The stable name that stands in results.
    pub name: String,
    /// One line for `nasgauge workloads`.
    pub description: String,
    /// How often the whole workload runs, unless the command line says otherwise.
    pub repeats: Repeats,
    /// The phases in their order.
    pub phases: Vec<Phase>,
}

/// The access pattern, in fio's words, or the operation on small files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes, mixed.
    Rw,
    /// Random reads and writes, mixed.
    RandRw,
    /// Small files are made and written.
    Create,
    /// Small files are opened and read.
    Open,
    /// Small files are asked for their sizes.
    Stat,
    /// The directory of the small files is listed.
    List,
    /// Small files get other names.
    Rename,
    /// Small files are removed.
    Remove,
}

/// How random offsets spread over the file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Distribution {
    /// Each block alike.
    #[default]
    Uniform,
    /// Zipf with this exponent: few blocks get most accesses.
    Zipf(f64),
    /// Self-similar with this share: `0.2` sends 80 % of accesses to 20 % of the blocks.
    Pareto(f64),
}

/// One measured phase, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Name within the workload; empty when it is the only phase.
    pub name: String,
    /// The access pattern.
    pub rw: Rw,
    /// Share of reads in percent, for mixed patterns.
    pub rwmixread: u8,
    /// Block sizes in bytes, each with its share of operations in percent.
    pub blocks: Vec<(Bytes, u8)>,
    /// Operations kept under way on each lane.
    pub iodepth: u16,
    /// Parallel workers, fio's `numjobs`.
    pub lanes: u16,
    /// Bytes of the file that are used, over all lanes.
    pub size: Bytes,
    /// Ends after this time.
    pub runtime: Option<Nanos>,
    /// Ends after this many bytes over all lanes; without both, one pass over `size`.
    pub bytes: Option<Bytes>,
    /// Time before measuring starts.
    pub ramp_time: Nanos,
    /// Operations per second over all lanes; latency then counts from the intended start.
    pub rate_iops: Option<u32>,
    /// Flush after this many writes of a lane; 0 never.
    pub fsync: u32,
    /// When a write counts as written.
    pub durability: Durability,
    /// Bypass this computer's page cache.
    pub direct: bool,
    /// How random offsets spread.
    #[serde(with = "distribution_text")]
    pub random_distribution: Distribution,
    /// What kind of bytes.
    pub payload: Fill,
    /// Share of each sector that compresses away.
    pub compress_percent: u8,
    /// Share of 4 KiB blocks that deduplicate.
    pub dedupe_percent: u8,
    /// Check each byte read.
    pub verify: bool,
    /// Lanes of a sequential phase with blocks of one size take them in turns, as one stream with more under way would, instead of
    /// a part each: then what time allowed to write is the file's beginning, without gaps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// The small files that it works on; None where blocks of one file are read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
}

impl Phase {
    /// Whether its lanes take turns: only blocks of one size leave no gap that way.
    #[must_use]
    pub const fn takes_turns(&self) -> bool {
        self.in_turns && !self.rw.random() && self.blocks.len() == 1 && self.files.is_none()
    }
}

impl Rw {
    /// Whether offsets jump.
    #[must_use]
    pub const fn random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// The operation on small files; None for blocks of one file.
    #[must_use]
    pub const fn file_op(self) -> Option<FileOp> {
        match self {
            Self::Create => Some(FileOp::Create),
            Self::Open => Some(FileOp::Open),
            Self::Stat => Some(FileOp::Stat),
            Self::List => Some(FileOp::List),
            Self::Rename => Some(FileOp::Rename),
            Self::Remove => Some(FileOp::Remove),
            _ => None,
        }
    }

    /// Whether anything is read.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self.file_op() {
            Some(op) => matches!(op.direction(), Direction::Read),
            None => !matches!(self, Self::Write | Self::RandWrite),
        }
    }

    /// Whether anything is written or changed.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self.file_op() {
            Some(op) => matches!(op.direction(), Direction::Write),
            None => !matches!(self, Self::Read | Self::RandRead),
        }
    }

    /// The CSV key, fio's word.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
            Self::Create => FileOp::Create.key(),
            Self::Open => FileOp::Open.key(),
            Self::Stat => FileOp::Stat.key(),
            Self::List => FileOp::List.key(),
            Self::Rename => FileOp::Rename.key(),
            Self::Remove => FileOp::Remove.key(),
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Pareto(share) => write!(f, "pareto:{share}"),
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64| {
            if value.is_empty() {
                Ok(default)
            } else {
                value.parse::<f64>()
            }
        };
        match name {
            "uniform" | "random" if value.is_empty() => Some(Self::Uniform),
            "zipf" => number(1.1).ok().filter(|theta| (0.01..=5.0).contains(theta)).map(Self::Zipf),
            "pareto" => number(0.2).ok().filter(|share| *share > 0.0 && *share < 1.0).map(Self::Pareto),
            _ => None,
        }
        .ok_or_else(|| {
            format!("random_distribution '{text}' is not uniform, zipf:THETA (0.01 to 5) or pareto:SHARE (between 0 and 1)")
        })
    }
}

mod distribution_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        value: &super::Distribution,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<super::Distribution, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Phase {
    /// The largest block in bytes.
    #[must_use]
    pub fn block_max(&self) -> u32 {
        self.blocks
            .iter()
            .map(|(size, _)| size.0)
            .max()
            .unwrap_or(0) as u32
    }

    /// The block size for the CSV: None when several are mixed.
    #[must_use]
    pub fn block_size(&self) -> Option<u64> {
        match self.blocks.as_slice() {
            [(size, _)] => Some(size.0),
            _ => None,
        }
    }

    /// What its blocks hold, under the run's key.
    #[must_use]
    pub const fn content(&self, key: u64) -> Content {
        Content {
            key,
            fill: self.payload,
            compress_percent: self.compress_percent,
            dedupe_percent: self.dedupe_percent,
        }
    }
}
