//! Whether repeats rise or fall: the test of Mann and Kendall, and the slope of Sen.
//!
//! Each pair of samples votes: the later one is larger or smaller. Without a trend every order of the samples is as likely
//! as any other, so the odds of a vote are counted exactly, whatever the samples' distribution (Mann, Econometrica
//! 13, 1945, 245; Kendall, Rank Correlation Methods, 1948). Equal samples abstain, which makes the test stricter. The size is
//! Sen's (J. Am. Stat. Assoc. 63, 1968, 1379): the median slope of all pairs, so that one outlier makes no trend.
//!
//! Pure. Must not know: what a sample is.

/// Odds at which pure noise may look like a trend, both directions together. With five samples only an unbroken rise or
/// fall is that rare (1 in 60); with fewer nothing is.
const ODDS: f64 = 0.02;
/// A change smaller than this share of the first sample is no news.
const MATTERS: f64 = 0.02;
/// More samples than these are judged by the normal distribution, which by then is within a tenth of the odds.
const COUNTED: usize = 40;

/// How far the samples rose (or fell, when negative) from the first to the last, as a share of the first on Sen's line;
/// None when it may be noise or is too little to matter.
#[must_use]
pub fn trend(samples: &[f64]) -> Option<f64> {
    if odds(samples.len(), votes(samples)) > ODDS {
        return None;
    }
    let rise = slope(samples) * (samples.len() - 1) as f64;
    let start = median(samples.to_vec()) - rise / 2.0;
    let change = rise / start;
    (start > 0.0 && change.abs() >= MATTERS).then_some(change)
}

/// Pairs whose later sample is larger, less those whose later one is smaller.
fn votes(samples: &[f64]) -> i64 {
    pairs(samples)
        .map(|(_, earlier, later)| i64::from(later > earlier) - i64::from(later < earlier))
        .sum()
}

/// Each pair with its distance.
fn pairs(samples: &[f64]) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
    samples.iter().enumerate().flat_map(move |(at, earlier)| {
        samples[at + 1..]
            .iter()
            .enumerate()
            .map(move |(gap, later)| (gap + 1, *earlier, *later))
    })
}

fn slope(samples: &[f64]) -> f64 {
    median(
        pairs(samples)
            .map(|(gap, earlier, later)| (later - earlier) / gap as f64)
            .collect(),
    )
}

/// The median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The odds that the votes of this many samples without a trend are as one-sided as these.
fn odds(samples: usize, votes: i64) -> f64 {
    if samples > COUNTED {
        roughly(samples, votes)
    } else {
        counted(samples, votes)
    }
}

/// Those odds, counted over all orders of the samples.
fn counted(samples: usize, votes: i64) -> f64 {
    // The share of orders with each number of pairs in falling order, one sample more at a time.
    let mut share = vec![1.0];
    for n in 2..=samples {
        let mut next = vec![0.0; share.len() + n - 1];
        for (falling, part) in share.iter().enumerate() {
            for more in 0..n {
                next[falling + more] += part / n as f64;
            }
        }
        share = next;
    }
    let pairs = share.len() as u64 - 1;
    // Each pair that abstained counts half against the trend; the odd half is rounded against it too.
    let against = pairs.saturating_sub(votes.unsigned_abs()).div_ceil(2);
    let tail: f64 = share.iter().take(against as usize + 1).sum();
    (2.0 * tail).min(1.0)
}

