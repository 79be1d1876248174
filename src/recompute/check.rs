//! Whether the parts of a reading agree, and which rate is right.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: other readings, layouts.

use crate::recompute::cause;
use crate::recompute::quantity::{Quantity, Span, near};
use crate::recompute::reading::Reading;
use crate::recompute::units::Base;
use crate::recompute::words;

mod said;

/// Parts that differ by less than this are taken to agree: rounding, or another clock.
pub const TOLERANCE: f64 = 0.01;
/// Units that nobody names are found by parts that agree as well as this.
const EXACT: f64 = 0.001;

/// How the parts of a reading stand to each other.
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

/// What came out of one reading.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The reading.
    pub reading: Reading,
    /// Bytes moved.
    pub size: Option<Span>,
    /// The time it took, in seconds.
    pub seconds: Option<Span>,
    /// The right rate; None where the time is too short for one.
    pub rate: Option<Span>,
    /// The rate as it was printed.
    pub printed: Option<Span>,
    /// How the parts stand to each other.
    pub status: Status,
    /// What must be said.
    pub sentences: Vec<String>,
    /// What the tool's units are, to be said once for each tool.
    pub unit_note: Option<String>,
}

impl Checked {
    /// It is wrong, and that is the right rate.
    pub fn correct(&mut self, right: Span, sentence: String) {
        self.status = Status::Disagrees;
        self.rate = Some(right);
        self.sentences.push(sentence);
    }
}

/// `486.1 MB/s, not 568,889 KB/s (+19.8 %)`, with its cause in front.
#[must_use]
pub fn correction(cause: Option<&str>, right: f64, said: &Quantity, printed: f64) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!("{cause}: "));
    format!(
        "{cause}{}, not {} ({})",
        words::rate(right),
        words::printed(said),
        words::off(printed / right - 1.0)
    )
}

/// Whether two spans agree: by their rounding, or within the tolerance.
fn agree(a: Span, b: Span) -> bool {
    a.meets(b) || near(a.best, b.best, TOLERANCE)
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
        unit_note: None,
        reading,
    };
    let computed = match (done.size, done.seconds) {
        (Some(size), Some(seconds)) => size.over(seconds),
        _ => None,
    };
    match (computed, done.printed) {
        (None, None) => said::no_rate(&mut done),
        (None, Some(printed)) => {
            done.rate = Some(printed);
            said::implied(&mut done);
        }
        (Some(computed), None) => {
            done.rate = Some(computed);
            done.status = Status::Computed;
            said::interval(&mut done, computed);
        }
        (Some(computed), Some(printed)) => both(&mut done, computed, printed),
    }
    question(&mut done);
    again(&mut done);
    operations(&mut done);
    addends(&mut done);
    said::labels(&mut done);
    done
}

/// A rate was printed beside size and time.
fn both(done: &mut Checked, computed: Span, printed: Span) {
    if agree(computed, printed) {
        done.status = Status::Agrees;
        // The one that was printed more finely is nearer to the truth.
        let finer = printed.width() < computed.width() && computed.meets(printed);
        done.rate = Some(if finer { printed } else { computed });
        if finer {
            said::rounded(done, computed, printed);
        }
        done.unit_note = said::unit(done);
        return;
    }
    if found_units(done) {
        return;
    }
    let (Some(said), Some(size)) = (done.reading.rates.first().cloned(), done.size) else {
        return;
    };
    let cause = cause::explain(&done.reading, size, computed.best);
    let base = cause.as_ref().map(|cause| cause.base);
    let printed = base.map_or(printed, |base| said.span(base));
    done.printed = Some(printed);
    let cause = cause.as_ref().map(|cause| cause.words.as_str());
    let sentence = correction(cause, computed.best, &said, printed.best);
    done.correct(computed, sentence);
}

