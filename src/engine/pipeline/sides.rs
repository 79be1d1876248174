//! The reader and the writer of a copy: what they do with slots that are theirs, and how long they stand still.
//!
//! Must not know: whether the other one is a thread of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use twox_hash::XxHash3_64;

use super::lane::{Lane, Piece};
use super::{Side, Task};
use crate::clock::monotonic_ns;
use crate::engine::Live;
use crate::engine::worker::thread_cpu_ns;
use crate::error::{Error, Result};
use crate::op::Direction;
use crate::slots::Slots;

/// How long a side that waits sleeps before it looks whether it is to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What one side came to.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) side: Side,
    pub(super) started_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) stored_ns: Option<u64>,
    pub(super) digests: Vec<u64>,
    pub(super) error: Option<Error>,
    pub(super) stopped: bool,
}

impl End {
    /// It could not be opened, or the other one could not.
    pub(super) fn without_a_start(error: Option<Error>) -> Self {
        Self {
            error,
            ..Self::default()
        }
    }
}

/// Fields drop in their order: the session before the slots that its operations may still point into.
pub(super) struct Reader<'a> {
    lane: Lane,
    slots: Slots,
    task: &'a Task,
    live: &'a Live,
    next: usize,
    ended: usize,
    pub(super) digests: Vec<u64>,
    pub(super) side: Side,
    started_ns: u64,
    cpu_start: u64,
    stopped: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(task: &'a Task, lane: Lane, slots: Slots, live: &'a Live) -> Self {
        Self {
            lane,
            slots,
            task,
            live,
            next: 0,
            ended: 0,
            digests: vec![0; task.blocks()],
            side: Side::default(),
            started_ns: monotonic_ns(),
            cpu_start: thread_cpu_ns(),
            stopped: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.ended == self.task.blocks()
    }

    /// Reads all, whenever a slot is free.
    pub(super) fn run(
        &mut self,
        empty: &Receiver<u16>,
        filled: &SyncSender<(u16, Piece)>,
        stop: &AtomicBool,
    ) -> Result<()> {
        while !self.is_done() {
            self.fill(empty, filled, stop)?;
            if self.is_done() || self.stopped {
                break;
            }
            // All slots are the writer's.
            let began = monotonic_ns();
            let slot = empty.recv_timeout(LOOK_UP);
            self.side.waited_ns += monotonic_ns() - began;
            match slot {
                Ok(slot) => self.start(slot)?,
                Err(RecvTimeoutError::Timeout) => {}
                // The writer has failed, and tells why.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.stopped |= stop.load(Relaxed);
        }
        Ok(())
    }

    fn start(&mut self, slot: u16) -> Result<()> {
        let piece = self.task.at(self.next);
        self.next += 1;
        self.lane.start(piece, slot, &mut self.slots)
    }

    /// Reads as long as there are empty slots, and until nothing is under way.
    pub(super) fn fill(
        &mut self,
        empty: &Receiver<u16>,
        filled: &SyncSender<(u16, Piece)>,
        stop: &AtomicBool,
    ) -> Result<()> {
        loop {
            self.stopped |= stop.load(Relaxed);
            while !self.stopped && self.lane.has_room() && self.next < self.digests.len() {
                let Ok(slot) = empty.try_recv() else { break };
                self.start(slot)?;
            }
            if self.lane.under_way == 0 {
                return Ok(());
            }
            self.lane.reap(&mut self.slots)?;
            while let Some((slot, piece)) = self.lane.ended()? {
                let data = self.slots.get(slot, piece.len);
                self.digests[piece.block] = XxHash3_64::oneshot(data);
                self.live.tick(piece.len);
                self.side.bytes += u64::from(piece.len);
                self.ended += 1;
                self.slots.hand_over(slot);
                // Without a writer nobody needs it any more.
                let _ = filled.send((slot, piece));
            }
        }
    }

    pub(super) fn end(mut self, result: Result<()>) -> End {
        self.side.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
        self.side.negotiated = self.lane.session.negotiated();
        End {
            started_ns: self.started_ns,
            ended_ns: monotonic_ns(),
            stored_ns: None,
            digests: if self.is_done() {
                std::mem::take(&mut self.digests)
            } else {
                Vec::new()
            },
            error: result.err(),
            stopped: self.stopped,
            side: std::mem::take(&mut self.side),
        }
    }
}

/// Fields drop in their order, as a reader's.
pub(super) struct Writer<'a> {
    lane: Lane,
    slots: Slots,
    task: &'a Task,
    live: &'a Live,
    waiting: VecDeque<(u16, Piece)>,
    ended: usize,
    pub(super) side: Side,
    started_ns: u64,
    accepted_ns: u64,
    stored_ns: Option<u64>,
    cpu_start: u64,
    stopped: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(task: &'a Task, lane: Lane, slots: Slots, live: &'a Live) -> Self {
        let now = monotonic_ns();
        Self {
            lane,
            slots,
            task,
            live,
            waiting: VecDeque::new(),
            ended: 0,
            side: Side::default(),
            started_ns: now,
            accepted_ns: now,
            stored_ns: None,
            cpu_start: thread_cpu_ns(),
            stopped: false,
        }
    }

    /// Writes all, whenever something has been read, and makes it durable.
    pub(super) fn run(
        &mut self,
        filled: &Receiver<(u16, Piece)>,
        empty: &SyncSender<u16>,
        stop: &AtomicBool,
    ) -> Result<()> {
        while self.ended < self.task.blocks() {
            self.empty(filled, empty, stop)?;
            if self.ended == self.task.blocks() || self.stopped {
                break;
            }
            // All slots are the reader's.
            let began = monotonic_ns();
            let piece = filled.recv_timeout(LOOK_UP);
            self.side.waited_ns += monotonic_ns() - began;
            match piece {
                Ok(piece) => self.waiting.push_back(piece),
                Err(RecvTimeoutError::Timeout) => {}
                // The reader has failed, and tells why.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.stopped |= stop.load(Relaxed);
        }
        if self.stopped {
            return Ok(());
        }
        self.store()
    }

    /// Writes as long as there are filled slots, and until nothing is under way.
    pub(super) fn empty(
        &mut self,
        filled: &Receiver<(u16, Piece)>,
        empty: &SyncSender<u16>,
        stop: &AtomicBool,
    ) -> Result<()> {
        loop {
            self.stopped |= stop.load(Relaxed);
            while !self.stopped && self.lane.has_room() {
                let next = self.waiting.pop_front().or_else(|| filled.try_recv().ok());
                let Some((slot, piece)) = next else { break };
                self.lane.start(piece, slot, &mut self.slots)?;
            }
            if self.lane.under_way == 0 {
                return Ok(());
            }
            self.lane.reap(&mut self.slots)?;
            while let Some((slot, piece)) = self.lane.ended()? {
                self.accepted_ns = monotonic_ns();
                self.live.tick(piece.len);
                self.live.count(Direction::Write, piece.len, 0);
                self.side.bytes += u64::from(piece.len);
                self.ended += 1;
                self.slots.hand_over(slot);
                let _ = empty.send(slot);
            }
        }
    }

    /// Makes durable what was written, where the destination can.
    pub(super) fn store(&mut self) -> Result<()> {
        if !self.lane.session.flushes() {
            return Ok(());
        }
        self.live.flushing(true);
        let flushed = self.lane.session.flush();
        self.live.flushing(false);
        flushed?;
        self.stored_ns = Some(monotonic_ns());
        Ok(())
    }

    pub(super) fn end(mut self, result: Result<()>) -> End {
        self.side.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
        self.side.negotiated = self.lane.session.negotiated();
        End {
            started_ns: self.started_ns,
            ended_ns: self.accepted_ns,
            stored_ns: self.stored_ns.filter(|_| result.is_ok()),
            digests: Vec::new(),
            error: result.err(),
            stopped: self.stopped,
            side: std::mem::take(&mut self.side),
        }
    }
}
