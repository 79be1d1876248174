//! What was measured alone, and whether the workload has reached it.

use super::differences::{self, queue};
use super::{NEAREST, REACHED, TIE};
use crate::units::Nanos;
use crate::verdict::case::{Case, Counters, Mark, Rung};
use crate::verdict::ladder::{ABOVE, Ladder, Step};
use crate::verdict::ruling::{FAR, Ruling};
use crate::verdict::words::{self, mb, percent};
use crate::verdict::{Kind, Limit};

/// A full core, percent.
const FULL: f64 = 95.0;
/// Segments sent again, percent, that are more than an accident.
const LOSS: f64 = 0.01;
/// Of its busy time a connection that waits for a buffer, percent.
const WAITING: f64 = 50.0;
/// A handshake that is later by less did not stand in a queue.
const NO_QUEUE: Nanos = Nanos(200_000);
/// Of what was read, disks that read less than this were helped by memory.
const FROM_DISKS: f64 = 0.5;
/// So much more than alone disks may seem to carry through a share, by read-ahead.
const READ_AHEAD: f64 = 1.3;
/// The payload of a usual segment, in bytes.
const SEGMENT: f64 = 1448.0;
/// Cubic carries somewhat more than that theory, and a short test somewhat less.
const MATHIS_NEAR: f64 = 2.5;
/// A disk this busy is at its limit where requests queue too, percent.
const DISK_FULL: f64 = 90.0;

/// Faster than what can be, or not moved at all: a cache, or shared blocks.
pub(super) fn impossible(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let figure = &case.end_to_end;
    if figure.has(Mark::Offloaded) {
        return Some(Ruling::new(Limit::Cached).because(
            Kind::Counter,
            "blocks were shared, not copied: no data moved".to_owned(),
        ));
    }
    if figure.has(Mark::ClientCached) {
        return Some(Ruling::new(Limit::Cached).because(
            Kind::Counter,
            "fewer bytes crossed the network than were read".to_owned(),
        ));
    }
    let hard = [Rung::Line, Rung::Network];
    for rung in hard
        .into_iter()
        .filter(|rung| !ladder.discarded.contains(rung))
    {
        let Some(ceiling) = case.layer(rung) else {
            continue;
        };
        if case.rate() > ceiling.top() * ABOVE {
            let what = if rung == Rung::Line {
                "the line"
            } else {
                "the network"
            };
            return Some(Ruling::new(Limit::Cached).because(
                Kind::Ceiling,
                format!(
                    "{} is {} of what {what} can carry ({}): part of it never crossed the network",
                    mb(case.rate()),
                    percent(case.rate() / ceiling.rate.0),
                    mb(ceiling.rate.0)
                ),
            ));
        }
    }
    None
}

/// Faster than the server's disks can be, while they read little: its memory answered. Both must be known, since read-ahead makes
/// a little more of disks than they show alone.
pub(super) fn server_memory(case: &Case, _: &Ladder) -> Option<Ruling> {
    let share = case
        .counters
        .disks_read_share
        .filter(|share| *share < FROM_DISKS)?;
    let best = case
        .layer(Rung::StorageBest)
        .or(case.layer(Rung::Storage))?;
    let known = !best.has(Mark::ServerCached) && !best.has(Mark::Unproven);
    (known && case.rate() >= READ_AHEAD * best.rate.0).then(|| {
        Ruling::new(Limit::Cached)
            .because(
                Kind::Counter,
                format!("the server's disks read {} of it", percent(share)),
            )
            .because(
                Kind::Ceiling,
                format!("at their best they carry {}", mb(best.rate.0)),
            )
    })
}

/// The two lowest ceilings can't be told apart, and the workload has reached them: both are named.
pub(super) fn tie(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let [first, second, ..] = &ladder.steps[..] else {
        return None;
    };
    let near = second.figure.rate.0 <= first.figure.rate.0 * TIE
        || second.figure.bottom() <= first.figure.top();
    if !near || !reached(case, first) || !reached(case, second) {
        return None;
    }
    let mut ruling = at(case, first);
    let other = at(case, second);
    ruling.limits.extend(other.limits);
    ruling.reached.extend(other.reached);
    ruling.evidence.extend(other.evidence);
    ruling.doubtful |= other.doubtful;
    // The protocol was measured on the same processors and the same way: what holds those down is the reason, and not a limit beside it.
    let reasons = [
        Limit::ClientCpu,
        Limit::ServerCpu,
        Limit::Loss,
        Limit::Window,
    ];
    if reasons
        .into_iter()
        .any(|reason| ruling.limits.contains(&reason))
    {
        ruling.limits.retain(|limit| *limit != Limit::Protocol);
    }
    Some(ruling)
}

