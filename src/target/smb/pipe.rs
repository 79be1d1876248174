//! `engine=smb2`: many requests under way on one connection, payload straight from and to slots.
//!
//! Read first: [`door`] logs in and opens the file through the `smb2` crate, over a socket that stays ours ([`carrier`]);
//! from there on the crate is gone, since it allocates and copies each answer several times: [`calls`] makes the requests
//! that the server's credits pay for, [`frame`] their bytes, [`seal`] their signatures, [`wire`] sends and receives them,
//! and [`inbox`] takes answers apart. [`status`] says what refusals mean.
//!
//! No allocation and no copy of payload per operation. Requests go out together, just before the wait for answers; large
//! writes at once. While a send would block, answers are taken in. Must not know: libsmbclient.

mod calls;
pub(super) mod carrier;
mod door;
mod frame;
mod inbox;
mod seal;
pub(super) mod status;
mod wire;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use smb2::types::status::NtStatus;

use super::place::{Place, check_password};
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};
use calls::Calls;
use inbox::Found;
use wire::Wire;

/// Operations that one session keeps under way at most. At 4 KiB each they cost a credit, of which Samba and Windows
/// grant some thousands; larger ones wait for what they cost.
pub(super) const DEPTH_MAX: u16 = 1024;
/// A write of this size goes out when it is submitted.
const AT_ONCE: u32 = 64 << 10;

/// One worker's file.
pub(super) struct Pipe {
    wire: Wire,
    calls: Calls,
    completed: VecDeque<Completion>,
    /// Operations that were submitted and have not ended.
    open: usize,
    writes: bool,
    io_timeout: Duration,
    flush_timeout: Duration,
    failed: Option<Error>,
    object: String,
    dialect: String,
    address: String,
    addresses: usize,
}

impl Pipe {
    /// Logs in and opens the file.
    pub(super) fn open(login: &Login, attach: &Attach) -> Result<Self> {
        let place = Place::of(&login.spec)?;
        check_password(login.secret.0.as_deref().unwrap_or(""))?;
        let entered = door::enter(login, &place, attach)?;
        Self::over(login, attach, entered, place.hosts())
    }

    fn over(
        login: &Login,
        attach: &Attach,
        entered: door::Entered,
        addresses: usize,
    ) -> Result<Self> {
        let slots = attach.iodepth.max(1);
        let calls = Calls::new(&entered.start, slots, attach.block_max);
        let (read_max, write_max) = calls.largest();
        let block = attach.block_max.min(read_max.max(write_max));
        entered
            .socket
            .set_read_timeout(Some(login.io_timeout()))
            .map_err(|error| {
                Error::io(Phase::Connect, &error, "set a time limit on a connection")
            })?;
        Ok(Self {
            wire: Wire::new(entered.socket, entered.seal, slots, block),
            calls,
            completed: VecDeque::with_capacity(usize::from(slots)),
            open: 0,
            writes: attach.write,
            io_timeout: login.io_timeout(),
            flush_timeout: login.flush_timeout(),
            failed: None,
            object: attach.object.clone(),
            dialect: entered.dialect,
            address: entered.address,
            addresses,
        })
    }

    /// Sends what can be paid for and what the socket takes.
    fn send(&mut self, slots: &Slots) -> Result<()> {
        self.wire
            .enqueue(&mut self.calls, slots)
            .map_err(|what| self.nonsense(&what))?;
        let sent = self.wire.send(&self.calls, slots);
        sent.map_err(|error| self.broken(&error, "send a request"))
    }

