//! One line as readings: which of its quantities belong together, by the tool whose line it is.
//!
//! Pure. Must not know: other lines, and whether the quantities agree.

use crate::recompute::parts::{self, Parts, What};
use crate::recompute::quantity::{Quantity, Span, Time};
use crate::recompute::text::{Kind, Token};
use crate::recompute::tools::{self, Tool};
use crate::recompute::units::{self, Base};

mod tool;

use tool::{of_tool, progress};

/// Quantities that somebody stated together.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The line they stand on, from 1.
    pub line: usize,
    /// That line, or the sentence of it.
    pub text: String,
    /// The tool whose line it is.
    pub tool: Option<&'static Tool>,
    /// The command that was timed, where the line is of `time`.
    pub command: Option<String>,
    /// Which of several: a stream, an interface, a test.
    pub label: Option<String>,
    /// Which end of a network test says so.
    pub role: Option<&'static str>,
    /// What was moved.
    pub size: Option<Quantity>,
    /// The same size said again.
    pub sizes: Vec<Quantity>,
    /// In what time.
    pub time: Option<Time>,
    /// The same time said again.
    pub times: Vec<Time>,
    /// Rates, the first one first; the others say it again.
    pub rates: Vec<Quantity>,
    /// Rates that the first one is the sum of.
    pub addends: Vec<Quantity>,
    /// Operations a second, and the bytes of one.
    pub operations: Option<(f64, Quantity)>,
    /// What else must be said.
    pub notes: Vec<String>,
}

impl Reading {
    /// What a quantity's prefix is where its word leaves it open.
    #[must_use]
    pub fn open(&self, quantity: &Quantity) -> Base {
        match self.tool {
            Some(tool) if quantity.unit.bits => tool.bits,
            Some(tool) => tool.bytes.unwrap_or(quantity.unit.usual),
            None => quantity.unit.usual,
        }
    }

    /// A quantity in bytes or bytes per second, as this line means it.
    #[must_use]
    pub fn span(&self, quantity: &Quantity) -> Span {
        quantity.span(self.open(quantity))
    }

    /// Whether the line leaves open what a quantity's prefix is.
    #[must_use]
    pub fn is_open(&self, quantity: &Quantity) -> bool {
        let known = self.tool.is_some_and(|tool| tool.bytes.is_some());
        quantity.unit.open() && !quantity.unit.bits && !known
    }

    /// The duration; one that was cut to whole seconds may be nearly a second longer.
    #[must_use]
    pub fn seconds(&self) -> Option<Span> {
        let time = self.time.as_ref()?;
        let whole = time.span.best.fract() == 0.0 && (time.span.high - time.span.low) <= 1.0;
        if self.tool.is_some_and(|tool| tool.cuts) && whole {
            return Some(Span {
                best: time.span.best,
                low: time.span.best,
                high: time.span.best + 1.0,
            });
        }
        Some(time.span)
    }

    /// Whether there is something to say of it.
    fn is_whole(&self) -> bool {
        !self.rates.is_empty() || self.size.is_some() && self.time.is_some()
    }
}

/// Words of lines that state a setting, a unit or a moment of a transfer, nothing that was measured.
const SILENT: &[&str] = &[
    "link is up",
    "link is down",
    "window size",
    "bytes to download",
    "max bandwidth",
    "= 1,000,000 byte",
    "[eta ",
    " eta ",
    " eta:",
    "%[",
    "--:--:--",
];

/// Words after a rate that make it one of a link.
const LINKS: &[&str] = &[
    "link",
    "links",
    "ethernet",
    "nic",
    "nics",
    "adapter",
    "switch",
    "uplink",
    "interface",
];

/// Whether a line tells nothing that was measured; the line as [`tools::plain`] gives it.
fn is_silent(plain: &str) -> bool {
    // `Speed: 10000Mb/s` is ethtool's.
    plain.starts_with("speed: ")
        || plain.ends_with(" eta")
        || SILENT.iter().any(|word| plain.contains(word))
}

/// What a line holds.
#[derive(Debug, Default)]
pub struct Line {
    /// Readings that are whole.
    pub readings: Vec<Reading>,
    /// Quantities of lines without any.
    pub rest: Vec<Parts>,
}

