//! A line of a tool as readings: each tool puts its quantities in an order of its own.
//!
//! Pure. Must not know: prose.

use super::Reading;
use crate::recompute::parts::{self, Parts, What};
use crate::recompute::quantity::{Quantity, Span, near};
use crate::recompute::text::Token;
use crate::recompute::tools::{RSYNC, SCP, Shape};
use crate::recompute::units::{Base, Unit};

/// Sizes of a tool's line that differ by more than this are of different things.
const SAME_SIZE: f64 = 0.15;

/// The readings of a tool's line.
pub(super) fn of_tool(
    shape: Shape,
    mut reading: Reading,
    tokens: &[Token],
    parts: &Parts,
) -> Vec<Reading> {
    let rates: Vec<Quantity> = parts.rates().cloned().collect();
    let mut times = parts.times().cloned();
    match shape {
        Shape::Sides => return sides(&reading, rates),
        Shape::Marks => return marks(reading, parts).into_iter().collect(),
        Shape::Jobs => {
            let again = parts.list.iter().filter(|part| part.again);
            let again = again.filter_map(|part| match &part.what {
                What::Rate(rate) => Some(rate.clone()),
                _ => None,
            });
            reading.rates = rates.iter().take(1).cloned().chain(again.take(1)).collect();
            // mint= and maxt=: the group ends with its longest job.
            reading.time = times.next_back();
        }
        Shape::Whole => {
            reading.rates = rates;
            reading.time = times.next();
        }
        Shape::Streams | Shape::Named | Shape::Totals | Shape::File => {
            reading.rates = rates.into_iter().take(1).collect();
            reading.time = times.next();
        }
    }
    match shape {
        Shape::Streams => {
            let inside = reading.text.trim_start_matches('[').split(']').next();
            reading.label = inside.map(|id| id.trim().to_owned());
            let mut roles = ["sender", "receiver"].into_iter();
            reading.role = roles.find(|role| reading.text.ends_with(*role));
            reading.size = parts.sizes().next().cloned();
        }
        Shape::Named => {
            let name = tokens.first().and_then(Token::word);
            let colon = tokens.get(1).is_some_and(|token| token.is(':'));
            reading.label = name.filter(|_| colon).map(str::to_owned);
            reading.size = parts.sizes().next().cloned();
        }
        Shape::Totals => reading.size = total(parts),
        Shape::File => {
            reading.size = named(tokens);
            // smbclient's `kb/s` are kilobytes.
            for rate in &mut reading.rates {
                rate.unit.bits = false;
            }
        }
        _ => choose_size(&mut reading, parts),
    }
    if reading.is_whole() {
        vec![reading]
    } else {
        Vec::new()
    }
}

/// The size that is printed most finely; those that are about the same say it again.
fn choose_size(reading: &mut Reading, parts: &Parts) {
    let sizes: Vec<&Quantity> = parts.sizes().collect();
    let finest = sizes
        .iter()
        .min_by(|a, b| a.number.width().total_cmp(&b.number.width()));
    let Some(finest) = finest else {
        return;
    };
    let bytes = reading.span(finest).best;
    let others = sizes.iter().filter(|size| !std::ptr::eq(**size, *finest));
    reading.sizes = others
        .filter(|size| near(reading.span(size).best, bytes, SAME_SIZE))
        .map(|size| (*size).clone())
        .collect();
    reading.size = Some((*finest).clone());
}

/// nload's two sides: the left is what came in. What acknowledges the other side is left out.
fn sides(reading: &Reading, rates: Vec<Quantity>) -> Vec<Reading> {
    let word = match reading.text.split(':').next() {
        Some("Curr") => "now",
        Some("Max") => "peak",
        _ => return Vec::new(),
    };
    let most = rates
        .iter()
        .fold(0f64, |most, rate| most.max(rate.number.best));
    let both = rates.len() > 1;
    let sides = rates.into_iter().enumerate();
    let sides = sides.filter(|(_, rate)| rate.number.best > 0.02 * most);
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

/// A test of `CrystalDiskMark`.
fn marks(mut reading: Reading, parts: &Parts) -> Option<Reading> {
    let name = reading.text.rsplit_once(':').map_or("", |(name, _)| name);
    reading.label = Some(name.split_whitespace().collect::<Vec<_>>().join(" "));
    reading.rates = vec![parts.rates().next()?.clone()];
    if let (Some(iops), Some(block)) = (parts.iops, parts.sizes().next()) {
        // What a block is called KB in old versions is 1024 bytes all the same.
        let mut block = block.clone().by(Base::Binary);
        block.number = Span::around(block.number.best, 0.0);
        reading.operations = Some((iops, block));
    }
    Some(reading)
}

/// rsync's totals: what was sent and what was received.
fn total(parts: &Parts) -> Option<Quantity> {
    let mut sizes = parts.sizes();
    let (sent, received) = (sizes.next()?, sizes.next()?);
    let bytes = |size: &Quantity| size.span(Base::Decimal);
    Some(Quantity {
        printed: format!("{} + {}", sent.printed, received.printed),
        number: bytes(sent).plus(bytes(received)),
        loose: sent.loose,
        unit: Unit::BYTE,
        either: false,
        range: false,
    })
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

/// A finished progress line of rsync (size first) or scp (percentage first); None for other lines, nothing for an unfinished one.
pub(super) fn progress(reading: &Reading, text: &str, tokens: &[Token]) -> Option<Vec<Reading>> {
    let share = tokens.iter().position(|token| token.is('%'))?;
    let (before, after) = (tokens.get(..share)?, tokens.get(share + 1..)?);
    let percent = before.last()?.number()?.value;
    let after = parts::of(text, after).list;
    let after: Vec<&What> = after.iter().map(|part| &part.what).collect();
    let (tool, size, rate, time) = match after.as_slice() {
        [What::Rate(rate), What::Time(time), ..] => (&RSYNC, done(text, before)?, rate, time),
        [What::Size(size), What::Rate(rate), What::Time(time), ..] => {
            (&SCP, size.clone(), rate, time)
        }
        _ => return None,
    };
    time.clock?;
    if percent < 100.0 {
        return Some(Vec::new());
    }
    Some(vec![Reading {
        tool: Some(tool),
        size: Some(size),
        time: Some(time.clone()),
        rates: vec![rate.clone()],
        ..reading.clone()
    }])
}

/// What rsync says it has moved: bytes, or with -h a number by 1000, unlike its rates.
fn done(text: &str, tokens: &[Token]) -> Option<Quantity> {
    if let Some(size) = parts::of(text, tokens).sizes().next() {
        return Some(size.clone().by(Base::Decimal));
    }
    match tokens {
        [first, _] => first.number().map(Quantity::bytes),
        _ => None,
    }
}
