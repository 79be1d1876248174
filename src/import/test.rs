//! One test of a storage tool, and its rows.
//!
//! Pure. Bytes, nanoseconds, seconds. Must not know: formats.

use hdrhistogram::Histogram;

use crate::record::{Flag, LatencySummary, Row, Status};
use crate::stats::{LATENCY_MAX_NS, latency_histogram};

/// A test shorter than this has no steady figure.
const SHORT_S: f64 = 3.0;
/// Fewer operations are no figure either.
const FEW_OPS: u64 = 100;
/// A percentile needs about ten slower operations, as [`crate::stats::percentile_ns`] has it.
const SLOWER: f64 = 9.5;
/// Bytes that two fields of a file tell may differ by this share before it is said.
const AGREE: f64 = 0.01;

/// What all rows of a test share.
#[derive(Debug, Clone)]
pub(super) struct Test {
    /// A row with all that is the same for both directions.
    pub(super) row: Row,
    /// Processor time of the tool.
    pub(super) cpu_s: Option<f64>,
}

/// One direction of a test, as its tool tells it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Side {
    pub(super) bytes: u64,
    pub(super) ops: u64,
    pub(super) seconds: Option<f64>,
    /// The rate as the tool prints it, in bytes per second.
    pub(super) printed: Option<f64>,
    pub(super) mean_ns: Option<f64>,
    pub(super) max_ns: Option<u64>,
    /// Percentiles (0 to 100) with their nanoseconds.
    pub(super) percentiles: Vec<(f64, u64)>,
    /// Nanoseconds with how often.
    pub(super) bins: Vec<(u64, u64)>,
}

fn longer(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

impl Side {
    /// Whether anything was moved.
    pub(super) const fn moved(&self) -> bool {
        self.bytes > 0 || self.ops > 0
    }

    /// Its rate by bytes and time; None without a time.
    pub(super) fn rate(&self) -> Option<f64> {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        Some(self.bytes as f64 / seconds)
    }

    /// What the tool's own rate contradicts; None where both agree.
    pub(super) fn contradiction(&self) -> Option<String> {
        let (rate, printed) = (self.rate()?, self.printed?);
        let off = printed / rate - 1.0;
        (off.abs() > AGREE).then(|| {
            format!(
                "bytes and time are {:.1} MB/s, the printed rate is {:.1} MB/s ({:+.1} %)",
                rate / 1e6,
                printed / 1e6,
                off * 100.0
            )
        })
    }

    /// Both at once, as clones of one job are: times overlap, percentiles can be added up only as bins.
    pub(super) fn with(self, other: Self) -> Self {
        let (a, b) = (self.ops as f64, other.ops as f64);
        let mean = self.mean_ns.zip(other.mean_ns);
        let mut bins = self.bins;
        let whole = !bins.is_empty() && !other.bins.is_empty();
        bins.extend(other.bins);
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            ops: self.ops.saturating_add(other.ops),
            seconds: longer(self.seconds, other.seconds),
            printed: self.printed.zip(other.printed).map(|(a, b)| a + b),
            mean_ns: mean
                .filter(|_| a + b > 0.0)
                .map(|(first, second)| (first * a + second * b) / (a + b)),
            max_ns: self.max_ns.max(other.max_ns),
            percentiles: Vec::new(),
            bins: if whole { bins } else { Vec::new() },
        }
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = latency_histogram();
        for (nanos, count) in &self.bins {
            histogram.saturating_record_n((*nanos).clamp(1, LATENCY_MAX_NS), *count);
        }
        histogram
    }

    /// Latencies as far as so many operations bear them.
    fn latency(&self, histogram: &Histogram<u64>) -> LatencySummary {
        if self.ops == 0 {
            return LatencySummary::default();
        }
        let of = LatencySummary::of(histogram);
        let at = |wanted: f64, of: Option<u64>| {
            let told = self
                .percentiles
                .iter()
                .find(|(at, _)| (at - wanted).abs() < 1e-6);
            let slower = self.ops as f64 * (100.0 - wanted) / 100.0;
            told.map(|(_, nanos)| *nanos)
                .filter(|_| slower > SLOWER)
                .or(of)
        };
        LatencySummary {
            mean: self.mean_ns.or(of.mean),
            p50: at(50.0, of.p50),
            p90: at(90.0, of.p90),
            p99: at(99.0, of.p99),
            p999: at(99.9, of.p999),
            max: self.max_ns.or(of.max),
        }
    }
}

