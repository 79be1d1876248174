//! Plain clients for the servers' own tests: each writes, reads back, compares and removes.
//!
//! Must not know: nasgauge's own clients, which are tested against these servers elsewhere.

use super::Server;

#[cfg(feature = "iscsi")]
pub mod iscsi;
pub mod nfs;
#[cfg(feature = "smb")]
pub mod smb;

/// Sizes and offsets that every server must take; the last ones lie beyond 4 GiB.
pub const PIECES: &[(u64, usize)] = &[
    (0, 1),
    (1, 4095),
    (4096, 4096),
    (1 << 20, (1 << 20) + 1),
    ((5 << 30) + 511, 4097),
];

/// Bytes that differ from place to place.
pub fn payload(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| ((offset + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// A new empty directory of the sandbox for one test, removed with it.
pub fn work(name: &str) -> tempfile::TempDir {
    let directory = super::sandbox::Sandbox::work_dir();
    let prefix = format!("test-{name}-");
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(directory)
        .expect("this test needs nasgauge's sandbox: run ./test, or cargo test inside it")
}

/// Nobody listens on a port of any address any more.
pub fn assert_closed(port: u16) {
    assert!(listeners(port).is_empty(), "{:?}", listeners(port));
}

/// A port is listened on, on 127.0.0.1 and nowhere else.
pub fn assert_loopback_only(port: u16) {
    assert_eq!(listeners(port), ["0100007F"]);
}

/// The addresses, as the kernel writes them, on which a port is listened on in this network.
fn listeners(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let suffix = format!(":{port:04X}");
    tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // State 0A is LISTEN.
            (fields[3] == "0A")
                .then(|| fields[1].strip_suffix(&suffix))
                .flatten()
        })
        .map(str::to_owned)
        .collect()
}
