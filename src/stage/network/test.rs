//! One test: a child process for each server, their events, and what this computer counts meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::ends::{self, Heard, Reading};
use super::{Ask, Ground, Server, Tested, Traffic, Watch};
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::agent::wire::Service;
use crate::fleet::agent::{Agent, TestPort, own_address};
use crate::fleet::flows::{FlowOrder, FlowTest, failure};
use crate::iperf3::{Event, Interval, IntervalSum};
use crate::network::{Sample, Way, warm_up_s};
use crate::probe::net::rates::Sampler;
use crate::probe::net::statistics;
use crate::probe::path_mtu::{self, PathMtu};

/// How often the children are heard.
const POLL: Duration = Duration::from_millis(20);
/// How often the counters of this computer are read.
const READING: Duration = Duration::from_millis(100);
/// How long before the end of the measured time an agent tells of its connections: at the end they are taken down.
const READ_THERE: Duration = Duration::from_millis(300);
/// A server that took the connection says something within this time.
const SILENCE: Duration = Duration::from_secs(5);
/// The exchange of results after the last byte.
const EXCHANGE: Duration = Duration::from_secs(10);
/// Samples in a row without a byte that mean that nothing flows any more.
const EMPTY: u32 = 3;
/// Packets that this computer sends are at most this large where nothing else is known.
const MTU: u32 = 1500;

/// A test with one server.
struct Running<'a> {
    server: &'a Server,
    /// Where it listens for this test.
    place: SocketAddr,
    test: Option<FlowTest>,
    launched: Instant,
    heard: Heard,
    /// Since when nothing was heard.
    quiet_since: Instant,
    /// When this computer's counters were read last.
    read: Instant,
    empty: u32,
    /// Bytes each way in the last sample, as bits per second.
    now: Vec<(Way, f64)>,
    failed: Option<Error>,
}

impl Running<'_> {
    fn over(&self) -> bool {
        self.failed.is_some() || self.heard.end.is_some()
    }

    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        // A killed child lets the server go on with the next.
        self.test = None;
    }
}

/// Runs one test with all servers.
pub(super) fn run(
    ask: &Ask,
    grounds: &mut [Ground],
    mut agent: Option<&mut Agent>,
    (flows, traffic): (u32, Traffic),
    stop: &AtomicBool,
    watch: &mut dyn Watch,
) -> Result<Tested> {
    let warm_up = ask.warm_up_s.unwrap_or_else(|| rule(ask, grounds));
    let mut opened: Vec<TestPort> = Vec::new();
    let mut there = None;
    if let Some(agent) = &mut agent {
        for server in &ask.servers {
            opened.push(open(agent, server, ask, warm_up)?);
        }
        there = Some(agent.counters()?);
    }
    let mut running: Vec<Running<'_>> = Vec::new();
    for (index, server) in ask.servers.iter().enumerate() {
        let port = opened.get(index).map(|port| port.address.port());
        let port = port.or(server.port).unwrap_or(0);
        let place = SocketAddr::new(server.address, port);
        let order = order(ask, place, index, flows, traffic, warm_up);
        running.push(Running {
            server,
            place,
            test: Some(FlowTest::start(&order)?),
            launched: Instant::now(),
            heard: Heard::default(),
            quiet_since: Instant::now(),
            read: Instant::now(),
            empty: 0,
            now: Vec::new(),
            failed: None,
        });
    }
    let started_utc = crate::clock::now_utc();
    watch.begin(&label(flows, traffic), f64::from(ask.seconds + warm_up));
    let mut sampler = Sampler::default();
    let mut counted = Instant::now();
    let begun = Instant::now();
    while !running.iter().all(Running::over) {
        if stop.load(Relaxed) {
            for one in &mut running {
                if !one.over() {
                    one.fail(Error::new(
                        Phase::Io,
                        Kind::Interrupted,
                        "stopped on request",
                    ));
                }
            }
            break;
        }
        std::thread::sleep(POLL);
        for (one, ground) in running.iter_mut().zip(grounds.iter()) {
            hear(one, ground, warm_up);
            watch_time(one, ask, warm_up);
            if one.read.elapsed() >= READING && !one.over() {
                one.read = Instant::now();
                let reading = Reading::take(one.place);
                one.heard.read(reading, warm_up, ask.seconds);
            }
        }
        if let Some(agent) = &mut agent {
            for (one, port) in running.iter_mut().zip(&opened) {
                ask_there(one, agent, port, ask, warm_up);
            }
        }
        let measuring = running.iter().any(|one| one.heard.base.is_some());
        if measuring && counted.elapsed() >= Duration::from_secs(1) {
            counted = Instant::now();
            sampler.sample(monotonic_ns(), statistics::now());
        }
        watch.progress(begun.elapsed().as_secs_f64(), &together(&running));
    }
    sampler.sample(monotonic_ns(), statistics::now());
    let mut busiest_there = None;
    if let Some(agent) = agent {
        let passed = there.and_then(|before| Some(agent.counters().ok()?.since(&before)));
        busiest_there = passed.and_then(|passed| Some(passed.cpu?.busiest()?.busy));
        for port in &opened {
            // It may have ended by itself.
            agent.close(port)?;
        }
    }
    let start = running.iter().filter_map(|one| one.heard.base).min();
    let mut servers = Vec::new();
    for (mut one, ground) in running.into_iter().zip(grounds) {
        if let Some(error) = one.failed.take() {
            servers.push(Err(error.at(&one.server.label)));
            continue;
        }
        ground.path.rtt_s = one.heard.idle_rtt_s().or(ground.path.rtt_s);
        let mut ways = ends::figures(&one.heard, flows, traffic, start);
        for (_, flows) in &mut ways {
            flows.busiest_core_there_percent = busiest_there;
        }
        servers.push(Ok(ways));
    }
    Ok(Tested {
        flows,
        traffic,
        started_utc,
        warm_up_s: warm_up,
        servers,
        interfaces: sampler.rates().clone(),
    })
}

