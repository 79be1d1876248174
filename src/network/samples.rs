//! Samples of several tests on one clock: totals only over the time in which all of them ran.
//!
//! Pure. Times are in seconds, sizes in bytes.

use crate::network::Sample;

/// The time in which every one of these series has samples, warm-up left out; None when there is none.
#[must_use]
pub fn common_window(series: &[Vec<Sample>]) -> Option<(f64, f64)> {
    let mut window: Option<(f64, f64)> = None;
    for samples in series {
        let from = samples.first()?.from;
        let to = samples.last()?.to;
        window = Some(window.map_or((from, to), |(start, end): (f64, f64)| {
            (start.max(from), end.min(to))
        }));
    }
    window.filter(|(from, to)| to > from)
}

/// Bytes of a series within a window; a sample that reaches over an edge counts by its share.
#[must_use]
pub fn bytes_within(samples: &[Sample], (from, to): (f64, f64)) -> f64 {
    samples
        .iter()
        .map(|sample| {
            let length = sample.to - sample.from;
            let inside = sample.to.min(to) - sample.from.max(from);
            if length > 0.0 && inside > 0.0 {
                sample.bytes as f64 * (inside / length).min(1.0)
            } else {
                0.0
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(from: f64, count: u32) -> Vec<Sample> {
        (0..count)
            .map(|index| Sample {
                from: from + f64::from(index),
                to: from + f64::from(index + 1),
                bytes: 100,
            })
            .collect()
    }

    #[test]
    fn totals_are_over_the_common_time_only() {
        let both = [series(0.0, 5), series(0.5, 6)];
        let window = common_window(&both).expect("they overlap");
        assert!((window.0 - 0.5).abs() < 1e-9 && (window.1 - 5.0).abs() < 1e-9);
        let total: f64 = both
            .iter()
            .map(|samples| bytes_within(samples, window))
            .sum();
        assert!((total - 900.0).abs() < 1e-9, "{total}");
    }

    #[test]
    fn tests_that_never_ran_together_have_no_total() {
        assert_eq!(common_window(&[series(0.0, 2), series(3.0, 2)]), None);
        assert_eq!(common_window(&[series(0.0, 2), Vec::new()]), None);
        assert_eq!(common_window(&[]), None);
    }
}
