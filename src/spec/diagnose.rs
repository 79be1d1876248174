//! What a diagnosis is to be, complete and saved with its results: the target, what may help to judge it, and how long each
//! measurement takes.
//!
//! Pure. Must not know: how a target is reached, what limits it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::op::{Direction, Durability};
use crate::spec::network::Host;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::{Phase, PhaseFile, Rw};
use crate::units::{Bytes, Nanos, SECOND};

/// Version of the form.
pub const DIAGNOSE_PLAN_VERSION: u32 = 1;
/// The part of the test file that the server's memory surely holds.
pub const HOT: Bytes = Bytes(32 << 20);
/// The same for writes: less than any server begins to write back at.
pub const HOT_WRITTEN: Bytes = Bytes(8 << 20);
const MIB: u64 = 1 << 20;
/// Measurements of a workload that may write: itself, from memory, with half the depth, with more connections, alone.
const OVERWRITES: u64 = 5;
/// Block and depth of the laying of the test file.
const LAYING: (Bytes, u16) = (Bytes(1 << 20), 4);
/// Most bytes of the file that a run on the server's disks writes.
const WRITTEN_THERE: Bytes = Bytes(256 << 20);
/// Requests under way on the server's disks where they may show what they can at best.
const BEST_DEPTH: u16 = 32;

/// A workload in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Its name, with its phase where it has several.
    pub name: String,
    /// What is done.
    pub phase: Phase,
}

impl Work {
    /// Which way its data goes.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        if self.phase.rw.writes() {
            Direction::Write
        } else {
            Direction::Read
        }
    }
}

/// A complete plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiagnosePlan {
    /// Version of this form.
    pub diagnose_plan_version: u32,
    /// The nasgauge that wrote it.
    pub nasgauge_version: String,
    /// The target's URI, or a path.
    pub target: String,
    /// What our own client calls the same export, where the target is a mount of the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_client: Option<String>,
    /// A share of the same server that lies in its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_target: Option<String>,
    /// The server's name or address; None where the target is on this computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// An iperf3 server there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iperf3: Option<Host>,
    /// The command that reaches an agent on the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Where on the server the share lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_path: Option<String>,
    /// The server's memory, as the user tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ram: Option<Bytes>,
    /// Most bytes of the test file.
    pub size: Bytes,
    /// Most bytes that may be written to the target.
    pub max_write: Bytes,
    /// Less time for each measurement.
    pub quick: bool,
    /// Longest wait for a connection.
    pub connect_timeout: Nanos,
    /// Longest time without any progress.
    pub io_timeout: Nanos,
    /// What is diagnosed.
    pub work: Vec<Work>,
}

/// How long each measurement takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The workload itself, and the laying of its file.
    pub workload: Nanos,
    /// Time before it that is not counted.
    pub ramp: Nanos,
    /// A layer measured alone, or with one thing changed.
    pub layer: Nanos,
    /// This program against memory, which nothing but the processor bounds.
    pub tool: Nanos,
    /// A test of the network, in whole seconds.
    pub network_s: u32,
}

