//! Servers that die, stop or stumble in the middle of a measurement.

use std::sync::{Mutex, MutexGuard, PoisonError};
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
    "sim:?latency=20ms",
];

fn load<'a>(uri: &'a str, keys: &[&'a str]) -> Vec<&'a str> {
    [&["--target", uri], keys, SIZE].concat()
}

/// Kills or pauses a server in the fourth cell and expects the two last cells of it lost.
fn lost(kind: Kind, keys: &[&str], killed: bool) {
    lost_with(kind, "", keys, killed);
}

/// The same with options in the URI.
fn lost_with(kind: Kind, options: &str, keys: &[&str], killed: bool) {
    let mut server = Server::start(kind);
    let uri = format!("{}{options}", server.uri());
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
    // A second of the simulation is still to come.
    let ended = running.ends(seconds(if killed { 20 } else { 50 }));
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

/// One test at a time goes deep: 32 lanes of SMB alone are 64 processes, and who waits for a processor for as long as the
/// timeout has lost a server that is well.
fn deep() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
    let _deep = deep();
    each(|kind| lost(kind, DEEP, true));
}

/// The engines and connections that a URI asks for. Each session's failure counts once, none is tried again.
#[test]
#[ignore = "needs root and servers"]
fn a_server_lost_with_32_under_way_on_another_engine() {
    let _deep = deep();
    let others = [
        (Kind::Iscsi, "?sessions=4"),
        (Kind::Smb, "?engine=smb2"),
        (Kind::Nfs, "&nconnect=3"),
        (Kind::Nfs, "&engine=crate"),
    ];
    std::thread::scope(|scope| {
        for (kind, options) in others {
            scope.spawn(move || {
                for killed in [true, false] {
                    lost_with(kind, options, DEEP, killed);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_stopped_in_a_sequential_read_is_lost_after_the_timeout() {
    each(|kind| lost(kind, SEQUENTIAL, false));
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_stopped_with_32_writes_under_way_is_lost_after_the_timeout() {
    let _deep = deep();
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
        let ended = running.ends(seconds(25));
        ended.exits(0).has(server.protocol(), &["ok"]);
        let longest: f64 = ended.rows[0]["latency_us_max"].parse().expect("a number");
        // The two seconds, but for a moment that this computer may have been away in before or after.
        assert!((1.5e6..5e6).contains(&longest), "{longest} us");
        let intervals = lines(&ended.out.join("intervals.csv"));
        let still = intervals
            .iter()
            .filter(|interval| interval["ops"] == "0")
            .count();
        assert!(
            (10..35).contains(&still),
            "{still} intervals of 100 ms without a byte"
        );
        let in_series = intervals
            .iter()
            .filter_map(|interval| interval["latency_us_max"].parse().ok())
            .fold(0f64, f64::max);
        assert!(in_series >= 1.5e6, "{in_series}");
        server.assert_clean();
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_that_comes_back_is_measured_again_and_cleaned() {
    each(|kind| {
        let mut server = Server::start(kind);
        let uri = server.uri();
        let mut arguments = load(&uri, &["--rw", "randwrite", "--bs", "4k"]);
        arguments.retain(|word| *word != "--repeats" && *word != "3");
        arguments.extend(["--repeats", "4"]);
        let running = run(&arguments);
        running.until_measuring(&uri, 2);
        server.kill();
        server.restart();
        let ended = running.ends(seconds(50));
        ended.exits(1);
        // The third follows the second at once and may find nobody yet.
        let statuses = ended.statuses(server.protocol());
        let known = (statuses[0], statuses[1], statuses[3]);
        assert_eq!(known, ("ok", "server_lost", "ok"), "{ended:?}");
        server.assert_clean();
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_stopped_while_the_file_is_laid() {
    each(|kind| {
        let server = Server::start(kind);
        let uri = server.uri();
        let mut arguments = load(&uri, SEQUENTIAL);
        let size = arguments
            .iter()
            .position(|word| *word == "8M")
            .expect("a size");
        arguments[size] = "48M";
        let running = run(&arguments);
        running.until_it_says("laying");
        server.pause();
        let ended = running.ends(seconds(50));
        ended.exits(1).has("sim", &["ok", "ok", "ok"]);
        ended.has(
            server.protocol(),
            &["server_lost", "server_lost", "server_lost"],
        );
        ended.says(&["failed while laying the test file", "answer"]);
        server.resume();
        clean(&uri);
        server.assert_clean();
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_that_answers_again_after_the_timeout_is_cleaned() {
    let _deep = deep();
    each(|kind| {
        let server = Server::start(kind);
        let uri = server.uri();
        let running = run(&load(&uri, DEEP));
        running.until_measuring(&uri, 2);
        server.pause();
        running.until_it_says("server_lost");
        // Its size was asked for in vain too: the control side has lost its connection.
        server.resume();
        let ended = running.ends(seconds(50));
        ended.exits(1);
        assert_eq!(
            ended.statuses(server.protocol())[..2],
            ["ok", "server_lost"]
        );
        server.assert_clean();
    });
}
