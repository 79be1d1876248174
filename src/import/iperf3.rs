//! iperf3's JSON (`-J`), with whatever a terminal or a script put around it.
//!
//! A receiver's rate is its bytes over its own time: its `seconds` are the sender's. Must not know: other formats.

use serde::Deserialize;
use serde_json::Value;

use super::json::{utc, whole};
use super::{Imported, Input};
use crate::error::{Error, Result};
use crate::iperf3::{End, Interval as Sample, Side};
use crate::record::{Flag, Interval, Row, STREAM, Status};
use crate::units::{Nanos, SECOND};

/// A test shorter than this has no steady figure.
const SHORT_S: f64 = 2.7;

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let tests: Vec<&Value> = input
        .objects
        .iter()
        .map(|object| &object.value)
        .filter(|value| {
            let part = |name| value.get(name).is_some();
            part("start") && (part("end") || part("intervals"))
                || part("error") && value.as_object().is_some_and(|all| all.len() <= 2)
        })
        .collect();
    let first = tests.first()?;
    let version = first["start"]["version"].as_str().unwrap_or("iperf3");
    let mut notes = Vec::new();
    let mut imported = Vec::new();
    for value in &tests {
        match one(value, &mut notes) {
            Ok(rows) => imported.extend(rows),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Imported {
        tool: version.to_owned(),
        settings: first["start"]["test_start"].clone(),
        tests: imported,
        judged: Vec::new(),
        notes,
    }))
}

fn one(value: &Value, notes: &mut Vec<String>) -> Result<Vec<(Row, Vec<Interval>)>> {
    let settings = &value["start"]["test_start"];
    let end = match value.get("end") {
        Some(end) => End::deserialize(end)
            .map_err(|error| Error::usage(format!("iperf3's end can't be read: {error}")))?,
        None => End::default(),
    };
    let template = template(value, settings, &end);
    let failure = value["error"].as_str();
    let reverse = whole(&settings["reverse"]) == Some(1);
    // Not all versions tell it among the settings.
    let both = end.sum_received_bidir_reverse.is_some() || end.sum_sent_bidir_reverse.is_some();
    let here = |reverse: bool| if reverse { "read" } else { "write" };
    let mut ways = vec![(
        here(reverse),
        end.sum_received.clone(),
        end.sum_sent.clone(),
        false,
    )];
    if both {
        let (received, sent) = (&end.sum_received_bidir_reverse, &end.sum_sent_bidir_reverse);
        ways.push((here(!reverse), received.clone(), sent.clone(), true));
    }
    let udp = settings["protocol"] == "UDP";
    let mut rows = Vec::new();
    for (direction, received, sent, other) in ways {
        let arrived = match received.filter(|side| side.bytes > 0) {
            None if udp => datagrams(&value["end"]["sum"]),
            side => side,
        };
        let mut row = Row {
            direction: direction.to_owned(),
            retransmits: sent
                .as_ref()
                .and_then(|side| u64::try_from(side.retransmits?).ok()),
            ..template.clone()
        };
        if both {
            row.workload.push_str(", both at once");
        }
        if let Some(side) = &arrived {
            let seconds = side.end - side.start;
            row.bytes = side.bytes;
            row.seconds = (seconds > 0.0).then_some(seconds);
        }
        outcome(&mut row, failure, notes);
        rows.push((row, samples(value, other)));
    }
    Ok(rows)
}

/// What all rows of a test share.
fn template(value: &Value, settings: &Value, end: &End) -> Row {
    let peer = &value["start"]["connecting_to"];
    let host = peer["host"]
        .as_str()
        .or_else(|| value["start"]["accepted_connection"]["host"].as_str());
    let port = whole(&peer["port"]).map_or_else(String::new, |port| format!(":{port}"));
    let flows = whole(&settings["num_streams"]).unwrap_or(0);
    let each = if flows == 1 { "flow" } else { "flows" };
    let seconds = end.sum_received.as_ref().map(|side| side.end - side.start);
    let cpu = end.cpu_utilization_percent.zip(seconds);
    let mut negotiated = Vec::new();
    if let Some(mss) = whole(&value["start"]["tcp_mss_default"]) {
        negotiated.push(format!("mss={mss}"));
    }
    if let Some(name) = &end.sender_tcp_congestion {
        negotiated.push(format!("congestion_control={name}"));
    }
    let started = value["start"]["timestamp"]["timesecs"].as_u64();
    let udp = settings["protocol"] == "UDP";
    Row {
        started_utc: started.map_or_else(String::new, utc),
        stage: "network".into(),
        target: format!("tcp://{}{port}", host.unwrap_or("")),
        protocol: "tcp".into(),
        engine: "iperf3".into(),
        workload: format!("{flows} {each}{}", if udp { ", UDP" } else { "" }),
        pattern: STREAM.into(),
        block_size_bytes: whole(&settings["blksize"]),
        lanes: u16::try_from(flows).unwrap_or(u16::MAX),
        connections: u32::try_from(flows).ok().filter(|flows| *flows > 0),
        payload: "unknown".into(),
        client_cpu_s: cpu.map(|(cpu, seconds)| cpu.host_total / 100.0 * seconds),
        negotiated: negotiated.join(" "),
        ..Row::blank()
    }
}

/// What arrived over UDP where iperf3 gives one sum only: what was sent less what was lost.
fn datagrams(sum: &Value) -> Option<Side> {
    let side = Side::deserialize(sum).ok()?;
    let lost = sum["lost_percent"]
        .as_f64()
        .unwrap_or(0.0)
        .clamp(0.0, 100.0);
    Some(Side {
        bytes: (side.bytes as f64 * (1.0 - lost / 100.0)).round() as u64,
        ..side
    })
}

/// How it ended; iperf3 tells an error in a field of its own and may exit with 0.
fn outcome(row: &mut Row, failure: Option<&str>, notes: &mut Vec<String>) {
    if let Some(sentence) = failure {
        row.status = if sentence.contains("interrupt") {
            Status::Interrupted
        } else {
            Status::Failed
        };
        row.errors = u64::from(row.status == Status::Failed);
        row.error = Some(sentence.to_owned());
        notes.push(format!("iperf3: {sentence}"));
    } else if row.bytes == 0 || row.seconds.is_none() {
        row.status = Status::Failed;
        row.errors = 1;
        row.error = Some("no bytes arrived".into());
    }
    if row.seconds.is_none_or(|seconds| seconds < SHORT_S) {
        row.flags.push(Flag::TooShort);
    }
}

/// The samples of one way, as this end saw them.
fn samples(value: &Value, other: bool) -> Vec<Interval> {
    let all = value["intervals"].as_array().map_or(&[][..], Vec::as_slice);
    let samples = all
        .iter()
        .filter_map(|sample| Sample::deserialize(sample).ok());
    let sums = samples.filter_map(|sample| {
        if other {
            sample.sum_bidir_reverse
        } else {
            Some(sample.sum)
        }
    });
    let nanos = |seconds: f64| Nanos((seconds.max(0.0) * SECOND as f64).round() as u64);
    sums.filter(|sum| !sum.omitted && sum.end > sum.start)
        .map(|sum| Interval {
            from: nanos(sum.start),
            to: nanos(sum.end),
            ops: 0,
            bytes: sum.bytes,
            latency_mean_ns: None,
            latency_max_ns: None,
        })
        .collect()
}
