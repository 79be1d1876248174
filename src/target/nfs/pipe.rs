//! The data side at depth: many calls under way on each of several connections, payload straight from and to slots.
//!
//! No allocation and no copy of payload per operation. Small calls go out together, just before the wait for
//! answers, and small answers come in together where nothing else is waited for (see [`Stream`](crate::target::stream::Stream));
//! large writes go out at once. While a send would block, answers are taken in: a server that stops reading until
//! its own replies are read can't hold up both sides. A [`Lane`] opens the file and makes writes durable.

use std::collections::VecDeque;
use std::time::Duration;

use nfs3_types::nfs3::nfsstat3;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;

use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};
use crate::units::SECOND;

use super::calls::Calls;
use super::client::Life;
use super::connection::Connection;
use super::frame::Template;
use super::inbox::Found;
use super::lane::{self, Lane};
use super::status;

/// TCP connections of one session at most.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// A write of this size goes out when it is submitted.
const AT_ONCE: u32 = 64 << 10;
/// Pause before a call that the server put off is made again.
const PUT_OFF: Duration = Duration::from_millis(100);

/// One worker's file at depth.
pub(super) struct Pipe {
    lane: Lane,
    connections: Vec<Connection>,
    calls: Calls,
    completed: VecDeque<Completion>,
    /// Calls that the server put off: when each is due again, and its slot.
    put_off: Vec<(u64, u16)>,
    flying: usize,
    io_timeout: Duration,
    failed: Option<Error>,
}

impl Pipe {
    pub(super) fn open(login: &Login, attach: &Attach, connections: u16) -> Result<Self> {
        let lane = Lane::open(login, attach, Life::Kept)?;
        let client = &lane.mounted.client;
        let packed = |template: Option<Template>| {
            let what = "the server's file handle can't be packed into a call";
            template.ok_or_else(|| Error::new(Phase::Open, Kind::Other, what))
        };
        let read = packed(Template::read(&lane.file, client.credential()))?;
        let write = if attach.write {
            Some(packed(Template::write(
                &lane.file,
                client.credential(),
                lane.stable,
            ))?)
        } else {
            None
        };
        let block = attach.block_max.min(lane.read_max.max(lane.write_max));
        let slots = usize::from(attach.iodepth.max(1));
        let mut opened = Vec::new();
        for _ in 0..connections {
            let socket = client.another_socket()?;
            socket
                .set_read_timeout(Some(login.io_timeout()))
                .map_err(|error| {
                    Error::io(Phase::Connect, &error, "set a time limit on a connection")
                })?;
            opened.push(Connection::new(socket, slots, block));
        }
        Ok(Self {
            calls: Calls::new(slots, read, write, lane.read_max, lane.write_max),
            lane,
            connections: opened,
            completed: VecDeque::with_capacity(slots),
            put_off: Vec::with_capacity(slots),
            flying: 0,
            io_timeout: login.io_timeout(),
            failed: None,
        })
    }

    /// Makes the call for what is left of a slot's operation, to be sent.
    fn call(&mut self, slot: u16) {
        self.calls.make(slot);
        let connection = self.connection_of(slot);
        self.connections[connection].enqueue(slot);
    }

    fn connection_of(&self, slot: u16) -> usize {
        usize::from(slot) % self.connections.len()
    }

    fn send(&mut self, connection: usize, slots: &Slots) -> Result<()> {
        let sent = self.connections[connection].send(&self.calls, slots);
        sent.map_err(|error| self.broken(&error, "send a call"))
    }

    /// Takes in what has come on a connection; with `wait`, waits for it.
    fn receive(&mut self, connection: usize, slots: &mut Slots, wait: bool) -> Result<()> {
        match self.connections[connection].receive(&self.calls, slots, wait) {
            Ok(()) => {}
            Err(error) => return Err(self.unheard(&error)),
        }
        loop {
            match self.connections[connection].next(&self.calls, slots) {
                Ok(None) => return Ok(()),
                Ok(Some(found)) => self.found(found)?,
                Err(what) => {
                    let message = format!("the server breaks the NFS protocol: {what}");
                    return Err(self.tied(Error::new(Phase::Io, Kind::Protocol, message)));
                }
            }
        }
    }

