//! Text as tokens: numbers, clocks, words and marks, with how finely each number was printed.
//!
//! Pure. Knows how people write numbers (thousands separators, decimal commas, clocks), not what they are of. Times are in
//! seconds. Must not know: units, tools.

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
}

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

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A number.
    Number(Number),
    /// A duration such as 1:47.07 or 1m47.070s.
    Clock(Clock),
    /// Letters, and digits after them; `MB/s` is one word.
    Word(String),
    /// Anything else.
    Mark(char),
}

/// A token of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Nothing stands between it and the token before.
    pub glued: bool,
}

impl Token {
    /// The word it is.
    #[must_use]
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The number it is.
    #[must_use]
    pub const fn number(&self) -> Option<&Number> {
        match &self.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The clock it is.
    #[must_use]
    pub const fn clock(&self) -> Option<&Clock> {
        match &self.kind {
            Kind::Clock(clock) => Some(clock),
            _ => None,
        }
    }

    /// Whether it is that mark.
    #[must_use]
    pub fn is(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// How numbers of a text are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writing {
    /// `1.234,5` is one thousand and a bit, as in much of Europe.
    pub decimal_comma: bool,
}

const BLANKS_IN_NUMBERS: &[char] = &['\u{a0}', '\u{202f}', '\u{2009}', '\''];

/// The tokens of a line. A number that could be two different ones is an error that says what to do.
pub fn tokens(line: &str, writing: Writing) -> Result<Vec<Token>> {
    let mut found: Vec<Token> = Vec::new();
    let mut rest = line;
    let mut glued = false;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            glued = false;
            continue;
        }
        let (kind, length) = if first.is_ascii_digit() {
            digits(rest, writing, &found)?
        } else if first.is_alphabetic() {
            let length = word(rest);
            (Kind::Word(rest[..length].to_owned()), length)
        } else {
            (Kind::Mark(first), first.len_utf8())
        };
        found.push(Token { kind, glued });
        rest = &rest[length..];
        glued = true;
    }
    Ok(found)
}

/// The length of a word: letters and digits, and `/` before a letter.
fn word(text: &str) -> usize {
    let mut end = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let joins = c == '/' && characters.peek().is_some_and(|(_, c)| c.is_alphabetic());
        if !(c.is_alphanumeric() || c == '_' || joins) {
            break;
        }
        end = at + c.len_utf8();
    }
    end
}

