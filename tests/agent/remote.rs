//! The agent where it is meant to be: static, in an empty chroot, on another computer; and on its way there by ssh.
//!
//! Inside the sandbox of `./test`, whose network and mounts are its own: a bridge joins this program (10.77.0.1), a
//! server (.2) and a stranger (.3).

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasgauge::error::Kind;
use nasgauge::fleet::agent::wire::Service;
use nasgauge::fleet::agent::{Agent, TestPort, own_address};
use nasgauge::servers::processes;
use nasgauge::servers::sandbox::Sandbox;
use nasgauge::stage::round_trip::{Place, idle};

use crate::harness::{MOMENT, PATIENCE, names};
use crate::paths::plan;

const CLIENT: &str = "10.77.0.1";
const SERVER: &str = "10.77.0.2";

/// One test at a time changes the sandbox: with a bridge in it, it is no longer the place that the other asks for.
fn sandbox() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        Sandbox::inside(),
        "run it by ./test: it changes the network and mounts"
    );
    alone
}

/// The static program, which `cargo agent` builds.
fn static_program() -> PathBuf {
    let target = Path::new(crate::harness::PROGRAM)
        .parent()
        .and_then(Path::parent);
    let program = target
        .expect("cargo's directory")
        .join("x86_64-unknown-linux-gnu/release/nasgauge");
    assert!(
        program.is_file(),
        "build the static program first: cargo agent"
    );
    program
}

fn sh(script: &str) -> Output {
    Command::new("sh")
        .args(["-ec", script])
        .output()
        .expect("a shell")
}

fn done(script: &str) {
    let output = sh(script);
    assert!(output.status.success(), "{script}: {output:?}");
}

/// Three computers on a bridge, gone when dropped.
struct Net {
    chroot: tempfile::TempDir,
    // Dropped last, after the network is taken down.
    _alone: MutexGuard<'static, ()>,
}

impl Net {
    fn build() -> Self {
        let alone = sandbox();
        done(
            "ip link add nbr0 type bridge; ip addr add 10.77.0.1/24 dev nbr0; ip link set nbr0 up",
        );
        for (name, number) in [("nas", 2), ("stranger", 3)] {
            done(&format!(
                "ip netns add {name}; ip link add v{number} type veth peer name e0 netns {name}; \
                 ip link set v{number} master nbr0 up; ip -n {name} addr add 10.77.0.{number}/24 dev e0; \
                 ip -n {name} link set e0 up; ip -n {name} link set lo up"
            ));
        }
        let chroot = tempfile::tempdir().expect("a directory");
        std::fs::copy(static_program(), chroot.path().join("nasgauge")).expect("copied");
        Self {
            chroot,
            _alone: alone,
        }
    }

    fn data(&self) -> PathBuf {
        let data = self.chroot.path().join("data");
        std::fs::create_dir_all(&data).expect("made");
        data
    }

    fn agent(&self, options: &str) -> Agent {
        let root = self.chroot.path().display();
        let command = format!("ip netns exec nas chroot {root} /nasgauge agent {options}");
        Agent::connect(&command).expect("an agent")
    }

    /// TCP and UDP ports that are open on the server.
    fn listening() -> Vec<String> {
        let output = sh("ip netns exec nas ss -Hltun");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = sh("ip netns del nas; ip netns del stranger; ip link del nbr0");
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// How a stranger's connection ends: 124 when nothing answers, 1 when it is refused.
fn stranger(to: SocketAddr) -> Option<i32> {
    let script = format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port());
    let line = [
        "netns", "exec", "stranger", "timeout", "2", "bash", "-c", &script,
    ];
    let output = Command::new("ip").args(line).output().expect("a stranger");
    output.status.code()
}

fn iperf3(to: SocketAddr, more: &[&str]) -> f64 {
    let output = Command::new("iperf3")
        .args([
            "-J",
            "-t",
            "1",
            "-c",
            &to.ip().to_string(),
            "-p",
            &to.port().to_string(),
        ])
        .args(more)
        .output()
        .expect("Debian's iperf3");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("{report}"))
}

/// A port on the server for this program alone.
fn open(agent: &mut Agent, service: Service, seconds: u64) -> TestPort {
    let (server, here) = (address(SERVER), address(CLIENT));
    let port = agent.open_port(service, server, here, Duration::from_secs(seconds));
    port.expect("a port")
}