    /// Takes in what has come; with `wait`, waits for it. True when a request without payload was answered.
    fn receive(&mut self, slots: &mut Slots, wait: bool) -> Result<bool> {
        match self.wire.receive(&self.calls, slots, wait) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(self.late(self.io_timeout));
            }
            Err(error) => return Err(self.broken(&error, "receive an answer")),
        }
        let mut plain = false;
        loop {
            match self.wire.next(&self.calls, slots) {
                Ok(None) => return Ok(plain),
                Ok(Some(found)) => plain |= self.found(&found)?,
                Err(what) => return Err(self.nonsense(&what)),
            }
        }
    }

    /// Takes note of an answer; true when it is that of a request without payload.
    fn found(&mut self, found: &Found) -> Result<bool> {
        self.calls.answered(found);
        let Some(request) = found.request else {
            return Ok(false);
        };
        let (slot, status) = (request.slot, found.answer.status);
        match (request.command, status) {
            (frame::Command::Flush | frame::Command::Close, frame::SUCCESS) => return Ok(true),
            (frame::Command::Read, frame::END_OF_FILE) => self.moved(slot, 0, true),
            // Only at its end a file has fewer bytes; the next request would say so.
            (frame::Command::Read, frame::SUCCESS) => {
                self.moved(slot, found.data, found.data == 0);
            }
            (frame::Command::Write, frame::SUCCESS) => {
                let taken = frame::written(self.wire.answer()).unwrap_or(0);
                if taken == 0 || taken > request.count {
                    let doing = self.doing(slot);
                    return Err(
                        self.nonsense(&format!("{taken} bytes written, answering to {doing}"))
                    );
                }
                self.moved(slot, taken, false);
            }
            _ => {
                let (phase, doing) = if request.command == frame::Command::Flush {
                    (Phase::Flush, format!("flush '{}'", self.object))
                } else {
                    (Phase::Io, self.doing(slot))
                };
                return Err(status::refused(
                    phase,
                    NtStatus(status),
                    &self.address,
                    &doing,
                ));
            }
        }
        Ok(false)
    }

    fn moved(&mut self, slot: u16, count: u32, end: bool) {
        if let Some(bytes) = self.calls.moved(slot, count, end) {
            self.open -= 1;
            self.completed.push_back(Completion { slot, bytes });
        }
    }

    fn pump(&mut self, until: Option<u64>, slots: &mut Slots) -> Result<()> {
        while self.completed.is_empty() && self.open > 0 {
            self.send(slots)?;
            if self.wire.all_sent() && until.is_none() {
                self.receive(slots, true)?;
                continue;
            }
            let left =
                until.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
            let longest = left.map_or(self.io_timeout, |left| left.min(self.io_timeout));
            match self.wire.wait(longest) {
                Ok(true) => drop(self.receive(slots, false)?),
                Ok(false) if left.is_some_and(|left| left < self.io_timeout) => return Ok(()),
                Ok(false) => return Err(self.late(self.io_timeout)),
                Err(error) => return Err(self.broken(&error, "wait for answers")),
            }
        }
        Ok(())
    }

    /// FLUSH or CLOSE, up to its answer.
    fn plain(&mut self, command: frame::Command, patience: Duration) -> Result<()> {
        // It moves no payload, but whoever waits for answers must have a place for it.
        let mut slots = Slots::new(1, 1)
            .map_err(|error| Error::io(Phase::Io, &error, "reserve memory for a request"))?;
        let end = Instant::now() + patience;
        self.calls.begin_plain(command);
        loop {
            self.send(&slots)?;
            let left = end.saturating_duration_since(Instant::now());
            match self.wire.wait(left) {
                Ok(true) if self.receive(&mut slots, false)? => return Ok(()),
                Ok(true) => {}
                Ok(false) => return Err(self.late(patience)),
                Err(error) => return Err(self.broken(&error, "wait for an answer")),
            }
        }
    }

    fn doing(&self, slot: u16) -> String {
        let part = self.calls.part(slot);
        format!(
            "{} {} bytes at offset {} of '{}'",
            part.op.direction.key(),
            part.count,
            part.op.offset + u64::from(part.done),
            self.object
        )
    }

    fn nonsense(&self, what: &str) -> Error {
        let message = format!("{} breaks the SMB protocol: {what}", self.address);
        Error::new(Phase::Io, Kind::Protocol, message)
    }

    fn broken(&self, error: &io::Error, doing: &str) -> Error {
        let address = &self.address;
        if Kind::of_io(error) == Kind::Gone {
            let message = format!(
                "could not {doing}: {address} closed the connection; the SMB server was stopped or restarted"
            );
            return Error::new(Phase::Io, Kind::Gone, message);
        }
        Error::io(Phase::Io, error, &format!("{doing} ({address})"))
    }

    fn late(&self, waited: Duration) -> Error {
        let message = format!(
            "{} did not answer within {waited:?}; the server or the network has stopped",
            self.address
        );
        Error::new(Phase::Io, Kind::TimedOut, message)
    }
}