    fn found(&mut self, found: Found) -> Result<()> {
        match found {
            Found::Read { slot, count, eof } => {
                if count == 0 && !eof {
                    return Err(self.nonsense(slot, "no byte came, and no end of the file"));
                }
                self.moved(slot, count, eof);
            }
            Found::Wrote {
                slot,
                count,
                committed,
                verifier,
            } => {
                if count == 0 {
                    return Err(self.nonsense(slot, "the server claims 0 bytes written"));
                }
                match lane::promise(self.lane.stable, committed) {
                    Ok(true) => {}
                    Ok(false) => self.lane.restarts.note(verifier),
                    Err(claim) => return Err(self.nonsense(slot, &claim)),
                }
                self.moved(slot, count, false);
            }
            Found::Refused {
                slot,
                status: nfsstat3::NFS3ERR_JUKEBOX,
            } => {
                if PUT_OFF * self.calls.put_off(slot) > self.io_timeout {
                    return Err(self.refused(slot, nfsstat3::NFS3ERR_JUKEBOX));
                }
                let due = monotonic_ns() + PUT_OFF.as_nanos() as u64;
                self.put_off.push((due, slot));
            }
            Found::Refused { slot, status } => return Err(self.refused(slot, status)),
        }
        Ok(())
    }

    /// A call moved `count` bytes: the operation is done, or goes on with the rest.
    fn moved(&mut self, slot: u16, count: u32, eof: bool) {
        if self.calls.moved(slot, count, eof) {
            self.flying -= 1;
            let bytes = self.calls.part(slot).done;
            self.completed.push_back(Completion { slot, bytes });
        } else {
            self.call(slot);
        }
    }

    /// Makes the calls again that were put off until now. When the next one is due, if one is.
    fn again(&mut self) -> Option<u64> {
        if self.put_off.is_empty() {
            return None;
        }
        let now = monotonic_ns();
        while let Some(at) = self.put_off.iter().position(|(due, _)| *due <= now) {
            let (_, slot) = self.put_off.swap_remove(at);
            self.call(slot);
        }
        self.put_off.iter().map(|(due, _)| *due).min()
    }

    /// Waits until some connection can be read, or written where something is to be sent. False when `until` passed.
    fn wait(&mut self, until: Option<u64>) -> Result<bool> {
        for at in 0..self.connections.len() {
            let released = self.connections[at].release();
            released.map_err(|error| self.broken(&error, "wait for answers"))?;
        }
        let now = monotonic_ns();
        let give_up = now.saturating_add(self.io_timeout.as_nanos() as u64);
        let limit = until
            .map_or(give_up, |until| until.min(give_up))
            .saturating_sub(now);
        let count = self.connections.len();
        // No allocation: the places beyond the last connection repeat it and are not polled.
        let mut fds: [PollFd<'_>; CONNECTIONS_MAX] = std::array::from_fn(|index| {
            let connection = &self.connections[index.min(count - 1)];
            PollFd::from_borrowed_fd(connection.fd(), connection.interest())
        });
        let timeout = Timespec {
            tv_sec: (limit / SECOND).cast_signed(),
            tv_nsec: (limit % SECOND).cast_signed(),
        };
        match poll(&mut fds[..count], Some(&timeout)) {
            Ok(0) if until.is_some_and(|until| until < give_up) => Ok(false),
            Ok(0) => Err(self.late()),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(self.broken(&error.into(), "wait for answers")),
        }
    }

    fn pump(&mut self, until: Option<u64>, slots: &mut Slots) -> Result<()> {
        while self.completed.is_empty() && self.flying > 0 {
            let due = self.again();
            for connection in 0..self.connections.len() {
                self.send(connection, slots)?;
            }
            let alone = self.connections.len() == 1
                && self.connections[0].all_sent()
                && until.or(due).is_none();
            if alone {
                let gathered = self.connections[0].gather(self.flying, self.io_timeout);
                let gathered = gathered.map_err(|error| self.unheard(&error))?;
                self.receive(0, slots, !gathered)?;
                continue;
            }
            let sooner = [until, due].into_iter().flatten().min();
            if !self.wait(sooner)? {
                if sooner == until {
                    return Ok(());
                }
                continue;
            }
            for connection in 0..self.connections.len() {
                self.receive(connection, slots, false)?;
            }
        }
        Ok(())
    }

    fn doing(&self, slot: u16) -> String {
        let part = self.calls.part(slot);
        let (op, count) = (part.op, part.count);
        let offset = op.offset + u64::from(part.done);
        let verb = op.direction.key();
        format!(
            "{verb} {count} bytes at offset {offset} of '{}'",
            self.lane.object
        )
    }

    fn refused(&self, slot: u16, status: nfsstat3) -> Error {
        self.tied(status::refused(
            Phase::Io,
            status,
            &self.doing(slot),
            self.lane.mounted.client.who(),
        ))
    }

    fn nonsense(&self, slot: u16, claim: &str) -> Error {
        let message = format!(
            "could not {}: {claim}, which breaks the protocol",
            self.doing(slot)
        );
        self.tied(Error::new(Phase::Io, Kind::Protocol, message))
    }

    fn broken(&self, error: &std::io::Error, doing: &str) -> Error {
        let doing = format!("{doing} ({})", self.lane.mounted.client.peer());
        self.tied(Error::io(Phase::Io, error, &doing))
    }

    /// Why no answer could be received.
    fn unheard(&self, error: &std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            return self.late();
        }
        self.broken(error, "receive an answer")
    }

    fn late(&self) -> Error {
        let message = format!(
            "no answer within {} s ({})",
            self.io_timeout.as_secs_f64(),
            self.lane.mounted.client.peer()
        );
        self.tied(Error::new(Phase::Io, Kind::TimedOut, message))
    }

    fn tied(&self, error: Error) -> Error {
        error.at(self.lane.mounted.client.uri())
    }
}

