//! All that was measured of one workload, and the case that it makes for the verdict.
//!
//! What was not measured is absent from the case. Must not know: how anything was measured.

use super::bench::Measured;
use super::server::{Moved, OnDisks};
use crate::network::{Ceilings, Flows};
use crate::op::Direction;
use crate::record::{Flag, Row};
use crate::spec::diagnose::Work;
use crate::spec::workload::Phase;
use crate::stage::round_trip::Carried;
use crate::stats::mean_of;
use crate::units::{Bytes, Nanos, Rate};
use crate::verdict::case::{Began, Case, Counters, Differences, Figure, Layer, Load, Mark, Rung};

/// Of what was read, the disks must have read this share for it to have come from them.
const FROM_DISKS: f64 = 0.9;
/// Fewer samples give no interval worth a name.
const SAMPLES: usize = 4;
/// Bytes of a segment at the usual MTU of 1500, where its sender does not tell.
const USUAL_MSS: u32 = 1448;

/// Where the bytes go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Route {
    /// Through a mount of the kernel's.
    pub(super) mounted: bool,
    /// To this computer itself.
    pub(super) loopback: bool,
    /// Over a network.
    pub(super) remote: bool,
}

/// One workload in one direction.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) direction: Direction,
    /// Its requests find new places each time.
    pub(super) random: bool,
    /// The workload itself.
    pub(super) whole: Measured,
    /// Bytes of the test file.
    pub(super) laid: Bytes,
    /// The server's memory, as told by its agent or the user.
    pub(super) server_ram: Option<u64>,
    /// What moved on the server meanwhile.
    pub(super) moved: Option<Moved>,
    /// The share of a core that the busiest worker took, and the network's part of the busiest core, percent.
    pub(super) client_core: Option<f64>,
    /// Segments that this computer sent again, percent.
    pub(super) retransmit_percent: Option<f64>,
    /// The handshake's time before, and during it.
    pub(super) handshake: Option<(Nanos, Nanos)>,
    /// From the server's memory.
    pub(super) hot: Option<Measured>,
    pub(super) memory: Option<Measured>,
    pub(super) own_client: Option<Measured>,
    pub(super) tool: Option<Measured>,
    pub(super) trip: Option<Carried>,
    pub(super) disks: [Option<OnDisks>; 2],
    /// This computer's own disks at their best, for a target that is no server's.
    pub(super) local_best: Option<Measured>,
    pub(super) half: Option<Measured>,
    pub(super) double: Option<Measured>,
    pub(super) second: Option<Measured>,
    pub(super) alone: Option<Measured>,
    pub(super) line: Option<f64>,
    /// The network was tested with another address than the target's.
    pub(super) elsewhere: bool,
    /// Flushes that requests waited for.
    pub(super) flushes: Option<u64>,
    pub(super) single: Option<Flows>,
    pub(super) most: Option<Flows>,
    pub(super) route: Route,
}

impl Taken {
    pub(super) fn new(work: &Work, whole: Measured, laid: Bytes) -> Self {
        Self {
            name: work.name.clone(),
            direction: work.direction(),
            random: work.phase.rw.random(),
            flushes: flushes(&work.phase, &whole),
            whole,
            laid,
            server_ram: None,
            moved: None,
            client_core: None,
            retransmit_percent: None,
            handshake: None,
            hot: None,
            memory: None,
            own_client: None,
            tool: None,
            trip: None,
            disks: [None, None],
            local_best: None,
            half: None,
            double: None,
            second: None,
            alone: None,
            line: None,
            elsewhere: false,
            single: None,
            most: None,
            route: Route::default(),
        }
    }

    /// Keeps the network's ceilings: with the workload's own connections, and with as many as carry most.
    pub(super) fn network(&mut self, ceilings: &Ceilings<'_>) {
        self.most = Some(ceilings.most.clone());
        let connections = self.whole.row.connections.unwrap_or(1);
        self.single = ceilings.single.filter(|_| connections == 1).cloned();
    }