#[test]
#[ignore = "needs root and servers"]
fn the_static_agent_serves_from_an_empty_chroot_on_another_computer() {
    let net = Net::build();
    assert_eq!(names(net.chroot.path()), ["nasgauge"]);
    let mut agent = net.agent("");
    let facts = agent.facts().expect("facts");
    let host = facts.host.expect("what the kernel itself tells");
    assert_eq!(host.architecture.as_deref(), Some("x86_64"));
    assert_eq!(
        host.memory_total_bytes, None,
        "there is no /proc, and unknown is unknown"
    );
    let counters = agent.counters().expect("counters");
    assert!(counters.at_ns.is_some() && counters.cpu.is_none());
    assert_eq!(Net::listening(), [""; 0], "nothing listens by itself");
    let own = own_address(address(SERVER)).expect("a route");
    assert_eq!(own, address(CLIENT));
    // Debian's client, both ways, one test a port.
    for more in [&[][..], &["-R"], &["-P", "4"], &["--bidir"]] {
        let port = open(&mut agent, Service::Iperf3, 10);
        assert_eq!(
            Net::listening().len(),
            2,
            "TCP, and UDP that hears nothing: {:?}",
            Net::listening()
        );
        assert!(iperf3(port.address, more) > 1e6);
        agent.finish(&port).expect("well");
        assert_eq!(Net::listening(), [""; 0]);
    }
    let port = open(&mut agent, Service::RoundTrip, 10);
    assert_eq!(stranger(port.address), Some(124), "no answer at all");
    let place = Place {
        address: port.address,
        connect_timeout: PATIENCE,
        io_timeout: PATIENCE,
    };
    assert!(idle(&place, 200).expect("round trips").median_ns > 0);
    agent.close(&port).expect("closed");
    assert_eq!(Net::listening(), [""; 0]);
    // A third computer sees nothing, before and after; the peer is served all the same.
    let port = open(&mut agent, Service::Iperf3, 15);
    assert_eq!(stranger(port.address), Some(124), "no answer at all");
    assert!(iperf3(port.address, &[]) > 1e6);
    agent.finish(&port).expect("well");
    assert_eq!(
        stranger(port.address),
        Some(1),
        "a closed port is refused: the way is open"
    );
    // At the deadline nothing listens, whoever came or did not.
    let port = open(&mut agent, Service::Iperf3, 2);
    let opened = Instant::now();
    assert_eq!(
        agent.finish(&port).expect_err("nobody").kind,
        Kind::TimedOut
    );
    assert!(opened.elapsed() < Duration::from_secs(2) + MOMENT);
    assert_eq!(Net::listening(), [""; 0]);
    // Without --allow every path is refused; with it, the chroot's own is used and left as it was.
    let refused = agent.storage(plan(Path::new("/"), "rw='read' bs='4k' size='1M'"));
    assert_eq!(refused.expect_err("refused").kind, Kind::Safety);
    let data = net.data();
    let mut agent = net.agent("--allow /data --allow-write --allow-drop-caches");
    for keys in [
        "rw='randread' bs='4k' size='4M' lanes=2 iodepth=4",
        "rw='write' bs='1M' size='16M'",
    ] {
        let report = agent.storage(plan(Path::new("/data"), keys)).expect(keys);
        assert!(report.read.ops + report.write.ops > 0);
    }
    let outside = agent.storage(plan(Path::new("/"), "rw='read' bs='4k' size='1M'"));
    assert_eq!(outside.expect_err("refused").kind, Kind::Safety);
    assert_eq!(names(&data), [""; 0]);
    // The kernel's switch is not there in a chroot; a file in its place shows what would be written.
    assert!(
        agent
            .drop_caches()
            .expect_err("none")
            .message
            .contains("drop the server's cache")
    );
    let switch = net.chroot.path().join("proc/sys/vm");
    std::fs::create_dir_all(&switch).expect("made");
    std::fs::write(switch.join("drop_caches"), "").expect("written");
    agent.drop_caches().expect("dropped");
    assert_eq!(
        std::fs::read_to_string(switch.join("drop_caches")).expect("read"),
        "3\n"
    );
}

/// An sshd of the test's own: keys, configuration, port, and the client's configuration for it.
struct Sshd {
    process: Child,
    port: u16,
}

const SSH: &str = "/run/nasgauge/ssh";

