//! A run of network tests: a plan becomes rows of stage `network`, on disk as soon as they are known.
//!
//! Must not know: how flows are carried, or how anything is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fleet::agent::Agent;
use crate::network::limits::{Finding, findings};
use crate::network::{Flows, Way, ceilings};
use crate::probe::Snapshot;
use crate::record::{Row, SCHEMA_VERSION, Status};
use crate::run::{Out, Results, new_run_id};
use crate::spec::network::{NetworkPlan, Ways};
use crate::spec::repeats::Repeats;
use crate::stage::network::{self, Ask, Ground, Server, Tested, Traffic, Watch};

pub(super) mod rows;
pub mod trips;

use trips::Trips;

/// What a run of network tests tells while it goes on.
pub trait NetworkWatch {
    /// A sentence for the user.
    fn note(&mut self, text: &str);
    /// The result directory was made.
    fn results(&mut self, directory: &Path);
    /// A test begins; it takes that long.
    fn begin(&mut self, label: &str, seconds: f64);
    /// How far it is, and what it carries each way, in bits per second.
    fn progress(&mut self, seconds: f64, rates: &[(Way, f64)]);
    /// A row is known and on disk.
    fn row(&mut self, row: &Row);
}

/// What a run came to.
#[derive(Debug)]
pub struct NetworkOutcome {
    /// The servers, in the plan's order, and what is known of the way to each.
    pub servers: Vec<(Server, Ground)>,
    /// All tests.
    pub tests: Vec<Tested>,
    /// What requests and answers carried; only an agent answers them.
    pub trips: Option<Trips>,
    /// All rows.
    pub rows: Vec<Row>,
    /// The result directory.
    pub directory: PathBuf,
    /// The user stopped it.
    pub interrupted: bool,
}

impl NetworkOutcome {
    /// The exit code of CONTRACT: 0 all ok, 1 a row is not, 130 interrupted.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            130
        } else {
            u8::from(self.rows.iter().any(|row| row.status != Status::Ok))
        }
    }

    /// The tests of one way with all servers together, those of both at once included.
    #[must_use]
    pub fn way(&self, way: Way) -> Vec<Flows> {
        self.tests
            .iter()
            .filter_map(|tested| tested.total(way))
            .collect()
    }

    /// What the tests of one way show.
    #[must_use]
    pub fn findings(&self, way: Way) -> Vec<Finding> {
        let Some((_, ground)) = self.servers.first() else {
            return Vec::new();
        };
        let mut path = ground.path;
        // Servers on other interfaces have lines of their own: the sum is held against no single one.
        if self
            .servers
            .iter()
            .any(|(_, other)| other.interface != ground.interface)
        {
            path.link_bits_per_s = None;
        }
        findings(way, &self.way(way), &path)
    }
}

/// The whole record, as record.json has it.
#[derive(Serialize)]
struct NetworkRecord<'a> {
    schema_version: u32,
    run_id: &'a str,
    nasgauge_version: &'a str,
    plan: &'a NetworkPlan,
    environment: &'a Value,
    rows: &'a [Row],
    findings: Vec<String>,
}

/// Runs a plan. Err only when nothing was touched.
pub fn run(
    plan: &NetworkPlan,
    out: &Out,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn NetworkWatch,
) -> Result<NetworkOutcome> {
    plan.validate()?;
    let ask = ask(plan)?;
    let mut agent = plan.agent.as_deref().map(Agent::connect).transpose()?;
    let there = agent.as_mut().map(Agent::facts).transpose()?;
    let mut grounds: Vec<Ground> = ask.servers.iter().map(network::ground).collect();
    let id = new_run_id();
    let environment = environment(plan, &ask.servers, &grounds, there.as_ref());
    let mut results = Results::create(out, &id, "network", plan, &environment)?;
    watch.results(results.directory());
    let mut keeper = Keeper {
        plan,
        ask: &ask,
        grounds: grounds.clone(),
        id: &id,
        results: &mut results,
        watch,
        rows: Vec::new(),
        repeats: std::collections::HashMap::new(),
    };
    let tests = network::measure(&ask, &mut grounds, agent.as_mut(), stop, &mut keeper)?;
    let whole = tests
        .iter()
        .all(|tested| tested.servers.iter().all(Result::is_ok));
    let mut trips = None;
    if let Some(agent) = &mut agent
        && plan.round_trip
        && whole
        && !stop.load(Relaxed)
    {
        trips = Some(keeper.trips(agent, &tests, stop)?);
    }
    let rows = keeper.rows;
    let outcome = NetworkOutcome {
        servers: ask.servers.iter().cloned().zip(grounds).collect(),
        tests,
        trips,
        rows,
        directory: results.directory().to_owned(),
        interrupted: stop.load(Relaxed),
    };
    let said = [Way::Send, Way::Receive].into_iter().flat_map(|way| {
        let found = outcome.findings(way);
        found
            .into_iter()
            .map(move |finding| format!("{}: {finding}", way.words()))
    });
    let record = NetworkRecord {
        schema_version: SCHEMA_VERSION,
        run_id: &id,
        nasgauge_version: &plan.nasgauge_version,
        plan,
        environment: &environment,
        rows: &outcome.rows,
        findings: said.collect(),
    };
    results.finish(&outcome.rows, Repeats::ONCE, &record)?;
    Ok(outcome)
}

