//! The bus between a card or disk and the processor: PCI Express links from the device up to the root port, and the
//! narrowest of them. A 40 Gbit/s card in a slot of four PCI Express 2.0 lanes can't do more than 16 Gbit/s.
//!
//! From /sys, whose files are described in the kernel's Documentation/ABI/testing/sysfs-bus-pci. Must not know: what the
//! device does. Speeds are in million transfers a second and lane, usable rates in bytes a second and direction.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::probe::disk::entries;
use crate::probe::{line, number};

/// One device on the way, with the link above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The device at the lower end: `0000:01:00.0`.
    pub device: String,
    /// The speed now.
    pub speed_mt_per_s: Option<u32>,
    /// Lanes in use.
    pub width: Option<u32>,
    /// The speed that this device could do.
    pub speed_max_mt_per_s: Option<u32>,
    /// The lanes that this device has.
    pub width_max: Option<u32>,
}

/// The way from a device to the processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Links from the device up to the root port; empty where /sys tells none (a virtual machine's devices).
    pub links: Vec<Link>,
    /// The memory that the device is near to; None where there is one kind only.
    pub numa_node: Option<u32>,
}

/// Million transfers a second and lane of the generations 1 to 6.
const GENERATIONS: [u32; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];

/// Bytes a second that a link carries in each direction after the line code: 8b/10b at 2.5 and 5 GT/s, 128b/130b at 8 to
/// 32 GT/s (PCI Express Base Specification 5.0, 4.2.1 and 4.2.2), 242 of 256 bytes a flit at 64 GT/s (6.0, 4.2.3).
///
/// An upper bound: packet headers take another 5 to 20 % of it, by the payload size that the machine chose.
#[must_use]
pub fn usable_bytes_per_s(speed_mt_per_s: u32, width: u32) -> f64 {
    let code = match speed_mt_per_s {
        ..=5_000 => 8.0 / 10.0,
        5_001..=32_000 => 128.0 / 130.0,
        _ => 242.0 / 256.0,
    };
    f64::from(speed_mt_per_s) * 1e6 * f64::from(width) * code / 8.0
}

impl Link {
    /// What the link carries now.
    #[must_use]
    pub fn usable_bytes_per_s(&self) -> Option<f64> {
        Some(usable_bytes_per_s(self.speed_mt_per_s?, self.width?))
    }

    /// What the device at its lower end could use.
    #[must_use]
    pub fn possible_bytes_per_s(&self) -> Option<f64> {
        Some(usable_bytes_per_s(
            self.speed_max_mt_per_s?,
            self.width_max?,
        ))
    }

    /// The generation of the link now, 1 to 6.
    #[must_use]
    pub fn generation(&self) -> Option<u8> {
        let place = GENERATIONS
            .iter()
            .position(|speed| Some(*speed) == self.speed_mt_per_s)?;
        u8::try_from(place + 1).ok()
    }

    /// For people: `PCIe 2.0 x4`.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        Some(format!("PCIe {}.0 x{}", self.generation()?, self.width?))
    }
}

impl Way {
    /// The link that carries least; the one nearest the device among equals.
    #[must_use]
    pub fn narrowest(&self) -> Option<&Link> {
        let known = self
            .links
            .iter()
            .filter_map(|link| Some((link, link.usable_bytes_per_s()?)));
        let least = known.reduce(|least, next| if next.1 < least.1 { next } else { least });
        least.map(|(link, _)| link)
    }

    /// What can pass between the device and the processor in each direction.
    #[must_use]
    pub fn usable_bytes_per_s(&self) -> Option<f64> {
        self.narrowest()?.usable_bytes_per_s()
    }

    /// Whether the device itself could use more than the narrowest link gives it: a slot too small, or a shared one. None
    /// where that is not known.
    #[must_use]
    pub fn held_back(&self) -> Option<bool> {
        let possible = self.links.first()?.possible_bytes_per_s()?;
        Some(self.usable_bytes_per_s()? < possible * 0.99)
    }
}

