//! The loop of one worker.
//!
//! The measured time starts at the first completion after the ramp (what ended by then is not counted) and ends at the
//! last completion, so every byte counted moved within it. Without a ramp it starts with the start signal. In rate
//! mode latency counts from the intended start, so a stall is felt by all operations that it delayed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

use crate::clock::Clock;
use crate::engine::{Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Durability, Op, Submit};
use crate::pattern::{Pattern, Step};
use crate::payload::{GENERATION_MAX, LAID, Payload};
use crate::slots::Slots;
use crate::target::Session;

/// Runs one phase on an open session. `gate` is called once all is ready: it waits for the others and gives the
/// start time, or None when the run is called off. An I/O error ends the worker and stands in its report.
pub fn run(
    mut session: Box<dyn Session>,
    job: &Job,
    live: &Live,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Option<u64>,
) -> Report {
    let memory = Slots::new(job.phase.iodepth, job.phase.block_max() as usize)
        .map_err(|error| Error::io(Phase::Prepare, &error, "reserve memory for the buffers"));
    let slots = match memory.and_then(|mut slots| session.prepare(&mut slots).map(|()| slots)) {
        Ok(slots) => slots,
        Err(error) => return failed(error),
    };
    let mut worker = Worker::new(session, slots, job, live, stop);
    let Some(start) = gate() else {
        return Report {
            stopped: true,
            ..Report::default()
        };
    };
    let virtual_start = matches!(worker.clock, Clock::Virtual(_));
    worker.begin(if virtual_start {
        worker.clock.now()
    } else {
        start
    });
    let result = worker.measure().and_then(|()| worker.finish());
    worker.report(result.err())
}

/// A lane's part of `bytes`: whole blocks, so that all of a device's or direct I/O's operations stay aligned. Parts
/// differ by a block at most, and add up.
fn share(bytes: u64, block: u64, lane: u16, lanes: u16) -> u64 {
    let blocks = u128::from(bytes.div_ceil(block.max(1)));
    let upto = |lane: u16| {
        let bound = blocks * u128::from(lane) / u128::from(lanes.max(1)) * u128::from(block);
        u64::try_from(bound).unwrap_or(u64::MAX).min(bytes)
    };
    upto(lane + 1) - upto(lane)
}

fn failed(error: Error) -> Report {
    Report {
        error: Some(error),
        ..Report::default()
    }
}

/// Fields drop in their order: the session before the slots that its operations may still point into.
struct Worker<'a> {
    session: Box<dyn Session>,
    slots: Slots,
    clock: Clock,
    job: &'a Job,
    live: &'a Live,
    stop: &'a AtomicBool,
    pattern: Pattern,
    payload: Payload,
    /// Slots that are free.
    free: Vec<u16>,
    /// What each slot is doing, and since when.
    steps: Vec<(Step, u64)>,
    done: Vec<Completion>,
    outstanding: usize,
    /// Bytes that may still be started; `u64::MAX` when only time ends the run.
    budget: u64,
    generation: u64,
    writes_since_flush: u32,
    ramp_end: u64,
    end: u64,
    /// Nanoseconds between intended starts, in rate mode.
    gap: Option<f64>,
    start: u64,
    started: u64,
    measuring: bool,
    ending: bool,
    cpu_start: u64,
    wire_start: u64,
    result: Report,
}

impl<'a> Worker<'a> {
    fn new(
        session: Box<dyn Session>,
        slots: Slots,
        job: &'a Job,
        live: &'a Live,
        stop: &'a AtomicBool,
    ) -> Self {
        let phase = &job.phase;
        let pattern = Pattern::new(phase, job.lane, job.lanes, job.seed);
        let depth = usize::from(phase.iodepth);
        let budget = match (phase.bytes, phase.runtime) {
            (Some(bytes), _) => pattern.turns(bytes.0).unwrap_or_else(|| {
                share(bytes.0, u64::from(phase.block_max()), job.lane, job.lanes)
            }),
            (None, Some(_)) => u64::MAX,
            (None, None) => pattern.pass_bytes(),
        };
        Self {
            clock: session.clock(),
            session,
            slots,
            job,
            live,
            stop,
            pattern,
            payload: Payload::new(job.content.clone()),
            free: (0..phase.iodepth).rev().collect(),
            steps: vec![
                (
                    Step {
                        direction: Direction::Read,
                        offset: 0,
                        len: 0
                    },
                    0
                );
                depth
            ],
            done: Vec::with_capacity(depth),
            outstanding: 0,
            budget,
            generation: job.generation.unwrap_or(LAID),
            writes_since_flush: 0,
            ramp_end: 0,
            end: u64::MAX,
            gap: phase
                .rate_iops
                .map(|rate| 1e9 * f64::from(job.lanes) / f64::from(rate)),
            start: 0,
            started: 0,
            measuring: false,
            ending: false,
            cpu_start: 0,
            wire_start: 0,
            result: Report::default(),
        }
    }

