//! The server's side, where an agent is there to tell: whether its path is what the target shows, what its disks carry, what
//! moved on it while the workload ran, and a port for requests and answers.
//!
//! Whatever the agent can't do is told in a note and stays unknown. Must not know: what the figures say.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::Result;
use crate::fleet::agent::wire::{Marker, Sample, Service, Storage, StorageReport};
use crate::fleet::agent::{Agent, TestPort, own_address};
use crate::guard::Proof;
use crate::op::Direction;
use crate::probe::block::Figures;
use crate::probe::cgroup::Throttle;
use crate::probe::{Counters, Snapshot, cpu};
use crate::run::Watch;
use crate::spec::diagnose::{DiagnosePlan, laid_within};
use crate::spec::workload::Phase;
use crate::stage::round_trip::{Carried, Idle, Load, PROBES, Place, carry, idle};

/// How long the probe's port stays open at least.
const PORT_TIME: Duration = Duration::from_mins(5);
/// The longest wait for any answer of the probe.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which the server is looked at before anything is asked of it.
const LOOK: Duration = Duration::from_millis(800);
/// So often where groups use up their share of the processor.
const LOOKS: u32 = 4;
/// What a storage run may take beyond its own time: laying and flushing.
const STORAGE_SPARE_S: u64 = 120;
/// Where devices are.
const DEVICES: &str = "/dev/";
/// A core this busy before anything began is busy with something else, percent.
pub(super) const BUSY_BEFORE: f64 = 50.0;

/// An agent on the server.
pub(super) struct Server {
    agent: Agent,
    /// Facts about its computer.
    pub(super) facts: Snapshot,
    /// The directory, file or device of `--server-path`.
    path: Option<String>,
    /// The test file as the server has it, where that is proven.
    file: Option<String>,
    /// Something else keeps a core busy, so that a busy core is no evidence.
    pub(super) busy_before: bool,
    /// Groups of processes use up their share of the processor whatever happens here.
    throttled_before: bool,
    trips: Option<(TestPort, Place)>,
}

/// What the server's disks carry.
#[derive(Debug, Clone)]
pub(super) struct OnDisks {
    /// Bytes per second, up to the end of the flush for writes.
    pub(super) rate: f64,
    /// Where it was measured is what the share lies on.
    pub(super) proven: bool,
    /// The server's memory answered instead.
    pub(super) cached: bool,
}

impl Server {
    /// Connects, and looks what the server does by itself.
    pub(super) fn connect(plan: &DiagnosePlan) -> Result<Option<Self>> {
        let Some(command) = &plan.agent else {
            return Ok(None);
        };
        let mut agent = Agent::connect(command)?;
        let facts = agent.facts()?;
        let (mut passed, mut throttled) = look(&mut agent)?;
        for _ in 1..LOOKS {
            if throttled.is_none_or(|periods| periods == 0) {
                break;
            }
            // A server that has just started, or still ends what it was asked before, becomes quiet; another's work does not.
            (passed, throttled) = look(&mut agent)?;
        }
        let busiest = passed.cpu.as_ref().and_then(cpu::Ticks::busiest);
        Ok(Some(Self {
            agent,
            facts,
            path: plan.server_path.clone(),
            file: None,
            busy_before: busiest.is_some_and(|share| share.busy >= BUSY_BEFORE),
            throttled_before: throttled.is_some_and(|periods| periods > 0),
            trips: None,
        }))
    }

