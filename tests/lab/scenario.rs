//! A scenario: what is imposed on a laboratory, and what a diagnosis of it may say. One TOML file each in `scenarios`.
//!
//! Names end in their units: `mbit_s` is 10^6 bits per second on the wire (with Ethernet's 14 bytes), `mb_s` 10^6 bytes per
//! second, `mib` 2^20 bytes. Must not know: how any of it is made.

use std::path::Path;

use serde::Deserialize;

use super::nas::Protocol;

/// What the one who diagnoses has, beside the target's URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// An agent on the server, which also serves the tests of the network.
    Agent,
    /// An iperf3 server on the server.
    Iperf3,
    /// Nothing.
    Uri,
}

impl Level {
    /// All, most first.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Iperf3, Self::Uri];

    /// Its key in scenarios and options.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Iperf3 => "iperf3",
            Self::Uri => "uri",
        }
    }
}

/// The network between `a`, who tests, and `b`, the NAS.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Both ways.
    pub rate_mbit_s: Option<f64>,
    /// From `a` to `b` only: writes.
    pub to_server_mbit_s: Option<f64>,
    /// From `b` to `a` only: reads.
    pub to_client_mbit_s: Option<f64>,
    /// A way with a delay, each direction.
    pub one_way_us: Option<u64>,
    /// Packets of a million that vanish, each direction; needs `one_way_us`.
    pub loss_ppm: u32,
    /// The rate of a second, equal link; connections are spread over both.
    pub two_links: bool,
    /// The longest TCP buffer of both ends.
    pub buffer_kib: Option<u64>,
    /// Another congestion control than the laboratory's.
    pub congestion: Option<String>,
}

/// What a disk can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Speed {
    pub read_mb_s: Option<f64>,
    pub write_mb_s: Option<f64>,
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
}

/// An array; `disk` is each of its members.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// `raid0`, `raid1`, `raid5`, `raid10`.
    pub level: String,
    pub members: usize,
    /// The first of them, where it differs.
    pub first: Option<Speed>,
    /// The last of them is missing.
    #[serde(default)]
    pub degraded: bool,
}

/// From a moment on the disk can do less.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cliff {
    /// Written up to then.
    pub after_mib: u64,
    pub read_mb_s: Option<f64>,
    pub write_mb_s: Option<f64>,
}

/// What the servers may use.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Servers {
    /// Page cache included; 0 is all of the machine's.
    pub memory_mib: u64,
    /// Of one core.
    pub cpu_percent: Option<u64>,
    /// Few written bytes can wait in the server's memory; where nothing is said, before a disk that is limited.
    honest_writes: Option<bool>,
    /// Written bytes wait no longer than about this: with a disk that is faster than what comes in, few ever wait.
    pub flush_every_ms: Option<u64>,
    /// A slow way before the server's port.
    pub forward_mb_s: Option<f64>,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            memory_mib: 256,
            cpu_percent: None,
            honest_writes: None,
            flush_every_ms: None,
            forward_mb_s: None,
        }
    }
}

/// What may be said.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Keys of `limit`, each right.
    pub limits: Vec<String>,
    /// Whether `unresolved` is no mistake.
    #[serde(default)]
    pub unresolved: bool,
    /// Keys of `next_limit`, each right; empty where it does not matter.
    #[serde(default)]
    pub next: Vec<String>,
}

/// What is expected of one direction.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    pub agent: Expected,
    pub iperf3: Expected,
    pub uri: Expected,
    /// Parts of a limit that would be wrong in whatever company.
    #[serde(default)]
    pub must_not_say: Vec<String>,
    /// What rungs measure, where they are measured.
    #[serde(default)]
    pub ceilings: Vec<Ceiling>,
}

impl Direction {
    /// With so much at hand.
    pub const fn with(&self, level: Level) -> &Expected {
        match level {
            Level::Agent => &self.agent,
            Level::Iperf3 => &self.iperf3,
            Level::Uri => &self.uri,
        }
    }
}

/// A rung's imposed rate.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// As in ladder.csv.
    pub rung: String,
    pub mb_s: f64,
    #[serde(default = "three")]
    pub tolerance_percent: f64,
}

const fn three() -> f64 {
    3.0
}

/// A scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its file's name.
    #[serde(skip)]
    pub name: String,
    /// What it is about, and why that is expected.
    pub about: String,
    /// Protocols that it makes sense with; the first is the one it is run with whatever is at hand.
    pub protocols: Vec<Protocol>,
    /// A shipped workload; sequential 1 MiB without.
    pub workload: Option<String>,
    /// SMB by the client that has several requests under way on one connection; the usual one makes a connection for each.
    #[serde(default)]
    pub one_connection: bool,
    /// More options of the program.
    #[serde(default)]
    pub options: Vec<String>,
    /// A share in the server's memory is there with an agent.
    #[serde(default)]
    pub memory_share: bool,
    /// Run by CI, with this protocol and this much at hand.
    pub ci: Option<(Protocol, Level)>,
    /// CI diagnoses only this direction, `read` or `write`.
    pub ci_direction: Option<String>,
    #[serde(default)]
    pub network: Network,
    /// The disk, as fast as memory where nothing is said.
    #[serde(default)]
    pub disk: Speed,
    pub array: Option<Array>,
    /// Memory in place of a disk.
    #[serde(default)]
    pub ram_disk: bool,
    pub cliff: Option<Cliff>,
    #[serde(default)]
    pub servers: Servers,
    pub read: Option<Direction>,
    pub write: Option<Direction>,
}