/// The way of a network interface below `root`. Links are empty where it is no PCI device.
#[must_use]
pub fn of_interface(root: &Path, interface: &str) -> Way {
    of(&root.join("sys/class/net").join(interface).join("device"))
}

/// The way of a whole disk below `root`, through its controller.
#[must_use]
pub fn of_disk(root: &Path, disk: &str) -> Way {
    of(&root.join("sys/block").join(disk))
}

/// The ways of every card and every disk below `root`, by name; None where no PCI device is told of.
#[must_use]
pub fn read(root: &Path) -> Option<BTreeMap<String, Way>> {
    let names = |directory: &str| -> Vec<String> {
        let paths = entries(&root.join(directory));
        let names = paths.iter().filter_map(|path| path.file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    };
    let cards = names("sys/class/net").into_iter().map(|name| {
        let way = of_interface(root, &name);
        (name, way)
    });
    let disks = names("sys/block").into_iter().map(|name| {
        let way = of_disk(root, &name);
        (name, way)
    });
    let found: BTreeMap<_, _> = cards
        .chain(disks)
        .filter(|(_, way)| *way != Way::default())
        .collect();
    (!found.is_empty()).then_some(found)
}

/// The way of the device whose directory in /sys, or a link to it, is `directory`.
#[must_use]
pub fn of(directory: &Path) -> Way {
    let Ok(directory) = directory.canonicalize() else {
        return Way::default();
    };
    let devices: Vec<PathBuf> = directory
        .ancestors()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| is_address(&name.to_string_lossy()))
        })
        .map(Path::to_path_buf)
        .collect();
    Way {
        // The nearest device that knows; -1 where the machine has one kind of memory.
        numa_node: devices
            .iter()
            .find_map(|path| number(&path.join("numa_node"))),
        links: devices.iter().filter_map(|path| link(path)).collect(),
    }
}

/// The link above a PCI device; None when it tells neither speed nor width: it is not PCI Express.
fn link(path: &Path) -> Option<Link> {
    let lanes = |name: &str| {
        // A device behind an empty or sleeping link says 0, one that does not know 255.
        number::<u32>(&path.join(name)).filter(|lanes| (1..=32).contains(lanes))
    };
    let link = Link {
        device: path.file_name()?.to_string_lossy().into_owned(),
        speed_mt_per_s: line(&path.join("current_link_speed")).and_then(|text| transfers(&text)),
        width: lanes("current_link_width"),
        speed_max_mt_per_s: line(&path.join("max_link_speed")).and_then(|text| transfers(&text)),
        width_max: lanes("max_link_width"),
    };
    (link.speed_mt_per_s.is_some() || link.width.is_some()).then_some(link)
}

/// `8.0 GT/s PCIe`, older kernels `8 GT/s`, in million transfers a second.
fn transfers(text: &str) -> Option<u32> {
    let (number, rest) = text.split_once(' ')?;
    if !rest.trim_start().starts_with("GT/s") {
        return None;
    }
    let transfers = number.parse::<f64>().ok()? * 1000.0;
    (1000.0..=1e6)
        .contains(&transfers)
        .then_some(transfers.round() as u32)
}

