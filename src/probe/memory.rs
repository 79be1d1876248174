//! Memory in use and the kernel's rules for writing it out, from /proc/meminfo and /proc/sys/vm (`proc_meminfo(5)`,
//! Documentation/admin-guide/sysctl/vm.rst).
//!
//! Must not know: whose memory it is. Sizes are in bytes, times in hundredths of a second as the kernel has them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::host::meminfo;
use crate::probe::{line, number};

/// Memory at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total_bytes: Option<u64>,
    /// What programs can still take.
    pub available_bytes: Option<u64>,
    /// The page cache.
    pub cached_bytes: Option<u64>,
    /// Written by programs, not yet on its way to storage.
    pub dirty_bytes: Option<u64>,
    /// On its way to storage.
    pub writeback_bytes: Option<u64>,
}

/// When dirty pages are written: by bytes where those are not 0, else by share of the available memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writeback {
    /// Bytes from which a writer is made to write out itself.
    pub dirty_bytes: Option<u64>,
    /// The same as a share, in per cent.
    pub dirty_ratio: Option<u32>,
    /// Bytes from which the kernel writes in the background.
    pub dirty_background_bytes: Option<u64>,
    /// The same as a share, in per cent.
    pub dirty_background_ratio: Option<u32>,
    /// Age from which a page is written.
    pub dirty_expire_centisecs: Option<u32>,
    /// How often the kernel looks.
    pub dirty_writeback_centisecs: Option<u32>,
}

impl Memory {
    /// Reads the text of `/proc/meminfo`; None when nothing in it is known.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let found = Self {
            total_bytes: meminfo(text, "MemTotal"),
            available_bytes: meminfo(text, "MemAvailable"),
            cached_bytes: meminfo(text, "Cached"),
            dirty_bytes: meminfo(text, "Dirty"),
            writeback_bytes: meminfo(text, "Writeback"),
        };
        (found != Self::default()).then_some(found)
    }
}

/// Memory now.
#[must_use]
pub fn read(root: &Path) -> Option<Memory> {
    Memory::parse(&line(&root.join("proc/meminfo"))?)
}

/// The rules for dirty pages.
#[must_use]
pub fn writeback(root: &Path) -> Option<Writeback> {
    let at = |name: &str| root.join("proc/sys/vm").join(name);
    let found = Writeback {
        dirty_bytes: number(&at("dirty_bytes")),
        dirty_ratio: number(&at("dirty_ratio")),
        dirty_background_bytes: number(&at("dirty_background_bytes")),
        dirty_background_ratio: number(&at("dirty_background_ratio")),
        dirty_expire_centisecs: number(&at("dirty_expire_centisecs")),
        dirty_writeback_centisecs: number(&at("dirty_writeback_centisecs")),
    };
    (found != Writeback::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn dirty_is_not_total_and_keys_are_whole() {
        let memory =
            Memory::parse("MemTotal: 100 kB\nSwapCached: 9 kB\nDirty: 3 kB\nWritebackTmp: 7 kB\n")
                .expect("keys");
        assert_eq!(memory.total_bytes, Some(102_400));
        assert_eq!(memory.dirty_bytes, Some(3072));
        assert_eq!((memory.cached_bytes, memory.writeback_bytes), (None, None));
        assert_eq!(Memory::parse("hello\n"), None);
    }

    #[test]
    fn each_machine_has_its_memory() {
        let total = |name: &str| read(machines::tree(name).path())?.total_bytes;
        assert_eq!(total("vm"), Some(24_684_084 * 1024));
        assert_eq!(total("bare-metal"), Some(131_846_148 * 1024));
        assert_eq!(total("zfs-nas"), Some(65_730_572 * 1024));
        assert_eq!(total("empty"), None);
        let bytes = |name: &str| writeback(machines::tree(name).path())?.dirty_bytes;
        assert_eq!(bytes("vm"), Some(0), "the share rules");
        assert_eq!(bytes("bare-metal"), Some(1 << 30));
        assert_eq!(bytes("empty"), None);
    }
}
