//! The quantities of a line in their order.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: tools, and how the quantities belong together.

use crate::recompute::clock::Clock;
use crate::recompute::number::Number;
use crate::recompute::quantity::{Quantity, Span, Time, near};
use crate::recompute::text::{Kind, Token};
use crate::recompute::units::{self, Unit};

/// Quantities said twice in two units may differ by this share; beyond it they are two quantities.
const SAME: f64 = 0.15;

/// Words between a quantity and the same one in another unit.
const JOINS: &[&str] = &["or", "which", "is", "about", "roughly", "equals"];

/// A size, a duration or a rate.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A size.
    Size(Quantity),
    /// A duration.
    Time(Time),
    /// A rate.
    Rate(Quantity),
}

impl What {
    /// Whether the other one can be the same in another unit.
    fn again(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Size(a), Self::Size(b)) | (Self::Rate(a), Self::Rate(b)) => {
                let best = |quantity: &Quantity| quantity.span(quantity.unit.usual).best;
                a.unit != b.unit && near(best(b), best(a), SAME)
            }
            (Self::Time(_), Self::Time(_)) => true,
            _ => false,
        }
    }
}

/// A quantity where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The quantity.
    pub what: What,
    /// It says the one before once more in another unit: `9.5 Gb/s (1.19 GB/s)`.
    pub again: bool,
}

/// All quantities of a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parts {
    /// In its order.
    pub list: Vec<Part>,
    /// Operations a second.
    pub iops: Option<f64>,
    /// A number with decimals and no unit.
    pub bare: Option<String>,
    /// A quantity whose unit is of bits to some and of bytes to others.
    pub unclear: Option<String>,
}

impl Parts {
    /// The sizes.
    pub fn sizes(&self) -> impl DoubleEndedIterator<Item = &Quantity> {
        self.list.iter().filter_map(|part| match &part.what {
            What::Size(size) => Some(size),
            _ => None,
        })
    }

    /// The durations.
    pub fn times(&self) -> impl DoubleEndedIterator<Item = &Time> {
        self.list.iter().filter_map(|part| match &part.what {
            What::Time(time) => Some(time),
            _ => None,
        })
    }

    /// The rates.
    pub fn rates(&self) -> impl DoubleEndedIterator<Item = &Quantity> {
        self.list.iter().filter_map(|part| match &part.what {
            What::Rate(rate) => Some(rate),
            _ => None,
        })
    }
}

/// The quantities of a line, or of a part of its tokens.
#[must_use]
pub fn of(line: &str, tokens: &[Token]) -> Parts {
    let mut reader = Reader {
        line,
        tokens,
        parts: Parts::default(),
        past: 0,
    };
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += match &token.kind {
            Kind::Clock(clock) => reader.clock(at, clock),
            Kind::Number(number) => reader.number(at, number),
            Kind::Word(_) | Kind::Mark(_) => 1,
        };
    }
    reader.parts
}

/// Each method gives how many tokens it took.
struct Reader<'a> {
    line: &'a str,
    tokens: &'a [Token],
    parts: Parts,
    /// The token after the last part.
    past: usize,
}

impl<'a> Reader<'a> {
    fn text(&self, from: usize, to: usize) -> String {
        self.line[self.tokens[from].at..self.tokens[to - 1].end].to_owned()
    }

