//! The quantities of a line: sizes, durations and rates, each with the interval that its rounding leaves.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: tools, and how the quantities belong together.

use crate::recompute::text::{Number, Token};
use crate::recompute::units::{self, Base, Unit};

/// A value and between which two it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// As printed.
    pub best: f64,
    /// The least it may be.
    pub low: f64,
    /// The most it may be.
    pub high: f64,
}

impl Span {
    /// A value that is off by `half` at most; never below 0.
    #[must_use]
    pub fn around(best: f64, half: f64) -> Self {
        Self {
            best,
            low: (best - half).max(0.0),
            high: best + half,
        }
    }

    /// Times a factor.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            best: self.best * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// Whether both may be the same; a millionth is for the arithmetic.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        let slack = 1e-6;
        self.low <= other.high * (1.0 + slack) && other.low <= self.high * (1.0 + slack)
    }

    /// This over that; None where that may be 0 all along.
    #[must_use]
    pub fn over(self, other: Self) -> Option<Self> {
        let ratio = Self {
            best: self.best / other.best,
            low: self.low / other.high,
            high: self.high / other.low,
        };
        (other.low > 0.0).then_some(ratio)
    }

    /// How wide, as a share of the value.
    #[must_use]
    pub fn width(self) -> f64 {
        if self.best > 0.0 {
            (self.high - self.low) / self.best
        } else {
            f64::MAX
        }
    }
}

/// A size or a rate as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The text, as `568889KB/s`.
    pub printed: String,
    /// The number, in units.
    pub number: Span,
    /// Half of its last place that is not a zero.
    pub loose: f64,
    /// The unit.
    pub unit: Unit,
}

impl Quantity {
    /// A number of exactly so many bytes.
    #[must_use]
    pub fn bytes(number: &Number) -> Self {
        let unit = Unit {
            per: None,
            bits: false,
            power: 0,
            base: Some(Base::Decimal),
            usual: Base::Decimal,
        };
        Self::new(format!("{} bytes", number.printed), number, unit)
    }

    /// A number with its unit; bytes and bits without a prefix are counts, exact where they are whole.
    #[must_use]
    pub fn new(printed: String, number: &Number, unit: Unit) -> Self {
        let exact = unit.power == 0 && unit.per.is_none() && number.decimals == 0;
        let half = if exact { 0.0 } else { number.half };
        Self {
            printed,
            number: Span::around(number.value, half),
            loose: number.loose,
            unit,
        }
    }

    /// In bytes, or bytes per second.
    #[must_use]
    pub fn span(&self, open: Base) -> Span {
        self.number.times(self.unit.factor(open))
    }
}

/// A duration as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Time {
    /// The text.
    pub printed: String,
    /// In seconds.
    pub span: Span,
    /// Minutes and whole seconds past them, where it was a clock.
    pub clock: Option<(u64, u64)>,
    /// A number of minutes that looks like a clock's: `1.47 minutes`. Minutes, and the two digits after the point.
    pub questioned: Option<(u64, u64)>,
}

impl Time {
    /// What a clock would have shown: `1.47 minutes` as 1:47, 107 seconds.
    #[must_use]
    pub fn as_clock(&self) -> Option<Span> {
        let (minutes, past) = self.questioned?;
        Some(Span::around((minutes * 60 + past) as f64, 0.5))
    }
}

/// All quantities of a line, in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parts {
    /// Sizes.
    pub sizes: Vec<Quantity>,
    /// Durations.
    pub times: Vec<Time>,
    /// Rates.
    pub rates: Vec<Quantity>,
    /// Operations a second.
    pub iops: Option<f64>,
    /// The first percentage.
    pub percent: Option<f64>,
    /// A number with decimals and no unit.
    pub bare: Option<String>,
}

/// The quantities of a line.
#[must_use]
pub fn of(tokens: &[Token]) -> Parts {
    let mut parts = Parts::default();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        at += 1;
        if let Some(clock) = rest[0].clock() {
            parts.times.push(Time {
                printed: clock.printed.clone(),
                span: Span::around(clock.seconds, clock.half),
                clock: Some((clock.minutes, clock.past)),
                questioned: None,
            });
            continue;
        }
        let Some(number) = rest[0].number() else {
            continue;
        };
        if let Some((first, second, used)) = range(rest) {
            if let Some((unit, more)) = amount(&rest[used..]) {
                push_range(&mut parts, first, second, unit);
                at += used + more - 1;
                continue;
            }
            if let Some(seconds) = rest.get(used).and_then(Token::word).and_then(units::time) {
                let span = Span::around(
                    (second.value - first.value) * seconds,
                    (first.half + second.half) * seconds,
                );
                parts.times.push(Time {
                    printed: format!("{}-{}", first.printed, second.printed),
                    span,
                    clock: None,
                    questioned: None,
                });
                at += used;
                continue;
            }
        }
        if rest.get(1).is_some_and(|token| token.is('%')) {
            parts.percent = parts.percent.or(Some(number.value));
            at += 1;
            continue;
        }
        if let Some((unit, used)) = amount(&rest[1..]) {
            let words: Vec<&str> = rest[1..=used].iter().filter_map(Token::word).collect();
            let blank = if rest[1].glued { "" } else { " " };
            let printed = format!("{}{blank}{}", number.printed, words.join(" "));
            let quantity = Quantity::new(printed, number, unit);
            if unit.per.is_some() {
                parts.rates.push(quantity);
            } else {
                parts.sizes.push(quantity);
            }
            at += used;
            continue;
        }
        let word = rest.get(1).and_then(Token::word);
        if let Some(seconds) = word.and_then(units::time) {
            let printed = format!("{} {}", number.printed, word.unwrap_or(""));
            push_time(&mut parts, number, seconds, printed);
            at += 1;
            continue;
        }
        if word.is_some_and(|word| word.eq_ignore_ascii_case("iops")) {
            parts.iops = Some(number.value);
        } else if number.decimals > 0 && word.is_none_or(|_| !rest[1].glued) {
            parts.bare = Some(number.printed.clone());
        }
    }
    parts
}

