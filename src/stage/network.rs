//! The network rung: TCP flows to one or several iperf3 servers, in growing numbers, one way after the other and then
//! both at once.
//!
//! Read first: [`measure`] runs the tests that an [`Ask`] wants; `test` runs one of them on all servers together; `ends`
//! turns what both ends said into figures. Rates are in bits per second, times in seconds.
//!
//! Must not know: rows, files, what becomes of the figures.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::agent::Agent;
use crate::network::limits::Path;
use crate::network::{Flows, Sample, Sweep, Way, samples};
use crate::probe::net::rates::Rates;
use crate::probe::net::route::route_to;
use crate::probe::net::{self, Nic};
use crate::probe::{host, names};

mod ends;
mod test;

/// A server to test with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// As the user named it, with its port.
    pub label: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port; None where an agent opens one for each test.
    pub port: Option<u16>,
}

impl Server {
    /// Finds the address of a host, within `patience`.
    pub fn resolve(host: &str, port: Option<u16>, patience: Duration) -> Result<Self> {
        let found = names::resolve(host, patience)?;
        let first = found.first().ok_or_else(|| {
            Error::new(
                Phase::Resolve,
                Kind::NotFound,
                format!("the name {host} has no address"),
            )
        })?;
        let name = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let label = port.map_or_else(|| name.clone(), |port| format!("{name}:{port}"));
        Ok(Self {
            label,
            address: first.ip(),
            port,
        })
    }
}

/// What goes where in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// One way.
    One(Way),
    /// Both ways at once.
    Both,
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The servers, tested together.
    pub servers: Vec<Server>,
    /// Numbers of flows to each server; None: by the rule of [`Sweep`].
    pub flows: Option<Vec<u32>>,
    /// The ways, in order.
    pub traffic: Vec<Traffic>,
    /// The measured time of each test, in whole seconds.
    pub seconds: u32,
    /// What is left out before it; None: by the rule of [`crate::network::warm_up_s`].
    pub warm_up_s: Option<u32>,
    /// Length of a sample.
    pub interval_s: f64,
    /// Bytes of each call to the kernel.
    pub block: usize,
    /// Cores of this computer for the tests' processes, in turn; empty: any.
    pub cores: Vec<usize>,
    /// Congestion control of what this computer sends; None: the kernel's.
    pub congestion_control: Option<String>,
    /// Buffer of each socket; None: the kernel sizes it.
    pub window: Option<i32>,
    /// Local address to send from.
    pub bind: Option<String>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

/// What the tests of a server are judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    /// What limits there are.
    pub path: Path,
    /// The interface here.
    pub nic: Option<Nic>,
    /// Its name, where a route leads to the server.
    pub interface: Option<String>,
    /// The server is this computer.
    pub local: bool,
}

/// One test on all servers together.
#[derive(Debug, Clone)]
pub struct Tested {
    /// Flows to each server.
    pub flows: u32,
    /// Which way.
    pub traffic: Traffic,
    /// Start of the test, UTC, RFC 3339.
    pub started_utc: String,
    /// Seconds that were left out first.
    pub warm_up_s: u32,
    /// For each server, what went each way, or why nothing is known.
    pub servers: Vec<Result<Vec<(Way, Flows)>>>,
    /// What each interface moved, sampled each second of the measured time.
    pub interfaces: BTreeMap<String, Rates>,
}

impl Tested {
    /// What went that way with all servers together, over the time in which all tests ran; None where one failed.
    #[must_use]
    pub fn total(&self, way: Way) -> Option<Flows> {
        let mut parts: Vec<&Flows> = Vec::new();
        for server in &self.servers {
            let flows = server.as_ref().ok()?;
            parts.push(&flows.iter().find(|(found, _)| *found == way)?.1);
        }
        if let [one] = parts.as_slice() {
            return Some((*one).clone());
        }
        let series: Vec<Vec<Sample>> = parts
            .iter()
            .map(|part| {
                let measured = part.samples.iter().filter(|sample| sample.from >= 0.0);
                measured.copied().collect()
            })
            .collect();
        let window = samples::common_window(&series)?;
        if parts.iter().any(|part| part.seconds <= 0.0) {
            return None;
        }
        let bytes: f64 = parts
            .iter()
            .zip(&series)
            .map(|(part, series)| {
                // Samples of what is sent are the sender's, and cover a little more time; the receiver's rate counts.
                let sampled: u64 = series.iter().map(|sample| sample.bytes).sum();
                let time: f64 = series.iter().map(|sample| sample.to - sample.from).sum();
                let share = (part.bytes as f64 / part.seconds) / (sampled.max(1) as f64 / time);
                samples::bytes_within(series, window) * share
            })
            .sum();
        let first = parts.first()?;
        Some(Flows {
            flows: parts.iter().map(|part| part.flows).sum(),
            both: first.both,
            bytes: bytes as u64,
            seconds: window.1 - window.0,
            busiest_core_percent: first.busiest_core_percent,
            ..Flows::default()
        })
    }
}