    fn word(&self, at: usize) -> Option<&'a str> {
        self.tokens.get(at)?.word()
    }

    fn push(&mut self, what: What, from: usize, to: usize) {
        let last = self.parts.list.last();
        let between = &self.tokens[self.past..from];
        let says = |wanted: &str| between.iter().any(|token| token.word() == Some(wanted));
        let comma = says("which") || last.is_some_and(|last| last.again);
        let joins = |token: &Token| match &token.kind {
            Kind::Mark(mark) => "(=/~≈".contains(*mark) || *mark == ',' && comma,
            Kind::Word(word) => JOINS.contains(&word.as_str()),
            _ => false,
        };
        let joined = !between.is_empty() && between.iter().all(joins);
        let again = joined && last.is_some_and(|last| last.what.again(&what));
        self.parts.list.push(Part { what, again });
        self.past = to;
    }

    fn push_quantity(&mut self, quantity: Quantity, from: usize, to: usize) {
        let what = if quantity.unit.per.is_some() {
            What::Rate(quantity)
        } else {
            What::Size(quantity)
        };
        self.push(what, from, to);
    }

    fn clock(&mut self, at: usize, clock: &Clock) -> usize {
        let time = Time {
            clock: Some((clock.minutes, clock.past)),
            ..Time::new(
                clock.printed.clone(),
                Span::around(clock.seconds, clock.half),
            )
        };
        self.push(What::Time(time), at, at + 1);
        1
    }

    fn number(&mut self, at: usize, number: &Number) -> usize {
        if self.tokens.get(at + 1).is_some_and(|token| token.is('%')) {
            return 2;
        }
        if let Some(used) = self.operations(at, number) {
            return used;
        }
        if let Some(used) = self.range(at) {
            return used;
        }
        if let Some(used) = self.quantity(at, number) {
            return used;
        }
        if let Some(used) = self.time(at, number) {
            return used;
        }
        let glued = self.tokens.get(at + 1).is_some_and(|token| token.glued);
        match self.word(at + 1) {
            Some(word) if word.eq_ignore_ascii_case("iops") => {
                self.parts.iops = Some(number.value);
            }
            Some(word) if units::unclear(word) => {
                self.parts.unclear = Some(self.text(at, at + 2));
            }
            word if number.decimals > 0 && (word.is_none() || !glued) => {
                self.parts.bare = Some(number.printed.clone());
            }
            _ => {}
        }
        1
    }

    /// `IOPS=233k`, whose k is a thousand.
    fn operations(&mut self, at: usize, number: &Number) -> Option<usize> {
        let name = self.word(at.checked_sub(2)?)?;
        let named = name.eq_ignore_ascii_case("iops") && self.tokens[at - 1].is('=');
        let letter = self.tokens.get(at + 1).filter(|token| token.glued);
        let factor = match letter.and_then(Token::word) {
            Some("k") => Some(1e3),
            Some("M") => Some(1e6),
            _ => None,
        };
        named.then(|| {
            self.parts.iops = Some(number.value * factor.unwrap_or(1.0));
            1 + usize::from(factor.is_some())
        })
    }

    /// `9-10Gbps`, `between 6.7 and 8 Gbps`, and an interval of iperf: `[  3]  0.0-10.0 sec`.
    fn range(&mut self, at: usize) -> Option<usize> {
        let tokens = self.tokens;
        let first = tokens[at].number()?;
        let (joint, second) = (tokens.get(at + 1)?, tokens.get(at + 2)?);
        let glued = (joint.is('-') || joint.is('–')) && joint.glued && second.glued;
        let between = at > 0 && tokens[at - 1].word() == Some("between");
        let in_words = joint.word() == Some("to") || between && joint.word() == Some("and");
        let second = second
            .number()
            .filter(|second| (glued || in_words) && second.value > first.value)?;
        let span = Span::between(first.value, second.value);
        let to = at + 3;
        if let Some((unit, used)) = amount(&tokens[to..]) {
            let quantity = Quantity {
                printed: self.text(at, to + used),
                number: span,
                loose: second.loose,
                unit,
                either: false,
                range: true,
            };
            self.push_quantity(quantity, at, to + used);
            return Some(3 + used);
        }
        let seconds = self.word(to).and_then(units::time)?;
        let span = if tokens[0].is('[') {
            Span::around(second.value - first.value, first.half + second.half)
        } else {
            span
        };
        let time = Time::new(self.text(at, to + 1), span.times(seconds));
        self.push(What::Time(time), at, to + 1);
        Some(4)
    }

    /// A number with a unit; `8+ Gbps` as well.
    fn quantity(&mut self, at: usize, number: &Number) -> Option<usize> {
        let next = self.tokens.get(at + 1)?;
        let from = at + 1 + usize::from(next.is('+') && next.glued);
        let (unit, used) = amount(&self.tokens[from..])?;
        let to = from + used;
        let quantity = Quantity::new(self.text(at, to), number, unit);
        self.push_quantity(quantity, at, to);
        Some(to - at)
    }

    /// A time in a unit: `1 min 47 s` is one time, and so is `107.07s`; `1.47 minutes` is questioned.
    fn time(&mut self, at: usize, number: &Number) -> Option<usize> {
        let seconds = self.word(at + 1).and_then(units::time)?;
        let printed = self.text(at, at + 2);
        let span = Span::around(number.value * seconds, number.half * seconds);
        let adjacent = self.past == at;
        if let Some(What::Time(last)) = self.parts.list.last_mut().map(|last| &mut last.what) {
            let whole = last.span.best % 60.0 == 0.0 && last.span.best > 0.0;
            let finer = near(seconds, 1.0, 1e-9)
                || near(seconds, 60.0, 1e-9) && last.span.best % 3600.0 == 0.0;
            if adjacent && whole && finer && last.clock.is_none() && number.value < 60.0 {
                last.span = Span::around(last.span.best + span.best, number.half * seconds);
                last.printed = format!("{} {printed}", last.printed);
                last.questioned = None;
                self.past = at + 2;
                return Some(2);
            }
        }
        let digits = (number.value.fract() * 100.0 + 1e-6).floor() as u64;
        let like_a_clock =
            near(seconds, 60.0, 1e-9) && matches!(number.decimals, 2 | 4) && digits < 60;
        let time = Time {
            questioned: like_a_clock.then_some((number.value.floor() as u64, digits)),
            either: number.either,
            ..Time::new(printed, span)
        };
        self.push(What::Time(time), at, at + 2);
        Some(2)
    }
}

