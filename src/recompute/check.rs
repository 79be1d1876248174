//! Whether the parts of a reading agree, which rate is right, and what explains a difference.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: other readings, layouts.

use crate::recompute::parts::{Quantity, Span, Time};
use crate::recompute::reading::Reading;
use crate::recompute::units::Base;
use crate::recompute::words;

/// Parts that differ by less than this are taken to agree: rounding, or another clock.
pub const TOLERANCE: f64 = 0.01;
/// A cause explains a difference that it leaves smaller than this.
const EXPLAINED: f64 = 0.006;

/// What came out of one reading.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The reading.
    pub reading: Reading,
    /// Bytes moved.
    pub size: Option<Span>,
    /// The time it took.
    pub seconds: Option<Span>,
    /// The right rate.
    pub rate: Option<Span>,
    /// The rate as it was printed.
    pub printed: Option<Span>,
    /// How the parts stand to each other.
    pub status: Status,
    /// What must be said.
    pub sentences: Vec<String>,
}

/// How parts stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A rate alone.
    Stated,
    /// From size and time; no rate was printed.
    Computed,
    /// Size, time and rate agree.
    Agrees,
    /// They don't.
    Disagrees,
    /// A duration may be meant in two ways.
    Questioned,
}

impl Status {
    /// As files have it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Computed => "computed",
            Self::Agrees => "agrees",
            Self::Disagrees => "disagrees",
            Self::Questioned => "questioned",
        }
    }
}

/// How far off, as a share.
#[must_use]
pub fn off(printed: f64, right: f64) -> f64 {
    if right > 0.0 { printed / right - 1.0 } else { 0.0 }
}

/// Whether two spans agree: by their rounding, or within the tolerance.
fn agree(a: Span, b: Span) -> bool {
    a.meets(b) || off(a.best, b.best).abs() <= TOLERANCE
}

/// Checks a reading by itself.
#[must_use]
pub fn check(reading: Reading) -> Checked {
    let mut done = Checked {
        size: reading.size.as_ref().map(|size| reading.span(size)),
        seconds: reading.seconds(),
        rate: None,
        printed: reading.rates.first().map(|rate| reading.span(rate)),
        status: Status::Stated,
        sentences: Vec::new(),
        reading,
    };
    let computed = match (done.size, done.seconds) {
        (Some(size), Some(seconds)) => size.over(seconds),
        _ => None,
    };
    match (computed, done.printed) {
        (None, None) => without(&mut done),
        (None, Some(printed)) => {
            done.rate = Some(printed);
            implied(&mut done);
        }
        (Some(computed), None) => {
            done.rate = Some(computed);
            done.status = Status::Computed;
            interval(&mut done, computed);
        }
        (Some(computed), Some(printed)) => both(&mut done, computed, printed),
    }
    question(&mut done);
    again(&mut done);
    operations(&mut done);
    addends(&mut done);
    if let Some(label) = done.reading.tool.and_then(|tool| tool.label) {
        done.sentences.push(format!("{label}, not a mean"));
    }
    let lower = done.reading.text.to_lowercase();
    let peak = ["peak", "up to ", "never broke", "fastest"];
    if done.reading.tool.is_none() && peak.iter().any(|word| lower.contains(word)) {
        done.sentences.push("a peak, not a mean".into());
    }
    done.sentences.append(&mut done.reading.notes);
    done
}

/// A time too short to divide by.
fn without(done: &mut Checked) {
    if let (Some(size), Some(seconds)) = (done.size, done.seconds) {
        done.status = Status::Computed;
        let least = if seconds.high > 0.0 {
            format!(": at least {}", words::rate(size.low / seconds.high))
        } else {
            String::new()
        };
        done.sentences.push(format!(
            "the time is shorter than what it was printed in, so there is no rate{least}"
        ));
    }
}

/// A printed rate with a size or a time alone implies the other; a time of 0 is a hint at least.
fn implied(done: &mut Checked) {
    let (Some(size), Some(rate)) = (done.size, done.rate) else {
        return;
    };
    if rate.best > 0.0 && done.reading.operations.is_none() {
        let seconds = size.best / rate.best;
        done.sentences.push(format!(
            "{} at {} take {}",
            words::bytes(size.best),
            words::rate(rate.best),
            words::seconds(seconds)
        ));
        if done.seconds.is_some_and(|time| time.high > 0.0 && seconds <= time.high) {
            done.status = Status::Agrees;
        }
    }
}

