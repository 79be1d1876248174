//! The other end of the round-trip probe: sends the blocks that one client asks for, takes those that it sends.
//!
//! Read first: [`serve`] accepts one peer's connections until its deadline, each in a thread of its own, where a
//! [`Conversation`] goes from a greeting to requests and answers ([`crate::round_trip::wire`]). A request costs
//! no allocation; those that came in together are answered with one system call. It needs no file system, so it works
//! in an empty chroot. Whatever a peer sends or leaves out, its connection ends by the deadline at the latest.
//!
//! Must not know: what is measured, who made the listener. Sizes are in bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, Phase, Result};
use crate::payload::{Content, Fill, Payload};
use crate::round_trip::wire::{BLOCK_MAX, GREETING, Greeting, VERSION, Welcome};

mod conversation;

use conversation::Conversation;

/// Connections at once: more than any workload has lanes. A thread each.
const CONNECTIONS_MAX: usize = 1024;
/// How long a new connection may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How often a server that nobody calls looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Bytes that reads are answered from, over and over.
const DATA: usize = 1 << 20;

/// What a server did until it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections of the peer.
    pub connections: u64,
    /// Requests answered.
    pub requests: u64,
    /// Connections from other addresses, closed at once.
    pub strangers: u64,
    /// Connections of the peer that broke the protocol, or off.
    pub broken: u64,
}

/// Serves `peer`, and nobody else, until the deadline or until it is told to stop; then nothing listens any more and
/// every connection is closed. Fails only where the listener itself does.
pub fn serve(
    listener: TcpListener,
    peer: IpAddr,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<Served> {
    let mut server = Server {
        peer: peer.to_canonical(),
        data: data(),
        open: Vec::new(),
        served: Served::default(),
    };
    let failed = |error: &io::Error| Error::io(Phase::Connect, error, "wait for a connection");
    listener
        .set_nonblocking(true)
        .map_err(|error| failed(&error))?;
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() || stop.load(Relaxed) {
            // Whoever is told that it has ended must find the port closed.
            drop(listener);
            return Ok(server.end());
        }
        wait(&listener, rest.min(LOOK_UP)).map_err(|error| failed(&error))?;
        server.accept_some(&listener);
        server.part_from_ended();
    }
}

/// Waits for a connection.
fn wait(listener: &TcpListener, longest: Duration) -> io::Result<()> {
    let time = Timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What reads are answered from: bytes that no compressing tunnel makes fewer.
fn data() -> Arc<[u8]> {
    let mut bytes = vec![0; DATA];
    let content = Content {
        key: 0x726f_756e_6474_7269,
        fill: Fill::Incompressible,
        compress_percent: 0,
        dedupe_percent: 0,
    };
    Payload::new(content).fill(&mut bytes, 0, 1);
    bytes.into()
}

struct Server {
    peer: IpAddr,
    data: Arc<[u8]>,
    open: Vec<Open>,
    served: Served,
}

/// A connection and the thread that attends to it.
struct Open {
    socket: Arc<TcpStream>,
    thread: JoinHandle<Ended>,
}

/// How a connection ended.
struct Ended {
    requests: u64,
    broken: bool,
}

impl Server {
    fn accept_some(&mut self, listener: &TcpListener) {
        // No flood of calls keeps it from its deadline.
        for _ in 0..64 {
            match listener.accept() {
                Ok((socket, from)) if from.ip().to_canonical() == self.peer => self.attend(socket),
                Ok(_) => self.served.strangers += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // One that ended before it was accepted, or no file descriptor left: the others go on.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(1));
                    return;
                }
            }
        }
    }

    fn attend(&mut self, socket: TcpStream) {
        self.served.connections += 1;
        if self.open.len() >= CONNECTIONS_MAX {
            // A fresh socket has room for a greeting.
            let _ = (&socket).write_all(&Greeting::new(Welcome::Full, BLOCK_MAX).encode());
            self.served.broken += 1;
            return;
        }
        let socket = Arc::new(socket);
        let (own, data) = (Arc::clone(&socket), Arc::clone(&self.data));
        let started = std::thread::Builder::new()
            .name("round trip".into())
            .spawn(move || attend(&own, &data));
        match started {
            Ok(thread) => self.open.push(Open { socket, thread }),
            Err(_) => self.served.broken += 1,
        }
    }

    fn part_from_ended(&mut self) {
        let mut at = 0;
        while at < self.open.len() {
            if self.open[at].thread.is_finished() {
                let open = self.open.swap_remove(at);
                self.count(open.thread);
            } else {
                at += 1;
            }
        }
    }

    fn count(&mut self, thread: JoinHandle<Ended>) {
        match thread.join() {
            Ok(ended) => {
                self.served.requests += ended.requests;
                self.served.broken += u64::from(ended.broken);
            }
            // A bug, whose message is on standard error.
            Err(_) => self.served.broken += 1,
        }
    }

    /// Ends all connections: a thread that waits on its socket finds it closed.
    fn end(mut self) -> Served {
        for open in &self.open {
            // It may be closed already.
            let _ = open.socket.shutdown(Shutdown::Both);
        }
        for open in std::mem::take(&mut self.open) {
            self.count(open.thread);
        }
        self.served
    }
}

/// Attends to one connection until its end.
fn attend(socket: &TcpStream, data: &[u8]) -> Ended {
    let Ok(block_max) = greet(socket) else {
        return Ended {
            requests: 0,
            broken: true,
        };
    };
    let mut conversation = Conversation::new(socket, data, block_max);
    let broken = conversation.hold().is_err();
    // The server still has the socket; the peer must see the end now.
    let _ = socket.shutdown(Shutdown::Both);
    Ended {
        requests: conversation.answered(),
        broken,
    }
}

/// Exchanges greetings; gives the largest block that this client may ask for.
fn greet(mut socket: &TcpStream) -> io::Result<u32> {
    // Accepted sockets block, whatever the listener does.
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(GREETING_TIME))?;
    let mut bytes = [0; GREETING];
    let heard = socket.read_exact(&mut bytes);
    let greeting = heard.and_then(|()| Greeting::decode(&bytes).map_err(io::Error::other));
    let greeting = match greeting {
        Ok(greeting) => greeting,
        Err(error) => {
            // Nothing is said to who does not know the protocol.
            let _ = socket.shutdown(Shutdown::Both);
            return Err(error);
        }
    };
    let welcome = if greeting.version != VERSION {
        Welcome::OtherVersion
    } else if greeting.block_max > BLOCK_MAX {
        Welcome::TooLarge
    } else {
        Welcome::Yes
    };
    socket.write_all(&Greeting::new(welcome, BLOCK_MAX).encode())?;
    if welcome != Welcome::Yes {
        let _ = socket.shutdown(Shutdown::Both);
        return Err(io::Error::other("not welcome"));
    }
    socket.set_read_timeout(None)?;
    Ok(greeting.block_max)
}

#[cfg(test)]
mod tests;
