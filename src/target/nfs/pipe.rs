//! The data side at depth: many calls under way on each of several connections, payload straight from and to slots.
//!
//! No allocation and no copy of payload per operation. Small calls go out together, just before the wait for
//! answers; large writes at once. While a send would block, answers are taken in: a server that stops reading until
//! its own replies are read can't hold up both sides. A [`Lane`] opens the file and makes writes durable.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nfs3_types::nfs3::{nfsstat3, stable_how};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};

use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::payload::mix;
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};
use crate::units::SECOND;

use super::client::Life;
use super::frame::Template;
use super::inbox::{Expected, Found, Inbox};
use super::lane::Lane;
use super::status;

/// TCP connections of one session at most.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// Calls that go out with one system call.
const BATCH: usize = 20;
/// A write of this size goes out when it is submitted.
const AT_ONCE: u32 = 64 << 10;
/// Pause before a call that the server put off is made again.
const PUT_OFF: Duration = Duration::from_millis(100);

/// An operation and the call that carries its next part.
#[derive(Debug, Clone, Copy)]
struct Part {
    op: Op,
    /// Bytes of the operation that are done.
    done: u32,
    /// Bytes of the call under way.
    count: u32,
    /// The call's xid; None when none is under way.
    xid: Option<u32>,
    put_off: u32,
}

struct Connection {
    socket: TcpStream,
    inbox: Inbox,
    /// Slots whose calls are to be sent, in order.
    queue: VecDeque<u16>,
    /// Bytes of the first one that are gone.
    sent: usize,
}

/// One worker's file at depth.
pub(super) struct Pipe {
    lane: Lane,
    connections: Vec<Connection>,
    parts: Vec<Part>,
    /// Calls made so far, from a start of the session's own.
    calls: u32,
    /// Bits of an xid that name the slot; the others are of `calls`.
    slot_bits: u32,
    heads: Vec<u8>,
    stride: usize,
    read: Template,
    write: Option<Template>,
    completed: VecDeque<Completion>,
    flying: usize,
    wire_ops: u64,
    io_timeout: Duration,
    failed: Option<Error>,
}

impl Pipe {
    pub(super) fn open(login: &Login, attach: &Attach, connections: u16) -> Result<Self> {
        let lane = Lane::open(login, attach, Life::Kept)?;
        let client = &lane.mounted.client;
        let unpacked = || {
            Error::new(
                Phase::Open,
                Kind::Other,
                "the server's file handle can't be packed into a call",
            )
        };
        let read = Template::read(&lane.file, client.credential()).ok_or_else(unpacked)?;
        let write = if attach.write {
            Some(
                Template::write(&lane.file, client.credential(), lane.stable)
                    .ok_or_else(unpacked)?,
            )
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
            let queue = VecDeque::with_capacity(slots);
            opened.push(Connection {
                socket,
                inbox: Inbox::new(block),
                queue,
                sent: 0,
            });
        }
        let idle = Op {
            direction: Direction::Read,
            offset: 0,
            len: 0,
            slot: 0,
        };
        let stride = read.len().max(write.as_ref().map_or(0, Template::len));
        Ok(Self {
            lane,
            connections: opened,
            parts: vec![
                Part {
                    op: idle,
                    done: 0,
                    count: 0,
                    xid: None,
                    put_off: 0
                };
                slots
            ],
            calls: first_call(),
            slot_bits: slots.next_power_of_two().trailing_zeros(),
            heads: vec![0; stride * slots],
            stride,
            read,
            write,
            completed: VecDeque::with_capacity(slots),
            flying: 0,
            wire_ops: 0,
            io_timeout: login.io_timeout(),
            failed: None,
        })
    }

    /// Puts the call for what is left of a slot's operation in its connection's queue.
    fn call(&mut self, slot: u16) {
        let index = usize::from(slot);
        let part = &mut self.parts[index];
        let write = part.op.direction == Direction::Write;
        let most = if write {
            self.lane.write_max
        } else {
            self.lane.read_max
        };
        part.count = (part.op.len - part.done).min(most);
        self.calls = self.calls.wrapping_add(1);
        let xid = (self.calls << self.slot_bits) | u32::from(slot);
        part.xid = Some(xid);
        let template = match &self.write {
            Some(template) if write => template,
            _ => &self.read,
        };
        let head = &mut self.heads[index * self.stride..index * self.stride + template.len()];
        template.fill(head, xid, part.op.offset + u64::from(part.done), part.count);
        self.wire_ops += 1;
        let connection = index % self.connections.len();
        self.connections[connection].queue.push_back(slot);
    }