/// Says between which rates the truth lies where the rounding leaves more than a percent.
fn interval(done: &mut Checked, rate: Span) {
    if rate.width() > 2.0 * TOLERANCE {
        done.sentences.push(format!(
            "the rounding leaves {} to {} MB/s",
            words::decimal(rate.low / 1e6, 1),
            words::decimal(rate.high / 1e6, 1)
        ));
    }
}

fn both(done: &mut Checked, computed: Span, printed: Span) {
    if agree(computed, printed) {
        agreeing(done, computed, printed);
        return;
    }
    if done.reading.tool.is_none() && other_units(done) {
        return;
    }
    done.status = Status::Disagrees;
    done.rate = Some(computed);
    let share = off(printed.best, computed.best);
    let said = printed_rate(&done.reading);
    let cause = cause(done, computed, printed).map_or_else(String::new, |cause| format!(": {cause}"));
    done.sentences.push(format!(
        "{}, not {said} ({}){cause}",
        words::rate(computed.best),
        words::share(share)
    ));
}

fn agreeing(done: &mut Checked, computed: Span, printed: Span) {
    done.status = Status::Agrees;
    // The one that was printed more finely is nearer to the truth.
    let finer = printed.width() < computed.width() && computed.meets(printed);
    done.rate = Some(if finer { printed } else { computed });
    if let (true, Some(size), Some(time)) = (finer, done.size, done.reading.time.as_ref()) {
        if printed.best > 0.0 && computed.width() > 2.0 * TOLERANCE {
            done.sentences.push(format!(
                "{} was rounded: the rate implies {}; the time alone leaves {} to {} MB/s",
                time.printed,
                words::seconds(size.best / printed.best),
                words::decimal(computed.low / 1e6, 1),
                words::decimal(computed.high / 1e6, 1)
            ));
        }
    }
    let open = done.reading.rates.first().is_some_and(|rate| rate.unit.open() && !rate.unit.bits);
    if open {
        unit_note(done, printed);
    }
}

/// What a tool's MB is, where it isn't 10^6; and that the other reading contradicts the time.
fn unit_note(done: &mut Checked, printed: Span) {
    let Some(tool) = done.reading.tool else {
        return;
    };
    let Some(rate) = done.reading.rates.first() else {
        return;
    };
    if done.reading.open(rate) == Base::Binary {
        let word = rate.printed.trim_start_matches(|c: char| !c.is_alphabetic());
        done.sentences.push(format!(
            "{}'s {word} is by 1024: {} = {}",
            tool.name,
            rate.printed,
            words::rate(printed.best)
        ));
        let (Some(size), Some(seconds)) = (done.size, done.seconds) else {
            return;
        };
        let other = size.best / rate.span(Base::Decimal).best;
        if other.is_finite() && !(seconds.low..=seconds.high).contains(&other) {
            done.sentences.push(format!(
                "by 1000 it would take {}, which {} contradicts",
                words::seconds(other),
                done.reading.time.as_ref().map_or("", |time| &time.printed)
            ));
        }
    }
}

