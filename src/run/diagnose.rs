//! A diagnosis: the layers of one target measured one by one, and what limits each workload by them.
//!
//! Read first. Nothing but the target is needed; what else is there (an agent, an iperf3 server, a share in the server's
//! memory, our own client beside a mount) is measured too. Then `verdict` decides. Where that is not sure, one thing after the
//! other is changed (`changes`) and it decides again. `bench` measures on a target, `ways` the network, `server` what an agent
//! tells, `queue` whether packets wait on the way, `taken` makes a case of all of it.
//!
//! Must not know: how anything is shown.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Kind, Result};
use crate::guard::Proof;
use crate::op::Direction;
use crate::probe::{Counters, cpu};
use crate::record::{Row, SCHEMA_VERSION};
use crate::report::ladder;
use crate::run::{Identity, Results, Settings, Watch};
use crate::spec::diagnose::{DiagnosePlan, Work};
use crate::spec::repeats::Repeats;
use crate::stage::network;
use crate::stage::round_trip::Load;
use crate::units::{Bytes, Nanos};
use crate::verdict::case::Case;
use crate::verdict::{Confidence, Verdict, decide};

mod bench;
mod changes;
mod queue;
mod server;
mod taken;
mod ways;

use bench::{Around, Bench};
use server::{BUSY_BEFORE, Server};
use taken::Taken;
use ways::Ways;

/// The seed of all patterns: two diagnoses of one target do the same.
const SEED: u64 = 1;
/// Time in which this computer is looked at before anything begins.
const LOOK: Duration = Duration::from_millis(800);
/// The first use of a path warms up its routes and buffers.
const PROBE_RAMP: Duration = Duration::from_millis(300);

/// One workload in one direction, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// Bytes of a request.
    pub block_size_bytes: Option<u64>,
    /// All that is known.
    pub case: Case,
    /// What limits it.
    pub verdict: Verdict,
}

/// What a diagnosis came to.
#[derive(Debug)]
pub struct Diagnosis {
    /// Its workloads.
    pub judged: Vec<Judged>,
    /// All rows.
    pub rows: Vec<Row>,
    /// The result directory.
    pub directory: PathBuf,
    /// What was measured on, in a line or two, without names and addresses.
    pub head: String,
    /// What could not be measured or removed, one sentence each.
    pub left: Vec<String>,
    /// The user stopped it.
    pub interrupted: bool,
}

impl Diagnosis {
    /// The exit code of CONTRACT: 0 all is judged, 1 something could not be measured, 130 interrupted.
    #[must_use]
    pub fn exit_code(&self, plan: &DiagnosePlan) -> u8 {
        if self.interrupted {
            130
        } else {
            u8::from(self.judged.len() < plan.work.len() || !self.left.is_empty())
        }
    }
}

/// The whole record, as record.json has it.
#[derive(Serialize)]
struct DiagnoseRecord<'a> {
    schema_version: u32,
    run_id: &'a str,
    nasgauge_version: &'a str,
    plan: &'a DiagnosePlan,
    environment: &'a Value,
    rows: &'a [Row],
    judged: &'a [Judged],
}