    /// Sends what a connection takes without blocking.
    fn send(&mut self, connection: usize, slots: &Slots) -> Result<()> {
        loop {
            let Connection {
                socket,
                queue,
                sent,
                ..
            } = &mut self.connections[connection];
            if queue.is_empty() {
                return Ok(());
            }
            let mut pieces = [IoSlice::new(&[]); BATCH * 3];
            let mut used = 0;
            let mut skip = *sent;
            for slot in queue.iter().take(BATCH) {
                for piece in call_bytes(
                    &self.parts,
                    &self.heads,
                    self.stride,
                    &self.read,
                    self.write.as_ref(),
                    slots,
                    *slot,
                ) {
                    let from = skip.min(piece.len());
                    skip -= from;
                    pieces[used] = IoSlice::new(&piece[from..]);
                    used += 1;
                }
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut gone = match sendmsg(
                &*socket,
                &pieces[..used],
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(gone) => gone + *sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(self.broken(&error.into(), "send a call")),
            };
            while let Some(slot) = queue.front() {
                let pieces = call_bytes(
                    &self.parts,
                    &self.heads,
                    self.stride,
                    &self.read,
                    self.write.as_ref(),
                    slots,
                    *slot,
                );
                let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
                if gone < whole {
                    break;
                }
                gone -= whole;
                queue.pop_front();
            }
            *sent = gone;
        }
    }

    /// Takes in what has come on a connection; with `wait`, waits for it. False when nothing had.
    fn receive(&mut self, connection: usize, slots: &mut Slots, wait: bool) -> Result<bool> {
        let Connection { socket, inbox, .. } = &mut self.connections[connection];
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        let place = inbox.place();
        let straight: &mut [u8] = match place {
            Some(place) => {
                let part = &self.parts[usize::from(place.slot)];
                let from = (part.done + place.got) as usize;
                &mut slots.get_mut(place.slot, part.op.len)[from..from + place.room as usize]
            }
            None => &mut [],
        };
        let mut pieces = [IoSliceMut::new(straight), IoSliceMut::new(inbox.room())];
        let got = recvmsg(
            &*socket,
            &mut pieces,
            &mut RecvAncillaryBuffer::default(),
            flags,
        );
        let got = match got {
            Ok(message) if message.bytes == 0 => {
                let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(
                    self.broken(&end, "receive an answer: the server closed the connection")
                );
            }
            Ok(message) => message.bytes,
            Err(Errno::AGAIN) if wait => return Err(self.late()),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(self.broken(&error.into(), "receive an answer")),
        };
        let room = place.map_or(0, |place| place.room as usize);
        inbox.received(got.min(room) as u32, got.saturating_sub(room));
        self.take_apart(connection, slots)?;
        Ok(true)
    }

    fn take_apart(&mut self, connection: usize, slots: &mut Slots) -> Result<()> {
        loop {
            let parts = &self.parts;
            let slot_mask = (1u32 << self.slot_bits) - 1;
            let expect = |xid: u32| {
                let slot = xid & slot_mask;
                let part = parts
                    .get(slot as usize)
                    .filter(|part| part.xid == Some(xid))?;
                Some(Expected {
                    slot: slot as u16,
                    write: part.op.direction == Direction::Write,
                    count: part.count,
                })
            };
            let store = |call: Expected, got: u32, bytes: &[u8]| {
                let part = &parts[usize::from(call.slot)];
                let from = (part.done + got) as usize;
                slots.get_mut(call.slot, part.op.len)[from..from + bytes.len()]
                    .copy_from_slice(bytes);
            };
            match self.connections[connection].inbox.next(expect, store) {
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
                if committed != stable_how::FILE_SYNC {
                    if self.lane.stable == stable_how::FILE_SYNC {
                        return Err(self.nonsense(
                            slot,
                            &format!("the server answers {committed} to FILE_SYNC"),
                        ));
                    }
                    self.lane.restarts.note(verifier);
                }
                self.moved(slot, count, false);
            }
            Found::Refused {
                slot,
                status: nfsstat3::NFS3ERR_JUKEBOX,
            } => {
                let part = &mut self.parts[usize::from(slot)];
                part.put_off += 1;
                if PUT_OFF * part.put_off > self.io_timeout {
                    return Err(self.refused(slot, nfsstat3::NFS3ERR_JUKEBOX));
                }
                std::thread::sleep(PUT_OFF);
                self.call(slot);
            }
            Found::Refused { slot, status } => return Err(self.refused(slot, status)),
        }
        Ok(())
    }

    /// A call moved `count` bytes: the operation is done, or goes on with the rest.
    fn moved(&mut self, slot: u16, count: u32, eof: bool) {
        let part = &mut self.parts[usize::from(slot)];
        part.done += count;
        part.xid = None;
        if part.done < part.op.len && !eof {
            self.call(slot);
            return;
        }
        self.flying -= 1;
        self.completed.push_back(Completion {
            slot,
            bytes: part.done,
        });
    }

    /// Waits until some connection can be read, or written where something is to be sent. False when `until` passed.
    fn wait(&self, until: Option<u64>) -> Result<bool> {
        let now = monotonic_ns();
        let give_up = now.saturating_add(self.io_timeout.as_nanos() as u64);
        let limit = until
            .map_or(give_up, |until| until.min(give_up))
            .saturating_sub(now);
        let count = self.connections.len();
        // No allocation: the places beyond the last connection repeat it and are not polled.
        let mut fds: [PollFd<'_>; CONNECTIONS_MAX] = std::array::from_fn(|index| {
            let connection = &self.connections[index.min(count - 1)];
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !connection.queue.is_empty());
            PollFd::from_borrowed_fd(connection.socket.as_fd(), flags)
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
            for connection in 0..self.connections.len() {
                self.send(connection, slots)?;
            }
            let alone = self.connections.len() == 1
                && self.connections[0].queue.is_empty()
                && until.is_none();
            if alone {
                self.receive(0, slots, true)?;
                continue;
            }
            if !self.wait(until)? {
                return Ok(());
            }
            for connection in 0..self.connections.len() {
                self.receive(connection, slots, false)?;
            }
        }
        Ok(())
    }

