//! Which cores do a network card's work: its interrupts and where they go, the kernel's packet queues per core, and
//! masks that spread packets. One full core limits a fast link while all others idle.
//!
//! From /proc/interrupts, /proc/irq, `/proc/net/softnet_stat` and /sys; formats after the kernel's
//! Documentation/filesystems/proc.rst and networking/scaling.rst. Must not know: traffic. Counts are since boot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::probe::disk::entries;
use crate::probe::{line, number};

/// Cores above this number are a damaged text.
const CORES_MAX: u32 = 65_536;

/// One interrupt of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// Its number.
    pub irq: u32,
    /// What the driver calls it: `eth0-TxRx-3`, `mlx5_comp3@pci:..`.
    pub name: String,
    /// How often it came, per core that is on.
    pub counts: BTreeMap<u32, u64>,
    /// The cores that it may go to.
    pub allowed: Option<Vec<u32>>,
    /// The cores that it does go to, where the kernel tells.
    pub effective: Option<Vec<u32>>,
}

/// The rows of /proc/interrupts that have a number.
#[must_use]
pub fn parse(text: &str) -> Vec<Vector> {
    let mut lines = text.lines();
    // Cores that are off have no column, so the numbers may have gaps.
    let cores: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    lines
        .filter_map(|line| {
            let (irq, rest) = line.split_once(':')?;
            let mut words = rest.split_ascii_whitespace().peekable();
            let mut counts = BTreeMap::new();
            for core in &cores {
                // Some rows count in fewer columns.
                let Some(count) = words.peek().and_then(|word| word.parse().ok()) else {
                    break;
                };
                counts.insert(*core, count);
                words.next();
            }
            let words: Vec<&str> = words.collect();
            Some(Vector {
                irq: irq.trim().parse().ok()?,
                // Before it stand the chip and the kind; several names share one interrupt.
                name: names(&words),
                counts,
                ..Vector::default()
            })
        })
        .collect()
}

/// What is left of a row after chip, number and kind: `IR-PCI-MSI 524289-edge eth0-TxRx-0`.
fn names(words: &[&str]) -> String {
    let kind = words.iter().position(|word| {
        let kind = word.rsplit_once('-').map_or("", |(_, kind)| kind);
        matches!(kind, "edge" | "level" | "fasteoi") || matches!(*word, "Edge" | "Level")
    });
    let after = kind.map_or(words.len().saturating_sub(1), |kind| kind + 1);
    words.get(after..).unwrap_or_default().join(" ")
}

/// The interrupts of the interface `name` below `root`; empty where they can't be told from others'.
#[must_use]
pub fn of_interface(root: &Path, name: &str) -> Vec<Vector> {
    let Some(device) = pci_directory(&root.join("sys/class/net").join(name).join("device")) else {
        return Vec::new();
    };
    let mut own: Vec<u32> = entries(&device.join("msi_irqs"))
        .iter()
        .filter_map(|path| path.file_name()?.to_string_lossy().parse().ok())
        .collect();
    if own.is_empty() {
        // One old-fashioned interrupt, maybe shared with other devices.
        own.extend(number::<u32>(&device.join("irq")).filter(|irq| *irq > 0));
    }
    let text = line(&root.join("proc/interrupts")).unwrap_or_default();
    let mut found: Vec<Vector> = parse(&text)
        .into_iter()
        .filter(|vector| own.contains(&vector.irq))
        .collect();
    for vector in &mut found {
        let directory = root.join("proc/irq").join(vector.irq.to_string());
        let list = |name: &str| line(&directory.join(name)).and_then(|text| cores_of_list(&text));
        vector.allowed = list("smp_affinity_list");
        vector.effective = list("effective_affinity_list");
    }
    found
}

/// The interrupts of every card, by interface.
pub type PerInterface = BTreeMap<String, Vec<Vector>>;