/// What the stage is to do: names are found out, rules left open.
fn ask(plan: &NetworkPlan) -> Result<Ask> {
    let patience = plan.connect_timeout.duration();
    let mut servers = Vec::new();
    for host in &plan.hosts {
        let port = plan.agent.is_none().then_some(host.port);
        let server = Server::resolve(&host.host, port, patience);
        // Nothing was touched yet: a name that can't be found is as good as a wrong one.
        servers.push(server.map_err(|error| Error::usage(error.message))?);
    }
    Ok(Ask {
        servers,
        flows: (!plan.flows.is_empty()).then(|| plan.flows.clone()),
        traffic: match plan.ways {
            Ways::Send => vec![Traffic::One(Way::Send)],
            Ways::Receive => vec![Traffic::One(Way::Receive)],
            Ways::Both => vec![Traffic::One(Way::Receive), Traffic::One(Way::Send)],
            Ways::Bidir => vec![Traffic::Both],
            Ways::All => vec![
                Traffic::One(Way::Receive),
                Traffic::One(Way::Send),
                Traffic::Both,
            ],
        },
        seconds: plan.runtime.seconds() as u32,
        warm_up_s: plan.warm_up.map(|time| time.seconds() as u32),
        interval_s: plan.interval.seconds(),
        block: plan.block as usize,
        cores: plan.cores.clone(),
        congestion_control: plan.congestion_control.clone(),
        window: plan.window.and_then(|window| i32::try_from(window).ok()),
        bind: plan.bind.clone(),
        connect_timeout: Duration::from_nanos(plan.connect_timeout.0),
    })
}

fn environment(
    plan: &NetworkPlan,
    servers: &[Server],
    grounds: &[Ground],
    there: Option<&Snapshot>,
) -> Value {
    let servers: Vec<Value> = servers
        .iter()
        .zip(grounds)
        .map(|(server, ground)| {
            json!({
                "server": server.label,
                "address": server.address,
                "loopback": ground.local,
                "interface": ground.interface,
                "nic": ground.nic,
                "host": there,
            })
        })
        .collect();
    json!({
        "nasgauge_version": plan.nasgauge_version,
        "client": Snapshot::now(),
        "servers": servers,
    })
}

/// Writes rows down as tests end.
struct Keeper<'a> {
    plan: &'a NetworkPlan,
    ask: &'a Ask,
    grounds: Vec<Ground>,
    id: &'a str,
    results: &'a mut Results,
    watch: &'a mut dyn NetworkWatch,
    rows: Vec<Row>,
    /// How often each test was run: a second set of ports is a repeat.
    repeats: std::collections::HashMap<(u32, bool, Option<Way>), u32>,
}

impl Keeper<'_> {
    fn keep(&mut self, row: Row) -> Result<()> {
        self.results.row(&row)?;
        self.watch.row(&row);
        self.rows.push(row);
        Ok(())
    }

    fn trips(
        &mut self,
        agent: &mut Agent,
        tests: &[Tested],
        stop: &Arc<AtomicBool>,
    ) -> Result<Trips> {
        let (ask, ground) = (self.ask, self.grounds[0].clone());
        let server = &ask.servers[0];
        let single = |way| {
            let flows: Vec<Flows> = tests
                .iter()
                .filter_map(|tested| tested.total(way))
                .collect();
            Some(ceilings(&flows)?.single?.bits_per_s()? / 8.0)
        };
        let template = Row {
            run_id: self.id.to_owned(),
            ..Row::blank()
        };
        let plan = self.plan;
        let keeper = std::cell::RefCell::new(self);
        trips::measure(
            agent,
            server,
            plan,
            single,
            stop,
            |label, seconds| keeper.borrow_mut().watch.begin(label, seconds),
            |trip| {
                let template = Row {
                    started_utc: crate::clock::now_utc(),
                    ..template.clone()
                };
                let row = trips::row(&template, server, &ground, trip);
                keeper.borrow_mut().keep(row)
            },
        )
    }
}

impl Watch for Keeper<'_> {
    fn note(&mut self, text: &str) {
        self.watch.note(text);
    }

    fn begin(&mut self, label: &str, seconds: f64) {
        self.watch.begin(label, seconds);
    }

    fn progress(&mut self, seconds: f64, rates: &[(Way, f64)]) {
        self.watch.progress(seconds, rates);
    }

    fn tested(&mut self, tested: &Tested) -> Result<()> {
        let way = match tested.traffic {
            Traffic::One(way) => Some(way),
            Traffic::Both => None,
        };
        let repeat = self
            .repeats
            .entry((tested.flows, way.is_none(), way))
            .and_modify(|count| *count += 1)
            .or_insert(1);
        let template = Row {
            run_id: self.id.to_owned(),
            started_utc: tested.started_utc.clone(),
            block_size_bytes: Some(self.plan.block),
            repeat: *repeat,
            ..rows::blank(tested)
        };
        for (row, samples) in rows::rows(&template, self.ask, &self.grounds, tested) {
            for interval in &samples {
                self.results.interval(&row, interval)?;
            }
            self.keep(row)?;
        }
        Ok(())
    }
}
