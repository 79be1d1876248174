//! Mounted btrfs file systems and how they spread data, from /sys/fs/btrfs (btrfs-progs, ch-sysfs).
//!
//! Must not know: where they are mounted. The UUID is not kept: it tells nothing about speed. Sizes are in bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names, number, some};

/// One file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Its label; None without one.
    pub label: Option<String>,
    /// The block devices that it spreads over, as the kernel names them.
    pub devices: Vec<String>,
    /// Devices that should be there but are not; None before Linux 5.6.
    pub missing: Option<u32>,
    /// How data is spread: `single`, `dup`, `raid0`, `raid1`, `raid1c3`, `raid10`, `raid5`, `raid6`; several, joined by
    /// `+`, while it is converted.
    pub data_profile: Option<String>,
    /// How metadata is spread.
    pub metadata_profile: Option<String>,
    /// Space of data profiles.
    pub data_bytes: Option<u64>,
    /// How much of it is in use.
    pub data_used_bytes: Option<u64>,
    /// What is being done to it: `none`, `balance`, `device replace` ..; None before Linux 5.10.
    pub exclusive_operation: Option<String>,
}

/// The file systems; None without btrfs.
#[must_use]
pub fn read(root: &Path) -> Option<Vec<Filesystem>> {
    let directory = root.join("sys/fs/btrfs");
    let found = names(&directory)
        .into_iter()
        .map(|name| directory.join(name))
        // `features` and `debug` stand beside the file systems.
        .filter(|path| path.join("allocation").is_dir())
        .map(|path| one(&path));
    some(found.collect())
}

fn one(directory: &Path) -> Filesystem {
    let profile = |kind: &str| {
        let space = directory.join("allocation").join(kind);
        // Each profile in use has a directory of its own beside the counters.
        let mut profiles = names(&space);
        profiles.retain(|name| space.join(name).join("total_bytes").is_file());
        (!profiles.is_empty()).then(|| profiles.join("+"))
    };
    let missing: Vec<u32> = names(&directory.join("devinfo"))
        .iter()
        .filter_map(|id| number(&directory.join("devinfo").join(id).join("missing")))
        .collect();
    let data = |file: &str| number(&directory.join("allocation/data").join(file));
    Filesystem {
        label: line(&directory.join("label")),
        devices: names(&directory.join("devices")),
        missing: some(missing).map(|missing| {
            missing
                .iter()
                .fold(0, |sum: u32, one| sum.saturating_add(*one))
        }),
        data_profile: profile("data"),
        metadata_profile: profile("metadata"),
        data_bytes: data("total_bytes"),
        data_used_bytes: data("bytes_used"),
        exclusive_operation: line(&directory.join("exclusive_operation")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn profiles_and_devices_are_told() {
        let tree = machines::tree("bare-metal");
        let found = &read(tree.path()).expect("composed")[0];
        assert_eq!(found.label.as_deref(), Some("backup"));
        assert_eq!(found.devices, ["sda3", "sdb3"]);
        assert_eq!(found.data_profile.as_deref(), Some("raid0+raid1"));
        assert_eq!(found.metadata_profile.as_deref(), Some("raid1"));
        assert_eq!(found.missing, Some(1));
        assert_eq!(found.exclusive_operation.as_deref(), Some("balance"));
        assert_eq!(found.data_bytes, Some(1_099_511_627_776));
        for other in ["vm", "zfs-nas", "empty"] {
            assert_eq!(read(machines::tree(other).path()), None, "{other}");
        }
    }
}
