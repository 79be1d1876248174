//! What a scenario imposes, made: the hosts, the disk, the groups, the NAS.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::cgroup::{Group, Rates};
use super::disk::{self, Disk};
use super::lab::{Lab, Link, Way, run};
use super::nas::{Nas, Parts, Protocol};
use super::scenario::{Cliff, Network, Scenario, Speed};

/// Bytes of a single disk: a LUN, an old file that fills the memory, and room for what an agent writes.
const DISK: u64 = 1536 << 20;
/// Bytes of an array's members.
const MEMBER: u64 = 640 << 20;
/// Bytes of a LUN: a quick diagnosis's test file and room around it; less on a disk that has less.
const LUN: u64 = 640 << 20;
/// How often a disk is asked how much it has been given.
const LOOK: Duration = Duration::from_millis(10);

/// A laboratory as a scenario has it. Dropped in this order: servers before their disk, groups and network.
pub struct Site {
    pub nas: Nas,
    _cliff: Option<Beside>,
    _flusher: Option<Beside>,
    _disk: Arc<Disk>,
    _group: Group,
    pub lab: Lab,
}

impl Site {
    /// Makes it; Err with the reason where this machine can't.
    pub fn make(scenario: &Scenario, protocol: Protocol) -> Result<Self, String> {
        let servers = &scenario.servers;
        let group = Group::new(
            (servers.memory_mib > 0).then_some(servers.memory_mib << 20),
            servers.cpu_percent,
        )?;
        let rates = rates(&scenario.disk);
        let honest = scenario.honest_writes();
        let disk = match &scenario.array {
            None if scenario.ram_disk => Disk::memory(DISK),
            None => Disk::single(DISK, &rates, honest)?,
            Some(array) => {
                let array = disk::Array {
                    level: array.level.clone(),
                    members: array.members,
                    first: array.first.as_ref().map(self::rates),
                    degraded: array.degraded,
                };
                Disk::array(&array, MEMBER, &rates, honest)?
            }
        };
        let disk = Arc::new(disk);
        let lab = network(&scenario.network);
        // What stands there from the beginning is laid at once.
        disk.limit(&Rates::default());
        if servers.memory_mib > 0 {
            fill(&group, disk.directory(), servers.memory_mib);
        }
        let nas = Nas::start(
            &lab,
            protocol,
            &Parts {
                directory: disk.directory(),
                lun_bytes: LUN.min(disk.room() / 4 * 3),
                group: &group,
                forward: servers.forward_mb_s.map(bytes),
                memory: scenario.memory_share,
                one_connection: scenario.one_connection,
            },
        );
        disk.limit_as_made();
        Ok(Self {
            nas,
            _cliff: scenario.cliff.map(|cliff| falls(&disk, cliff)),
            _flusher: servers.flush_every_ms.map(|every| flushes(&disk, every)),
            _disk: disk,
            _group: group,
            lab,
        })
    }
}

/// Lets the servers' memory hold an old file's pages, as it would after a day's work. Pages that were never used may cost much: in
/// a virtual machine whose host takes unused memory back, 4 to 13 ms for each MiB were measured: memory was slower than the networks here.
fn fill(group: &Group, directory: &Path, mib: u64) {
    let path = directory.join("earlier.bin");
    let write = || {
        // A process of its own: the kernel counts a thread's pages where its process is.
        group.join_memory();
        run(Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "conv=fsync", "status=none"])
            .arg(format!("count={mib}"))
            .arg(format!("of={}", path.display())));
    };
    // By a thread that ends here: this one belongs to no server.
    std::thread::scope(|scope| scope.spawn(write).join().expect("dd of coreutils"));
}

fn bytes(mb: f64) -> u64 {
    (mb * 1e6) as u64
}

fn rates(speed: &Speed) -> Rates {
    Rates {
        read: speed.read_mb_s.map(bytes),
        write: speed.write_mb_s.map(bytes),
        read_iops: speed.read_iops,
        write_iops: speed.write_iops,
    }
}

fn network(network: &Network) -> Lab {
    let bits = |one: Option<f64>| one.or(network.rate_mbit_s).map(|rate| (rate * 1e6) as u64);
    let link = Link {
        rate_a_to_b: bits(network.to_server_mbit_s),
        rate_b_to_a: bits(network.to_client_mbit_s),
        links: if network.two_links { 2 } else { 1 },
        ..Link::FAST
    };
    let lab = match network.one_way_us {
        None => Lab::pair(&link),
        Some(one_way_us) => {
            let mut way = Way {
                loss_ppm: network.loss_ppm,
                ..Way::delay(one_way_us)
            };
            if network.loss_ppm > 0 {
                // A loss is one packet, not 64 KiB of them.
                way.super_frame_max = 0;
            }
            Lab::far(&link, &way)
        }
    };
    for host in [&lab.a, &lab.b] {
        if let Some(kib) = network.buffer_kib {
            let longest = kib << 10;
            for (key, usual) in [("tcp_rmem", 128 << 10), ("tcp_wmem", 16 << 10)] {
                let usual = longest.min(usual);
                run(host
                    .command("sysctl")
                    .arg("-qw")
                    .arg(format!("net.ipv4.{key}=4096 {usual} {longest}")));
            }
        }
        if let Some(name) = &network.congestion {
            host.control_congestion(name);
        }
    }
    lab
}

/// From the moment on that a disk has been given so much, it can do less.
fn falls(disk: &Arc<Disk>, cliff: Cliff) -> Beside {
    let disk = Arc::clone(disk);
    let before = disk.written();
    Beside::every(LOOK, move || {
        let over = disk.written() - before >= cliff.after_mib << 20;
        if over {
            disk.limit(&Rates {
                read: cliff.read_mb_s.map(bytes),
                write: cliff.write_mb_s.map(bytes),
                ..Rates::default()
            });
        }
        over
    })
}

/// Has what waits to be written written so often.
fn flushes(disk: &Arc<Disk>, every_ms: u64) -> Beside {
    let disk = Arc::clone(disk);
    Beside::every(Duration::from_millis(every_ms), move || {
        disk.flush();
        false
    })
}

/// Something that is done again and again until it says that it is over, or this is dropped.
struct Beside {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    fn every(pause: Duration, mut act: impl FnMut() -> bool + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) && !act() {
                std::thread::sleep(pause);
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
