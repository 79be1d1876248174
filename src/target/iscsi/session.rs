//! The data path: many reads and writes under way on one iSCSI session.
//!
//! An operation is one command, or several where the LUN takes less than a block at once. Payload moves between the
//! socket and the engine's slot without a copy. Callbacks only note which command ended; `reap` does the rest, so
//! nothing is ever sent again from a callback. All lists are laid out at the start. A failure ends the session: the
//! libiscsi context is destroyed at once, and with it every pointer into the slots. A target's questions (NOP-In) are
//! answered only while reaping: an idle session wants a `reap` with a time now and then. Times are nanoseconds of
//! `CLOCK_MONOTONIC`. Must not know: workloads, statistics.

#![expect(unsafe_code, reason = "calls libiscsi, a C library")]

mod attended;

use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use libiscsi_sys as sys;

use super::command::{Data, residual};
use super::fault::Fault;
use super::part::{self, Ended, Part, on_part};
use super::scsi;
use super::unit::{ATTENTIONS_MAX, Unit};
use crate::clock::monotonic_ns;
use crate::error::{Error, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Session};

/// Operations that one session keeps under way at most; the target's command window may hold back some of them.
pub const IODEPTH_MAX: u16 = 1024;

/// A write of so many bytes is sent at once: its data fills the connection while the next is made. Shorter ones, and
/// reads, wait for company until the next `reap`, since a target that finds many commands answers many at once.
const SEND_AT_ONCE: u32 = 65_536;

/// The side of a command that only the session sees.
#[derive(Clone, Copy)]
struct Job {
    slot: u16,
    direction: Direction,
    memory: *mut u8,
    len: u32,
    block: u64,
    blocks: u32,
    attentions: u8,
}

/// An operation of the engine's.
#[derive(Clone, Copy)]
struct Flight {
    op: Op,
    /// Commands not yet ended.
    left: u32,
    bytes: u32,
    started: u64,
}

/// Which slots commands point into.
type Home = (*const u8, usize, u16);

/// A session with a LUN.
pub struct Lane {
    unit: Unit,
    ended: Rc<Ended>,
    parts: Rc<[Part]>,
    jobs: Box<[Job]>,
    free: Vec<u32>,
    flights: Box<[Flight]>,
    flying: u32,
    home: Home,
    write: bool,
    durable: bool,
    wire_ops: u64,
    /// No operation can be overdue before this time.
    check_at: u64,
    failure: Option<Error>,
}

impl Lane {
    /// Makes a session of an open LUN.
    pub fn new(unit: Unit, attach: &Attach) -> Result<Self> {
        unit.allows(attach)?;
        let depth = attach.iodepth.max(1);
        if depth > IODEPTH_MAX {
            return Err(Error::usage(format!(
                "iodepth {depth} is more than an iSCSI session takes ({IODEPTH_MAX}); use more lanes"
            )));
        }
        let pieces = attach.block_max.div_ceil(unit.transfer_max).max(1);
        let count = u32::from(depth) * pieces;
        let (ended, parts) = part::parts(count);
        let idle = Op {
            direction: Direction::Read,
            offset: 0,
            len: 0,
            slot: 0,
        };
        let job = Job {
            slot: 0,
            direction: Direction::Read,
            memory: null_mut(),
            len: 0,
            block: 0,
            blocks: 0,
            attentions: 0,
        };
        let flight = Flight {
            op: idle,
            left: 0,
            bytes: 0,
            started: 0,
        };
        Ok(Self {
            unit,
            ended,
            parts,
            jobs: vec![job; count as usize].into(),
            free: (0..count).rev().collect(),
            flights: vec![flight; usize::from(depth)].into(),
            flying: 0,
            home: (std::ptr::null(), 0, 0),
            write: attach.write,
            durable: attach.durability.each_write(),
            wire_ops: 0,
            check_at: 0,
            failure: None,
        })
    }

    /// Refuses what must not be sent.
    fn check(&self, op: Op, slots: &Slots) -> Result<(u64, u32)> {
        if op.direction == Direction::Write && !self.write {
            return Err(Error::safety(
                "a write on a LUN that was opened for reading",
            ));
        }
        let (block, _) = self.unit.blocks(op.offset, u64::from(op.len))?;
        let pieces = op.len.div_ceil(self.unit.transfer_max);
        let idle = self
            .flights
            .get(usize::from(op.slot))
            .is_some_and(|flight| flight.left == 0);
        let fits = op.slot < slots.count() && op.len as usize <= slots.stride();
        if !idle || !fits || pieces as usize > self.free.len() {
            return Err(Error::usage(format!(
                "an operation of {} bytes on slot {} does not fit what the session was opened for",
                op.len, op.slot
            )));
        }
        Ok((block, pieces))
    }

