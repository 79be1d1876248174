//! Ctrl-C, SIGTERM and SIGKILL to nasgauge itself, and servers that are silent when it wants to clean up.

use std::path::PathBuf;

use nasgauge::servers::processes;
use rustix::process::Signal;

use crate::harness::{clean, run, seconds};
use crate::server::{KINDS, Kind, Server, left_in, work};

const LOAD: &[&str] = &[
    "--rw",
    "randwrite",
    "--bs",
    "4k",
    "--size",
    "4M",
    "--runtime",
    "1s",
    "--ramp-time",
    "0s",
    "--repeats",
    "4",
];

/// A target of the four kinds, with its server where it has one.
struct Target {
    uri: String,
    server: Option<Server>,
    directory: PathBuf,
    _work: Option<tempfile::TempDir>,
}

impl Target {
    fn of(server: Server) -> Self {
        Self {
            uri: server.uri(),
            directory: server.directory.clone(),
            server: Some(server),
            _work: None,
        }
    }

    fn file() -> Self {
        let work = work();
        let directory = work.path().to_owned();
        Self {
            uri: format!("file:{}", directory.display()),
            server: None,
            directory,
            _work: Some(work),
        }
    }

    fn protocol(&self) -> &str {
        self.uri.split(':').next().expect("a scheme")
    }

    fn assert_clean(&self) {
        match &self.server {
            Some(server) => server.assert_clean(),
            None => assert_eq!(left_in(&self.directory), [""; 0]),
        }
    }

    fn is_clean(&self) -> bool {
        match &self.server {
            Some(server) => server.left().is_empty(),
            None => left_in(&self.directory).is_empty(),
        }
    }
}

/// The case on each kind of target, side by side.
fn each(case: impl Fn(&Target) + Sync) {
    let case = &case;
    std::thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || case(&Target::of(Server::start(kind))));
        }
        scope.spawn(move || case(&Target::file()));
    });
}

