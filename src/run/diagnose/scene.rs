//! All that a diagnosis measures on: opened and examined first, measured one workload after the other, left at the end.
//!
//! Must not know: what becomes of the verdicts.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{self, Around, Bench};
use super::server::{BUSY_BEFORE, Server};
use super::ways::{self, Ways};
use super::{Judged, changes, queue};
use crate::error::{Error, Kind, Result};
use crate::guard::Proof;
use crate::op::Direction;
use crate::probe::{Counters, names};
use crate::run::Watch;
use crate::spec::diagnose::{DiagnosePlan, Work};
use crate::stage::network;
use crate::verdict::{Confidence, decide};

/// Time in which this computer is looked at before anything begins.
const LOOK: Duration = Duration::from_millis(800);

/// All that a diagnosis measures on.
pub(super) struct Scene {
    pub(super) target: Bench,
    pub(super) own_client: Option<Bench>,
    pub(super) memory: Option<Bench>,
    pub(super) tool: Bench,
    pub(super) server: Option<Server>,
    pub(super) network: Option<network::Server>,
    /// The network is tested with another address than the target's.
    pub(super) elsewhere: bool,
    pub(super) probe: Option<queue::Probe>,
    pub(super) ways: Option<Ways>,
    pub(super) line: Option<f64>,
    /// Something else keeps a core of this computer busy, so that a busy core is no evidence.
    pub(super) busy_before: bool,
}

impl Scene {
    /// Opens everything; nothing is written anywhere.
    pub(super) fn open(around: &mut Around<'_, '_>) -> Result<Self> {
        let plan = around.plan;
        let first = &plan.work[0];
        let small = plan.laying_hot(&plan.whole(first, plan.file_bytes()))?;
        let target = Bench::open(&plan.target, plan.laying(&first.phase)?, around)?;
        let mut own_client = None;
        if let Some(uri) = &plan.own_client {
            match Bench::open(uri, small.clone(), around) {
                Ok(bench) => own_client = Some(bench),
                // The mount itself is what was asked for.
                Err(error) => around
                    .watch
                    .note(&format!("{uri} can't be tried beside the mount: {error}")),
            }
        }
        let memory = plan
            .ram_target
            .as_ref()
            .map(|uri| Bench::open(uri, small.clone(), around))
            .transpose()?;
        let tool = format!("ram:{}", small.size.0);
        let tool = Bench::open(&tool, small, around)?;
        let mut server = Server::connect(plan)?;
        let port = plan.iperf3.as_ref().map(|host| host.port);
        let name = plan.iperf3.as_ref().map(|host| &host.host);
        let network = name
            .or(plan.server.as_ref())
            .map(|host| network::Server::resolve(host, port, plan.connect_timeout.duration()))
            .transpose()
            .map_err(|error| Error::usage(error.message))?;
        let elsewhere = elsewhere(plan, network.as_ref());
        if elsewhere {
            around.watch.note(
                "the iperf3 server has another address than the target: what the network carries there is not proven to be what it carries here",
            );
        }
        let before = Counters::now();
        std::thread::sleep(LOOK);
        let busiest = Counters::now()
            .since(&before)
            .cpu
            .and_then(|ticks| ticks.busiest());
        let busy_before = busiest.is_some_and(|share| share.busy >= BUSY_BEFORE);
        let busy_there = server.as_ref().is_some_and(|server| server.busy_before);
        for (busy, place) in [(busy_before, "this computer"), (busy_there, "the server")] {
            if busy {
                around.watch.note(&format!(
                    "something else keeps a processor core of {place} busy: its load is no evidence, and figures may be lower than they could be"
                ));
            }
        }
        let line = network
            .as_ref()
            .and_then(|server| ways::line(&network::ground(server)));
        let address = network.as_ref().map(|server| server.address);
        let service = target
            .spec()
            .port
            .or(match target.spec().protocol.as_str() {
                "nfs" => Some(2049),
                "smb" => Some(445),
                "iscsi" => Some(3260),
                _ => None,
            });
        let probe = address.and_then(|address| queue::Probe::find(address, service));
        if let (Some(server), Some(address)) = (&mut server, address)
            && let Err(error) = server.trips(
                address,
                plan.connect_timeout.duration(),
                plan.duration().duration(),
            )
        {
            around.watch.note(&error.to_string());
        }
        Ok(Self {
            target,
            own_client,
            memory,
            tool,
            server,
            network,
            elsewhere,
            probe,
            ways: None,
            line,
            busy_before,
        })
    }