/// Those odds by the normal distribution.
fn roughly(samples: usize, votes: i64) -> f64 {
    let n = samples as f64;
    let spread = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let beyond = (votes.abs() as f64 - 1.0).max(0.0) / spread;
    statrs::function::erf::erfc(beyond / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use rand_distr::{Distribution, Normal};

    use super::*;
    use crate::stats::sequential::{LEAST, MOST, settled};

    /// Simulated cells of each kind.
    const CELLS: u32 = 4_000;

    fn noise(rng: &mut SmallRng, number: usize, scatter: f64) -> Vec<f64> {
        let normal = Normal::new(1.0, scatter).expect("finite");
        (0..number).map(|_| normal.sample(rng)).collect()
    }

    fn share_marked(mut cell: impl FnMut() -> Vec<f64>) -> f64 {
        let marked = (0..CELLS).filter(|_| trend(&cell()).is_some()).count();
        marked as f64 / f64::from(CELLS)
    }

    /// All orders of the numbers below `n`, each as its votes.
    fn all_votes(n: usize) -> Vec<i64> {
        let mut orders: Vec<Vec<f64>> = vec![Vec::new()];
        for number in 0..n {
            orders = orders
                .iter()
                .flat_map(|order| {
                    (0..=order.len()).map(move |at| {
                        let mut longer = order.clone();
                        longer.insert(at, number as f64);
                        longer
                    })
                })
                .collect();
        }
        orders.iter().map(|order| votes(order)).collect()
    }

    #[test]
    fn the_odds_are_those_of_all_orders() {
        for n in 2..=7 {
            let all = all_votes(n);
            for vote in &all {
                let beyond = all.iter().filter(|other| other.abs() >= vote.abs()).count();
                let counted = beyond as f64 / all.len() as f64;
                assert!((odds(n, *vote) - counted).abs() < 1e-12, "{vote} of {n}");
            }
        }
        // The two ways of judging meet where one takes over.
        for vote in [100, 200, 220] {
            let (exact, normal) = (counted(COUNTED, vote), roughly(COUNTED, vote));
            assert!((normal / exact - 1.0).abs() < 0.1, "{exact} and {normal}");
        }
    }

    #[test]
    fn pure_noise_is_rarely_marked() {
        let mut rng = SmallRng::seed_from_u64(1);
        for number in [5, 6, 8, 10, 15, 50] {
            let marked = share_marked(|| noise(&mut rng, number, 0.05));
            assert!(marked < 0.03, "{marked} of {number}");
        }
        // Where the number itself depends on what was seen.
        for scatter in [0.01, 0.03, 0.05] {
            let marked = share_marked(|| {
                let mut cell = noise(&mut rng, MOST, scatter);
                let stop = (LEAST..MOST).find(|n| settled(&cell[..*n]));
                cell.truncate(stop.unwrap_or(MOST));
                cell
            });
            assert!(marked < 0.05, "{marked} at {scatter}");
        }
    }

    #[test]
    fn a_real_trend_is_marked_with_its_size() {
        let falling: Vec<f64> = (0..8).map(|n| 100.0 - 18.0 * f64::from(n) / 7.0).collect();
        assert!((trend(&falling).expect("it falls") + 0.18).abs() < 1e-9);
        let mut rng = SmallRng::seed_from_u64(2);
        let marked = share_marked(|| {
            let scatter = noise(&mut rng, 8, 0.01);
            scatter
                .iter()
                .zip(&falling)
                .map(|(one, two)| one * two)
                .collect()
        });
        assert!(marked > 0.99, "{marked}");
        let mut outlier = falling.clone();
        outlier[0] = 1000.0;
        assert!((trend(&outlier).expect("it falls") + 0.18).abs() < 0.02);
    }

    #[test]
    fn little_is_no_trend() {
        assert_eq!(trend(&[]), None);
        assert_eq!(trend(&[4.0, 3.0, 2.0, 1.0]), None, "four may be chance");
        assert!(trend(&[5.0, 4.0, 3.0, 2.0, 1.0]).is_some());
        assert_eq!(trend(&[5.0, 4.0, 3.0, 1.0, 2.0]), None, "1 in 12 is chance");
        assert_eq!(trend(&[7.0; 30]), None);
        let slight: Vec<f64> = (0..8).map(|n| 100.0 + 0.1 * f64::from(n)).collect();
        assert_eq!(trend(&slight), None, "0.7 % is no news");
    }
}
