//! Text as tokens: numbers, clocks, words and marks, with how finely each number was printed.
//!
//! Pure. Knows how people write numbers (thousands separators, decimal commas, clocks), not what they are of. Times are in
//! seconds. Must not know: units, tools.

use crate::error::{Error, Result};
use crate::recompute::clock::{Clock, clock, minutes_and_seconds};
use crate::recompute::number::{Number, Writing, number, run};

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
    /// Where it begins on the line, in bytes.
    pub at: usize,
    /// Where it ends.
    pub end: usize,
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

/// The months as logs and listings shorten them.
const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// A text from its bytes: UTF-8, or what Windows writes (UTF-16 with its mark); without the colours of a terminal.
pub fn decoded(bytes: &[u8]) -> Result<String> {
    let wide = |order: fn([u8; 2]) -> u16| {
        let pairs = bytes[2..].chunks_exact(2);
        let units: Vec<u16> = pairs.map(|pair| order([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    let text = match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if text.contains('\0') {
        return Err(Error::usage("this is no text"));
    }
    Ok(without_colours(&text))
}

/// Without a terminal's escape sequences: `ESC [ .. letter`.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let rest = piece.strip_prefix('[').and_then(|piece| {
            let end = piece.find(|c: char| c.is_ascii_alphabetic())?;
            Some(&piece[end + 1..])
        });
        plain.push_str(rest.unwrap_or(piece));
    }
    plain
}

/// The tokens of a line. A number that could be two different ones is an error that says what to do.
pub fn tokens(line: &str, writing: Writing) -> Result<Vec<Token>> {
    let mut found: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(first) = line[at..].chars().next() {
        let rest = &line[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
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
        let glued = found.last().is_some_and(|token| token.end == at);
        let end = at + length;
        found.push(Token {
            kind,
            at,
            end,
            glued,
        });
        at = end;
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

/// Whether what follows is a time of the day: after a date, a year, or a day of a month.
fn of_the_day(before: &[Token]) -> bool {
    let Some(last) = before.last() else {
        return false;
    };
    if let Some(word) = last.word() {
        return date(word) == Some(word.len());
    }
    let month = before.iter().rev().nth(1).and_then(Token::word);
    let month = month.is_some_and(|word| MONTHS.contains(&word.to_lowercase().as_str()));
    last.number().is_some_and(|number| {
        number.decimals == 0 && (month || (1970.0..2200.0).contains(&number.value))
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
        for text in [
            "1:7",
            "1:99",
            "10.0.0.253:5001",
            "1:2:3:4",
            "2010-02-25 16:01",
        ] {
            let tokens = tokens(text, Writing::default()).expect("readable");
            assert!(
                tokens.iter().all(|token| token.clock().is_none()),
                "{text}: {tokens:?}"
            );
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
            let error = tokens(text, Writing::default())
                .expect_err(text)
                .to_string();
            assert!(error.contains("--decimal-comma"), "{error}");
        }
        assert!(tokens("1e999", Writing::default()).is_err());
        assert!(tokens(&"9".repeat(400), Writing::default()).is_err());
    }

    #[test]
    fn a_comma_that_may_be_either_is_marked() {
        for (text, either) in [
            ("1,234", true),
            ("1,234,567", false),
            ("38,64", false),
            ("1,234.5", false),
        ] {
            let Kind::Number(number) = one(text, Writing::default()) else {
                panic!("{text}: a number");
            };
            assert_eq!(number.either, either, "{text}");
        }
    }

    #[test]
    fn bytes_of_windows_and_of_terminals_become_text() {
        let wide: Vec<u8> = [0xfeff_u16, u16::from(b'M'), u16::from(b'B')]
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .collect();
        assert_eq!(decoded(&wide).expect("text"), "MB");
        assert_eq!(decoded(b"\xef\xbb\xbf1 GB").expect("text"), "1 GB");
        assert_eq!(decoded(b"\x1b[1;32m1 GB\x1b[0m/s").expect("text"), "1 GB/s");
        assert!(decoded(b"a\0b").is_err());
    }

    #[test]
    fn times_of_the_day_are_no_durations() {
        for text in [
            "Dec  3 05:41:56",
            "2010-02-25 16:01:00",
            "Wed Mar 23 2016 19:30:54",
        ] {
            let tokens = tokens(text, Writing::default()).expect("readable");
            assert!(
                tokens.iter().all(|token| token.clock().is_none()),
                "{text}: {tokens:?}"
            );
        }
    }

    #[test]
    fn units_stay_whole_words() {
        let tokens =
            tokens("(30.0GiB/41847msec) 10.9 MB/sec.", Writing::default()).expect("readable");
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
