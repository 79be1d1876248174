//! What explains the difference between a right rate and the one that somebody published.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: other readings.

use crate::recompute::quantity::{Quantity, Span, near};
use crate::recompute::reading::Reading;
use crate::recompute::units::Base;
use crate::recompute::words;

/// A cause explains a difference that it leaves smaller than this.
const EXPLAINED: f64 = 0.006;
/// A size that was rounded before it was divided is off by no more than this, and by no less than the other.
const ROUNDED: (f64, f64) = (0.05, 0.002);

/// A cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// In words.
    pub words: String,
    /// What its prefixes are in it.
    pub base: Base,
}

/// What explains a printed rate where size and time give another one; None where nothing does.
#[must_use]
pub fn explain(reading: &Reading, size: Span, right: f64) -> Option<Cause> {
    let rate = reading.rates.first()?;
    let bases = if reading.is_open(rate) {
        vec![Base::Decimal, Base::Binary]
    } else {
        vec![reading.open(rate)]
    };
    let rounded = bases
        .iter()
        .find_map(|base| rounded(reading, rate, size, *base));
    rounded.or_else(|| {
        let causes = bases.iter().flat_map(|base| {
            let ratio = rate.span(*base).best / right;
            let left =
                move |(factor, words): (f64, String)| ((ratio / factor - 1.0).abs(), words, *base);
            factors(reading, rate).into_iter().map(left)
        });
        let (left, words, base) = causes.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (left <= EXPLAINED.max(rate.number.width().min(0.02))).then_some(Cause { words, base })
    })
}

/// By how much each mistake makes a rate too large.
fn factors(reading: &Reading, rate: &Quantity) -> Vec<(f64, String)> {
    let mut factors: Vec<(f64, String)> = vec![
        (8.0, "bits were taken for bytes".into()),
        (0.125, "bytes were taken for bits".into()),
        (60.0, "it is per minute".into()),
        (1.0 / 60.0, "it is per second, not per minute".into()),
    ];
    if rate.unit.power > 0 && rate.unit.base.is_none() {
        let binary = 1.024f64.powi(rate.unit.power);
        if reading.is_open(rate) {
            factors.push((1.0, format!("{} is by 1024", rate.printed)));
        } else {
            factors.push((1.0 / binary, format!("{} is by 1000 here", rate.printed)));
            factors.push((binary, format!("{} is by 1024 here", rate.printed)));
        }
    }
    let either = reading.time.as_ref().filter(|time| time.either);
    if let Some(time) = either {
        let words = format!("{} has a decimal comma (--decimal-comma)", time.printed);
        factors.push((1000.0, words));
    }
    if let Some((seconds, minutes)) = misread_time(reading) {
        factors.push((seconds, misread(&minutes.0, minutes.1, None)));
    }
    factors
}

/// How much shorter a clock's time is when it is read as minutes; its text, and the minutes.
fn misread_time(reading: &Reading) -> Option<(f64, (String, f64))> {
    let time = reading.time.as_ref()?;
    let wrong = time.misread()?;
    Some((time.span.best / wrong, (time.printed.clone(), wrong / 60.0)))
}

/// The same, and a size that was rounded to hundreds: 49000 used for 49,635 MiB.
fn rounded(reading: &Reading, rate: &Quantity, size: Span, base: Base) -> Option<Cause> {
    let (_, (printed, minutes)) = misread_time(reading)?;
    let unit = mega(base);
    let used = rate.span(base).best * minutes * 60.0 / unit;
    let round = (used / 100.0).round() * 100.0;
    let exact = near(used, round, rate.number.width());
    let off = (round * unit / size.best - 1.0).abs();
    let plausible = off <= ROUNDED.0 && off >= ROUNDED.1;
    (exact && plausible).then(|| Cause {
        words: misread(
            &printed,
            minutes,
            Some((&format!("{round}"), size.best, base)),
        ),
        base,
    })
}

const fn mega(base: Base) -> f64 {
    match base {
        Base::Decimal => 1e6,
        Base::Binary => 1_048_576.0,
    }
}

/// `1:47.07 was read as 1.47 minutes and 49000 used for 49,635 MiB`: the clock's text, the minutes, and where another size was
/// used its number, the right one in bytes, and whether by 1024.
#[must_use]
pub fn misread(clock: &str, minutes: f64, used: Option<(&str, f64, Base)>) -> String {
    let size = used.map_or_else(String::new, |(number, bytes, base)| {
        let unit = if base == Base::Binary { "MiB" } else { "MB" };
        let right = words::decimal(bytes / mega(base), 0);
        format!(" and {number} used for {right} {unit}")
    });
    format!(
        "{clock} was read as {} minutes{size}",
        words::decimal(minutes, 2)
    )
}
