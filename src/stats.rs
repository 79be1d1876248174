//! Statistics: latency histograms, percentiles that say nothing when there is too little, and confidence intervals.
//!
//! `sequential` says when to stop repeating and what that costs the interval; `trend` whether repeats rise or fall;
//! `cliff` where a series falls off for good.
//! Pure. Latencies are nanoseconds. Must not know: where samples come from.

use hdrhistogram::Histogram;
use statrs::distribution::{ContinuousCDF, StudentsT};

pub mod cliff;
pub mod sequential;
pub mod trend;

/// Longest latency recorded as itself, in nanoseconds: 100 s.
pub const LATENCY_MAX_NS: u64 = 100_000_000_000;
/// A percentile is stated only with at least this many samples above it.
const SAMPLES_ABOVE: f64 = 10.0;
/// Where a two-sided 95 % interval ends when the number of samples was fixed beforehand.
const FIXED: f64 = 0.975;

/// An empty latency histogram: 1 ns to 100 s, three significant digits.
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    histogram(3)
}

/// The same latencies in buckets of two significant digits.
#[must_use]
pub fn coarse(fine: &Histogram<u64>) -> Histogram<u64> {
    let mut coarse = histogram(2);
    for bucket in fine.iter_recorded() {
        coarse.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
    }
    coarse
}

fn histogram(digits: u8) -> Histogram<u64> {
    let Ok(histogram) = Histogram::new_with_bounds(1, LATENCY_MAX_NS, digits) else {
        // The bounds are constants that the crate accepts; a test holds them so.
        unreachable!("constant histogram bounds are valid")
    };
    histogram
}

/// The latency at `percentile` (0 to 100) in nanoseconds; None when fewer than ten samples lie above it.
#[must_use]
pub fn percentile_ns(histogram: &Histogram<u64>, percentile: f64) -> Option<u64> {
    let above = histogram.len() as f64 * (100.0 - percentile) / 100.0;
    // Half a sample of slack: 100 samples at p90 leave 10 above, give or take the floating point.
    (above > SAMPLES_ABOVE - 0.5).then(|| histogram.value_at_percentile(percentile))
}

/// A mean with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// How many samples.
    pub n: usize,
    /// Their arithmetic mean.
    pub mean: f64,
    /// The interval by Student's t; None below two samples.
    pub interval: Option<(f64, f64)>,
}

impl Mean {
    /// Half of the interval's width as a share of the mean: 0.02 is "within 2 %". None without an interval or where the
    /// mean is not above zero.
    #[must_use]
    pub fn within(&self) -> Option<f64> {
        let (low, high) = self.interval.filter(|_| self.mean > 0.0)?;
        Some((high - low) / 2.0 / self.mean)
    }
}

/// Mean and 95 % interval (Student's t, two-sided) of samples whose number was fixed beforehand; None without samples.
#[must_use]
pub fn mean_of(samples: &[f64]) -> Option<Mean> {
    mean_up_to(samples, FIXED)
}

/// Mean and the interval that ends at this quantile of Student's t on both sides.
fn mean_up_to(samples: &[f64], quantile: f64) -> Option<Mean> {
    if samples.is_empty() {
        return None;
    }
    let n = samples.len();
    let mean = samples.iter().sum::<f64>() / n as f64;
    let interval = (n >= 2).then(|| {
        let variance = samples
            .iter()
            .map(|sample| (sample - mean).powi(2))
            .sum::<f64>()
            / (n - 1) as f64;
        let half = t_quantile(n - 1, quantile) * (variance / n as f64).sqrt();
        (mean - half, mean + half)
    });
    Some(Mean { n, mean, interval })
}

/// A quantile of Student's t with this many degrees of freedom.
fn t_quantile(freedom: usize, quantile: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(quantile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_stay_empty_when_too_few_samples_lie_above() {
        let mut histogram = latency_histogram();
        for value in 1..=100u64 {
            histogram.record(value * 1_000).expect("in range");
        }
        assert_eq!(percentile_ns(&histogram, 50.0), Some(50_015));
        assert!(percentile_ns(&histogram, 90.0).is_some());
        assert_eq!(percentile_ns(&histogram, 99.0), None);
    }

    #[test]
    fn a_skewed_distribution_is_not_clipped() {
        let mut histogram = latency_histogram();
        histogram.record_n(30_000, 99_900).expect("in range");
        histogram.record_n(600_000_000, 100).expect("in range");
        let close = |got: f64, want: f64| (got / want - 1.0).abs() < 0.01;
        assert!(close(histogram.mean(), 630_000.0 - 30.0));
        assert!(close(
            percentile_ns(&histogram, 50.0).expect("many") as f64,
            30_000.0
        ));
        assert!(close(histogram.max() as f64, 600_000_000.0));
    }

    #[test]
    fn the_interval_is_students() {
        let mean = mean_of(&[10.0, 12.0, 11.0, 13.0, 14.0]).expect("five samples");
        let (low, high) = mean.interval.expect("five samples");
        // s = 1.5811, t(4) = 2.7764, half = 1.9632
        assert!(
            (mean.mean - 12.0).abs() < 1e-12
                && (low - 10.0368).abs() < 1e-3
                && (high - 13.9632).abs() < 1e-3
        );
        assert_eq!(mean_of(&[1.0]).expect("one").interval, None);
        assert_eq!(mean_of(&[]), None);
    }
}
