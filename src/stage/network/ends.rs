//! What both ends and this computer's kernel said of a test, as figures.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Traffic;
use crate::iperf3::{End, Side, Start};
use crate::network::{Flows, Sample, Sender, Way};
use crate::probe::cpu::{self, Ticks};
use crate::probe::sockets::{self, Connection, Filter};

/// A connection that moved less than this carried no data: it is the control connection.
const DATA: u64 = 64 << 10;

/// A reading of this computer's counters.
pub(super) struct Reading {
    at: Instant,
    /// How long it took: when it is from is known no better.
    took: Duration,
    ticks: Option<Ticks>,
    connections: Vec<Connection>,
}

impl Reading {
    /// The counters now, and those of the connections to a server.
    pub(super) fn take(server: SocketAddr) -> Self {
        let start = Instant::now();
        let connections = sockets::connections(&Filter::to(server)).unwrap_or_default();
        let took = start.elapsed();
        Self {
            at: start + took / 2,
            took,
            ticks: cpu::read(std::path::Path::new("/")),
            connections,
        }
    }
}

/// All that was heard of a test with one server.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) start: Option<Start>,
    pub(super) end: Option<End>,
    /// When data began to flow.
    pub(super) begun: Option<Instant>,
    /// When the measured time began.
    pub(super) base: Option<Instant>,
    /// Samples of this end, by whether it sends.
    pub(super) samples: HashMap<bool, Vec<Sample>>,
    /// The last reading of the warm-up.
    pub(super) before: Option<Reading>,
    /// The last reading of the measured time.
    pub(super) after: Option<Reading>,
    /// The server's own connections at the start and at the end of the measured time; only an agent tells them.
    pub(super) there: [Option<Vec<Connection>>; 2],
}

/// The end of the measured time is where connections are taken down; a reading keeps away from it.
const MARGIN: Duration = Duration::from_millis(50);
/// A reading takes less than this unless other work holds it up.
const PROMPT: Duration = Duration::from_millis(3);

impl Heard {
    /// Keeps a reading where it is of use.
    pub(super) fn read(&mut self, reading: Reading, warm_up: u32, seconds: u32) {
        let Some(begun) = self.begun else { return };
        let start = begun + Duration::from_secs(u64::from(warm_up));
        let end = start + Duration::from_secs(u64::from(seconds));
        let kept = if reading.at < start || self.before.is_none() {
            &mut self.before
        } else if reading.at + MARGIN < end {
            &mut self.after
        } else {
            return;
        };
        // One that was held up by other work would count bytes of another time.
        if kept.is_none() || reading.took < PROMPT {
            *kept = Some(reading);
        }
    }

    /// The least round-trip time that the kernel saw, in seconds.
    pub(super) fn idle_rtt_s(&self) -> Option<f64> {
        let reading = self.after.as_ref().or(self.before.as_ref())?;
        let least = reading
            .connections
            .iter()
            .filter_map(|connection| connection.tcp.min_rtt_us)
            .filter(|rtt| *rtt > 0 && *rtt < u32::MAX)
            .min()?;
        Some(f64::from(least) / 1e6)
    }
}

/// The figures of each way that the test had. `start` is when the first of all servers' tests began.
pub(super) fn figures(
    heard: &Heard,
    flows: u32,
    traffic: Traffic,
    start: Option<Instant>,
) -> Vec<(Way, Flows)> {
    let ways: &[Way] = match traffic {
        Traffic::One(Way::Send) => &[Way::Send],
        Traffic::One(Way::Receive) => &[Way::Receive],
        Traffic::Both => &[Way::Send, Way::Receive],
    };
    ways.iter()
        .map(|way| (*way, one_way(heard, flows, traffic, *way, start)))
        .collect()
}

fn one_way(heard: &Heard, flows: u32, traffic: Traffic, way: Way, start: Option<Instant>) -> Flows {
    let end = heard.end.clone().unwrap_or_default();
    // In a test of both at once, what comes back has fields of its own.
    let back = traffic == Traffic::Both && way == Way::Receive;
    let (sent, received) = if back {
        (&end.sum_sent_bidir_reverse, &end.sum_received_bidir_reverse)
    } else {
        (&end.sum_sent, &end.sum_received)
    };
    let shift = start.zip(heard.base).map_or(0.0, |(start, base)| {
        base.duration_since(start).as_secs_f64()
    });
    let samples: Vec<Sample> = heard
        .samples
        .get(&(way == Way::Send))
        .into_iter()
        .flatten()
        .map(|sample| shifted(*sample, shift))
        .collect();
    // The receiver's own sum; where it tells none, the sender's.
    let told = [received, sent]
        .into_iter()
        .flatten()
        .find(|side| side.bytes > 0 && side.end > side.start)
        .cloned()
        .unwrap_or_default();
    let mut bytes = told.bytes;
    let mut seconds = told.end - told.start;
    if let Some((arrived, time)) = arrived(heard, flows, way) {
        (bytes, seconds) = (arrived, time);
    }
    let cpu = end.cpu_utilization_percent;
    Flows {
        flows,
        both: traffic == Traffic::Both,
        bytes,
        seconds,
        samples,
        sender: sender(heard, way, sent.as_ref()),
        congestion_control: end.sender_tcp_congestion.filter(|_| !back),
        cpu_here_percent: cpu.map(|cpu| cpu.host_total),
        cpu_there_percent: cpu
            .map(|cpu| cpu.remote_total)
            .filter(|percent| *percent > 0.0),
        busiest_core_percent: busiest(heard),
        busiest_core_there_percent: None,
    }
}