impl Test {
    /// The row of one direction.
    pub(super) fn row(&self, direction: &str, side: &Side) -> Row {
        let latency = side.histogram();
        let mut row = Row {
            direction: direction.to_owned(),
            bytes: side.bytes,
            ops: side.ops,
            seconds: side.seconds.filter(|seconds| *seconds > 0.0),
            latency_ns: side.latency(&latency),
            latency,
            client_cpu_s: self.cpu_s,
            ..self.row.clone()
        };
        if row.status == Status::Ok && !side.moved() {
            row.status = Status::Failed;
            row.errors = row.errors.max(1);
            row.error = Some("nothing was read or written".into());
        }
        let best = row.flags.contains(&Flag::Max);
        if !best && (row.seconds.is_none_or(|seconds| seconds < SHORT_S) || row.ops < FEW_OPS) {
            row.flags.push(Flag::TooShort);
        }
        if direction == "write" && row.durability.as_deref() == Some("none") {
            row.flags.push(Flag::NotDurable);
        }
        if direction == "write" && row.payload == "zero" {
            row.flags.push(Flag::Compressible);
        }
        if row.status == Status::Interrupted {
            row.flags.push(Flag::Interrupted);
        }
        row.flags.sort_unstable();
        row.flags.dedup();
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(ops: u64) -> Side {
        Side {
            bytes: ops * 4096,
            ops,
            seconds: Some(10.0),
            mean_ns: Some(1000.0),
            max_ns: Some(5000),
            percentiles: vec![(50.0, 900), (99.0, 4000), (99.9, 4900)],
            ..Side::default()
        }
    }

    fn test() -> Test {
        Test {
            row: Row {
                durability: Some("none".into()),
                ..Row::blank()
            },
            cpu_s: None,
        }
    }

    #[test]
    fn percentiles_of_too_few_are_not_taken_over() {
        let row = test().row("read", &side(1000));
        let latency = row.latency_ns;
        assert_eq!(
            (latency.p50, latency.p99, latency.p999),
            (Some(900), Some(4000), None)
        );
        assert!(row.flags.is_empty());
        assert_eq!(test().row("write", &side(1000)).flags, [Flag::NotDurable]);
    }

    #[test]
    fn nothing_moved_is_a_failure_without_figures() {
        let row = test().row(
            "read",
            &Side {
                seconds: Some(10.0),
                mean_ns: Some(0.0),
                ..Side::default()
            },
        );
        assert_eq!(
            (row.status, row.throughput(), row.latency_ns.mean),
            (Status::Failed, None, None)
        );
        assert!(row.error.is_some());
    }

    #[test]
    fn clones_add_up_and_their_bins_too() {
        let mut one = side(1000);
        one.bins = vec![(1000, 1000)];
        let mut other = side(3000);
        other.bins = vec![(2000, 3000)];
        other.mean_ns = Some(2000.0);
        other.seconds = Some(12.0);
        let both = one.clone().with(other);
        assert_eq!(
            (both.ops, both.seconds, both.mean_ns),
            (4000, Some(12.0), Some(1750.0))
        );
        let row = test().row("read", &both);
        let median = row.latency_ns.p50.expect("enough");
        assert!((1990..=2010).contains(&median), "{median}");
        assert!(one.with(side(5)).bins.is_empty());
    }

    #[test]
    fn a_printed_rate_that_contradicts_is_told() {
        let mut one = side(1000);
        one.printed = Some(one.rate().expect("a rate") * 1.05);
        assert!(one.contradiction().expect("told").contains("+5.0 %"));
        one.printed = one.rate();
        assert_eq!(one.contradiction(), None);
    }
}
