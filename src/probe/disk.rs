//! The disk behind a path and what it has done, from `/sys` (Documentation/block/stat.rst).
//!
//! Network and memory file systems have none, and ZFS and overlays hide theirs: then it is None. Must not know: what
//! is done with the counters. Sizes are in bytes, times in milliseconds as the kernel counts them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::probe::{line, mount, number};

/// `/sys` counts in sectors of this many bytes, whatever the device's own block is.
pub const SECTOR: u64 = 512;

/// Counters of a block device since it appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that reads took, summed over all of them.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time that writes took, summed over all of them.
    pub write_ms: u64,
    /// Time in which at least one operation was under way.
    pub busy_ms: u64,
    /// Time that operations took, summed; divided by the time passed it is the mean queue.
    pub queue_ms: u64,
    /// Flushes completed; None before Linux 5.5.
    pub flushes: Option<u64>,
}

impl Counters {
    /// Reads the text of a `stat` file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_ascii_whitespace()
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let at = |index: usize| fields.get(index).copied();
        Some(Self {
            reads: at(0)?,
            read_bytes: at(2)?.checked_mul(SECTOR)?,
            read_ms: at(3)?,
            writes: at(4)?,
            write_bytes: at(6)?.checked_mul(SECTOR)?,
            write_ms: at(7)?,
            busy_ms: at(9)?,
            queue_ms: at(10)?,
            flushes: at(15),
        })
    }

    /// What happened since an earlier reading; None when the device was replaced in between.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            reads: self.reads.checked_sub(earlier.reads)?,
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            read_ms: self.read_ms.checked_sub(earlier.read_ms)?,
            writes: self.writes.checked_sub(earlier.writes)?,
            write_bytes: self.write_bytes.checked_sub(earlier.write_bytes)?,
            write_ms: self.write_ms.checked_sub(earlier.write_ms)?,
            busy_ms: self.busy_ms.checked_sub(earlier.busy_ms)?,
            queue_ms: self.queue_ms.checked_sub(earlier.queue_ms)?,
            flushes: self
                .flushes
                .zip(earlier.flushes)
                .and_then(|(now, then)| now.checked_sub(then)),
        })
    }
}

/// A block device: a disk, a partition, or one made of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name: `sda1`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// Major and minor number.
    pub device: (u32, u32),
    /// Its directory in `/sys`.
    directory: PathBuf,
}

impl Disk {
    /// The block device of that number.
    #[must_use]
    pub fn of_device(device: (u32, u32)) -> Option<Self> {
        Self::under(Path::new("/sys"), device)
    }

    /// The same in another tree than `/sys`.
    #[must_use]
    pub fn under(sys: &Path, device: (u32, u32)) -> Option<Self> {
        let link = sys.join(format!("dev/block/{}:{}", device.0, device.1));
        let directory = link.canonicalize().ok()?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        Some(Self {
            name,
            device,
            directory,
        })
    }

    /// The device that holds an existing file or directory, or that a device node stands for.
    #[must_use]
    pub fn behind(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        if metadata.file_type().is_block_device() {
            return Self::of_device(numbers(metadata.rdev()));
        }
        if let Some(disk) = Self::of_device(numbers(metadata.dev())) {
            return Some(disk);
        }
        // btrfs gives its files a number of its own, but is mounted from a device.
        let mount = mount::of(path)?;
        let source = Path::new(&mount.source);
        let node = source.is_absolute().then(|| source.metadata().ok())??;
        if mount.is_network() || !node.file_type().is_block_device() {
            return None;
        }
        Self::of_device(numbers(node.rdev()))
    }

    /// Whether a path is the node of this very device.
    #[must_use]
    pub fn is_node(&self, path: &Path) -> bool {
        path.metadata().is_ok_and(|metadata| {
            metadata.file_type().is_block_device() && numbers(metadata.rdev()) == self.device
        })
    }

    /// Its directory in `/sys`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The disk that this is a partition of, with the partition's number; None for a whole disk.
    #[must_use]
    pub fn parent(&self) -> Option<(Self, u32)> {
        let partition = number(&self.directory.join("partition"))?;
        let directory = self.directory.parent()?.to_owned();
        let disk = Self {
            name: directory.file_name()?.to_string_lossy().into_owned(),
            device: numbers_in(&line(&directory.join("dev"))?)?,
            directory,
        };
        Some((disk, partition))
    }

    /// The partitions of this disk, by name.
    #[must_use]
    pub fn partitions(&self) -> Vec<Self> {
        let mut found: Vec<Self> = entries(&self.directory)
            .into_iter()
            .filter(|path| path.join("partition").exists())
            .filter_map(|directory| {
                Some(Self {
                    name: directory.file_name()?.to_string_lossy().into_owned(),
                    device: numbers_in(&line(&directory.join("dev"))?)?,
                    directory,
                })
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Its counters now.
    #[must_use]
    pub fn counters(&self) -> Option<Counters> {
        Counters::parse(&line(&self.directory.join("stat"))?)
    }

    /// The length of a logical block; a partition has its disk's.
    #[must_use]
    pub fn logical_block(&self) -> Option<u32> {
        let own = number(&self.directory.join("queue/logical_block_size"));
        own.or_else(|| number(&self.parent()?.0.directory.join("queue/logical_block_size")))
    }
}

/// Major and minor number of a `dev_t`.
#[must_use]
pub fn numbers(device: u64) -> (u32, u32) {
    (major(device), minor(device))
}

/// `8:1` as numbers.
fn numbers_in(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The paths in a directory; none when it is not there.
#[must_use]
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a virtual disk, Linux 6.18.
    const STAT: &str = "  100360    27479 10162402    87399    18662    54546 13206032    56385        0    25972   144454     5538       56   543544      596     1894       72\n";

    #[test]
    fn sectors_become_bytes() {
        let counters = Counters::parse(STAT).expect("a stat line");
        assert_eq!(counters.read_bytes, 10_162_402 * 512);
        assert_eq!(counters.write_bytes, 13_206_032 * 512);
        assert_eq!((counters.busy_ms, counters.queue_ms), (25_972, 144_454));
        assert_eq!(counters.flushes, Some(1894));
    }

    #[test]
    fn an_old_kernel_counts_no_flushes_and_garbage_is_nothing() {
        let old = Counters::parse("1 2 3 4 5 6 7 8 9 10 11").expect("eleven fields");
        assert_eq!(old.flushes, None);
        assert_eq!(Counters::parse("1 2 3"), None);
        assert_eq!(Counters::parse("a b"), None);
        assert_eq!(Counters::parse(""), None);
    }

    #[test]
    fn a_replaced_device_has_no_difference() {
        let now = Counters::parse(STAT).expect("a stat line");
        assert_eq!(now.since(&now).map(|d| d.read_bytes), Some(0));
        assert_eq!(Counters::default().since(&now), None);
    }

    #[test]
    fn memory_and_proc_have_no_disk() {
        assert_eq!(Disk::behind(Path::new("/proc/self/stat")), None);
        assert_eq!(Disk::behind(Path::new("/does/not/exist")), None);
    }
}
