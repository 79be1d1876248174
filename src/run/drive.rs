//! The workers of one phase, driven to their end: launched, watched, given up when nothing moves.
//!
//! Must not know: what becomes of their reports. Times are nanoseconds of the monotonic clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::engine::live::{Reading, Snapshot};
use crate::engine::{Job, Report, Tally};
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::{Event, Fleet};
use crate::op::Direction;
use crate::probe::Counters;
use crate::probe::process::Io;
use crate::run::site::Place;
use crate::run::witness::{self, Claim};
use crate::run::{Progress, Watch};
use crate::target::Login;
use crate::units::Nanos;

/// How often counters are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long workers may take to end after they were told to, beyond the I/O timeout.
const GRACE: Duration = Duration::from_secs(5);
/// Steps of a session's coming up, each bounded by the connect timeout (a port mapper, a mount service, the service
/// itself): a session that fails says which, so it must not be given up before it can.
const STAGES: u32 = 3;
/// How late a network card's driver may count.
const CARD_LAG: Duration = Duration::from_millis(2500);
/// Extra patience for each session that must come up.
const PER_SESSION: Duration = Duration::from_millis(500);

/// What the workers of one phase came to.
pub(super) struct Driven {
    pub(super) reports: Vec<Report>,
    /// What ended it from outside: a watchdog, a worker that never came up.
    outside: Option<Error>,
    /// What this computer's counters say of the measured time; None where it was not reached.
    pub(super) measured: Option<Counters>,
    /// And of all the time from before the first operation to the end, ramp and flush included.
    pub(super) whole: Option<Counters>,
    /// Bytes of that time.
    moved: u64,
    /// Operations seen from outside, ramp included; all workers together when one gave no report, else 0.
    activity: u64,
}

impl Driven {
    /// The first error of any worker.
    pub(super) fn error(&self) -> Option<Error> {
        self.reports
            .iter()
            .find_map(|report| report.error.clone())
            .or_else(|| self.outside.clone())
    }

    /// Whether it was told to stop before its end.
    pub(super) fn stopped(&self) -> bool {
        self.reports.iter().any(|report| report.stopped)
    }

    /// All operations of a direction.
    pub(super) fn tally(&self, direction: Direction) -> Tally {
        let mut sum = Tally::default();
        for report in &self.reports {
            sum.merge(report.tally(direction));
        }
        sum
    }

    /// Measured time in nanoseconds: from the first start to the last completion.
    pub(super) fn span(&self) -> Option<u64> {
        let moved = || {
            self.reports
                .iter()
                .filter(|report| report.read.ops + report.write.ops > 0)
        };
        let start = moved().map(|report| report.started_ns).min()?;
        moved()
            .map(|report| report.ended_ns)
            .max()
            .map(|end| end.saturating_sub(start))
    }

    /// Generations that the workers used up. A worker that never reported used one an operation at most.
    pub(super) fn generations(&self) -> u64 {
        let told = self.reports.iter().map(|report| report.generations).max();
        told.unwrap_or(0).max(self.activity)
    }

    /// What this process moved from and to storage in the measured time.
    pub(super) fn storage(&self) -> Option<Io> {
        self.measured.as_ref()?.io
    }

    /// What the counters of the whole time should have seen.
    pub(super) fn claim(&self) -> Claim {
        let agreed = self.negotiated();
        Claim {
            bytes: self.moved.max(self.bytes()),
            ops: self.ops(),
            only_reads: self.reports.iter().all(|report| report.written == 0),
            direct: agreed.split(' ').any(|word| word == "direct=1"),
        }
    }

    /// Operations of both directions.
    pub(super) fn ops(&self) -> u64 {
        self.reports
            .iter()
            .map(|report| report.read.ops + report.write.ops)
            .sum()
    }