/// Carries a plan out. Err only when nothing was touched.
pub fn run(
    plan: &DiagnosePlan,
    settings: &mut Settings<'_>,
    watch: &mut dyn Watch,
) -> Result<Diagnosis> {
    plan.validate()?;
    let identity = Identity::new(SEED);
    let out = settings.out.clone();
    let mut around = Around {
        plan,
        run: &identity,
        settings,
        watch,
        results: None,
        rows: Vec::new(),
    };
    let mut scene = Scene::open(&mut around)?;
    let environment = scene.environment();
    let mut results = Results::create(&out, &identity.id, "diagnose", plan, &environment)?;
    around.watch.results(results.directory());
    around.results = Some(&mut results);
    let mut judged = Vec::new();
    let measured = scene.measure(&mut around, &mut judged);
    let mut left = scene.leave(around.watch);
    match measured {
        Err(error) if error.kind != Kind::Interrupted => left.push(error.to_string()),
        _ => {}
    }
    let interrupted = around.settings.stopped();
    let rows = std::mem::take(&mut around.rows);
    let record = DiagnoseRecord {
        schema_version: SCHEMA_VERSION,
        run_id: &identity.id,
        nasgauge_version: &plan.nasgauge_version,
        plan,
        environment: &environment,
        rows: &rows,
        judged: &judged,
    };
    let head = head(plan, &rows, &environment);
    let kept = keep(&mut results, &record);
    left.extend(kept.err().map(|error| error.to_string()));
    Ok(Diagnosis {
        judged,
        head,
        rows,
        directory: results.directory().to_owned(),
        left,
        interrupted,
    })
}

/// This computer, its way to the server and what both agreed on: what anybody who is asked for help wants to know.
fn head(plan: &DiagnosePlan, rows: &[Row], environment: &Value) -> String {
    let whole = rows.iter().find(|row| row.stage == "end_to_end");
    let mut parts = vec![format!(
        "nasgauge {} diagnose{}",
        plan.nasgauge_version,
        if plan.quick { " --quick" } else { "" }
    )];
    if let Some(row) = whole {
        parts.push(row.protocol.clone());
        let agreed = row.negotiated.split(' ').filter(|word| !word.is_empty());
        parts.extend(agreed.map(ToOwned::to_owned));
    }
    let told = |pointer: &str| {
        let value = environment.pointer(pointer)?;
        value.as_str().map(ToOwned::to_owned)
    };
    parts.extend(told("/client/kernel").map(|kernel| format!("client Linux {kernel}")));
    parts.extend(told("/client/cpu_model"));
    parts
        .extend(told("/targets/0/host/host/kernel").map(|kernel| format!("server Linux {kernel}")));
    parts.join(", ")
}

fn keep(results: &mut Results, record: &DiagnoseRecord<'_>) -> Result<()> {
    let all = || record.judged.iter();
    let ladder = ladder::ladder_csv(
        record.run_id,
        all().map(|one| (&one.case, one.block_size_bytes)),
    )?;
    let verdicts = ladder::verdict_csv(record.run_id, all().map(|one| (&one.case, &one.verdict)))?;
    results.put("ladder.csv", ladder.as_bytes())?;
    results.put("verdict.csv", verdicts.as_bytes())?;
    results.finish(record.rows, Repeats::ONCE, record)
}

/// All that a diagnosis measures on.
struct Scene {
    target: Bench,
    own_client: Option<Bench>,
    memory: Option<Bench>,
    tool: Bench,
    server: Option<Server>,
    network: Option<network::Server>,
    probe: Option<queue::Probe>,
    ways: Option<Ways>,
    line: Option<f64>,
    /// Something else keeps a core of this computer busy, so that a busy core is no evidence.
    busy_before: bool,
}

