//! Blocks over a bare TCP connection, to and from memory: what any protocol over TCP could carry at most.
//!
//! The peer is `servers::round_trip`, which opens a port for one test only, so this is no target for users and not in
//! the registry; whoever measures the round trip connects by [`PROTOCOL`]. A session is one connection with many requests
//! under way, as the pipelined clients of the real protocols have it: payload goes straight from and to slots, with no
//! allocation per operation. [`inbox`] takes answers apart. Writes are taken and forgotten. Sizes are in bytes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::round_trip::wire::{GREETING, Greeting, REQUEST, Request, VERSION, Welcome};
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::target::stream::Stream;
use crate::target::{Attach, Caps, Control, Facts, Login, Protocol, Session, Threads, Volatile};

mod inbox;

use inbox::Inbox;

/// A write of this size goes out when it is submitted.
const AT_ONCE: u32 = 64 << 10;

/// How a round trip is measured; not a registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "tcp",
    example: "tcp://192.0.2.1:5201",
    options: &[],
    check,
    caps: |_| Caps {
        iodepth_max: 1024,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: false,
        sync: false,
        stores: false,
        engine: "tcp",
        connections: 1,
        ceiling: None,
    },
    control: |_| Ok(Control::Volatile(Box::new(Nothing))),
    connect: |login, attach| match Connection::open(login, attach) {
        Ok(connection) => Ok(Box::new(connection)),
        Err(error) => Err(error.at(&login.spec.uri)),
    },
    folder: None,
};

fn check(spec: &TargetSpec) -> Result<()> {
    if spec.hosts.len() == 1 && spec.port.is_some() {
        return Ok(());
    }
    Err(Error::usage("a round trip needs one host and its port"))
}

/// There is nothing to control: the peer forgets what it is sent.
struct Nothing;

impl Volatile for Nothing {
    fn facts(&mut self) -> Result<Facts> {
        Ok(Facts::default())
    }

    fn provide(&mut self, _size: u64) -> Result<String> {
        Ok(String::new())
    }
}

/// One connection with many requests under way.
struct Connection {
    stream: Stream,
    inbox: Inbox,
    /// What each slot asks for, and that as bytes.
    requests: Vec<(Request, [u8; REQUEST])>,
    /// Slots in the order of their requests, from the oldest that has no answer.
    order: VecDeque<u16>,
    completed: VecDeque<Completion>,
    next_tag: u32,
    peer: SocketAddr,
    login: Login,
    failed: Option<Error>,
}

impl Connection {
    fn open(login: &Login, attach: &Attach) -> Result<Self> {
        check(&login.spec)?;
        let (socket, peer) = dial(login)?;
        greet(&socket, peer, attach.block_max)?;
        socket
            .set_read_timeout(Some(login.io_timeout()))
            .map_err(|error| Error::io(Phase::Connect, &error, "set a connection's time limit"))?;
        let slots = usize::from(attach.iodepth.max(1));
        let nothing = Request {
            direction: Direction::Read,
            tag: 0,
            len: 0,
        };
        Ok(Self {
            stream: Stream::new(socket, slots),
            inbox: Inbox::new(attach.block_max),
            requests: vec![(nothing, nothing.encode()); slots],
            order: VecDeque::with_capacity(slots),
            completed: VecDeque::with_capacity(slots),
            next_tag: 0,
            peer,
            login: login.clone(),
            failed: None,
        })
    }

    fn send(&mut self, slots: &Slots) -> Result<()> {
        let requests = &self.requests;
        let sent = self.stream.send(|slot| {
            let (request, head) = &requests[usize::from(slot)];
            let payload: &[u8] = match request.direction {
                Direction::Write => slots.get(slot, request.len),
                Direction::Read => &[],
            };
            [head, payload]
        });
        sent.map_err(|error| self.broken(&error, "send a request"))
    }

    /// Takes in what has come; with `wait`, waits for it.
    fn receive(&mut self, slots: &mut Slots, wait: bool) -> Result<()> {
        let straight: &mut [u8] = match (self.inbox.missing(), self.order.front()) {
            (Some((got, all)), Some(slot)) => &mut slots.get_mut(*slot, all)[got as usize..],
            _ => &mut [],
        };
        let received = self.stream.receive(straight, self.inbox.room(), wait);
        let (straight, beside) = received.map_err(|error| self.unheard(&error))?;
        self.inbox.received(straight as u32, beside);
        while let Some(slot) = self.order.front().copied() {
            // Only what was sent whole can have an answer.
            if self.order.len() <= self.stream.unsent() {
                break;
            }
            let (request, _) = self.requests[usize::from(slot)];
            let whole = self
                .inbox
                .next(&request, |got, bytes| {
                    let upto = got + bytes.len() as u32;
                    slots.get_mut(slot, upto)[got as usize..].copy_from_slice(bytes);
                })
                .map_err(|what| self.nonsense(&what))?;
            if !whole {
                return Ok(());
            }
            self.order.pop_front();
            self.stream.answered();
            self.completed.push_back(Completion {
                slot,
                bytes: request.len,
            });
        }
        if self.inbox.is_empty() {
            Ok(())
        } else {
            Err(self.nonsense("an answer to what was not asked"))
        }
    }

