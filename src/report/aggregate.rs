//! Repeats of a cell taken together: mean and interval of each figure over those that are ok, and what a reader must know
//! of them.
//!
//! Pure. Must not know: how it is printed.

use crate::record::{Flag, Row, Status};
use crate::spec::repeats::Repeats;
use crate::stats::{Mean, mean_of, sequential, trend};

/// A figure that a row may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The accepted rate in bytes per second.
    Throughput,
    /// The rate up to the end of the flush in bytes per second.
    Durable,
    /// Operations per second.
    Iops,
    /// Small files per second.
    Files,
    /// Mean latency in microseconds.
    Latency,
}

impl Metric {
    /// All of them, in the order of aggregate.csv.
    pub const ALL: [Self; 5] = [
        Self::Throughput,
        Self::Durable,
        Self::Iops,
        Self::Files,
        Self::Latency,
    ];
    /// Those that `--repeats auto` wants to know well. Latency follows from them in a closed loop, and is
    /// free to scatter where `rate_iops` fixes the rate.
    pub const RATES: [Self; 3] = [Self::Throughput, Self::Durable, Self::Iops];

    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Throughput => "throughput_bytes_per_s",
            Self::Durable => "durable_bytes_per_s",
            Self::Iops => "iops",
            Self::Files => "files_per_s",
            Self::Latency => "latency_us_mean",
        }
    }

    /// Its value in a row.
    #[must_use]
    pub fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::Throughput => row.throughput().map(|rate| rate.0),
            Self::Durable => row.durable().map(|rate| rate.0),
            Self::Iops => row.iops(),
            Self::Files => row.files_per_s(),
            Self::Latency => row.latency_ns.mean.map(|nanos| nanos / 1e3),
        }
    }
}

/// All repeats of one direction of one cell.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The repeats in their order; one at least.
    pub rows: Vec<&'a Row>,
}

/// A figure over the repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Which.
    pub metric: Metric,
    /// Its mean and interval.
    pub mean: Mean,
    /// How far it rose, or fell when negative, over the repeats, as a share of the first; None when it did not.
    pub trend: Option<f64>,
}

impl Aggregate {
    /// Marks that no single row can bear.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        self.trend.map(|_| Flag::Trend).into_iter().collect()
    }
}

/// Rows by cell and direction, in the order of their first repeats.
#[must_use]
pub fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group.rows[0].repeats(row)) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { rows: vec![row] }),
        }
    }
    groups
}

impl Group<'_> {
    /// A figure of each repeat that is ok and has it.
    #[must_use]
    pub fn samples(&self, metric: Metric) -> Vec<f64> {
        let good = self.rows.iter().filter(|row| row.status == Status::Ok);
        good.filter_map(|row| metric.of(row)).collect()
    }

    /// Repeats that do not count.
    #[must_use]
    pub fn failed(&self) -> usize {
        let failed = self.rows.iter().filter(|row| row.status != Status::Ok);
        failed.count()
    }

    /// A figure over the repeats that are ok; None when none has it. `repeats` is how their number was chosen.
    #[must_use]
    pub fn aggregate(&self, metric: Metric, repeats: Repeats) -> Option<Aggregate> {
        let samples = self.samples(metric);
        let mean = match repeats {
            Repeats::Fixed(_) => mean_of(&samples),
            Repeats::Auto => sequential::mean_of(&samples),
        };
        Some(Aggregate {
            metric,
            mean: mean?,
            trend: trend::trend(&samples),
        })
    }

    /// Whether `--repeats auto` needs no more of this cell: enough repeats, and every rate that it has is known well.
    /// A cell of which each repeat failed has none, so it holds nothing up.
    #[must_use]
    pub fn settled(&self) -> bool {
        let known = |metric: &Metric| {
            let samples = self.samples(*metric);
            samples.is_empty() || sequential::settled(&samples)
        };
        self.rows.len() >= sequential::LEAST && Metric::RATES.iter().all(known)
    }
}
