//! One target of a diagnosis: opened, entered, its file laid by as much as the time allows, measured, left.
//!
//! It is a run of one target whose cells are chosen one by one. Must not know: what the figures say.

use crate::error::{Error, Kind, Phase as Step, Result};
use crate::guard::Proof;
use crate::op::Direction;
use crate::record::{Interval, Row, Status};
use crate::run::cell::{self, Context};
use crate::run::results::Results;
use crate::run::site::{self, Place};
use crate::run::{Identity, Settings, Watch};
use crate::spec::diagnose::{DiagnosePlan, within};
use crate::spec::plan::{Cell, Plan};
use crate::spec::repeats::Repeats;
use crate::spec::workload::{Phase, Workload};
use crate::units::{Bytes, Nanos, SECOND};

/// Spacing of samples: an interval of confidence needs some even in a short measurement.
const INTERVAL: Nanos = Nanos(SECOND / 2);
/// Samples from which scatter is judged.
const JUDGED: usize = 4;
/// A measurement that scatters more is made twice, and the steadier one counts.
const UNSTEADY: f64 = 0.25;
const MIB: u64 = 1 << 20;

/// What surrounds all measurements of a diagnosis.
pub(super) struct Around<'a, 'b> {
    pub(super) plan: &'a DiagnosePlan,
    pub(super) run: &'a Identity,
    pub(super) settings: &'a mut Settings<'b>,
    pub(super) watch: &'a mut dyn Watch,
    pub(super) results: Option<&'a mut Results>,
    pub(super) rows: Vec<Row>,
    /// Bytes that may still be written, to all shares of the server together.
    pub(super) left: u64,
}

/// One measurement.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) row: Row,
    /// Rates of its samples, in bytes per second.
    pub(super) samples: Vec<f64>,
    /// Bytes from the file's beginning that it has written without a gap.
    pub(super) laid: u64,
}

impl Measured {
    /// What it carried, in bytes per second; for flushed writes up to the end of the flush, and after a burst what lasted.
    pub(super) fn rate(&self) -> Option<f64> {
        if let Some(burst) = self.row.burst {
            // What lasts: the rest stands still in a cache, and is flushed in time that a longer copy would not have.
            return Some(burst.sustained_bytes_per_s);
        }
        let rate = self.row.durable().or_else(|| self.row.throughput())?;
        Some(rate.0)
    }

    /// How far its samples scatter, as a share of their mean; 0 where too few say anything.
    fn scatter(&self) -> f64 {
        let n = self.samples.len() as f64;
        let mean = self.samples.iter().sum::<f64>() / n;
        if self.samples.len() < JUDGED || mean <= 0.0 || self.row.burst.is_some() {
            return 0.0;
        }
        let squares = self.samples.iter().map(|sample| (sample - mean).powi(2));
        (squares.sum::<f64>() / n).sqrt() / mean
    }

    /// Whether something else came in between.
    fn unsteady(&self) -> bool {
        self.row.status == Status::Ok && self.scatter() > UNSTEADY
    }

    /// Mean latency in nanoseconds.
    pub(super) fn latency_ns(&self) -> Option<f64> {
        (self.row.ops > 0).then(|| self.row.latency.mean())
    }
}

/// A target.
pub(super) struct Bench {
    plan: Plan,
    place: Place,
    generation: u64,
    /// Bytes of the test file that are written.
    pub(super) laid: Bytes,
    /// Each read crosses this computer's page cache.
    pub(super) mounted: bool,
    /// What is written there counts against what may be written; this computer's memory takes any number of writes.
    counts: bool,
}

impl Bench {
    /// Opens and examines a target; nothing is written.
    /// `laying` is the largest file that will lie there.
    pub(super) fn open(uri: &str, laying: Phase, around: &mut Around<'_, '_>) -> Result<Self> {
        let plan = around.plan;
        let plan = Plan {
            interval: INTERVAL,
            connect_timeout: plan.connect_timeout,
            io_timeout: plan.io_timeout,
            server_ram: plan.server_ram,
            repeats: Repeats::ONCE,
            ..Plan::new(
                "diagnose",
                vec![uri.to_owned()],
                vec![one("laying", laying)],
            )
        };
        let place = site::open_only(&plan, around.run, around.settings, around.watch)?;
        place.object().map_err(Clone::clone)?;
        let mounted = place.caps.connections == 0 && place.way().is_network();
        let counts = place.login.spec.protocol != "ram";
        Ok(Self {
            plan,
            place,
            generation: around.run.generation,
            laid: Bytes(0),
            mounted,
            counts,
        })
    }

    /// Makes our directory and the empty file.
    pub(super) fn enter(&mut self) -> Result<()> {
        let Some(site) = self.place.site() else {
            return Ok(());
        };
        site.enter()
    }

    /// What proves to the server's side that it has this storage before it.
    pub(super) fn proof(&mut self) -> Result<Option<(Proof, String)>> {
        let Some(site) = self.place.site() else {
            return Ok(None);
        };
        let name = site.object().name.clone();
        Ok(site.proof()?.map(|proof| (proof, name)))
    }

    /// The target's address and port, where it is on another computer.
    pub(super) fn spec(&self) -> &crate::spec::uri::TargetSpec {
        &self.place.login.spec
    }

    /// The most requests that one session keeps under way.
    pub(super) fn iodepth_max(&self) -> u16 {
        self.place.caps.iodepth_max
    }

    /// Client and server are one computer.
    pub(super) fn loopback(&self) -> bool {
        self.place.loopback() == Some(true)
    }