/// Asks for the server's own connections twice: when the measured time begins, and shortly before it ends. A server that
/// does not tell leaves a gap in what is known, and no more.
fn ask_there(one: &mut Running<'_>, agent: &mut Agent, port: &TestPort, ask: &Ask, warm_up: u32) {
    let Some(begun) = one.heard.begun.filter(|_| !one.over()) else {
        return;
    };
    let start = begun + Duration::from_secs(u64::from(warm_up));
    let times = [
        start,
        start + Duration::from_secs(u64::from(ask.seconds)).saturating_sub(READ_THERE),
    ];
    for (told, time) in one.heard.there.iter_mut().zip(times) {
        if told.is_none() && Instant::now() >= time {
            *told = Some(agent.connections(port.address.port()).unwrap_or_default());
        }
    }
}

/// A port for one test, which closes by itself should this end early.
fn open(agent: &mut Agent, server: &Server, ask: &Ask, warm_up: u32) -> Result<TestPort> {
    let time = Duration::from_secs(u64::from(ask.seconds + warm_up));
    let time = time + ask.connect_timeout + SILENCE + EXCHANGE;
    let here = own_address(server.address)?;
    agent.open_port(Service::Iperf3, server.address, here, time)
}

/// What a test is called while it runs.
fn label(flows: u32, traffic: Traffic) -> String {
    let way = match traffic {
        Traffic::One(way) => way.words(),
        Traffic::Both => "both at once",
    };
    let each = if flows == 1 { "flow" } else { "flows" };
    format!("{way}, {flows} {each}")
}

/// Seconds to leave out: by the longest way and the fastest line of all servers.
fn rule(ask: &Ask, grounds: &mut [Ground]) -> u32 {
    let mut most = 0;
    for (server, ground) in ask.servers.iter().zip(grounds) {
        if ground.path.rtt_s.is_none() {
            ground.path.rtt_s = path_mtu::round_trip(server.address).map(|rtt| rtt.as_secs_f64());
        }
        let rtt = ground.path.rtt_s.unwrap_or(0.0);
        let segment = ground.path.mtu.unwrap_or(MTU).saturating_sub(52);
        most = most.max(warm_up_s(ground.path.link_bits_per_s, rtt, segment));
    }
    most.max(crate::network::WARM_UP_LEAST_S)
}

fn order(
    ask: &Ask,
    place: SocketAddr,
    index: usize,
    flows: u32,
    traffic: Traffic,
    warm_up_s: u32,
) -> FlowOrder {
    // Each process has cores of its own as long as there are enough.
    let cores = if ask.cores.len() >= ask.servers.len() {
        let own = ask.cores.iter().skip(index).step_by(ask.servers.len());
        own.copied().collect()
    } else {
        ask.cores.clone()
    };
    FlowOrder {
        host: place.ip().to_string(),
        port: place.port(),
        flows,
        way: match traffic {
            Traffic::One(way) => Some(way),
            Traffic::Both => None,
        },
        seconds: ask.seconds,
        warm_up_s,
        interval_s: ask.interval_s,
        block: ask.block,
        cores,
        congestion_control: ask.congestion_control.clone(),
        window: ask.window,
        bind: ask.bind.clone(),
        connect_timeout_ms: ask.connect_timeout.as_millis() as u64,
    }
}

