//! What limits a copy from one target to another: a pure function of both sides measured alone, the network, and how long reader
//! and writer waited for one another.
//!
//! Read [`CopyCase`] first: all that is known; [`CopyCase::predicted`] is what follows from the parts, [`decide`] what limits it. The rules
//! are asked in the order of `rules::RULES`, and the first that has something to say decides.
//!
//! Must not know: how anything was measured, how it is shown. Rates are in bytes per second.

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::words::{self, mb, percent};
use super::{Confidence, Kind, Limit, Next, Verdict};
use crate::op::Direction;
use crate::units::Rate;

mod rules;

use rules::{RULES, Said};

/// One side waits for the other when its share of the time is so much more than the other's.
const STARVED: f64 = 0.2;
/// One connection is a ceiling of its own only where several carry so much more.
const FLOWS: f64 = 1.25;

/// All that is known of one copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyCase {
    /// What it moved in a second, up to the moment at which all was stored.
    pub rate: Rate,
    /// It reads and writes at the same time; else one after the other. None of a program that does not tell.
    #[serde(default)]
    pub overlapped: Option<bool>,
    /// The source alone, read as the copy reads it.
    #[serde(default)]
    pub source: Option<Rate>,
    /// The destination alone, written until all was stored.
    #[serde(default)]
    pub destination: Option<Rate>,
    /// What the network carries from the source's server, and with one connection.
    #[serde(default)]
    pub network_in: Option<Way>,
    /// The same to the destination's server.
    #[serde(default)]
    pub network_out: Option<Way>,
    /// What both sides are on, where it is one: "one disk", "one port of the server".
    #[serde(default)]
    pub shared: Option<String>,
    /// How long the reader waited for the writer to give a buffer back, as a share of the time.
    #[serde(default)]
    pub reader_waited: Option<f64>,
    /// How long the writer waited for something to write.
    #[serde(default)]
    pub writer_waited: Option<f64>,
    /// The busiest core or thread of this computer, percent.
    #[serde(default)]
    pub core_percent: Option<f64>,
    /// The server copied by itself, or extents were shared: no data came through this computer.
    #[serde(default)]
    pub offloaded: bool,
    /// The same copy, read and written at the same time.
    #[serde(default)]
    pub at_the_same_time: Option<Rate>,
}

/// What the network carries one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// With as many connections as carry most.
    pub most: Rate,
    /// With one, where the copy has but one.
    #[serde(default)]
    pub one: Option<Rate>,
}

impl Way {
    /// What bounds a copy on it.
    fn bound(self) -> f64 {
        self.one.map_or(self.most.0, |one| one.0.min(self.most.0))
    }
}

/// A part that was measured alone.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    limit: Limit,
    side: Side,
    rate: f64,
}

/// Of two programs that work into one another's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

impl CopyCase {
    /// A copy of which nothing but its rate is known.
    #[must_use]
    pub const fn of(rate: f64) -> Self {
        Self {
            rate: Rate(rate),
            overlapped: None,
            source: None,
            destination: None,
            network_in: None,
            network_out: None,
            shared: None,
            reader_waited: None,
            writer_waited: None,
            core_percent: None,
            offloaded: false,
            at_the_same_time: None,
        }
    }

    /// What the source's side carries: min(source, network). None where the source was not measured.
    #[must_use]
    pub fn reads(&self) -> Option<f64> {
        let source = self.source?.0;
        Some(
            self.network_in
                .map_or(source, |way| source.min(way.bound())),
        )
    }

    /// What the destination's side carries: min(network, destination).
    #[must_use]
    pub fn writes(&self) -> Option<f64> {
        let destination = self.destination?.0;
        let way = self.network_out;
        Some(way.map_or(destination, |way| destination.min(way.bound())))
    }

    /// What the parts promise. At the same time min(r, w); one after the other 1/(1/r + 1/w), and so as well where both sides
    /// share what bounds them (harmonic sum: each byte takes the time of its reading and of its writing). None where a side was
    /// not measured, or where nobody knows how the program copies.
    #[must_use]
    pub fn predicted(&self) -> Option<f64> {
        let (reads, writes) = (self.reads()?, self.writes()?);
        let overlapped = self.overlapped? && self.shared.is_none();
        Some(if overlapped {
            reads.min(writes)
        } else {
            in_turn(reads, writes)
        })
    }

