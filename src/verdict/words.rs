//! Verdicts in words for people. Keys such as `round_trip` are for files.

use super::case::{Case, Mark, Rung};
use super::{Confidence, Limit, Verdict};
use crate::op::Direction;
use crate::units::{Nanos, Rate};

/// A rate as storage people read it.
#[must_use]
pub fn mb(bytes_per_s: f64) -> String {
    let megabytes = Rate(bytes_per_s).megabytes();
    if megabytes < 10.0 {
        format!("{megabytes:.2} MB/s")
    } else {
        format!("{megabytes:.0} MB/s")
    }
}

/// A time that people can read: three digits at most.
#[must_use]
pub fn time(nanos: Nanos) -> String {
    let digits = |value: f64| usize::from(value < 10.0);
    let (value, unit) = match nanos.0 {
        0..1_000_000 => (nanos.0 as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos.0 as f64 / 1e6, "ms"),
        _ => (nanos.seconds(), "s"),
    };
    format!("{value:.*} {unit}", digits(value))
}

/// A share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What a limit is called in the middle of a sentence.
#[must_use]
pub const fn layer(limit: Limit) -> &'static str {
    match limit {
        Limit::Cached => "a cache",
        Limit::Tool => "the measuring program",
        Limit::ClientCpu => "a processor core of this computer",
        Limit::ServerCpu => "a processor core of the server",
        Limit::Loss => "packet loss",
        Limit::Window => "a TCP buffer that is too small",
        Limit::CongestionControl => "TCP's congestion control",
        Limit::Interconnect => "the bus between network card and processor",
        Limit::Network => "the network",
        Limit::SingleFlow => "one TCP connection",
        Limit::RoundTrip => "waiting for answers",
        Limit::Protocol => "the protocol",
        Limit::Mount => "the kernel's mount",
        Limit::Metadata => "making and finding files",
        Limit::Storage => "the server's disks",
        Limit::SourceStorage => "the source's disks",
        Limit::DestinationStorage => "the destination's disks",
        Limit::NoOverlap => "reading and writing in turn",
        Limit::Software => "software that waits",
        Limit::Unresolved => "something not known yet",
    }
}

/// The verdict as one sentence.
#[must_use]
pub fn sentence(case: &Case, verdict: &Verdict) -> String {
    let what = match case.direction {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
    };
    let rate = mb(case.rate());
    let mut text = match &verdict.limits[..] {
        [Limit::Unresolved] => format!("{what}: {rate}, and what limits them can't be told yet"),
        [Limit::Cached] => format!(
            "{what}: {rate} is no figure of the network or the disks: a cache answered, or no data moved"
        ),
        limits => {
            let names: Vec<&str> = limits.iter().map(|limit| layer(*limit)).collect();
            // A core's ceiling is made from this very rate.
            let core = matches!(limits, [Limit::ClientCpu | Limit::ServerCpu]);
            let shares = verdict
                .share
                .filter(|_| !core)
                .map_or(String::new(), |share| {
                    format!(", at {} of that ceiling", percent(share))
                });
            format!(
                "{what}: {rate}, limited by {}{} ({})",
                names.join(" and "),
                if limits.len() == 1 {
                    shares
                } else {
                    " (not told apart)".to_owned()
                },
                match verdict.confidence {
                    Confidence::Confirmed => "confirmed",
                    Confidence::Likely => "likely",
                    Confidence::Unresolved => "not shown",
                }
            )
        }
    };
    let named = |limit| {
        verdict.limits.contains(&limit) || verdict.next.is_some_and(|next| next.limit == limit)
    };
    // Whoever looks for a limit asks for the network first.
    let network = case.layer(Rung::Network).filter(|network| {
        network.rate.0 > case.rate() && !named(Limit::Network) && !named(Limit::Cached)
    });
    if let Some(network) = network {
        text.push_str(&format!("; the network would carry {}", mb(network.rate.0)));
    }
    if let Some(next) = verdict.next {
        text.push_str(&format!(
            "; next limit: {} at {}",
            layer(next.limit),
            mb(next.bytes_per_s)
        ));
    }
    text.push('.');
    if let Some(began) = case.burst {
        // A line may begin faster too, by a token bucket or by luck.
        let cache = verdict.limits.contains(&Limit::Storage);
        text.push_str(&format!(
            " That is what lasts: the first {} went at {}{}.",
            began.bytes.both(),
            mb(began.rate.0),
            if cache { ", into a cache" } else { "" }
        ));
    }
    if let Some(disks) = beyond_memory(case) {
        text.push_str(&format!(
            " They came from the server's memory: what is not there comes at {} at most.",
            mb(disks)
        ));
    }
    for mark in &case.end_to_end.marks {
        let told = *mark == Mark::ServerCached && beyond_memory(case).is_some();
        if let Some(said) = caution(*mark).filter(|_| !told) {
            text.push_str(&format!(" {said}."));
        }
    }
    text
}

