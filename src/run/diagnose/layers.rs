//! The layers of one workload, each measured alone, and the workload itself with what moved meanwhile at both ends.
//!
//! Must not know: what the figures say.

use std::time::Duration;

use super::bench::{self, Around, Bench, Measured};
use super::scene::Scene;
use super::server::{Moved, Server};
use super::taken::{Route, Taken};
use crate::error::Result;
use crate::op::Direction;
use crate::probe::{Counters, cpu};
use crate::run::StepView;
use crate::spec::diagnose::{DiagnosePlan, Work};
use crate::spec::workload::Phase;
use crate::stage::round_trip::{Carried, Load};
use crate::units::{Bytes, Nanos};

/// The first use of a path warms up its routes and buffers.
const PROBE_RAMP: Duration = Duration::from_millis(300);

impl Scene {
    /// One workload with all layers that can be measured for it.
    pub(super) fn take(
        &mut self,
        work: &Work,
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Taken>> {
        let plan = around.plan;
        let lays = self.target.laid == Bytes(0);
        let laid = if lays {
            plan.file_bytes()
        } else {
            self.target.laid
        };
        let Some(mut taken) = self.whole(work, laid, around)? else {
            return Ok(None);
        };
        if lays {
            self.target.take_as_laid(&taken.whole);
        }
        let laid = self.target.laid;
        taken.laid = laid;
        taken.route = Route {
            mounted: self.target.mounted,
            loopback: self.target.loopback(),
            remote: self.target.remote(),
        };
        taken.line = self.line;
        taken.elsewhere = self.elsewhere;
        let there = self.server.as_ref().and_then(|server| {
            let host = server.facts.host.as_ref()?;
            host.memory_total_bytes
        });
        taken.server_ram = plan.server_ram.map(|ram| ram.0).or(there);
        if let Some(ways) = &self.ways {
            ways.ceilings(work.direction(), |ceilings| taken.network(&ceilings));
        }
        taken.hot = self.hot(work, around)?;
        taken.tool = beside(&mut self.tool, work, "tool", around)?;
        if let Some(memory) = &mut self.memory {
            taken.memory = beside(memory, work, "protocol", around)?;
        }
        if let Some(own) = &mut self.own_client {
            taken.own_client = beside(own, work, "own_client", around)?;
        }
        taken.trip = self.trip(work, &taken, around);
        self.disks(work, laid, &mut taken, around)?;
        Ok(Some(taken))
    }

    /// The workload itself, with what moved meanwhile at both ends.
    fn whole(
        &mut self,
        work: &Work,
        laid: Bytes,
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Taken>> {
        let mut phase = around.plan.whole(work, laid);
        let reads = work.direction() == Direction::Read;
        let own_cache = self.target.mounted || !self.target.remote();
        if reads && (own_cache || laid.0 < around.plan.file_bytes().0) {
            // A second pass would come from memory, and disks that were slow to write are slow to read: one pass is enough.
            phase.bytes = Some(laid);
            phase.ramp_time = Nanos(0);
        }
        if reads && let Some(server) = &mut self.server {
            server.forget(around.watch);
        }
        let there = self.server.as_mut().and_then(Server::seen);
        let here = Counters::now();
        let target = &mut self.target;
        let measure = || target.measure(&work.name, "end_to_end", phase, around);
        let (whole, loaded) = match &self.probe {
            Some(probe) => probe.during(measure),
            None => (measure(), None),
        };
        let here = Counters::now().since(&here);
        let Some(whole) = whole? else {
            return Ok(None);
        };
        let mut taken = Taken::new(work, whole, laid);
        let moved = self
            .server
            .as_mut()
            .zip(there)
            .and_then(|(server, before)| server.moved(&before, work.direction()));
        taken.moved = moved.map(|moved| Moved {
            core_percent: moved.core_percent.filter(|_| !self.target.loopback()),
            ..moved
        });
        taken.handshake = self.probe.map(|probe| probe.idle).zip(loaded);
        taken.client_core = self.client_core(&taken, &here);
        taken.retransmit_percent = here
            .tcp
            .filter(|tcp| tcp.out_segments > 0)
            .map(|tcp| 100.0 * tcp.retransmits as f64 / tcp.out_segments as f64);
        Ok(Some(taken))
    }

    /// The busiest of the workers and of the cores' work for the network, percent of a core. What other programs do is no
    /// evidence.
    fn client_core(&self, taken: &Taken, passed: &Counters) -> Option<f64> {
        let row = &taken.whole.row;
        let seconds = row.seconds.filter(|seconds| *seconds > 0.0)?;
        let worker = 100.0 * row.client_cpu_s? / seconds / f64::from(row.lanes.max(1));
        let packets = passed
            .cpu
            .as_ref()
            .and_then(cpu::Ticks::busiest)
            .map(|share| share.softirq)
            .filter(|_| !self.busy_before && !self.target.loopback());
        Some(worker.max(packets.unwrap_or(0.0)).min(100.0))
    }

    /// The workload on what the server's memory holds.
    fn hot(&mut self, work: &Work, around: &mut Around<'_, '_>) -> Result<Option<Measured>> {
        if !self.target.remote() {
            return Ok(None);
        }
        let hot = self.hot_phase(work, around.plan);
        if work.direction() == Direction::Read {
            let warming = around.plan.warming(&hot)?;
            self.target
                .measure(&work.name, "warming", warming, around)?;
        }
        let before = self.server.as_mut().and_then(Server::seen);
        let hot = self.target.measure(&work.name, "hot_set", hot, around)?;
        let moved = self
            .server
            .as_mut()
            .zip(before)
            .and_then(|(server, before)| server.moved(&before, work.direction()));
        let read = moved.and_then(|moved| moved.disk_read).unwrap_or(0);
        // A server that caches nothing reads its disks over and over: then this is no figure of its memory.
        Ok(hot.filter(|hot| work.direction() == Direction::Write || read < hot.row.bytes / 2))
    }

    /// The phase of [`Scene::hot`], which what is changed later is held against.
    pub(super) fn hot_phase(&self, work: &Work, plan: &DiagnosePlan) -> Phase {
        let mut hot = plan.hot(&plan.whole(work, self.target.laid));
        // A mount's own cache would answer the second pass.
        hot.direct |= self.target.mounted;
        hot
    }

    /// The workload on the whole file for a short time.
    pub(super) fn brief(&self, work: &Work, plan: &DiagnosePlan) -> Phase {
        let whole = plan.whole(work, self.target.laid);
        Phase {
            size: whole.size,
            durability: whole.durability,
            ..plan.hot(&whole)
        }
    }

    /// What requests and answers carry at the workload's block size, depth and connections.
    fn trip(&mut self, work: &Work, taken: &Taken, around: &mut Around<'_, '_>) -> Option<Carried> {
        let server = self.server.as_ref()?;
        let row = &taken.whole.row;
        let connections = row.connections.filter(|count| *count > 0)?;
        let deep = u32::from(row.iodepth) * u32::from(row.lanes) / connections;
        let load = Load {
            direction: work.direction(),
            block_size: work.phase.block_max(),
            connections: u16::try_from(connections).ok()?,
            iodepth: u16::try_from(deep.max(1)).ok()?,
            ramp: PROBE_RAMP,
            runtime: around.plan.times().layer.duration(),
        };
        around.watch.begin(&StepView {
            label: "requests and answers".to_owned(),
            number: None,
            seconds: Some((load.ramp + load.runtime).as_secs_f64()),
            bytes: None,
        });
        match server.carry(&load, &around.settings.stop)? {
            Ok(carried) => Some(carried),
            Err(error) => {
                around.watch.note(&error.to_string());
                None
            }
        }
    }

    /// The disks alone: the server's by its agent, this computer's own by ourselves.
    fn disks(
        &mut self,
        work: &Work,
        laid: Bytes,
        taken: &mut Taken,
        around: &mut Around<'_, '_>,
    ) -> Result<()> {
        let phases = around.plan.on_the_disks(work, laid);
        let names = [
            "the server's disks at this depth",
            "the server's disks at their best",
        ];
        if let Some(server) = &mut self.server {
            for (at, (phase, what)) in phases.into_iter().zip(names).enumerate() {
                if around.settings.stopped() {
                    return Err(bench::stopped());
                }
                around.watch.begin(&StepView {
                    label: what.to_owned(),
                    number: None,
                    seconds: phase.runtime.map(Nanos::seconds),
                    bytes: None,
                });
                taken.disks[at] = server.disks(what, phase, &mut around.left, around.watch);
                if taken.disks[at].is_none() {
                    break;
                }
            }
            if let [Some(own), Some(best)] = &mut taken.disks
                && own.cached == best.cached
            {
                // At their best they carry no less than they were seen to.
                best.rate = best.rate.max(own.rate);
            }
        } else if !self.target.remote() {
            let [_, best] = phases;
            taken.local_best = self
                .target
                .measure(&work.name, "storage_best", best, around)?;
        }
        Ok(())
    }
}

/// The workload on another way to the same server: its file laid first, then read or written as the target's.
fn beside(
    bench: &mut Bench,
    work: &Work,
    stage: &'static str,
    around: &mut Around<'_, '_>,
) -> Result<Option<Measured>> {
    let plan = around.plan;
    if bench.laid == Bytes(0) {
        let like = plan.whole(work, plan.file_bytes());
        let phase = plan.laying_hot(&like)?;
        bench.lay(phase, around)?;
        if bench.laid == Bytes(0) {
            return Ok(None);
        }
    }
    let mut phase = plan.hot(&plan.whole(work, bench.laid));
    if !bench.remote() {
        // This computer's memory takes any number of writes.
        phase.bytes = None;
        phase.runtime = Some(plan.times().tool);
    }
    bench.measure(&work.name, stage, phase, around)
}