    /// For tests of the network.
    pub(super) fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// Looks for what was just made on the target below the agent's path.
    pub(super) fn prove(&mut self, proof: Option<&(Proof, String)>, watch: &mut dyn Watch) {
        let (Some(path), Some((proof, object))) = (self.path.clone(), proof) else {
            return;
        };
        let found = match proof {
            Proof::Name(name) => {
                let marker = Marker {
                    path: path.clone(),
                    name: name.clone(),
                    content: String::new(),
                };
                let file = object.rsplit('/').next().unwrap_or_default().to_owned();
                self.agent
                    .find(marker)
                    .map(|place| place.map(|place| format!("{path}/{place}/{file}")))
            }
            Proof::Bytes { offset, content } => {
                let sample = Sample {
                    path: path.clone(),
                    offset: *offset,
                    content: content.clone(),
                };
                self.agent
                    .same(sample)
                    .map(|same| same.then(|| path.clone()))
            }
        };
        match found {
            Ok(Some(file)) => self.file = Some(file),
            Ok(None) => watch.note(&format!(
                "{path} on the server is not what the target shows: what its disks carry will be marked as unproven"
            )),
            Err(error) => watch.note(&error.to_string()),
        }
    }

    /// Makes the server forget what it caches of the test file, or of everything where it may. Its counters tell whether it did.
    pub(super) fn forget(&mut self, watch: &mut dyn Watch) {
        if let Some(file) = self.file.clone()
            && let Err(error) = self.agent.forget(&file)
        {
            watch.note(&error.to_string());
        }
        // Not every server may, and ZFS forgets nothing else.
        let _ = self.agent.drop_caches();
    }

    /// What has moved there up to now; None where it does not tell.
    pub(super) fn seen(&mut self) -> Option<Seen> {
        Seen::by(&mut self.agent).ok()
    }

    /// What moved there since; what is no evidence on this server is left out.
    pub(super) fn moved(&mut self, before: &Seen, direction: Direction) -> Option<Moved> {
        let (passed, throttled) = self.seen()?.since(before);
        let moved = moved(&passed, direction);
        Some(Moved {
            core_percent: moved.core_percent.filter(|_| !self.busy_before),
            throttled: throttled.filter(|_| !self.throttled_before),
            ..moved
        })
    }

    /// What the disks carry of a phase; None where that can't be measured, with a note. `left` is what may still be written.
    pub(super) fn disks(
        &mut self,
        what: &str,
        phase: Phase,
        left: &mut u64,
        watch: &mut dyn Watch,
    ) -> Option<OnDisks> {
        let path = self.path.clone()?;
        let writes = phase.rw.writes();
        let (path, proven) = match (&self.file, writes) {
            (Some(file), false) => (file.clone(), true),
            // The directory of a device is not on that device, and what is on it must not be written over.
            (Some(file), true) if file.starts_with(DEVICES) => return None,
            // Writes go to a file without a name in the same directory, never to what is there.
            (Some(file), true) => (directory(file), true),
            (None, _) => (path, false),
        };
        // Where nothing is there to be read, or blocks are to be written again, a file is laid first.
        let lays = !proven || (writes && phase.rw.random());
        let (phase, most) = if writes || lays {
            let phase = laid_within(phase, *left, lays)?;
            let laid = if lays { phase.size.0 } else { 0 };
            let written = phase.bytes.filter(|_| writes).unwrap_or_default().0;
            (phase, laid + written)
        } else {
            (phase, 0)
        };
        *left = left.saturating_sub(most);
        let plan = Storage {
            path,
            seconds: phase.runtime.map_or(0, |time| time.seconds() as u64) + STORAGE_SPARE_S,
            phase,
            seed: 1,
        };
        match self.agent.storage(plan) {
            Ok(report) => on_disks(&report, writes, proven),
            Err(error) => {
                watch.note(&format!("{what} can't be measured: {error}"));
                None
            }
        }
    }

    /// A port that answers requests of this computer's: opened once, for a diagnosis that takes about `whole`.
    pub(super) fn trips(
        &mut self,
        address: IpAddr,
        connect: Duration,
        whole: Duration,
    ) -> Result<Idle> {
        let here = own_address(address)?;
        let port =
            self.agent
                .open_port(Service::RoundTrip, address, here, PORT_TIME.max(3 * whole))?;
        let place = Place {
            address: SocketAddr::new(address, port.address.port()),
            connect_timeout: connect,
            io_timeout: PATIENCE,
        };
        self.trips = Some((port, place));
        idle(&place, PROBES)
    }

