//! `nasgauge targets` against peers that talk nonsense, say nothing, or are not reached.

use std::net::TcpListener;

use crate::garbage::{MANNERS, Peer};
use crate::harness::{Ended, Start, seconds};

/// What a look may take; its own bound is 9 s, and many look side by side.
const BOUND: u64 = 15;

/// All four kinds of server at one port, as a user and as a guest.
fn look(port: u16, more: &[&str]) -> Ended {
    let flags =
        ["nfs", "mount", "smb", "iscsi", "iperf3"].map(|name| format!("--{name}-port={port}"));
    let mut line = vec!["targets", "127.0.0.1"];
    line.extend(flags.iter().map(String::as_str));
    line.extend(more);
    Start::new(&line).raw().ends(seconds(BOUND))
}

/// Nothing was found, and each kind of server has one line.
fn nothing(ended: &Ended, words: &str) {
    ended.exits(1);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{ended:?}");
    for (line, server) in
        lines
            .iter()
            .zip(["NFS server", "SMB server", "iSCSI target", "iperf3 server"])
    {
        assert!(
            line.starts_with(&format!("no {server} ")),
            "{line}: {ended:?}"
        );
        assert!(line.contains(words), "'{words}' in {line}");
    }
    assert_eq!(ended.stderr, "", "{ended:?}");
}

#[test]
fn ports_that_talk_nonsense() {
    std::thread::scope(|scope| {
        for manner in MANNERS {
            for more in [&[][..], &["--user", "me"]] {
                scope.spawn(move || {
                    let peer = Peer::start(manner);
                    eprintln!("{manner:?} {more:?}");
                    nothing(&look(peer.port, more), "");
                });
            }
        }
    });
}

#[test]
fn a_port_that_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free");
    let port = listener.local_addr().expect("bound").port();
    // The kernel takes the connections; nobody ever reads from them.
    nothing(&look(port, &[]), &format!("port {port}"));
}

#[test]
fn a_host_that_no_name_server_knows() {
    let ended = crate::harness::command(&["targets", "no-such-host.invalid"]);
    ended.exits(1);
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    assert!(ended.stdout.contains("no-such-host.invalid"), "{ended:?}");
}

#[test]
#[ignore = "needs root and servers"]
fn nothing_comes_through_a_firewall() {
    let port = 19_997;
    let _rules = crate::ports::Rules::drop(&[port]);
    nothing(&look(port, &[]), "no answer within 4 s");
}