impl Session for Pipe {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if op.direction == Direction::Write && !self.calls.may_write() {
            let message = format!("'{}' is open for reading only", self.lane.object);
            return Err(self.tied(Error::new(Phase::Io, Kind::Safety, message)));
        }
        self.calls.begin(op);
        self.flying += 1;
        self.call(op.slot);
        if op.direction == Direction::Write && op.len >= AT_ONCE {
            let connection = self.connection_of(op.slot);
            self.send(connection, slots)?;
        }
        Ok(Submit::Queued)
    }

    fn reap(
        &mut self,
        until: Option<u64>,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let pumped = self.pump(until, slots);
        // What came in before a failure counts.
        done.extend(self.completed.drain(..));
        match pumped {
            Err(error) if done.is_empty() => Err(error),
            Err(error) => {
                self.failed = Some(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.lane.flush()
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.calls.count())
    }

    fn negotiated(&self) -> String {
        format!(
            "engine=pipelined nconnect={} {}",
            self.connections.len(),
            self.lane.negotiated()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Behaviour, attach, serve};
    use super::*;
    use crate::op::Durability;

    const LEN: u32 = 20_000;
    const DEPTH: u16 = 4;

    fn pipe(behaviour: Behaviour, connections: u16) -> (Pipe, Slots) {
        let attach = Attach {
            iodepth: DEPTH,
            block_max: LEN,
            ..attach(Durability::Flush)
        };
        let pipe = Pipe::open(&serve(behaviour), &attach, connections).expect("open");
        (pipe, Slots::new(DEPTH, LEN as usize).expect("slots"))
    }

    /// All slots at once: block `n` at its own place. Gives the bytes moved by slot.
    fn all(pipe: &mut Pipe, slots: &mut Slots, direction: Direction, len: u32) -> Result<Vec<u32>> {
        for slot in 0..DEPTH {
            let offset = 3 + u64::from(slot) * u64::from(LEN);
            pipe.submit(
                Op {
                    direction,
                    offset,
                    len,
                    slot,
                },
                slots,
            )?;
        }
        let mut moved = vec![0; usize::from(DEPTH)];
        let mut done = Vec::new();
        let mut ended = 0;
        while ended < DEPTH {
            pipe.reap(None, slots, &mut done)?;
            for completion in done.drain(..) {
                moved[usize::from(completion.slot)] = completion.bytes;
                ended += 1;
            }
        }
        Ok(moved)
    }

    fn fill(slots: &mut Slots) {
        for slot in 0..DEPTH {
            for (at, byte) in slots.get_mut(slot, LEN).iter_mut().enumerate() {
                *byte = (at * 31 + usize::from(slot) * 7) as u8;
            }
        }
    }

    #[test]
    fn blocks_come_back_split_short_and_put_off() {
        for (connections, short, calls) in [(1, u32::MAX, 3), (2, u32::MAX, 3), (1, 3000, 7)] {
            // Calls that the server puts off are made again, and count again.
            let behaviour = Behaviour {
                short,
                later: 1,
                ..Behaviour::default()
            };
            let (mut pipe, mut slots) = pipe(behaviour, connections);
            let whole = vec![LEN; usize::from(DEPTH)];
            fill(&mut slots);
            assert_eq!(
                all(&mut pipe, &mut slots, Direction::Write, LEN).expect("written"),
                whole
            );
            assert_eq!(pipe.wire_ops(), Some(u64::from(DEPTH) * calls + 1));
            pipe.flush().expect("flushed");
            for slot in 0..DEPTH {
                slots.get_mut(slot, LEN).fill(0);
            }
            assert_eq!(
                all(&mut pipe, &mut slots, Direction::Read, LEN).expect("read"),
                whole
            );
            let mut expected = Slots::new(DEPTH, LEN as usize).expect("slots");
            fill(&mut expected);
            for slot in 0..DEPTH {
                assert!(
                    slots.get(slot, LEN) == expected.get(slot, LEN),
                    "slot {slot}, short {short}"
                );
            }
        }
    }

    #[test]
    fn small_answers_come_in_groups_and_none_is_left_behind() {
        const MANY: u16 = 32;
        let attach = Attach {
            iodepth: MANY,
            block_max: 512,
            ..attach(Durability::Flush)
        };
        let behaviour = Behaviour {
            content: 512 * u64::from(MANY),
            ..Behaviour::default()
        };
        let mut pipe = Pipe::open(&serve(behaviour), &attach, 1).expect("open");
        let mut slots = Slots::new(MANY, 512).expect("slots");
        let mut done = Vec::new();
        for _ in 0..40 {
            for slot in 0..MANY {
                let op = Op {
                    direction: Direction::Read,
                    offset: 512 * u64::from(slot),
                    len: 512,
                    slot,
                };
                pipe.submit(op, &mut slots).expect("queued");
            }
            // The last of them are too few to be waited for together.
            while done.len() < usize::from(MANY) {
                pipe.reap(None, &mut slots, &mut done).expect("reaped");
            }
            assert!(done.drain(..).all(|completion| completion.bytes == 512));
        }
    }

    #[test]
    fn reads_end_with_the_file() {
        let (mut pipe, mut slots) = pipe(Behaviour::default(), 1);
        assert_eq!(
            all(&mut pipe, &mut slots, Direction::Read, LEN).expect("empty"),
            [0; 4]
        );
        all(&mut pipe, &mut slots, Direction::Write, 100).expect("written");
        assert_eq!(
            all(&mut pipe, &mut slots, Direction::Read, LEN).expect("read")[3],
            100
        );
    }

    #[test]
    fn what_a_server_does_wrong_is_an_error() {
        let nothing = Behaviour {
            nothing: true,
            ..Behaviour::default()
        };
        let closes = Behaviour {
            closes: true,
            ..Behaviour::default()
        };
        for (behaviour, kind) in [(nothing, Kind::Protocol), (closes, Kind::Gone)] {
            for direction in [Direction::Read, Direction::Write] {
                let (mut pipe, mut slots) = pipe(behaviour.clone(), 1);
                let error = all(&mut pipe, &mut slots, direction, 100).expect_err("a bad server");
                assert_eq!((error.phase, error.kind), (Phase::Io, kind), "{error}");
                assert!(error.target.starts_with("nfs://127.0.0.1"), "{error}");
            }
        }
    }

    #[test]
    fn a_restart_before_the_flush_is_lost_data() {
        let behaviour = Behaviour {
            restart_after: Some(2),
            ..Behaviour::default()
        };
        let (mut pipe, mut slots) = pipe(behaviour, 1);
        all(&mut pipe, &mut slots, Direction::Write, 10).expect("accepted");
        let error = pipe.flush().expect_err("two of four are lost");
        assert_eq!((error.phase, error.kind), (Phase::Flush, Kind::Gone));
    }

    #[test]
    fn a_call_that_is_put_off_holds_up_no_other() {
        let behaviour = Behaviour {
            later: 1,
            content: u64::from(LEN) * u64::from(DEPTH) + 3,
            ..Behaviour::default()
        };
        let (mut pipe, mut slots) = pipe(behaviour, 1);
        let mut done = Vec::new();
        for slot in 0..DEPTH {
            let op = Op {
                direction: Direction::Read,
                offset: u64::from(slot) * u64::from(LEN),
                len: 100,
                slot,
            };
            pipe.submit(op, &mut slots).expect("queued");
        }
        while done.len() < usize::from(DEPTH) {
            pipe.reap(None, &mut slots, &mut done).expect("reaped");
        }
        let order: Vec<u16> = done.iter().map(|completion| completion.slot).collect();
        assert_eq!(order, [1, 2, 3, 0]);
    }

    #[test]
    fn waiting_ends_when_it_is_told_to() {
        let (mut pipe, mut slots) = pipe(Behaviour::default(), 1);
        let mut done = Vec::new();
        pipe.reap(Some(monotonic_ns()), &mut slots, &mut done)
            .expect("nothing under way");
        assert!(done.is_empty());
    }
}
