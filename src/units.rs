//! Quantities with their units: sizes, rates and durations, read and printed without ambiguity.
//!
//! Sizes follow fio, dd and `iperf3 -n`: `k M G T` and `KiB MiB GiB TiB` are powers of 1024, `kB MB GB TB`
//! powers of 1000. Rates in bit/s are powers of 1000. A bare duration is seconds. Must not know: anything
//! but numbers and text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A quantity in words that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A number of bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

/// A span of time in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("m", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("g", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("t", 1 << 40),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const RATE_UNITS: &[(&str, f64)] = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("KiB/s", 1024.0),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", 1_073_741_824.0),
    ("bit/s", 0.125),
    ("kbit/s", 125.0),
    ("Mbit/s", 125e3),
    ("Gbit/s", 125e6),
];

const TIME_UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("h", 3600e9),
];

/// Splits `12.5MiB` into the number and its unit.
fn split(text: &str, what: &str) -> Result<(f64, u64, bool, String), UnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: f64 = digits
        .parse()
        .map_err(|_| UnitError(format!("'{text}' is not a {what}")))?;
    if !number.is_finite() {
        return Err(UnitError(format!("'{text}' is too large for a {what}")));
    }
    let whole = digits.parse::<u64>();
    Ok((
        number,
        whole.clone().unwrap_or(0),
        whole.is_ok(),
        unit.trim().to_owned(),
    ))
}

fn unknown_unit(unit: &str, what: &str, units: &[&str]) -> UnitError {
    UnitError(format!(
        "unknown unit '{unit}' in a {what}; one of: {}",
        units.join(" ")
    ))
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, whole, exact, unit) = split(text, "size such as 4KiB, 1M or 10GB")?;
        let &(_, factor) = SIZE_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| {
                unknown_unit(
                    &unit,
                    "size",
                    &[
                        "B", "k", "M", "G", "T", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB",
                    ],
                )
            })?;
        let too_large = || UnitError(format!("'{text}' is larger than any storage (limit 8 EiB)"));
        if exact {
            let bytes = whole
                .checked_mul(factor)
                .filter(|b| *b < 1 << 63)
                .ok_or_else(too_large)?;
            return Ok(Self(bytes));
        }
        let bytes = number * factor as f64;
        if bytes >= 9.2e18 {
            Err(too_large())
        } else {
            Ok(Self(bytes.round() as u64))
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, _, _, unit) = split(text, "rate such as 110MB/s or 10Gbit/s")?;
        let names: Vec<&str> = RATE_UNITS.iter().map(|(name, _)| *name).collect();
        let &(_, factor) = RATE_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| unknown_unit(&unit, "rate", &names))?;
        Ok(Self(number * factor))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, _, _, unit) = split(text, "duration such as 10s, 200us or 2m")?;
        let &(_, factor) = TIME_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| unknown_unit(&unit, "duration", &["ns", "us", "ms", "s", "m", "h"]))?;
        let nanos = number * factor;
        if nanos > 9.2e18 {
            Err(UnitError(format!("'{text}' is too long")))
        } else {
            Ok(Self(nanos.round() as u64))
        }
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that keeps the number whole, else two decimals: `4 KiB`, `1.50 GiB`, `4095 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        for (name, factor) in units {
            if self.0 >= factor {
                return if self.0.is_multiple_of(factor) {
                    write!(f, "{} {name}", self.0 / factor)
                } else {
                    write!(f, "{:.2} {name}", self.0 as f64 / factor as f64)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl Bytes {
    /// Both systems of units, for plans and refusals: `10 GiB (10.74 GB)`.
    #[must_use]
    pub fn both(self) -> String {
        let decimal = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
        match decimal.iter().find(|(_, factor)| self.0 as f64 >= *factor) {
            Some((name, factor)) => format!("{self} ({:.2} {name})", self.0 as f64 / factor),
            None => self.to_string(),
        }
    }

    /// The shortest exact spelling that [`Bytes::from_str`] reads back: `4KiB`, `1048577`.
    #[must_use]
    pub fn spelled(self) -> String {
        let units = [
            ("TiB", 1u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        match units
            .iter()
            .find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor))
        {
            Some((name, factor)) => format!("{}{name}", self.0 / factor),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("h", 3600 * SECOND),
            ("m", 60 * SECOND),
            ("s", SECOND),
            ("ms", 1_000_000),
            ("us", 1_000),
        ];
        for (name, factor) in units {
            if self.0 > 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}ns", self.0)
    }
}

impl Nanos {
    /// The span in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span as the standard library has it.
    #[must_use]
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl Rate {
    /// Megabytes (10^6 bytes) per second.
    #[must_use]
    pub fn megabytes(self) -> f64 {
        self.0 / 1e6
    }

    /// Mebibytes (2^20 bytes) per second.
    #[must_use]
    pub fn mebibytes(self) -> f64 {
        self.0 / 1_048_576.0
    }

    /// Gigabits (10^9 bits) per second.
    #[must_use]
    pub fn gigabits(self) -> f64 {
        self.0 / 125e6
    }
}

/// Text forms in TOML and JSON: a string with a unit, or a plain integer (bytes, or seconds for a duration; a rate needs its
/// unit).
macro_rules! text_form {
    ($type:ident, $spelled:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&$spelled(*self))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a number with a unit in quotes, or a whole number")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        number.to_string().parse().map_err(E::custom)
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

text_form!(Bytes, |bytes: Bytes| bytes.spelled());
text_form!(Nanos, |nanos: Nanos| nanos.to_string());
text_form!(Rate, |rate: Rate| format!("{}B/s", rate.0));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_fio_and_dd() {
        let cases = [
            ("4k", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("1M", 1 << 20),
            ("1MB", 1_000_000),
            ("1.5GiB", 3 << 29),
            ("4095", 4095),
            ("2T", 1u64 << 41),
            ("9007199254740993", 9_007_199_254_740_993),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "20000000TiB",
            "4XB",
            "",
            "-1",
            "1.2.3",
            "99999999999999999999",
            "inf",
            "GiB",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_default_to_seconds() {
        assert_eq!("10".parse::<Nanos>(), Ok(Nanos(10 * SECOND)));
        assert_eq!("200us".parse::<Nanos>(), Ok(Nanos(200_000)));
        assert_eq!("2m".parse::<Nanos>(), Ok(Nanos(120 * SECOND)));
        assert!("1:47".parse::<Nanos>().is_err());
    }

    #[test]
    fn rates_keep_bits_and_bytes_apart() {
        assert_eq!("1Gbit/s".parse::<Rate>(), Ok(Rate(125e6)));
        assert_eq!("1MiB/s".parse::<Rate>(), Ok(Rate(1_048_576.0)));
        assert!("10G".parse::<Rate>().is_err(), "neither bits nor bytes");
    }

    #[test]
    fn spelled_sizes_and_times_read_back() {
        for bytes in [0, 1, 4095, 4096, 1 << 20, (1 << 20) + 1, 10 << 30, 3 << 40] {
            assert_eq!(Bytes(bytes).spelled().parse::<Bytes>(), Ok(Bytes(bytes)));
        }
        for nanos in [
            0,
            1,
            999,
            1_000,
            200_000,
            1_500_000_000,
            60 * SECOND,
            90 * SECOND,
        ] {
            assert_eq!(Nanos(nanos).to_string().parse::<Nanos>(), Ok(Nanos(nanos)));
        }
    }

    #[test]
    fn plans_echo_both_systems() {
        assert_eq!(Bytes(10 << 30).both(), "10 GiB (10.74 GB)");
    }
}
