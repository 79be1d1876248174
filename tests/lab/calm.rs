//! Measurements of a virtual machine's calm moments.
//!
//! Its neighbours take its processors at times, and then nothing that is imposed holds: a delay of 500 us is one of 5 ms. The
//! kernel counts what was taken, whatever was measured meanwhile; so what to believe is not chosen by what was wished for.

use std::path::Path;

use nasgauge::probe::cpu;

/// Measures until `wanted` times nothing was taken, or three times as often at most; gives the median of the `wanted`
/// calmest.
pub fn calm(wanted: usize, mut measure: impl FnMut() -> f64) -> f64 {
    let read = || cpu::read(Path::new("/"));
    let mut all: Vec<(f64, f64)> = Vec::new();
    while all.len() < 3 * wanted && all.iter().filter(|(taken, _)| *taken <= 0.0).count() < wanted {
        let before = read();
        let value = measure();
        let during = read().zip(before).and_then(|(now, then)| now.since(&then));
        // A computer of one's own counts nothing: all its moments are calm.
        let taken = during.and_then(|ticks| ticks.steal()).unwrap_or(0.0);
        all.push((taken, value));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut calmest: Vec<f64> = all.iter().take(wanted).map(|(_, value)| *value).collect();
    calmest.sort_by(f64::total_cmp);
    calmest[calmest.len() / 2]
}

/// What a line carries when nothing disturbs, from the rates of parts of one measurement: the upper quartile. Whatever takes
/// the processors away makes parts slower and none faster, so three quarters of them may be lost.
pub fn undisturbed(mut parts: Vec<f64>) -> f64 {
    assert!(parts.len() >= 8, "too few parts to choose from: {parts:?}");
    parts.sort_by(f64::total_cmp);
    parts[parts.len() * 3 / 4]
}
