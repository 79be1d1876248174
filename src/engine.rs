//! The measuring loop: one worker drives one session through one phase.
//!
//! Read `worker` first: submit, reap, count; `files` is the same for whole small files, one call at a time, and `pipeline` the
//! loop of a copy. A worker owns its slots, pattern, payload and histograms; per operation it takes no lock, allocates nothing,
//! formats nothing and copies no payload. What others may see while it runs are the atomic counters of [`Live`], written by the
//! worker alone.
//!
//! Must not know: protocols (it sees [`crate::target::Session`]), where it runs, or what becomes of its report.
//! Times are nanoseconds of the session's clock.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::op::Direction;
use crate::payload::Content;
use crate::spec::workload::Phase;
use crate::target::Attach;

pub mod files;
mod histogram_bytes;
pub mod live;
pub mod pipeline;
pub mod worker;

pub use live::Live;
pub use worker::run;

/// What one worker is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The phase, with the depth of one lane.
    pub phase: Phase,
    /// This worker, from 0.
    pub lane: u16,
    /// How many workers share the phase.
    pub lanes: u16,
    /// How to open the data.
    pub attach: Attach,
    /// First byte of the region that may be used.
    pub base: u64,
    /// Seed of the access pattern.
    pub seed: u64,
    /// What blocks hold.
    pub content: Content,
    /// Generation of the first block written; later ones count up. None writes the first generation throughout.
    pub generation: Option<u64>,
    /// Whether the target can make writes durable at the end.
    pub flush: bool,
    /// The small files to work on; None for blocks.
    #[serde(default)]
    pub files: Option<FileJob>,
}

/// The small files that the workers of a phase share, each a part of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileJob {
    /// The run's name, with which all names begin.
    pub run: String,
    /// They have their second names.
    pub renamed: bool,
    /// Entries that a listing must show; None where nobody knows.
    pub entries: Option<u64>,
}

/// Operations of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Operations that ended in the measured time.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Their latencies in nanoseconds.
    #[serde(with = "histogram_bytes")]
    pub latency: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            ops: 0,
            bytes: 0,
            latency: crate::stats::latency_histogram(),
        }
    }
}

impl Tally {
    /// Adds another worker's operations; histograms merge, nothing is averaged.
    pub fn merge(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        // Both have the same constant bounds, so the addition can't fail.
        let _ = self.latency.add(&other.latency);
    }
}

/// What one worker found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Start of the measured time.
    pub started_ns: u64,
    /// The last completion.
    pub ended_ns: u64,
    /// End of the final flush; None when nothing was flushed.
    pub flushed_ns: Option<u64>,
    /// Flushes in mid-run, by `fsync=N`.
    pub flushes: u64,
    /// Bytes written in all, ramp included.
    pub written: u64,
    /// Generations used: one for each block written, ramp included.
    pub generations: u64,
    /// One past the highest byte written, from the region's start.
    pub high_water: u64,
    /// CPU time of the worker in the measured time.
    pub cpu_ns: u64,
    /// Requests on the wire in the measured time, its final flush left out, where known.
    pub wire_ops: Option<u64>,
    /// What the peers agreed on.
    pub negotiated: String,
    /// Entries that each listing showed; None where nothing was listed.
    #[serde(default)]
    pub entries: Option<u64>,
    /// Operations that started later than intended, in rate mode.
    pub late: u64,
    /// Why it ended early.
    pub error: Option<Error>,
    /// It was told to stop.
    pub stopped: bool,
}

impl Report {
    /// The tally of a direction.
    #[must_use]
    pub const fn tally(&self, direction: Direction) -> &Tally {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}
