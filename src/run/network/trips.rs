//! What requests and answers carry, through the port that an agent opens for them: rows of stage `round_trip`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::error::Result;
use crate::fleet::agent::wire::Service;
use crate::fleet::agent::{Agent, own_address};
use crate::network::Way;
use crate::record::{Flag, LatencySummary, Row};
use crate::round_trip::theory::Expected;
use crate::spec::network::NetworkPlan;
use crate::stage::network::{Ground, Server};
use crate::stage::round_trip::{Carried, Idle, Load, PROBES, Place, carry, idle};

/// Blocks and depths of storage protocols: a small request alone and deep, a large one alone and read ahead.
const LOADS: &[(u32, u16)] = &[(4 << 10, 1), (4 << 10, 32), (1 << 20, 1), (1 << 20, 8)];
const RAMP: Duration = Duration::from_millis(500);
const RUNTIME: Duration = Duration::from_secs(3);
/// The longest wait for any answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one load carried, and what theory expects of it.
#[derive(Debug, Clone)]
pub struct Trip {
    /// What was measured.
    pub carried: Carried,
    /// Which way the blocks went.
    pub way: Way,
    /// Bytes per second by [`Expected`]; None where one flow was not measured alone.
    pub expected: Option<f64>,
}

/// All that was measured with requests and answers.
#[derive(Debug, Clone)]
pub struct Trips {
    /// A round trip on the idle path.
    pub idle: Idle,
    /// The loads.
    pub loads: Vec<Trip>,
}

/// Measures all loads on one connection, in the plan's ways. `single` gives what one flow carried that way, in bytes per second.
pub(super) fn measure(
    agent: &mut Agent,
    server: &Server,
    plan: &NetworkPlan,
    single: impl Fn(Way) -> Option<f64>,
    stop: &Arc<AtomicBool>,
    mut begin: impl FnMut(&str, f64),
    mut done: impl FnMut(&Trip) -> Result<()>,
) -> Result<Trips> {
    let here = own_address(server.address)?;
    let count = 2 * LOADS.len() as u32;
    let time = (RAMP + RUNTIME + PATIENCE) * count + PATIENCE;
    let port = agent.open_port(Service::RoundTrip, server.address, here, time)?;
    let place = Place {
        address: SocketAddr::new(server.address, port.address.port()),
        connect_timeout: plan.connect_timeout.duration(),
        io_timeout: PATIENCE,
    };
    let mut trips = Trips {
        idle: idle(&place, PROBES)?,
        loads: Vec::new(),
    };
    let asked = [Way::Receive, Way::Send]
        .into_iter()
        .filter(|way| plan.ways.include(*way));
    for way in asked {
        for (block_size, iodepth) in LOADS {
            if stop.load(Relaxed) {
                break;
            }
            let load = Load {
                direction: way.direction(),
                block_size: *block_size,
                connections: 1,
                iodepth: *iodepth,
                ramp: RAMP,
                runtime: RUNTIME,
            };
            begin(&label(way, &load), (RAMP + RUNTIME).as_secs_f64());
            let carried = carry(&place, &load, stop)?;
            let expected = single(way).and_then(|line| {
                let rtt = trips.idle.median_ns;
                Expected::new(line, load.in_flight(), *block_size, rtt, 0)
            });
            let expected = expected.map(|expected| expected.rate());
            let trip = Trip {
                carried,
                way,
                expected,
            };
            done(&trip)?;
            trips.loads.push(trip);
        }
    }
    agent.close(&port)?;
    Ok(trips)
}

fn label(way: Way, load: &Load) -> String {
    format!("{}, {}", way.words(), requests(load))
}

/// The load in words; of rows that share them a mean is taken.
fn requests(load: &Load) -> String {
    let block = crate::units::Bytes(u64::from(load.block_size));
    format!("requests of {block}, {} under way", load.iodepth)
}

/// One load as a row.
pub(super) fn row(template: &Row, server: &Server, ground: &Ground, trip: &Trip) -> Row {
    let carried = &trip.carried;
    let load = &carried.load;
    let mut flags = Vec::new();
    if ground.local {
        flags.push(Flag::Loopback);
    } else if ground.path.software {
        flags.push(Flag::VirtualLink);
    }
    let negotiated = trip.expected.map_or_else(String::new, |rate| {
        format!("expected_bytes_per_s={rate:.0}")
    });
    Row {
        stage: "round_trip".into(),
        target: format!("tcp://{}", server.label),
        protocol: "tcp".into(),
        engine: "probe".into(),
        workload: requests(load),
        direction: trip.way.direction().key().to_owned(),
        pattern: "request".into(),
        block_size_bytes: Some(u64::from(load.block_size)),
        iodepth: load.iodepth,
        lanes: load.connections,
        connections: Some(u32::from(load.connections)),
        bytes: carried.bytes,
        ops: carried.ops,
        seconds: (carried.span_ns > 0).then(|| carried.span_ns as f64 / 1e9),
        latency_ns: LatencySummary::of(&carried.tally.latency),
        latency: carried.tally.latency.clone(),
        client_cpu_s: Some(carried.cpu_ns as f64 / 1e9),
        payload: "incompressible".into(),
        negotiated,
        flags,
        ..template.clone()
    }
}