impl Sshd {
    /// Starts it; `before` is run first, in a mount namespace that only it sees.
    fn start(port: u16, before: &str) -> Self {
        let busybox = "/run/nasgauge/busybox";
        done(&format!(
            "mkdir -p {SSH} /run/sshd {busybox} /run/nasgauge/home; cd {SSH}; \
             test -e key || ssh-keygen -q -t ed25519 -N '' -f key; test -e host || ssh-keygen -q -t ed25519 -N '' -f host; \
             cp key.pub authorized; busybox --install -s {busybox}; \
             grep -q '^nas:' /etc/passwd || echo 'nas:x:0:0::/run/nasgauge/home:{busybox}/sh' >>/etc/passwd; \
             grep -qx {busybox}/sh /etc/shells || {{ cp /etc/shells shells; echo {busybox}/sh >>shells; mount --bind shells /etc/shells; }}"
        ));
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {SSH}/host\nAuthorizedKeysFile {SSH}/authorized\n\
             StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n\
             Match User nas\nSetEnv PATH={busybox}\n"
        );
        let known = std::fs::read_to_string(format!("{SSH}/host.pub")).expect("a key");
        let client = format!(
            "Host 127.0.0.1\nIdentityFile {SSH}/key\nUserKnownHostsFile {SSH}/known\nStrictHostKeyChecking yes\nBatchMode yes\n"
        );
        let known = format!("[127.0.0.1]:{port} {known}");
        for (name, text) in [("config", config), ("known", known), ("client", client)] {
            std::fs::write(format!("{SSH}/{name}"), text).expect("written");
        }
        done(&format!("mount --bind {SSH}/client /etc/ssh/ssh_config"));
        let script = format!(
            "{before} exec \"$(command -v sshd || echo /usr/sbin/sshd)\" -D -e -f {SSH}/config"
        );
        let process = Command::new("unshare")
            .args(["--mount", "sh", "-ec", &script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd");
        let sshd = Self { process, port };
        let deadline = Instant::now() + PATIENCE;
        while !crate::harness::listens(SocketAddr::new(address("127.0.0.1"), port)) {
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        sshd
    }

    fn agent(&self, user: &str, options: &str) -> nasgauge::error::Result<Agent> {
        Agent::connect(&format!("ssh:{user}@127.0.0.1:{} {options}", self.port))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = sh("umount /etc/ssh/ssh_config");
    }
}

/// What a push may have left, anywhere that it tries.
fn left() -> Vec<String> {
    let places = [
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/root",
        "/run/nasgauge/home",
    ];
    let all = places.iter().flat_map(|place| names(Path::new(place)));
    all.filter(|name| name.starts_with("nasgauge-agent-"))
        .collect()
}

fn nothing_left() {
    let deadline = Instant::now() + MOMENT;
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_real_sshd_takes_the_agent_and_keeps_nothing() {
    let _alone = sandbox();
    static_program();
    let sshd = Sshd::start(2222, "");
    let data = tempfile::tempdir().expect("a directory");
    let spaced = data.path().join("a 'b");
    std::fs::create_dir(&spaced).expect("made");
    // A usual shell and tools, and those of a small NAS.
    for user in ["root", "nas"] {
        let options = format!("--allow \"{}\" --allow-write", spaced.display());
        let mut agent = sshd
            .agent(user, &options)
            .unwrap_or_else(|error| panic!("{user}: {error}"));
        assert_eq!(left(), [""; 0], "{user}: it is gone while it runs");
        agent.facts().expect("facts");
        agent
            .storage(plan(&spaced, "rw='read' bs='4k' size='1M'"))
            .expect("read");
        drop(agent);
        nothing_left();
    }
    // A computer of another kind, by what its uname says.
    let uname = "#!/run/nasgauge/busybox/sh\ncase $1 in -s) echo Linux ;; *) echo armv7l ;; esac\n";
    done("rm /run/nasgauge/busybox/uname");
    std::fs::write("/run/nasgauge/busybox/uname", uname).expect("written");
    done("chmod 755 /run/nasgauge/busybox/uname");
    let other = sshd.agent("nas", "").err().expect("another machine");
    assert_eq!(other.kind, Kind::Unsupported, "{other}");
    assert!(other.message.contains("is Linux armv7l"), "{other}");
    done("busybox ln -sf /bin/busybox /run/nasgauge/busybox/uname");
    nothing_left();
    // Killed on the way: the file is on the server, half of it or whole.
    for moment in 0..12_u64 {
        let pid = std::process::id().cast_signed();
        let port = sshd.port;
        let pushing = std::thread::spawn(move || {
            Agent::connect(&format!("ssh:root@127.0.0.1:{port}")).map(|mut agent| agent.facts())
        });
        std::thread::sleep(Duration::from_millis(100 + 40 * moment));
        for process in processes::all() {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
            if process.parent == pid && name.is_ok_and(|name| name.trim() == "ssh") {
                let ssh = rustix::process::Pid::from_raw(process.pid).expect("a process");
                let _ = rustix::process::kill_process(ssh, rustix::process::Signal::KILL);
            }
        }
        if let Err(error) = pushing.join().expect("no panic") {
            assert!(error.message.contains("signal 9"), "{error}");
        }
        nothing_left();
    }
    // ssh's own words reach the user.
    let closed = Agent::connect("ssh:root@127.0.0.1:2")
        .err()
        .expect("closed")
        .to_string();
    assert!(
        closed.contains("ssh itself failed") && closed.contains("refused"),
        "{closed}"
    );
    let denied = sshd
        .agent("nobody-here", "")
        .err()
        .expect("denied")
        .to_string();
    assert!(denied.contains("Permission denied"), "{denied}");
    drop(sshd);
    // A server on which nothing may run.
    let noexec = "for place in /tmp /var/tmp /dev/shm /run/nasgauge/home; do mount -t tmpfs -o noexec tmpfs $place; done;";
    let sshd = Sshd::start(2223, noexec);
    let error = sshd.agent("nas", "").err().expect("noexec");
    assert_eq!(error.kind, Kind::Denied, "{error}");
    assert!(error.message.contains("noexec"), "{error}");
}
