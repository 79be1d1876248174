//! A session of a copy, and what is under way on it.
//!
//! Must not know: which blocks are next, who has the slots.

use super::{Open, Task};
use crate::engine::worker::short;
use crate::error::Result;
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::Session;

/// A block on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) block: usize,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// A session, what it is for, and what is under way on it.
pub(super) struct Lane {
    pub(super) session: Box<dyn Session>,
    direction: Direction,
    /// Where its bytes begin.
    base: u64,
    depth: usize,
    /// The piece in each slot.
    pieces: Vec<Option<Piece>>,
    pub(super) under_way: usize,
    done: Vec<Completion>,
}

impl Lane {
    /// The reader's.
    pub(super) fn reading(task: &Task, open: Open<'_>, slots: &mut Slots) -> Result<Self> {
        let (base, depth) = (task.source_base, task.source_depth);
        Self::open(open, slots, Direction::Read, base, depth)
    }

    /// The writer's.
    pub(super) fn writing(task: &Task, open: Open<'_>, slots: &mut Slots) -> Result<Self> {
        let (base, depth) = (task.destination_base, task.destination_depth);
        Self::open(open, slots, Direction::Write, base, depth)
    }

    fn open(
        open: Open<'_>,
        slots: &mut Slots,
        direction: Direction,
        base: u64,
        depth: u16,
    ) -> Result<Self> {
        let mut session = open()?;
        session.prepare(slots)?;
        Ok(Self {
            session,
            direction,
            base,
            depth: usize::from(depth.max(1)),
            pieces: vec![None; usize::from(slots.count())],
            under_way: 0,
            done: Vec::with_capacity(usize::from(slots.count())),
        })
    }

    pub(super) const fn has_room(&self) -> bool {
        self.under_way < self.depth
    }

    /// Starts one operation.
    pub(super) fn start(&mut self, piece: Piece, slot: u16, slots: &mut Slots) -> Result<()> {
        self.pieces[usize::from(slot)] = Some(piece);
        let op = Op {
            direction: self.direction,
            offset: self.base + piece.offset,
            len: piece.len,
            slot,
        };
        let submitted = self.session.submit(op, slots)?;
        self.under_way += 1;
        if let Submit::Done(completion) = submitted {
            self.done.push(completion);
        }
        Ok(())
    }

    /// Waits until something has ended, if nothing has yet.
    pub(super) fn reap(&mut self, slots: &mut Slots) -> Result<()> {
        if self.done.is_empty() && self.under_way > 0 {
            self.session.reap(None, slots, &mut self.done)?;
        }
        Ok(())
    }

    /// One that has ended, all of its bytes moved.
    pub(super) fn ended(&mut self) -> Result<Option<(u16, Piece)>> {
        let Some(completion) = self.done.pop() else {
            return Ok(None);
        };
        self.under_way -= 1;
        let Some(piece) = self.pieces[usize::from(completion.slot)].take() else {
            return Ok(None);
        };
        if completion.bytes != piece.len {
            let offset = self.base + piece.offset;
            return Err(short(self.direction, offset, piece.len, completion.bytes));
        }
        Ok(Some((completion.slot, piece)))
    }
}