/// One ceiling is clearly lowest, and the workload has reached it.
pub(super) fn named(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let lowest = ladder.lowest().filter(|step| reached(case, step))?;
    if unbounded(case, lowest) {
        return None;
    }
    // What requests and answers carry was not measured apart: then the protocol's rate may be that of waiting, or of its
    // one connection.
    if lowest.limit == Limit::Protocol && case.layer(Rung::RoundTrip).is_none() {
        let waits = differences::round_trip(case, ladder);
        let found = waits.or_else(|| differences::single_flow(case, ladder));
        if found.is_some() {
            return found;
        }
    }
    let mut ruling = at(case, lowest);
    // Nor is a part of the file that was read again and again surely from memory, unless the disks are known.
    let disks = [Rung::Storage, Rung::StorageBest];
    ruling.doubtful |= lowest.figure.has(Mark::HotSet)
        && !disks.into_iter().any(|rung| case.layer(rung).is_some());
    Some(ruling)
}

/// What made the figure was its own limit: then it is none of what was measured with it.
pub(super) fn generator(case: &Case, _: &Ladder) -> Option<Ruling> {
    let bound = case.end_to_end.has(Mark::GeneratorBound);
    bound.then(|| {
        Ruling::new(Limit::Tool).because(
            Kind::Counter,
            "the program that made the load was itself at its limit".to_owned(),
        )
    })
}

/// Not quite at the lowest ceiling, while all others are far away: likely that one.
pub(super) fn nearest(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let (lowest, others) = ladder.steps.split_first()?;
    let near = case.rate() >= NEAREST * lowest.figure.rate.0 && !unbounded(case, lowest);
    let alone = others
        .iter()
        .all(|step| step.figure.rate.0 >= 2.0 * FAR * case.rate());
    (near && alone && !others.is_empty()).then(|| {
        let mut ruling = at(case, lowest);
        ruling.doubtful = true;
        ruling
    })
}

/// The network bounds whatever crosses it: unless it was measured too, what the protocol carries names nothing.
fn unbounded(case: &Case, step: &Step) -> bool {
    let network = [Rung::Network, Rung::SingleFlow, Rung::RoundTrip];
    let known = network.into_iter().any(|rung| case.layer(rung).is_some());
    step.limit == Limit::Protocol && !known
}

fn reached(case: &Case, step: &Step) -> bool {
    case.rate() >= REACHED * step.figure.rate.0
}

/// The workload at a ceiling, called after what limits that ceiling itself where a counter says so.
fn at(case: &Case, step: &Step) -> Ruling {
    let ceiling = &step.figure;
    let counters = &case.counters;
    let mut ruling = Ruling::new(step.limit);
    // A raised ceiling is the rate itself.
    let raised = ceiling.has(Mark::CeilingUnderestimated);
    ruling.share = (!raised).then(|| case.rate() / ceiling.rate.0);
    ruling.doubtful = raised
        || ceiling.has(Mark::Unproven)
        || ceiling.has(Mark::GeneratorBound)
        || case.end_to_end.has(Mark::Compressible);
    if step.rung.is_some() {
        ruling = ruling.because(Kind::Ceiling, reaches(case, step));
    }
    match step.limit {
        Limit::ClientCpu | Limit::ServerCpu => {
            let (place, of) = if step.limit == Limit::ClientCpu {
                ("this computer", counters.client_core_percent)
            } else {
                ("the server", counters.server_core_percent)
            };
            let text = match of {
                Some(busy) => format!("a core of {place} was {busy:.0} % busy"),
                None => format!("{place} had used up its share of the processor"),
            };
            ruling.because(Kind::Counter, text)
        }
        Limit::Interconnect => ruling.because(
            Kind::Counter,
            format!(
                "{} is {} of what the bus of the network card carries, {}",
                mb(case.rate()),
                percent(case.rate() / ceiling.rate.0),
                mb(ceiling.rate.0)
            ),
        ),
        Limit::Storage => {
            let busy = counters.disk_busy_percent.filter(|busy| *busy >= DISK_FULL);
            match busy.zip(counters.disk_queue) {
                Some((busy, queue)) if queue >= 1.0 => ruling.because(
                    Kind::Counter,
                    format!("its disks were {busy:.0} % busy with {queue:.1} requests waiting"),
                ),
                _ => match case.differences.hot_over_cold {
                    Some(ratio) if ratio >= FAR => ruling.because(
                        Kind::Difference,
                        format!("from the server's memory the same goes {ratio:.1} times as fast"),
                    ),
                    _ => ruling,
                },
            }
        }
        Limit::Network | Limit::SingleFlow => on_the_way(case, step, ruling),
        _ => ruling,
    }
}

/// Where the line's rate is not known: packets that are sent again while none wait in a queue, and that several connections
/// share out, are lost by accident and not for want of room.
fn accidental(case: &Case) -> bool {
    let counters = &case.counters;
    let single = case.layer(Rung::SingleFlow);
    let most = case.layer(Rung::Network);
    if single.is_none() {
        return most.is_some_and(|most| empty(counters) && among(case, most.rate.0).is_some());
    }
    let shared = single
        .zip(most)
        .is_some_and(|(single, most)| most.rate.0 >= FAR * single.rate.0);
    let explained = single
        .zip(lossy(counters))
        .is_some_and(|(single, lossy)| single.rate.0 <= MATHIS_NEAR * lossy);
    empty(counters) && shared && explained
}

