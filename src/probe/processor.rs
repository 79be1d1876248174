//! The processor: cores and threads, clock and its governor, NUMA nodes, from /sys/devices/system
//! (Documentation/admin-guide/pm/cpufreq.rst, Documentation/ABI/testing/sysfs-devices-system-cpu).
//!
//! Must not know: what runs on it. Clocks are in kHz, as the kernel has them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names, number, some};

/// Facts about the processor; a virtual machine often hides its clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// Hardware threads online: what the kernel calls a CPU.
    pub threads: Option<usize>,
    /// Physical cores online.
    pub cores: Option<usize>,
    /// Sockets.
    pub packages: Option<usize>,
    /// Whether cores run more than one thread.
    pub smt: Option<bool>,
    /// The governors in use, usually one: `performance`, `powersave`, `schedutil` ..
    pub governors: Option<Vec<String>>,
    /// The driver of the clock, such as `intel_pstate`.
    pub driver: Option<String>,
    /// The slowest core's clock now.
    pub slowest_khz: Option<u64>,
    /// The fastest core's clock now.
    pub fastest_khz: Option<u64>,
    /// The clock that the hardware reaches, by its fastest core.
    pub max_khz: Option<u64>,
    /// The clock that the settings allow, by the core that may least.
    pub allowed_khz: Option<u64>,
    /// The CPUs of each NUMA node, by node, as the kernel lists them (`0-7,16-23`).
    pub nodes: Option<Vec<String>>,
}

/// How many numbers a list such as `0-3,8` holds; None when it is no such list.
#[must_use]
pub fn listed(list: &str) -> Option<usize> {
    let mut sum = 0usize;
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        sum = sum.checked_add(to.checked_sub(from)?.checked_add(1)?)?;
    }
    Some(sum)
}

/// Whether a name is `prefix` and a number.
fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads the processor; None where `/sys` tells nothing of it.
#[must_use]
pub fn read(root: &Path) -> Option<Processor> {
    let cpus = root.join("sys/devices/system/cpu");
    let each: Vec<_> = names(&cpus)
        .into_iter()
        .filter(|name| numbered(name, "cpu"))
        .map(|name| cpus.join(name))
        .collect();
    let topology = |file: &str| -> Vec<Option<u32>> {
        each.iter()
            .map(|cpu| number(&cpu.join("topology").join(file)))
            .collect()
    };
    let packages = topology("physical_package_id");
    let cores: BTreeSet<(u32, u32)> = packages
        .iter()
        .zip(topology("core_id"))
        .filter_map(|(package, core)| Some(((*package)?, core?)))
        .collect();
    let packages: BTreeSet<u32> = packages.into_iter().flatten().collect();
    let count = |found: usize| (found > 0).then_some(found);
    let clock = |file: &str| -> Vec<u64> {
        each.iter()
            .filter_map(|cpu| number(&cpu.join("cpufreq").join(file)))
            .collect()
    };
    let governors: BTreeSet<String> = each
        .iter()
        .filter_map(|cpu| line(&cpu.join("cpufreq/scaling_governor")))
        .collect();
    let now = clock("scaling_cur_freq");
    let found = Processor {
        threads: line(&cpus.join("online")).and_then(|list| listed(&list)),
        cores: count(cores.len()),
        packages: count(packages.len()),
        smt: number::<u8>(&cpus.join("smt/active")).map(|active| active == 1),
        governors: some(governors.into_iter().collect()),
        driver: each
            .first()
            .and_then(|cpu| line(&cpu.join("cpufreq/scaling_driver"))),
        slowest_khz: now.iter().min().copied(),
        fastest_khz: now.iter().max().copied(),
        max_khz: clock("cpuinfo_max_freq").into_iter().max(),
        allowed_khz: clock("scaling_max_freq").into_iter().min(),
        nodes: nodes(&root.join("sys/devices/system/node")),
    };
    (found != Processor::default()).then_some(found)
}

fn nodes(directory: &Path) -> Option<Vec<String>> {
    let mut found: Vec<(u32, String)> = names(directory)
        .into_iter()
        .filter(|name| numbered(name, "node"))
        .filter_map(|name| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            // A node of memory alone has an empty list.
            let cpus = line(&directory.join(name).join("cpulist")).unwrap_or_default();
            Some((number, cpus))
        })
        .collect();
    found.sort();
    some(found.into_iter().map(|(_, cpus)| cpus).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn lists_are_counted() {
        assert_eq!(listed("0-3,8"), Some(5));
        assert_eq!(listed("0"), Some(1));
        for bad in ["", "3-1", "a", "1-", "0-18446744073709551615"] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_processor_of_each_machine() {
        let vm = read(machines::tree("vm").path()).expect("captured");
        assert_eq!(
            (vm.threads, vm.cores, vm.smt),
            (Some(2), Some(2), Some(false))
        );
        assert_eq!(
            (vm.governors, vm.max_khz),
            (None, None),
            "hidden by the hypervisor"
        );
        let server = read(machines::tree("bare-metal").path()).expect("composed");
        assert_eq!((server.threads, server.cores), (Some(16), Some(8)));
        assert_eq!((server.packages, server.smt), (Some(2), Some(true)));
        assert_eq!(
            server.governors.as_deref(),
            Some(&["powersave".to_owned()][..])
        );
        assert_eq!(server.max_khz, Some(3_700_000));
        assert_eq!(
            (server.slowest_khz, server.fastest_khz),
            (Some(1_200_000), Some(3_400_000))
        );
        assert_eq!(server.nodes.map(|nodes| nodes.len()), Some(2));
        assert!(read(machines::tree("zfs-nas").path()).is_some());
        assert_eq!(read(machines::tree("empty").path()), None);
    }
}