    fn doing(&self, slot: u16) -> String {
        let Part {
            op, done, count, ..
        } = self.parts[usize::from(slot)];
        let offset = op.offset + u64::from(done);
        let (verb, place) = match op.direction {
            Direction::Read => ("read", "of"),
            Direction::Write => ("write", "of"),
        };
        format!(
            "{verb} {count} bytes at offset {offset} {place} '{}'",
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

/// Where a session's xids begin. Servers take a call with an xid that they have just seen from this computer for a
/// repetition and do not answer it, so sessions must not count alike.
fn first_call() -> u32 {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let session = SESSIONS.fetch_add(1, Relaxed) << 32;
    mix(monotonic_ns() ^ session ^ u64::from(std::process::id())) as u32
}

/// The bytes of a slot's call: head, data, padding.
fn call_bytes<'a>(
    parts: &[Part],
    heads: &'a [u8],
    stride: usize,
    read: &Template,
    write: Option<&Template>,
    slots: &'a Slots,
    slot: u16,
) -> [&'a [u8]; 3] {
    const ZEROS: &[u8] = &[0; 3];
    let index = usize::from(slot);
    let part = &parts[index];
    match write {
        Some(template) if part.op.direction == Direction::Write => {
            let head = &heads[index * stride..index * stride + template.len()];
            let from = part.done as usize;
            let data = &slots.get(slot, part.op.len)[from..from + part.count as usize];
            [
                head,
                data,
                &ZEROS[..super::frame::padding(part.count) as usize],
            ]
        }
        _ => [
            &heads[index * stride..index * stride + read.len()],
            &[],
            &[],
        ],
    }
}

impl Session for Pipe {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if op.direction == Direction::Write && self.write.is_none() {
            let message = format!("'{}' is open for reading only", self.lane.object);
            return Err(self.tied(Error::new(Phase::Io, Kind::Safety, message)));
        }
        let part = &mut self.parts[usize::from(op.slot)];
        *part = Part {
            op,
            done: 0,
            put_off: 0,
            ..*part
        };
        self.flying += 1;
        self.call(op.slot);
        if op.direction == Direction::Write && op.len >= AT_ONCE {
            let connection = usize::from(op.slot) % self.connections.len();
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
        Some(self.wire_ops)
    }

    fn negotiated(&self) -> String {
        format!(
            "engine=pipelined nconnect={} {}",
            self.connections.len(),
            self.lane.negotiated()
        )
    }
}