    /// Bytes of both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.reports
            .iter()
            .map(|report| report.read.bytes + report.write.bytes)
            .sum()
    }

    /// Entries that listings showed; None where nothing was listed.
    pub(super) fn entries(&self) -> Option<u64> {
        self.reports.iter().find_map(|report| report.entries)
    }

    /// CPU time of all workers in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.reports.iter().map(|report| report.cpu_ns).sum()
    }

    /// How many workers failed.
    pub(super) fn errors(&self) -> u64 {
        self.reports
            .iter()
            .filter(|report| report.error.is_some())
            .count() as u64
    }

    /// Requests on the wire; None where any worker can't tell.
    pub(super) fn wire_ops(&self) -> Option<u64> {
        self.reports.iter().map(|report| report.wire_ops).sum()
    }

    /// What the first session agreed on; all connect alike.
    pub(super) fn negotiated(&self) -> String {
        self.reports
            .iter()
            .map(|report| &report.negotiated)
            .find(|text| !text.is_empty())
            .cloned()
            .unwrap_or_default()
    }

    fn ended(&self) -> u64 {
        self.reports
            .iter()
            .map(|report| report.ended_ns)
            .max()
            .unwrap_or(0)
    }

    /// Time from the last completion to the end of the last flush; None unless every worker that wrote has flushed.
    pub(super) fn flush(&self) -> Option<u64> {
        let wrote = self.reports.iter().filter(|report| report.written > 0);
        let ends: Option<Vec<u64>> = wrote.map(|report| report.flushed_ns).collect();
        let flushed = ends?.into_iter().max()?;
        Some(flushed.saturating_sub(self.ended()))
    }
}

/// Called at each interval with its number of seconds since the start of measuring and the counters so far.
pub(super) type Sampler<'a> = dyn FnMut(Nanos, &Snapshot) -> Result<()> + 'a;

/// Runs jobs to their end, or until a signal, an error or the watchdog ends them. `sample` sees the counters about
/// every 50 ms. Err only for what is not the target's fault.
pub(super) fn drive(
    place: &Place,
    jobs: Vec<Job>,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn Watch,
    sample: &mut Sampler<'_>,
) -> Result<Driven> {
    let ramp = jobs.first().map_or(0, |job| job.phase.ramp_time.0);
    let patience = place.login.connect_timeout() * STAGES + GRACE + PER_SESSION * jobs.len() as u32;
    let own_stop = Arc::new(AtomicBool::new(false));
    let mut driven = Driven {
        reports: Vec::new(),
        outside: None,
        measured: None,
        whole: None,
        moved: 0,
        activity: 0,
    };
    let count = jobs.len();
    let mut fleet = match Fleet::launch(place.protocol, &place.login, jobs, &own_stop)
        .and_then(|fleet| fleet.ready(patience, stop).map(|()| fleet))
    {
        Ok(fleet) => fleet,
        Err(error) => {
            driven.outside = Some(error);
            return Ok(driven);
        }
    };
    // Sessions stand and nothing moves: what the counters gain from here on is this phase's.
    let before = Counters::now();
    let start = fleet.go();
    let mut watcher = Watcher::new(start, ramp, &place.login);
    watcher.at_start = (ramp == 0).then(|| before.clone());
    let mut looked = Ok(());
    while driven.reports.len() < count {
        if let Some((_, Event::Report(report))) = fleet.next(LOOK) {
            if report.error.is_some() {
                // The others' figures would be of another load.
                own_stop.store(true, Relaxed);
            }
            driven.reports.push(*report);
        }
        if stop.load(Relaxed) {
            own_stop.store(true, Relaxed);
        }
        let sum = total(&fleet);
        if looked.is_ok() {
            looked = watcher.look(&sum, watch, sample);
            // Workers end before anything of theirs is removed.
            own_stop.fetch_or(looked.is_err(), Relaxed);
        }
        if let Some(error) = watcher.overdue(own_stop.load(Relaxed)) {
            driven.outside = Some(error);
            break;
        }
    }
    let after = Counters::now();
    let sum = total(&fleet);
    if driven.reports.len() < count {
        driven.activity = sum.activity;
    } else {
        driven.moved = sum.activity_bytes;
        driven.whole = Some(second_look(
            &driven,
            place,
            &before,
            after.since(&before),
            stop,
        ));
    }
    driven.measured = watcher.at_start.map(|start| after.since(&start));
    looked.map(|()| driven)
}

