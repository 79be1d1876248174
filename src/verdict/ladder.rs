//! The ceilings of a case that can be its limit, lowest first.
//!
//! Rungs are nested: what the network carries bounds what requests and answers on it carry, and so on. A rung that carries as
//! much as the one around it adds no limit of its own, so only the outer one stands here. The line itself is the network's
//! reason and not a limit beside it. A core that is nearly full is a ceiling too: at 93 % of it, the rate is 93 % of what
//! that core allows.

use super::case::{Case, Figure, Mark, Rung};
use super::{Limit, Next};

/// A rung within this share of the one around it carries the same.
const SAME: f64 = 0.9;
/// This program further away than that will never be what limits.
const TOOL_NEAR: f64 = 4.0;
/// So many times the network's rate is asked for at once: nobody waits for answers.
const PLENTY: f64 = 1.5;
/// Above a hard ceiling by more than this is impossible.
pub(super) const ABOVE: f64 = 1.02;
/// A core this busy is near its limit, percent.
const NEARLY_FULL: f64 = 90.0;

/// One ceiling.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What it would be called.
    pub limit: Limit,
    /// Where it was measured; None for a core.
    pub rung: Option<Rung>,
    /// What it carries.
    pub figure: Figure,
}

/// The ceilings, lowest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ladder {
    /// Those that count.
    pub steps: Vec<Step>,
    /// The disks, where the server's memory may have answered: they don't limit what was measured, but what comes after it.
    pub beyond: Option<Step>,
    /// Those that were measured too low to be ceilings: the workload exceeded them, as the layer around them allows.
    pub discarded: Vec<Rung>,
}

