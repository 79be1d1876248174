//! What a run found, as data: one [`Row`] a measured cell and direction, and the [`Record`] around them.
//!
//! Pure. Unknown is None, never 0. Must not know: how anything was measured or how it is printed.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::{Nanos, Rate};

mod figures;
mod flag;

pub use figures::{Burst, HostCounters, LatencySummary, SmallFiles};
pub use flag::Flag;

/// Version of the CSV files and of `record.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// The clock of samples and that of a row's end are not read at one instant.
const SLACK_S: f64 = 0.02;
/// The pattern of rows that are no operations on storage but a stream of bytes over TCP.
pub const STREAM: &str = "stream";

/// How a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Measured.
    Ok,
    /// An error ended it.
    Failed,
    /// The user stopped it.
    Interrupted,
    /// The server went away or stopped answering.
    ServerLost,
    /// Measured, but not to be believed: wrong data or wrong size.
    Invalid,
}

impl Status {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::ServerLost => "server_lost",
            Self::Invalid => "invalid",
        }
    }
}

/// One measured direction of one cell. Column order and names are those of summary.csv.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The run.
    pub run_id: String,
    /// Start of the measured time, UTC, RFC 3339.
    pub started_utc: String,
    /// What was measured: `run` for a workload.
    pub stage: String,
    /// The target's URI.
    pub target: String,
    /// The protocol's key.
    pub protocol: String,
    /// Which client moved the bytes.
    pub engine: String,
    /// The workload, with its phase where it has several.
    pub workload: String,
    /// read or write.
    pub direction: String,
    /// fio's word for the access pattern.
    pub pattern: String,
    /// None when several sizes are mixed.
    pub block_size_bytes: Option<u64>,
    /// Operations under way on each lane; 0 where another tool does not tell.
    pub iodepth: u16,
    /// Parallel workers; 0 where another tool does not tell.
    pub lanes: u16,
    /// Network connections that carried the data.
    pub connections: Option<u32>,
    /// Bytes of the file in use; 0 where there is none, or another tool does not tell.
    pub size_bytes: u64,
    /// The round, from 1.
    pub repeat: u32,
    /// Bytes moved in the measured time.
    pub bytes: u64,
    /// From the start of the measured time to the last completion; None when nothing was measured.
    pub seconds: Option<f64>,
    /// Operations in the measured time.
    pub ops: u64,
    /// Latencies in nanoseconds; kept for percentiles and merging.
    #[serde(skip, default = "crate::stats::latency_histogram")]
    pub latency: Histogram<u64>,
    /// Latency figures, in nanoseconds; None where unknown or too few.
    pub latency_ns: LatencySummary,
    /// The flush after the last completion.
    pub flush_seconds: Option<f64>,
    /// Requests on the wire.
    pub wire_ops: Option<u64>,
    /// Operations that failed.
    pub errors: u64,
    /// incompressible, zero, or with its percentages.
    pub payload: String,
    /// bypassed, dropped, warm or unknown: what this computer's page cache had to do with it.
    pub cache_state: Option<String>,
    /// none, flush or sync.
    pub durability: Option<String>,
    /// How fast payload can be made here.
    pub generator_bytes_per_s: Option<f64>,
    /// How it began, where it fell off for good; None where it did not.
    #[serde(default)]
    pub burst: Option<Burst>,
    /// CPU seconds of the workers in the measured time.
    pub client_cpu_s: Option<f64>,
    /// The busiest core of this computer in the measured time, 0 to 100.
    pub busiest_core_percent: Option<f64>,
    /// More of what this computer's counters say of the measured time.
    #[serde(default)]
    pub host: HostCounters,
    /// Bytes in the row's direction through the interfaces towards the target, headers and other traffic included.
    #[serde(default)]
    pub network_bytes: Option<u64>,
    /// Bytes that the storage device moved meanwhile, by its own counter.
    pub device_bytes: Option<u64>,
    /// TCP segments that this computer sent again meanwhile, to whomever.
    #[serde(default)]
    pub retransmits: Option<u64>,
    /// What the peers agreed on.
    pub negotiated: String,
    /// How it ended.
    pub status: Status,
    /// Marks.
    pub flags: Vec<Flag>,
    /// The sentence of what went wrong; not part of any CSV.
    pub error: Option<String>,
    /// The small files that it worked on; None for blocks.
    #[serde(default)]
    pub files: Option<SmallFiles>,
}

