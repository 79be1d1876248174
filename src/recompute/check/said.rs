//! Sentences about a checked reading: what rounding leaves, what units are, what a figure is not.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: whether parts agree.

use super::{Checked, Status, TOLERANCE};
use crate::recompute::quantity::Span;
use crate::recompute::units::Base;
use crate::recompute::words;

/// Words of prose that make a figure a peak.
const PEAKS: &[&str] = &[
    "peak",
    "up to ",
    "never broke",
    "fastest",
    "at most",
    "maximum",
    "max.",
];

/// Two groups of rates are further apart than this share of their mean.
const GAP: f64 = 0.05;

/// A time too short to divide by.
pub(super) fn no_rate(done: &mut Checked) {
    let (Some(size), Some(seconds)) = (done.size, done.seconds) else {
        return;
    };
    done.status = Status::Computed;
    let least = if seconds.high > 0.0 && size.low > 0.0 {
        format!(": it is at least {}", words::rate(size.low / seconds.high))
    } else {
        String::new()
    };
    done.sentences.push(format!(
        "the time is shorter than what it was printed in, so there is no rate{least}"
    ));
}

/// A printed rate with a size implies a time; a printed time of 0 is a hint at least.
pub(super) fn implied(done: &mut Checked) {
    let (Some(size), Some(rate)) = (done.size, done.rate) else {
        return;
    };
    if rate.best <= 0.0 {
        return;
    }
    let seconds = size.best / rate.best;
    done.sentences.push(format!(
        "{} at {} take {}",
        words::bytes(size.best),
        words::rate(rate.best),
        words::seconds(seconds)
    ));
    let possible = |time: Span| time.high > 0.0 && seconds <= time.high;
    if done.seconds.is_some_and(possible) {
        done.status = Status::Agrees;
    }
}

/// Between which rates the truth lies where the rounding leaves more than a percent.
pub(super) fn interval(done: &mut Checked, rate: Span) {
    if rate.width() > 2.0 * TOLERANCE {
        done.sentences
            .push(format!("the rounding leaves {}", from_to(rate)));
    }
}

fn from_to(rate: Span) -> String {
    format!(
        "{} to {} MB/s",
        words::decimal(rate.low / 1e6, 1),
        words::decimal(rate.high / 1e6, 1)
    )
}

/// A rate that was printed more finely than size and time tells the time better than the time does.
pub(super) fn rounded(done: &mut Checked, computed: Span, printed: Span) {
    let (Some(size), Some(time)) = (done.size, done.reading.time.as_ref()) else {
        return;
    };
    if printed.best <= 0.0 || computed.width() <= 2.0 * TOLERANCE {
        return;
    }
    // How long a network test took is known anyway.
    if done.reading.tool.is_some_and(|tool| tool.network) {
        return;
    }
    let cut = done.reading.tool.is_some_and(|tool| tool.cuts);
    let sentence = format!(
        "{} was {}: the rate implies {}; the time alone leaves {}",
        time.printed,
        if cut { "cut" } else { "rounded" },
        words::seconds(size.best / printed.best),
        from_to(computed)
    );
    done.sentences.push(sentence);
}

/// What a tool's MB is where it is by 1024, and what else would follow.
pub(super) fn unit(done: &Checked) -> Option<String> {
    let reading = &done.reading;
    let (tool, rate, time) = (
        reading.tool?,
        reading.rates.first()?,
        reading.time.as_ref()?,
    );
    let size = reading.size.as_ref()?;
    let (bytes, seconds) = (done.size?, done.seconds?);
    if tool.bytes != Some(Base::Binary) {
        return None;
    }
    let word = |printed: &str| {
        let word = printed.trim_start_matches(|c: char| !c.is_alphabetic());
        word.trim().to_owned()
    };
    if rate.unit.open() && !rate.unit.bits {
        let unit = word(&rate.printed);
        let other = bytes.best / rate.span(Base::Decimal).best;
        let contradicts = !(seconds.low..=seconds.high).contains(&other);
        return Some(format!(
            "the {unit} of {} is by 1024: {} = {}; by 1000 it would have taken {}{}",
            tool.name,
            rate.printed,
            words::rate(rate.span(Base::Binary).best),
            words::seconds(other),
            if contradicts {
                format!(", which {} contradicts", time.printed)
            } else {
                String::new()
            }
        ));
    }
    let other = size.span(Base::Decimal).over(seconds)?;
    let contradicts = size.unit.open() && !other.meets(reading.span(rate));
    contradicts.then(|| {
        format!(
            "the {} of {} is by 1024: by 1000, {} in {} would be {}, not {}",
            word(&size.printed),
            tool.name,
            size.printed,
            words::seconds(seconds.best),
            words::in_unit(other.best, rate.unit, reading.open(rate)),
            rate.printed
        )
    })
}

/// Several rates, sorted, and their sum: how they lie, in one group or in two that are clearly apart.
pub(super) fn several(sorted: &[Span], sum: Span, word: impl Fn(f64) -> String) -> String {
    let count = sorted.len();
    let best: Vec<f64> = sorted.iter().map(|span| span.best).collect();
    let mean = sum.best / count as f64;
    let total: f64 = best.iter().sum();
    let whole = format!(
        "{count} rates: {} together, {} each on average",
        word(total),
        word(mean)
    );
    let gaps = best.windows(2).map(|two| two[1] - two[0]).enumerate();
    let Some((at, gap)) = gaps.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return whole;
    };
    let (low, high) = best.split_at(at + 1);
    let width = |group: &[f64]| group[group.len() - 1] - group[0];
    let of = |group: &[f64]| {
        format!(
            "{} of {} to {} ({} together)",
            group.len(),
            word(group[0]),
            word(group[group.len() - 1]),
            word(group.iter().sum())
        )
    };
    if count > 2 && gap > GAP * mean && gap > 2.0 * width(low).max(width(high)) {
        format!("{whole}; {}; {}", of(low), of(high))
    } else {
        format!(
            "{whole}, from {} to {}",
            word(best[0]),
            word(best[count - 1])
        )
    }
}

/// What a figure is not: a mean, exact, or sure.
pub(super) fn labels(done: &mut Checked) {
    let reading = &mut done.reading;
    if let Some(label) = reading.tool.and_then(|tool| tool.label) {
        done.sentences.push(label.into());
    }
    let lower = reading.text.to_lowercase();
    if reading.tool.is_none() && PEAKS.iter().any(|word| lower.contains(word)) {
        done.sentences.push("a peak, not a mean".into());
    }
    if reading.rates.iter().any(|rate| rate.printed.contains('+')) {
        done.sentences.push("at least that".into());
    }
    let size = reading.size.as_ref().filter(|size| size.either);
    let rate = reading.rates.first().filter(|rate| rate.either);
    let time = reading.time.as_ref().filter(|time| time.either);
    let either = [
        size.map(|size| &size.printed),
        time.map(|time| &time.printed),
        rate.map(|rate| &rate.printed),
    ];
    if matches!(done.status, Status::Computed | Status::Stated) {
        for printed in either.into_iter().flatten() {
            done.sentences.push(format!(
                "the comma of {printed} was taken to separate thousands; if it is a decimal one, say --decimal-comma"
            ));
        }
    }
    done.sentences.append(&mut reading.notes);
}