/// The readings of a line.
#[must_use]
pub fn of(line: usize, text: &str, tokens: &[Token]) -> Line {
    let plain = tools::plain(text);
    let reading = Reading {
        line,
        text: text.trim().to_owned(),
        ..Reading::default()
    };
    if let Some(tool) = tools::of_line(&plain) {
        let parts = parts::of(text, tokens);
        let reading = Reading {
            tool: Some(tool),
            ..reading
        };
        let silent = plain.ends_with("(omitted)");
        let readings = if silent {
            Vec::new()
        } else {
            of_tool(tool.shape, reading, tokens, &parts)
        };
        return Line {
            readings,
            ..Line::default()
        };
    }
    if is_silent(&plain) {
        return Line::default();
    }
    if let Some(readings) = progress(&reading, text, tokens) {
        return Line {
            readings,
            ..Line::default()
        };
    }
    prose(line, text, tokens)
}

/// The readings of text that people wrote: sentence by sentence, and what belongs together in each.
fn prose(line: usize, text: &str, tokens: &[Token]) -> Line {
    let mut found = Line::default();
    for clause in sentences(tokens) {
        let (Some(first), Some(last)) = (clause.first(), clause.last()) else {
            continue;
        };
        let empty = Reading {
            line,
            text: text[first.at..last.end].to_owned(),
            ..Reading::default()
        };
        let parts = parts::of(text, clause);
        let readings = match sum(&empty, clause, &parts) {
            Some(reading) => vec![reading],
            None => grouped(&empty, clause, &parts),
        };
        if readings.is_empty() {
            found.rest.push(parts);
        }
        found.readings.extend(readings);
    }
    found
}

/// Tokens of a line, parted where a sentence ends.
fn sentences(tokens: &[Token]) -> Vec<&[Token]> {
    let mut sentences = Vec::new();
    let mut from = 0;
    for (at, token) in tokens.iter().enumerate() {
        let ends = match &token.kind {
            Kind::Mark('.' | '!' | '?') => tokens.get(at + 1).is_none_or(|next| !next.glued),
            Kind::Mark(';') => true,
            _ => false,
        };
        // `min.` and `sec.` are shortened.
        let word = at.checked_sub(1).and_then(|before| tokens[before].word());
        let short = word.is_some_and(|word| units::time(word).is_some() && word.len() > 1);
        if ends && !(short && token.is('.')) {
            sentences.push(&tokens[from..at]);
            from = at + 1;
        }
    }
    sentences.push(&tokens[from..]);
    sentences
}

/// Readings of a sentence: a new one begins with a quantity whose kind the one before has already.
fn grouped(empty: &Reading, tokens: &[Token], parts: &Parts) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut one = empty.clone();
    let mut list: Vec<_> = parts.list.iter().collect();
    // A clock in front of everything is the time of the day where there is another time.
    let stamped = tokens
        .iter()
        .find(|token| !matches!(token.kind, Kind::Mark(_)))
        .is_some_and(|token| token.clock().is_some());
    if stamped && parts.times().count() > 1 {
        list.remove(0);
    }
    for part in list {
        let taken = match &part.what {
            What::Size(_) => one.size.is_some(),
            What::Time(_) => one.time.is_some(),
            What::Rate(_) => !one.rates.is_empty(),
        };
        if taken && !part.again {
            readings.push(std::mem::replace(&mut one, empty.clone()));
        }
        match &part.what {
            What::Size(size) if one.size.is_some() => one.sizes.push(size.clone()),
            What::Size(size) => one.size = Some(size.clone()),
            What::Time(time) if one.time.is_some() => one.times.push(time.clone()),
            What::Time(time) => one.time = Some(time.clone()),
            What::Rate(rate) => one.rates.push(rate.clone()),
        }
    }
    readings.push(one);
    readings.retain(|one| one.is_whole() && !of_a_link(one, tokens));
    readings.into_iter().flat_map(ends).collect()
}

/// A range of rates that nothing else is known of is two figures.
fn ends(reading: Reading) -> Vec<Reading> {
    let alone = reading.size.is_none() && reading.time.is_none();
    let range = reading.rates.first().and_then(Quantity::ends);
    let Some([low, high]) = range.filter(|_| alone) else {
        return vec![reading];
    };
    let end = |label: &str, rate: Quantity| Reading {
        label: Some(label.to_owned()),
        rates: vec![rate],
        ..reading.clone()
    };
    vec![end("lower end", low), end("upper end", high)]
}

