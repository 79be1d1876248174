//! Ports where nobody listens, nobody answers, or nothing comes through.

use std::net::TcpListener;
use std::process::Command;

use crate::harness::{Ended, run, seconds};
use crate::server::{Kind, Server};

const LOAD: &[&str] = &[
    "--rw",
    "read",
    "--bs",
    "64k",
    "--size",
    "1M",
    "--runtime",
    "1s",
    "--ramp-time",
    "0s",
    "--target",
    "sim:?latency=2ms",
];
const IQN: &str = "iqn.2026-11.dev.nasgauge:none";

/// A server that is not there: lost, in a sentence with these words; the other target is measured.
fn away(uri: &str, words: &[&str]) -> Ended {
    let ended = run(&[&["--target", uri], LOAD].concat()).ends(seconds(15));
    let protocol = uri.split(':').next().expect("a scheme");
    ended.exits(1).says(words).has("sim", &["ok"]);
    ended.has(protocol, &["server_lost"]);
    ended
}

/// The three protocols at a port; for NFS both of its ports.
fn uris(port: u16) -> [String; 3] {
    [
        format!("nfs://127.0.0.1:{port}/export?mountport={port}"),
        format!("smb://bench@127.0.0.1:{port}/share"),
        format!("iscsi://127.0.0.1:{port}/{IQN}/1"),
    ]
}

/// The same for each, side by side.
fn each(uris: &[String], words: &[&str]) {
    std::thread::scope(|scope| {
        for uri in uris {
            scope.spawn(move || away(uri, words));
        }
    });
}

/// A port that is free now.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .expect("free")
        .port()
}

#[test]
fn nobody_listens() {
    let port = free();
    let [nfs, smb, iscsi] = uris(port);
    let port = port.to_string();
    each(
        &[nfs, iscsi],
        &["failed while connecting", &port, "refused"],
    );
    each(
        &[smb],
        &["failed while connecting", &port, "nobody listens"],
    );
}

#[test]
fn someone_listens_and_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free");
    let port = listener.local_addr().expect("bound").port();
    // The kernel takes the connections; nobody ever reads from them.
    each(&uris(port), &["failed while", &port.to_string(), "answer"]);
}

#[test]
fn a_listener_that_takes_no_more_connections() {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(
        &listener,
        &SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0),
    )
    .expect("free");
    listen(&listener, 0).expect("bound");
    let address = getsockname(&listener).expect("bound");
    let address = std::net::SocketAddr::try_from(address).expect("of IPv4");
    let short = std::time::Duration::from_millis(300);
    let connect = |_| std::net::TcpStream::connect_timeout(&address, short);
    let held: Vec<_> = (0..3).map(connect).collect();
    assert!(held.iter().any(Result::is_err), "the queue is not full");
    let port = address.port();
    let words = &[
        "failed while connecting",
        &port.to_string(),
        "answer within 2",
    ];
    each(&uris(port), words);
}

#[test]
#[ignore = "needs root and servers"]
fn nothing_comes_through_a_firewall() {
    let port = 19_999;
    let _rules = Rules::drop(&[port]);
    each(
        &uris(port),
        &[
            "failed while connecting",
            &port.to_string(),
            "answer within 2",
        ],
    );
}

#[test]
#[ignore = "needs root and servers"]
fn each_port_of_nfs_is_named_when_it_is_silent() {
    let server = Server::start(Kind::Nfs);
    let uri = server.uri();
    let (plain, mount) = uri.split_once("?mountport=").expect("both ports");
    {
        let _rules = Rules::drop(&[server.port()]);
        away(
            &uri,
            &[
                "failed while connecting",
                "NFS service",
                &server.port().to_string(),
            ],
        );
    }
    {
        let _rules = Rules::drop(&[mount.parse().expect("a port")]);
        away(&uri, &["failed while connecting", "MOUNT service", mount]);
    }
    let rules = Rules::drop(&[111]);
    away(plain, &["failed while connecting", "portmapper", "111"]);
    drop(rules);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn a_network_that_drops_everything_in_mid_run() {
    std::thread::scope(|scope| {
        for kind in crate::server::KINDS {
            scope.spawn(move || {
                let server = Server::start(kind);
                let uri = server.uri();
                let load = [
                    "--rw",
                    "randread",
                    "--bs",
                    "4k",
                    "--size",
                    "4M",
                    "--runtime",
                    "2s",
                    "--ramp-time",
                    "0s",
                ];
                let running = run(&[&["--target", &uri], &load[..]].concat());
                running.until_measuring(&uri, 1);
                let rules = Rules::drop(&[server.port()]);
                let ended = running.ends(seconds(30));
                ended.exits(1).has(server.protocol(), &["server_lost"]);
                ended.says(&[
                    "failed while reading and writing",
                    &server.port().to_string(),
                ]);
                ended.says(&["failed while removing the test data", "nasgauge clean"]);
                drop(rules);
                crate::harness::clean(&uri);
                server.assert_clean();
            });
        }
    });
}

/// Packet filter rules of the sandbox's network, gone on drop.
pub struct Rules(String);

impl Rules {
    /// Packets from and to these ports of TCP vanish.
    pub fn drop(ports: &[u16]) -> Self {
        assert!(
            nasgauge::servers::sandbox::Sandbox::inside(),
            "needs nasgauge's sandbox: run ./test"
        );
        let table = format!("faults{}", ports[0]);
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let ports = ports.join(", ");
        let script = format!(
            "table inet {table} {{ chain c {{ type filter hook input priority 0; \
             tcp dport {{ {ports} }} drop; tcp sport {{ {ports} }} drop; }}; }}"
        );
        nft(&[&script]);
        Self(table)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        nft(&["delete", "table", "inet", &self.0]);
    }
}

fn nft(words: &[&str]) {
    let status = Command::new("nft")
        .args(words)
        .status()
        .expect("nftables is installed");
    assert!(status.success(), "nft {words:?}");
}