/// Whether a name is a PCI address: domain, bus, device, function, as `0000:01:00.0`.
fn is_address(name: &str) -> bool {
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else {
        return false;
    };
    hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::probe::net::machines::tree;

    #[test]
    fn a_fast_card_in_a_narrow_slot_comes_out() {
        let tree = tree("bare-metal");
        let way = of_interface(tree.path(), "eth0");
        assert_eq!(way.links.len(), 2, "{way:?}");
        let narrowest = way.narrowest().expect("known");
        assert_eq!(narrowest.words().as_deref(), Some("PCIe 2.0 x4"));
        // 16 Gbit/s for a card of 40.
        assert_eq!(way.usable_bytes_per_s(), Some(2e9));
        assert_eq!(way.held_back(), Some(true));
        assert_eq!(way.numa_node, Some(0));
    }

    #[test]
    fn one_lane_above_a_switch_is_the_narrowest_link() {
        let tree = tree("bare-metal");
        let way = of_interface(tree.path(), "eth1");
        let devices: Vec<_> = way.links.iter().map(|link| link.device.as_str()).collect();
        assert_eq!(
            devices,
            [
                "0000:06:00.0",
                "0000:05:01.0",
                "0000:04:00.0",
                "0000:00:1c.4"
            ]
        );
        let narrowest = way.narrowest().expect("known");
        assert_eq!(narrowest.device, "0000:04:00.0", "the nearest of equals");
        assert_eq!(narrowest.words().as_deref(), Some("PCIe 2.0 x1"));
        assert_eq!(way.usable_bytes_per_s(), Some(0.5e9));
        assert_eq!(way.held_back(), Some(true));
    }

    #[test]
    fn disks_and_fitting_cards_and_virtual_machines() {
        let server = tree("bare-metal");
        let disk = of_disk(server.path(), "nvme0n1");
        let words = disk.narrowest().and_then(Link::words);
        assert_eq!(words.as_deref(), Some("PCIe 3.0 x4"));
        assert_eq!(disk.held_back(), Some(true), "the disk could do PCIe 4.0");
        let nas = tree("zfs-nas");
        let card = of_interface(nas.path(), "enp2s0f0");
        assert_eq!(card.held_back(), Some(false));
        assert_eq!(card.usable_bytes_per_s(), Some(4e9));
        let disk = of_disk(nas.path(), "sda");
        assert_eq!(disk.links[0].device, "0000:03:00.0", "the controller");
        let vm = tree("vm");
        let way = of_interface(vm.path(), "eth0");
        assert!(way.links.is_empty() && way.numa_node.is_none());
        assert_eq!((way.usable_bytes_per_s(), way.held_back()), (None, None));
        assert_eq!(of_interface(vm.path(), "lo"), Way::default());
        assert_eq!(of_disk(tree("empty").path(), "sda"), Way::default());
        let all = read(server.path()).expect("two cards and a disk");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["eth0", "eth1", "nvme0n1"]);
        assert_eq!(read(tree("empty").path()), None);
    }

    #[test]
    fn usable_rates_are_those_of_the_line_codes() {
        // GB/s in each direction, as tables of PCI Express have them.
        let table = [
            (2_500, 1, 0.250),
            (5_000, 4, 2.000),
            (5_000, 1, 0.500),
            (8_000, 4, 3.938),
            (8_000, 8, 7.877),
            (16_000, 4, 7.877),
            (32_000, 16, 63.015),
            (64_000, 1, 7.563),
        ];
        for (speed, width, expected) in table {
            let rate = usable_bytes_per_s(speed, width) / 1e9;
            assert!((rate - expected).abs() < 0.001, "{speed} x{width}: {rate}");
        }
    }

    #[test]
    fn speeds_are_read_in_every_kernel_s_words() {
        assert_eq!(transfers("8.0 GT/s PCIe"), Some(8_000));
        assert_eq!(transfers("2.5 GT/s"), Some(2_500));
        assert_eq!(transfers("8 GT/s"), Some(8_000));
        assert_eq!(transfers("Unknown"), None);
        assert_eq!(transfers("Unknown speed"), None);
    }

    #[test]
    fn addresses_are_told_from_other_names() {
        for name in ["0000:01:00.0", "10000:e1:00.0", "0000:0a:1f.7"] {
            assert!(is_address(name), "{name}");
        }
        for name in [
            "pci0000:00",
            "0000:01:00",
            "eth0",
            "virtio2",
            "0000:01:00.0:pcie01",
            "1:0:0:0",
        ] {
            assert!(!is_address(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,40}") {
            let _ = (transfers(&text), is_address(&text));
        }
    }
}