/// A rate alone that is followed by a word for a link: `a 10 Gbit/s switch`.
fn of_a_link(reading: &Reading, tokens: &[Token]) -> bool {
    if reading.size.is_some() || reading.time.is_some() || reading.rates.len() != 1 {
        return false;
    }
    let printed = &reading.rates[0].printed;
    let last = printed.split_whitespace().next_back().unwrap_or("");
    tokens.windows(2).any(|two| {
        let unit = two[0].word().is_some_and(|word| last.ends_with(word));
        let link = two[1].word().map(str::to_lowercase);
        unit && link.is_some_and(|word| LINKS.contains(&word.as_str()))
    })
}

/// `9.57 + 9.52 = 19.09 Gbit/s`: the addends, in the unit of the sum.
fn sum(empty: &Reading, tokens: &[Token], parts: &Parts) -> Option<Reading> {
    let total = parts.rates().next_back()?;
    let equals = tokens.iter().position(|token| token.is('='))?;
    let mut numbers = Vec::new();
    for (at, token) in tokens[..equals].iter().rev().enumerate() {
        match &token.kind {
            Kind::Number(number) if at % 2 == 0 => numbers.push(number),
            Kind::Mark('+') if at % 2 == 1 => {}
            _ => break,
        }
    }
    if numbers.len() < 2 {
        return None;
    }
    let addends = numbers.into_iter().rev();
    let addends = addends.map(|number| Quantity::new(number.printed.clone(), number, total.unit));
    Some(Reading {
        rates: vec![total.clone()],
        addends: addends.collect(),
        ..empty.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompute::number::Writing;
    use crate::recompute::text::tokens;

    fn readings(text: &str) -> Vec<Reading> {
        of(
            1,
            text,
            &tokens(text, Writing::default()).expect("readable"),
        )
        .readings
    }

    #[test]
    fn progress_lines_are_told_apart() {
        let cases = [
            (
                "   4442654720 100%  234.90MB/s    0:00:18 (xfer#1, to-check=0/1)",
                "rsync",
            ),
            (
                "  4,442,654,720 100%  234.90MB/s    0:00:18 (xfr#1, to-chk=0/1)",
                "rsync",
            ),
            (
                "a.bin                         100%   64MB  40.7MB/s   00:01    ",
                "scp",
            ),
            ("backup-10GB.img   100% 9536MB 110.2MB/s   01:26", "scp"),
        ];
        for (line, name) in cases {
            let found = readings(line);
            assert_eq!(found.len(), 1, "{line}");
            assert_eq!(found[0].tool.map(|tool| tool.name), Some(name), "{line}");
        }
        for line in [
            "   32768   0%    1.00MB/s    0:00:00",
            "a.bin   38%   25MB  24.7MB/s   00:01 ETA",
            "dogImages.zip  100%[===========>]   1.05G  38.8MB/s    in 43s",
        ] {
            assert!(readings(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn settings_are_no_measurements() {
        for line in [
            "[   80.291618] ixgbe: eth3 NIC Link is Up 10 Gbps, Flow Control: RX/TX",
            "TCP window size: 27.4 KByte (default)",
            "Gigabyte: 8GB Memory & Q6600",
            "behind a 10 Gbit/s switch",
        ] {
            assert!(readings(line).is_empty(), "{line}: {:?}", readings(line));
        }
    }

    #[test]
    fn a_sum_has_its_addends() {
        let found = readings("9.57 + 9.52 + 9.51 + 9.60 = 38.20 Gbit/s");
        assert_eq!((found.len(), found[0].addends.len()), (1, 4));
    }

    #[test]
    fn what_belongs_together_is_one_reading() {
        let cases = [
            ("900 MB/s write, without cache 20 MB/s", 2),
            ("841MiB/s (881MB/s)", 1),
            ("Downloading 49000MB for 1.47 minutes is: 568889KB/s.", 1),
            ("5 GB in 50 s and 10 GB in 110 s", 2),
            ("05:41:56 copied 5 GB in 50 s", 1),
            (
                "It has 8 GB of memory. 5 GB took 50 s; the other way 60 MB/s!",
                2,
            ),
            (
                "~9.5 Gb/s (1.19 GB/s) on UDP and slightly lower (~9.3 Gb/s) using TCP",
                2,
            ),
        ];
        for (line, count) in cases {
            let found = readings(line);
            assert_eq!(found.len(), count, "{line}: {found:?}");
        }
        let ends = readings("rates were in the 24-25Gb/s range");
        let best: Vec<f64> = ends.iter().map(|end| end.rates[0].number.best).collect();
        assert_eq!(best, [24.0, 25.0]);
        let stamped = &readings("05:41:56 copied 5 GB in 50 s")[0];
        assert!((stamped.seconds().expect("a time").best - 50.0).abs() < 1e-9);
    }
}
