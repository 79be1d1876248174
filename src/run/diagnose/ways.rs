//! The network of a diagnosis: what TCP carries each way, with one connection and with as many as carry most.
//!
//! Must not know: storage.

use std::time::Duration;

use super::bench::Around;
use super::server::Server;
use crate::error::Result;
use crate::line::Framing;
use crate::network::{Ceilings, Flows, Way, ceilings};
use crate::op::Direction;
use crate::run::network::rows;
use crate::spec::diagnose::DiagnosePlan;
use crate::stage::network::{self, Ask, Ground, Tested, Traffic, Watch};
use crate::units::SECOND;

const BLOCK: usize = 128 << 10;

/// What the network carries.
pub(super) struct Ways(Vec<Tested>);

impl Ways {
    /// Tests it both ways; None where nothing serves a test. Ends early when the user wants it.
    pub(super) fn measure(
        around: &mut Around<'_, '_>,
        server: &network::Server,
        agent: Option<&mut Server>,
    ) -> Result<Self> {
        let plan = around.plan;
        let ask = ask(plan, server, agent.is_some());
        let mut grounds = vec![network::ground(server)];
        let stop = around.settings.stop.clone();
        let agent = agent.map(Server::agent);
        let tests = {
            let mut keeper = Keeper {
                ask: &ask,
                grounds: grounds.clone(),
                around,
            };
            network::measure(&ask, &mut grounds, agent, &stop, &mut keeper)?
        };
        Ok(Self(tests))
    }

    /// The tests of a direction.
    fn of(&self, direction: Direction) -> Vec<Flows> {
        let way = way(direction);
        let found = self.0.iter().filter_map(|tested| tested.total(way));
        found.collect()
    }

    /// Its ceilings, in the hands of `then`.
    pub(super) fn ceilings<T>(
        &self,
        direction: Direction,
        then: impl FnOnce(Ceilings<'_>) -> T,
    ) -> Option<T> {
        let tests = self.of(direction);
        ceilings(&tests).map(then)
    }
}

/// What the line to a server carries at most, in bytes per second; None where its rate is not known or not to be believed.
pub(super) fn line(ground: &Ground) -> Option<f64> {
    let path = &ground.path;
    let link = path.link_bits_per_s.filter(|_| !path.software)?;
    let framing = Framing {
        mtu: path.mtu?,
        ipv6: path.ipv6,
        vlan: false,
    };
    framing.limit_bits_per_s(link).map(|bits| bits / 8.0)
}

pub(super) const fn way(direction: Direction) -> Way {
    match direction {
        Direction::Read => Way::Receive,
        Direction::Write => Way::Send,
    }
}

fn ask(plan: &DiagnosePlan, server: &network::Server, agent: bool) -> Ask {
    let mut traffic = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        if plan.has(direction) {
            traffic.push(Traffic::One(way(direction)));
        }
    }
    Ask {
        servers: vec![network::Server {
            port: server.port.filter(|_| !agent),
            ..server.clone()
        }],
        flows: plan.flows(),
        traffic,
        seconds: plan.times().network_s,
        warm_up_s: None,
        interval_s: 0.25,
        block: BLOCK,
        cores: Vec::new(),
        congestion_control: None,
        window: None,
        bind: None,
        connect_timeout: Duration::from_nanos(plan.connect_timeout.0.min(10 * SECOND)),
    }
}

/// Writes rows down as tests end.
struct Keeper<'k, 'a, 'b> {
    ask: &'k Ask,
    grounds: Vec<Ground>,
    around: &'k mut Around<'a, 'b>,
}

impl Watch for Keeper<'_, '_, '_> {
    fn note(&mut self, text: &str) {
        self.around.watch.note(text);
    }

    fn begin(&mut self, label: &str, seconds: f64) {
        self.around.watch.begin(&crate::run::StepView {
            label: label.to_owned(),
            number: None,
            seconds: Some(seconds),
            bytes: None,
        });
    }

    fn progress(&mut self, seconds: f64, rates: &[(Way, f64)]) {
        let bits: f64 = rates.iter().map(|(_, rate)| rate).sum();
        self.around.watch.progress(&crate::run::Progress {
            seconds,
            bytes: 0,
            bytes_per_s: bits / 8.0,
            iops: 0.0,
        });
    }

    fn tested(&mut self, tested: &Tested) -> Result<()> {
        let direction = match tested.traffic {
            Traffic::One(way) => way.direction().key(),
            Traffic::Both => "",
        };
        let alike = self.around.rows.iter().filter(|row| {
            row.stage == "network"
                && row.workload == rows::blank(tested).workload
                && row.direction == direction
        });
        let repeat = alike.count() as u32 + 1;
        let template = crate::record::Row {
            run_id: self.around.run.id.clone(),
            started_utc: tested.started_utc.clone(),
            block_size_bytes: Some(BLOCK as u64),
            repeat,
            ..rows::blank(tested)
        };
        for (row, samples) in rows::rows(&template, self.ask, &self.grounds, tested) {
            if let Some(results) = self.around.results.as_mut() {
                for interval in &samples {
                    results.interval(&row, interval)?;
                }
                results.row(&row)?;
            }
            self.around.watch.row(&row);
            self.around.rows.push(row);
        }
        Ok(())
    }
}
