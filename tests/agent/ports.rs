//! One-test ports: real clients are served, hostile ones are survived, and the deadline closes them all.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nasgauge::error::Kind;
use nasgauge::fleet::agent::wire::Service;
use nasgauge::stage::round_trip::{Place, idle};

use crate::harness::{HERE, MOMENT, PATIENCE, agent, closes, connect, listens};

/// An iperf3 cookie: 36 characters and a NUL.
const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz0123456789\0";

fn iperf3_client(port: u16) -> riperf3::ClientBuilder {
    riperf3::ClientBuilder::new("127.0.0.1").port(Some(port))
}

#[test]
fn an_iperf3_client_is_served_once() {
    let mut agent = agent("");
    let port = agent
        .open_port(Service::Iperf3, HERE, HERE, Duration::from_secs(15))
        .expect("a port");
    assert!(listens(port.address));
    let client = iperf3_client(port.address.port())
        .duration(1)
        .build()
        .expect("a client");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(client.run()).expect("a test");
    let text = serde_json::to_value(&report).expect("a report");
    let bytes = text["end"]["sum_received"]["bytes"]
        .as_u64()
        .expect("bytes");
    assert!(bytes > 1 << 20, "{bytes}");
    agent.finish(&port).expect("well");
    closes(port.address, MOMENT);
    let host = agent.facts().expect("alive").host.expect("a host");
    assert_eq!(host.nasgauge_version, env!("CARGO_PKG_VERSION"));
    let before = agent.counters().expect("counters");
    let after = agent.counters().expect("counters");
    assert!(after.since(&before).at_ns.is_some_and(|passed| passed > 0));
}

/// Whether a round trip is served at this address.
fn round_trip(address: std::net::SocketAddr) -> u64 {
    let place = Place {
        address,
        connect_timeout: PATIENCE,
        io_timeout: PATIENCE,
    };
    idle(&place, 20).expect("round trips").median_ns
}

#[test]
fn a_round_trip_port_serves_its_peer_until_it_is_closed() {
    let mut agent = agent("");
    let mut open = |seconds| {
        let port = agent.open_port(Service::RoundTrip, HERE, HERE, Duration::from_secs(seconds));
        port.expect("a port")
    };
    let (port, silent) = (open(20), open(2));
    // As many connections as are wanted, and one that never says a word.
    let _mute = connect(port.address);
    assert!(round_trip(port.address) > 0 && round_trip(port.address) > 0);
    agent.close(&port).expect("closed");
    closes(port.address, MOMENT);
    let error = agent.finish(&silent).expect_err("nobody came");
    assert!(error.message.contains("did not connect"), "{error}");
    assert!(!listens(silent.address));
}

/// What a hostile client does to an open port; what it gives back stays open until the deadline.
type Attack = fn(&mut TcpStream) -> Option<TcpStream>;

