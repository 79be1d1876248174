//! Durations in hours, minutes and seconds, in the forms that are known: `1:47.07`, `1:02:03`, `1m47.070s`.
//!
//! Pure. Seconds. Must not know: units, lines.

use crate::recompute::number::run;

/// Minutes and seconds, or hours, minutes and seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// The text.
    pub printed: String,
    /// All of it in seconds.
    pub seconds: f64,
    /// Half of its last printed place, in seconds.
    pub half: f64,
    /// Whole minutes.
    pub minutes: u64,
    /// Whole seconds past them.
    pub past: u64,
}

/// `1:47.07`, `0:00:18`, `00:40`.
pub(super) fn clock(text: &str) -> Option<(Clock, usize)> {
    let first = run(text);
    let mut at = first;
    let mut parts: Vec<u64> = vec![text[..first].parse().ok()?];
    while parts.len() < 3 && text[at..].starts_with(':') && run(&text[at + 1..]) == 2 {
        parts.push(text[at + 1..at + 3].parse().ok()?);
        at += 3;
    }
    let followed = text[at..].starts_with(':') && run(&text[at + 1..]) > 0;
    if parts.len() < 2 || followed || parts[1..].iter().any(|part| *part > 59) {
        return None;
    }
    let fraction = fraction(&text[at..]);
    let past = parts.pop()?;
    let minutes = parts
        .iter()
        .try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(*part))?;
    let end = at + fraction;
    let clock = made(&text[..end], minutes, past, &text[at..end])?;
    Some((clock, end))
}

/// `1m47.070s`, `1m 52.31s`, `1h02m03s`.
pub(super) fn minutes_and_seconds(text: &str) -> Option<(Clock, usize)> {
    let mut minutes = 0u64;
    let mut at = 0;
    let mut seen = false;
    for (letter, times) in [('h', 60), ('m', 1)] {
        let length = run(&text[at..]);
        let part = &text[at..at + length];
        if length > 0 && text[at + length..].starts_with(letter) {
            minutes = minutes.checked_add(part.parse::<u64>().ok()?.checked_mul(times)?)?;
            at += length + 1;
            seen = true;
            let blank = text[at..].starts_with(' ') && run(&text[at + 1..]) > 0;
            at += usize::from(blank);
        }
    }
    let length = run(&text[at..]);
    if !seen || length == 0 {
        return None;
    }
    let past = text[at..at + length].parse().ok()?;
    at += length;
    let length = fraction(&text[at..]);
    let end = at + length;
    let after = text[end..].strip_prefix('s')?;
    if after.starts_with(char::is_alphanumeric) {
        return None;
    }
    let clock = made(&text[..=end], minutes, past, &text[at..end])?;
    Some((clock, end + 1))
}

/// The length of `.07`, or `,07` where that can be nothing else.
fn fraction(text: &str) -> usize {
    let length = run(text.get(1..).unwrap_or(""));
    if length > 0 && text.starts_with(['.', ',']) {
        length + 1
    } else {
        0
    }
}

fn made(printed: &str, minutes: u64, past: u64, fraction: &str) -> Option<Clock> {
    let places = fraction.len().saturating_sub(1);
    let below_one: f64 = if places == 0 {
        0.0
    } else {
        format!("0.{}", &fraction[1..]).parse().ok()?
    };
    Some(Clock {
        printed: printed.to_owned(),
        seconds: minutes.checked_mul(60)?.checked_add(past)? as f64 + below_one,
        half: 0.5 * 10f64.powi(-i32::try_from(places).ok()?),
        minutes,
        past,
    })
}