    /// The parts that were measured alone, lowest first.
    fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut add = |limit, side, rate: Option<Rate>| {
            parts.extend(rate.filter(|rate| rate.0 > 0.0).map(|rate| Part {
                limit,
                side,
                rate: rate.0,
            }));
        };
        add(Limit::SourceStorage, Side::Source, self.source);
        add(
            Limit::DestinationStorage,
            Side::Destination,
            self.destination,
        );
        for (way, side) in [
            (self.network_in, Side::Source),
            (self.network_out, Side::Destination),
        ] {
            add(Limit::Network, side, way.map(|way| way.most));
            let one = way.and_then(|way| way.one.filter(|one| FLOWS * one.0 <= way.most.0));
            add(Limit::SingleFlow, side, one);
        }
        parts.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        parts
    }

    /// The side that the other one waited for, with the words for it.
    fn starved(&self) -> Option<(Side, String)> {
        let (reader, writer) = (self.reader_waited?, self.writer_waited?);
        let side = if writer >= reader + STARVED {
            Side::Source
        } else if reader >= writer + STARVED {
            Side::Destination
        } else {
            return None;
        };
        let text = format!(
            "the writer waited for data {} of the time, the reader for room {}",
            percent(writer),
            percent(reader)
        );
        Some((side, text))
    }
}

/// What comes of two rates one after the other.
fn in_turn(reads: f64, writes: f64) -> f64 {
    1.0 / (1.0 / reads + 1.0 / writes)
}

/// What limits this copy.
#[must_use]
pub fn decide(copy: &CopyCase) -> Verdict {
    let found = RULES
        .iter()
        .find_map(|(name, rule)| rule(copy).map(|said| (*name, said)));
    let (rule, said) = found.unwrap_or(("unresolved", Said::new(vec![Limit::Unresolved])));
    let mut limits = said.limits;
    limits.sort_unstable();
    limits.dedup();
    let mut kinds: Vec<Kind> = said.evidence.iter().map(|one| one.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let confidence = match (kinds.len(), said.doubtful) {
        (0, _) => Confidence::Unresolved,
        (1, _) | (_, true) => Confidence::Likely,
        _ => Confidence::Confirmed,
    };
    Verdict {
        share: said.share,
        next: next(copy, &limits),
        confidence,
        evidence: said.evidence,
        advice: advice(copy, &limits),
        rule,
        limits,
    }
}

/// The lowest part that is not named.
fn next(copy: &CopyCase, limits: &[Limit]) -> Option<Next> {
    if limits == [Limit::Cached] {
        return None;
    }
    let mut parts = copy.parts().into_iter();
    let found = parts.find(|part| !limits.contains(&part.limit) && part.rate > copy.rate.0);
    found.map(|part| Next {
        limit: part.limit,
        bytes_per_s: part.rate,
    })
}

fn advice(copy: &CopyCase, limits: &[Limit]) -> Vec<String> {
    if limits != [Limit::Unresolved] {
        return words::advice(limits, &Case::of(Direction::Write, copy.rate.0));
    }
    let settles = if copy.source.is_none() || copy.destination.is_none() {
        "let nasgauge copy measure both sides alone: a longer run, or --size"
    } else if copy.network_in.is_none() && copy.network_out.is_none() {
        "start 'iperf3 -s' on the server and copy again with --net HOST"
    } else {
        "copy again while nothing else uses the network and the disks"
    };
    vec![settles.to_owned()]
}

/// The verdict as one sentence.
#[must_use]
pub fn sentence(copy: &CopyCase, verdict: &Verdict) -> String {
    let rate = mb(copy.rate.0);
    let mut text = match &verdict.limits[..] {
        [Limit::Unresolved] => format!("Copy: {rate}, and what limits it can't be told yet"),
        [Limit::Cached] => format!("Copy: {rate} is no figure of a network or of disks"),
        limits => {
            let names: Vec<&str> = limits.iter().map(|limit| words::layer(*limit)).collect();
            let sure = match verdict.confidence {
                Confidence::Confirmed => "confirmed",
                Confidence::Likely => "likely",
                Confidence::Unresolved => "not shown",
            };
            let apart = if limits.len() > 1 && copy.shared.is_none() {
                " (not told apart)"
            } else {
                ""
            };
            format!(
                "Copy: {rate}, limited by {}{apart} ({sure})",
                names.join(" and ")
            )
        }
    };
    if let Some(predicted) = copy.predicted() {
        text.push_str(&format!("; its parts promise {}", mb(predicted)));
    }
    if let Some(next) = verdict.next {
        text.push_str(&format!(
            "; next limit: {} at {}",
            words::layer(next.limit),
            mb(next.bytes_per_s)
        ));
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests;