impl Scene {
    /// Opens everything; nothing is written anywhere.
    fn open(around: &mut Around<'_, '_>) -> Result<Self> {
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
            && let Err(error) = server.trips(address, plan.connect_timeout.duration())
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
            probe,
            ways: None,
            line,
            busy_before,
        })
    }

    fn environment(&mut self) -> Value {
        let mut environment = self.target.environment();
        if let (Some(server), Some(target)) =
            (&self.server, environment.pointer_mut("/targets/0/host"))
        {
            *target = json!(server.facts);
        }
        environment
    }

    /// Measures and judges all work; what was judged before an error stays.
    fn measure(&mut self, around: &mut Around<'_, '_>, judged: &mut Vec<Judged>) -> Result<()> {
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
        self.target.lay(laying, around).map(drop)
    }

    /// One workload with all layers that can be measured for it.
    fn take(&mut self, work: &Work, around: &mut Around<'_, '_>) -> Result<Option<Taken>> {
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
            self.target.take_as_laid(&taken.whole.row);
        }
        let laid = self.target.laid;
        taken.laid = laid;
        taken.mounted = self.target.mounted;
        taken.loopback = self.target.loopback();
        taken.remote = self.target.remote();
        taken.line = self.line;
        let there = self.server.as_ref().and_then(|server| {
            let host = server.facts.host.as_ref()?;
            host.memory_total_bytes
        });
        taken.server_ram = plan.server_ram.map(|ram| ram.0).or(there);
        if let Some(ways) = &self.ways {
            ways.ceilings(work.direction(), |ceilings| taken.network(&ceilings));
            taken.findings = ways.findings(work.direction());
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
            server.drop_caches();
        }
        let there = self.server.as_mut().and_then(Server::counters);
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
        let passed = self
            .server
            .as_mut()
            .and_then(Server::counters)
            .zip(there)
            .map(|(now, before)| now.since(&before));
        if let (Some(passed), Some(server)) = (passed, &self.server) {
            let mut moved = server::moved(&passed, work.direction());
            if server.busy_before || self.target.loopback() {
                moved.core_percent = None;
            }
            if server.throttled_before {
                moved.throttled = None;
            }
            taken.moved = Some(moved);
        }
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
    fn hot(&mut self, work: &Work, around: &mut Around<'_, '_>) -> Result<Option<bench::Measured>> {
        if !self.target.remote() {
            return Ok(None);
        }
        let hot = self.hot_phase(work, around.plan);
        if work.direction() == Direction::Read {
            let warming = around.plan.warming(&hot)?;
            self.target
                .prepare("reading into the server's memory", warming, around)?;
        }
        self.target.measure(&work.name, "hot_set", hot, around)
    }

    /// The phase of [`Scene::hot`], which what is changed later is held against.
    fn hot_phase(&self, work: &Work, plan: &DiagnosePlan) -> crate::spec::workload::Phase {
        let mut hot = plan.hot(&plan.whole(work, self.target.laid));
        // A mount's own cache would answer the second pass.
        hot.direct |= self.target.mounted;
        hot
    }

    /// What requests and answers carry at the workload's block size, depth and connections.
    fn trip(
        &mut self,
        work: &Work,
        taken: &Taken,
        around: &mut Around<'_, '_>,
    ) -> Option<crate::stage::round_trip::Carried> {
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
        around.watch.begin(&crate::run::StepView {
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
                around.watch.begin(&crate::run::StepView {
                    label: what.to_owned(),
                    number: None,
                    seconds: phase.runtime.map(Nanos::seconds),
                    bytes: None,
                });
                taken.disks[at] = server.disks(what, &phase, around.watch);
                if taken.disks[at].is_none() {
                    break;
                }
            }
        } else if !self.target.remote() {
            let [_, best] = phases;
            taken.local_best = self
                .target
                .measure(&work.name, "storage_best", best, around)?;
        }
        Ok(())
    }

    /// Removes everything of ours, everywhere.
    fn leave(mut self, watch: &mut dyn Watch) -> Vec<String> {
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

/// The workload on another way to the same server: its file laid first, then read or written as the target's.
fn beside(
    bench: &mut Bench,
    work: &Work,
    stage: &'static str,
    around: &mut Around<'_, '_>,
) -> Result<Option<bench::Measured>> {
    let plan = around.plan;
    if bench.laid == Bytes(0) {
        let like = plan.whole(work, plan.file_bytes());
        let phase = plan.laying_hot(&like)?;
        if !bench.lay(phase, around)? {
            return Ok(None);
        }
    }
    let mut phase = plan.hot(&plan.whole(work, bench.laid));
    if !bench.remote() {
        // This computer's memory takes any number of writes.
        phase.bytes = None;
    }
    bench.measure(&work.name, stage, phase, around)
}