    /// The bytes cross a network.
    pub(super) fn remote(&self) -> bool {
        self.place.way().is_network()
    }

    /// What the target tells of itself.
    pub(super) fn environment(&mut self) -> serde_json::Value {
        crate::run::environment::gather(&self.plan, std::slice::from_mut(&mut self.place))
    }

    /// Measures a phase and keeps its row; None where it can't be here, with a note. What scatters is measured twice, and the
    /// steadier one counts; but for the workload itself, whose counters at both ends are those of one measurement.
    pub(super) fn measure(
        &mut self,
        name: &str,
        stage: &'static str,
        phase: Phase,
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Measured>> {
        let Some(first) = self.once(name, stage, phase.clone(), 1, around)? else {
            return Ok(None);
        };
        if stage == "end_to_end" || !first.unsteady() {
            return Ok(Some(first));
        }
        around.watch.note(&format!(
            "{name}{} was not steady: it is measured again",
            crate::run::aside(stage)
        ));
        let second = self.once(name, stage, phase, 2, around)?;
        let steadier = second.filter(|second| second.scatter() < first.scatter());
        Ok(steadier.or(Some(first)))
    }

    /// Measures once, within what may still be written, and keeps the row.
    fn once(
        &mut self,
        name: &str,
        stage: &'static str,
        phase: Phase,
        repeat: u32,
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Measured>> {
        let counts = phase.rw.writes() && self.counts;
        let allowed = if counts {
            within(phase, around.left)
        } else {
            Some(phase)
        };
        let Some(phase) = allowed else {
            around.watch.note(&format!(
                "{name}{} is left out: no more may be written (--max-write)",
                crate::run::aside(stage)
            ));
            return Ok(None);
        };
        let most = phase.bytes.unwrap_or_default().0;
        let flight =
            u64::from(phase.lanes) * u64::from(phase.iodepth) * u64::from(phase.block_max());
        let Some(found) = self.cell(name, stage, phase, repeat, around)? else {
            return Ok(None);
        };
        if counts {
            // What a failed one wrote is not known; it is no more than it was allowed.
            let written = match found.row.status {
                Status::Ok => found.row.bytes + flight,
                _ => most,
            };
            around.left = around.left.saturating_sub(written);
        }
        if let Some(results) = around.results.as_mut() {
            results.row(&found.row)?;
        }
        around.watch.row(&found.row);
        around.rows.push(found.row.clone());
        if around.settings.stopped() {
            return Err(stopped());
        }
        Ok(Some(found).filter(|found| found.row.status == Status::Ok))
    }

    fn cell(
        &mut self,
        name: &str,
        stage: &'static str,
        phase: Phase,
        repeat: u32,
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Measured>> {
        if around.settings.stopped() {
            return Err(stopped());
        }
        if let Err(why) = phase.validate() {
            around
                .watch
                .note(&format!("{name} can't be measured: {why}"));
            return Ok(None);
        }
        let Some(results) = around.results.as_mut() else {
            return Ok(None);
        };
        let mut plan = self.plan.clone();
        plan.workloads = vec![one(name, phase)];
        let context = Context {
            plan: &plan,
            stage,
            cell: Cell {
                target: 0,
                workload: 0,
                phase: 0,
                repeat,
            },
            number: None,
            run_id: &around.run.id,
            generation: self.generation,
            wsl: around.run.wsl,
            stop: &around.settings.stop,
        };
        let found = cell::measure(&context, &mut self.place, around.watch, results)?;
        self.generation += found.generations + u64::from(u16::MAX);
        let laid = found.laid;
        let mut rows = found.rows;
        if rows.is_empty() {
            return Ok(None);
        }
        let row = rows.remove(0);
        let samples = rates(&found.samples, row.seconds);
        Ok(Some(Measured { row, samples, laid }))
    }

    /// Lays the test file, as far as the phase's time allows.
    pub(super) fn lay(&mut self, laying: Phase, around: &mut Around<'_, '_>) -> Result<()> {
        let laid = self.once("laying the test file", "laying", laying, 1, around)?;
        if let Some(laid) = laid {
            self.take_as_laid(&laid);
        }
        Ok(())
    }

    /// Takes what a write of the whole file has left as the test file.
    pub(super) fn take_as_laid(&mut self, written: &Measured) {
        self.laid = Bytes(self.laid.0.max(written.laid / MIB * MIB));
    }

    /// Removes everything of ours; a sentence for what stays against our will.
    pub(super) fn leave(self, watch: &mut dyn Watch) -> Vec<String> {
        site::leave_all(&mut [self.place], watch)
    }
}

/// Rates of whole samples; the last one is cut short by the end, and what comes after it belongs to the flush.
fn rates(samples: &[(Direction, Interval)], seconds: Option<f64>) -> Vec<f64> {
    let whole = samples
        .iter()
        .map(|(_, sample)| sample)
        .filter(|sample| sample.is_whole(INTERVAL, seconds));
    whole
        .map(|sample| {
            let seconds = (sample.to.0 - sample.from.0) as f64 / 1e9;
            sample.bytes as f64 / seconds
        })
        .collect()
}

fn one(name: &str, phase: Phase) -> Workload {
    Workload {
        name: name.to_owned(),
        description: String::new(),
        repeats: Repeats::ONCE,
        phases: vec![Phase {
            name: String::new(),
            ..phase
        }],
    }
}

pub(super) fn stopped() -> Error {
    Error::new(Step::Io, Kind::Interrupted, "stopped on request")
}
