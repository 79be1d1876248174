//! Words for units: which quantity a word is of, and what is left open by it (a printed `MB` may be 10^6 or 2^20 bytes).
//!
//! Pure. Sizes are in bytes, rates in bytes per second, times in seconds. Must not know: tools, lines.

/// What a prefix multiplies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Powers of 1000.
    Decimal,
    /// Powers of 1024.
    Binary,
}

impl Base {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Decimal => Self::Binary,
            Self::Binary => Self::Decimal,
        }
    }

    const fn number(self) -> f64 {
        match self {
            Self::Decimal => 1000.0,
            Self::Binary => 1024.0,
        }
    }
}

/// The unit of a size or a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// A rate: per so many seconds. None for a size.
    pub per: Option<f64>,
    /// Bits, not bytes.
    pub bits: bool,
    /// 0 without a prefix, 1 for kilo, 2 for mega ..
    pub power: i32,
    /// What the word itself says; None where it leaves it open.
    pub base: Option<Base>,
    /// What it is where nothing says otherwise.
    pub usual: Base,
}

impl Unit {
    /// One byte.
    pub const BYTE: Self = Self {
        per: None,
        bits: false,
        power: 0,
        base: Some(Base::Decimal),
        usual: Base::Decimal,
    };

    /// Bytes, or bytes per second, of one of it.
    #[must_use]
    pub fn factor(self, open: Base) -> f64 {
        let bytes = self.base.unwrap_or(open).number().powi(self.power);
        bytes / if self.bits { 8.0 } else { 1.0 } / self.per.unwrap_or(1.0)
    }

    /// Its name, for sums of what was printed in it.
    #[must_use]
    pub fn name(self) -> String {
        let binary = self.base == Some(Base::Binary) && !self.bits;
        let prefix = match self.power {
            1 if binary => "Ki",
            1 => "k",
            2 if binary => "Mi",
            2 => "M",
            3 if binary => "Gi",
            3 => "G",
            4 if binary => "Ti",
            4 => "T",
            _ => "",
        };
        let amount = if self.bits { "bit" } else { "B" };
        let per = if self.per.is_some() { "/s" } else { "" };
        format!("{prefix}{amount}{per}")
    }

    /// Whether the word leaves open what the prefix is.
    #[must_use]
    pub const fn open(self) -> bool {
        self.base.is_none() && self.power > 0
    }
}

const LONG_PREFIXES: &[(&str, i32, Option<Base>)] = &[
    ("kilo", 1, None),
    ("mega", 2, None),
    ("giga", 3, None),
    ("tera", 4, None),
    ("kibi", 1, Some(Base::Binary)),
    ("mebi", 2, Some(Base::Binary)),
    ("gibi", 3, Some(Base::Binary)),
    ("tebi", 4, Some(Base::Binary)),
];

const TIMES: &[(&str, f64)] = &[
    ("s", 1.0),
    ("sec", 1.0),
    ("secs", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("sek", 1.0),
    ("sekunden", 1.0),
    ("ms", 1e-3),
    ("msec", 1e-3),
    ("msecs", 1e-3),
    ("millisecond", 1e-3),
    ("milliseconds", 1e-3),
    ("us", 1e-6),
    ("usec", 1e-6),
    ("µs", 1e-6),
    ("ns", 1e-9),
    ("nsec", 1e-9),
    ("min", 60.0),
    ("mins", 60.0),
    ("minute", 60.0),
    ("minutes", 60.0),
    ("minuten", 60.0),
    ("h", 3600.0),
    ("hr", 3600.0),
    ("hrs", 3600.0),
    ("hour", 3600.0),
    ("hours", 3600.0),
];

/// Seconds of one of it, where the word is a unit of time.
#[must_use]
pub fn time(word: &str) -> Option<f64> {
    let word = word.to_lowercase();
    TIMES
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, seconds)| *seconds)
}

/// Whether a word is a rate or a size in letters that some mean as bits and some as bytes: `mb/s`.
#[must_use]
pub fn unclear(word: &str) -> bool {
    let amount = word.split_once('/').map_or(
        word,
        |(amount, per)| {
            if time(per).is_some() { amount } else { "" }
        },
    );
    matches!(amount, "mb" | "gb" | "tb")
}

