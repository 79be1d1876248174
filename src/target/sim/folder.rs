//! Small files of known behaviour: each operation takes the model's time, and faults come on order.
//!
//! Content passes the pipe; everything takes the latency, and a durable file a flush more. Nothing is stored.

use crate::clock::Clock;
use crate::error::Result;
use crate::op::{Direction, Op};
use crate::target::{Attach, Folder, Login};

use super::{Model, Sim};

/// Opens it.
pub(super) fn open(login: &Login, attach: &Attach) -> Result<Box<dyn Folder>> {
    let model = Model::read(&login.spec)?;
    Ok(Box::new(Simulated(Sim::new(model, login, attach))))
}

struct Simulated(Sim);

impl Simulated {
    /// One operation on `len` bytes of content; how many of them moved.
    fn one(&mut self, direction: Direction, len: usize) -> Result<usize> {
        let op = Op {
            direction,
            offset: 0,
            len: len as u32,
            slot: 0,
        };
        let (end, bytes) = self.0.schedule(op)?;
        self.0.clock.sleep_until(end);
        Ok(bytes as usize)
    }
}

impl Folder for Simulated {
    fn create(&mut self, _name: &str, content: &[u8], durable: bool) -> Result<()> {
        self.one(Direction::Write, content.len())?;
        if durable {
            crate::target::Session::flush(&mut self.0)?;
        }
        Ok(())
    }

    fn read(&mut self, _name: &str, buffer: &mut [u8]) -> Result<usize> {
        self.one(Direction::Read, buffer.len())
    }

    /// It stores nothing, so it has no size to compare.
    fn size(&mut self, _name: &str) -> Result<Option<u64>> {
        self.one(Direction::Read, 0).map(|_| None)
    }

    fn list(&mut self) -> Result<u64> {
        self.one(Direction::Read, 0).map(|_| self.0.model.entries)
    }

    fn rename(&mut self, _from: &str, _to: &str) -> Result<()> {
        self.one(Direction::Write, 0).map(drop)
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        self.one(Direction::Write, 0).map(drop)
    }

    fn clock(&self) -> Clock {
        self.0.clock.clone()
    }
}