    /// What requests and answers carry; None without a port.
    pub(super) fn carry(&self, load: &Load, stop: &Arc<AtomicBool>) -> Option<Result<Carried>> {
        let (_, place) = self.trips.as_ref()?;
        Some(carry(place, load, stop))
    }

    /// Closes the port.
    pub(super) fn close(&mut self) {
        if let Some((port, _)) = self.trips.take() {
            let _ = self.agent.close(&port);
        }
    }
}

fn directory(file: &str) -> String {
    file.rsplit_once('/')
        .map_or("/", |(directory, _)| directory)
        .to_owned()
}

fn on_disks(report: &StorageReport, writes: bool, proven: bool) -> Option<OnDisks> {
    let tally = if writes { &report.write } else { &report.read };
    let time = report.elapsed_ns + report.flush_ns.filter(|_| writes).unwrap_or(0);
    if time == 0 || tally.bytes == 0 {
        return None;
    }
    let device = if writes {
        report.device_write_bytes
    } else {
        report.device_read_bytes
    };
    // On ZFS nothing is counted here: then nothing proves that the disks were read.
    let cached = !writes && device.is_some_and(|device| device < tally.bytes / 2);
    Some(OnDisks {
        rate: tally.bytes as f64 * 1e9 / time as f64,
        proven,
        cached,
    })
}

/// A reading of the server's counters.
pub(super) struct Seen {
    counters: Counters,
    throttle: Option<Throttle>,
}

impl Seen {
    fn by(agent: &mut Agent) -> Result<Self> {
        Ok(Self {
            counters: agent.counters()?,
            throttle: agent.throttle()?,
        })
    }

    /// What happened since an earlier reading, and how often a group of processes was stopped.
    fn since(&self, earlier: &Self) -> (Counters, Option<u64>) {
        let throttle = self
            .throttle
            .zip(earlier.throttle)
            .and_then(|(now, then)| now.since(&then));
        let periods = throttle.map(|throttle| throttle.throttled_periods);
        (self.counters.since(&earlier.counters), periods)
    }
}

/// What a server does by itself for a while.
fn look(agent: &mut Agent) -> Result<(Counters, Option<u64>)> {
    let before = Seen::by(agent)?;
    std::thread::sleep(LOOK);
    Ok(Seen::by(agent)?.since(&before))
}

/// What the server's counters say of the time of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Moved {
    /// The busiest core.
    pub(super) core_percent: Option<f64>,
    /// Times at which a group of processes had used up its share of the processor.
    pub(super) throttled: Option<u64>,
    /// Bytes that its disks read.
    pub(super) disk_read: Option<u64>,
    /// The busiest disk, and the mean number of requests in its queue.
    pub(super) disk: Option<(f64, f64)>,
    /// Segments that it sent again, percent.
    pub(super) retransmit_percent: Option<f64>,
}

/// Sums up what moved.
fn moved(passed: &Counters, direction: Direction) -> Moved {
    let disks = passed.disks.as_ref();
    let busiest = disks.zip(passed.at_ns).and_then(|(all, time)| {
        let figures = all
            .by_name
            .values()
            .filter_map(|disk| Figures::of(disk, time));
        let moves = |figures: &Figures| match direction {
            Direction::Read => figures.read_bytes_per_s > 0.0,
            Direction::Write => figures.write_bytes_per_s > 0.0,
        };
        figures
            .filter(moves)
            .max_by(|a, b| a.busy_percent.total_cmp(&b.busy_percent))
    });
    Moved {
        core_percent: passed
            .cpu
            .as_ref()
            .and_then(cpu::Ticks::busiest)
            .map(|share| share.busy),
        throttled: None,
        disk_read: disks.map(|all| all.by_name.values().map(|disk| disk.read_bytes).sum()),
        disk: busiest.map(|figures| (figures.busy_percent, figures.queue)),
        retransmit_percent: passed
            .tcp
            .filter(|tcp| tcp.out_segments > 0)
            .map(|tcp| 100.0 * tcp.retransmits as f64 / tcp.out_segments as f64),
    }
}
