//! A network test as rows: one for each server and way, and one of all servers together where there are several.

use crate::network::limits::{Finding, findings};
use crate::network::{Flows, Way};
use crate::record::{Flag, Interval, Row, STREAM, Status};
use crate::run::status_of;
use crate::stage::network::{Ask, Ground, Tested, Traffic};
use crate::units::Nanos;

/// A test shorter than this has no steady figure: three seconds, less what lies between two readings of the kernel.
const SHORT_S: f64 = 2.7;

/// What all rows of a test share.
pub(in crate::run) fn blank(tested: &Tested) -> Row {
    let both = tested.traffic == Traffic::Both;
    let each = if tested.flows == 1 { "flow" } else { "flows" };
    Row {
        stage: "network".into(),
        protocol: "tcp".into(),
        engine: "riperf3".into(),
        workload: format!(
            "{} {each}{}",
            tested.flows,
            if both { ", both at once" } else { "" }
        ),
        pattern: STREAM.into(),
        payload: "incompressible".into(),
        ..Row::blank()
    }
}

/// The rows of a test, each with its samples.
pub(in crate::run) fn rows(
    template: &Row,
    ask: &Ask,
    grounds: &[Ground],
    tested: &Tested,
) -> Vec<(Row, Vec<Interval>)> {
    let mut found = Vec::new();
    for ((server, ground), result) in ask.servers.iter().zip(grounds).zip(&tested.servers) {
        let template = Row {
            target: format!("tcp://{}", server.label),
            lanes: tested.flows as u16,
            connections: Some(tested.flows),
            ..template.clone()
        };
        match result {
            Ok(ways) => {
                for (way, flows) in ways {
                    let mut row = one(&template, *way, flows, ground);
                    row.network_bytes = carried(tested, ground, *way);
                    found.push((row, intervals(flows)));
                }
            }
            Err(error) => {
                for way in ways(tested.traffic) {
                    let row = Row {
                        direction: way.direction().key().to_owned(),
                        status: status_of(error),
                        errors: u64::from(status_of(error) != Status::Interrupted),
                        error: Some(error.to_string()),
                        ..template.clone()
                    };
                    found.push((row, Vec::new()));
                }
            }
        }
    }
    if ask.servers.len() > 1 {
        let labels: Vec<&str> = ask
            .servers
            .iter()
            .map(|server| server.label.as_str())
            .collect();
        for way in ways(tested.traffic) {
            if let Some(flows) = tested.total(way) {
                let template = Row {
                    target: format!("tcp://{}", labels.join(",")),
                    lanes: flows.flows as u16,
                    connections: Some(flows.flows),
                    ..template.clone()
                };
                found.push((one(&template, way, &flows, &grounds[0]), Vec::new()));
            }
        }
    }
    found
}

fn ways(traffic: Traffic) -> Vec<Way> {
    match traffic {
        Traffic::One(way) => vec![way],
        Traffic::Both => vec![Way::Receive, Way::Send],
    }
}

fn one(template: &Row, way: Way, flows: &Flows, ground: &Ground) -> Row {
    let mut flags = Vec::new();
    for finding in findings(way, std::slice::from_ref(flows), &ground.path) {
        match finding {
            Finding::AboveLine { .. } => flags.push(Flag::AboveLineRate),
            Finding::MtuMismatch { .. } => flags.push(Flag::MtuMismatch),
            Finding::DropOffs { .. } => flags.push(Flag::NotSteady),
            _ => {}
        }
    }
    if ground.local {
        flags.push(Flag::Loopback);
    } else if ground.path.software {
        flags.push(Flag::VirtualLink);
    }
    if flows.seconds < SHORT_S {
        flags.push(Flag::TooShort);
    }
    flags.sort_unstable();
    flags.dedup();
    // Percent of a core over the measured time; what the warm-up took is in it, so it is spread alike.
    let cpu = flows
        .cpu_here_percent
        .map(|percent| percent / 100.0 * flows.seconds);
    Row {
        direction: way.direction().key().to_owned(),
        bytes: flows.bytes,
        seconds: (flows.seconds > 0.0).then_some(flows.seconds),
        client_cpu_s: cpu,
        busiest_core_percent: flows.busiest_core_percent,
        retransmits: flows.sender.retransmits,
        negotiated: negotiated(flows),
        flags,
        ..template.clone()
    }
}

/// What the two ends' kernels agreed on or found, as words.
fn negotiated(flows: &Flows) -> String {
    let sender = &flows.sender;
    let mut words: Vec<String> = Vec::new();
    let micros = |seconds: f64| (seconds * 1e6).round();
    words.extend(sender.mss.map(|mss| format!("mss={mss}")));
    words.extend(
        sender
            .rtt_min_s
            .map(|rtt| format!("rtt_min_us={}", micros(rtt))),
    );
    words.extend(sender.rtt_s.map(|rtt| format!("rtt_us={}", micros(rtt))));
    words.extend(sender.cwnd_bytes.map(|bytes| format!("cwnd_bytes={bytes}")));
    words.extend(
        flows
            .congestion_control
            .as_ref()
            .map(|name| format!("congestion={name}")),
    );
    let percent = |share: f64| (share * 100.0).round();
    words.extend(
        sender
            .receiver_limited
            .map(|share| format!("rwnd_limited_percent={}", percent(share))),
    );
    words.extend(
        sender
            .buffer_limited
            .map(|share| format!("sndbuf_limited_percent={}", percent(share))),
    );
    words.extend(
        flows
            .cpu_there_percent
            .map(|share| format!("server_cpu_percent={share:.1}")),
    );
    words.extend(
        flows
            .busiest_core_there_percent
            .map(|share| format!("server_busiest_core_percent={share:.1}")),
    );
    words.join(" ")
}

/// Bytes that the interface towards the server moved that way.
fn carried(tested: &Tested, ground: &Ground, way: Way) -> Option<u64> {
    let rates = tested.interfaces.get(ground.interface.as_ref()?)?;
    Some(match way {
        Way::Send => rates.transmit.total_bytes,
        Way::Receive => rates.receive.total_bytes,
    })
}

fn intervals(flows: &Flows) -> Vec<Interval> {
    let nanos = |seconds: f64| Nanos((seconds.max(0.0) * 1e9).round() as u64);
    flows
        .samples
        .iter()
        .filter(|sample| sample.from >= 0.0)
        .map(|sample| Interval {
            from: nanos(sample.from),
            to: nanos(sample.to),
            ops: 0,
            bytes: sample.bytes,
            latency_mean_ns: None,
            latency_max_ns: None,
        })
        .collect()
}