/// A sample of the warm-up stays below 0, whenever the test began.
fn shifted(sample: Sample, by: f64) -> Sample {
    if sample.from < 0.0 {
        return sample;
    }
    Sample {
        from: sample.from + by,
        to: sample.to + by,
        ..sample
    }
}

fn busiest(heard: &Heard) -> Option<f64> {
    let before = heard.before.as_ref()?.ticks.as_ref()?;
    let after = heard.after.as_ref()?.ticks.as_ref()?;
    Some(after.since(before)?.busiest()?.busy)
}

/// Bytes that arrived between the two readings, and the time between them: what this kernel received, or what the other one
/// acknowledged. The sums that the two programs tell are less sure, since how long each of them counted they do not tell.
fn arrived(heard: &Heard, flows: u32, way: Way) -> Option<(u64, f64)> {
    let (before, after) = (heard.before.as_ref()?, heard.after.as_ref()?);
    let mut bytes = 0;
    let mut counted = 0;
    for (_, _, growth) in sockets::since(&after.connections, &before.connections) {
        let arrived = match way {
            Way::Send => growth.bytes_acked,
            Way::Receive => growth.bytes_received,
        };
        if let Some(arrived) = arrived.filter(|arrived| *arrived > DATA) {
            bytes += arrived;
            counted += 1;
        }
    }
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    (counted == flows && seconds > 0.0).then_some((bytes, seconds))
}

/// What is known of the sending end: this computer's kernel tells it, or the server's by an agent.
fn sender(heard: &Heard, way: Way, sent: Option<&Side>) -> Sender {
    let told = sent
        .and_then(|side| side.retransmits)
        .and_then(|count| u64::try_from(count).ok());
    let sender = Sender {
        retransmits: told,
        rtt_min_s: heard.idle_rtt_s(),
        ..Sender::default()
    };
    let (before, after) = (seen(heard.before.as_ref()), seen(heard.after.as_ref()));
    if way == Way::Send {
        return of_connections(sender, before, after);
    }
    // The server's timer and window are not seen here; the handshake's round trip is, and the segments are.
    let data = after
        .iter()
        .filter(|one| one.tcp.bytes_received.is_some_and(|bytes| bytes > DATA));
    let sender = Sender {
        mss: data.filter_map(|one| one.tcp.receive_mss_bytes).max(),
        ..sender
    };
    match &heard.there {
        [Some(before), Some(after)] => of_connections(sender, before, after),
        _ => sender,
    }
}

/// The connections of a reading.
fn seen(reading: Option<&Reading>) -> &[Connection] {
    reading.map_or(&[], |reading| &reading.connections)
}

/// The same with what the sender's own kernel tells of the connections that carried data.
fn of_connections(sender: Sender, before: &[Connection], after: &[Connection]) -> Sender {
    let data: Vec<&Connection> = after
        .iter()
        .filter(|one| one.tcp.bytes_acked.is_some_and(|bytes| bytes > DATA))
        .collect();
    let growth = sockets::since(after, before)
        .into_iter()
        .filter(|(local, remote, _)| {
            data.iter()
                .any(|one| (one.local, one.remote) == (*local, *remote))
        })
        .map(|(_, _, growth)| growth)
        .reduce(|all, one| all.and(&one));
    let rtts: Vec<f64> = data
        .iter()
        .filter_map(|one| one.tcp.rtt_us)
        .map(|rtt| f64::from(rtt) / 1e6)
        .collect();
    let window = |one: &&Connection| {
        let packets = one.tcp.cwnd_packets?;
        Some(u64::from(packets) * u64::from(one.tcp.mss_bytes?))
    };
    Sender {
        rtt_s: (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64),
        cwnd_bytes: data.iter().filter_map(window).max(),
        mss: data
            .iter()
            .filter_map(|one| one.tcp.mss_bytes)
            .min()
            .or(sender.mss),
        receiver_limited: growth.and_then(|growth| growth.receiver_limited_share()),
        buffer_limited: growth.and_then(|growth| growth.sender_limited_share()),
        ..sender
    }
}
