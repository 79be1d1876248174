//! Block devices: what each is and how its queue is set, what each did, and the figures that follow from it.
//!
//! Sources: Documentation/ABI/stable/sysfs-block, Documentation/admin-guide/iostats.rst, iostat(1) of sysstat for the
//! figures. Must not know: what lies on them. Sizes are in bytes but where a name says otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::disk::{Counters, SECTOR};
use crate::probe::{line, names, number, some};

/// A whole block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The kernel's name: `sda`, `nvme0n1`, `dm-0`, `md0`.
    pub name: String,
    /// Its name as a mapped device: `vg0-data`, `luks-home`.
    pub mapped_name: Option<String>,
    /// What maps it: `LVM`, `CRYPT`, `mpath` ..
    pub mapped_by: Option<String>,
    /// Vendor's name of it. Serial numbers are not read.
    pub model: Option<String>,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// Whether it says that it has turning platters; virtual disks say so too.
    pub rotational: Option<bool>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Requests that its queue holds.
    pub nr_requests: Option<u32>,
    /// How far the kernel reads ahead, in KiB.
    pub read_ahead_kb: Option<u32>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Largest request, in KiB.
    pub max_sectors_kb: Option<u32>,
    /// Smallest addressable block.
    pub logical_block_bytes: Option<u32>,
    /// Block that the medium writes at once.
    pub physical_block_bytes: Option<u32>,
    /// The devices that it is made of.
    pub made_of: Vec<String>,
}

/// Counters of all block devices, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct All {
    /// The counters of each.
    pub by_name: BTreeMap<String, Counters>,
}

/// What a device did in a time, as iostat(1) defines it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub write_bytes_per_s: f64,
    /// Mean time of a read, queue included, in milliseconds (`r_await`); None without reads.
    pub read_await_ms: Option<f64>,
    /// Mean time of a write, queue included, in milliseconds (`w_await`); None without writes.
    pub write_await_ms: Option<f64>,
    /// Mean number of requests under way (`aqu-sz`).
    pub queue: f64,
    /// Share of the time in which something was under way, 0 to 100 (`%util`). Devices that work on many requests at
    /// once are not full at 100.
    pub busy_percent: f64,
}

impl Figures {
    /// The figures of a difference of counters over that time; None when none passed.
    #[must_use]
    pub fn of(passed: &Counters, elapsed_ns: u64) -> Option<Self> {
        let seconds = elapsed_ns as f64 / 1e9;
        if elapsed_ns == 0 {
            return None;
        }
        let mean = |ms: u64, count: u64| (count > 0).then(|| ms as f64 / count as f64);
        Some(Self {
            read_bytes_per_s: passed.read_bytes as f64 / seconds,
            write_bytes_per_s: passed.write_bytes as f64 / seconds,
            read_await_ms: mean(passed.read_ms, passed.reads),
            write_await_ms: mean(passed.write_ms, passed.writes),
            queue: passed.queue_ms as f64 / 1e3 / seconds,
            // The kernel counts in jiffies, which may round above the time passed.
            busy_percent: (passed.busy_ms as f64 / 10.0 / seconds).min(100.0),
        })
    }
}

impl All {
    /// What each did since an earlier reading; devices that were not there at both times are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let by_name: BTreeMap<_, _> = self
            .by_name
            .iter()
            .filter_map(|(name, now)| Some((name.clone(), now.since(earlier.by_name.get(name)?)?)))
            .collect();
        (!by_name.is_empty()).then_some(Self { by_name })
    }
}

/// The chosen one of `none [mq-deadline] kyber`; a line without brackets is the only choice.
fn chosen(text: &str) -> Option<String> {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(inside, _)| inside);
    let inside = inside.trim();
    (!inside.is_empty()).then(|| inside.to_owned())
}

/// A loop device or RAM disk that nothing stands behind, as most systems have by the dozen.
fn unused(directory: &Path) -> bool {
    number::<u64>(&directory.join("size")) == Some(0)
}

fn one(directory: &Path, name: String) -> Block {
    let at = |file: &str| directory.join(file);
    Block {
        mapped_name: line(&at("dm/name")),
        // `LVM-..`, `CRYPT-LUKS2-..`: what follows the first word tells one device from another.
        mapped_by: line(&at("dm/uuid")).and_then(|uuid| Some(uuid.split('-').next()?.to_owned())),
        model: line(&at("device/model")),
        size_bytes: number::<u64>(&at("size")).and_then(|sectors| sectors.checked_mul(SECTOR)),
        rotational: number::<u8>(&at("queue/rotational")).map(|turns| turns == 1),
        scheduler: line(&at("queue/scheduler")).and_then(|text| chosen(&text)),
        nr_requests: number(&at("queue/nr_requests")),
        read_ahead_kb: number(&at("queue/read_ahead_kb")),
        write_cache: line(&at("queue/write_cache")),
        max_sectors_kb: number(&at("queue/max_sectors_kb")),
        logical_block_bytes: number(&at("queue/logical_block_size")),
        physical_block_bytes: number(&at("queue/physical_block_size")),
        made_of: names(&at("slaves")),
        name,
    }
}

