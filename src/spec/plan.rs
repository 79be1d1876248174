//! The plan: everything a run will do, complete, printable, saved beside the results and runnable again.
//!
//! Pure. Must not know: how a target is reached or how a cell is measured.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::spec::repeats::Repeats;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::{Phase, Workload};
use crate::units::{Bytes, Nanos, SECOND};

mod small;

/// Version of `plan.toml`.
pub const PLAN_VERSION: u32 = 1;
/// A run planned for longer than this asks first.
pub const LONG_RUN: Nanos = Nanos(24 * 3600 * SECOND);
/// Rest after a cell that wrote, unless the user says otherwise.
pub const SETTLE: Nanos = Nanos(SECOND);
/// A longer rest is a mistake.
const SETTLE_MAX: Nanos = Nanos(3600 * SECOND);

/// A complete plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this form.
    pub schema_version: u32,
    /// The nasgauge that wrote it.
    pub nasgauge_version: String,
    /// Name of the run; part of the result directory's name.
    pub name: String,
    /// Target URIs.
    pub targets: Vec<String>,
    /// How often each workload runs on each target.
    pub repeats: Repeats,
    /// Rest after a cell that wrote to storage, before the next one.
    #[serde(default = "no_rest")]
    pub settle: Nanos,
    /// Spacing of interval samples.
    pub interval: Nanos,
    /// Longest wait for a connection.
    pub connect_timeout: Nanos,
    /// Longest time without any progress; then the server counts as lost.
    pub io_timeout: Nanos,
    /// Seed of access patterns.
    pub seed: u64,
    /// Keep the test files for the next run.
    pub keep: bool,
    /// Read this file of the user's instead of laying one; nothing is written.
    pub read_existing: Option<String>,
    /// The server's memory, as the user tells it.
    pub server_ram: Option<Bytes>,
    /// Most bytes that may be written to one target.
    pub max_write: Option<Bytes>,
    /// Serial number of the device whose content may be destroyed.
    pub destroy: Option<String>,
    /// The servers are nasgauge's own, in this process.
    #[serde(default)]
    pub embedded: bool,
    /// The workloads, complete.
    pub workloads: Vec<Workload>,
}

/// One measurement: a phase on a target in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Index of the target.
    pub target: usize,
    /// Index of the workload.
    pub workload: usize,
    /// Index of the phase within it.
    pub phase: usize,
    /// The round, from 1.
    pub repeat: u32,
}

impl Plan {
    /// A plan of these workloads on these targets, all else as it is by default.
    #[must_use]
    pub fn new(name: &str, targets: Vec<String>, workloads: Vec<Workload>) -> Self {
        Self {
            schema_version: PLAN_VERSION,
            nasgauge_version: env!("CARGO_PKG_VERSION").into(),
            name: name.into(),
            targets,
            repeats: Repeats::ONCE,
            settle: SETTLE,
            interval: Nanos(SECOND),
            connect_timeout: Nanos(10 * SECOND),
            io_timeout: Nanos(60 * SECOND),
            seed: 1,
            keep: false,
            read_existing: None,
            server_ram: None,
            max_write: None,
            destroy: None,
            embedded: false,
            workloads,
        }
    }