impl Scenario {
    /// Whether the disk limits anything.
    pub fn limits_the_disk(&self) -> bool {
        self.disk != Speed::default() || self.array.is_some() || self.cliff.is_some()
    }

    /// Whether nothing else may be measured on the machine meanwhile: where it is not an imposed rate of at most 60 MB/s that
    /// bounds what the processors have to do, or time counts.
    pub fn alone(&self) -> bool {
        let network = &self.network;
        let ways = [network.to_server_mbit_s, network.to_client_mbit_s];
        let rates = ways.map(|way| way.or(network.rate_mbit_s));
        let slow = rates
            .iter()
            .all(|rate| rate.is_some_and(|rate| rate <= 400.0));
        let bounded = slow || self.limits_the_disk() || self.servers.forward_mb_s.is_some();
        !bounded || network.one_way_us.is_some() || self.servers.cpu_percent.is_some()
    }

    /// Whether few written bytes can wait in the server's memory. The kernel then holds writers up for 200 ms at a time, also before a
    /// disk that is fast enough: where the disk limits nothing, that would be in the way.
    pub fn honest_writes(&self) -> bool {
        self.servers
            .honest_writes
            .unwrap_or_else(|| self.limits_the_disk())
    }

    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut scenario: Self =
            toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        name.clone_into(&mut scenario.name);
        scenario
            .sensible()
            .map_err(|why| format!("{name}: {why}"))?;
        Ok(scenario)
    }

    fn sensible(&self) -> Result<(), String> {
        let wrong = |when: bool, why: &str| if when { Err(why.to_owned()) } else { Ok(()) };
        let network = &self.network;
        wrong(self.protocols.is_empty(), "no protocol")?;
        wrong(
            self.directions().next().is_none(),
            "no direction is expected",
        )?;
        wrong(
            network.loss_ppm > 0 && network.one_way_us.is_none(),
            "losses need a way with a delay",
        )?;
        wrong(
            network.two_links && network.one_way_us.is_some(),
            "two links have no delay",
        )?;
        wrong(
            self.ram_disk && self.limits_the_disk(),
            "memory in place of a disk has no limits",
        )?;
        let ci = self.ci.map(|(protocol, _)| protocol);
        wrong(
            ci.is_some_and(|protocol| !self.protocols.contains(&protocol)),
            "CI runs it with a protocol that it has not",
        )?;
        if let Some(only) = &self.ci_direction {
            let expected = self.directions().any(|(name, _)| name == only);
            wrong(
                !expected,
                "CI runs a direction of which nothing is expected",
            )?;
        }
        for (_, direction) in self.directions() {
            for level in Level::ALL {
                let expected = direction.with(level);
                let unknown = expected.limits.iter().chain(&direction.must_not_say);
                let unknown = unknown
                    .flat_map(|limit| limit.split('+'))
                    .find(|key| !LIMITS.contains(key));
                if let Some(key) = unknown {
                    return Err(format!("'{key}' is no limit"));
                }
                let nothing = expected.limits.is_empty() && !expected.unresolved;
                wrong(nothing, "nothing would be right")?;
            }
        }
        Ok(())
    }

    /// As CI runs it.
    pub fn in_ci(mut self) -> Self {
        match self.ci_direction.as_deref() {
            Some("read") => self.write = None,
            Some("write") => self.read = None,
            _ => {}
        }
        self
    }

    /// What it is run with: its first protocol at all levels, and the others with an agent, where one answer is right. Protocols
    /// differ in the client, levels in what is known of network and server; `every` combination says little more and takes
    /// twice as long.
    pub fn runs(&self, every: bool) -> Vec<(Protocol, Level)> {
        let mut runs = Vec::new();
        for (at, protocol) in self.protocols.iter().enumerate() {
            let levels = Level::ALL.into_iter();
            let chosen = levels.filter(|level| every || at == 0 || *level == Level::Agent);
            runs.extend(chosen.map(|level| (*protocol, level)));
        }
        runs
    }

    /// The directions in which it is diagnosed.
    pub fn directions(&self) -> impl Iterator<Item = (&'static str, &Direction)> {
        let write = self.write.as_ref().map(|one| ("write", one));
        let read = self.read.as_ref().map(|one| ("read", one));
        write.into_iter().chain(read)
    }
}

/// The keys of `limit`, in their order.
pub const LIMITS: &[&str] = &[
    "cached",
    "tool",
    "client_cpu",
    "server_cpu",
    "loss",
    "window",
    "congestion_control",
    "interconnect",
    "network",
    "single_flow",
    "round_trip",
    "protocol",
    "mount",
    "metadata",
    "storage",
    "software",
    "unresolved",
];

/// All scenarios, by name.
pub fn all() -> Result<Vec<Scenario>, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/scenarios");
    let entries = std::fs::read_dir(&directory).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        all.push(Scenario::parse(&name, &text)?);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}