impl Row {
    /// A row of block operations with nothing measured and nothing wrong.
    #[must_use]
    pub fn blank() -> Self {
        Self {
            run_id: String::new(),
            started_utc: String::new(),
            stage: "run".into(),
            target: String::new(),
            protocol: String::new(),
            engine: String::new(),
            workload: String::new(),
            direction: String::new(),
            pattern: String::new(),
            block_size_bytes: None,
            iodepth: 1,
            lanes: 1,
            connections: None,
            size_bytes: 0,
            repeat: 1,
            bytes: 0,
            seconds: None,
            ops: 0,
            latency: crate::stats::latency_histogram(),
            latency_ns: LatencySummary::default(),
            flush_seconds: None,
            wire_ops: None,
            errors: 0,
            payload: String::new(),
            cache_state: None,
            durability: None,
            generator_bytes_per_s: None,
            burst: None,
            client_cpu_s: None,
            busiest_core_percent: None,
            host: HostCounters::default(),
            network_bytes: None,
            device_bytes: None,
            retransmits: None,
            negotiated: String::new(),
            status: Status::Ok,
            flags: Vec::new(),
            error: None,
            files: None,
        }
    }
}

impl Row {
    /// Whether another row is a repeat of the same cell and direction.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        (&self.stage, &self.target, &self.workload, &self.direction)
            == (
                &other.stage,
                &other.target,
                &other.workload,
                &other.direction,
            )
    }

    /// The accepted rate; None unless the row is whole.
    #[must_use]
    pub fn throughput(&self) -> Option<Rate> {
        self.headline()
            .filter(|_| self.bytes > 0)
            .map(|seconds| Rate(self.bytes as f64 / seconds))
    }

    /// Operations per second; None unless the row is whole.
    #[must_use]
    pub fn iops(&self) -> Option<f64> {
        self.headline()
            .filter(|_| !self.is_stream())
            .map(|seconds| self.ops as f64 / seconds)
    }

    /// Small files per second; of a listing all entries count. None for blocks, and unless the row is whole.
    #[must_use]
    pub fn files_per_s(&self) -> Option<f64> {
        let files = self.files?;
        let each = if self.direction == "list" {
            files.entries? as f64
        } else {
            1.0
        };
        self.iops().map(|iops| iops * each)
    }

    /// Bytes over the time up to the end of the flush; None for reads and where nothing was flushed.
    #[must_use]
    pub fn durable(&self) -> Option<Rate> {
        if !matches!(self.direction.as_str(), "write" | "create")
            || self.flags.contains(&Flag::NotDurable)
        {
            return None;
        }
        let synced = matches!(self.durability.as_deref(), Some("datasync" | "sync"));
        let flush = self.flush_seconds.or(synced.then_some(0.0))?;
        self.headline()
            .filter(|_| self.bytes > 0)
            .map(|seconds| Rate(self.bytes as f64 / (seconds + flush)))
    }

    /// CPU seconds for each 10^9 bytes.
    #[must_use]
    pub fn client_cpu_s_per_gb(&self) -> Option<f64> {
        self.headline().filter(|_| self.bytes > 0)?;
        self.client_cpu_s.map(|cpu| cpu * 1e9 / self.bytes as f64)
    }

    /// The measured time of a row that may have a headline number: no error, something moved.
    fn headline(&self) -> Option<f64> {
        let whole = self.errors == 0 && matches!(self.status, Status::Ok | Status::Interrupted);
        let moved = self.ops > 0 || (self.is_stream() && self.bytes > 0);
        self.seconds
            .filter(|seconds| whole && *seconds > 0.0 && moved)
    }

    /// Whether it is of a stream of bytes, which has no operations to count.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.pattern == STREAM
    }
}

/// One sample of a running cell, for intervals.csv.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Start, from the start of the measured time.
    pub from: Nanos,
    /// End, from the start of the measured time.
    pub to: Nanos,
    /// Operations that ended in it.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Mean latency in nanoseconds; None without operations.
    pub latency_mean_ns: Option<f64>,
    /// Longest latency in nanoseconds; None without operations.
    pub latency_max_ns: Option<u64>,
}

impl Interval {
    /// Whether it is as long as samples are meant to be, and none of the flush after the last completion.
    #[must_use]
    pub fn is_whole(&self, every: Nanos, row_seconds: Option<f64>) -> bool {
        let long = self.to.0.saturating_sub(self.from.0) >= every.0 / 10 * 8;
        long && row_seconds.is_some_and(|seconds| self.to.seconds() <= seconds + SLACK_S)
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this form.
    pub schema_version: u32,
    /// The run.
    pub run_id: String,
    /// The nasgauge that measured.
    pub nasgauge_version: String,
    /// The plan, as saved in plan.toml.
    pub plan: crate::spec::plan::Plan,
    /// Facts about this computer and the servers.
    pub environment: serde_json::Value,
    /// All rows, in the order in which they were measured.
    pub rows: Vec<Row>,
}