/// The interrupts of every card below `root`; None where there is none to be told.
#[must_use]
pub fn read(root: &Path) -> Option<PerInterface> {
    let found: PerInterface = entries(&root.join("sys/class/net"))
        .iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let vectors = of_interface(root, &name);
            (!vectors.is_empty()).then_some((name, vectors))
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

/// How often each card's interrupts came after `before`.
#[must_use]
pub fn all_since(now: &PerInterface, before: &PerInterface) -> PerInterface {
    now.iter()
        .filter_map(|(name, now)| Some((name.clone(), since(now, before.get(name)?))))
        .collect()
}

/// The directory that has a device's interrupts: its own, or for a virtio card that of the PCI device above it.
fn pci_directory(device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    let marked = device
        .ancestors()
        .take(3)
        .find(|path| path.join("msi_irqs").is_dir() || path.join("irq").exists());
    marked.map(Path::to_path_buf)
}

/// How often each interrupt came after `before`; those that were not there then are left out.
#[must_use]
pub fn since(now: &[Vector], before: &[Vector]) -> Vec<Vector> {
    now.iter()
        .filter_map(|now| {
            let then = before.iter().find(|then| then.irq == now.irq)?;
            let counts = now.counts.iter().filter_map(|(core, count)| {
                Some((*core, count.checked_sub(*then.counts.get(core)?)?))
            });
            Some(Vector {
                counts: counts.collect(),
                ..now.clone()
            })
        })
        .collect()
}

/// How a card's interrupts spread over cores.
#[must_use]
pub fn per_core(vectors: &[Vector]) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for (core, count) in vectors.iter().flat_map(|vector| &vector.counts) {
        let sum: &mut u64 = sums.entry(*core).or_default();
        *sum = sum.saturating_add(*count);
    }
    sums
}

/// The core with most interrupts and its share of them, 0 to 1; None when none came.
#[must_use]
pub fn busiest_core(vectors: &[Vector]) -> Option<(u32, f64)> {
    let sums = per_core(vectors);
    let total: u64 = sums
        .values()
        .fold(0, |sum, count| sum.saturating_add(*count));
    let (core, count) = sums.into_iter().max_by_key(|(_, count)| *count)?;
    (total > 0).then(|| (core, count as f64 / total as f64))
}

/// What one core's packet queue did: a row of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softnet {
    /// Packets taken in.
    pub processed: u64,
    /// Packets thrown away since the queue was full (`netdev_max_backlog`).
    pub dropped: u64,
    /// How often the core ran out of time with packets left.
    pub time_squeeze: u64,
    /// How often another core asked it to help (receive packet steering).
    pub received_rps: Option<u64>,
}

/// Reads `/proc/net/softnet_stat`, by core. Numbers are hexadecimal; the core's own number came with Linux 5.10, before
/// that rows are in the order of the cores that are on.
#[must_use]
pub fn softnet(text: &str) -> BTreeMap<u32, Softnet> {
    let rows = text.lines().enumerate().filter_map(|(row, line)| {
        let fields: Vec<u64> = line
            .split_ascii_whitespace()
            .map(|field| u64::from_str_radix(field, 16).ok())
            .collect::<Option<_>>()?;
        let core = match fields.get(12) {
            Some(core) => u32::try_from(*core).ok()?,
            None => u32::try_from(row).ok()?,
        };
        let softnet = Softnet {
            processed: *fields.first()?,
            dropped: *fields.get(1)?,
            time_squeeze: *fields.get(2)?,
            received_rps: fields.get(9).copied(),
        };
        Some((core, softnet))
    });
    rows.collect()
}

/// The queues of all cores below `root`; None where they can't be read.
#[must_use]
pub fn softnet_read(root: &Path) -> Option<BTreeMap<u32, Softnet>> {
    let found = softnet(&line(&root.join("proc/net/softnet_stat"))?);
    (!found.is_empty()).then_some(found)
}

/// What each core's queue did after `before`. The kernel counts in 32 bits here: a count that ran over is made whole.
#[must_use]
pub fn softnet_since(
    now: &BTreeMap<u32, Softnet>,
    before: &BTreeMap<u32, Softnet>,
) -> BTreeMap<u32, Softnet> {
    let grown = |now: u64, then: u64| u64::from((now as u32).wrapping_sub(then as u32));
    now.iter()
        .filter_map(|(core, now)| {
            let then = before.get(core)?;
            let rps = now.received_rps.zip(then.received_rps);
            let softnet = Softnet {
                processed: grown(now.processed, then.processed),
                dropped: grown(now.dropped, then.dropped),
                time_squeeze: grown(now.time_squeeze, then.time_squeeze),
                received_rps: rps.map(|(now, then)| grown(now, then)),
            };
            Some((*core, softnet))
        })
        .collect()
}

