//! What one changed thing did, where the workload is well below every ceiling.

use super::{FROM_MEMORY, SECOND, STEADY};
use crate::op::Direction;
use crate::units::Nanos;
use crate::verdict::case::{Case, Differences, Figure, Mark, Rung};
use crate::verdict::ladder::Ladder;
use crate::verdict::ruling::{FAR, Ruling};
use crate::verdict::words::{mb, percent, time};
use crate::verdict::{Kind, Limit};

/// Half the depth must cost this much where waiting is the limit.
const HALF: f64 = 0.65;
/// So many requests under way would show whether they are served together.
const DEEP: u32 = 8;
/// A queue on the way makes a handshake this much longer, and so many times as long.
const QUEUE: Nanos = Nanos(500_000);
const QUEUED: f64 = 3.0;
/// Below this share of everything around it, something waits without using anything up.
const IDLE: f64 = 0.7;

/// Waiting for answers: the rate is what depth and latency allow, and half the depth costs nearly half.
pub(super) fn round_trip(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let alone = case.differences.latency_alone?;
    let (depth, block) = (case.load.depth?, case.load.block_size?);
    let line = ladder
        .steps
        .iter()
        .find(|step| step.limit == Limit::Network);
    let waiting = f64::from(depth) * block.0 as f64 / alone.seconds();
    let expected = line.map_or(waiting, |line| waiting.min(line.figure.rate.0));
    let fits = (case.rate() / expected - 1.0).abs() <= 0.1;
    let (half, latency, change) = halved(&case.differences)?;
    let costs = half <= HALF && (latency - 1.0).abs() <= STEADY;
    if !(fits && costs) {
        return None;
    }
    let mut ruling = Ruling::new(Limit::RoundTrip);
    // The protocol waits in the same way.
    ruling.reached.push(Limit::Protocol);
    ruling.share = Some(case.rate() / expected);
    Some(
        ruling
            .because(
                Kind::Ceiling,
                format!(
                    "{depth} requests of {block} that take {} each are {}",
                    time(alone),
                    mb(expected)
                ),
            )
            .because(Kind::Difference, change),
    )
}

/// What half the depth costs: its rate and its latency over those of the whole, and that in words. Where there is but one
/// request, two are held against it instead.
fn halved(all: &Differences) -> Option<(f64, f64, String)> {
    if let Some((half, latency)) = all.half_depth.zip(all.half_depth_latency) {
        let text = format!(
            "half as many requests under way carry {} of it, each as fast as before",
            percent(half)
        );
        return Some((half, latency, text));
    }
    let (double, latency) = all.double_depth.zip(all.double_depth_latency)?;
    let text =
        format!("two requests under way carry {double:.2} times as much, each as fast as before");
    Some((1.0 / double, 1.0 / latency, text))
}

/// The same from the server's memory goes faster, and nothing else was changed: its disks.
pub(super) fn from_memory(case: &Case, _: &Ladder) -> Option<Ruling> {
    let gain = case
        .differences
        .hot_over_cold
        .filter(|gain| *gain >= FROM_MEMORY)?;
    // Disks that carry much more with the same under way are a part of each request's time, and not the limit.
    let storage = case
        .layer(Rung::Storage)
        .filter(|storage| !storage.has(Mark::ServerCached) && storage.rate.0 >= FAR * case.rate());
    if storage.is_some() {
        return None;
    }
    let text = match case.direction {
        Direction::Read => {
            format!("from the server's memory the same goes {gain:.2} times as fast")
        }
        Direction::Write => format!(
            "without waiting until it is stored, and over and over in the same place, it goes {gain:.2} times as fast"
        ),
    };
    Some(Ruling::new(Limit::Storage).because(Kind::Difference, text))
}

/// Packets stand in a queue on the way, and neither the disks nor more connections make a difference: the line is full.
pub(super) fn queued(case: &Case, _: &Ladder) -> Option<Ruling> {
    let queue = queue(case)?;
    let same = |gain: Option<f64>| gain.is_none_or(|gain| (gain - 1.0).abs() <= STEADY);
    let all = &case.differences;
    let unmoved = same(all.hot_over_cold) && same(all.second_connection);
    // Something must have been tried, and a network that was measured says more.
    let tried = all.hot_over_cold.is_some() || all.second_connection.is_some();
    if !(unmoved && tried) || case.layer(Rung::Network).is_some() {
        return None;
    }
    let mut ruling = Ruling::new(Limit::Network);
    // The protocol crosses the same line.
    ruling.reached.push(Limit::Protocol);
    Some(ruling.because(Kind::Counter, queue))
}

/// The queue on the way in words; None where there is none, or it is not known.
pub(super) fn queue(case: &Case) -> Option<String> {
    let counters = &case.counters;
    let (idle, loaded) = counters.handshake_idle.zip(counters.handshake_loaded)?;
    let late = loaded.0.checked_sub(idle.0)?;
    let queued = late >= QUEUE.0 && loaded.0 as f64 >= QUEUED * idle.0 as f64;
    queued.then(|| {
        format!(
            "packets wait on the way: a handshake takes {} while it runs and {} on the idle way",
            time(loaded),
            time(idle)
        )
    })
}

