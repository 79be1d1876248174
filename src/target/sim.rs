//! `sim:` is a target of known behaviour: a latency, a pipe of a bandwidth, and faults on order.
//!
//! An operation first passes the pipe (first in, first out, one at a time), then the latency (all at once). So the
//! true rate is min(bandwidth, depth x bs / (bs / bandwidth + latency)), which is what the engine must find. On
//! the virtual clock a run takes no time and is exact; on the real one it sleeps. Each session has its own pipe.
//!
//! With `noise` each session of each round is faster or slower as a whole, by a factor of mean 1 that is drawn anew
//! (normal, or lognormal) from `seed`, the round and the lane: so the true mean rate over many rounds is still the
//! one above, and the scatter is known. With `drift` each round is faster or slower than the one before by this share.

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use crate::clock::Clock;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Op, Submit};
use crate::payload::mix;
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Caps, Control, Facts, Login, Protocol, Session, Threads, Volatile};
use crate::units::{Nanos, Rate};

mod folder;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "sim",
    example: "sim:?latency=200us&bandwidth=1GB/s",
    options: &[
        (
            "latency",
            "time after the pipe: 200us, uniform:100us-300us or exponential:200us",
        ),
        ("bandwidth", "the pipe, such as 1GB/s; none without it"),
        ("clock", "real (default) or virtual"),
        ("fail_at", "this operation of each session fails"),
        ("gone_at", "the peer is gone from this operation on"),
        ("full_at", "the medium is full from this write on"),
        ("short_at", "this operation moves half of its bytes"),
        ("stall_at", "this operation takes 'stall' longer"),
        ("stall", "how long a stall takes, 2s by default"),
        ("flush", "how long a flush takes, nothing by default"),
        (
            "entries",
            "what a listing of small files shows, 0 by default",
        ),
        (
            "noise",
            "scatter of the speed from round to round: 3% or lognormal:3%, 25% at most",
        ),
        ("drift", "change of the speed each round, such as -2%"),
        ("seed", "seed of the noise, 1 by default"),
    ],
    check: |spec| Model::read(spec).map(drop),
    caps: |_| Caps {
        iodepth_max: 4096,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: false,
        engine: "sim",
        connections: 0,
        ceiling: None,
    },
    control: |login| Model::read(&login.spec).map(|model| Control::Volatile(Box::new(model))),
    connect: |login, attach| Ok(Box::new(Sim::new(Model::read(&login.spec)?, login, attach))),
    folder: Some(folder::open),
};

#[derive(Debug, Clone, Copy)]
enum Latency {
    Fixed(u64),
    Uniform(u64, u64),
    Exponential(u64),
}

#[derive(Debug, Clone)]
struct Model {
    latency: Latency,
    bytes_per_ns: Option<f64>,
    virtual_clock: bool,
    fail_at: Option<u64>,
    gone_at: Option<u64>,
    full_at: Option<u64>,
    short_at: Option<u64>,
    stall_at: Option<u64>,
    stall_ns: u64,
    flush_ns: u64,
    entries: u64,
    noise: Noise,
    drift: f64,
    seed: u64,
}

/// Scatter of a session's speed, as the standard deviation of a factor of mean 1.
#[derive(Debug, Clone, Copy)]
enum Noise {
    Normal(f64),
    Lognormal(f64),
}

/// Most noise: with four deviations to zero, a speed below [`SLOWEST`] never comes.
const NOISE_MAX: f64 = 0.25;
/// Least factor of a speed, so that drift and noise end nothing.
const SLOWEST: f64 = 0.01;

/// `3%` as 0.03.
fn share(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%')?.parse().ok()?;
    number.is_finite().then_some(number / 100.0)
}

impl Noise {
    fn read(text: &str) -> Option<Self> {
        let (lognormal, text) = text
            .strip_prefix("lognormal:")
            .map_or((false, text), |text| (true, text));
        let deviation = share(text).filter(|share| (0.0..=NOISE_MAX).contains(share))?;
        Some(if lognormal {
            Self::Lognormal(deviation)
        } else {
            Self::Normal(deviation)
        })
    }