fn interrupted_by(signal: Signal, keys: &[&str], target: &Target) {
    let running = run(&[&["--target", &target.uri], LOAD, keys].concat());
    running.until_measuring(&target.uri, 2);
    running.signal(signal);
    let ended = running.ends(seconds(20));
    ended
        .exits(130)
        .has(target.protocol(), &["ok", "interrupted"])
        .says(&["stopped", "2 of 4"]);
    for name in ["aggregate.csv", "record.json", "plan.toml"] {
        assert!(ended.out.join(name).exists(), "{name}");
    }
    target.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn ctrl_c_keeps_the_rows_and_removes_the_files() {
    each(|target| interrupted_by(Signal::INT, &[], target));
}

#[test]
#[ignore = "needs root and servers"]
fn sigterm_with_many_under_way_does_the_same() {
    each(|target| interrupted_by(Signal::TERM, &["--iodepth", "8"], target));
}

#[test]
#[ignore = "needs root and servers"]
fn ctrl_c_while_the_file_is_laid() {
    each(|target| {
        let load = [
            "--rw",
            "read",
            "--size",
            "48M",
            "--runtime",
            "1s",
            "--target",
            &target.uri,
        ];
        let running = run(&load);
        running.until_it_says("laying");
        running.signal(Signal::INT);
        let ended = running.ends(seconds(20));
        ended.exits(130);
        assert!(
            ended.rows.iter().all(|row| row["status"] == "interrupted"),
            "{:?}",
            ended.rows
        );
        target.assert_clean();
    });
}

#[test]
#[ignore = "needs root and servers"]
fn the_second_ctrl_c_ends_at_once_and_clean_removes_the_rest() {
    each(|target| {
        let Some(server) = &target.server else { return };
        let running = run(&[
            &[
                "--target",
                &target.uri,
                "--timeout",
                "60s",
                "--connect-timeout",
                "20s",
            ],
            LOAD,
        ]
        .concat());
        running.until_measuring(&target.uri, 2);
        let children = running.children();
        server.pause();
        running.signal(Signal::INT);
        std::thread::sleep(seconds(1));
        running.signal(Signal::INT);
        // Far below the timeouts that it would wait for.
        let ended = running.killed(seconds(5));
        ended.exits(130).has(target.protocol(), &["ok"]);
        gone(&children);
        server.resume();
        assert!(!target.is_clean(), "nobody removed it");
        clean(&target.uri);
        target.assert_clean();
    });
}

#[test]
#[ignore = "needs root and servers"]
fn sigkill_takes_the_children_along_and_clean_removes_the_rest() {
    each(|target| {
        let running = run(&[&["--target", &target.uri, "--iodepth", "4"], LOAD].concat());
        running.until_measuring(&target.uri, 2);
        let children = running.children();
        if target.protocol() == "smb" {
            assert!(
                children.len() >= 5,
                "four lanes and the control side: {children:?}"
            );
        }
        running.signal(Signal::KILL);
        let ended = running.killed(seconds(5));
        assert_eq!(ended.code, None);
        ended.has(target.protocol(), &["ok"]);
        gone(&children);
        assert!(!target.is_clean(), "nobody removed it");
        clean(&target.uri);
        target.assert_clean();
    });
}

/// These processes end within a moment.
fn gone(children: &[i32]) {
    let deadline = std::time::Instant::now() + seconds(5);
    let alive = || {
        processes::all()
            .iter()
            .any(|one| children.contains(&one.pid) && one.lives())
    };
    while alive() {
        assert!(
            std::time::Instant::now() < deadline,
            "of {children:?} some still run"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Silent from shortly before the end of a timed measurement until after it: for longer than what was left of it, and
/// for less than an operation may take until then.
fn silent_at_the_end(kind: Kind) {
    let server = Server::start(kind);
    let uri = server.uri();
    let running = run(&[
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--size",
        "4M",
        "--runtime",
        "3s",
        "--ramp-time",
        "0s",
        "--target",
        &uri,
    ]);
    running.until_measuring(&uri, 1);
    // A second and a half are left, give or take what a busy machine loses; the timeout is two.
    std::thread::sleep(std::time::Duration::from_millis(1300));
    server.pause();
    let ended = running.ends(seconds(40));
    ended.exits(1).has(server.protocol(), &["server_lost"]);
    ended.says(&[
        "nasgauge: ",
        "failed while removing the test data",
        "nasgauge clean URI",
    ]);
    server.resume();
    clean(&uri);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_silent_just_before_the_end() {
    std::thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || silent_at_the_end(kind));
        }
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_server_silent_at_cleanup_time() {
    std::thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || {
                let server = Server::start(kind);
                let uri = server.uri();
                let mut load = vec![
                    "--rw",
                    "randread",
                    "--bs",
                    "4k",
                    "--size",
                    "4M",
                    "--runtime",
                    "1s",
                    "--ramp-time",
                    "0s",
                ];
                // The long simulation between the last look at the server and the cleaning.
                load.extend(["--target", &uri, "--target", "sim:?latency=2ms"]);
                let running = run(&load);
                running.until_measuring("sim:?latency=2ms", 1);
                server.pause();
                let ended = running.ends(seconds(40));
                ended
                    .exits(1)
                    .has(server.protocol(), &["ok"])
                    .has("sim", &["ok"]);
                ended.says(&[
                    "nasgauge: ",
                    "failed while removing the test data",
                    "nasgauge clean URI",
                ]);
                server.resume();
                clean(&uri);
                server.assert_clean();
            });
        }
    });
}

#[test]
fn ctrl_c_while_nobody_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("free");
    let port = listener.local_addr().expect("bound").port();
    let uris = [
        format!("nfs://127.0.0.1:{port}/export?mountport={port}"),
        format!("smb://bench@127.0.0.1:{port}/share"),
        format!("iscsi://127.0.0.1:{port}/iqn.2026-11.dev.nasgauge:none/1"),
    ];
    std::thread::scope(|scope| {
        for uri in &uris {
            scope.spawn(move || {
                let load = [
                    "--rw",
                    "read",
                    "--size",
                    "1M",
                    "--runtime",
                    "1s",
                    "--target",
                    uri,
                ];
                // The second target is not tried any more.
                let running = run(&[&load[..], &["--target", "sim:?latency=2ms"]].concat());
                running.until_it_says("workloads");
                std::thread::sleep(std::time::Duration::from_millis(300));
                running.signal(Signal::INT);
                let ended = running.ends(seconds(15));
                ended.exits(130).says(&["stopped on request"]);
                assert!(ended.rows.is_empty(), "{:?}", ended.rows);
            });
        }
    });
}
