//! What a test of the network is to be, complete and saved with its results.
//!
//! Pure. Must not know: how flows are carried.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::network::{MOST, Way};
use crate::units::{Nanos, SECOND};

/// Version of the form.
pub const NETWORK_PLAN_VERSION: u32 = 1;
/// iperf3's own port.
pub const PORT: u16 = 5201;
/// Longest measured time of one test: a day, as iperf3 has it.
const LONGEST_S: u64 = 86_400;
/// Longest warm-up that iperf3 takes.
const WARM_UP_MOST_S: u32 = 600;

/// Which ways are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ways {
    /// From this computer.
    Send,
    /// To this computer.
    Receive,
    /// One after the other.
    Both,
    /// Both at once.
    Bidir,
    /// One after the other, then both at once.
    All,
}

impl Ways {
    /// Whether data goes that way, alone or not.
    #[must_use]
    pub const fn include(self, way: Way) -> bool {
        match self {
            Self::Send => matches!(way, Way::Send),
            Self::Receive => matches!(way, Way::Receive),
            Self::Both | Self::Bidir | Self::All => true,
        }
    }
}

/// A server as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Host {
    /// Reads `HOST`, `HOST:PORT` or `[IPv6]:PORT`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::usage(format!("'{text}' is no server to test with: {why}"));
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| wrong("the bracket is not closed"))?;
            let port = match rest {
                "" => None,
                rest => Some(
                    rest.strip_prefix(':')
                        .ok_or_else(|| wrong("after the bracket comes :PORT"))?,
                ),
            };
            (host, port)
        } else if text.matches(':').count() > 1 {
            // A bare IPv6 address, as iperf3 takes it.
            (text, None)
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        if text.contains("://") || text.contains('/') {
            return Err(wrong(
                "give its name or address alone, such as nas or 10.0.0.5:5201",
            ));
        }
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong("it has no name"));
        }
        let port = match port {
            None => PORT,
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("a port is a number from 1 to 65535"))?,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn yes() -> bool {
    true
}

/// A plan of network tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPlan {
    /// Version of this form.
    pub network_plan_version: u32,
    /// The nasgauge that made it.
    pub nasgauge_version: String,
    /// The servers, tested together.
    pub hosts: Vec<Host>,
    /// Numbers of flows to each server; empty: by rule.
    #[serde(default)]
    pub flows: Vec<u32>,
    /// The ways.
    pub ways: Ways,
    /// The measured time of each test.
    pub runtime: Nanos,
    /// What is left out before it; None: by rule.
    #[serde(default)]
    pub warm_up: Option<Nanos>,
    /// Length of a sample.
    pub interval: Nanos,
    /// Bytes of each call to the kernel.
    pub block: u64,
    /// Cores for the processes that test; empty: any.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// Congestion control of what is sent from here.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// Buffer of each socket, in bytes.
    #[serde(default)]
    pub window: Option<u64>,
    /// Local address.
    #[serde(default)]
    pub bind: Option<String>,
    /// Longest wait for a connection.
    pub connect_timeout: Nanos,
    /// The command that reaches an agent on the server, which then serves the tests, on all of its addresses that are
    /// named as hosts; None: an iperf3 server runs there.
    #[serde(default)]
    pub agent: Option<String>,
    /// The agent also answers requests of a storage protocol's size, in the ways that are tested.
    #[serde(default = "yes")]
    pub round_trip: bool,
}

