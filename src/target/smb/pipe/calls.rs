//! Requests of one session: which operation each slot serves, what is paid for it, and the bytes of its head.
//!
//! A server grants credits, and a request costs one for each 64 KiB. What can't be paid waits here, in order; where even
//! an idle session can't pay for a block, its request is made shorter. Must not know: sockets.

use std::collections::VecDeque;

use super::frame::{self, Command, Names, REQUEST_MAX, Request};
use super::inbox::{Expected, Found};
use super::seal::Seal;
use crate::op::{Direction, Op};
use crate::slots::Slots;

/// Credits that a session keeps asking for, at the least.
const WISH_MIN: u32 = 64;
/// Credits that it asks for at most: what Samba and Windows grant one session.
const WISH_MAX: u32 = 8192;
/// No request has this number: it was NEGOTIATE's.
const NONE: u64 = 0;

/// One slot's operation, and the request under way for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) op: Op,
    /// Bytes that earlier requests moved.
    pub(super) done: u32,
    /// Bytes that this request is to move.
    pub(super) count: u32,
    command: Command,
    charge: u16,
}

/// All slots' requests.
pub(super) struct Calls {
    names: Names,
    parts: Vec<Part>,
    /// The number of each slot's request under way.
    ids: Vec<u64>,
    heads: Vec<([u8; REQUEST_MAX], usize)>,
    waiting: VecDeque<u16>,
    flying: usize,
    next_id: u64,
    credits: u32,
    /// Credits that the requests under way cost.
    spent: u32,
    /// Credits that it would use at its full depth.
    target: u32,
    read_max: u32,
    write_max: u32,
    made: u64,
}

/// Where a session stands when its login is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) names: Names,
    pub(super) next_id: u64,
    pub(super) credits: u16,
    pub(super) read_max: u32,
    pub(super) write_max: u32,
}

impl Calls {
    /// For `slots` operations at once of at most `block` bytes, and a flush.
    pub(super) fn new(start: &Start, slots: u16, block: u32) -> Self {
        let limit = |max: u32| {
            if start.names.large {
                max
            } else {
                max.min(frame::CREDIT)
            }
        };
        let (read_max, write_max) = (limit(start.read_max), limit(start.write_max));
        let largest = block.min(read_max.max(write_max));
        let target = u32::from(slots) * u32::from(frame::charge(largest));
        let idle = Part {
            op: Op {
                direction: Direction::Read,
                offset: 0,
                len: 0,
                slot: 0,
            },
            done: 0,
            count: 0,
            command: Command::Flush,
            charge: 0,
        };
        let places = usize::from(slots) + 1;
        Self {
            names: start.names,
            parts: vec![idle; places],
            ids: vec![NONE; places],
            heads: vec![([0; REQUEST_MAX], 0); places],
            waiting: VecDeque::with_capacity(places),
            flying: 0,
            next_id: start.next_id,
            credits: u32::from(start.credits),
            spent: 0,
            target: target.clamp(WISH_MIN, WISH_MAX),
            read_max,
            write_max,
            made: 0,
        }
    }

    /// An operation is to be done.
    pub(super) fn begin(&mut self, op: Op) {
        let command = match op.direction {
            Direction::Read => Command::Read,
            Direction::Write => Command::Write,
        };
        self.parts[usize::from(op.slot)] = Part {
            op,
            done: 0,
            count: 0,
            command,
            charge: 1,
        };
        self.waiting.push_back(op.slot);
    }

    /// A request without payload is to be done, FLUSH or CLOSE; it has a place of its own.
    pub(super) fn begin_plain(&mut self, command: Command) {
        let slot = self.parts.len() - 1;
        self.parts[slot].command = command;
        self.parts[slot].op.slot = slot as u16;
        self.waiting.push_back(slot as u16);
    }

