//! Numbers in words: grouped, and with the digits that were asked for.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: readings.

use crate::recompute::quantity::Quantity;
use crate::recompute::units::{Base, Unit};

/// A number with so many decimals and its thousands grouped: `49,635.4`.
#[must_use]
pub fn decimal(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// The same without zeros at its end: `1,187.5`, `900`.
#[must_use]
pub fn trimmed(value: f64, places: usize) -> String {
    let text = decimal(value, places);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A number of bytes.
#[must_use]
pub fn bytes(value: f64) -> String {
    format!("{} bytes", decimal(value, 0))
}

/// A rate in MB/s, short.
#[must_use]
pub fn rate(value: f64) -> String {
    if value < 1e5 && value > 0.0 {
        return format!("{} kB/s", decimal(value / 1e3, 1));
    }
    format!(
        "{} MB/s",
        decimal(value / 1e6, if value < 1e7 { 2 } else { 1 })
    )
}

/// A rate in a unit that was printed, with two decimals: `69,290.68 Mbit/s`.
#[must_use]
pub fn in_unit(value: f64, unit: Unit, open: Base) -> String {
    format!("{} {}", decimal(value / unit.factor(open), 2), unit.name())
}

/// A duration in seconds.
#[must_use]
pub fn seconds(value: f64) -> String {
    let places = if value < 10.0 { 3 } else { 2 };
    format!("{} s", decimal(value, places))
}

/// A share that something is off by: `+19.8 %`; of what is far off, how many times it is: `8.0 times`.
#[must_use]
pub fn off(value: f64) -> String {
    if value > 1.0 {
        return format!("{} times", decimal(value + 1.0, 1));
    }
    let sign = if value < 0.0 { "-" } else { "+" };
    format!("{sign}{} %", decimal(value.abs() * 100.0, 1))
}

/// A quantity as it was printed, its number grouped: `568,889 KB/s`.
#[must_use]
pub fn printed(quantity: &Quantity) -> String {
    let digits = quantity
        .printed
        .find(|c: char| !(c.is_ascii_digit() || ".,'".contains(c)))
        .unwrap_or(quantity.printed.len());
    let (number, unit) = quantity.printed.split_at(digits);
    let number = match number.parse::<u64>() {
        Ok(_) => decimal(quantity.number.best, 0),
        Err(_) => number.to_owned(),
    };
    format!("{number} {}", unit.trim()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(decimal(49_635.4, 0), "49,635");
        assert_eq!(decimal(0.5, 1), "0.5");
        assert_eq!(decimal(1_000_000.0, 2), "1,000,000.00");
        assert_eq!(decimal(-1234.0, 0), "-1,234");
        assert_eq!(
            (trimmed(1187.5, 3), trimmed(900.0, 3), trimmed(900.0, 0)),
            ("1,187.5".into(), "900".into(), "900".into())
        );
        assert_eq!(
            (off(0.19835), off(-0.21), off(7.0)),
            ("+19.8 %".into(), "-21.0 %".into(), "8.0 times".into())
        );
    }
}
