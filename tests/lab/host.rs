//! One computer of a laboratory: a network namespace with one device, and how to run things there.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{DEVICE, Link, address, ip, run};

/// Bytes that may leave at once, two of the largest super-frames: with less, the rate is not reached.
const BURST: u64 = 128 << 10;

/// A network namespace; what runs in it ends with it.
pub struct Namespace(String);

impl Namespace {
    /// A new one, with its loopback device up.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("lab-{}-{number}-{name}", std::process::id()));
        ip(&format!("netns add {}", namespace.0));
        ip(&format!("-n {} link set lo up", namespace.0));
        namespace
    }

    /// As `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let own = std::process::id().cast_signed();
        let pids = Command::new("ip").args(["netns", "pids", &self.0]).output();
        let pids = pids.map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).into_owned()
        });
        for pid in pids.lines().filter_map(|line| line.trim().parse().ok()) {
            if pid != own
                && let Some(pid) = Pid::from_raw(pid)
            {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A computer.
pub struct Host {
    namespace: Namespace,
    /// Its address on the lab's network.
    pub address: Ipv4Addr,
}

impl Host {
    /// A computer without a network yet; its number gives its address.
    pub(super) fn new(name: &str, number: u8) -> Self {
        Self {
            namespace: Namespace::new(name),
            address: address(number),
        }
    }

    /// As `ip netns` knows it.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Sets up its device: address, MTU, and the rate at which it sends.
    pub(super) fn up(&self, mtu: u16, rate: Option<u64>) {
        let inside = format!("-n {}", self.namespace());
        let address = self.address;
        ip(&format!("{inside} addr add {address}/24 dev {DEVICE}"));
        ip(&format!("{inside} link set {DEVICE} mtu {mtu} up"));
        // bbr paces, and its rate is never quite a link's.
        self.control_congestion("cubic");
        // What one connection learnt of the way would slow the next down, which is another measurement.
        run(self
            .command("sysctl")
            .args(["-qw", "net.ipv4.tcp_no_metrics_save=1"]));
        if let Some(rate) = rate {
            self.shape(rate);
        }
    }

    /// Limits what leaves by one of its devices.
    fn shape_device(&self, device: &str, rate: u64) {
        // A fifth of a millisecond's worth where that is more, or the timer's steps would cost rate.
        let burst = BURST.max(rate / 8 / 5_000);
        let line =
            format!("qdisc replace dev {device} root tbf rate {rate}bit burst {burst} latency 5ms");
        run(self.command("tc").args(line.split_whitespace()));
    }

    /// Sends by this congestion control from now on: by route, since a namespace may not choose it for itself.
    pub fn control_congestion(&self, name: &str) {
        ip(&format!(
            "-n {} route change 10.77.0.0/24 dev {DEVICE} proto kernel scope link src {} congctl {name}",
            self.namespace(),
            self.address
        ));
    }

    /// Limits what it sends to `rate` bits per second, from now on.
    pub fn shape(&self, rate: u64) {
        self.shape_device(DEVICE, rate);
    }

    /// A program on this host. It sees this host's network, and a `/sys` of its own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace(), program]);
        command
    }

    /// Runs code of the test on this host, in a thread of its own. Threads that it starts are there too; `/proc/net`
    /// and `/sys` stay the test's.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.namespace());
        let namespace = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&namespace),
                    Some(LinkNameSpaceType::Network),
                )
                .expect("root may enter a network");
                work()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// From now on what comes in and matches an nft rule vanishes: `tcp dport 5201`, `meta length > 1500`,
    /// `numgen random mod 1000 < 1`. Where super-frames are on, one packet is up to 64 KiB.
    pub fn drop_incoming(&self, rule: &str) {
        let table = "table inet lab {\n chain in {\n  type filter hook input priority 0; policy accept;\n }\n}\n";
        let text = format!("{table}add rule inet lab in {rule} counter drop\n");
        self.filter(&text);
    }

    /// Adds tables and rules of nft's.
    fn filter(&self, text: &str) {
        let file = std::env::temp_dir().join(format!("{}.nft", self.namespace()));
        std::fs::write(&file, text).expect("a place for temporary files");
        run(self.command("nft").arg("-f").arg(&file));
        std::fs::remove_file(&file).expect("ours");
    }

    /// Packets that [`Host::drop_incoming`] has taken so far.
    pub fn dropped(&self) -> u64 {
        let rules = run(self.command("nft").args(["list", "table", "inet", "lab"]));
        let counted = rules.split("counter packets ").skip(1);
        counted
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    }

    /// Nothing vanishes any more.
    pub fn drop_nothing(&self) {
        run(self.command("nft").args(["delete", "table", "inet", "lab"]));
    }
}

/// Joins two hosts by several cables. Connections take turns at them, and each stays on its own both ways: with ports decided by
/// chance, as bonds and routers do it, a test would be another one each time. Each address lies on the loopback device.
pub(super) fn join_by_several(a: &Host, b: &Host, link: &Link) {
    let device = |at: u8| format!("eth{at}");
    for at in 0..link.links {
        let name = device(at);
        ip(&format!(
            "link add {name} netns {} type veth peer name {name} netns {}",
            a.namespace(),
            b.namespace()
        ));
    }
    for (host, other, own, rate) in [(a, b, 1, link.rate_a_to_b), (b, a, 2, link.rate_b_to_a)] {
        let inside = format!("-n {}", host.namespace());
        ip(&format!("{inside} addr add {}/32 dev lo", host.address));
        // What comes by one cable may be answered by another as far as routes know.
        run(host.command("sysctl").arg("-qw").args([
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
            "net.ipv4.tcp_no_metrics_save=1",
        ]));
        let mut arrivals = String::new();
        for at in 0..link.links {
            let name = device(at);
            ip(&format!("{inside} addr add 10.78.{at}.{own}/30 dev {name}"));
            ip(&format!("{inside} link set {name} mtu {} up", link.mtu));
            if let Some(rate) = rate {
                host.shape_device(&name, rate);
            }
            let mark = at + 1;
            let to = format!(
                "{}/32 via 10.78.{at}.{} dev {name} src {} congctl cubic",
                other.address,
                3 - own,
                host.address
            );
            if at == 0 {
                ip(&format!("{inside} route add {to}"));
            }
            ip(&format!("{inside} route add {to} table {}", 100 + mark));
            ip(&format!(
                "{inside} rule add fwmark {mark} table {}",
                100 + mark
            ));
            arrivals.push_str(&format!(
                "  iifname \"{name}\" ct state new ct mark set {mark}\n"
            ));
        }
        host.filter(&format!(
            "table ip links {{\n chain in {{\n  type filter hook prerouting priority mangle; policy accept;\n{arrivals} }}\n \
             chain out {{\n  type route hook output priority mangle; policy accept;\n  \
             ct state new ct mark set numgen inc mod {} offset 1\n  meta mark set ct mark\n }}\n}}\n",
            link.links
        ));
    }
}
