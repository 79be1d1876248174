//! Peers that talk nonsense, or hang up in the middle of a word.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{run, seconds};

/// What a peer does with each connection.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    /// Hangs up at once.
    HangsUp,
    /// Answers the first request with random bytes, again and again.
    Babbles,
    /// Says random bytes before it was asked, then hangs up.
    Blurts,
    /// Answers with a length that never comes, then is silent.
    Promises,
    /// Sends every request back.
    Echoes,
    /// Another service's greeting.
    Greets,
}

pub const MANNERS: [Manner; 6] = [
    Manner::HangsUp,
    Manner::Babbles,
    Manner::Blurts,
    Manner::Promises,
    Manner::Echoes,
    Manner::Greets,
];

/// A listener with such a manner, ended on drop.
pub struct Peer {
    pub port: u16,
    over: Arc<AtomicBool>,
}

impl Peer {
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free");
        let port = listener.local_addr().expect("bound").port();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        std::thread::spawn(move || {
            for (number, connection) in (1..).zip(listener.incoming()) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                std::thread::spawn(move || behave(manner, connection, number));
            }
        });
        Self { port, over }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Ends with the connection, which the program under test closes.
fn behave(manner: Manner, mut connection: TcpStream, seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut noise = move |len: usize| -> Vec<u8> {
        let byte = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[0]
        };
        (0..len).map(byte).collect()
    };
    let mut request = [0; 4096];
    let _ = connection.set_read_timeout(Some(Duration::from_secs(20)));
    match manner {
        Manner::HangsUp => return,
        Manner::Blurts => {
            let _ = connection.write_all(&noise(300));
            return;
        }
        Manner::Greets => {
            let _ = connection.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        }
        Manner::Babbles | Manner::Promises | Manner::Echoes => {}
    }
    while let Ok(len @ 1..) = connection.read(&mut request) {
        let answer = match manner {
            Manner::Babbles => noise(48 + len % 100),
            Manner::Echoes => request[..len].to_vec(),
            // The last fragment of an RPC, or a NetBIOS frame, of nearly 16 MiB.
            Manner::Promises => vec![0x80, 0xff, 0xff, 0xf0, 1, 2, 3, 4],
            _ => continue,
        };
        if connection.write_all(&answer).is_err() {
            return;
        }
    }
}

fn nonsense(manner: Manner, protocol: &str) {
    let peer = Peer::start(manner);
    let port = peer.port;
    let uri = match protocol {
        "nfs" => format!("nfs://127.0.0.1:{port}/export?mountport={port}"),
        "smb" => format!("smb://bench@127.0.0.1:{port}/share"),
        _ => format!("iscsi://127.0.0.1:{port}/iqn.2026-11.dev.nasgauge:none/1"),
    };
    let ended = run(&[
        "--rw",
        "read",
        "--size",
        "1M",
        "--runtime",
        "1s",
        "--ramp-time",
        "0s",
        "--target",
        &uri,
        "--target",
        "sim:?latency=2ms",
    ])
    .ends(seconds(20));
    ended
        .exits(1)
        .says(&["failed while", &uri])
        .has("sim", &["ok"]);
    let statuses = ended.statuses(protocol);
    assert!(
        matches!(statuses[..], ["failed" | "server_lost"]),
        "{manner:?} {protocol}: {ended:?}"
    );
}

fn each(protocol: &str) {
    std::thread::scope(|scope| {
        for manner in MANNERS {
            scope.spawn(move || nonsense(manner, protocol));
        }
    });
}

#[test]
fn an_nfs_port_that_talks_nonsense() {
    each("nfs");
}

#[test]
fn an_smb_port_that_talks_nonsense() {
    each("smb");
}

#[test]
fn an_iscsi_port_that_talks_nonsense() {
    each("iscsi");
}