impl DiagnosePlan {
    /// Whether a saved plan is one of a diagnosis.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.lines()
            .any(|line| line.trim_start().starts_with("diagnose_plan_version"))
    }

    /// Reads a saved plan.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)
            .map_err(|error| Error::usage(format!("{place}: not a plan: {}", error.message())))?;
        if plan.diagnose_plan_version != DIAGNOSE_PLAN_VERSION {
            return Err(Error::usage(format!(
                "{place}: plan version {} was written by nasgauge {}; this one reads version {DIAGNOSE_PLAN_VERSION}",
                plan.diagnose_plan_version, plan.nasgauge_version
            )));
        }
        Ok(plan)
    }

    /// How long each measurement takes.
    #[must_use]
    pub const fn times(&self) -> Times {
        if self.quick {
            Times {
                workload: Nanos(5 * SECOND),
                ramp: Nanos(SECOND / 2),
                layer: Nanos(5 * SECOND / 2),
                tool: Nanos(SECOND),
                network_s: 2,
            }
        } else {
            Times {
                workload: Nanos(10 * SECOND),
                ramp: Nanos(SECOND),
                layer: Nanos(4 * SECOND),
                tool: Nanos(2 * SECOND),
                network_s: 4,
            }
        }
    }

    /// Numbers of connections that the network is tested with; None: by the rule of a sweep.
    #[must_use]
    pub fn flows(&self) -> Option<Vec<u32>> {
        self.quick.then(|| vec![1, 4])
    }

    /// Whether any work goes that way.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        self.work.iter().any(|work| work.direction() == direction)
    }

    /// What the plan asks for that can't be, before anything is touched.
    pub fn validate(&self) -> Result<()> {
        for uri in [
            Some(&self.target),
            self.own_client.as_ref(),
            self.ram_target.as_ref(),
        ] {
            uri.map(|uri| TargetSpec::parse(uri)).transpose()?;
        }
        if self.work.is_empty() {
            return Err(Error::usage(
                "nothing to diagnose: no workload goes that way",
            ));
        }
        for work in &self.work {
            let phase = &work.phase;
            let wrong = |why: &str| Err(Error::usage(format!("workload {}: {why}", work.name)));
            if phase.files.is_some() {
                return wrong(
                    "small files can't be diagnosed yet; name one that reads or writes blocks",
                );
            }
            if phase.rw.reads() && phase.rw.writes() {
                return wrong(
                    "a mix of reads and writes has no direction; name one that only reads or only writes",
                );
            }
            if phase.block_size().is_none() || phase.rate_iops.is_some() {
                return wrong(
                    "a diagnosis needs one block size and no limit of its own on the rate",
                );
            }
            if u64::from(phase.block_max()) * u64::from(phase.lanes) * 4 > self.file_bytes().0 {
                return wrong(
                    "its blocks are too large for the test file; give a larger --size and --max-write",
                );
            }
        }
        if self.server_path.is_some() && self.agent.is_none() {
            return Err(Error::usage(
                "--server-path names a directory on the server, which only an agent there can look at; add --agent ssh:USER@HOST",
            ));
        }
        Ok(())
    }

    /// Most bytes of the test file: half of what may be written, since parts of it are written again.
    #[must_use]
    pub fn file_bytes(&self) -> Bytes {
        Bytes(self.size.0.min(self.max_write.0 / 2) / MIB * MIB)
    }

    /// Most bytes of one measurement that writes again what stands there.
    fn overwrite_bytes(&self) -> Bytes {
        let works = self
            .work
            .iter()
            .filter(|work| work.direction() == Direction::Write);
        let left = self.max_write.0.saturating_sub(self.file_bytes().0);
        Bytes((left / OVERWRITES / works.count().max(1) as u64).max(MIB))
    }

    /// About how long it takes where no caches have to be flushed: measurements, their ramps, and what lies between.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        let times = self.times();
        let ways = u64::from(self.has(Direction::Read)) + u64::from(self.has(Direction::Write));
        let mut all = times.workload.0;
        let tests = if self.quick { 2 } else { 5 };
        if self.iperf3.is_some() || self.agent.is_some() {
            all += ways * tests * (u64::from(times.network_s) * SECOND + 3 * SECOND / 2);
        }
        for work in &self.work {
            let ramped = times.layer.0 + times.ramp.0;
            all += times.workload.0 + times.ramp.0;
            // From memory, and with the depth, the connections and one request alone changed.
            let mut layers = 4;
            layers += u64::from(self.ram_target.is_some()) + u64::from(self.own_client.is_some());
            if self.agent.is_some() {
                // What requests and answers carry, and the disks twice.
                layers += 1 + 2 * u64::from(self.server_path.is_some());
            }
            all += layers * ramped;
            if work.direction() == Direction::Write {
                all += times.layer.0;
            }
        }
        Nanos(all)
    }

    /// The workload as it is measured.
    #[must_use]
    pub fn whole(&self, work: &Work, laid: Bytes) -> Phase {
        let times = self.times();
        let writes = work.direction() == Direction::Write;
        let mut phase = Phase {
            runtime: Some(times.workload),
            bytes: None,
            ramp_time: times.ramp,
            size: laid,
            durability: flushed(&work.phase),
            ..work.phase.clone()
        };
        if writes {
            // What is not counted is written all the same, and would have to be flushed in the time that counts.
            phase.ramp_time = Nanos(0);
            phase.bytes = Some(laid);
            // What it leaves is read afterwards.
            phase.in_turns = true;
        }
        phase
    }

    /// The laying of the test file.
    pub fn laying(&self, like: &Phase) -> Result<Phase> {
        let keys = PhaseFile {
            rw: Some(Rw::Write),
            bs: Some(LAYING.0),
            iodepth: Some(LAYING.1),
            size: Some(self.file_bytes()),
            bytes: Some(self.file_bytes()),
            payload: Some(like.payload),
            compress_percent: Some(like.compress_percent),
            dedupe_percent: Some(like.dedupe_percent),
            ..PhaseFile::default()
        };
        let mut phase = keys.resolve("laying the test file")?;
        phase.runtime = Some(self.times().workload);
        phase.in_turns = true;
        Ok(phase)
    }

    /// The laying of as much as is read again and again: what another way to the same server needs.
    pub fn laying_hot(&self, like: &Phase) -> Result<Phase> {
        let mut phase = self.laying(like)?;
        let least = u64::from(like.block_max()) * u64::from(like.lanes) * 4;
        phase.size = Bytes(
            (2 * HOT.0)
                .max(least.next_multiple_of(MIB))
                .min(phase.size.0),
        );
        phase.bytes = Some(phase.size);
        Ok(phase)
    }

    /// The same on the part that the server's memory holds: nothing is flushed.
    #[must_use]
    pub fn hot(&self, phase: &Phase) -> Phase {
        let times = self.times();
        let writes = phase.rw.writes();
        let least = u64::from(phase.block_max()) * u64::from(phase.lanes) * 4;
        let hot = if writes { HOT_WRITTEN } else { HOT };
        Phase {
            runtime: Some(times.layer),
            bytes: writes.then(|| self.overwrite_bytes()),
            // The bytes of a ramp would be used up by a fast server before anything counts.
            ramp_time: if writes { Nanos(0) } else { times.ramp },
            size: Bytes(hot.0.max(least).min(phase.size.0)),
            durability: if writes {
                Durability::None
            } else {
                phase.durability
            },
            ..phase.clone()
        }
    }

    /// The reading that brings that part into the server's memory.
    pub fn warming(&self, hot: &Phase) -> Result<Phase> {
        let keys = PhaseFile {
            rw: Some(Rw::Read),
            bs: Some(LAYING.0),
            iodepth: Some(LAYING.1),
            size: Some(hot.size),
            bytes: Some(hot.size),
            payload: Some(hot.payload),
            compress_percent: Some(hot.compress_percent),
            dedupe_percent: Some(hot.dedupe_percent),
            direct: Some(hot.direct),
            ..PhaseFile::default()
        };
        keys.resolve("reading the part that is to be in memory")
    }

    /// What the server's own disks are asked for: the workload as it is, and at their best.
    #[must_use]
    pub fn on_the_disks(&self, work: &Work, laid: Bytes) -> [Phase; 2] {
        let times = self.times();
        let writes = work.direction() == Direction::Write;
        // The file of a run that writes comes on top of the one that is there already.
        let size = if writes {
            laid.min(WRITTEN_THERE)
        } else {
            laid
        };
        let own = Phase {
            runtime: Some(times.layer),
            bytes: writes.then(|| self.overwrite_bytes()),
            ramp_time: Nanos(0),
            size,
            direct: true,
            durability: flushed(&work.phase),
            ..work.phase.clone()
        };
        let lanes = u32::from(own.lanes);
        let best = Phase {
            iodepth: own
                .iodepth
                .max((u32::from(BEST_DEPTH) / lanes).max(1) as u16),
            ..own.clone()
        };
        [own, best]
    }
}

