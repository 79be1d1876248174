//! Numbers in words: grouped, and with the digits that were asked for.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: readings.

use crate::recompute::parts::Quantity;

/// A number with so many decimals and its thousands grouped: `49,635.4`.
#[must_use]
pub fn decimal(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// A number of bytes: exact below a million million.
#[must_use]
pub fn bytes(value: f64) -> String {
    format!("{} bytes", decimal(value, 0))
}

/// A rate in MB/s.
#[must_use]
pub fn rate(value: f64) -> String {
    if value < 1e5 && value > 0.0 {
        return format!("{} kB/s", decimal(value / 1e3, 1));
    }
    format!("{} MB/s", decimal(value / 1e6, if value < 1e7 { 2 } else { 1 }))
}

/// A duration in seconds.
#[must_use]
pub fn seconds(value: f64) -> String {
    let places = if value < 10.0 { 3 } else { 2 };
    format!("{} s", decimal(value, places))
}

/// A share that something is off by: `+19.8 %`.
#[must_use]
pub fn share(value: f64) -> String {
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
    let unit = unit.trim();
    let whole = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = if whole {
        decimal(quantity.number.best, 0)
    } else {
        number.to_owned()
    };
    format!("{number} {unit}").trim_end().to_owned()
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
        assert_eq!(share(0.19835), "+19.8 %");
    }
}
