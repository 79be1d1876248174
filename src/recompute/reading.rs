//! One line as readings: which of its quantities belong together, by the tool whose line it is.
//!
//! Pure. Must not know: other lines, and whether the quantities agree.

use crate::recompute::parts::{self, Parts, Quantity, Span, Time};
use crate::recompute::text::{Kind, Token};
use crate::recompute::tools::{self, RSYNC, SCP, Tool};
use crate::recompute::units::Base;

/// Quantities that somebody stated together.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The line they stand on, from 1.
    pub line: usize,
    /// That line.
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
    /// Rates, the first one first.
    pub rates: Vec<Quantity>,
    /// Rates that the first one is the sum of.
    pub addends: Vec<Quantity>,
    /// Operations a second, and the size of one.
    pub operations: Option<(f64, Quantity)>,
    /// What else must be said.
    pub notes: Vec<String>,
}

impl Reading {
    /// What a byte unit is where its word leaves it open.
    #[must_use]
    pub fn open(&self, quantity: &Quantity) -> Base {
        match self.tool {
            Some(tool) if quantity.unit.bits => tool.bits,
            Some(tool) => tool.bytes,
            None => quantity.unit.usual,
        }
    }

    /// A quantity in bytes or bytes per second, as this line means it.
    #[must_use]
    pub fn span(&self, quantity: &Quantity) -> Span {
        quantity.span(self.open(quantity))
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
}

/// Words of lines that state a setting or a link, nothing that was moved.
const SETTINGS: &[&str] = &[
    "link is up",
    "link is down",
    "window size",
    "speed: ",
    " to download",
    "max bandwidth",
];

/// The readings of a line.
#[must_use]
pub fn of(line: usize, text: &str, tokens: &[Token]) -> Vec<Reading> {
    let lower = text.to_lowercase();
    let mut parts = parts::of(tokens);
    let tool = tools::of_line(text);
    if tool.is_none() && SETTINGS.iter().any(|word| lower.contains(word))
        || lower.trim_end().ends_with(" eta")
    {
        return Vec::new();
    }
    let mut reading = Reading {
        line,
        text: text.trim().to_owned(),
        tool,
        ..Reading::default()
    };
    if tool.is_none() && parts.percent.is_some() && !parts.rates.is_empty() {
        if let Some(done) = progress(&mut reading, tokens, &mut parts) {
            return done;
        }
    }
    match tool.map(|tool| tool.name) {
        Some("nload") => return each_side(&reading, parts),
        Some("CrystalDiskMark") => {
            let before = text.split(':').next().unwrap_or("");
            let before = text.find("):").map_or(before, |end| &text[..=end]);
            reading.label = Some(before.split_whitespace().collect::<Vec<_>>().join(" "));
            parts.times.clear();
            if let (Some(iops), Some(block)) = (parts.iops, parts.sizes.first()) {
                // What a block is called KB in old versions is 1024 bytes all the same.
                let unit = block.unit;
                let block = Quantity {
                    unit: super::units::Unit {
                        base: Some(Base::Binary),
                        ..unit
                    },
                    number: Span::around(block.number.best, 0.0),
                    ..block.clone()
                };
                reading.operations = Some((iops, block));
            }
            parts.sizes.clear();
        }
        Some("rsync") => total(&mut parts),
        Some("wget" | "smbclient") => {
            if let Some(size) = named(tokens) {
                parts.sizes = vec![size];
            }
            // What smbclient says next is the mean over all files so far.
            parts.rates.truncate(1);
        }
        Some("iperf" | "iperf3") => network(&mut reading, &mut parts),
        Some("nuttcp") => {
            let name = tokens.first().and_then(Token::word);
            let colon = tokens.get(1).is_some_and(|token| token.is(':'));
            reading.label = name.filter(|_| colon).map(str::to_owned);
            parts.times.truncate(1);
        }
        _ => {}
    }
    if let Some(sum) = sum(tokens, &parts) {
        reading.addends = sum;
        parts.rates = parts.rates.split_off(parts.rates.len() - 1);
    }
    assembled(reading, parts)
}

/// The size is the one printed most finely; rates that can't be the same are readings of their own.
fn assembled(mut reading: Reading, parts: Parts) -> Vec<Reading> {
    let widths = parts.sizes.iter().map(|size| size.number.width());
    let finest = widths
        .enumerate()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(at, _)| at);
    if let Some(at) = finest {
        let chosen = parts.sizes[at].clone();
        let bytes = reading.span(&chosen).best;
        let others = parts.sizes.iter().enumerate().filter(|(other, _)| *other != at);
        reading.sizes = others
            .map(|(_, size)| size.clone())
            .filter(|size| near(reading.span(size).best, bytes, 0.15))
            .collect();
        reading.size = Some(chosen);
    }
    reading.time = parts.times.into_iter().next();
    let mut rates = parts.rates.into_iter();
    let Some(first) = rates.next() else {
        let whole = reading.size.is_some() && reading.time.is_some();
        return if whole { vec![reading] } else { Vec::new() };
    };
    let known = reading.span(&first).best;
    let mut apart = Vec::new();
    for rate in rates {
        if near(reading.span(&rate).best, known, 0.1) {
            reading.rates.push(rate);
        } else {
            apart.push(rate);
        }
    }
    reading.rates.insert(0, first);
    let (line, text, tool) = (reading.line, reading.text.clone(), reading.tool);
    let whole = reading.size.is_some() && reading.time.is_some();
    let mut found = vec![reading];
    if whole || tool.is_some() {
        // With a size and a time there is one rate; what differs is said of it.
        found[0].rates.extend(apart);
    } else {
        found.extend(apart.into_iter().map(|rate| Reading {
            line,
            text: text.clone(),
            rates: vec![rate],
            ..Reading::default()
        }));
    }
    found
}