    /// The case; None where the workload has no rate.
    pub(super) fn case(&self) -> Option<Case> {
        let mut case = Case::of(self.direction, self.whole.rate()?);
        case.workload.clone_from(&self.name);
        case.mounted = self.route.mounted;
        case.end_to_end = self.end_to_end()?;
        let row = &self.whole.row;
        case.load = Load {
            block_size: row.block_size_bytes.map(Bytes),
            depth: Some(u32::from(row.iodepth) * u32::from(row.lanes)),
            connections: row.connections,
        };
        case.burst = row.burst.map(|burst| Began {
            rate: Rate(burst.bytes_per_s),
            bytes: Bytes(burst.bytes),
        });
        case.layers = self.layers();
        case.counters = self.counters();
        case.differences = self.differences();
        Some(case)
    }

    fn end_to_end(&self) -> Option<Figure> {
        let mut figure = figure(&self.whole)?;
        figure.marks.extend(marks(&self.whole.row));
        if self.direction == Direction::Read && self.route.remote && !self.cold() {
            figure.marks.push(Mark::ServerCached);
        }
        if self.route.loopback {
            figure.marks.push(Mark::SameHost);
        }
        figure.marks.dedup();
        Some(figure)
    }

    /// Whether what was read is proven to have come from the server's disks.
    fn cold(&self) -> bool {
        let row = &self.whole.row;
        let by_disks = self
            .moved
            .and_then(|moved| moved.disk_read)
            .map(|read| read as f64 >= FROM_DISKS * row.bytes as f64);
        let by_size = self.server_ram.map(|ram| self.laid.0 >= 2 * ram);
        // Memory that answers faster was not what answered before.
        let slower = self.hot_over_cold().is_some_and(|ratio| ratio >= 1.25);
        by_disks.unwrap_or(by_size == Some(true) || slower)
    }

    /// The workload itself is one request at a time.
    fn one_at_a_time(&self) -> bool {
        self.random && self.whole.row.iodepth == 1 && self.whole.row.lanes == 1
    }

    fn hot_over_cold(&self) -> Option<f64> {
        Some(self.hot.as_ref()?.rate()? / self.whole.rate()?)
    }

    fn layers(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        let mut add = |rung, figure: Option<Figure>, marks: &[Mark]| {
            if let Some(mut figure) = figure {
                figure.marks.extend(marks);
                layers.push(Layer { rung, figure });
            }
        };
        add(Rung::Tool, self.tool.as_ref().and_then(figure), &[]);
        add(Rung::Line, self.line.map(Figure::of), &[]);
        let there: &[Mark] = if self.elsewhere {
            &[Mark::Unproven]
        } else {
            &[]
        };
        add(Rung::Network, self.most.as_ref().and_then(flows), there);
        add(
            Rung::SingleFlow,
            self.single.as_ref().and_then(flows),
            there,
        );
        let trip = self.trip.as_ref().and_then(Carried::bytes_per_s);
        add(Rung::RoundTrip, trip.map(Figure::of), &[]);
        match (&self.memory, &self.hot) {
            (Some(memory), _) => add(Rung::Protocol, figure(memory), &[]),
            (None, Some(hot)) if self.route.remote => {
                add(Rung::Protocol, figure(hot), &[Mark::HotSet]);
            }
            _ => {}
        }
        add(
            Rung::OwnClient,
            self.own_client.as_ref().and_then(figure),
            &[],
        );
        for (rung, disks) in [Rung::Storage, Rung::StorageBest]
            .into_iter()
            .zip(&self.disks)
        {
            let Some(disks) = disks else { continue };
            let mut marks = Vec::new();
            if !disks.proven {
                marks.push(Mark::Unproven);
            }
            if disks.cached {
                marks.push(Mark::ServerCached);
            }
            add(rung, Some(Figure::of(disks.rate)), &marks);
        }
        add(
            Rung::StorageBest,
            self.local_best.as_ref().and_then(figure),
            &[],
        );
        layers
    }

    fn counters(&self) -> Counters {
        let moved = self.moved.unwrap_or_default();
        let (idle, loaded) = self.handshake.unzip();
        Counters {
            client_core_percent: self.client_core,
            server_core_percent: moved.core_percent,
            server_throttled_periods: moved.throttled,
            retransmit_percent: match self.direction {
                Direction::Read => moved.retransmit_percent.or_else(|| self.sent_again()),
                Direction::Write => self.retransmit_percent,
            },
            window_limited_percent: self.window(),
            disks_read_share: moved
                .disk_read
                .filter(|_| self.direction == Direction::Read && self.whole.row.bytes > 0)
                .map(|read| read as f64 / self.whole.row.bytes as f64),
            disk_busy_percent: moved.disk.map(|(busy, _)| busy),
            disk_queue: moved.disk.map(|(_, queue)| queue),
            flushes: self.flushes,
            handshake_idle: idle,
            handshake_loaded: loaded,
            ..Counters::default()
        }
    }