    fn pump(&mut self, until: Option<u64>, slots: &mut Slots) -> Result<()> {
        while self.completed.is_empty() && !self.order.is_empty() {
            self.send(slots)?;
            if self.stream.all_sent() && until.is_none() {
                let rest = self.inbox.missing().map_or(0, |(got, want)| want - got);
                // Small answers are taken as they come: this is what the way carries, not what is cheapest.
                let gathered = self.stream.gather(rest, 0, self.login.io_timeout());
                let gathered = gathered.map_err(|error| self.unheard(&error))?;
                self.receive(slots, !gathered)?;
                continue;
            }
            let now = monotonic_ns();
            let give_up = now.saturating_add(self.login.io_timeout().as_nanos() as u64);
            let limit = until.map_or(give_up, |until| until.min(give_up));
            let rest = std::time::Duration::from_nanos(limit.saturating_sub(now));
            let ready = self.stream.wait(rest);
            if !ready.map_err(|error| self.broken(&error, "wait for answers"))? {
                if limit == give_up {
                    return Err(self.late());
                }
                return Ok(());
            }
            self.receive(slots, false)?;
        }
        Ok(())
    }

    fn nonsense(&self, what: &str) -> Error {
        let message = format!("{} breaks the round-trip protocol: {what}", self.peer);
        Error::new(Phase::Io, Kind::Protocol, message).at(&self.login.spec.uri)
    }

    /// Why no answer could be received.
    fn unheard(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock => self.late(),
            ErrorKind::UnexpectedEof => {
                let message = format!(
                    "{} closed the connection in the middle of the test; \
                     its time was over, or it was stopped",
                    self.peer
                );
                Error::new(Phase::Io, Kind::Gone, message).at(&self.login.spec.uri)
            }
            _ => self.broken(error, "receive an answer"),
        }
    }

    fn broken(&self, error: &std::io::Error, doing: &str) -> Error {
        let doing = format!("{doing} ({})", self.peer);
        Error::io(Phase::Io, error, &doing).at(&self.login.spec.uri)
    }

    fn late(&self) -> Error {
        let seconds = self.login.io_timeout().as_secs_f64();
        let message = format!("no answer from {} within {seconds} s", self.peer);
        Error::new(Phase::Io, Kind::TimedOut, message).at(&self.login.spec.uri)
    }
}

/// Connects to the first address that answers.
fn dial(login: &Login) -> Result<(TcpStream, SocketAddr)> {
    let host = login.spec.hosts.first().map_or("", String::as_str);
    let port = login.spec.port.unwrap_or(0);
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| Error::io(Phase::Resolve, &error, &format!("find '{host}'")))?;
    let mut refused = None;
    for address in addresses {
        let socket =
            TcpStream::connect_timeout(&address, login.connect_timeout()).and_then(|socket| {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(login.connect_timeout()))?;
                Ok(socket)
            });
        match socket {
            Ok(socket) => return Ok((socket, address)),
            Err(error) => refused = Some((address, error)),
        }
    }
    Err(match refused {
        Some((address, error)) => {
            let doing = format!("reach the round-trip port {address}");
            Error::io(Phase::Connect, &error, &doing)
        }
        None => Error::new(
            Phase::Resolve,
            Kind::NotFound,
            format!("'{host}' has no address"),
        ),
    })
}

/// Exchanges greetings; Ok when requests of `block_max` bytes are welcome.
fn greet(mut socket: &TcpStream, peer: SocketAddr, block_max: u32) -> Result<()> {
    let mut bytes = [0; GREETING];
    let own = Greeting::new(Welcome::Yes, block_max);
    let heard = socket
        .write_all(&own.encode())
        .and_then(|()| socket.read_exact(&mut bytes));
    heard.map_err(|error| {
        let (kind, what) = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => (Kind::TimedOut, "does not answer"),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                (Kind::Gone, "closes the connection at once")
            }
            _ => return Error::io(Phase::Open, &error, &format!("greet {peer}")),
        };
        let message = format!(
            "{peer} takes a connection but {what}: is it nasgauge's agent, and does it expect this computer's address?"
        );
        Error::new(Phase::Open, kind, message)
    })?;
    let greeting = Greeting::decode(&bytes).map_err(|what| {
        let message = format!("{peer} is not nasgauge's agent: {what}");
        Error::new(Phase::Open, Kind::Protocol, message)
    })?;
    let (kind, message) = match greeting.welcome {
        Welcome::Yes if block_max <= greeting.block_max => return Ok(()),
        Welcome::Yes | Welcome::TooLarge => (
            Kind::Unsupported,
            format!(
                "{peer} serves blocks of {} bytes at most, not {block_max}",
                greeting.block_max
            ),
        ),
        Welcome::OtherVersion => (
            Kind::Unsupported,
            format!(
                "{peer} speaks version {} of the round-trip protocol, this nasgauge {VERSION}; \
                 use the same nasgauge on both computers",
                greeting.version
            ),
        ),
        Welcome::Full => (
            Kind::Refused,
            format!("{peer} has no connection left; use fewer lanes"),
        ),
    };
    Err(Error::new(Phase::Open, kind, message))
}

impl Session for Connection {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let request = Request {
            direction: op.direction,
            tag: self.next_tag,
            len: op.len,
        };
        self.next_tag = self.next_tag.wrapping_add(1);
        self.requests[usize::from(op.slot)] = (request, request.encode());
        self.order.push_back(op.slot);
        self.stream.enqueue(op.slot);
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
        Ok(())
    }

    fn flushes(&self) -> bool {
        false
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(u64::from(self.next_tag))
    }

    fn negotiated(&self) -> String {
        format!("engine=tcp version={VERSION}")
    }
}

#[cfg(test)]
mod tests;
