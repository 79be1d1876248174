//! One blocking `pread` or `pwrite` an operation.
//!
//! Must not know: what file it is.

use crate::error::Result;
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::Session;
use crate::target::local::{Engine, Opened};

/// A session at depth 1.
#[derive(Debug)]
pub struct Psync {
    opened: Opened,
}

impl Psync {
    /// Works on an open file.
    #[must_use]
    pub const fn new(opened: Opened) -> Self {
        Self { opened }
    }
}

impl Session for Psync {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        let bytes = match op.direction {
            Direction::Read => self
                .opened
                .read(slots.get_mut(op.slot, op.len), op.offset)?,
            Direction::Write => self.opened.write(slots.get(op.slot, op.len), op.offset)?,
        };
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: bytes as u32,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        self.opened.sync()
    }

    fn negotiated(&self) -> String {
        self.opened.words(Engine::Psync)
    }
}