/// The unit that tokens begin with, and how many they are: `MB/s`, `M bytes`, `MB per second`, `M bytes/sec`.
fn amount(tokens: &[Token]) -> Option<(Unit, usize)> {
    let word = tokens.first()?.word()?;
    let second = tokens.get(1).and_then(Token::word);
    // A lone letter is a unit only at the number itself or before `bytes`.
    if matches!(word, "k" | "K" | "M" | "G" | "T") {
        if let Some(next) = second.filter(|next| next.to_lowercase().starts_with("byte")) {
            let unit = units::amount(&format!("{word}{}", next.to_lowercase()))?;
            return Some((unit, 2));
        }
        if !tokens[0].glued {
            return None;
        }
    }
    let unit = units::amount(word)?;
    if unit.per.is_none() && second == Some("per") {
        let period = tokens.get(2).and_then(Token::word).and_then(units::time);
        if period.is_some() {
            return Some((
                Unit {
                    per: period,
                    ..unit
                },
                3,
            ));
        }
    }
    Some((unit, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompute::number::Writing;
    use crate::recompute::text::tokens;
    use crate::recompute::units::Base;

    fn parts(line: &str) -> Parts {
        of(line, &tokens(line, Writing::default()).expect("readable"))
    }

    fn counts(line: &str) -> [usize; 3] {
        let found = parts(line);
        [
            found.sizes().count(),
            found.times().count(),
            found.rates().count(),
        ]
    }

    #[test]
    fn a_line_has_its_quantities() {
        let cases = [
            (
                "10737418240 bytes (11 GB) copied, 38.6415 s, 278 MB/s",
                [2, 1, 1],
            ),
            (
                "read: IOPS=233k, BW=912MiB/s (956MB/s)(13.4GiB/15001msec)",
                [1, 1, 2],
            ),
            (
                "[  3]  0.0-10.0 sec  10.9 GBytes  9.39 Gbits/sec",
                [1, 1, 1],
            ),
            (
                "sent 67.13M bytes  received 35 bytes  44.75M bytes/sec",
                [2, 0, 1],
            ),
            ("Mellanox dual port 40GBe, 40-60$, DDR-3 1333mhz", [0, 0, 0]),
        ];
        for (line, wanted) in cases {
            assert_eq!(counts(line), wanted, "{line}");
        }
        let interval = parts("[  3]  1.0-10.0 sec  10.9 GBytes");
        assert!((interval.times().next().expect("a time").span.best - 9.0).abs() < 1e-9);
    }

    #[test]
    fn minutes_that_look_like_a_clock_are_questioned() {
        let time = |text: &str| parts(text).times().next().expect("a time").clone();
        assert_eq!(time("1.47 minutes").questioned, Some((1, 47)));
        assert_eq!(time("4.33 min").questioned, Some((4, 33)));
        assert_eq!(
            time("1.75 minutes").questioned,
            None,
            "no clock shows 75 seconds"
        );
        assert_eq!(time("1.5 minutes").questioned, None);
        let both = time("1 minute 47.5 seconds");
        assert!((both.span.best - 107.5).abs() < 1e-9 && both.questioned.is_none());
        assert_eq!(
            parts("52046502432 bytes in 1.47").bare.as_deref(),
            Some("1.47")
        );
    }

    #[test]
    fn a_range_is_one_quantity() {
        let cases = [
            ("in the 24-25Gb/s range", 3e9, 3.125e9),
            ("consistent between 6.7 and 8 Gbps", 0.8375e9, 1e9),
            ("5 to 6 GB/s", 5e9, 6e9),
        ];
        for (text, low, high) in cases {
            let found = parts(text);
            let rates: Vec<Span> = found.rates().map(|rate| rate.span(Base::Decimal)).collect();
            assert_eq!(rates.len(), 1, "{text}");
            assert!(
                (rates[0].low - low).abs() < 1.0 && (rates[0].high - high).abs() < 1.0,
                "{text}"
            );
        }
        let least = parts("8+ Gbps is observed");
        assert_eq!(least.rates().count(), 1);
    }

    #[test]
    fn the_same_in_another_unit_is_known_from_another_quantity() {
        let cases = [
            ("~9.5 Gb/s (1.19 GB/s) on UDP", true),
            ("770MB/s / 734MiB/s", true),
            ("1119 MB/s (9.39 Gbit/s)", true),
            ("94.2 Mbits/sec, which is about 11.7 MB/s", true),
            ("900/850 MB/s", false),
            ("900 MB/s (850 MB/s with sync)", false),
            ("900 MB/s write, 8 Gbit/s read", false),
            ("100 MB/s (1 Gbit/s link)", false),
        ];
        for (text, again) in cases {
            let found = parts(text);
            assert_eq!(
                found.list.iter().any(|part| part.again),
                again,
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn letters_that_mean_bits_to_some_are_unclear() {
        assert_eq!(parts("about 70 mb/s").unclear.as_deref(), Some("70 mb/s"));
        assert_eq!(parts("about 70 MB/s").unclear, None);
    }
}
