//! `sim:` is a target of known behaviour: a latency, a pipe of a bandwidth, and faults on order.
//!
//! An operation first passes the pipe (first in, first out, one at a time), then the latency (all at once). So the
//! true rate is min(bandwidth, depth x bs / (bs / bandwidth + latency)), which is what the engine must find. On
//! the virtual clock a run takes no time and is exact; on the real one it sleeps. Each session has its own pipe.

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::clock::Clock;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Op, Submit};
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Caps, Control, Facts, Login, Protocol, Session, Threads, Volatile};
use crate::units::{Nanos, Rate};

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
    },
    control: |login| Model::read(&login.spec).map(|model| Control::Volatile(Box::new(model))),
    connect: |login, attach| Ok(Box::new(Sim::new(Model::read(&login.spec)?, login, attach))),
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
        })
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
        self.pipe_free_ns = self.pipe_free_ns.max(now) + through;
        let mut end = self.pipe_free_ns + self.model.latency.draw(&mut self.rng) as f64;
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