impl NetworkPlan {
    /// Reads a saved plan.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)
            .map_err(|error| Error::usage(format!("{place}: not a plan: {}", error.message())))?;
        if plan.network_plan_version != NETWORK_PLAN_VERSION {
            return Err(Error::usage(format!(
                "{place}: plan version {} was written by nasgauge {}; this one reads version {NETWORK_PLAN_VERSION}",
                plan.network_plan_version, plan.nasgauge_version
            )));
        }
        Ok(plan)
    }

    /// Whether a saved plan is one of network tests.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.lines()
            .any(|line| line.starts_with("network_plan_version"))
    }

    /// What it asks for that can't be, before anything is touched.
    pub fn validate(&self) -> Result<()> {
        if self.hosts.is_empty() {
            return Err(Error::usage(
                "no server to test with; give HOST or HOST:PORT",
            ));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if self.hosts[..index].contains(host) {
                return Err(Error::usage(format!(
                    "{host} stands there twice; an iperf3 server serves one test at a time: start another on a second port"
                )));
            }
        }
        if let Some(flows) = self.flows.iter().find(|flows| !(1..=MOST).contains(flows)) {
            return Err(Error::usage(format!(
                "{flows} streams are not between 1 and {MOST}, which is what iperf3 takes"
            )));
        }
        let whole = |name: &str, time: Nanos, most: u64| {
            if time.0.is_multiple_of(SECOND) && time.0 <= most * SECOND {
                Ok(())
            } else {
                Err(Error::usage(format!(
                    "--{name} {time}: iperf3 takes whole seconds, at most {most}"
                )))
            }
        };
        whole("runtime", self.runtime, LONGEST_S)?;
        if self.runtime.0 == 0 {
            return Err(Error::usage("--runtime 0: nothing would be measured"));
        }
        if let Some(warm_up) = self.warm_up {
            whole("omit", warm_up, u64::from(WARM_UP_MOST_S))?;
        }
        if !(SECOND / 10..=60 * SECOND).contains(&self.interval.0) {
            return Err(Error::usage(format!(
                "--interval {} is not between 0.1 s and 60 s",
                self.interval
            )));
        }
        if !(1024..=1 << 20).contains(&self.block) {
            return Err(Error::usage(format!(
                "--length {} is not between 1 KiB and 1 MiB, which is what iperf3 takes",
                crate::units::Bytes(self.block)
            )));
        }
        if self.window.is_some_and(|window| window > 512 << 20) {
            return Err(Error::usage(
                "--window is at most 512 MiB, which is what iperf3 takes",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_as_people_write_them() {
        let host = |text: &str| Host::parse(text).map(|host| (host.host, host.port));
        assert_eq!(host("nas").ok(), Some(("nas".into(), 5201)));
        assert_eq!(host("nas:5202").ok(), Some(("nas".into(), 5202)));
        assert_eq!(host("::1").ok(), Some(("::1".into(), 5201)));
        assert_eq!(host("[::1]:7").ok(), Some(("::1".into(), 7)));
        assert_eq!(
            host("[fe80::1%eth0]").ok(),
            Some(("fe80::1%eth0".into(), 5201))
        );
        for bad in [
            "",
            ":5201",
            "nas:0",
            "nas:x",
            "nas:70000",
            "[::1",
            "[::1]x",
            "nfs://nas/x",
            "a b",
        ] {
            let error = Host::parse(bad).expect_err(bad);
            assert!(error.before_anything(), "{bad}: {error}");
        }
    }

    #[test]
    fn a_host_is_shown_as_it_can_be_pasted() {
        for text in ["nas:5201", "[::1]:5202", "10.0.0.5:1"] {
            assert_eq!(
                Host::parse(text).map(|host| host.to_string()).as_deref(),
                Ok(text)
            );
        }
    }

    fn plan() -> NetworkPlan {
        NetworkPlan {
            network_plan_version: NETWORK_PLAN_VERSION,
            nasgauge_version: "x".into(),
            hosts: vec![Host::parse("nas").expect("a host")],
            flows: vec![1, 4],
            ways: Ways::All,
            runtime: Nanos(5 * SECOND),
            warm_up: None,
            interval: Nanos(SECOND),
            block: 128 << 10,
            cores: Vec::new(),
            congestion_control: None,
            window: None,
            bind: None,
            connect_timeout: Nanos(5 * SECOND),
            agent: None,
            round_trip: true,
        }
    }

    #[test]
    fn a_saved_plan_is_the_plan() {
        let text = toml::to_string(&plan()).expect("saved");
        assert!(NetworkPlan::is_one(&text));
        assert_eq!(NetworkPlan::parse(&text, "x"), Ok(plan()));
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_touched() {
        let wrong = |change: fn(&mut NetworkPlan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.validate().expect_err("refused").before_anything()
        };
        assert!(plan().validate().is_ok());
        assert!(wrong(|plan| plan.hosts.clear()));
        assert!(wrong(|plan| plan.hosts.push(plan.hosts[0].clone())));
        assert!(wrong(|plan| plan.flows.push(0)));
        assert!(wrong(|plan| plan.flows.push(129)));
        assert!(wrong(|plan| plan.runtime = Nanos(SECOND / 2)));
        assert!(wrong(|plan| plan.runtime = Nanos(0)));
        assert!(wrong(|plan| plan.interval = Nanos(1)));
        assert!(wrong(|plan| plan.block = 10));
        assert!(wrong(|plan| plan.window = Some(1 << 40)));
        assert!(wrong(|plan| plan.warm_up = Some(Nanos(601 * SECOND))));
    }
}
