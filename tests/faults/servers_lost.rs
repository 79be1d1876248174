//! Servers that die, stop or stumble in the middle of a measurement.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::{clean, lines, run, seconds};
use crate::server::{KINDS, Kind, Server};

/// A small load on a server and on simulation beside it: six cells, in the order server, simulation, simulation, server,
/// server, simulation.
const SEQUENTIAL: &[&str] = &["--rw", "read", "--bs", "64k"];
const DEEP: &[&str] = &["--rw", "randwrite", "--bs", "4k", "--iodepth", "32"];
const SIZE: &[&str] = &[
    "--size",
    "8M",
    "--runtime",
    "1s",
    "--ramp-time",
    "0s",
    "--repeats",
    "3",
    "--target",
    "sim:?latency=2ms",
];

fn load<'a>(uri: &'a str, keys: &[&'a str]) -> Vec<&'a str> {
    [&["--target", uri], keys, SIZE].concat()
}

/// Kills or pauses a server in the fourth cell and expects the two last cells of it lost.
fn lost(kind: Kind, keys: &[&str], killed: bool) {
    let mut server = Server::start(kind);
    let uri = server.uri();
    let running = run(&load(&uri, keys));
    running.until_measuring(&uri, 2);
    let before = running.rows();
    assert!(
        before.len() >= 3 && before.iter().all(|row| row["status"] == "ok"),
        "{before:?}"
    );
    if killed {
        server.kill();
    } else {
        server.pause();
    }
    let port = format!(":{}", server.port());
    let ended = running.ends(seconds(30));
    ended.exits(1);
    ended.has(server.protocol(), &["ok", "server_lost", "server_lost"]);
    ended.has("sim", &["ok", "ok", "ok"]);
    ended.says(&["server_lost: ", "failed while reading and writing", &port]);
    ended.says(&[
        "nasgauge: ",
        "failed while removing the test data",
        "nasgauge clean",
    ]);
    if killed {
        return;
    }
    server.resume();
    clean(&uri);
    server.assert_clean();
}

/// The cases of all protocols side by side.
fn each(case: impl Fn(Kind) + Sync) {
    std::thread::scope(|scope| {
        for kind in KINDS {
            let case = &case;
            scope.spawn(move || case(kind));
        }
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_killed_in_a_sequential_read_is_lost_at_once() {
    each(|kind| lost(kind, SEQUENTIAL, true));
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_killed_with_32_writes_under_way_is_lost_at_once() {
    each(|kind| lost(kind, DEEP, true));
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_stopped_in_a_sequential_read_is_lost_after_the_timeout() {
    each(|kind| lost(kind, SEQUENTIAL, false));
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_stopped_with_32_writes_under_way_is_lost_after_the_timeout() {
    each(|kind| lost(kind, DEEP, false));
}

#[test]
#[ignore = "needs root and servers"]
fn a_stall_that_ends_is_in_the_series_and_the_row_is_ok() {
    each(|kind| {
        let server = Server::start(kind);
        let uri = server.uri();
        let running = run(&[
            "--target",
            &uri,
            "--rw",
            "randread",
            "--bs",
            "4k",
            "--size",
            "8M",
            "--runtime",
            "5s",
            "--ramp-time",
            "0s",
            "--timeout",
            "20s",
        ]);
        running.until_measuring(&uri, 1);
        server.pause();
        sleep(Duration::from_secs(2));
        server.resume();
        let ended = running.ends(seconds(15));
        ended.exits(0).has(server.protocol(), &["ok"]);
        let longest: f64 = ended.rows[0]["latency_us_max"].parse().expect("a number");
        assert!((1.9e6..4e6).contains(&longest), "{longest} us");
        let intervals = lines(&ended.out.join("intervals.csv"));
        let still = intervals
            .iter()
            .filter(|interval| interval["ops"] == "0")
            .count();
        assert!(
            (10..30).contains(&still),
            "{still} intervals of 100 ms without a byte"
        );
        let in_series = intervals
            .iter()
            .filter_map(|interval| interval["latency_us_max"].parse().ok())
            .fold(0f64, f64::max);
        assert!(in_series >= 1.9e6, "{in_series}");
        server.assert_clean();
    });
}
