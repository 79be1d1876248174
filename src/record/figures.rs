//! Groups of figures within a row: latencies, small files, what this computer did meanwhile.
//!
//! Pure. Unknown is None, never 0. Must not know: how anything was measured. Units stand in names and descriptions.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What this computer did in the measured time of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCounters {
    /// The kernel's number of the busiest core.
    pub busiest_core: Option<u32>,
    /// The share of that core's time that interrupts and the network stack took, 0 to 100.
    pub busiest_core_softirq_percent: Option<f64>,
    /// The share of all cores' time that the hypervisor took for others, 0 to 100.
    pub steal_percent: Option<f64>,
    /// Periods in which the control group of this process was stopped, its share of the processor used up.
    pub throttled_periods: Option<u64>,
}

/// A beginning that did not last: a cache took it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// The rate at the beginning, in bytes per second.
    pub bytes_per_s: f64,
    /// Bytes until it fell off.
    pub bytes: u64,
    /// The rate from then on, in bytes per second.
    pub sustained_bytes_per_s: f64,
}

/// Small files of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallFiles {
    /// How many.
    pub nrfiles: u32,
    /// Bytes in each.
    pub filesize: u64,
    /// Entries that each listing showed; None where nothing was listed.
    pub entries: Option<u64>,
}

/// Latency figures in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<u64>,
    /// 90th percentile.
    pub p90: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

impl LatencySummary {
    /// The figures of a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |percentile| crate::stats::percentile_ns(histogram, percentile);
        Self {
            mean: Some(histogram.mean()),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: Some(histogram.max()),
        }
    }
}