/// One TCP connection: the workload has what one carries, and a second adds.
pub(super) fn single_flow(case: &Case, _: &Ladder) -> Option<Ruling> {
    if case.load.connections.is_some_and(|count| count > 1) {
        return None;
    }
    let second = case
        .differences
        .second_connection
        .filter(|gain| *gain >= SECOND)?;
    let single = case.layer(Rung::SingleFlow);
    let near = single.is_none_or(|single| (case.rate() / single.rate.0 - 1.0).abs() <= STEADY);
    let far = single.is_some_and(|single| single.rate.0 >= FAR * case.rate());
    if !near && !far {
        return None;
    }
    let text = format!("more connections carry {second:.2} times as much");
    let mut ruling = Ruling::new(Limit::SingleFlow).because(Kind::Difference, text);
    // The protocol has the same connection.
    ruling.reached.push(Limit::Protocol);
    if far {
        // A connection carries more than the workload puts on it: each waits, and which of the two is not told apart.
        ruling.limits.push(Limit::RoundTrip);
        ruling.doubtful = true;
        return Some(ruling);
    }
    if let Some(single) = single {
        ruling.share = Some(case.rate() / single.rate.0);
        ruling = ruling.because(
            Kind::Ceiling,
            format!("one connection alone carries {}", mb(single.rate.0)),
        );
    }
    Some(ruling)
}

/// One thing that was changed, with the limit that a gain from it shows.
struct Change {
    gain: fn(&Differences) -> Option<f64>,
    limit: Limit,
    words: &'static str,
}

const CHANGES: &[Change] = &[
    Change {
        gain: |all| all.other_congestion_control,
        limit: Limit::CongestionControl,
        words: "with another congestion control the same path carries",
    },
    Change {
        gain: |all| all.other_client,
        limit: Limit::Mount,
        words: "another client of the same share carries",
    },
    Change {
        gain: |all| all.other_server,
        limit: Limit::Protocol,
        words: "another server program on the same disks carries",
    },
    Change {
        gain: |all| all.without_server,
        limit: Limit::Protocol,
        words: "the same disks without that server program carry",
    },
    Change {
        gain: |all| all.faster_storage,
        limit: Limit::Storage,
        words: "with faster storage behind it the same share carries",
    },
];

/// One thing was changed, and the rate rose: that was the limit. A second card that adds nothing shows the bus before both.
pub(super) fn changed(case: &Case, _: &Ladder) -> Option<Ruling> {
    let all = &case.differences;
    for change in CHANGES {
        if let Some(gain) = (change.gain)(all).filter(|gain| *gain >= SECOND) {
            let text = format!("{} {gain:.2} times as much", change.words);
            return Some(Ruling::new(change.limit).because(Kind::Difference, text));
        }
    }
    let gain = all.second_card.filter(|gain| *gain <= 1.0 + STEADY)?;
    let text = format!("a second network card carries only {gain:.2} times as much");
    Some(Ruling::new(Limit::Interconnect).because(Kind::Difference, text))
}

/// Our own client on the same export is faster than the kernel's mount of it.
pub(super) fn mount(case: &Case, _: &Ladder) -> Option<Ruling> {
    let own = case.layer(Rung::OwnClient).filter(|_| case.mounted)?;
    (own.rate.0 >= SECOND * case.rate()).then(|| {
        Ruling::new(Limit::Mount).because(
            Kind::Difference,
            format!(
                "nasgauge's own client on the same export carries {}",
                mb(own.rate.0)
            ),
        )
    })
}

/// Another network carries the same: it is not the network. With disks that carry much more, what lies between decides;
/// where they are not known, they or it.
pub(super) fn unmoved_by_the_network(case: &Case, _: &Ladder) -> Option<Ruling> {
    let other = case.differences.other_network?;
    if (other - 1.0).abs() > STEADY {
        return None;
    }
    let storage = case.layer(Rung::Storage).or(case.layer(Rung::StorageBest));
    let beside = match storage {
        Some(storage) if storage.rate.0 < FAR * case.rate() => return None,
        Some(_) => Limit::SingleFlow,
        None => Limit::Storage,
    };
    let mut ruling = Ruling::new(Limit::Protocol);
    ruling.limits.push(beside);
    // Two candidates that nothing tells apart.
    ruling.doubtful = true;
    Some(ruling.because(
        Kind::Difference,
        "another network carries the same".to_owned(),
    ))
}

/// Many requests are asked for, and the rate is that of one after the other: something before the disks serialises.
pub(super) fn one_at_a_time(case: &Case, _: &Ladder) -> Option<Ruling> {
    let alone = case.differences.latency_alone?;
    let (depth, block) = (case.load.depth?, case.load.block_size?);
    let one = block.0 as f64 / alone.seconds();
    if depth < DEEP || (case.rate() / one - 1.0).abs() > STEADY {
        return None;
    }
    let text = format!(
        "with {depth} requests under way it carries what one alone does, {}",
        mb(one)
    );
    let mut ruling = Ruling::new(Limit::Protocol).because(Kind::Difference, text);
    ruling.doubtful = true;
    Some(ruling)
}

/// Far below all around it, with something counted that waits.
pub(super) fn software(case: &Case, ladder: &Ladder) -> Option<Ruling> {
    let flushes = case.counters.flushes.filter(|count| *count > 0)?;
    let around: Vec<&Figure> = ladder.steps.iter().map(|step| &step.figure).collect();
    let idle = around.len() >= 2
        && around
            .iter()
            .all(|figure| case.rate() < IDLE * figure.rate.0);
    idle.then(|| {
        Ruling::new(Limit::Software).because(
            Kind::Counter,
            format!("{flushes} flushes were waited for one after the other"),
        )
    })
}