impl Ladder {
    /// The ladder of a case.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        let mut ladder = Self::default();
        ladder.nested(case);
        ladder.beside(case);
        ladder.cores(case);
        ladder.bus(case);
        ladder
            .steps
            .sort_by(|a, b| a.figure.rate.0.total_cmp(&b.figure.rate.0));
        ladder
    }

    /// The lowest.
    #[must_use]
    pub fn lowest(&self) -> Option<&Step> {
        self.steps.first()
    }

    /// What limits after these limits: the lowest ceiling above the rate that is none of them.
    #[must_use]
    pub fn next(&self, case: &Case, named: &[Limit]) -> Option<Next> {
        let above = |step: &&Step| {
            let rate = step.figure.rate.0;
            // This program is worth a word only where it is near.
            let near = step.limit != Limit::Tool || rate < TOOL_NEAR * case.rate();
            rate > case.rate() && near && !named.contains(&step.limit)
        };
        let lowest = self
            .steps
            .iter()
            .chain(&self.beyond)
            .filter(above)
            .min_by(|a, b| a.figure.rate.0.total_cmp(&b.figure.rate.0))?;
        Some(Next {
            limit: lowest.limit,
            bytes_per_s: lowest.figure.rate.0,
        })
    }

    /// Line, network, requests and answers, protocol: from the outside to the inside.
    fn nested(&mut self, case: &Case) {
        let line = case.layer(Rung::Line);
        let mut around: Option<f64> = None;
        for (rung, limit) in [
            (Rung::Network, Limit::Network),
            (Rung::SingleFlow, Limit::SingleFlow),
            (Rung::RoundTrip, Limit::RoundTrip),
            (Rung::Protocol, Limit::Protocol),
        ] {
            let Some(figure) = case.layer(rung) else {
                continue;
            };
            if rung == Rung::RoundTrip
                && around.is_some_and(|around| waits_for_nothing(case, around))
            {
                self.discarded.push(rung);
                continue;
            }
            let exceeded = case.rate() > figure.top() * ABOVE;
            // The line would have carried it: it is the ceiling that was measured too low.
            let possible = line.is_some_and(|line| case.rate() <= line.top() * ABOVE);
            let too_low = match rung {
                _ if figure.has(Mark::GeneratorBound) => true,
                Rung::Network => possible,
                // Whether more than that is possible at all is told by the network around it.
                Rung::SingleFlow => true,
                _ => false,
            };
            if exceeded && too_low {
                self.discarded.push(rung);
                continue;
            }
            let figure = match rung {
                // Hard: an excess is impossible, and the rules say so.
                Rung::Network | Rung::SingleFlow => figure.clone(),
                _ => raised(figure, case.rate()),
            };
            if around.is_some_and(|around| figure.rate.0 >= around * SAME) {
                continue;
            }
            around = Some(figure.rate.0);
            self.steps.push(Step {
                limit,
                rung: Some(rung),
                figure,
            });
        }
        let network = self.steps.iter().any(|step| step.limit == Limit::Network);
        if let Some(line) = line.filter(|_| !network) {
            // A lower rung has its own step already; the line is one only where it is lowest of them or alone.
            self.steps.push(Step {
                limit: Limit::Network,
                rung: Some(Rung::Line),
                figure: line.clone(),
            });
        }
    }

    /// What is no part of the way: this program, and the server's disks.
    fn beside(&mut self, case: &Case) {
        if let Some(tool) = case.layer(Rung::Tool) {
            self.steps.push(Step {
                limit: Limit::Tool,
                rung: Some(Rung::Tool),
                figure: raised(tool, case.rate()),
            });
        }
        // What the server's own memory answered is no figure of its disks.
        let disks = |rung| {
            case.layer(rung)
                .filter(|figure| !figure.has(Mark::ServerCached))
        };
        let (own, best) = (disks(Rung::Storage), disks(Rung::StorageBest));
        let (rung, storage) = match (own, best) {
            // Read-ahead keeps more under way than the workload does: then the best is the ceiling.
            (Some(own), Some(best)) if case.rate() > own.top() && best.rate.0 >= own.rate.0 => {
                (Rung::StorageBest, best)
            }
            (Some(own), _) => (Rung::Storage, own),
            (None, Some(best)) => (Rung::StorageBest, best),
            (None, None) => return,
        };
        // Where the server's memory may have answered, the disks can't be judged.
        let cached = case.end_to_end.has(Mark::ServerCached);
        let step = Step {
            limit: Limit::Storage,
            rung: Some(rung),
            figure: if cached {
                storage.clone()
            } else {
                raised(storage, case.rate())
            },
        };
        if cached {
            self.beyond = Some(step);
        } else {
            self.steps.push(step);
        }
    }

    fn cores(&mut self, case: &Case) {
        let counters = &case.counters;
        let throttled = counters
            .server_throttled_periods
            .is_some_and(|count| count > 0);
        let server = match (throttled, counters.server_core_percent) {
            (true, _) => Some(100.0),
            (false, percent) => percent,
        };
        for (limit, percent) in [
            (Limit::ClientCpu, counters.client_core_percent),
            (Limit::ServerCpu, server),
        ] {
            if let Some(percent) = percent.filter(|percent| *percent >= NEARLY_FULL) {
                self.steps.push(Step {
                    limit,
                    rung: None,
                    figure: Figure::of(case.rate() * 100.0 / percent.min(100.0)),
                });
            }
        }
    }

    /// The bus of a network card, where no measured network was held down by it: that one has its name already.
    fn bus(&mut self, case: &Case) {
        let Some(bus) = case.counters.bus else {
            return;
        };
        let measured = [Rung::Network, Rung::SingleFlow].map(|rung| case.layer(rung));
        if !measured
            .into_iter()
            .flatten()
            .any(|figure| figure.rate.0 <= bus.0)
        {
            self.steps.push(Step {
                limit: Limit::Interconnect,
                rung: None,
                figure: Figure::of(bus.0),
            });
        }
    }
}

/// By theory, depth x bs / (bs/B + RTT), so much is under way that the network is full long before anybody waits:
/// then a lower figure of requests and answers was disturbed, and is no ceiling.
fn waits_for_nothing(case: &Case, network: f64) -> bool {
    let (Some(depth), Some(block)) = (case.load.depth, case.load.block_size) else {
        return false;
    };
    let Some(rtt) = case.counters.handshake_idle else {
        return false;
    };
    let each = block.0 as f64 / network + rtt.seconds();
    f64::from(depth) * block.0 as f64 / each >= PLENTY * network
}

/// A soft ceiling that was exceeded is raised to what was seen, and says so.
fn raised(figure: &Figure, rate: f64) -> Figure {
    if rate <= figure.top() {
        return figure.clone();
    }
    let mut raised = Figure::of(rate);
    raised.marks.clone_from(&figure.marks);
    raised.marks.push(Mark::CeilingUnderestimated);
    raised
}