    /// Reads a saved plan.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)
            .map_err(|error| Error::usage(format!("{place}: not a plan: {}", error.message())))?;
        if plan.schema_version != PLAN_VERSION {
            return Err(Error::usage(format!(
                "{place}: plan version {} was written by nasgauge {}; this one reads version {PLAN_VERSION}",
                plan.schema_version, plan.nasgauge_version
            )));
        }
        Ok(plan)
    }

    /// What the plan asks for that can't be, before anything is touched.
    pub fn validate(&self) -> Result<()> {
        if self.targets.is_empty() {
            return Err(Error::usage(
                "no target; add --target URI, such as --target nfs://nas/export/dir",
            ));
        }
        if self.workloads.is_empty() {
            return Err(Error::usage("no workload"));
        }
        if !(1..=1000).contains(&self.repeats.most()) {
            return Err(Error::usage(format!(
                "repeats {} is not between 1 and 1000",
                self.repeats
            )));
        }
        if self.settle.0 > SETTLE_MAX.0 {
            return Err(Error::usage(format!(
                "settle {} is longer than {SETTLE_MAX}",
                self.settle
            )));
        }
        if self.interval.0 < SECOND / 10 {
            return Err(Error::usage(format!(
                "interval {} is shorter than 100ms",
                self.interval
            )));
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("timeout", self.io_timeout),
        ] {
            if time.0 < SECOND / 1000 {
                return Err(Error::usage(format!("{name} {time} is shorter than 1ms")));
            }
        }
        for workload in &self.workloads {
            for phase in &workload.phases {
                // A plan that was saved and edited has not been through a workload file.
                phase
                    .validate()
                    .map_err(|wrong| Error::usage(format!("{}: {wrong}", workload.name)))?;
            }
        }
        for (target, text) in self.targets.iter().enumerate() {
            TargetSpec::parse(text)?;
            if self.targets[..target].contains(text) {
                return Err(Error::usage(
                    "given twice; each target once is enough, --repeats repeats it",
                )
                .at(text));
            }
            if let Some(limit) = self
                .max_write
                .filter(|limit| self.write_bytes().is_some_and(|bytes| bytes.0 > limit.0))
            {
                let bytes = self.write_bytes().unwrap_or_default();
                return Err(Error::usage(format!(
                    "up to {} would be written, over --max-write {}; give a smaller --size or fewer repeats",
                    bytes.both(),
                    limit.both()
                ))
                .at(text));
            }
        }
        if let (Some(path), Some(name)) = (&self.read_existing, self.first_writer()) {
            return Err(Error::usage(format!(
                "--read-existing {path} only reads, but workload {name} writes"
            )));
        }
        self.validate_files()?;
        self.validate_verification()
    }

    /// Whether what is read back can be told right from wrong: see [`crate::payload`] on sectors.
    fn validate_verification(&self) -> Result<()> {
        let involved: Vec<&Phase> = self
            .phases()
            .filter(|phase| phase.files.is_none() && (phase.verify || phase.rw.writes()))
            .collect();
        let verifies = involved.iter().any(|phase| phase.verify);
        let writes = involved.iter().any(|phase| phase.rw.writes());
        let kind = |phase: &Phase| phase.content(0);
        if verifies
            && involved
                .iter()
                .any(|phase| kind(phase) != kind(involved[0]))
        {
            return Err(Error::usage(
                "phases with different payloads share one test file, which can't be verified; give them a run each",
            ));
        }
        let alike = |phase: &&Phase| {
            !phase.rw.random() && phase.blocks == involved[0].blocks && phase.bytes.is_none()
        };
        if verifies
            && writes
            && involved.iter().any(|phase| phase.splits_sectors())
            && !involved.iter().all(alike)
        {
            return Err(Error::usage(
                "verify with block sizes that are no multiples of 512 needs sequential phases of one and the same block size",
            ));
        }
        Ok(())
    }

    /// The cells of a round, from 1, in the order in which they run: workloads in turn, targets interleaved and their
    /// order rotated each round, so that drift hits all of them alike.
    #[must_use]
    pub fn round(&self, repeat: u32) -> Vec<Cell> {
        let targets = self.targets.len();
        let mut cells = Vec::new();
        for (workload, phases) in self
            .workloads
            .iter()
            .map(|workload| workload.phases.len())
            .enumerate()
        {
            for phase in 0..phases {
                for turn in 0..targets {
                    let target = (turn + repeat as usize - 1) % targets;
                    cells.push(Cell {
                        target,
                        workload,
                        phase,
                        repeat,
                    });
                }
            }
        }
        cells
    }

    /// A cell's phase.
    #[must_use]
    pub fn phase(&self, cell: Cell) -> &Phase {
        &self.workloads[cell.workload].phases[cell.phase]
    }

    /// A cell's workload as results name it: `name`, or `name/phase` where there are several.
    #[must_use]
    pub fn cell_name(&self, cell: Cell) -> String {
        let workload = &self.workloads[cell.workload];
        let phase = &workload.phases[cell.phase];
        if phase.name.is_empty() {
            workload.name.clone()
        } else {
            format!("{}/{}", workload.name, phase.name)
        }
    }

    /// Bytes of the test file that each target needs: the largest size of any phase; 0 when all work on small files.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        let blocks = self.phases().filter(|phase| phase.files.is_none());
        blocks.map(|phase| phase.size.0).max().unwrap_or(0)
    }

    /// Whether any phase writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.phases().any(|phase| phase.rw.writes())
    }

    /// Most bytes written to each target, laying included; None when only time bounds a phase that writes.
    #[must_use]
    pub fn write_bytes(&self) -> Option<Bytes> {
        let laid = if self.read_existing.is_some() {
            0
        } else {
            self.file_size()
        };
        let mut total = laid.saturating_add(self.small_bytes_written());
        let blocks = self.phases().filter(|phase| phase.files.is_none());
        for phase in blocks.filter(|phase| phase.rw.writes()) {
            let bytes = match (phase.bytes, phase.runtime) {
                (Some(bytes), _) => bytes.0,
                (None, None) => phase.size.0,
                (None, Some(_)) => return None,
            };
            total = total.saturating_add(bytes.saturating_mul(u64::from(self.repeats.most())));
        }
        Some(Bytes(total))
    }

    /// Measured and ramp time of all cells of so many rounds, where time bounds them; a lower bound of the whole run.
    #[must_use]
    pub fn duration(&self, rounds: u32) -> Nanos {
        let one: u64 = self
            .phases()
            .map(|phase| {
                phase
                    .runtime
                    .map_or(0, |runtime| runtime.0.saturating_add(phase.ramp_time.0))
            })
            .fold(0, u64::saturating_add);
        Nanos(
            one.saturating_mul(u64::from(rounds))
                .saturating_mul(self.targets.len() as u64),
        )
    }

    /// All phases of all workloads.
    pub fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.workloads.iter().flat_map(|workload| &workload.phases)
    }

    fn first_writer(&self) -> Option<&str> {
        let writes = |workload: &&Workload| workload.phases.iter().any(|phase| phase.rw.writes());
        self.workloads
            .iter()
            .find(writes)
            .map(|workload| workload.name.as_str())
    }
}