/// Takes in what a child has said so far.
fn hear(one: &mut Running<'_>, ground: &Ground, warm_up: u32) {
    while !one.over() {
        let Some(test) = &mut one.test else { return };
        let (at, event) = match test.next(Duration::ZERO) {
            Ok(Some(said)) => said,
            Ok(None) => return,
            Err(error) => return one.fail(error),
        };
        one.quiet_since = at;
        match event {
            Event::Start(start) => {
                one.heard.start = Some(start);
                one.heard.begun = Some(at);
            }
            Event::Interval(interval) => interval_ended(one, ground, warm_up, at, &interval),
            Event::End(end) => one.heard.end = Some(end),
            Event::Error(data) => {
                let error = failure(&data, &one.server.label);
                one.fail(error);
            }
            Event::Other => {}
        }
    }
}

fn interval_ended(
    one: &mut Running<'_>,
    ground: &Ground,
    warm_up: u32,
    at: Instant,
    interval: &Interval,
) {
    let heard = &mut one.heard;
    one.now.clear();
    let mut bytes = 0;
    let ways = [Some(&interval.sum), interval.sum_bidir_reverse.as_ref()];
    for sum in ways.into_iter().flatten() {
        bytes += sum.bytes;
        let sample = sample(sum, warm_up);
        let way = if sum.sender { Way::Send } else { Way::Receive };
        one.now.push((way, sample.bits_per_s().unwrap_or(0.0)));
        heard.samples.entry(sum.sender).or_default().push(sample);
    }
    if !interval.sum.omitted && heard.base.is_none() {
        let length = Duration::from_secs_f64(interval.sum.end.max(0.0));
        heard.base = Some(at.checked_sub(length).unwrap_or(at));
    }
    one.empty = if bytes == 0 { one.empty + 1 } else { 0 };
    if one.empty >= EMPTY {
        let early = heard.base.is_none() || one.launched.elapsed() < Duration::from_secs(10);
        let error = stalled(one.server, ground, early);
        one.fail(error);
    }
}

fn sample(sum: &IntervalSum, warm_up: u32) -> Sample {
    let shift = if sum.omitted { f64::from(warm_up) } else { 0.0 };
    Sample {
        from: sum.start - shift,
        to: sum.end - shift,
        bytes: sum.bytes,
    }
}

/// Ends a test that says nothing any more.
fn watch_time(one: &mut Running<'_>, ask: &Ask, warm_up: u32) {
    if one.over() {
        return;
    }
    let label = &one.server.label;
    if one.heard.start.is_none() {
        if one.launched.elapsed() > ask.connect_timeout + SILENCE {
            let message = format!(
                "{label} takes the connection but says nothing: it is no iperf3 server, or one that hangs in a broken test (start it anew)"
            );
            one.fail(Error::new(Phase::Connect, Kind::TimedOut, message));
        }
        return;
    }
    let samples = Duration::from_secs_f64(ask.interval_s * 3.0);
    let length = Duration::from_secs(u64::from(ask.seconds + warm_up));
    let quiet = one.quiet_since.elapsed();
    let late = one.launched.elapsed() > length + ask.connect_timeout + SILENCE + EXCHANGE;
    if late || quiet > samples + EXCHANGE {
        let message = format!("{label} did not finish the test: it no longer answers");
        one.fail(Error::new(Phase::Io, Kind::TimedOut, message));
    }
}

/// Why nothing flows on a connection that stands.
fn stalled(server: &Server, ground: &Ground, early: bool) -> Error {
    let label = &server.label;
    let mtu = ground.path.mtu.unwrap_or(MTU);
    let found = if early {
        path_mtu::largest(server.address, mtu)
    } else {
        PathMtu::Unknown
    };
    let message = match found {
        PathMtu::OnlyUpTo(size) => format!(
            "large packets vanish on the way to {label}: this PC sends up to {mtu} bytes, but only {size} are answered, \
             and nothing says so; set one MTU on both ends and on every switch between (or {size} here)"
        ),
        PathMtu::Whole | PathMtu::Unknown if early => format!(
            "the connection to {label} stands, but no data arrives: something between drops it (a firewall, or an MTU \
             that differs between the two ends: compare 'ip link' on both)"
        ),
        _ => format!("{label} stopped in the middle of the test: no data arrives any more"),
    };
    Error::new(Phase::Io, Kind::TimedOut, message)
}

/// What all servers carry now, each way.
fn together(running: &[Running<'_>]) -> Vec<(Way, f64)> {
    [Way::Send, Way::Receive]
        .into_iter()
        .filter_map(|way| {
            let rates = running.iter().flat_map(|one| &one.now);
            let mine: Vec<f64> = rates
                .filter(|(found, _)| *found == way)
                .map(|(_, rate)| *rate)
                .collect();
            (!mine.is_empty()).then(|| (way, mine.iter().sum()))
        })
        .collect()
}