    /// A factor of mean 1.
    fn draw(self, rng: &mut SmallRng) -> f64 {
        let standard: f64 = StandardNormal.sample(rng);
        match self {
            Self::Normal(deviation) => 1.0 + deviation * standard,
            Self::Lognormal(deviation) => {
                let variance = (deviation * deviation).ln_1p();
                (variance.sqrt() * standard - variance / 2.0).exp()
            }
        }
    }
}

impl Model {
    fn read(spec: &TargetSpec) -> Result<Self> {
        let latency = spec
            .options
            .get("latency")
            .map_or(Ok(Latency::Fixed(0)), |text| {
                Latency::read(text).ok_or_else(|| {
                    Error::usage(format!(
                        "latency={text} is not like 200us, uniform:100us-300us or exponential:200us"
                    ))
                })
            })?;
        let bandwidth = spec.option::<Rate>("bandwidth", "a rate such as 1GB/s")?;
        if bandwidth.is_some_and(|rate| rate.0 <= 0.0) {
            return Err(Error::usage("a bandwidth of 0 would never end"));
        }
        let virtual_clock = match spec.options.get("clock").map(String::as_str) {
            None | Some("real") => false,
            Some("virtual") => true,
            Some(other) => {
                return Err(Error::usage(format!(
                    "clock={other} is neither real nor virtual"
                )));
            }
        };
        let option = |key: &str| spec.options.get(key).map(String::as_str);
        let noise = option("noise").map_or(Ok(Noise::Normal(0.0)), |text| {
            Noise::read(text).ok_or_else(|| {
                Error::usage(format!(
                    "noise={text} is not like 3% or lognormal:3%, from 0% to 25%"
                ))
            })
        })?;
        let drift = option("drift").map_or(Ok(0.0), |text| {
            let drift = share(text).filter(|drift| drift.abs() <= 0.5);
            drift.ok_or_else(|| {
                Error::usage(format!("drift={text} is not like -2%, from -50% to 50%"))
            })
        })?;
        let number = |key: &str| spec.option::<u64>(key, "a number of operations");
        let span = |key: &str, default: u64| {
            Ok(spec
                .option::<Nanos>(key, "a duration")?
                .map_or(default, |nanos| nanos.0))
        };
        Ok(Self {
            latency,
            bytes_per_ns: bandwidth.map(|rate| rate.0 / 1e9),
            virtual_clock,
            fail_at: number("fail_at")?,
            gone_at: number("gone_at")?,
            full_at: number("full_at")?,
            short_at: number("short_at")?,
            stall_at: number("stall_at")?,
            stall_ns: span("stall", 2_000_000_000)?,
            flush_ns: span("flush", 0)?,
            entries: number("entries")?.unwrap_or(0),
            noise,
            drift,
            seed: spec.option::<u64>("seed", "a number")?.unwrap_or(1),
        })
    }
}

impl Model {
    /// How fast a session of this round and lane is, as a factor.
    fn speed(&self, round: u32, lane: u16) -> f64 {
        let session = (u64::from(round) << 16) | u64::from(lane);
        let mut rng = SmallRng::seed_from_u64(mix(self.seed) ^ session);
        let rounds = f64::from(round.saturating_sub(1));
        let drifted = (1.0 + self.drift).powf(rounds);
        (drifted * self.noise.draw(&mut rng)).max(SLOWEST)
    }
}

impl Latency {
    fn read(text: &str) -> Option<Self> {
        let nanos = |text: &str| text.parse::<Nanos>().ok().map(|nanos| nanos.0);
        match text.split_once(':') {
            None => nanos(text).map(Self::Fixed),
            Some(("uniform", range)) => {
                let (low, high) = range.split_once('-')?;
                let (low, high) = (nanos(low)?, nanos(high)?);
                (low <= high).then_some(Self::Uniform(low, high))
            }
            Some(("exponential", mean)) => nanos(mean).map(Self::Exponential),
            Some(_) => None,
        }
    }

    fn draw(self, rng: &mut SmallRng) -> u64 {
        match self {
            Self::Fixed(nanos) => nanos,
            Self::Uniform(low, high) => rng.random_range(low..=high),
            Self::Exponential(mean) => (-(1.0 - rng.random::<f64>()).ln() * mean as f64) as u64,
        }
    }
}