/// What the disks carry, where the server's memory answered faster than they can.
fn beyond_memory(case: &Case) -> Option<f64> {
    let best = case
        .layer(Rung::StorageBest)
        .or(case.layer(Rung::Storage))?;
    let told = case
        .counters
        .disks_read_share
        .is_some_and(|share| share < 0.5);
    let cached = told && case.end_to_end.has(Mark::ServerCached) && !best.has(Mark::ServerCached);
    (cached && best.rate.0 < case.rate()).then_some(best.rate.0)
}

/// What a mark on the workload's own rate means for the reader.
const fn caution(mark: Mark) -> Option<&'static str> {
    match mark {
        Mark::SameHost => Some("Client and server are one computer: this says nothing of a cable"),
        Mark::Peak => Some("The figure is the highest moment, not the mean"),
        Mark::NotDurable => Some("It was accepted, not stored for sure"),
        Mark::Compressible => {
            Some("The payload may have been made smaller on the way to the disks")
        }
        Mark::ServerCached => {
            Some("The server's memory may have answered: nothing is said of its disks")
        }
        Mark::TooShort => Some("It was too short to be steady"),
        Mark::HotSet => Some("It came from the server's memory on purpose"),
        _ => None,
    }
}

/// What to do: the first sentence is for the limit itself.
#[must_use]
pub fn advice(limits: &[Limit], case: &Case) -> Vec<String> {
    let found: Vec<&str> = limits
        .iter()
        .filter_map(|limit| one(*limit, case))
        .collect();
    found.into_iter().map(str::to_owned).collect()
}

fn one(limit: Limit, case: &Case) -> Option<&'static str> {
    Some(match limit {
        Limit::Cached => {
            "measure with more data than the server's memory, and with a payload that can't be compressed"
        }
        Limit::Tool => "use more workers: the program that measures is at its own limit",
        Limit::ClientCpu => {
            "one core here is full: more connections spread over cores (nconnect, multichannel), or larger packets (MTU 9000 on every device)"
        }
        Limit::ServerCpu => {
            "one core of the server is full: more connections, fewer services beside it, no compression or encryption that is not needed, or a faster core"
        }
        Limit::Loss => {
            "look for the lossy link: cable, SFP+ module, a switch port that counts errors, or flow control"
        }
        Limit::Window => {
            "raise net.ipv4.tcp_rmem and tcp_wmem on both ends, or use more connections"
        }
        Limit::CongestionControl => {
            "set net.ipv4.tcp_congestion_control to cubic on the sender, and measure again"
        }
        Limit::Interconnect => "move the card to a slot with more lanes, directly at the processor",
        Limit::Network if case.end_to_end.has(Mark::SameHost) => {
            "measure between two computers: here the bytes went through memory, which says nothing of what to buy"
        }
        Limit::Network => "only a faster link, or a second one with multichannel, carries more",
        Limit::SingleFlow => {
            "use several connections: nconnect=4 for NFS, multichannel for SMB, MC/S or multipath for iSCSI"
        }
        Limit::RoundTrip => {
            "ask for more at once: larger blocks, more read-ahead (rsize, nfs read_ahead_kb), more requests under way"
        }
        Limit::Protocol => {
            "compare with another protocol on the same share, and with encryption and signing off where that is allowed"
        }
        Limit::Mount => {
            "change the mount: rsize and wsize 1M, nconnect, read_ahead_kb, or no 'sync'"
        }
        Limit::Metadata => {
            "pack small files (tar, rsync of an archive), or copy several folders at once"
        }
        Limit::Storage if case.direction == Direction::Write => {
            "more or faster disks, mirrors instead of parity, or a fast log device for synchronous writes"
        }
        Limit::Storage => {
            "more or faster disks, more read-ahead on the server, or memory and SSDs as a read cache"
        }
        Limit::SourceStorage => "the source decides: a faster source, or several files at once",
        Limit::DestinationStorage => {
            "the destination decides: faster disks there, or fewer synchronous writes"
        }
        Limit::NoOverlap => "use a copying program that reads and writes at the same time",
        Limit::Software => {
            "find what flushes or locks after each request, and let it do so less often"
        }
        Limit::Unresolved => return Some(settle(case)),
    })
}

/// The one measurement that would tell most where nothing decides.
fn settle(case: &Case) -> &'static str {
    let lacks = |rung| case.layer(rung).is_none();
    if lacks(Rung::Network) {
        "start 'iperf3 -s' on the server and run nasgauge diagnose again with --net HOST"
    } else if lacks(Rung::Storage) && lacks(Rung::StorageBest) {
        "run nasgauge diagnose again with --agent ssh:USER@HOST, so that the server's own disks are measured"
    } else if lacks(Rung::Protocol) {
        "run nasgauge diagnose again with --ram-target on a share in the server's memory"
    } else {
        "run nasgauge diagnose again on an idle network, with --workload at twice the depth"
    }
}