/// How many ASCII digits a text begins with.
fn run(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// What begins with a digit: a date or an address (words), a clock, or a number.
fn digits(text: &str, writing: Writing, before: &[Token]) -> Result<(Kind, usize)> {
    if let Some(length) = address(text).or_else(|| date(text)) {
        return Ok((Kind::Word(text[..length].to_owned()), length));
    }
    if let Some((clock, length)) = clock(text).or_else(|| minutes_and_seconds(text)) {
        let kind = if of_the_day(before) {
            Kind::Word(clock.printed)
        } else {
            Kind::Clock(clock)
        };
        return Ok((kind, length));
    }
    let (number, length) = number(text, writing)?;
    Ok((Kind::Number(number), length))
}

/// Whether what follows a date or a year is a time of the day.
fn of_the_day(before: &[Token]) -> bool {
    before.last().is_some_and(|token| match &token.kind {
        Kind::Word(word) => date(word) == Some(word.len()),
        Kind::Number(number) => {
            number.decimals == 0 && (1970.0..2200.0).contains(&number.value)
        }
        _ => false,
    })
}

/// The length of an IPv4 address.
fn address(text: &str) -> Option<usize> {
    let mut at = 0;
    for part in 0..4 {
        let length = run(&text[at..]);
        if !(1..=3).contains(&length) || text[at..at + length].parse::<u16>().ok()? > 255 {
            return None;
        }
        at += length;
        if part < 3 {
            text[at..].strip_prefix('.')?;
            at += 1;
        }
    }
    (!text[at..].starts_with(|c: char| c.is_ascii_digit())).then_some(at)
}

/// The length of a date such as 2010-02-25.
fn date(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let shape = bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    (shape && run(&text[8..]) == 2).then_some(10)
}

/// `1:47.07`, `0:00:18`, `00:40`.
fn clock(text: &str) -> Option<(Clock, usize)> {
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
fn minutes_and_seconds(text: &str) -> Option<(Clock, usize)> {
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
    let part: f64 = if places == 0 {
        0.0
    } else {
        format!("0.{}", &fraction[1..]).parse().ok()?
    };
    Some(Clock {
        printed: printed.to_owned(),
        seconds: minutes.checked_mul(60)?.checked_add(past)? as f64 + part,
        half: 0.5 * 10f64.powi(-i32::try_from(places).ok()?),
        minutes,
        past,
    })
}

fn unclear(text: &str) -> Error {
    Error::usage(format!(
        "'{text}' could be two different numbers; write it without thousands separators and with a point, or say --decimal-comma \
         where the comma is the decimal mark"
    ))
}

/// A number with separators, decimals and an exponent.
fn number(text: &str, writing: Writing) -> Result<(Number, usize)> {
    let (group, point) = if writing.decimal_comma {
        ('.', ',')
    } else {
        (',', '.')
    };
    let mut at = run(text);
    let mut whole = text[..at].to_owned();
    let mut grouped = None;
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
    if !value.is_finite() || value > 1e21 {
        return Err(Error::usage(format!(
            "'{}' is larger than anything that is measured",
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
#[must_use]
pub fn shortened(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, writing: Writing) -> Kind {
        let tokens = tokens(text, writing).expect("readable");
        assert_eq!(tokens.len(), 1, "{text}: {tokens:?}");
        tokens[0].kind.clone()
    }

    fn value(text: &str, decimal_comma: bool) -> f64 {
        match one(text, Writing { decimal_comma }) {
            Kind::Number(number) => number.value,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn clocks_are_read_in_known_forms_only() {
        let cases = [
            ("1:47.07", 107.07),
            ("4:33.29", 273.29),
            ("1:02:03", 3723.0),
            ("0:00:18", 18.0),
            ("00:40", 40.0),
            ("0:00.01", 0.01),
            ("1m47.070s", 107.07),
            ("1m 52.31s", 112.31),
            ("1h02m03s", 3723.0),
            ("0m0,028s", 0.028),
        ];
        for (text, seconds) in cases {
            match one(text, Writing::default()) {
                Kind::Clock(clock) => {
                    assert!((clock.seconds - seconds).abs() < 1e-9, "{text}: {clock:?}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["1:7", "1:99", "10.0.0.253:5001", "1:2:3:4", "2010-02-25 16:01"] {
            let tokens = tokens(text, Writing::default()).expect("readable");
            assert!(tokens.iter().all(|token| token.clock().is_none()), "{text}: {tokens:?}");
        }
    }

    #[test]
    fn numbers_keep_what_separators_mean() {
        let cases = [
            ("52046502432", 52_046_502_432.0),
            ("4,442,654,720", 4_442_654_720.0),
            ("1,234.5", 1234.5),
            ("1,234", 1234.0),
            ("4.442.654.720", 4_442_654_720.0),
            ("4'442'654'720", 4_442_654_720.0),
            ("4\u{a0}442", 4442.0),
            ("38,6415", 38.6415),
            ("177,9", 177.9),
            ("0,028", 0.028),
            ("2.58e+06", 2.58e6),
            ("1.234", 1.234),
        ];
        for (text, wanted) in cases {
            assert!((value(text, false) / wanted - 1.0).abs() < 1e-12, "{text}");
        }
        for (text, wanted) in [("1.234,5", 1234.5), ("1,234", 1.234), ("1.234", 1234.0)] {
            assert!((value(text, true) / wanted - 1.0).abs() < 1e-12, "{text}");
        }
    }

    #[test]
    fn what_could_be_two_numbers_is_an_error() {
        for text in ["1.234,5", "12.345.678,9"] {
            let error = tokens(text, Writing::default()).expect_err(text).to_string();
            assert!(error.contains("--decimal-comma"), "{error}");
        }
        assert!(tokens("1e999", Writing::default()).is_err());
        assert!(tokens(&"9".repeat(400), Writing::default()).is_err());
    }

    #[test]
    fn units_stay_whole_words() {
        let tokens = tokens("(30.0GiB/41847msec) 10.9 MB/sec.", Writing::default()).expect("readable");
        let words: Vec<&str> = tokens.iter().filter_map(Token::word).collect();
        assert_eq!(words, ["GiB", "msec", "MB/sec"]);
    }

    #[test]
    fn a_number_knows_how_finely_it_was_printed() {
        let Kind::Number(number) = one("49000", Writing::default()) else {
            panic!("a number");
        };
        assert!((number.half - 0.5).abs() < 1e-12 && (number.loose - 500.0).abs() < 1e-9);
    }
}