impl Volatile for Model {
    fn facts(&mut self) -> Result<Facts> {
        let clock = if self.virtual_clock {
            "virtual"
        } else {
            "real"
        };
        Ok(Facts {
            lines: vec![(
                "sim".into(),
                format!("a simulated target on the {clock} clock"),
            )],
            ..Facts::default()
        })
    }

    fn provide(&mut self, _size: u64) -> Result<String> {
        Ok(String::new())
    }
}

/// An operation under way, ordered by its end, earliest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending(std::cmp::Reverse<u64>, u16, u32);

struct Sim {
    model: Model,
    clock: Clock,
    rng: SmallRng,
    pipe_free_ns: f64,
    pending: BinaryHeap<Pending>,
    operations: u64,
    io_timeout_ns: u64,
    /// Times take this much of what the model says.
    slowness: f64,
}

impl Sim {
    fn new(model: Model, login: &Login, attach: &Attach) -> Self {
        let clock = if model.virtual_clock {
            Clock::Virtual(Rc::new(Cell::new(1_000_000_000)))
        } else {
            Clock::Monotonic
        };
        Self {
            pipe_free_ns: 0.0,
            pending: BinaryHeap::with_capacity(usize::from(attach.iodepth) + 1),
            operations: 0,
            rng: SmallRng::seed_from_u64(u64::from(attach.lane) + 1),
            io_timeout_ns: login.io_timeout_ms * 1_000_000,
            slowness: 1.0 / model.speed(attach.round, attach.lane),
            clock,
            model,
        }
    }

    /// When an operation that starts now ends, and how many bytes it moves.
    fn schedule(&mut self, op: Op) -> Result<(u64, u32)> {
        self.operations += 1;
        let at = Some(self.operations);
        let number = self.operations;
        let failure = |kind, text: &str| {
            Err(Error::new(
                Phase::Io,
                kind,
                format!("{text} (operation {number}, offset {})", op.offset),
            ))
        };
        if at == self.model.fail_at {
            return failure(Kind::Other, "the simulated target failed as ordered");
        }
        if self.model.gone_at.is_some_and(|gone| number >= gone) {
            return failure(Kind::Gone, "the simulated target is gone as ordered");
        }
        if op.direction == crate::op::Direction::Write
            && self.model.full_at.is_some_and(|full| number >= full)
        {
            return failure(Kind::NoSpace, "the simulated medium is full as ordered");
        }
        let now = self.clock.now() as f64;
        let through = self
            .model
            .bytes_per_ns
            .map_or(0.0, |speed| f64::from(op.len) / speed);
        self.pipe_free_ns = self.pipe_free_ns.max(now) + through * self.slowness;
        let latency = self.model.latency.draw(&mut self.rng) as f64;
        let mut end = self.pipe_free_ns + latency * self.slowness;
        if at == self.model.stall_at {
            end += self.model.stall_ns as f64;
        }
        let bytes = if at == self.model.short_at {
            op.len / 2
        } else {
            op.len
        };
        Ok((end.round() as u64, bytes))
    }
}

impl Session for Sim {
    fn submit(&mut self, op: Op, _slots: &mut Slots) -> Result<Submit> {
        let (end, bytes) = self.schedule(op)?;
        self.pending
            .push(Pending(std::cmp::Reverse(end), op.slot, bytes));
        Ok(Submit::Queued)
    }

    fn reap(
        &mut self,
        until: Option<u64>,
        _slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let Some(first) = self.pending.peek().map(|pending| pending.0.0) else {
            return Ok(());
        };
        let now = self.clock.now();
        if first > now.saturating_add(self.io_timeout_ns)
            && until.is_none_or(|until| until > now + self.io_timeout_ns)
        {
            self.clock.sleep_until(now + self.io_timeout_ns);
            return Err(Error::new(
                Phase::Io,
                Kind::TimedOut,
                "the simulated target did not answer in time",
            ));
        }
        self.clock
            .sleep_until(until.map_or(first, |until| until.min(first)));
        let now = self.clock.now();
        while let Some(pending) = self.pending.peek() {
            if pending.0.0 > now {
                break;
            }
            done.push(Completion {
                slot: pending.1,
                bytes: pending.2,
            });
            self.pending.pop();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let now = self.clock.now();
        self.clock.sleep_until(now + self.model.flush_ns);
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }
}
