//! Where a series falls off for good: a burst that a cache took, and what lasts.
//!
//! The series is cut in two where the squared distances from both means are least (the maximum likelihood of one change of the
//! mean in normal noise; Hinkley, Biometrika 57, 1970, 1). It is a cliff only if the burst is much faster than what lasts, and
//! both are steadier than the step between them. Pure. Must not know: what a sample is.

/// A part of a series is judged from so many samples on.
const LEAST: usize = 3;
/// A burst is so many times as fast as what lasts.
const STEP: f64 = 1.5;
/// What lasts scatters by no more than this share of itself.
const STEADY: f64 = 0.5;
/// The scatter within both parts, as a share of the step between them.
const SCATTER: f64 = 0.5;

/// A series that falls off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cliff {
    /// The number of samples before it.
    pub at: usize,
    /// Their mean.
    pub burst: f64,
    /// The mean of those after it.
    pub sustained: f64,
}

/// The cliff of a series of samples of equal length; None where there is none.
#[must_use]
pub fn cliff(samples: &[f64]) -> Option<Cliff> {
    let cuts = LEAST..=samples.len().checked_sub(LEAST)?;
    let (at, _) = cuts
        .map(|at| {
            let (before, after) = samples.split_at(at);
            (at, squares(before) + squares(after))
        })
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (before, after) = samples.split_at(at);
    let (burst, sustained) = (mean(before), mean(after));
    let scatter = ((squares(before) + squares(after)) / samples.len() as f64).sqrt();
    // A stall is not what lasts.
    let steady = (squares(after) / after.len() as f64).sqrt() <= STEADY * sustained;
    let falls = sustained > 0.0 && burst >= STEP * sustained && steady;
    (falls && scatter <= SCATTER * (burst - sustained)).then_some(Cliff {
        at,
        burst,
        sustained,
    })
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The sum of squared distances from the mean.
fn squares(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    samples.iter().map(|sample| (sample - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_what_lasts_are_told_apart() {
        let samples = [117.0, 116.0, 118.0, 30.0, 29.0, 31.0, 30.0, 28.0];
        let found = cliff(&samples).expect("a cliff");
        assert_eq!(found.at, 3);
        assert!((found.burst - 117.0).abs() < 1.0 && (found.sustained - 29.6).abs() < 0.1);
    }

    #[test]
    fn noise_a_rise_a_single_stall_and_a_few_samples_are_none() {
        for samples in [
            &[100.0, 90.0, 110.0, 95.0, 105.0, 99.0, 101.0][..],
            &[30.0, 30.0, 31.0, 117.0, 116.0, 118.0],
            &[100.0, 100.0, 100.0, 5.0, 100.0, 100.0, 100.0],
            &[100.0, 100.0, 100.0, 80.0, 80.0, 80.0],
            &[117.0, 117.0, 30.0, 30.0],
            &[100.0, 20.0, 90.0, 15.0, 95.0, 10.0, 90.0, 20.0],
            &[50.0, 50.0, 50.0, 0.0, 0.0, 0.0],
            &[82.0, 77.0, 104.0, 62.0, 21.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0],
            &[],
        ] {
            assert_eq!(cliff(samples), None, "{samples:?}");
        }
    }
}
