//! Bytes that this process moved from and to storage, from /proc/self/io (`proc_pid_io(5)`): what the page cache answered is
//! not in it, and neither is what child processes moved.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{keyed, line};

/// A reading of /proc/self/io, or the difference of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes sent, or marked to be sent, to storage.
    pub write_bytes: u64,
}

/// The counters now; None where the kernel does not tell.
#[must_use]
pub fn read(root: &Path) -> Option<Io> {
    Io::parse(&line(&root.join("proc/self/io"))?)
}

impl Io {
    /// Reads /proc/self/io's text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self {
            read_bytes: keyed(text, "read_bytes")?,
            write_bytes: keyed(text, "write_bytes")?,
        })
    }

    /// What was moved since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            write_bytes: self.write_bytes.checked_sub(earlier.write_bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn storage_bytes_are_not_call_bytes() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 1\n";
        let found = Io::parse(text).expect("two keys");
        assert_eq!((found.read_bytes, found.write_bytes), (4096, 512));
        assert_eq!(Io::parse("rchar: 9\n"), None);
        assert_eq!(found.since(&found).map(|io| io.read_bytes), Some(0));
    }

    #[test]
    fn each_machine_tells_what_it_can() {
        assert!(read(machines::tree("vm").path()).is_some());
        assert_eq!(
            read(machines::tree("bare-metal").path()),
            None,
            "a kernel without the count"
        );
        assert_eq!(read(machines::tree("empty").path()), None);
    }
}