    fn begin(&mut self, start: u64) {
        // Else the kernel lets each sleep last 50 us longer, which rate mode would count as latency. It may
        // refuse; then timing is coarser.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        self.clock.sleep_until(start);
        self.start = start;
        self.ramp_end = start.saturating_add(self.job.phase.ramp_time.0);
        if let Some(runtime) = self.job.phase.runtime {
            self.end = self.ramp_end.saturating_add(runtime.0);
        }
        self.measuring = self.job.phase.ramp_time.0 == 0;
        self.result.started_ns = start;
        self.result.ended_ns = start;
        self.cpu_start = thread_cpu_ns();
        self.wire_start = self.session.wire_ops().unwrap_or(0);
    }

    fn measure(&mut self) -> Result<()> {
        let mut now = self.clock.now();
        loop {
            let mut until = None;
            while let Some(&slot) = self.free.last() {
                if self.over(now) || self.flush_is_due() {
                    break;
                }
                let intended = match self.intended(now) {
                    Ok(intended) => intended,
                    Err(later) => {
                        until = Some(later);
                        break;
                    }
                };
                self.free.pop();
                now = self.start_one(slot, intended, now)?;
            }
            if self.outstanding > 0 {
                self.session.reap(until, &mut self.slots, &mut self.done)?;
                now = self.complete_all()?;
            } else if self.ending {
                return Ok(());
            } else if self.flush_is_due() {
                self.flush_in_run()?;
                now = self.clock.now();
            } else if let Some(later) = until {
                self.nap(later, now);
                now = self.clock.now();
            }
        }
    }

    /// Whether nothing more may start.
    #[inline]
    fn over(&mut self, now: u64) -> bool {
        if !self.ending {
            let stopped = self.stop.load(Relaxed);
            self.result.stopped |= stopped;
            self.ending = stopped || self.budget == 0 || now >= self.end;
        }
        self.ending
    }

    /// When the next operation is meant to start: now in a closed loop; Err with the time when it is too early.
    #[inline]
    fn intended(&mut self, now: u64) -> std::result::Result<u64, u64> {
        let Some(gap) = self.gap else {
            return Ok(now);
        };
        // Lanes take turns: each starts its share of a gap after the one before.
        let turn = f64::from(self.job.lane) / f64::from(self.job.lanes);
        let intended = self.start + ((self.started as f64 + turn) * gap) as u64;
        if intended > now {
            return Err(intended.min(self.end));
        }
        // A scheduler tick late is still on time.
        self.result.late += u64::from(self.measuring && now - intended > 1_000_000);
        Ok(intended)
    }

    /// Starts one operation and returns the current time.
    #[inline]
    fn start_one(&mut self, slot: u16, intended: u64, now: u64) -> Result<u64> {
        let mut step = self.pattern.advance();
        if u64::from(step.len) > self.budget {
            step.len = self.budget as u32;
        }
        if self.budget != u64::MAX {
            self.budget -= u64::from(step.len);
        }
        let mut now = now;
        let mut since = intended;
        if step.direction == Direction::Write {
            self.payload.fill(
                self.slots.get_mut(slot, step.len),
                step.offset,
                self.generation,
            );
            if self.job.generation.is_some() {
                self.generation += 1;
            }
            self.writes_since_flush += 1;
            self.result.written += u64::from(step.len);
            self.result.high_water = self
                .result
                .high_water
                .max(step.offset + u64::from(step.len));
            if self.gap.is_none() {
                // Making the payload is not the target's time.
                now = self.clock.now();
                since = now;
            }
        }
        self.steps[usize::from(slot)] = (step, since);
        self.started += 1;
        let op = Op {
            direction: step.direction,
            offset: self.job.base + step.offset,
            len: step.len,
            slot,
        };
        match self.session.submit(op, &mut self.slots)? {
            Submit::Queued => self.outstanding += 1,
            Submit::Done(completion) => {
                let ended = self.clock.now();
                now = self.complete(completion, ended)?;
                self.end_ramp(ended);
            }
        }
        Ok(now)
    }

    /// Counts what was reaped and returns the current time.
    #[inline]
    fn complete_all(&mut self) -> Result<u64> {
        // One time for all of them: what is checked last did not end later.
        let reaped = self.clock.now();
        let mut now = reaped;
        let some = !self.done.is_empty();
        while let Some(completion) = self.done.pop() {
            self.outstanding -= 1;
            now = now.max(self.complete(completion, reaped)?);
        }
        if some {
            self.end_ramp(reaped);
        }
        Ok(now)
    }

    /// Begins the measured time when the ramp is over. Operations that ended together with the first one after the ramp
    /// moved their bytes before it, so they are not counted either.
    #[inline]
    fn end_ramp(&mut self, now: u64) {
        if !self.measuring && now >= self.ramp_end {
            self.measuring = true;
            self.result.started_ns = now;
            self.result.ended_ns = now;
            self.cpu_start = thread_cpu_ns();
            self.wire_start += self.requests_of_ended();
        }
    }