/// A phase that writes no more than `left` bytes, in whole blocks; None where too few would be left to measure anything.
#[must_use]
pub fn within(phase: Phase, left: u64) -> Option<Phase> {
    let block = u64::from(phase.block_max()).max(1);
    let most = phase.bytes.map_or(left, |bytes| bytes.0.min(left)) / block * block;
    let least = u64::from(phase.iodepth) * u64::from(phase.lanes) * block * 2;
    (most >= least).then_some(Phase {
        bytes: Some(Bytes(most)),
        ..phase
    })
}

/// The same where the file itself may have to be written first: each gets half.
#[must_use]
pub fn laid_within(phase: Phase, left: u64, lays: bool) -> Option<Phase> {
    let half = if lays { left / 2 / MIB * MIB } else { left };
    let writes = phase.rw.writes();
    let sized = Phase {
        size: if lays {
            phase.size.min(WRITTEN_THERE).min(Bytes(half))
        } else {
            phase.size
        },
        ..phase
    };
    if writes {
        within(sized, half)
    } else {
        sized.validate().is_ok().then_some(sized)
    }
}

/// A write counts when it is stored: each by itself where the workload says so, else all together at the end.
const fn flushed(phase: &Phase) -> Durability {
    if phase.rw.writes() && !phase.durability.each_write() {
        Durability::Flush
    } else {
        phase.durability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(rw: Rw, bs: u64, iodepth: u16) -> Work {
        let keys = PhaseFile {
            rw: Some(rw),
            bs: Some(Bytes(bs)),
            iodepth: Some(iodepth),
            size: Some(Bytes(4 << 30)),
            runtime: Some(Nanos(10 * SECOND)),
            ..PhaseFile::default()
        };
        Work {
            name: rw.key().to_owned(),
            phase: keys.resolve("a test").expect("a phase"),
        }
    }

    fn plan(max_write: u64, work: Vec<Work>) -> DiagnosePlan {
        DiagnosePlan {
            diagnose_plan_version: DIAGNOSE_PLAN_VERSION,
            nasgauge_version: "0".into(),
            target: "nfs://nas/x".into(),
            own_client: None,
            ram_target: None,
            server: Some("nas".into()),
            iperf3: None,
            agent: None,
            server_path: None,
            server_ram: None,
            size: Bytes(512 << 20),
            max_write: Bytes(max_write),
            quick: true,
            connect_timeout: Nanos(SECOND),
            io_timeout: Nanos(SECOND),
            work,
        }
    }

    #[test]
    fn no_more_is_written_than_allowed() {
        for max_write in [64 << 20, 300 << 20, 4 << 30] {
            let plan = plan(max_write, vec![work(Rw::Write, 1 << 20, 4)]);
            plan.validate().expect("a plan");
            let laid = plan.file_bytes();
            let whole = plan.whole(&plan.work[0], laid);
            // From memory, with half the depth, over twice the connections, alone.
            let hot = plan.hot(&whole);
            let bytes = |phase: &Phase| phase.bytes.expect("bounded by bytes").0;
            assert!(bytes(&whole) + 4 * bytes(&hot) <= max_write, "{max_write}");
            assert!(hot.size.0 <= HOT_WRITTEN.0.max(16 << 20));
            for phase in [&whole, &hot] {
                phase.validate().expect("can be measured");
                assert!(phase.runtime.is_some(), "and by time");
            }
        }
    }

    #[test]
    fn what_is_left_bounds_a_phase_and_too_little_is_nothing() {
        let plan = plan(4 << 30, vec![work(Rw::Write, 1 << 20, 4)]);
        let whole = plan.whole(&plan.work[0], Bytes(100 << 20));
        let bytes = |left: u64| within(whole.clone(), left).map(|phase| phase.bytes);
        assert_eq!(bytes(4 << 30), Some(Some(Bytes(100 << 20))));
        assert_eq!(bytes((50 << 20) + 5), Some(Some(Bytes(50 << 20))));
        assert_eq!(bytes(7 << 20), None);
        assert_eq!(bytes(0), None);
        // Half for the file, half for the run on it.
        let random = plan.whole(&work(Rw::RandWrite, 4096, 1), Bytes(100 << 20));
        let laid = laid_within(random, 60 << 20, true).expect("enough");
        assert_eq!(
            (laid.size, laid.bytes),
            (Bytes(30 << 20), Some(Bytes(30 << 20)))
        );
        let read = plan.whole(&work(Rw::Read, 1 << 20, 4), Bytes(100 << 20));
        assert_eq!(laid_within(read.clone(), 0, true), None);
        let small = laid_within(read, 20 << 20, true).expect("enough");
        assert_eq!(small.size, Bytes(10 << 20));
    }

    #[test]
    fn all_phases_of_all_kinds_of_work_can_be_measured() {
        for work in [
            work(Rw::Read, 1 << 20, 4),
            work(Rw::RandRead, 4096, 1),
            work(Rw::RandWrite, 4096, 32),
            work(Rw::Write, 4 << 20, 8),
        ] {
            let plan = plan(4 << 30, vec![work.clone()]);
            plan.validate().expect("a plan");
            let laid = Bytes(100 << 20);
            let whole = plan.whole(&work, laid);
            let hot = plan.hot(&whole);
            let mut phases = vec![plan.laying(&whole).expect("laid"), whole, hot.clone()];
            phases.push(plan.warming(&hot).expect("warmed"));
            phases.extend(plan.on_the_disks(&work, laid));
            for phase in phases {
                phase
                    .validate()
                    .unwrap_or_else(|why| panic!("{}: {why}", work.name));
            }
            assert!(plan.duration().0 < 60 * SECOND, "{}", work.name);
        }
    }

    #[test]
    fn a_saved_plan_comes_back() {
        let plan = plan(4 << 30, vec![work(Rw::Read, 1 << 20, 4)]);
        let text = toml::to_string(&plan).expect("TOML");
        assert!(DiagnosePlan::is_one(&text));
        assert_eq!(
            DiagnosePlan::parse(&text, "plan.toml").expect("parses"),
            plan
        );
        let newer = text.replace("diagnose_plan_version = 1", "diagnose_plan_version = 9");
        let error = DiagnosePlan::parse(&newer, "plan.toml").expect_err("newer");
        assert!(error.message.contains("version 9"), "{error}");
    }
}