/// The counters of a whole phase. Some network cards count up to two seconds late: when they seem to contradict, they are
/// read once more after that time.
fn second_look(
    driven: &Driven,
    place: &Place,
    before: &Counters,
    passed: Counters,
    stop: &AtomicBool,
) -> Counters {
    if stop.load(Relaxed) || !witness::may_lag(place.way(), driven.claim(), &passed) {
        return passed;
    }
    std::thread::sleep(CARD_LAG);
    Counters {
        traffic: Counters::now().since(before).traffic,
        ..passed
    }
}

fn total(fleet: &Fleet) -> Snapshot {
    let add = |sum: &mut Reading, one: Reading| {
        sum.ops += one.ops;
        sum.bytes += one.bytes;
        sum.latency_sum_ns += one.latency_sum_ns;
        sum.latency_max_ns = sum.latency_max_ns.max(one.latency_max_ns);
    };
    let mut sum = Snapshot::default();
    for live in fleet.live() {
        let one = live.read();
        add(&mut sum.read, one.read);
        add(&mut sum.write, one.write);
        sum.activity += one.activity;
        sum.activity_bytes += one.activity_bytes;
        sum.flushing |= one.flushing;
    }
    sum
}

/// Looks at a running phase from outside: progress for the user, samples, machine counters, and silence.
struct Watcher {
    start: u64,
    measure_from: u64,
    io_timeout: Duration,
    flush_timeout: Duration,
    flushing: bool,
    last: Snapshot,
    last_look: Instant,
    /// When anything last moved.
    moved: Instant,
    stopping: Option<Instant>,
    /// Counters at the start of the measured time.
    at_start: Option<Counters>,
    rate: (f64, f64),
}

impl Watcher {
    fn new(start: u64, ramp: u64, login: &Login) -> Self {
        let now = Instant::now();
        Self {
            start,
            measure_from: start.saturating_add(ramp),
            io_timeout: login.io_timeout(),
            flush_timeout: login.flush_timeout(),
            flushing: false,
            last: Snapshot::default(),
            last_look: now,
            moved: now,
            stopping: None,
            at_start: None,
            rate: (0.0, 0.0),
        }
    }

    fn look(
        &mut self,
        sum: &Snapshot,
        watch: &mut dyn Watch,
        sample: &mut Sampler<'_>,
    ) -> Result<()> {
        let now = crate::clock::monotonic_ns();
        if self.at_start.is_none() && now >= self.measure_from {
            self.at_start = Some(Counters::now());
        }
        if sum.activity != self.last.activity {
            self.moved = Instant::now();
        }
        self.flushing = sum.flushing;
        let span = self.last_look.elapsed().as_secs_f64();
        if span >= 0.2 {
            let since = |now: u64, before: u64| now.saturating_sub(before) as f64 / span;
            self.rate = (
                since(sum.activity_bytes, self.last.activity_bytes),
                since(sum.activity, self.last.activity),
            );
            self.last = *sum;
            self.last_look = Instant::now();
            watch.progress(&Progress {
                seconds: now.saturating_sub(self.start) as f64 / 1e9,
                bytes: sum.activity_bytes,
                bytes_per_s: self.rate.0,
                iops: self.rate.1,
            });
        }
        sample(Nanos(now.saturating_sub(self.measure_from)), sum)
    }

    /// The error that ends a phase in which nothing moves any more.
    fn overdue(&mut self, stopping: bool) -> Option<Error> {
        if stopping {
            let since = *self.stopping.get_or_insert_with(Instant::now);
            if since.elapsed() > self.io_timeout.min(Duration::from_secs(10)) + GRACE {
                return Some(Error::new(
                    Phase::Io,
                    Kind::TimedOut,
                    "the workers did not end when told to",
                ));
            }
        }
        // A session's own timeout comes first and says more; this one is for sessions that hang.
        let limit = if self.flushing {
            self.flush_timeout
        } else {
            self.io_timeout
        };
        if self.moved.elapsed() > limit + GRACE {
            let message = format!(
                "nothing moved for {} s; the server is considered lost",
                self.moved.elapsed().as_secs()
            );
            return Some(Error::new(Phase::Io, Kind::TimedOut, message));
        }
        None
    }
}