/// The block devices that hold something, by name.
#[must_use]
pub fn read(root: &Path) -> Option<Vec<Block>> {
    let all = root.join("sys/block");
    let found = names(&all).into_iter().filter_map(|name| {
        let directory = all.join(&name);
        (!unused(&directory)).then(|| one(&directory, name))
    });
    some(found.collect())
}

/// Their counters.
#[must_use]
pub fn counters(root: &Path) -> Option<All> {
    let all = root.join("sys/block");
    let by_name: BTreeMap<_, _> = names(&all)
        .into_iter()
        .filter_map(|name| {
            let directory = all.join(&name);
            let counters = Counters::parse(&line(&directory.join("stat"))?)?;
            (!unused(&directory)).then_some((name, counters))
        })
        .collect();
    (!by_name.is_empty()).then_some(All { by_name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn the_figures_are_those_of_iostat() {
        // By hand: 200 reads of 64 KiB in 2 s, 5 ms each; 100 writes of 4 KiB, 20 ms each; busy for 1.5 s.
        let passed = Counters {
            reads: 200,
            read_bytes: 200 * 65536,
            read_ms: 1000,
            writes: 100,
            write_bytes: 100 * 4096,
            write_ms: 2000,
            busy_ms: 1500,
            queue_ms: 3000,
            flushes: None,
        };
        let figures = Figures::of(&passed, 2_000_000_000).expect("two seconds");
        let rates = (figures.read_bytes_per_s, figures.write_bytes_per_s);
        assert_eq!(rates, (6_553_600.0, 204_800.0));
        assert_eq!(figures.read_await_ms, Some(5.0));
        assert_eq!(figures.write_await_ms, Some(20.0));
        assert_eq!((figures.queue, figures.busy_percent), (1.5, 75.0));
        let idle = Figures::of(&Counters::default(), 1_000_000_000).expect("a second");
        assert_eq!((idle.read_await_ms, idle.write_await_ms), (None, None));
        assert_eq!(Figures::of(&passed, 0), None);
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(
            chosen("none [mq-deadline] bfq").as_deref(),
            Some("mq-deadline")
        );
        assert_eq!(chosen("none").as_deref(), Some("none"));
        assert_eq!(chosen("[]"), None);
    }

    #[test]
    fn the_disks_of_each_machine() {
        let names = |name: &str| -> Vec<String> {
            let found = read(machines::tree(name).path()).unwrap_or_default();
            found.into_iter().map(|block| block.name).collect()
        };
        assert_eq!(names("vm"), ["vda"], "empty loop devices are none");
        assert_eq!(
            names("bare-metal"),
            ["dm-0", "md0", "md1", "nvme0n1", "sda", "sdb", "sdc", "sdd"]
        );
        assert_eq!(names("zfs-nas"), ["sda", "sdb", "sdc", "sdd"]);
        assert!(names("empty").is_empty());
        let server = read(machines::tree("bare-metal").path()).expect("composed");
        let volume = &server[0];
        assert_eq!(volume.mapped_name.as_deref(), Some("vg0-data"));
        assert_eq!(volume.mapped_by.as_deref(), Some("LVM"));
        assert_eq!(volume.made_of, ["md1"]);
        let disk = &server[4];
        assert_eq!(disk.rotational, Some(true));
        assert_eq!(disk.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(disk.model.as_deref(), Some("ST8000NM0055-1RM"));
        assert_eq!(server[3].rotational, Some(false));
        let vm = read(machines::tree("vm").path()).expect("captured");
        assert_eq!(
            (vm[0].size_bytes, vm[0].model.as_deref()),
            (Some(256 << 30), None)
        );
    }

    #[test]
    fn a_device_that_came_or_went_has_no_difference() {
        let all = counters(machines::tree("bare-metal").path()).expect("composed");
        let mut before = all.clone();
        before.by_name.remove("sda");
        let passed = all.since(&before).expect("the others");
        assert!(!passed.by_name.contains_key("sda") && passed.by_name.contains_key("sdb"));
        assert_eq!(all.since(&All::default()), None);
    }
}
