//! Who a block device is, from its directory in `/sys`.
//!
//! The serial number is what `--destroy` must name, so one serial stands for one range of blocks: a partition has
//! its disk's with `-partN` after it, and a loop device, which has none, is known by its file as `loop:/path`.
//! Must not know: who uses the device.

use std::path::Path;

use crate::probe::disk::Disk;
use crate::probe::{line, number};

/// The serial number; empty when the device has none.
#[must_use]
pub fn serial(disk: &Disk) -> String {
    if let Some((whole, partition)) = disk.parent() {
        let serial = serial(&whole);
        return if serial.is_empty() {
            serial
        } else {
            format!("{serial}-part{partition}")
        };
    }
    let at = |path: &str| disk.directory().join(path);
    let first = ["serial", "device/serial"]
        .iter()
        .find_map(|path| line(&at(path)));
    let named = first
        .or_else(|| unit_serial(&at("device/vpd_pg80")))
        // A world wide name is as unique as a serial number.
        .or_else(|| line(&at("wwid")))
        .or_else(|| line(&at("device/wwid")))
        .or_else(|| line(&at("dm/uuid")))
        .or_else(|| line(&at("md/uuid")))
        .or_else(|| line(&at("loop/backing_file")).map(|file| format!("loop:{file}")));
    named.unwrap_or_default()
}

/// SCSI's page 0x80 as the disk sent it: four bytes of header, then the serial number.
fn unit_serial(path: &Path) -> Option<String> {
    let page = std::fs::read(path).ok()?;
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = page.get(4..4 + length).or_else(|| page.get(4..))?;
    let text = String::from_utf8_lossy(text);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Vendor and model, or the kind of device; the kernel's name at least.
#[must_use]
pub fn model(disk: &Disk) -> String {
    if let Some((whole, partition)) = disk.parent() {
        return format!("partition {partition} of {}", model(&whole));
    }
    let at = |path: &str| line(&disk.directory().join(path));
    if let Some(model) = at("device/model").or_else(|| at("device/name")) {
        return match at("device/vendor") {
            // PCI-born devices have a number there, libata the word ATA.
            Some(vendor) if !vendor.starts_with("0x") && vendor != "ATA" => {
                format!("{vendor} {model}")
            }
            _ => model,
        };
    }
    if let Some(name) = at("dm/name") {
        return format!("device mapper {name}");
    }
    if let Some(level) = at("md/level") {
        return format!("md {level}");
    }
    if disk.directory().join("loop").exists() || disk.name.starts_with("loop") {
        return "loop device".to_owned();
    }
    disk.name.clone()
}

/// Whether the device refuses writes.
#[must_use]
pub fn write_protected(disk: &Disk) -> bool {
    number::<u8>(&disk.directory().join("ro")) == Some(1)
}