fn near(a: f64, b: f64, share: f64) -> bool {
    b > 0.0 && (a / b - 1.0).abs() <= share
}

/// A finished progress line of rsync (size first) or scp (percentage first); None for other lines with a percentage.
fn progress(reading: &mut Reading, tokens: &[Token], parts: &mut Parts) -> Option<Vec<Reading>> {
    let clock = parts.times.iter().position(|time| time.clock.is_some())?;
    let percent = parts.percent?;
    let share = tokens.iter().position(|token| token.is('%'))?;
    let first = tokens[0].number().filter(|_| share > 1);
    if let Some(size) = first {
        reading.tool = Some(&RSYNC);
        reading.size = Some(Quantity::bytes(size));
        // With -h its sizes are by 1000, unlike its rates.
        if let Some(size) = parts.sizes.first() {
            let unit = super::units::Unit {
                base: size.unit.base.or(Some(Base::Decimal)),
                ..size.unit
            };
            reading.size = Some(Quantity {
                unit,
                ..size.clone()
            });
        }
    } else if parts.sizes.len() == 1 {
        reading.tool = Some(&SCP);
        reading.size = parts.sizes.pop();
    } else {
        return None;
    }
    if percent < 100.0 {
        return Some(Vec::new());
    }
    reading.time = Some(parts.times.swap_remove(clock));
    reading.rates = std::mem::take(&mut parts.rates);
    Some(vec![std::mem::take(reading)])
}

/// nload's two sides: the left is what came in.
fn each_side(reading: &Reading, parts: Parts) -> Vec<Reading> {
    let word = reading.text.split(':').next().unwrap_or("").to_lowercase();
    let word = match word.as_str() {
        "curr" => "now",
        "avg" => "average",
        "max" => "peak",
        _ => return Vec::new(),
    };
    let both = parts.rates.len() > 1;
    let sides = parts.rates.into_iter().enumerate();
    let sides = sides.filter(|(_, rate)| rate.number.best > 0.0);
    sides
        .map(|(at, rate)| {
            let side = match (both, at) {
                (false, _) => "",
                (true, 0) => "in, ",
                (true, _) => "out, ",
            };
            Reading {
                label: Some(format!("{side}{word}")),
                rates: vec![rate],
                ..reading.clone()
            }
        })
        .collect()
}

