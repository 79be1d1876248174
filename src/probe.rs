//! Facts about this computer, read from `/proc` and `/sys` around a run.
//!
//! Read first: [`Snapshot`] holds what stays as it is during a run, [`Counters`] what moves. Each of their fields is one
//! probe: one file, and one line in one of the two lists below. A probe reads below a root, so that it is tested on
//! other people's machines (fixtures/machines); what can't be known is None, and nothing that is missing is an error.
//! Must not know: targets, workloads, stages. Sizes are in bytes.

pub mod block;
pub mod btrfs;
pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod host;
pub mod irq;
#[cfg(test)]
mod machines;
pub mod md;
pub mod memory;
pub mod mount;
pub mod mount_options;
pub mod names;
pub mod net;
pub mod path_mtu;
pub mod pcie;
pub mod pressure;
pub mod process;
pub mod processor;
pub mod sockets;
pub mod tcp_counters;
pub mod threads;
pub mod traffic;
pub mod zfs;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Makes a struct of probes with the reader of each.
macro_rules! probes {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty = $read:path;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$kind>,)*
        }

        impl $name {
            /// Each probe by its name, and whether it finds something below a root.
            pub const PROBES: &[(&str, fn(&Path) -> bool)] =
                &[$((stringify!($field), |root| $read(root).is_some())),*];

            /// What the files below `root` tell.
            #[must_use]
            pub fn under(root: &Path) -> Self {
                Self { $($field: $read(root),)* }
            }

            /// What this computer tells now.
            #[must_use]
            pub fn now() -> Self {
                Self::under(Path::new("/"))
            }
        }
    };
}

probes! {
    /// What a run changes nothing of: read once.
    Snapshot {
        /// The computer: kernel, memory, interfaces.
        host: host::Host = host::read;
        /// The processor: cores, threads, clock, NUMA nodes.
        processor: processor::Processor = processor::read;
        /// What the control group of this process may use.
        limits: cgroup::Limits = cgroup::limits;
        /// When the kernel writes dirty pages.
        writeback: memory::Writeback = memory::writeback;
        /// Block devices, by name.
        disks: Vec<block::Block> = block::read;
        /// md arrays, by name.
        arrays: Vec<md::Array> = md::read;
        /// btrfs file systems.
        btrfs: Vec<btrfs::Filesystem> = btrfs::read;
        /// ZFS pools, by name.
        pools: Vec<zfs::Pool> = zfs::pools;
        /// Mounts of disks and of other computers.
        mounts: Vec<mount_options::Mounted> = mount_options::read;
        /// How TCP is set.
        tcp_settings: net::settings::TcpSettings = net::settings::read;
        /// The bus between cards or disks and the processor, by their names.
        pcie: BTreeMap<String, pcie::Way> = pcie::read;
        /// How software spreads packets over cores, by interface.
        steering: BTreeMap<String, irq::Steering> = irq::steering_read;
    }
}

probes! {
    /// What moves during a run: read before and after, and subtracted by [`Counters::since`].
    Counters {
        /// When it was read, or after a subtraction the time between, in nanoseconds.
        at_ns: u64 = clock;
        /// What each core did.
        cpu: cpu::Ticks = cpu::read;
        /// What each thread of this process did.
        threads: Vec<threads::Thread> = threads::read;
        /// Times at which this process's control group had used up its share of the processor.
        throttle: cgroup::Throttle = cgroup::throttle;
        /// Memory in use; not subtracted.
        memory: memory::Memory = memory::read;
        /// The ZFS cache.
        arc: zfs::Arc = zfs::arc;
        /// What the datasets of ZFS pools moved, by pool.
        pools: zfs::AllMoved = zfs::moved;
        /// Block devices, by name.
        disks: block::All = block::counters;
        /// Interfaces, by name.
        traffic: traffic::Traffic = traffic::read;
        /// What interfaces carried and lost, by name.
        interfaces: net::statistics::PerInterface = net::statistics::read;
        /// Interrupts of network cards, by interface.
        interrupts: irq::PerInterface = irq::read;
        /// Packet queues, by core.
        packet_queues: BTreeMap<u32, irq::Softnet> = irq::softnet_read;
        /// TCP of this network namespace.
        tcp: tcp_counters::Tcp = tcp_counters::read;
        /// Time lost to waiting for processor, storage and memory.
        pressure: pressure::Pressure = pressure::read;
        /// Storage traffic of this process.
        io: process::Io = process::read;
    }
}

impl Counters {
    /// What happened since an earlier reading of the same computer; what one of the two lacks is None.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        fn both<T>(now: Option<&T>, then: Option<&T>, take: fn(&T, &T) -> Option<T>) -> Option<T> {
            take(now?, then?)
        }
        Self {
            at_ns: both(self.at_ns.as_ref(), earlier.at_ns.as_ref(), |now, then| {
                now.checked_sub(*then)
            }),
            cpu: both(self.cpu.as_ref(), earlier.cpu.as_ref(), cpu::Ticks::since),
            threads: both(
                self.threads.as_ref(),
                earlier.threads.as_ref(),
                |now, then| Some(threads::since(now, then)),
            ),
            throttle: both(
                self.throttle.as_ref(),
                earlier.throttle.as_ref(),
                cgroup::Throttle::since,
            ),
            memory: self.memory,
            arc: both(self.arc.as_ref(), earlier.arc.as_ref(), zfs::Arc::since),
            pools: both(
                self.pools.as_ref(),
                earlier.pools.as_ref(),
                zfs::AllMoved::since,
            ),
            disks: both(
                self.disks.as_ref(),
                earlier.disks.as_ref(),
                block::All::since,
            ),
            traffic: both(
                self.traffic.as_ref(),
                earlier.traffic.as_ref(),
                traffic::Traffic::since,
            ),
            interfaces: both(
                self.interfaces.as_ref(),
                earlier.interfaces.as_ref(),
                |now, then| Some(net::statistics::since(now, then)),
            ),
            interrupts: both(
                self.interrupts.as_ref(),
                earlier.interrupts.as_ref(),
                |now, then| Some(irq::all_since(now, then)),
            ),
            packet_queues: both(
                self.packet_queues.as_ref(),
                earlier.packet_queues.as_ref(),
                |now, then| Some(irq::softnet_since(now, then)),
            ),
            tcp: both(
                self.tcp.as_ref(),
                earlier.tcp.as_ref(),
                tcp_counters::Tcp::since,
            ),
            pressure: both(
                self.pressure.as_ref(),
                earlier.pressure.as_ref(),
                pressure::Pressure::since,
            ),
            io: both(self.io.as_ref(), earlier.io.as_ref(), process::Io::since),
        }
    }
}

/// The monotonic clock; it is the same below any root.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands among probes that may find nothing"
)]
fn clock(_: &Path) -> Option<u64> {
    Some(crate::clock::monotonic_ns())
}

/// The value of a line `key value` or `key: value`, as a number.
#[must_use]
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(key)?;
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        if !rest.starts_with([' ', '\t']) {
            return None;
        }
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// The names in a directory, sorted; none when it is not there.
#[must_use]
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = disk::entries(directory)
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

/// None for an empty list: nothing was found.
#[must_use]
pub(crate) fn some<T>(found: Vec<T>) -> Option<Vec<T>> {
    (!found.is_empty()).then_some(found)
}

/// A small file of `/proc` or `/sys` without its last line break; None when it is missing or empty.
#[must_use]
pub fn line(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes)
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .to_owned();
    (!text.is_empty()).then_some(text)
}

/// A small file that holds one number.
#[must_use]
pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    line(path)?.parse().ok()
}