    /// Percent of the segments that the sender of the network's test with one connection sent again: what is known of a server
    /// that no agent counts on.
    fn sent_again(&self) -> Option<f64> {
        let single = self.single.as_ref().filter(|single| single.bytes > 0)?;
        let segments = single.bytes as f64 / f64::from(single.sender.mss.unwrap_or(USUAL_MSS));
        Some(100.0 * single.sender.retransmits? as f64 / segments)
    }

    /// How much of its time one connection waited for room in a buffer.
    fn window(&self) -> Option<f64> {
        let sender = &self.single.as_ref()?.sender;
        let told = sender
            .receiver_limited
            .into_iter()
            .chain(sender.buffer_limited)
            .reduce(f64::max);
        told.map(|share| 100.0 * share)
    }

    fn differences(&self) -> Differences {
        // What the changed ones are held against: see `changes`.
        let hot = self.hot.as_ref().filter(|_| !self.random);
        let rate = |measured: Option<&Measured>| measured.and_then(Measured::rate);
        let over = |measured: &Option<Measured>| {
            Some(rate(measured.as_ref())? / rate(hot.or(Some(&self.whole)))?)
        };
        let latency = |measured: &Option<Measured>| {
            let own = hot.unwrap_or(&self.whole).latency_ns()?;
            Some(measured.as_ref()?.latency_ns()? / own)
        };
        Differences {
            second_connection: over(&self.second),
            half_depth: over(&self.half),
            half_depth_latency: latency(&self.half),
            double_depth: over(&self.double),
            double_depth_latency: latency(&self.double),
            latency_alone: self
                .alone
                .as_ref()
                .or(Some(&self.whole).filter(|_| self.one_at_a_time()))
                .and_then(Measured::latency_ns)
                .map(|latency| Nanos(latency as u64)),
            hot_over_cold: self.hot_over_cold(),
            ..Differences::default()
        }
    }
}

/// How many flushes writes waited for, one after the other: each write's own, or those after every so many.
fn flushes(phase: &Phase, whole: &Measured) -> Option<u64> {
    let every = if phase.durability.each_write() {
        1
    } else {
        u64::from(phase.fsync)
    };
    (phase.rw.writes() && every > 0).then(|| whole.row.ops / every)
}

/// A measurement's rate with the interval of its samples.
pub(super) fn figure(measured: &Measured) -> Option<Figure> {
    Some(with_interval(measured.rate()?, &measured.samples))
}

fn flows(flows: &Flows) -> Option<Figure> {
    let samples: Vec<f64> = flows
        .samples
        .iter()
        .filter(|sample| sample.from >= 0.0)
        .filter_map(crate::network::Sample::bits_per_s)
        .collect();
    // The last one is cut short by the end.
    let whole = &samples[..samples.len().saturating_sub(1)];
    Some(with_interval(flows.bits_per_s()? / 8.0, whole))
}

/// The samples' relative spread about the rate of the whole.
fn with_interval(rate: f64, samples: &[f64]) -> Figure {
    let mut figure = Figure::of(rate);
    let mean = mean_of(samples).filter(|mean| mean.n >= SAMPLES && mean.mean > 0.0);
    if let Some(((low, high), mean)) = mean.and_then(|mean| Some((mean.interval?, mean.mean))) {
        figure.low = Some(Rate((rate * low / mean).max(0.0)));
        figure.high = Some(Rate(rate * high / mean));
    }
    figure
}

fn marks(row: &Row) -> impl Iterator<Item = Mark> {
    row.flags.iter().filter_map(|flag| match flag {
        Flag::NotDurable => Some(Mark::NotDurable),
        Flag::Compressible => Some(Mark::Compressible),
        Flag::GeneratorBound => Some(Mark::GeneratorBound),
        Flag::TooShort => Some(Mark::TooShort),
        Flag::ClientCached => Some(Mark::ClientCached),
        _ => None,
    })
}