    pub(super) fn environment(&mut self) -> Value {
        let mut environment = self.target.environment();
        if let (Some(server), Some(target)) =
            (&self.server, environment.pointer_mut("/targets/0/host"))
        {
            *target = json!(server.facts);
        }
        environment
    }

    /// Measures and judges all work; what was judged before an error stays.
    pub(super) fn measure(
        &mut self,
        around: &mut Around<'_, '_>,
        judged: &mut Vec<Judged>,
    ) -> Result<()> {
        let plan = around.plan;
        self.network(around)?;
        self.target.enter()?;
        self.tool.enter()?;
        for bench in [&mut self.own_client, &mut self.memory] {
            if let Some(Err(error)) = bench.as_mut().map(Bench::enter) {
                around.watch.note(&error.to_string());
                *bench = None;
            }
        }
        self.prove(around)?;
        // A sequential write of the whole file leaves the file that all others need.
        let lays = |work: &&Work| {
            work.direction() == Direction::Write && !work.phase.rw.random() && work.phase.lanes == 1
        };
        let first = plan.work.iter().position(|work| lays(&work));
        if first.is_none() {
            self.lay(around)?;
        }
        let order = first
            .into_iter()
            .chain((0..plan.work.len()).filter(|at| Some(*at) != first));
        for at in order {
            let Some(mut taken) = self.take(&plan.work[at], around)? else {
                continue;
            };
            let Some(mut case) = taken.case() else {
                continue;
            };
            let mut verdict = decide(&case);
            if verdict.confidence != Confidence::Confirmed {
                changes::make(self, &plan.work[at], &mut taken, around)?;
                case = taken.case().unwrap_or(case);
                verdict = decide(&case);
            }
            judged.push(Judged {
                block_size_bytes: taken.whole.row.block_size_bytes,
                case,
                verdict,
            });
        }
        Ok(())
    }

    fn network(&mut self, around: &mut Around<'_, '_>) -> Result<()> {
        let served = self.server.is_some() || around.plan.iperf3.is_some();
        let Some(network) = self.network.clone().filter(|_| served) else {
            return Ok(());
        };
        match Ways::measure(around, &network, self.server.as_mut()) {
            Ok(ways) => self.ways = Some(ways),
            Err(error) if error.kind == Kind::Interrupted => return Err(error),
            Err(error) => around.watch.note(&error.to_string()),
        }
        if around.settings.stopped() {
            return Err(bench::stopped());
        }
        Ok(())
    }

    fn prove(&mut self, around: &mut Around<'_, '_>) -> Result<()> {
        if let Some(server) = &mut self.server {
            let proof: Option<(Proof, String)> = self.target.proof()?;
            server.prove(proof.as_ref(), around.watch);
        }
        Ok(())
    }

    /// Lays the test file as far as the time allows.
    fn lay(&mut self, around: &mut Around<'_, '_>) -> Result<()> {
        let laying = around.plan.laying(&around.plan.work[0].phase)?;
        self.target.lay(laying, around)
    }

    /// Removes everything of ours, everywhere.
    pub(super) fn leave(mut self, watch: &mut dyn Watch) -> Vec<String> {
        if let Some(server) = &mut self.server {
            server.close();
        }
        let benches = [
            Some(self.target),
            self.own_client,
            self.memory,
            Some(self.tool),
        ];
        benches
            .into_iter()
            .flatten()
            .flat_map(|bench| bench.leave(watch))
            .collect()
    }
}

/// Whether the network is tested with a server that is not the target's.
fn elsewhere(plan: &DiagnosePlan, tested: Option<&network::Server>) -> bool {
    let Some((tested, server)) = tested.zip(plan.server.as_ref()) else {
        return false;
    };
    let target = names::resolve(server, plan.connect_timeout.duration());
    target.is_ok_and(|addresses| {
        addresses
            .iter()
            .all(|address| address.ip() != tested.address)
    })
}