/// The units that make all parts agree, where no tool says what they are; a questioned time may be a clock's too.
fn found_units(done: &mut Checked) -> bool {
    let reading = &done.reading;
    let (Some(size), Some(time), Some(rate)) =
        (&reading.size, &reading.time, reading.rates.first())
    else {
        return false;
    };
    let bases = |quantity: &Quantity| {
        let usual = reading.open(quantity);
        if reading.is_open(quantity) {
            vec![usual, usual.other()]
        } else {
            vec![usual]
        }
    };
    let times = [Some(time.span), time.as_clock()];
    let mut fits = Vec::new();
    for seconds in times.into_iter().flatten() {
        for of_size in bases(size) {
            for of_rate in bases(rate) {
                let printed = rate.span(of_rate);
                let Some(computed) = size.span(of_size).over(seconds) else {
                    continue;
                };
                let rounding = computed.meets(printed) && computed.width() < TOLERANCE;
                if rounding || near(printed.best, computed.best, EXACT) {
                    let off = (printed.best / computed.best - 1.0).abs();
                    fits.push((off, seconds, of_size, of_rate));
                }
            }
        }
    }
    let best = fits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, seconds, of_size, of_rate)) = best else {
        return false;
    };
    let (size, rate) = (size.clone(), rate.clone());
    let fixed = [(&size, of_size), (&rate, of_rate)].into_iter();
    let fixed: Vec<&str> = fixed
        .filter(|(quantity, base)| quantity.unit.open() && *base == Base::Binary)
        .map(|(quantity, _)| quantity.printed.as_str())
        .collect();
    if !fixed.is_empty() {
        let sentence = format!("the parts agree with {} by 1024", fixed.join(" and "));
        done.sentences.push(sentence);
    }
    let (bytes, printed) = (size.span(of_size), rate.span(of_rate));
    done.size = Some(bytes);
    done.seconds = Some(seconds);
    done.printed = Some(printed);
    done.rate = bytes.over(seconds).or(Some(printed));
    done.status = Status::Agrees;
    done.reading.size = Some(size.by(of_size));
    done.reading.rates[0] = rate.by(of_rate);
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
    if done.seconds == Some(clock) {
        done.sentences.push(format!(
            "{} was a clock's {minutes}:{past:02}, or the parts would not agree",
            time.printed
        ));
        return;
    }
    if done.status != Status::Disagrees {
        done.status = Status::Questioned;
    }
    if let Some(rate) = size.over(clock) {
        done.sentences.push(format!(
            "{} is {} as a decimal number; if a clock showed {minutes}:{past:02}, it is {:.0} s and the rate {}",
            time.printed,
            words::seconds(time.span.best),
            clock.best,
            words::rate(rate.best)
        ));
    }
}

/// What is said again must be the same.
fn again(done: &mut Checked) {
    let reading = &done.reading;
    let mut said = Vec::new();
    if let Some(size) = done.size {
        // Listings for people round up.
        let wide = |other: &Quantity| {
            let mut wide = other.clone();
            let half = (wide.number.high - wide.number.low) / 2.0;
            wide.number = Span::around(wide.number.best, 2.0 * half);
            wide
        };
        let sizes = reading.sizes.iter().map(wide);
        said.extend(sizes.filter_map(|other| repeated(reading, &other, size, "size")));
    }
    if let Some(seconds) = done.seconds {
        let others = reading
            .times
            .iter()
            .filter(|time| !agree(time.span, seconds));
        said.extend(others.map(|time| format!("{} is another time", time.printed)));
    }
    let mut right = None;
    if let (Some(printed), Some(first)) = (done.printed, reading.rates.first()) {
        for other in &reading.rates[1..] {
            let span = reading.span(other);
            let by_1024 = first.span(Base::Binary);
            if !agree(span, printed) && reading.is_open(first) && by_1024.meets(span) {
                said.push(format!(
                    "{} and {} agree only with {} by 1024",
                    first.printed, other.printed, first.printed
                ));
                let finer = by_1024.width() < span.width();
                right = Some(if finer { by_1024 } else { span });
            } else {
                said.extend(repeated(reading, other, printed, "rate"));
            }
        }
    }
    if said.is_empty() {
        return;
    }
    done.sentences.append(&mut said);
    if done.status != Status::Questioned {
        done.status = Status::Disagrees;
    }
    done.rate = right.or(done.rate);
}

/// What is wrong with a quantity that says another one again; None where nothing is.
fn repeated(reading: &Reading, other: &Quantity, right: Span, what: &str) -> Option<String> {
    let span = reading.span(other);
    if agree(span, right) {
        return None;
    }
    if other.unit.open() && other.span(Base::Binary).meets(right) {
        return Some(format!("{} is by 1024", other.printed));
    }
    Some(format!(
        "{} is another {what} ({})",
        other.printed,
        words::off(span.best / right.best - 1.0)
    ))
}

/// Operations a second times their size must be the rate.
fn operations(done: &mut Checked) {
    let (Some((iops, block)), Some(printed)) = (&done.reading.operations, done.printed) else {
        return;
    };
    let rate = iops * block.span(Base::Binary).best;
    if near(printed.best, rate, TOLERANCE) {
        done.status = Status::Agrees;
        return;
    }
    let sentence = format!(
        "{} operations of {} a second are {}",
        words::decimal(*iops, 1),
        block.printed,
        words::rate(rate)
    );
    done.status = Status::Disagrees;
    done.sentences.push(sentence);
}

/// A printed sum must be one.
fn addends(done: &mut Checked) {
    let reading = &done.reading;
    let (Some(printed), Some(said)) = (done.printed, reading.rates.first().cloned()) else {
        return;
    };
    let mut spans: Vec<Span> = reading
        .addends
        .iter()
        .map(|part| reading.span(part))
        .collect();
    if spans.is_empty() {
        return;
    }
    let sum = spans
        .iter()
        .fold(Span::around(0.0, 0.0), |sum, span| sum.plus(*span));
    let open = reading.open(&said);
    spans.sort_by(|a, b| a.best.total_cmp(&b.best));
    let sentence = said::several(&spans, sum, |rate| words::in_unit(rate, said.unit, open));
    if agree(sum, printed) {
        done.status = Status::Agrees;
        done.sentences.push(sentence);
    } else {
        done.sentences.push(sentence);
        let sentence = correction(None, sum.best, &said, printed.best);
        done.correct(sum, sentence);
    }
}

#[cfg(test)]
mod tests;
