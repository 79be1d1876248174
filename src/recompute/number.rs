//! Numbers as people and tools print them: thousands separators, decimal commas, exponents, and how finely.
//!
//! Pure. Must not know: units, lines.

use crate::error::{Error, Result};

/// A number as it was printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The text.
    pub printed: String,
    /// Its value.
    pub value: f64,
    /// Half of its last printed place.
    pub half: f64,
    /// Half of its last place that is not a zero before the point: 560 may stand for 555 to 565.
    pub loose: f64,
    /// Digits after the point.
    pub decimals: usize,
    /// One comma with three digits after it: taken as thousands, though some write decimals so.
    pub either: bool,
}

/// How numbers of a text are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writing {
    /// `1.234,5` is one thousand and a bit, as in much of Europe.
    pub decimal_comma: bool,
}

const BLANKS_IN_NUMBERS: &[char] = &['\u{a0}', '\u{202f}', '\u{2009}', '\''];

/// How many ASCII digits a text begins with.
pub(super) fn run(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn unclear(text: &str) -> Error {
    Error::usage(format!(
        "'{text}' could be two different numbers; write it without thousands separators and with a point, or say --decimal-comma \
         where the comma is the decimal mark"
    ))
}

/// A number with separators, decimals and an exponent, at the beginning of a text; with its length.
pub(super) fn number(text: &str, writing: Writing) -> Result<(Number, usize)> {
    let (group, point) = if writing.decimal_comma {
        ('.', ',')
    } else {
        (',', '.')
    };
    let mut at = run(text);
    let mut whole = text[..at].to_owned();
    let mut grouped = None;
    let mut either = false;
    if at <= 3 {
        let mut marks = [&[group], BLANKS_IN_NUMBERS].concat();
        // Points that can be nothing but separators: more than one of them, three digits each.
        if !writing.decimal_comma && groups(&text[at..], '.') > 1 {
            marks.push('.');
        }
        for mark in marks {
            let count = groups(&text[at..], mark);
            if grouped.is_none() && count > 0 && (mark != group || count > 1 || whole != "0") {
                for _ in 0..count {
                    at += mark.len_utf8();
                    whole.push_str(&text[at..at + 3]);
                    at += 3;
                }
                grouped = Some(mark);
                either = mark == ',' && count == 1;
            }
        }
    }
    let mut decimals = String::new();
    let after = &text[at..];
    let length = run(after.get(1..).unwrap_or(""));
    let other = if point == '.' { ',' } else { '.' };
    let more = after.get(1 + length..).unwrap_or("");
    let lists = |c: char| more.starts_with(c) && run(&more[1..]) > 0;
    if after.starts_with(point) && length > 0 && grouped != Some(point) {
        if lists(other) && length == 3 {
            let end = at + 1 + length + 1 + run(&more[1..]);
            return Err(unclear(&text[..end]));
        }
        after[1..=length].clone_into(&mut decimals);
        at += 1 + length;
    } else if after.starts_with(other) && length > 0 && !lists(other) {
        // A comma that separates no thousands is a decimal mark; after groups of points it could be either.
        if grouped.is_some() {
            return Err(unclear(&text[..=at + length]));
        }
        if !writing.decimal_comma && (length != 3 || whole == "0") {
            after[1..=length].clone_into(&mut decimals);
            at += 1 + length;
        }
    }
    let (exponent, length) = exponent(&text[at..]);
    at += length;
    let places = i32::try_from(decimals.len()).unwrap_or(i32::MAX);
    let value: f64 = format!("{whole}.{decimals}0e{exponent}")
        .parse()
        .unwrap_or(f64::INFINITY);
    if !value.is_finite() || value > 1e21 || value > 0.0 && value < 1e-12 {
        return Err(Error::usage(format!(
            "'{}' is beyond anything that is measured",
            shortened(&text[..at])
        )));
    }
    let half = 0.5 * 10f64.powi(exponent.saturating_sub(places));
    let zeros = whole.len() - whole.trim_end_matches('0').len();
    let zeros = if decimals.is_empty() && value > 0.0 {
        i32::try_from(zeros).unwrap_or(0)
    } else {
        0
    };
    let number = Number {
        printed: text[..at].to_owned(),
        value,
        half,
        loose: half * 10f64.powi(zeros),
        decimals: decimals.len(),
        either: either && decimals.is_empty(),
    };
    Ok((number, at))
}

/// How many groups of three digits follow, each after that mark; none where the last has more digits or is followed by another
/// of those marks and digits.
fn groups(text: &str, mark: char) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(after) = rest.strip_prefix(mark) {
        if run(after) != 3 {
            return if run(after) == 0 { count } else { 0 };
        }
        count += 1;
        rest = &after[3..];
    }
    count
}

/// `e+06`: the power of ten, and the length.
fn exponent(text: &str) -> (i32, usize) {
    let Some(after) = text.strip_prefix(['e', 'E']) else {
        return (0, 0);
    };
    let signed = after.trim_start_matches(['+', '-']);
    let sign = after.len() - signed.len();
    let length = run(signed);
    let next = signed[length..].chars().next();
    if sign > 1 || length == 0 || next.is_some_and(char::is_alphabetic) {
        return (0, 0);
    }
    let power = after[..sign + length].parse().unwrap_or(9999);
    (power, 1 + sign + length)
}

/// At most so much of a text that a sentence stays readable.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect();
    if text.chars().count() > MOST {
        format!("{shown}..")
    } else {
        shown
    }
}
