//! Why this computer's system needs a block device: mounts, swap, arrays and volumes on it, loop devices over it.
//!
//! A disk is needed when any of its partitions is; a partition is needed when its whole disk is. Device numbers
//! decide, names are for the reader. Must not know: what a run would do to the device.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::probe::disk::{Disk, entries, numbers};
use crate::probe::line;
use crate::probe::mount::{self, unescape};

/// A device's number.
type Number = (u32, u32);

/// What the system tells about its use of devices.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Mounted devices, with the mount point.
    pub mounts: Vec<(Number, String)>,
    /// Devices that are swapped to, with their names.
    pub swaps: Vec<(Number, String)>,
    /// Devices that loop devices lie on, with the loop device's name.
    pub loops: Vec<(Number, String)>,
}

impl Evidence {
    /// Asks this computer.
    #[must_use]
    pub fn gather() -> Self {
        let mounts = mount::all();
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            mounts: mounts
                .iter()
                .flat_map(|mount| {
                    let point = mount.point.display().to_string();
                    // btrfs and ZFS mount under a number of their own; then the source may name a device.
                    let source = number_of(Path::new(&mount.source));
                    [Some(mount.device), source]
                        .into_iter()
                        .flatten()
                        .map(move |number| (number, point.clone()))
                })
                .collect(),
            swaps: swaps(&read("/proc/swaps"), number_of),
            loops: entries(Path::new("/sys/block"))
                .iter()
                .filter_map(|block| {
                    let backing = line(&block.join("loop/backing_file"))?;
                    let name = block.file_name()?.to_string_lossy().into_owned();
                    Some((number_of(Path::new(&backing))?, name))
                })
                .collect(),
        }
    }
}

/// The number of a device node; None for anything else.
fn number_of(path: &Path) -> Option<Number> {
    let metadata = path.is_absolute().then(|| path.metadata().ok())??;
    metadata
        .file_type()
        .is_block_device()
        .then(|| numbers(metadata.rdev()))
}

/// The devices in the text of `/proc/swaps`.
fn swaps(text: &str, number_of: impl Fn(&Path) -> Option<Number>) -> Vec<(Number, String)> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let name = unescape(line.split_ascii_whitespace().next()?);
            Some((number_of(Path::new(&name))?, name))
        })
        .collect()
}

/// Everything that speaks against writing to a device, one sentence each.
#[must_use]
pub fn reasons(disk: &Disk, evidence: &Evidence) -> Vec<String> {
    let partitions = disk.partitions();
    let mut reasons = BTreeSet::new();
    if !partitions.is_empty() {
        let names: Vec<&str> = partitions.iter().map(|one| one.name.as_str()).collect();
        reasons.insert(format!(
            "{} has partitions: {}",
            disk.name,
            names.join(", ")
        ));
    }
    let whole = disk.parent().map(|(whole, _)| whole);
    for one in std::iter::once(disk).chain(&partitions).chain(&whole) {
        reasons.extend(uses(one, evidence));
    }
    reasons.into_iter().collect()
}

/// The direct uses of one device.
fn uses(disk: &Disk, evidence: &Evidence) -> Vec<String> {
    let name = &disk.name;
    let mut found = Vec::new();
    let with = |list: &'_ [(Number, String)]| -> Vec<String> {
        list.iter()
            .filter(|(number, _)| *number == disk.device)
            .map(|(_, what)| what.clone())
            .collect()
    };
    for point in with(&evidence.mounts) {
        found.push(format!("{name} is mounted at {point}"));
    }
    for _ in with(&evidence.swaps) {
        found.push(format!("{name} is swap space in use"));
    }
    for other in with(&evidence.loops) {
        found.push(format!("{name} lies under the loop device {other}"));
    }
    for holder in entries(&disk.directory().join("holders")) {
        let Some(holder) = holder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            continue;
        };
        // A volume's name says more than its number.
        let title = line(
            &disk
                .directory()
                .join("holders")
                .join(&holder)
                .join("dm/name"),
        );
        let title = title.map(|title| format!(" ({title})")).unwrap_or_default();
        found.push(format!("{name} is part of {holder}{title}"));
    }
    found
}