/// The server sees a lost connection when it looks; until then it holds the file, which could not be removed.
impl Drop for Pipe {
    fn drop(&mut self) {
        // What is broken or has answers on the way is left as it is: nobody would wait for them.
        if self.failed.is_none() && self.open == 0 {
            // A failing CLOSE changes nothing that was measured.
            let _ = self.plain(frame::Command::Close, self.io_timeout);
        }
    }
}

impl Session for Pipe {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if op.direction == Direction::Write && !self.writes {
            let message = format!("'{}' is open for reading only", self.object);
            return Err(Error::new(Phase::Io, Kind::Safety, message));
        }
        self.calls.begin(op);
        self.open += 1;
        if op.direction == Direction::Write && op.len >= AT_ONCE {
            self.send(slots)?;
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
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let flushed = self.plain(frame::Command::Flush, self.flush_timeout);
        flushed.map_err(|error| Error {
            phase: Phase::Flush,
            ..error
        })
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.calls.count())
    }

    fn negotiated(&self) -> String {
        let (read_max, write_max) = self.calls.largest();
        let signing = match self.wire.seal() {
            Some(seal) => format!("signing=on signature={}", seal.name()),
            None => "signing=off".to_owned(),
        };
        let mut words = format!(
            "engine=smb2 dialect={} encryption=off {signing} max_read={read_max} max_write={write_max} credits={}",
            self.dialect,
            self.calls.granted()
        );
        if self.addresses > 1 {
            words.push_str(&format!(" addresses={}", self.addresses));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::op::Durability;
    use crate::spec::uri::TargetSpec;
    use crate::target::Secret;

    const PATIENCE: Duration = Duration::from_millis(1500);

    /// A session whose peer answers the first request with what `answer` makes of its number, then closes or, with
    /// `stays`, goes silent.
    fn pipe(answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static, stays: bool) -> (Pipe, Slots) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut peer, _) = listener.accept().expect("accepted");
        std::thread::spawn(move || {
            let mut request = [0; frame::MARK + frame::HEADER + 24];
            if peer.read_exact(&mut request).is_err() {
                return;
            }
            let id = u64::from_le_bytes(*request[28..].first_chunk().expect("a header"));
            let _ = peer.write_all(&answer(id));
            if stays {
                // Until the session is dropped.
                let _ = peer.read_to_end(&mut Vec::new());
            }
        });
        let patience = PATIENCE.as_millis() as u64;
        let login = Login {
            spec: TargetSpec::parse("smb://u@nas/s?engine=smb2").expect("a URI"),
            secret: Secret::default(),
            connect_timeout_ms: patience,
            io_timeout_ms: patience,
        };
        let attach = Attach {
            object: "x".into(),
            write: true,
            direct: false,
            durability: Durability::Flush,
            iodepth: 2,
            block_max: 4096,
            lane: 0,
            round: 1,
        };
        let start = calls::Start {
            names: frame::Names {
                large: true,
                ..frame::Names::default()
            },
            next_id: 9,
            credits: 9,
            read_max: 65536,
            write_max: 65536,
        };
        let entered = door::Entered {
            socket,
            start,
            seal: None,
            dialect: "3.1.1".into(),
            address: "nas:445".into(),
        };
        let pipe = Pipe::over(&login, &attach, entered, 1).expect("a session");
        (pipe, Slots::new(2, 4096).expect("slots"))
    }

    fn answer(id: u64, status: u32, command: u16, body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; frame::HEADER];
        message[..4].copy_from_slice(b"\xfeSMB");
        message[8..12].copy_from_slice(&status.to_le_bytes());
        message[12..14].copy_from_slice(&command.to_le_bytes());
        message[14] = 1;
        message[16] = 1;
        message[24..32].copy_from_slice(&id.to_le_bytes());
        message.extend_from_slice(body);
        let mut framed = (message.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(&message);
        framed
    }

    fn one(pipe: &mut Pipe, slots: &mut Slots, direction: Direction) -> Result<Vec<Completion>> {
        let op = Op {
            direction,
            offset: 0,
            len: 4096,
            slot: 0,
        };
        pipe.submit(op, slots)?;
        let mut done = Vec::new();
        pipe.reap(None, slots, &mut done)?;
        Ok(done)
    }

    type Answer = fn(u64) -> Vec<u8>;

    #[test]
    fn what_a_peer_does_wrong_is_an_error_of_its_kind() {
        let cases: [(Answer, bool, Direction, Kind); 9] = [
            (|_| Vec::new(), false, Direction::Read, Kind::Gone),
            (|_| Vec::new(), true, Direction::Read, Kind::TimedOut),
            (
                |_| b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
                true,
                Direction::Read,
                Kind::Protocol,
            ),
            (
                |_| vec![0, 255, 255, 255],
                true,
                Direction::Read,
                Kind::Protocol,
            ),
            (
                |id| answer(id, 0, 8, &[0; 17])[..70].to_vec(),
                false,
                Direction::Read,
                Kind::Gone,
            ),
            (
                |id| answer(id, 0, 8, &[0; 17])[..70].to_vec(),
                true,
                Direction::Read,
                Kind::TimedOut,
            ),
            (
                |id| answer(id + 1, 0, 8, &[0; 17]),
                true,
                Direction::Read,
                Kind::Protocol,
            ),
            (
                |id| answer(id, 0xc000_007f, 9, &[0; 9]),
                true,
                Direction::Write,
                Kind::NoSpace,
            ),
            (
                |id| answer(id, 0, 9, &[0; 17]),
                true,
                Direction::Write,
                Kind::Protocol,
            ),
        ];
        for (index, (answer, stays, direction, kind)) in cases.into_iter().enumerate() {
            let (mut pipe, mut slots) = pipe(answer, stays);
            let error = one(&mut pipe, &mut slots, direction).expect_err("a bad peer");
            assert_eq!(
                (error.phase, error.kind),
                (Phase::Io, kind),
                "{index}: {error}"
            );
        }
    }

    #[test]
    fn the_end_of_a_file_is_a_short_operation() {
        let (mut pipe, mut slots) = pipe(|id| answer(id, frame::END_OF_FILE, 8, &[0; 9]), true);
        let done = one(&mut pipe, &mut slots, Direction::Read).expect("an answer");
        assert_eq!(done, [Completion { slot: 0, bytes: 0 }]);
    }

    #[test]
    fn a_session_ends_with_a_close() {
        let (sender, seen) = std::sync::mpsc::channel();
        let answered = move |id| {
            sender.send(id).expect("the test listens");
            answer(id, 0, 6, &[0; 60])
        };
        let (pipe, _) = pipe(answered, true);
        drop(pipe);
        assert_eq!(seen.try_recv(), Ok(9), "it waited for the answer");
    }

    #[test]
    fn a_flush_ends_with_its_answer_or_says_why_not() {
        let (mut flushed, _) = pipe(|id| answer(id, 0, 7, &[4, 0, 0, 0]), true);
        flushed.flush().expect("flushed");
        let (mut refused, _) = pipe(|id| answer(id, 0xc000_009a, 7, &[0; 9]), true);
        let error = refused.flush().expect_err("refused");
        assert_eq!(error.phase, Phase::Flush, "{error}");
        assert!(error.message.contains("flush 'x'"), "{error}");
    }
}