/// The units that make all parts of a line agree, where no tool says what they are. A questioned time may be a clock's too.
fn other_units(done: &mut Checked) -> bool {
    let reading = &done.reading;
    let (Some(size), Some(time), Some(rate)) =
        (&reading.size, &reading.time, reading.rates.first())
    else {
        return false;
    };
    let bases = |quantity: &Quantity| {
        let usual = quantity.unit.usual;
        if quantity.unit.open() && !quantity.unit.bits {
            vec![usual, usual.other()]
        } else {
            vec![usual]
        }
    };
    let mut times = vec![time.span];
    times.extend(time.as_clock());
    let mut fits = Vec::new();
    for seconds in times {
        for a in bases(size) {
            for b in bases(rate) {
                if let Some(computed) = size.span(a).over(seconds) {
                    let printed = rate.span(b);
                    if off(printed.best, computed.best).abs() <= 0.001 || computed.meets(printed) && computed.width() < TOLERANCE {
                        fits.push((off(printed.best, computed.best).abs(), seconds, a, b));
                    }
                }
            }
        }
    }
    fits.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some((_, seconds, a, b)) = fits.into_iter().next() else {
        return false;
    };
    let (size_span, printed) = (size.span(a), rate.span(b));
    let mut said = Vec::new();
    for (quantity, base) in [(size, a), (rate, b)] {
        if base != quantity.unit.usual {
            said.push(format!("{} by 1024", quantity.printed));
        }
    }
    if !said.is_empty() {
        done.sentences.push(format!("the parts agree with {}", said.join(" and ")));
    }
    done.size = Some(size_span);
    done.seconds = Some(seconds);
    done.printed = Some(printed);
    done.rate = size_span.over(seconds).or(Some(printed));
    done.status = Status::Agrees;
    true
}

/// A number of minutes that a clock may have shown.
fn question(done: &mut Checked) {
    let Some(time) = done.reading.time.clone() else {
        return;
    };
    let (Some((minutes, past)), Some(size), Some(clock)) =
        (time.questioned, done.size, time.as_clock())
    else {
        return;
    };
    if done.status != Status::Disagrees {
        done.status = Status::Questioned;
    }
    let decimal = time.span.best;
    let as_clock = done.seconds.is_some_and(|seconds| seconds == clock);
    let taken = if as_clock { clock.best } else { decimal };
    if let Some(rate) = size.over(clock).filter(|_| !as_clock) {
        done.sentences.push(format!(
            "{} is {} only as a decimal number; if a clock showed {minutes}:{past:02}, it is {} s and the rate {}",
            time.printed,
            words::seconds(taken),
            words::decimal(clock.best, 0),
            words::rate(rate.best)
        ));
    } else {
        done.sentences.push(format!(
            "{} was a clock's {minutes}:{past:02}: so the parts agree",
            time.printed
        ));
    }
}

/// Sizes and rates that are said again must be the same.
fn again(done: &mut Checked) {
    let reading = &done.reading;
    let mut said = Vec::new();
    if let Some(size) = done.size {
        for other in &reading.sizes {
            said.extend(pair(reading, other, size, "size"));
        }
    }
    if let (Some(printed), Some(first)) = (done.printed, reading.rates.first()) {
        for other in reading.rates.iter().skip(1) {
            let span = reading.span(other);
            if agree(span, printed) {
                continue;
            }
            // The first may be the one whose unit is wrong.
            let fixed = reading.tool.is_none() && first.unit.open() && !first.unit.bits;
            let fixed = fixed.then(|| first.span(Base::Binary)).filter(|first| first.meets(span));
            if let Some(fixed) = fixed {
                said.push(format!(
                    "{} and {} agree only with {} by 1024",
                    first.printed, other.printed, first.printed
                ));
                done.rate = Some(if fixed.width() < span.width() { fixed } else { span });
                done.status = Status::Disagrees;
                continue;
            }
            said.extend(pair(reading, other, printed, "rate"));
        }
    }
    if !said.is_empty() && done.status != Status::Questioned {
        done.status = Status::Disagrees;
    }
    done.sentences.extend(said);
}

/// What is wrong with a quantity that repeats another; None where nothing is.
fn pair(reading: &Reading, other: &Quantity, right: Span, what: &str) -> Option<String> {
    let span = reading.span(other);
    if agree(span, right) {
        return None;
    }
    let by_1024 = other.unit.open() && other.span(Base::Binary).meets(right);
    let by_1000 = other.unit.open() && other.span(Base::Decimal).meets(right);
    if reading.tool.is_none() && by_1024 {
        return Some(format!("{} is by 1024", other.printed));
    }
    if by_1000 || by_1024 {
        return None;
    }
    Some(format!(
        "{} is another {what} ({})",
        other.printed,
        words::share(off(span.best, right.best))
    ))
}