    /// Counts one completion and returns the current time.
    #[inline]
    fn complete(&mut self, completion: Completion, now: u64) -> Result<u64> {
        let (step, since) = self.steps[usize::from(completion.slot)];
        if completion.bytes != step.len {
            let offset = self.job.base + step.offset;
            return Err(short(step.direction, offset, step.len, completion.bytes));
        }
        self.live.tick(step.len);
        if self.measuring {
            let latency = now.saturating_sub(since);
            self.live.count(step.direction, step.len, latency);
            let tally = match step.direction {
                Direction::Read => &mut self.result.read,
                Direction::Write => &mut self.result.write,
            };
            tally.ops += 1;
            tally.bytes += u64::from(step.len);
            tally.latency.saturating_record(latency.max(1));
            self.result.ended_ns = now;
        }
        self.free.push(completion.slot);
        if self.job.phase.verify && step.direction == Direction::Read {
            let block = self.slots.get(completion.slot, step.len);
            self.payload
                .check(block, step.offset, GENERATION_MAX)
                .map_err(|wrong| {
                    let message = format!(
                        "wrong data at offset {}: {}",
                        self.job.base + wrong.offset,
                        wrong.what
                    );
                    Error::new(Phase::Io, Kind::Corrupt, message)
                })?;
            // Checking is not the target's time.
            return Ok(self.clock.now());
        }
        Ok(now)
    }

    /// Requests since the start that belong to operations which have ended. What is still under way has sent its share
    /// already, and will be counted when it ends.
    fn requests_of_ended(&self) -> u64 {
        let sent = self.wire_ops().unwrap_or(0);
        sent - sent * self.outstanding as u64 / self.started.max(1)
    }

    fn flush(&mut self) -> Result<()> {
        self.live.flushing(true);
        let flushed = self.session.flush();
        self.live.flushing(false);
        flushed
    }

    fn flush_is_due(&self) -> bool {
        self.job.phase.fsync > 0 && self.writes_since_flush >= self.job.phase.fsync
    }

    fn flush_in_run(&mut self) -> Result<()> {
        self.flush()?;
        self.writes_since_flush = 0;
        self.result.flushes += u64::from(self.measuring);
        Ok(())
    }

    /// Sleeps towards `later`, looking up for a stop signal.
    fn nap(&mut self, later: u64, now: u64) {
        const LOOK_UP_NS: u64 = 100_000_000;
        let step = if matches!(self.clock, Clock::Monotonic) {
            later.min(now + LOOK_UP_NS)
        } else {
            later
        };
        self.clock.sleep_until(step);
    }

    /// The flush that ends a phase, timed apart.
    fn finish(&mut self) -> Result<()> {
        self.result.wire_ops = self.wire_ops();
        self.result.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
        let wanted = self.job.flush && self.job.phase.durability != Durability::None;
        if self.result.written > 0 && wanted && self.session.flushes() {
            self.flush()?;
            self.result.flushed_ns = Some(self.clock.now());
            self.result.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
        }
        Ok(())
    }

    /// Requests sent since the start of the measured time, where known.
    fn wire_ops(&self) -> Option<u64> {
        let all = self.session.wire_ops()?;
        Some(all.saturating_sub(self.wire_start))
    }

    fn report(mut self, error: Option<Error>) -> Report {
        if error.is_some() {
            self.result.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
            self.result.wire_ops = self.wire_ops();
        }
        self.result.generations = self.generation - self.job.generation.unwrap_or(LAID);
        self.result.negotiated = self.session.negotiated();
        self.result.error = error;
        std::mem::take(&mut self.result)
    }
}

/// What an operation says that moved fewer bytes than it was asked for.
pub(super) fn short(direction: Direction, offset: u64, len: u32, bytes: u32) -> Error {
    let verb = match direction {
        Direction::Read => "came back",
        Direction::Write => "were taken",
    };
    let message = format!(
        "only {bytes} of {len} bytes {verb} at offset {offset}: the file or device ends there"
    );
    Error::new(Phase::Io, Kind::Other, message)
}

/// CPU time of this thread in nanoseconds.
pub(super) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_whole_blocks_that_add_up() {
        for (bytes, block, lanes) in [
            (1_000_003, 4096, 7),
            (4096, 4096, 3),
            (1, 4096, 4),
            (u64::MAX, 1 << 20, 1024),
            (10 << 20, 1 << 20, 4),
        ] {
            let parts: Vec<u64> = (0..lanes)
                .map(|lane| share(bytes, block, lane, lanes))
                .collect();
            assert_eq!(parts.iter().sum::<u64>(), bytes, "{bytes} over {lanes}");
            let ragged = parts.iter().filter(|part| *part % block != 0).count() as u64;
            assert!(ragged <= 1, "{parts:?}");
        }
    }
}