/// How software spreads one interface's packets over cores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// For each receive queue the cores that may work on its packets; empty: the one that took the interrupt.
    pub rps: BTreeMap<u32, Vec<u32>>,
    /// For each transmit queue the cores that use it; empty: chosen by hash.
    pub xps: BTreeMap<u32, Vec<u32>>,
}

/// The masks of interface `name` below `root`; queues whose mask can't be read are left out.
#[must_use]
pub fn steering(root: &Path, name: &str) -> Steering {
    let directory = root.join("sys/class/net").join(name).join("queues");
    let masks = |prefix: &str, file: &str| {
        let queues = entries(&directory);
        let masks = queues.iter().filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let queue = name.strip_prefix(prefix)?.parse().ok()?;
            Some((queue, cores_of_mask(&line(&path.join(file))?)?))
        });
        masks.collect()
    };
    Steering {
        rps: masks("rx-", "rps_cpus"),
        xps: masks("tx-", "xps_cpus"),
    }
}

/// A list of cores as `0-3,8`; None when it is no such list.
#[must_use]
pub fn cores_of_list(text: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CORES_MAX {
            return None;
        }
        cores.extend(first..=last);
        if cores.len() > CORES_MAX as usize {
            return None;
        }
    }
    Some(cores)
}

/// A mask of cores as `ff` or `00000001,00000003`: groups of 32 bits, the highest first; None when it is none.
#[must_use]
pub fn cores_of_mask(text: &str) -> Option<Vec<u32>> {
    let groups: Vec<u32> = text
        .trim()
        .split(',')
        .map(|group| u32::from_str_radix(group, 16).ok())
        .collect::<Option<_>>()?;
    if groups.len() > CORES_MAX as usize / 32 {
        return None;
    }
    let bits = groups.iter().rev().zip(0_u32..).flat_map(|(group, place)| {
        (0..32)
            .filter(move |bit| group >> bit & 1 == 1)
            .map(move |bit| place * 32 + bit)
    });
    Some(bits.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::probe::net::machines::tree;

    #[test]
    fn a_card_whose_interrupts_all_go_to_one_core_comes_out() {
        let server = tree("bare-metal");
        let vectors = of_interface(server.path(), "eth0");
        assert_eq!(vectors.len(), 4);
        assert_eq!(vectors[3].name, "mlx5_comp3@pci:0000:03:00.0");
        assert!(vectors.iter().all(|vector| vector.allowed == Some(vec![0])));
        let (core, share) = busiest_core(&vectors).expect("they came");
        assert!(core == 0 && share > 0.99);
        let all = read(server.path()).expect("two cards");
        assert_eq!(all["eth0"], vectors);
        assert_eq!(
            busiest_core(&all_since(&all, &all)["eth0"]),
            None,
            "no time passed"
        );
        let spread = of_interface(server.path(), "eth1");
        assert_eq!(busiest_core(&spread).map(|(_, share)| share), Some(0.25));
        assert_eq!(spread[2].effective, Some(vec![2]));
        let queues = softnet_read(server.path()).expect("composed");
        assert_eq!((queues[&0].dropped, queues[&0].time_squeeze), (212, 84_312));
        assert_eq!(queues.len(), 4);
        let steering = steering(server.path(), "eth0");
        assert_eq!(steering.rps[&0], Vec::<u32>::new());
        assert_eq!(steering.xps[&3], [3]);
    }

    #[test]
    fn virtual_cards_and_machines_without_files() {
        let vm = tree("vm");
        let vectors = of_interface(vm.path(), "eth0");
        let names: Vec<_> = vectors.iter().map(|vector| vector.name.as_str()).collect();
        assert_eq!(
            names,
            ["virtio2-config", "virtio2-input.0", "virtio2-output.0"]
        );
        assert_eq!(vectors[1].effective, Some(vec![1]));
        assert_eq!(vectors[1].allowed, Some(vec![0, 1]));
        assert_eq!(softnet_read(vm.path()).map(|all| all.len()), Some(2));
        let nas = of_interface(tree("zfs-nas").path(), "enp2s0f0");
        assert_eq!(
            per_core(&nas),
            BTreeMap::from([(0, 8_123_344), (1, 7_123_347)])
        );
        assert_eq!(nas[0].effective, None, "an old kernel does not tell");
        let empty = tree("empty");
        assert!(of_interface(empty.path(), "eth0").is_empty());
        assert_eq!(softnet_read(empty.path()), None);
        assert_eq!(read(empty.path()), None);
        assert_eq!(steering(empty.path(), "eth0"), Steering::default());
    }

    #[test]
    fn rows_are_read_with_gaps_and_without_columns() {
        let text = "            CPU0       CPU2\n  8:          1          0  IR-IO-APIC    8-edge      rtc0\n 16:  3  4  IO-APIC  16-fasteoi   ehci_hcd:usb1, eth9\n 30:   5   6   IR-PCI-MSI 524289-edge      eth0-TxRx-0\n 31:   7   0  ITS-MSI 131072 Edge      mlx5_comp0@pci:0000:01:00.0\nNMI:  9  9   Non-maskable interrupts\nERR:          0\n";
        let rows = parse(text);
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.irq, row.name.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                (8, "rtc0"),
                (16, "ehci_hcd:usb1, eth9"),
                (30, "eth0-TxRx-0"),
                (31, "mlx5_comp0@pci:0000:01:00.0")
            ]
        );
        assert_eq!(rows[2].counts, BTreeMap::from([(0, 5), (2, 6)]));
        assert_eq!(busiest_core(&rows[3..]), Some((0, 1.0)));
        assert_eq!(busiest_core(&[]), None);
        let mut later = rows.clone();
        later[2].counts = BTreeMap::from([(0, 105), (2, 306)]);
        let grown = since(&later[2..3], &rows);
        assert_eq!(per_core(&grown), BTreeMap::from([(0, 100), (2, 300)]));
        assert_eq!(busiest_core(&grown), Some((2, 0.75)));
    }

    #[test]
    fn lists_and_masks_name_the_same_cores() {
        assert_eq!(cores_of_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(cores_of_list(""), Some(Vec::new()));
        assert_eq!(cores_of_list("3-1"), None);
        assert_eq!(cores_of_list("0-4294967295"), None);
        assert_eq!(cores_of_mask("87"), Some(vec![0, 1, 2, 7]));
        assert_eq!(cores_of_mask("00000001,80000000"), Some(vec![31, 32]));
        assert_eq!(cores_of_mask("0"), Some(Vec::new()));
        assert_eq!(cores_of_mask("x"), None);
    }

    #[test]
    fn packet_queues_are_read_from_old_and_new_kernels() {
        let old = "0000000a 00000002 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000004 00000000\n";
        let read = softnet(old);
        assert_eq!(
            read[&0],
            Softnet {
                processed: 10,
                dropped: 2,
                time_squeeze: 3,
                received_rps: Some(4)
            }
        );
        let new = "fffffffe 0 0 0 0 0 0 0 0 0 0 0 00000005 0 0\n";
        let before = softnet(new);
        assert_eq!(before.keys().collect::<Vec<_>>(), [&5]);
        let mut after = before.clone();
        after.insert(
            5,
            Softnet {
                processed: 3,
                ..before[&5]
            },
        );
        assert_eq!(
            softnet_since(&after, &before)[&5].processed,
            5,
            "it ran over"
        );
        assert!(softnet("nothing\n1 2").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(CPU[0-9]{1,2} ){0,3}\n?[0-9a-fA-Z:, -]{0,60}\n?.{0,60}") {
            let rows = parse(&text);
            let _ = (busiest_core(&rows), since(&rows, &rows), softnet(&text));
            let _ = (cores_of_list(&text), cores_of_mask(&text));
        }
    }
}
