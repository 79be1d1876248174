//! Sizes, rates and durations as they were printed, each with the interval that its rounding leaves.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: lines, tools.

use crate::recompute::number::Number;
use crate::recompute::units::{Base, Unit};

/// A value and between which two it lies.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
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

    /// What lies between two.
    #[must_use]
    pub const fn between(low: f64, high: f64) -> Self {
        Self {
            best: f64::midpoint(low, high),
            low,
            high,
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

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            best: self.best + other.best,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    /// Whether both may be the same; a millionth is for the arithmetic.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        let slack = 1.0 + 1e-6;
        self.low <= other.high * slack && other.low <= self.high * slack
    }

    /// This over that; None where that may be 0.
    #[must_use]
    pub fn over(self, other: Self) -> Option<Self> {
        (other.low > 0.0).then(|| Self {
            best: self.best / other.best,
            low: self.low / other.high,
            high: self.high / other.low,
        })
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

/// Whether two values differ by that share at most.
#[must_use]
pub fn near(a: f64, b: f64, share: f64) -> bool {
    b > 0.0 && (a / b - 1.0).abs() <= share
}

/// A size or a rate as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The text, as `568889KB/s`.
    pub printed: String,
    /// The number, in units.
    pub number: Span,
    /// Half of its last place that is not a zero, in units.
    pub loose: f64,
    /// The unit.
    pub unit: Unit,
    /// Its one comma may separate thousands or decimals.
    pub either: bool,
    /// It is two numbers, `24-25Gb/s`: the ends of [`Quantity::number`].
    pub range: bool,
}

impl Quantity {
    /// A number of exactly so many bytes.
    #[must_use]
    pub fn bytes(number: &Number) -> Self {
        Self::new(format!("{} bytes", number.printed), number, Unit::BYTE)
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
            either: number.either,
            range: false,
        }
    }

    /// Both ends of a range; None for one number.
    #[must_use]
    pub fn ends(&self) -> Option<[Self; 2]> {
        let end = |value: f64| Self {
            number: Span::around(value, 0.0),
            range: false,
            ..self.clone()
        };
        self.range
            .then(|| [end(self.number.low), end(self.number.high)])
    }

    /// In bytes, or bytes per second; `open` is what its prefix is where its word leaves that open.
    #[must_use]
    pub fn span(&self, open: Base) -> Span {
        self.number.times(self.unit.factor(open))
    }

    /// The same with what its prefix is.
    #[must_use]
    pub fn by(mut self, base: Base) -> Self {
        self.unit.base = self.unit.base.or(Some(base));
        self
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
    /// Its one comma may separate thousands or decimals.
    pub either: bool,
}

impl Time {
    /// Plain seconds.
    #[must_use]
    pub fn seconds(number: &Number) -> Self {
        Self::new(
            format!("{} s", number.printed),
            Span::around(number.value, number.half),
        )
    }

    /// A duration.
    #[must_use]
    pub const fn new(printed: String, span: Span) -> Self {
        Self {
            printed,
            span,
            clock: None,
            questioned: None,
            either: false,
        }
    }

    /// What a clock would have shown: `1.47 minutes` as 1:47, 107 seconds.
    #[must_use]
    pub fn as_clock(&self) -> Option<Span> {
        let (minutes, past) = self.questioned?;
        Some(Span::around(minutes as f64 * 60.0 + past as f64, 0.5))
    }

    /// A clock's `1:47` read as 1.47 minutes, in seconds.
    #[must_use]
    pub fn misread(&self) -> Option<f64> {
        let (minutes, past) = self.clock?;
        (minutes > 0).then(|| 60.0 * (minutes as f64 + past as f64 / 100.0))
    }
}