/// What is told while the tests go on.
pub trait Watch {
    /// A sentence for the user.
    fn note(&mut self, text: &str);
    /// A test begins; it takes that long.
    fn begin(&mut self, label: &str, seconds: f64);
    /// How far it is, and what it carries each way, in bits per second.
    fn progress(&mut self, seconds: f64, rates: &[(Way, f64)]);
    /// It is done.
    fn tested(&mut self, tested: &Tested) -> Result<()>;
}

/// What is known of the way to a server before any test.
#[must_use]
pub fn ground(server: &Server) -> Ground {
    let route = route_to(server.address).ok();
    let facts = host::Host::read();
    let nics = net::read(facts.hypervisor.is_some());
    let interface = route.as_ref().map(|route| route.interface.clone());
    let nic = nics
        .into_iter()
        .find(|nic| Some(&nic.name) == interface.as_ref());
    let local = route.as_ref().is_some_and(|route| route.local);
    let settings = net::settings::TcpSettings::under(std::path::Path::new("/"));
    let path = Path {
        link_bits_per_s: nic
            .as_ref()
            .and_then(Nic::line_bits_per_s)
            .map(|bits| bits as f64),
        mtu: route.as_ref().and_then(|route| route.mtu_bytes),
        ipv6: server.address.is_ipv6(),
        software: local || nic.as_ref().is_some_and(Nic::is_software),
        send_buffer_max: settings.wmem_bytes.map(|sizes| sizes[2]),
        receive_buffer_max: settings.rmem_bytes.map(|sizes| sizes[2]),
        rtt_s: None,
    };
    Ground {
        path,
        nic,
        interface,
        local,
    }
}

/// Runs the tests. Ends early, with Ok, when `stop` is set; Err only when nothing further can be measured. A server that
/// fails is told in its test, and ends the sweep. An agent serves all addresses: they are those of one server.
pub fn measure(
    ask: &Ask,
    grounds: &mut [Ground],
    mut agent: Option<&mut Agent>,
    stop: &AtomicBool,
    watch: &mut dyn Watch,
) -> Result<Vec<Tested>> {
    let mut all = Vec::new();
    let mut best = 1;
    for traffic in &ask.traffic {
        let mut sweep = Sweep::default();
        let mut asked = ask.flows.clone().map(Vec::into_iter);
        if *traffic == Traffic::Both && ask.flows.is_none() {
            // Both at once is one question: with the number of flows that carried the most.
            asked = Some(vec![best].into_iter());
        }
        let mut top = 0.0;
        while let Some(flows) = match &mut asked {
            Some(list) => list.next(),
            None => sweep.next(),
        } {
            if stop.load(Relaxed) {
                return Ok(all);
            }
            let agent = agent.as_deref_mut();
            let tested = test::run(ask, grounds, agent, (flows, *traffic), stop, watch)?;
            watch.tested(&tested)?;
            let rate = rate(&tested, *traffic);
            let failed = tested.servers.iter().any(Result::is_err);
            all.push(tested);
            if failed {
                return Ok(all);
            }
            sweep.carried(flows, rate);
            if rate > top {
                (top, best) = (rate, flows);
            }
        }
        // A second set of ports may be spread otherwise over the members of a bond: the better one counts.
        if ask.flows.is_none() && *traffic != Traffic::Both && best > 1 && !stop.load(Relaxed) {
            let agent = agent.as_deref_mut();
            let tested = test::run(ask, grounds, agent, (best, *traffic), stop, watch)?;
            watch.tested(&tested)?;
            all.push(tested);
        }
    }
    Ok(all)
}

fn rate(tested: &Tested, traffic: Traffic) -> f64 {
    let of = |way| {
        tested
            .total(way)
            .and_then(|flows| flows.bits_per_s())
            .unwrap_or(0.0)
    };
    match traffic {
        Traffic::One(way) => of(way),
        Traffic::Both => of(Way::Send) + of(Way::Receive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers that share a line, each counted over less time than its samples cover.
    #[test]
    fn the_total_is_that_of_the_receivers_rates() {
        let sample = |from: f64| Sample {
            from,
            to: from + 1.0,
            bytes: 25_000_000,
        };
        let flows = |late: f64| Flows {
            flows: 1,
            bytes: 24_000_000 * 57 / 20,
            seconds: 2.85,
            samples: (0..3)
                .map(|second| sample(f64::from(second) + late))
                .collect(),
            ..Flows::default()
        };
        let tested = Tested {
            flows: 1,
            traffic: Traffic::One(Way::Send),
            started_utc: String::new(),
            warm_up_s: 1,
            servers: vec![
                Ok(vec![(Way::Send, flows(0.0))]),
                Ok(vec![(Way::Send, flows(0.5))]),
            ],
            interfaces: BTreeMap::default(),
        };
        let total = tested.total(Way::Send).expect("both were measured");
        let rate = total.bits_per_s().expect("time passed") / 8.0;
        assert!((rate - 48e6).abs() < 1.0, "{rate}");
        assert!((total.seconds - 2.5).abs() < 1e-9, "{total:?}");
        assert_eq!(tested.total(Way::Receive), None);
    }
}