/// Operations a second times their size must be the rate.
fn operations(done: &mut Checked) {
    let (Some((iops, block)), Some(printed)) = (&done.reading.operations, done.printed) else {
        return;
    };
    let rate = iops * block.number.best * block.unit.factor(Base::Binary);
    if off(printed.best, rate).abs() <= TOLERANCE {
        done.status = Status::Agrees;
    } else {
        done.status = Status::Disagrees;
        done.sentences.push(format!(
            "{} operations of {} a second are {}",
            words::decimal(*iops, 1),
            block.printed,
            words::rate(rate)
        ));
    }
}

/// A printed sum must be one.
fn addends(done: &mut Checked) {
    let Some(printed) = done.printed.filter(|_| !done.reading.addends.is_empty()) else {
        return;
    };
    let spans = done.reading.addends.iter().map(|part| done.reading.span(part));
    let sum = spans.clone().fold(Span::around(0.0, 0.0), |sum, span| Span {
        best: sum.best + span.best,
        low: sum.low + span.low,
        high: sum.high + span.high,
    });
    let count = done.reading.addends.len();
    done.rate = Some(sum);
    done.status = if agree(sum, printed) {
        Status::Agrees
    } else {
        Status::Disagrees
    };
    let (low, high) = spans.fold((f64::MAX, 0f64), |(low, high), span| {
        (low.min(span.best), high.max(span.best))
    });
    done.sentences.push(format!(
        "{count} rates, mean {} Gbit/s, from {} to {}",
        words::decimal(sum.best / count as f64 / 125e6, 2),
        words::decimal(low / 125e6, 2),
        words::decimal(high / 125e6, 2)
    ));
    if done.status == Status::Disagrees {
        done.sentences.push(format!(
            "their sum is {} Gbit/s, not {}",
            words::decimal(sum.best / 125e6, 2),
            printed_rate(&done.reading)
        ));
    }
}

/// The printed rate with its number grouped.
#[must_use]
pub fn printed_rate(reading: &Reading) -> String {
    reading.rates.first().map_or_else(String::new, words::printed)
}

/// A clock's `1:47` read as 1.47 minutes, in seconds.
#[must_use]
pub fn misread(time: &Time) -> Option<f64> {
    let (minutes, past) = time.clock?;
    (minutes > 0).then(|| 60.0 * (minutes as f64 + past as f64 / 100.0))
}

/// What explains the difference between a right and a printed rate.
fn cause(done: &Checked, right: Span, printed: Span) -> Option<String> {
    let rate = done.reading.rates.first()?;
    let time = done.reading.time.as_ref()?;
    let power = rate.unit.power;
    let mut causes: Vec<(f64, String)> = vec![
        (8.0, "bits were taken for bytes".into()),
        (0.125, "bytes were taken for bits".into()),
        (1.0 / 60.0, "it is per minute, not per second".into()),
        (60.0, "it is per second, not per minute".into()),
        (1000.0, "the decimal mark is three digits off (see --decimal-comma)".into()),
        (0.001, "the decimal mark is three digits off (see --decimal-comma)".into()),
    ];
    if power > 0 {
        let binary = 1.024f64.powi(power);
        causes.push((1.0 / binary, "its unit is by 1024, not by 1000".into()));
        causes.push((binary, "its unit is by 1000, not by 1024".into()));
        causes.push((8.0 / binary, "bits were taken for bytes, and 1024 for 1000".into()));
    }
    if let Some(decimal) = misread(time) {
        let wrong = format!("{} was read as {} minutes", time.printed, words::decimal(decimal / 60.0, 2));
        let factor = time.span.best / decimal;
        causes.push((factor, wrong.clone()));
        if power > 0 {
            let binary = 1.024f64.powi(power);
            causes.push((factor / binary, format!("{wrong}, and its unit is by 1024")));
        }
    }
    let ratio = printed.best / right.best;
    let left = |factor: f64| off(ratio, factor).abs();
    let best = causes
        .iter()
        .min_by(|a, b| left(a.0).total_cmp(&left(b.0)))?;
    if left(best.0) <= EXPLAINED.max(printed.width()) {
        return Some(best.1.clone());
    }
    let near = causes.iter().rev().find(|(factor, _)| left(*factor) <= 0.02)?;
    Some(format!("nearly what comes out if {}", near.1))
}
