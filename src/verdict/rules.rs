//! The rules, in the order in which they are asked; the first that has something to say decides.
//!
//! [`ceilings`] asks what was measured alone, [`differences`] what one changed thing did. A new rule is one function and one line
//! in [`RULES`], with rows in fixtures/verdicts.

use super::case::Case;
use super::ladder::Ladder;
use super::ruling::Ruling;

mod ceilings;
mod differences;

/// At this share of a ceiling the workload has reached it.
const REACHED: f64 = 0.85;
/// At this share of a ceiling, and far from all others, the workload is likely held by it.
const NEAREST: f64 = 0.75;
/// Two ceilings nearer than this can't be told apart.
const TIE: f64 = 1.1;
/// From the server's memory it goes so much faster where its disks are the limit. Less shows nothing: what is not in memory costs a
/// processor more as well, a third more on one that is starved (25.3 and 33.4 MB/s, fixtures/verdicts).
pub const FROM_MEMORY: f64 = 1.4;
/// A second connection that adds this much shows that one is the limit.
const SECOND: f64 = 1.25;
/// Latency that changes by no more than this does not depend on the depth.
const STEADY: f64 = 0.15;

/// A rule: None where it has nothing to say.
pub type Rule = fn(&Case, &Ladder) -> Option<Ruling>;

/// All rules by name.
pub const RULES: &[(&str, Rule)] = &[
    ("impossible", ceilings::impossible),
    ("server_memory", ceilings::server_memory),
    ("tie", ceilings::tie),
    ("named", ceilings::named),
    ("generator", ceilings::generator),
    ("lost", ceilings::lost),
    ("round_trip", differences::round_trip),
    ("single_flow", differences::single_flow),
    ("from_memory", differences::from_memory),
    ("queued", differences::queued),
    ("changed", differences::changed),
    ("mount", differences::mount),
    (
        "unmoved_by_the_network",
        differences::unmoved_by_the_network,
    ),
    ("one_at_a_time", differences::one_at_a_time),
    ("software", differences::software),
    ("nearest", ceilings::nearest),
];