fn parameters(stream: &mut TcpStream, json: &str) {
    stream.write_all(COOKIE).expect("written");
    // The server asks for parameters by one byte.
    stream.read_exact(&mut [0]).expect("asked");
    let length = u32::try_from(json.len()).expect("short").to_be_bytes();
    let _ = stream.write_all(&length);
    let _ = stream.write_all(json.as_bytes());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn hostile_iperf3_clients_are_told_of_and_survived() {
    // What it sends, whether the library notices by itself, and a word of the sentence.
    let cases: &[(&str, Attack, bool)] = &[
        (
            "garbage",
            |stream| {
                let _ =
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: nas\r\nAccept: everything\r\n\r\n");
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "truncated cookie",
            |stream| {
                let _ = stream.write_all(&COOKIE[..10]);
                let _ = stream.shutdown(Shutdown::Both);
                None
            },
            true,
        ),
        ("silence", |stream| stream.try_clone().ok(), false),
        (
            "half open",
            |stream| {
                let _ = stream.write_all(COOKIE);
                let _ = stream.shutdown(Shutdown::Write);
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "huge length",
            |stream| {
                stream.write_all(COOKIE).expect("written");
                stream.read_exact(&mut [0]).expect("asked");
                let _ = stream.write_all(&u32::MAX.to_be_bytes());
                let _ = stream.write_all(&b"x".repeat(65536));
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "parameters that are none",
            |stream| {
                parameters(stream, "[1,2,3]");
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "absurd parameters",
            |stream| {
                parameters(
                    stream,
                    r#"{"tcp":true,"time":-1,"omit":-1,"parallel":-1,"bidirectional":true,"len":2147483647}"#,
                );
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "overflowing parameters",
            |stream| {
                parameters(
                    stream,
                    r#"{"tcp":true,"time":-1,"omit":-1,"parallel":-1,"bidirectional":true,"len":1024}"#,
                );
                stream.try_clone().ok()
            },
            true,
        ),
        (
            "streams that never come",
            |stream| {
                parameters(stream, r#"{"tcp":true,"time":1,"parallel":8,"len":131072}"#);
                stream.try_clone().ok()
            },
            false,
        ),
        (
            "UDP, which is refused",
            |stream| {
                parameters(stream, r#"{"udp":true,"time":1,"parallel":1,"len":1024}"#);
                stream.try_clone().ok()
            },
            true,
        ),
        ("nobody at all", |_| None, false),
    ];
    let mut agent = agent("");
    for (what, attack, noticed) in cases {
        // What is noticed does not wait for the deadline.
        let time = Duration::from_secs(if *noticed { 15 } else { 2 });
        let opened = Instant::now();
        let port = agent
            .open_port(Service::Iperf3, HERE, HERE, time)
            .expect("a port");
        let _open = if *what == "nobody at all" {
            None
        } else {
            attack(&mut connect(port.address))
        };
        let error = agent.finish(&port).expect_err(what);
        let took = opened.elapsed();
        assert!(took < time + MOMENT, "{what}: {took:?}");
        let kinds: &[Kind] = if *noticed {
            &[Kind::Protocol, Kind::Gone]
        } else {
            &[Kind::TimedOut]
        };
        assert!(kinds.contains(&error.kind), "{what}: {error:?}");
        if *what == "nobody at all" {
            assert!(error.message.contains("did not connect"), "{error}");
        }
        assert!(!listens(port.address), "{what}: {error}");
        agent
            .facts()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn the_port_of_a_test_hears_no_udp() {
    let mut agent = agent("");
    let port = agent
        .open_port(Service::Iperf3, HERE, HERE, Duration::from_secs(5))
        .expect("a port");
    assert!(UdpSocket::bind(port.address).is_err(), "it is taken");
    agent.close(&port).expect("closed");
}

#[test]
fn a_port_is_closed_on_demand_and_with_the_agent() {
    let mut first = agent("");
    let open = |agent: &mut nasgauge::fleet::agent::Agent| {
        let port = agent.open_port(Service::Iperf3, HERE, HERE, Duration::from_mins(1));
        port.expect("a port")
    };
    let port = open(&mut first);
    let address = port.address;
    first.close(&port).expect("closed");
    closes(address, MOMENT);
    let port = open(&mut first);
    assert!(listens(port.address));
    drop(first);
    closes(port.address, MOMENT);
}

#[test]
fn only_so_many_ports_are_open_at_a_time() {
    let mut agent = agent("");
    let mut ports = Vec::new();
    let error = loop {
        match agent.open_port(Service::Iperf3, HERE, HERE, Duration::from_secs(30)) {
            Ok(port) => ports.push(port),
            Err(error) => break error,
        }
        assert!(ports.len() < 100);
    };
    assert!(error.message.contains("at a time"), "{error}");
    // Each is a port of its own.
    let mut numbers: Vec<u16> = ports.iter().map(|port| port.address.port()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
    let addresses: Vec<_> = ports.iter().map(|port| port.address).collect();
    drop(agent);
    for address in addresses {
        closes(address, PATIENCE);
    }
}