/// rsync's totals: what was sent and what was received.
fn total(parts: &mut Parts) {
    if let [sent, received, ..] = parts.sizes.as_slice() {
        let (a, b) = (sent.span(Base::Decimal), received.span(Base::Decimal));
        let number = Span {
            best: a.best + b.best,
            low: a.low + b.low,
            high: a.high + b.high,
        };
        let unit = super::units::Unit {
            power: 0,
            base: Some(Base::Decimal),
            ..sent.unit
        };
        parts.sizes = vec![Quantity {
            printed: format!("{} + {}", sent.printed, received.printed),
            number,
            loose: sent.loose,
            unit,
        }];
    }
}

/// `of size 4442654720`, `saved [67108864/67108864]`.
fn named(tokens: &[Token]) -> Option<Quantity> {
    tokens.windows(3).find_map(|three| {
        let saved = three[0].word() == Some("saved") && three[1].is('[');
        let size = three[0].word() == Some("of") && three[1].word() == Some("size");
        let number = three[2].number().filter(|_| saved || size)?;
        Some(Quantity::bytes(number))
    })
}

/// The id in brackets and the end that speaks.
fn network(reading: &mut Reading, parts: &mut Parts) {
    let inside = reading.text.trim_start_matches('[').split(']').next();
    reading.label = inside.map(|id| id.trim().to_owned());
    reading.role = ["sender", "receiver"]
        .into_iter()
        .find(|role| reading.text.ends_with(role));
    // What follows the rate is the congestion window.
    parts.sizes.truncate(1);
    parts.rates.truncate(1);
}

/// `9.57 + 9.52 = 19.09 Gbit/s`: the addends, in the unit of the sum.
fn sum(tokens: &[Token], parts: &Parts) -> Option<Vec<Quantity>> {
    let total = parts.rates.last()?;
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
    Some(addends.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompute::text::{Writing, tokens};

    fn readings(text: &str) -> Vec<Reading> {
        of(1, text, &tokens(text, Writing::default()).expect("readable"))
    }

    #[test]
    fn progress_lines_are_told_apart() {
        let rsync = readings("   4442654720 100%  234.90MB/s    0:00:18 (xfer#1, to-check=0/1)");
        let scp = readings("a.bin                         100%   64MB  40.7MB/s   00:01    ");
        assert_eq!(rsync[0].tool.map(|tool| tool.name), Some("rsync"));
        assert_eq!(scp[0].tool.map(|tool| tool.name), Some("scp"));
        assert!(readings("   32768   0%    1.00MB/s    0:00:00").is_empty());
        assert!(readings("a.bin   38%   25MB  24.7MB/s   00:01 ETA").is_empty());
    }

    #[test]
    fn settings_are_no_measurements() {
        for line in [
            "[   80.291618] ixgbe: eth3 NIC Link is Up 10 Gbps, Flow Control: RX/TX",
            "TCP window size: 27.4 KByte (default)",
            "Gigabyte: 8GB Memory & Q6600",
        ] {
            assert!(readings(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_sum_has_its_addends() {
        let found = readings("9.57 + 9.52 + 9.51 + 9.60 = 38.20 Gbit/s");
        assert_eq!((found.len(), found[0].addends.len()), (1, 4));
    }

    #[test]
    fn different_rates_of_a_line_are_apart() {
        assert_eq!(readings("900 MB/s write, without cache 20 MB/s").len(), 2);
        assert_eq!(readings("841MiB/s (881MB/s)").len(), 1);
    }
}