    /// Refuses slots other than those that commands under way point into.
    pub(super) fn at_home(&mut self, slots: &Slots) -> Result<()> {
        let home = (slots.get(0, 0).as_ptr(), slots.stride(), slots.count());
        if self.flying == 0 {
            self.home = home;
        } else if self.home != home {
            return Err(Error::usage(
                "the slots were exchanged while operations were under way",
            ));
        }
        Ok(())
    }

    /// Queues the command of a job.
    fn send(&mut self, index: u32) -> std::result::Result<(), Fault> {
        let job = self.jobs[index as usize];
        let part = &self.parts[index as usize];
        let (cdb, data) = match job.direction {
            Direction::Read => (
                scsi::read_16(job.block, job.blocks),
                Data::Into(job.memory, job.len),
            ),
            Direction::Write => (
                scsi::write_16(job.block, job.blocks, self.durable),
                Data::From(job.memory, job.len),
            ),
        };
        let lun = self.unit.address.wire_lun();
        let private = std::ptr::from_ref(part).cast_mut().cast();
        part.under_way.set(true);
        // SAFETY: `memory` is a piece of a slot: one mapping that never moves, checked by `at_home` before each call
        // that lets libiscsi touch it, and kept aside by the engine until the operation completes. Should the session
        // fail or be dropped first, its context is destroyed with it, and libiscsi touches memory only inside our
        // calls. The part lives in an `Rc` that is dropped after the context. The task is taken back in `collect`
        // or `abandon`.
        let queued = unsafe { self.unit.context.queue(lun, &cdb, data, on_part, private) };
        match queued {
            Ok(task) => {
                part.task.set(task.as_ptr());
                self.wire_ops += 1;
                Ok(())
            }
            Err(fault) => {
                part.under_way.set(false);
                Err(fault)
            }
        }
    }

