//! Facts about this computer, read from `/proc` and `/sys` around a run.
//!
//! Every reader is a pure function of saved text or of a directory tree, so that it is tested on other people's
//! machines; what can't be known is None. Must not know: targets, workloads, stages. Sizes are in bytes.

pub mod cpu;
pub mod disk;
pub mod host;
pub mod irq;
pub mod mount;
pub mod names;
pub mod net;
pub mod path_mtu;
pub mod pcie;
pub mod process;
pub mod sockets;

use std::fs;
use std::path::Path;

/// A small file of `/proc` or `/sys` without its last line break; None when it is missing or empty.
#[must_use]
pub fn line(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes)
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .to_owned();
    (!text.is_empty()).then_some(text)
}

/// A small file that holds one number.
#[must_use]
pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    line(path)?.parse().ok()
}