    /// Makes the next request that can be paid for, signed with `seal`; gives its slot. Err when it will never be.
    pub(super) fn make(
        &mut self,
        seal: Option<&Seal>,
        slots: &Slots,
    ) -> Result<Option<u16>, String> {
        let Some(&slot) = self.waiting.front() else {
            return Ok(None);
        };
        let index = usize::from(slot);
        let part = &mut self.parts[index];
        let left = part.op.len - part.done;
        part.count = match part.command {
            Command::Read => left.min(self.read_max),
            Command::Write => left.min(self.write_max),
            Command::Close | Command::Flush => 0,
        };
        part.charge = frame::charge(part.count);
        if u32::from(part.charge) > self.credits {
            if self.flying > 0 {
                return Ok(None);
            }
            if self.credits == 0 {
                return Err("no credit is left, and no answer under way would bring one".into());
            }
            part.count = part.count.min(self.credits.saturating_mul(frame::CREDIT));
            part.charge = frame::charge(part.count);
        }
        let charge = u32::from(part.charge);
        let missing = self.target.saturating_sub(self.credits + self.spent);
        let request = Request {
            command: part.command,
            id: self.next_id,
            charge: part.charge,
            wish: (charge + missing).min(WISH_MAX) as u16,
            offset: part.op.offset + u64::from(part.done),
            length: part.count,
        };
        let (head, length) = &mut self.heads[index];
        *length = frame::encode(&self.names, &request, head);
        let length = *length;
        if let Some(seal) = seal {
            let part = self.parts[index];
            let payload = payload(&part, slots);
            let (head, _) = &mut self.heads[index];
            seal.sign(request.id, &mut head[frame::MARK..length], payload);
        }
        self.waiting.pop_front();
        self.ids[index] = self.next_id;
        self.next_id += if self.names.large {
            u64::from(charge)
        } else {
            1
        };
        self.credits -= charge;
        self.spent += charge;
        self.flying += 1;
        self.made += 1;
        Ok(Some(slot))
    }

    /// The pieces of a slot's request on the wire.
    pub(super) fn bytes<'a>(&'a self, slot: u16, slots: &'a Slots) -> [&'a [u8]; 2] {
        let index = usize::from(slot);
        let (head, length) = &self.heads[index];
        [&head[..*length], payload(&self.parts[index], slots)]
    }

    /// Where data of a slot's request belongs, from its byte `at`.
    pub(super) fn place<'a>(
        &self,
        slot: u16,
        at: u32,
        len: usize,
        slots: &'a mut Slots,
    ) -> &'a mut [u8] {
        let part = &self.parts[usize::from(slot)];
        let from = (part.done + at) as usize;
        &mut slots.get_mut(slot, part.op.len)[from..from + len]
    }

    /// Data that a slot's request brought.
    pub(super) fn brought<'a>(&self, slot: u16, len: u32, slots: &'a Slots) -> &'a [u8] {
        let part = &self.parts[usize::from(slot)];
        let from = part.done as usize;
        &slots.get(slot, part.op.len)[from..from + len as usize]
    }

    /// The request of this number, if it is under way.
    pub(super) fn expected(&self, id: u64) -> Option<Expected> {
        let index = self.ids.iter().position(|known| *known == id)?;
        let part = self.parts.get(index).filter(|_| id != NONE)?;
        Some(Expected {
            slot: index as u16,
            command: part.command,
            count: part.count,
        })
    }

    /// Takes note of an answer: what it grants, and that its request is over.
    pub(super) fn answered(&mut self, found: &Found) {
        self.credits = (self.credits + u32::from(found.answer.credits)).min(u32::from(u16::MAX));
        if let Some(request) = found.request {
            let index = usize::from(request.slot);
            self.ids[index] = NONE;
            self.spent -= u32::from(self.parts[index].charge);
            self.flying -= 1;
        }
    }

    /// A slot's request moved `count` bytes; `end` when the file ends there. Gives the bytes of the whole operation once
    /// it is done, else puts the rest in line.
    pub(super) fn moved(&mut self, slot: u16, count: u32, end: bool) -> Option<u32> {
        let part = &mut self.parts[usize::from(slot)];
        part.done += count;
        if end || part.done == part.op.len {
            return Some(part.done);
        }
        self.waiting.push_back(slot);
        None
    }

    /// A slot's operation and request.
    pub(super) fn part(&self, slot: u16) -> &Part {
        &self.parts[usize::from(slot)]
    }

    /// Requests made so far.
    pub(super) const fn count(&self) -> u64 {
        self.made
    }

    /// Credits that the server has granted: spent and unspent.
    pub(super) const fn granted(&self) -> u32 {
        self.credits + self.spent
    }

    /// The largest READ and WRITE.
    pub(super) const fn largest(&self) -> (u32, u32) {
        (self.read_max, self.write_max)
    }
}