    /// Takes what ended into `done`. A failure behind completions waits for the next call.
    pub(super) fn collect(&mut self, done: &mut Vec<Completion>) -> Result<()> {
        let before = done.len();
        let count = self.ended.take();
        for place in 0..count {
            let index = self.ended.at(place);
            if let Err(fault) = self.take(index, done) {
                let op = self.flights[usize::from(self.jobs[index as usize].slot)].op;
                let error = self.fail(&fault, op);
                if done.len() == before {
                    return Err(error);
                }
                self.failure = Some(error);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes one ended command.
    fn take(&mut self, index: u32, done: &mut Vec<Completion>) -> std::result::Result<(), Fault> {
        let part = &self.parts[index as usize];
        let status = part.status.get();
        let Some(task) = NonNull::new(part.task.replace(null_mut())) else {
            return Err(Fault::Gone(None));
        };
        // SAFETY: its callback was made, so the task is ours.
        if let Some(fault) = unsafe { self.unit.context.fault_of(task, status) } {
            self.unit.context.retire(task);
            let job = &mut self.jobs[index as usize];
            // The target reported an event instead of running the command: ask again.
            if matches!(fault, Fault::Sense(sense) if sense.unit_attention())
                && job.attentions < ATTENTIONS_MAX
            {
                job.attentions += 1;
                return self.send(index);
            }
            return Err(fault);
        }
        // SAFETY: ended well: libiscsi is done with it.
        let missing = unsafe {
            let missing = residual(task.as_ref());
            sys::scsi_free_scsi_task(task.as_ptr());
            missing
        };
        self.free.push(index);
        let job = self.jobs[index as usize];
        let flight = &mut self.flights[usize::from(job.slot)];
        flight.bytes += job
            .len
            .saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX));
        flight.left -= 1;
        if flight.left == 0 {
            self.flying -= 1;
            done.push(Completion {
                slot: job.slot,
                bytes: flight.bytes,
            });
        }
        Ok(())
    }

    /// Ends the session after a fault of `op`'s.
    fn fail(&mut self, fault: &Fault, op: Op) -> Error {
        self.abandon();
        let doing = format!(
            "{} {} bytes at offset {}",
            op.direction.key(),
            op.len,
            op.offset
        );
        self.unit.moving(fault, Phase::Io, &doing)
    }

    /// The operation that waits longest.
    fn oldest(&self) -> Option<Flight> {
        self.flights
            .iter()
            .filter(|flight| flight.left > 0)
            .min_by_key(|flight| flight.started)
            .copied()
    }

    /// Fails when an operation is overdue; else learns when the next could be.
    fn check_overdue(&mut self, now: u64) -> Result<()> {
        let timeout = self.unit.io_timeout_ns;
        let Some(oldest) = self.oldest() else {
            self.check_at = now.saturating_add(timeout);
            return Ok(());
        };
        self.check_at = oldest.started.saturating_add(timeout);
        if self.check_at <= now {
            return Err(self.fail(&Fault::TimedOut, oldest.op));
        }
        Ok(())
    }

    /// Destroys the context and frees what was under way.
    fn abandon(&mut self) {
        self.unit.context.destroy();
        for part in self.parts.iter() {
            part.under_way.set(false);
            if let Some(task) = NonNull::new(part.task.replace(null_mut())) {
                // SAFETY: a task of ours that was not yet taken; the context that knew it is gone.
                unsafe { sys::scsi_free_scsi_task(task.as_ptr()) };
            }
        }
        self.ended.take();
        self.flying = 0;
    }

    /// One wait for the connection. When it is lost, what had ended before still counts; then the operation that
    /// waits longest names the failure.
    fn turn(&mut self, until: u64, done: &mut Vec<Completion>) -> Result<()> {
        let turned = self.unit.context.turn(until);
        self.turned(turned, done)
    }

    /// What follows a turn of the connection.
    fn turned(
        &mut self,
        turned: std::result::Result<(), Fault>,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        // What came may call for data (R2T): sent at once, it saves a wait.
        let Err(fault) = turned.and_then(|()| self.unit.context.push()) else {
            return self.collect(done);
        };
        let before = done.len();
        self.collect(done)?;
        if self.failure.is_none() {
            self.failure = Some(self.lost(&fault));
        }
        if done.len() > before {
            return Ok(());
        }
        self.earlier_failure()
    }

    /// A failure that is still to be told.
    pub(super) fn earlier_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Session for Lane {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        self.earlier_failure()?;
        let (mut block, pieces) = self.check(op, slots)?;
        self.at_home(slots)?;
        let started = monotonic_ns();
        if self.flying == 0 {
            self.check_at = started.saturating_add(self.unit.io_timeout_ns);
        }
        let memory = slots.get_mut(op.slot, op.len);
        self.flights[usize::from(op.slot)] = Flight {
            op,
            left: pieces,
            bytes: 0,
            started,
        };
        self.flying += 1;
        for piece in memory.chunks_mut(self.unit.transfer_max as usize) {
            let len = piece.len() as u32;
            let blocks = len / self.unit.capacity.block;
            let Some(index) = self.free.pop() else { break };
            self.jobs[index as usize] = Job {
                slot: op.slot,
                direction: op.direction,
                memory: piece.as_mut_ptr(),
                len,
                block,
                blocks,
                attentions: 0,
            };
            if let Err(fault) = self.send(index) {
                return Err(self.fail(&fault, op));
            }
            block += u64::from(blocks);
        }
        if op.direction == Direction::Write
            && op.len >= SEND_AT_ONCE
            && let Err(fault) = self.unit.context.push()
        {
            return Err(self.fail(&fault, op));
        }
        Ok(Submit::Queued)
    }

    fn reap(
        &mut self,
        until: Option<u64>,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        self.earlier_failure()?;
        self.at_home(slots)?;
        let before = done.len();
        loop {
            self.collect(done)?;
            if done.len() > before || (self.flying == 0 && until.is_none()) {
                return Ok(());
            }
            let wake = until.map_or(self.check_at, |until| until.min(self.check_at));
            self.turn(wake, done)?;
            if done.len() > before {
                return Ok(());
            }
            let now = monotonic_ns();
            if now >= self.check_at {
                self.check_overdue(now)?;
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.earlier_failure()?;
        self.unit.synchronize()
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.wire_ops)
    }

    fn negotiated(&self) -> String {
        self.unit.heard.words()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // With operations under way, callbacks are made while the parts still live; an idle session is left to its
        // unit, which logs out.
        if self.flying > 0 {
            self.abandon();
        }
    }
}