/// The unit of a size or a rate that a word is: `MB`, `KiloBytes/sec`, `Gbit/s`, `Mbps`, `M/s`.
#[must_use]
pub fn amount(word: &str) -> Option<Unit> {
    if let Some((amount, per)) = word.split_once('/') {
        let unit = of(amount, true)?;
        let per = Some(time(per)?);
        return Some(Unit { per, ..unit });
    }
    if let Some(amount) = word.strip_suffix("ps").filter(|amount| !amount.is_empty()) {
        let unit = of(amount, true).filter(|_| amount.ends_with(['b', 'B']))?;
        let per = Some(1.0);
        return Some(Unit { per, ..unit });
    }
    of(word, false)
}

/// The amount that a word without its period is.
fn of(word: &str, rate: bool) -> Option<Unit> {
    let lower = word.to_lowercase();
    let unit = |bits: bool, power: i32, base: Option<Base>| {
        // Bits are counted in thousands by nearly everyone.
        let base = if power == 0 {
            Some(Base::Decimal)
        } else {
            base
        };
        Some(Unit {
            per: None,
            bits,
            power,
            base,
            usual: Base::Decimal,
        })
    };
    for (prefix, power, base) in LONG_PREFIXES {
        if let Some(bits) = lower.strip_prefix(prefix).and_then(long) {
            return unit(bits, *power, *base);
        }
    }
    if let Some(bits) = long(&lower) {
        return unit(bits, 0, None);
    }
    match word {
        "B" => return unit(false, 0, None),
        "b" if rate => return unit(true, 0, None),
        _ => {}
    }
    let prefix = word.chars().next()?;
    let power = match prefix {
        'k' | 'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ => return None,
    };
    let rest = &word[1..];
    let (base, rest) = match rest.strip_prefix('i') {
        Some(rest) => (Some(Base::Binary), rest),
        None => (None, rest),
    };
    match rest {
        "B" => unit(false, power, base),
        "b" => unit(true, power, base),
        // A letter alone is a power of 1024, as fio, dd and `iperf3 -n` have it.
        "" => Some(Unit {
            per: None,
            bits: false,
            power,
            base,
            usual: Base::Binary,
        }),
        _ => unit(long(&rest.to_lowercase())?, power, base),
    }
}

/// Whether a long word is of bits; None for other words.
fn long(word: &str) -> Option<bool> {
    match word {
        "bit" | "bits" => Some(true),
        "byte" | "bytes" | "octet" | "octets" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_units() {
        let cases = [
            ("bytes", 1.0),
            ("MB", 1e6),
            ("MiB/s", 1_048_576.0),
            ("KB/s", 1e3),
            ("KiloBytes/sec", 1e3),
            ("MegaBytes/min", 1e6 / 60.0),
            ("Mbits/sec", 125e3),
            ("Gbits/sec", 125e6),
            ("Gbit/s", 125e6),
            ("Gbps", 125e6),
            ("Mbps", 125e3),
            ("MBps", 1e6),
            ("Gb/s", 125e6),
            ("MByte/s", 1e6),
            ("MBit/s", 125e3),
            ("kbytes", 1e3),
            ("Kbytes/sec", 1e3),
            ("GBytes", 1e9),
            ("b/s", 0.125),
            ("Gibit/s", 134_217_728.0),
        ];
        for (word, factor) in cases {
            let unit = amount(word).expect(word);
            assert!(
                (unit.factor(Base::Decimal) / factor - 1.0).abs() < 1e-12,
                "{word}"
            );
        }
        let letter = amount("M/s").expect("a rate");
        assert_eq!((letter.usual, letter.open()), (Base::Binary, true));
        assert!(unclear("mb/s") && unclear("gb") && !unclear("MB/s") && !unclear("mb/x"));
        let names =
            ["MBytes/sec", "GiB/s", "Mbps", "bytes"].map(|word| amount(word).expect(word).name());
        assert_eq!(names, ["MB/s", "GiB/s", "Mbit/s", "B"]);
        for word in [
            "user", "GHz", "ps", "steps", "m", "IOPS", "CPU", "SE", "mb/x",
        ] {
            assert_eq!(amount(word), None, "{word}");
        }
    }
}