/// `9-10`, glued, the second above the first; with the number of tokens.
fn range(tokens: &[Token]) -> Option<(&Number, &Number, usize)> {
    let first = tokens[0].number()?;
    let hyphen = tokens.get(1)?;
    let second = tokens.get(2)?;
    let glued = (hyphen.is('-') || hyphen.is('–')) && hyphen.glued && second.glued;
    let second = second.number().filter(|_| glued)?;
    (second.value > first.value).then_some((first, second, 3))
}

fn push_range(parts: &mut Parts, first: &Number, second: &Number, unit: Unit) {
    let quantity = Quantity {
        printed: format!("{}-{}", first.printed, second.printed),
        number: Span {
            best: f64::midpoint(first.value, second.value),
            low: first.value,
            high: second.value,
        },
        loose: second.loose,
        unit,
    };
    if unit.per.is_some() {
        parts.rates.push(quantity);
    } else {
        parts.sizes.push(quantity);
    }
}

/// A time in a unit: `1 min 47 s` is one time, and so is `107.07s`; `1.47 minutes` is questioned.
fn push_time(parts: &mut Parts, number: &Number, seconds: f64, printed: String) {
    let span = Span::around(number.value * seconds, number.half * seconds);
    if let Some(last) = parts.times.last_mut() {
        let continues = last.clock.is_none()
            && last.questioned.is_none()
            && last.span.best - last.span.low >= 30.0
            && last.span.best % 60.0 == 0.0
            && (seconds == 1.0 || seconds == 60.0 && last.span.best % 3600.0 == 0.0)
            && number.value < 60.0;
        if continues {
            let total = last.span.best + span.best;
            last.span = Span::around(total, number.half * seconds);
            last.printed = format!("{} {printed}", last.printed);
            return;
        }
    }
    let digits: Option<u64> = (seconds == 60.0 && matches!(number.decimals, 2 | 4))
        .then(|| ((number.value.fract() + 1e-9) * 100.0).floor() as u64);
    let questioned = digits
        .filter(|digits| *digits < 60)
        .map(|digits| (number.value.floor() as u64, digits));
    parts.times.push(Time {
        printed,
        span,
        clock: None,
        questioned,
    });
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
        let period = tokens.get(2).and_then(Token::word).and_then(units::period);
        if period.is_some() {
            return Some((Unit { per: period, ..unit }, 3));
        }
    }
    Some((unit, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompute::text::{Writing, tokens};

    fn parts(line: &str) -> Parts {
        of(&tokens(line, Writing::default()).expect("readable"))
    }

    #[test]
    fn a_line_has_its_quantities() {
        let found = parts("10737418240 bytes (11 GB) copied, 38.6415 s, 278 MB/s");
        assert_eq!((found.sizes.len(), found.times.len(), found.rates.len()), (2, 1, 1));
        let found = parts("read: IOPS=734, BW=734MiB/s (770MB/s)(30.0GiB/41847msec)");
        assert_eq!((found.sizes.len(), found.times.len(), found.rates.len()), (1, 1, 2));
        assert!((found.times[0].span.best - 41.847).abs() < 1e-9);
        let found = parts("[  3]  0.0-10.0 sec  10.9 GBytes  9.39 Gbits/sec");
        assert!((found.times[0].span.best - 10.0).abs() < 1e-9);
        let found = parts("sent 67.13M bytes  received 35 bytes  44.75M bytes/sec");
        assert_eq!((found.sizes.len(), found.rates.len()), (2, 1));
    }

    #[test]
    fn minutes_that_look_like_a_clock_are_questioned() {
        let time = |text: &str| parts(text).times.remove(0);
        assert_eq!(time("1.47 minutes").questioned, Some((1, 47)));
        assert_eq!(time("4.33 min").questioned, Some((4, 33)));
        assert_eq!(time("1.75 minutes").questioned, None, "no clock shows 75 seconds");
        assert_eq!(time("1.5 minutes").questioned, None);
        let both = time("1 minute 47.5 seconds");
        assert!((both.span.best - 107.5).abs() < 1e-9 && both.questioned.is_none());
        assert_eq!(parts("52046502432 bytes in 1.47").bare.as_deref(), Some("1.47"));
    }

    #[test]
    fn a_range_is_one_rate() {
        let rate = &parts("in the 24-25Gb/s range").rates[0];
        let span = rate.span(Base::Decimal);
        assert!((span.low - 3e9).abs() < 1.0 && (span.high - 3.125e9).abs() < 1.0);
    }
}
