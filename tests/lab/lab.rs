//! Computers and networks whose limits are known, made of network namespaces, for tests of everything that measures a network.
//!
//! Read first. A [`Lab`] is some [`Host`]s and what joins them: a cable ([`Lab::pair`]), a long way with a delay and
//! losses ([`Lab::far`], over a [`relay`]), or a switch ([`Lab::switched`]). `lab.a` is the computer that tests,
//! `lab.b` the server. Programs run on a host by [`Host::command`], code of the test by [`Host::inside`]; [`server`] has
//! servers to test against, [`reference`] what other programs say. Dropping a lab ends the processes on its hosts, the relay and the namespaces.
//!
//! It works only inside the sandbox (`sh src/servers/sandbox.sh enter cargo test ..`), as root; elsewhere it panics,
//! and so the test fails. Labs of one test process run one after the other, since each is measured: keep one at a time. Where
//! no rate is measured, [`Lab::beside`] does not wait.
//!
//! Rates are bits per second on the wire as `tbf` counts them (with the 14 bytes of Ethernet); times are microseconds.

pub mod calm;
mod host;
mod priority;
pub mod reference;
mod relay;
mod server;
mod tap;

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasgauge::servers::sandbox::Sandbox;

pub use host::Host;
pub use relay::Way;
pub use server::Server;

use priority::Awake;
use relay::Relay;

/// What joins two hosts.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Bits per second that leave `a`, on average: an idle sender may send the first 128 KiB at once. None: as fast as
    /// the machine can.
    pub rate_a_to_b: Option<u64>,
    /// Bits per second that leave `b`.
    pub rate_b_to_a: Option<u64>,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// Equal cables between a pair, each with these rates; a connection stays on one of them.
    pub links: u8,
}

impl Link {
    /// No limit but the machine's, at MTU 1500.
    pub const FAST: Self = Self {
        rate_a_to_b: None,
        rate_b_to_a: None,
        mtu: 1500,
        links: 1,
    };

    /// The same rate both ways, at MTU 1500.
    pub const fn rate(bits_per_s: u64) -> Self {
        Self {
            rate_a_to_b: Some(bits_per_s),
            rate_b_to_a: Some(bits_per_s),
            ..Self::FAST
        }
    }
}

/// Hosts on one network; see the module.
pub struct Lab {
    /// The computer that tests.
    pub a: Host,
    /// The server.
    pub b: Host,
    /// Further servers, where a switch joins more than two.
    pub others: Vec<Host>,
    // Dropped in this order, after the hosts.
    _relay: Option<Relay>,
    _switch: Option<host::Namespace>,
    _awake: Option<Awake>,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Lab {
    /// Two hosts on one cable, or on several.
    pub fn pair(link: &Link) -> Self {
        let alone = Some(begin());
        Self::cable(link, alone)
    }

    /// The same for a test of what is said and not of how fast: others may be measured meanwhile.
    pub fn beside(link: &Link) -> Self {
        assert_inside();
        Self::cable(link, None)
    }

    fn cable(link: &Link, alone: Option<MutexGuard<'static, ()>>) -> Self {
        let (a, b) = (Host::new("a", 1), Host::new("b", 2));
        if link.links > 1 {
            host::join_by_several(&a, &b, link);
            return Self {
                a,
                b,
                others: Vec::new(),
                _relay: None,
                _switch: None,
                _awake: None,
                _alone: alone,
            };
        }
        ip(&format!(
            "link add {DEVICE} netns {} type veth peer name {DEVICE} netns {}",
            a.namespace(),
            b.namespace()
        ));
        a.up(link.mtu, link.rate_a_to_b);
        b.up(link.mtu, link.rate_b_to_a);
        Self {
            a,
            b,
            others: Vec::new(),
            _relay: None,
            _switch: None,
            _awake: None,
            _alone: alone,
        }
    }

    /// Two hosts far from one another. TCP is theirs from end to end.
    pub fn far(link: &Link, way: &Way) -> Self {
        let alone = Some(begin());
        let (a, b) = (Host::new("a", 1), Host::new("b", 2));
        let ends = [&a, &b].map(|host| host.inside(|| tap::open(DEVICE, way.super_frame_max > 0)));
        let relay = Relay::start(ends, way);
        for (host, rate) in [(&a, link.rate_a_to_b), (&b, link.rate_b_to_a)] {
            host.up(link.mtu, rate);
            // cubic takes a relay's jitter for a queue (HyStart) and stays at a small window, which is another limit.
            host.control_congestion("reno");
            if way.super_frame_max > 0 {
                ip(&format!(
                    "-n {} link set {DEVICE} gso_max_size {}",
                    host.namespace(),
                    way.super_frame_max
                ));
            }
        }
        Self {
            a,
            b,
            others: Vec::new(),
            _relay: Some(relay),
            _switch: None,
            _awake: Some(Awake::keep()),
            _alone: alone,
        }
    }

    /// A client `a` and `servers` servers on one switch; each server sends at `rate_b_to_a`.
    pub fn switched(servers: u8, link: &Link) -> Self {
        let alone = Some(begin());
        assert!(servers >= 1, "a switch joins two hosts at least");
        let switch = host::Namespace::new("switch");
        let inside = format!("-n {}", switch.name());
        ip(&format!(
            "{inside} link add bridge type bridge stp_state 0 forward_delay 0"
        ));
        ip(&format!("{inside} link set bridge mtu {} up", link.mtu));
        let join = |name: &str, number: u8, rate: Option<u64>| {
            let host = Host::new(name, number);
            ip(&format!(
                "link add {DEVICE} netns {} type veth peer name port{number} netns {}",
                host.namespace(),
                switch.name()
            ));
            ip(&format!(
                "{inside} link set port{number} mtu {} master bridge up",
                link.mtu
            ));
            host.up(link.mtu, rate);
            host
        };
        let a = join("a", 1, link.rate_a_to_b);
        let b = join("b", 2, link.rate_b_to_a);
        let others = (1..servers)
            .map(|more| join(&format!("b{}", more + 1), more + 2, link.rate_b_to_a))
            .collect();
        Self {
            a,
            b,
            others,
            _relay: None,
            _switch: Some(switch),
            _awake: None,
            _alone: alone,
        }
    }
}

/// The name of every host's only network device.
const DEVICE: &str = "eth0";

/// The address of host `number` in a lab.
const fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// Waits until no other lab of this process is there.
fn begin() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    assert_inside();
    // A test that failed has dropped its lab like any other.
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    priority::raise();
    alone
}

fn assert_inside() {
    assert!(
        Sandbox::inside(),
        "a laboratory needs the sandbox: sh src/servers/sandbox.sh enter cargo test .. (root)"
    );
}

/// Runs `ip` with these words.
fn ip(words: &str) {
    run(Command::new("ip").args(words.split_whitespace()));
}

/// Runs a program that must succeed; gives what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
