//! The round-trip rung: what requests and answers carry at a block size and a depth, with nothing behind the wire.
//!
//! Read first: [`idle`] takes the time of a round trip on an idle path, [`carry`] what a closed loop moves in one
//! direction. Both need `servers::round_trip` at a [`Place`], as the agent opens it. What theory expects of both
//! is [`crate::round_trip::theory`]. Must not know: the agent, rows, verdicts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::clock::monotonic_ns;
use crate::engine::{Job, Report, Tally};
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::{Event, Fleet};
use crate::op::{Direction, Durability, Op, Submit};
use crate::payload::{Content, Fill};
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::{Distribution, Phase as Work, Rw};
use crate::target::{Attach, Login, Secret, tcp};
use crate::units::{Bytes, Nanos, SECOND};

/// Round trips that [`idle`] takes where there is time.
pub const PROBES: u32 = 200;
/// The longest that they may take together, on a path of very long round trips.
const PROBES_TIME_NS: u64 = 10 * SECOND;
/// Bytes that a connection's writes run over: no block repeats soon.
const REGION: u64 = 1 << 30;

/// Where the other end is, and how long to wait for it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The address and port that it listens on.
    pub address: SocketAddr,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest wait for any answer.
    pub io_timeout: Duration,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Read: from the server to this computer.
    pub direction: Direction,
    /// Bytes of a block.
    pub block_size: u32,
    /// TCP connections.
    pub connections: u16,
    /// Requests under way on each.
    pub iodepth: u16,
    /// Time before measuring starts: connections find their speed.
    pub ramp: Duration,
    /// Measured time; what is under way at its end still counts.
    pub runtime: Duration,
}

/// The time of a round trip on an idle path, in nanoseconds, from requests for one byte, one after the other. It holds
/// what both computers need to wake up and to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// Round trips taken.
    pub probes: u32,
    /// The shortest.
    pub min_ns: u64,
    /// Half are shorter.
    pub median_ns: u64,
    /// Nine of ten are shorter.
    pub p90_ns: u64,
}

/// What a load carried.
#[derive(Debug, Clone)]
pub struct Carried {
    /// What was asked for.
    pub load: Load,
    /// Bytes of payload in the measured time.
    pub bytes: u64,
    /// Requests that were answered in it.
    pub ops: u64,
    /// The measured time in nanoseconds: from its start to the last answer.
    pub span_ns: u64,
    /// From request to whole answer, and their number.
    pub tally: Tally,
    /// CPU time of the threads that moved the bytes here, in nanoseconds.
    pub cpu_ns: u64,
}

impl Load {
    /// Requests under way on all connections together.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        u32::from(self.connections) * u32::from(self.iodepth)
    }
}

impl Carried {
    /// Bytes per second; None where no time was measured.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<f64> {
        (self.span_ns > 0).then(|| self.bytes as f64 * 1e9 / self.span_ns as f64)
    }
}