/// A plan of before there was a rest had none.
const fn no_rest() -> Nanos {
    Nanos(0)
}

/// Lanes and depth of a phase on a target that takes at most `iodepth_max` operations on a session: what one session
/// can't keep under way, more sessions do, so that the bytes in flight stay as asked.
#[must_use]
pub fn lanes_and_depth(phase: &Phase, iodepth_max: u16) -> (u16, u16) {
    let most = iodepth_max.max(1);
    if phase.iodepth <= most {
        return (phase.lanes, phase.iodepth);
    }
    let total = u32::from(phase.lanes) * u32::from(phase.iodepth);
    // The largest depth that divides the total, so that nothing is lost by rounding.
    let depth = (1..=u32::from(most))
        .rev()
        .find(|depth| total % depth == 0)
        .unwrap_or(1);
    (
        (total / depth).min(u32::from(u16::MAX)) as u16,
        depth as u16,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::workload::PhaseFile;

    fn plan(targets: &[&str], phases: &[&str]) -> Plan {
        let phases = phases.iter().enumerate().map(|(index, keys)| {
            let mut phase = toml::from_str::<PhaseFile>(keys)
                .expect("keys")
                .resolve("test")
                .expect("a phase");
            phase.name = format!("p{index}");
            phase
        });
        let workload = Workload {
            name: "w".into(),
            description: String::new(),
            repeats: Repeats::ONCE,
            phases: phases.collect(),
        };
        let targets = targets.iter().map(ToString::to_string).collect();
        Plan {
            repeats: Repeats::Fixed(2),
            ..Plan::new("test", targets, vec![workload])
        }
    }

    #[test]
    fn rounds_rotate_the_targets() {
        let plan = plan(&["null:", "ram:1G"], &["rw='read'"]);
        let order: Vec<(u32, usize)> = [1, 2]
            .into_iter()
            .flat_map(|repeat| plan.round(repeat))
            .map(|cell| (cell.repeat, cell.target))
            .collect();
        assert_eq!(order, [(1, 0), (1, 1), (2, 1), (2, 0)]);
    }

    #[test]
    fn a_saved_plan_is_the_same_plan() {
        let plan = plan(
            &["null:"],
            &["rw='randrw'\nbssplit='4k/70:8k/30'\nruntime=5\nrandom_distribution='zipf:1.2'"],
        );
        let text = toml::to_string(&plan).expect("a plan is TOML");
        assert_eq!(Plan::parse(&text, "plan.toml").expect(&text), plan);
        let auto = Plan {
            repeats: Repeats::Auto,
            ..plan
        };
        let text = toml::to_string(&auto).expect("a plan is TOML");
        assert_eq!(Plan::parse(&text, "plan.toml").expect(&text), auto);
    }

    #[test]
    fn an_older_plan_has_no_rest() {
        let plan = plan(&["null:"], &["rw='read'"]);
        let text = toml::to_string(&plan).expect("a plan is TOML");
        let older = text.replace("settle = \"1s\"\n", "");
        assert_ne!(older, text);
        let older = Plan::parse(&older, "plan.toml").expect("an older plan");
        assert_eq!(older.settle, Nanos(0));
    }

    #[test]
    fn depth_that_a_session_lacks_becomes_lanes() {
        let phase = |keys: &str| {
            plan(&["null:"], &[keys])
                .workloads
                .remove(0)
                .phases
                .remove(0)
        };
        let deep = phase("rw='randread'\niodepth=32\nlanes=2");
        assert_eq!(lanes_and_depth(&deep, 1), (64, 1));
        assert_eq!(lanes_and_depth(&deep, 64), (2, 32));
        assert_eq!(
            lanes_and_depth(&deep, 24),
            (4, 16),
            "no operation is lost to rounding"
        );
    }

    #[test]
    fn written_bytes_are_known_unless_time_bounds_them() {
        let bounded = plan(
            &["null:"],
            &["rw='write'\nsize='1M'", "rw='read'\nsize='3M'"],
        );
        assert_eq!(bounded.write_bytes(), Some(Bytes(5 << 20)));
        assert_eq!(
            plan(&["null:"], &["rw='write'\nruntime=1"]).write_bytes(),
            None
        );
        let auto = Plan {
            repeats: Repeats::Auto,
            ..bounded
        };
        assert_eq!(auto.write_bytes(), Some(Bytes(18 << 20)), "15 at most");
    }

    #[test]
    fn what_can_not_be_verified_is_refused() {
        let refused = |phases: &[&str]| plan(&["/x"], phases).validate().is_err();
        assert!(refused(&[
            "rw='randwrite'\nbs=1000",
            "rw='read'\nbs=1000\nverify=true"
        ]));
        assert!(refused(&[
            "rw='write'\nbs='4k'",
            "rw='read'\nbs=4095\nverify=true"
        ]));
        assert!(refused(&[
            "rw='write'\npayload='zero'",
            "rw='read'\nverify=true"
        ]));
        assert!(!refused(&[
            "rw='write'\nbs=4095",
            "rw='read'\nbs=4095\nverify=true"
        ]));
        assert!(
            !refused(&["rw='randread'\nbs=1000\nverify=true"]),
            "nothing but the laying writes"
        );
        assert!(!refused(&[
            "rw='randwrite'\nbs='4k'",
            "rw='read'\nbs='1M'\nverify=true"
        ]));
    }

    #[test]
    fn impossible_plans_are_refused() {
        assert!(plan(&[], &["rw='read'"]).validate().is_err());
        assert!(
            plan(&["null:", "null:"], &["rw='read'"])
                .validate()
                .is_err()
        );
        let mut edited = plan(&["null:"], &["rw='read'"]);
        edited.workloads[0].phases[0].iodepth = 0;
        assert!(
            edited
                .validate()
                .expect_err("nothing under way")
                .to_string()
                .contains("iodepth")
        );
        edited.workloads[0].phases[0].blocks.clear();
        assert!(edited.validate().is_err(), "no block size at all");
        let cut = plan(
            &["null:"],
            &["rw='randwrite'\nbytes=1000003", "rw='read'\nverify=true"],
        );
        assert!(
            cut.validate()
                .expect_err("cut")
                .to_string()
                .contains("multiples of 512")
        );
        let laid = plan(&["null:"], &["rw='read'\nbs=4095\nverify=true"]);
        assert_eq!(laid.validate(), Ok(()));
        let mut lazy = plan(&["null:"], &["rw='read'"]);
        lazy.settle = Nanos(3601 * SECOND);
        assert!(lazy.validate().is_err());
        let mut hasty = plan(&["null:"], &["rw='read'"]);
        hasty.io_timeout = Nanos(1);
        assert!(hasty.validate().is_err());
        let mut reading = plan(&["/x"], &["rw='write'"]);
        reading.read_existing = Some("a".into());
        assert!(
            reading
                .validate()
                .expect_err("writes")
                .to_string()
                .contains("only reads")
        );
    }
}
