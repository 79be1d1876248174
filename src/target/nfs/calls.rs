//! The operations of one pipelined session and the calls that carry them: what is done, what goes next, in which bytes.
//!
//! An operation larger than the server takes at once is carried by one call after the other. Must not know sockets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::monotonic_ns;
use crate::op::{Direction, Op};
use crate::payload::mix;
use crate::slots::Slots;

use super::frame::{self, Template};
use super::inbox::Expected;

/// An operation and the call that carries its next part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) op: Op,
    /// Bytes of the operation that are done.
    pub(super) done: u32,
    /// Bytes of the call under way.
    pub(super) count: u32,
    /// How often the server put it off.
    pub(super) put_off: u32,
    /// The call's xid; None when none is under way.
    xid: Option<u32>,
}

/// All of a session's operations, by slot.
pub(super) struct Calls {
    parts: Vec<Part>,
    heads: Vec<u8>,
    stride: usize,
    read: Template,
    write: Option<Template>,
    read_max: u32,
    write_max: u32,
    /// Calls made so far.
    made: u64,
    /// Where the session's xids begin.
    first: u32,
    /// Bits of an xid that name the slot; the others count the calls.
    slot_bits: u32,
}

/// Where a session's xids begin. Servers take a call with an xid that they have just seen from this computer for a
/// repetition and do not answer it, so sessions must not count alike.
fn first_call() -> u32 {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let session = SESSIONS.fetch_add(1, Relaxed) << 32;
    mix(monotonic_ns() ^ session ^ u64::from(std::process::id())) as u32
}

impl Calls {
    /// For operations on `slots` slots; without `write` nothing may be written.
    pub(super) fn new(
        slots: usize,
        read: Template,
        write: Option<Template>,
        read_max: u32,
        write_max: u32,
    ) -> Self {
        let op = Op {
            direction: Direction::Read,
            offset: 0,
            len: 0,
            slot: 0,
        };
        let idle = Part {
            op,
            done: 0,
            count: 0,
            put_off: 0,
            xid: None,
        };
        let stride = read.len().max(write.as_ref().map_or(0, Template::len));
        Self {
            parts: vec![idle; slots],
            heads: vec![0; stride * slots],
            stride,
            read,
            write,
            read_max,
            write_max,
            made: 0,
            first: first_call(),
            slot_bits: slots.next_power_of_two().trailing_zeros(),
        }
    }

    /// Whether writes are possible.
    pub(super) const fn may_write(&self) -> bool {
        self.write.is_some()
    }

    /// Calls made so far.
    pub(super) const fn count(&self) -> u64 {
        self.made
    }

    /// Takes an operation on.
    pub(super) fn begin(&mut self, op: Op) {
        self.parts[usize::from(op.slot)] = Part {
            op,
            done: 0,
            count: 0,
            put_off: 0,
            xid: None,
        };
    }

    /// A slot's operation.
    pub(super) fn part(&self, slot: u16) -> &Part {
        &self.parts[usize::from(slot)]
    }

    /// Makes the call for what is left of a slot's operation.
    pub(super) fn make(&mut self, slot: u16) {
        let index = usize::from(slot);
        let part = &mut self.parts[index];
        let (template, most) = match &self.write {
            Some(template) if part.op.direction == Direction::Write => (template, self.write_max),
            _ => (&self.read, self.read_max),
        };
        part.count = (part.op.len - part.done).min(most);
        self.made += 1;
        let number = self.first.wrapping_add(self.made as u32);
        let xid = (number << self.slot_bits) | u32::from(slot);
        part.xid = Some(xid);
        let head = &mut self.heads[index * self.stride..index * self.stride + template.len()];
        template.fill(head, xid, part.op.offset + u64::from(part.done), part.count);
    }

    /// Notes `count` bytes moved by a slot's call; true when the operation is done.
    pub(super) fn moved(&mut self, slot: u16, count: u32, eof: bool) -> bool {
        let part = &mut self.parts[usize::from(slot)];
        part.done += count;
        part.xid = None;
        part.done == part.op.len || eof
    }

    /// Notes that the server put a slot's call off; how often it did.
    pub(super) fn put_off(&mut self, slot: u16) -> u32 {
        let part = &mut self.parts[usize::from(slot)];
        part.put_off += 1;
        part.put_off
    }

    /// The call of this xid, if it is under way.
    pub(super) fn expected(&self, xid: u32) -> Option<Expected> {
        let slot = xid & ((1 << self.slot_bits) - 1);
        let part = self
            .parts
            .get(slot as usize)
            .filter(|part| part.xid == Some(xid))?;
        let write = part.op.direction == Direction::Write;
        Some(Expected {
            slot: slot as u16,
            write,
            count: part.count,
        })
    }

    /// The bytes of a slot's call: head, data, padding.
    pub(super) fn bytes<'a>(&'a self, slot: u16, slots: &'a Slots) -> [&'a [u8]; 3] {
        const ZEROS: &[u8] = &[0; 3];
        let index = usize::from(slot);
        let part = &self.parts[index];
        let head = |template: &Template| {
            &self.heads[index * self.stride..index * self.stride + template.len()]
        };
        match &self.write {
            Some(template) if part.op.direction == Direction::Write => {
                let from = part.done as usize;
                let data = &slots.get(slot, part.op.len)[from..from + part.count as usize];
                [
                    head(template),
                    data,
                    &ZEROS[..frame::padding(part.count) as usize],
                ]
            }
            _ => [head(&self.read), &[], &[]],
        }
    }

    /// Where the bytes of a slot's call go that are `got` bytes into it.
    pub(super) fn place<'a>(
        &self,
        slot: u16,
        got: u32,
        len: usize,
        slots: &'a mut Slots,
    ) -> &'a mut [u8] {
        let part = self.part(slot);
        let from = (part.done + got) as usize;
        &mut slots.get_mut(slot, part.op.len)[from..from + len]
    }
}