/// Packets are lost by accident on a way that was not measured by itself, and the workload has what its connections carry at that
/// loss and round trip: two short measurements of the same differ then, and show nothing else.
pub(super) fn lost(case: &Case, _: &Ladder) -> Option<Ruling> {
    let measured = [Rung::Line, Rung::Network, Rung::SingleFlow];
    if measured.into_iter().any(|rung| case.layer(rung).is_some()) {
        return None;
    }
    let counters = &case.counters;
    let lost = counters.retransmit_percent.filter(|share| *share >= LOSS)?;
    let all = among(case, case.rate()).filter(|_| empty(counters))?;
    let mut ruling = Ruling::new(Limit::Loss).because(
        Kind::Counter,
        format!(
            "{lost:.2} % of the segments were sent again, while none stood in a queue: over this way connections carry about {} then",
            mb(all)
        ),
    );
    // The protocol has the same connections.
    ruling.reached.push(Limit::Protocol);
    Some(ruling)
}

/// What the workload's connections carry together at this loss and round trip, where that explains a rate.
fn among(case: &Case, rate: f64) -> Option<f64> {
    let all = f64::from(case.load.connections?) * lossy(&case.counters)?;
    (rate <= MATHIS_NEAR * all && rate >= all / MATHIS_NEAR).then_some(all)
}

/// Whether packets that went there while the workload ran found no queue on the way.
fn empty(counters: &Counters) -> bool {
    let both = counters.handshake_idle.zip(counters.handshake_loaded);
    both.is_some_and(|(idle, loaded)| loaded.0 < idle.0 + idle.0 / 2 + NO_QUEUE.0)
}

/// What one connection carries at this loss and round trip, in bytes per second: MSS / RTT x sqrt(3/2) / sqrt(loss) (Mathis, Semke,
/// Mahdavi and Ott, Computer Communication Review 27(3), 1997). Faster ones were not slowed down by loss.
fn lossy(counters: &Counters) -> Option<f64> {
    let loss = counters.retransmit_percent.filter(|share| *share > 0.0)? / 100.0;
    let rtt = counters.handshake_idle.filter(|rtt| rtt.0 > 0)?.seconds();
    Some(SEGMENT / rtt * (1.5 / loss).sqrt())
}

/// The network or one connection at its ceiling, called after what holds that down. A full line is its own reason, and drops
/// packets where its queue overflows; without the line's rate, packets sent again prove nothing.
fn on_the_way(case: &Case, step: &Step, mut ruling: Ruling) -> Ruling {
    let (ceiling, counters) = (step.figure.rate.0, &case.counters);
    let line = case.layer(Rung::Line).map(|line| line.rate.0);
    if let Some(line) = line.filter(|line| ceiling >= REACHED * line) {
        let share = percent(ceiling / line);
        return ruling.because(Kind::Ceiling, format!("that is {share} of the line"));
    }
    // Connections that wait for room, or for what was lost, leave no queue behind.
    if let Some(queue) = queue(case).filter(|_| step.limit == Limit::Network) {
        return ruling.because(Kind::Counter, queue);
    }
    let waiting = counters
        .window_limited_percent
        .filter(|share| *share >= WAITING && step.limit == Limit::SingleFlow);
    let lost = counters
        .retransmit_percent
        .filter(|share| *share >= LOSS && (line.is_some() || accidental(case)));
    let bus = counters.bus.filter(|bus| bus.0 <= ceiling * TIE);
    let busy = counters.client_core_percent.filter(|busy| *busy >= FULL);
    let (limit, text) = if let Some(waiting) = waiting {
        let text =
            format!("the connection waited {waiting:.0} % of its time for room in a TCP buffer");
        (Limit::Window, text)
    } else if let Some(lost) = lost {
        let text = format!("{lost:.2} % of the segments were sent again");
        (Limit::Loss, text)
    } else if let Some(bus) = bus {
        let text = format!("the bus of the network card carries {}", mb(bus.0));
        (Limit::Interconnect, text)
    } else if let Some(busy) = busy {
        (
            Limit::ClientCpu,
            format!("a core here was {busy:.0} % busy"),
        )
    } else {
        return ruling;
    };
    ruling.limits = vec![limit];
    ruling.because(Kind::Counter, text)
}

fn reaches(case: &Case, step: &Step) -> String {
    let (rate, name) = (case.rate(), words::layer(step.limit));
    if let Some(alone) = step.rung.and_then(|rung| case.layer(rung))
        && step.figure.has(Mark::CeilingUnderestimated)
    {
        return format!(
            "{} is more than the {} that were measured of {name} alone: that figure is too low",
            mb(rate),
            mb(alone.rate.0)
        );
    }
    format!(
        "{} is {} of what was measured of {name} alone, {}",
        mb(rate),
        percent(rate / step.figure.rate.0),
        mb(step.figure.rate.0)
    )
}