/// What follows a request's head on the wire.
fn payload<'a>(part: &Part, slots: &'a Slots) -> &'a [u8] {
    if part.command != Command::Write {
        return &[];
    }
    let from = part.done as usize;
    &slots.get(part.op.slot, part.op.len)[from..from + part.count as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::smb::pipe::frame::Answer;

    fn calls(credits: u16, slots: u16, block: u32, large: bool) -> (Calls, Slots) {
        let start = Start {
            names: Names {
                large,
                ..Names::default()
            },
            next_id: 5,
            credits,
            read_max: 1 << 20,
            write_max: 1 << 20,
        };
        let calls = Calls::new(&start, slots, block);
        (calls, Slots::new(slots, block as usize).expect("slots"))
    }

    fn op(slot: u16, len: u32) -> Op {
        Op {
            direction: Direction::Read,
            offset: 1000,
            len,
            slot,
        }
    }

    fn made(calls: &mut Calls, slots: &Slots) -> Vec<u16> {
        std::iter::from_fn(|| calls.make(None, slots).expect("payable")).collect()
    }

    fn answer(calls: &mut Calls, slot: u16, credits: u16) {
        let id = calls.ids[usize::from(slot)];
        let found = Found {
            answer: Answer {
                status: 0,
                command: 8,
                credits,
                id,
                parted: false,
            },
            request: calls.expected(id),
            data: 0,
        };
        calls.answered(&found);
    }

    #[test]
    fn never_more_than_the_credits() {
        let (mut calls, slots) = calls(40, 4, 1 << 20, true);
        for slot in 0..4 {
            calls.begin(op(slot, 1 << 20));
        }
        assert_eq!(made(&mut calls, &slots), [0, 1], "16 credits each of 40");
        assert_eq!((calls.credits, calls.next_id), (8, 5 + 32));
        answer(&mut calls, 0, 8);
        assert_eq!(made(&mut calls, &slots), [2]);
        answer(&mut calls, 1, 0);
        assert!(made(&mut calls, &slots).is_empty());
        assert_eq!(calls.granted(), 16, "what the server took back is gone");
    }

    #[test]
    fn a_request_that_no_credit_can_pay_is_made_shorter() {
        let (mut calls, slots) = calls(3, 1, 1 << 20, true);
        calls.begin(op(0, 1 << 20));
        assert_eq!(made(&mut calls, &slots), [0]);
        assert_eq!(calls.part(0).count, 3 * frame::CREDIT);
        answer(&mut calls, 0, 2);
        assert_eq!(calls.moved(0, 3 * frame::CREDIT, false), None);
        assert_eq!(made(&mut calls, &slots), [0]);
        assert_eq!(calls.part(0).count, 2 * frame::CREDIT);
        answer(&mut calls, 0, 0);
        assert_eq!(calls.moved(0, 2 * frame::CREDIT, false), None);
        let error = calls.make(None, &slots).expect_err("starved");
        assert!(error.contains("no credit"), "{error}");
    }

    #[test]
    fn an_old_dialect_has_64_kib_and_a_number_a_request() {
        let (mut calls, slots) = calls(9, 2, 1 << 20, false);
        calls.begin(op(0, 100_000));
        calls.begin(op(1, 100_000));
        assert_eq!(made(&mut calls, &slots), [0, 1]);
        assert_eq!((calls.part(0).count, calls.next_id), (65536, 7));
        assert_eq!(calls.largest(), (65536, 65536));
    }

    #[test]
    fn operations_end_whole_or_at_the_end_of_the_file() {
        let (mut calls, slots) = calls(100, 2, 3 << 20, true);
        calls.begin(op(0, (2 << 20) + 1));
        made(&mut calls, &slots);
        let first = calls.expected(5).expect("under way");
        assert_eq!((first.slot, first.count), (0, 1 << 20));
        answer(&mut calls, 0, 16);
        assert_eq!(calls.expected(5), None, "over");
        assert_eq!(calls.moved(0, 1 << 20, false), None);
        made(&mut calls, &slots);
        answer(&mut calls, 0, 16);
        assert_eq!(calls.moved(0, 77, true), Some((1 << 20) + 77));
        assert_eq!(calls.flying, 0);
        assert_eq!(calls.expected(NONE), None);
    }
}
