//! Which layer limits a workload in one direction, by what evidence: a pure function of measured ceilings, counters and
//! controlled differences.
//!
//! Read first: [`case::Case`] is all that is known; [`decide`] goes through [`rules::RULES`] in order and takes the first that
//! has something to say; a [`Verdict`] names one or more limits, the next one, and how sure that is. Nothing is ever more
//! certain than its evidence: two independent kinds of it make `confirmed`, one makes `likely`, none `unresolved`. A copy has two
//! sides, and [`copies`] judges it.
//!
//! Must not know: how anything was measured, how it is shown. Rates are in bytes per second.

pub mod case;
pub mod copies;
pub mod ladder;
pub mod rules;
pub mod ruling;
pub mod words;

use serde::{Deserialize, Serialize};

use case::Case;
use ladder::Ladder;

/// What can limit; the order is that in which several are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// A cache answered, so the figure is none of storage or network.
    Cached,
    /// This program, or the one that made the figure.
    Tool,
    /// A core of this computer.
    ClientCpu,
    /// A core of the server.
    ServerCpu,
    /// Lost packets.
    Loss,
    /// A TCP buffer too small for the round trip.
    Window,
    /// Congestion control that sends less than the path carries.
    CongestionControl,
    /// The bus between a network card and the processor.
    Interconnect,
    /// The network, with as many connections as carry most.
    Network,
    /// One TCP connection.
    SingleFlow,
    /// Waiting for answers.
    RoundTrip,
    /// The protocol on the server, memory behind it.
    Protocol,
    /// The kernel's mount, where our own client on the same export is faster.
    Mount,
    /// Making, finding and removing names.
    Metadata,
    /// The disks.
    Storage,
    /// The disks that a copy reads.
    SourceStorage,
    /// The disks that a copy writes.
    DestinationStorage,
    /// A copy that reads and writes in turn.
    NoOverlap,
    /// Software that waits without using anything up: a lock, a flush, one thing after the other.
    Software,
    /// Not known.
    Unresolved,
}

impl Limit {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Tool => "tool",
            Self::ClientCpu => "client_cpu",
            Self::ServerCpu => "server_cpu",
            Self::Loss => "loss",
            Self::Window => "window",
            Self::CongestionControl => "congestion_control",
            Self::Interconnect => "interconnect",
            Self::Network => "network",
            Self::SingleFlow => "single_flow",
            Self::RoundTrip => "round_trip",
            Self::Protocol => "protocol",
            Self::Mount => "mount",
            Self::Metadata => "metadata",
            Self::Storage => "storage",
            Self::SourceStorage => "source_storage",
            Self::DestinationStorage => "destination_storage",
            Self::NoOverlap => "no_overlap",
            Self::Software => "software",
            Self::Unresolved => "unresolved",
        }
    }
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nothing decides.
    Unresolved,
    /// One kind of evidence.
    Likely,
    /// Two kinds that agree.
    Confirmed,
}

/// A kind of evidence; two of one kind count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A layer measured alone that carries little more.
    Ceiling,
    /// A counter of the kernel.
    Counter,
    /// A measurement in which one thing alone was changed.
    Difference,
    /// All other layers were measured, and each carries much more.
    Elimination,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its kind.
    pub kind: Kind,
    /// In words, with its numbers.
    pub text: String,
}

/// Which limit comes after the one named.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Next {
    /// What it is.
    pub limit: Limit,
    /// What it carries.
    pub bytes_per_s: f64,
}

/// What limits a workload in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// One limit, or several that can't be told apart; never none.
    pub limits: Vec<Limit>,
    /// The end-to-end rate as a share of the limit's ceiling; None where there is no such ceiling.
    pub share: Option<f64>,
    /// What limits once that is gone.
    pub next: Option<Next>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why.
    pub evidence: Vec<Evidence>,
    /// What to do, from the most telling to the least.
    pub advice: Vec<String>,
    /// The rule that spoke.
    pub rule: &'static str,
}

impl Verdict {
    /// The limits as verdict.csv has them.
    #[must_use]
    pub fn limit_key(&self) -> String {
        let keys: Vec<&str> = self.limits.iter().map(|limit| limit.key()).collect();
        keys.join("+")
    }
}

/// What limits this case.
#[must_use]
pub fn decide(case: &Case) -> Verdict {
    let ladder = Ladder::of(case);
    for (name, rule) in rules::RULES {
        if let Some(ruling) = rule(case, &ladder) {
            return ruling.verdict(case, &ladder, name);
        }
    }
    ruling::unresolved(case, &ladder)
}

#[cfg(test)]
mod tests;