/// Takes up to `probes` round trips; fewer where they would last longer than ten seconds. At least one.
pub fn idle(place: &Place, probes: u32) -> Result<Idle> {
    let attach = attach(Direction::Read, 1, 1, 0);
    let mut session = (tcp::PROTOCOL.connect)(&login(place), &attach)?;
    let mut slots = Slots::new(1, 1)
        .map_err(|error| Error::io(Phase::Prepare, &error, "reserve memory for the probe"))?;
    let op = Op {
        direction: Direction::Read,
        offset: 0,
        len: 1,
        slot: 0,
    };
    let mut times = Vec::with_capacity(probes.max(1) as usize);
    let mut done = Vec::with_capacity(1);
    let begun = monotonic_ns();
    loop {
        let sent = monotonic_ns();
        if session.submit(op, &mut slots)? == Submit::Queued {
            session.reap(None, &mut slots, &mut done)?;
            done.clear();
        }
        let now = monotonic_ns();
        times.push(now.saturating_sub(sent));
        if times.len() >= probes as usize || now.saturating_sub(begun) >= PROBES_TIME_NS {
            break;
        }
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    Ok(Idle {
        probes: times.len() as u32,
        min_ns: at(0),
        median_ns: at(50),
        p90_ns: at(90),
    })
}

/// Keeps a load up for its time and says what it carried. `stop` ends it early, with an error; so does a connection
/// that fails, since what the others carry then is another load.
pub fn carry(place: &Place, load: &Load, stop: &AtomicBool) -> Result<Carried> {
    if load.block_size == 0 || load.in_flight() == 0 {
        return Err(Error::usage(
            "a round trip needs a block size, a connection and a depth above zero",
        ));
    }
    let jobs = (0..load.connections).map(|lane| job(load, lane)).collect();
    // A fleet stops its workers when it goes; the caller's flag is not its to set.
    let own = Arc::new(AtomicBool::new(false));
    let mut fleet = Fleet::launch(&tcp::PROTOCOL, &login(place), jobs, &own)?;
    fleet.ready(place.connect_timeout + place.io_timeout, stop)?;
    fleet.go();
    let longest = load.ramp + load.runtime + place.io_timeout * 2;
    let reports = reports(&fleet, load.connections, longest, place, stop)?;
    Ok(sum(load, &reports))
}

/// Waits for every worker's report.
fn reports(
    fleet: &Fleet,
    count: u16,
    longest: Duration,
    place: &Place,
    stop: &AtomicBool,
) -> Result<Vec<Report>> {
    let deadline = Instant::now() + longest;
    let mut reports = Vec::new();
    while reports.len() < usize::from(count) {
        if stop.load(Relaxed) {
            let what = "stopped on request";
            return Err(Error::new(Phase::Io, Kind::Interrupted, what));
        }
        match fleet.next(Duration::from_millis(50)) {
            Some((_, Event::Report(report))) => match report.error {
                Some(error) => return Err(error),
                None => reports.push(*report),
            },
            Some((_, Event::Ready)) => {}
            None if Instant::now() < deadline => {}
            None => {
                let message = format!(
                    "the test with {} did not end within {} s",
                    place.address,
                    longest.as_secs()
                );
                return Err(Error::new(Phase::Io, Kind::TimedOut, message));
            }
        }
    }
    Ok(reports)
}

fn sum(load: &Load, reports: &[Report]) -> Carried {
    let mut tally = Tally::default();
    for report in reports {
        tally.merge(report.tally(load.direction));
    }
    let moved = || {
        let moved = |report: &&Report| report.tally(load.direction).ops > 0;
        reports.iter().filter(moved)
    };
    let start = moved().map(|report| report.started_ns).min();
    let end = moved().map(|report| report.ended_ns).max();
    Carried {
        load: *load,
        bytes: tally.bytes,
        ops: tally.ops,
        span_ns: end.unwrap_or(0).saturating_sub(start.unwrap_or(0)),
        tally,
        cpu_ns: reports.iter().map(|report| report.cpu_ns).sum(),
    }
}

fn login(place: &Place) -> Login {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Login {
        spec: TargetSpec {
            uri: format!("tcp://{}", place.address),
            protocol: tcp::PROTOCOL.name.to_owned(),
            hosts: vec![place.address.ip().to_string()],
            port: Some(place.address.port()),
            ..TargetSpec::default()
        },
        secret: Secret::default(),
        connect_timeout_ms: millis(place.connect_timeout),
        io_timeout_ms: millis(place.io_timeout),
    }
}

fn attach(direction: Direction, block_size: u32, iodepth: u16, lane: u16) -> Attach {
    Attach {
        object: String::new(),
        write: direction == Direction::Write,
        direct: false,
        durability: Durability::None,
        iodepth,
        block_max: block_size,
        lane,
        round: 0,
    }
}

fn job(load: &Load, lane: u16) -> Job {
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let block = u64::from(load.block_size);
    let region = (REGION / block).max(1) * block * u64::from(load.connections);
    let content = Content {
        key: 0x726f_756e_6474_7269 ^ u64::from(lane),
        fill: Fill::Incompressible,
        compress_percent: 0,
        dedupe_percent: 0,
    };
    let phase = Work {
        name: String::new(),
        rw: match load.direction {
            Direction::Read => Rw::Read,
            Direction::Write => Rw::Write,
        },
        rwmixread: 0,
        blocks: vec![(Bytes(block), 100)],
        iodepth: load.iodepth,
        lanes: load.connections,
        size: Bytes(region),
        runtime: Some(nanos(load.runtime)),
        bytes: None,
        ramp_time: nanos(load.ramp),
        rate_iops: None,
        fsync: 0,
        durability: Durability::None,
        direct: false,
        random_distribution: Distribution::Uniform,
        payload: content.fill,
        compress_percent: content.compress_percent,
        dedupe_percent: content.dedupe_percent,
        verify: false,
        in_turns: false,
        files: None,
    };
    Job {
        attach: attach(load.direction, load.block_size, load.iodepth, lane),
        phase,
        lane,
        lanes: load.connections,
        base: 0,
        seed: 1,
        content,
        generation: Some(1),
        flush: false,
        files: None,
    }
}
