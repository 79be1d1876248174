//! One TCP connection of a pipelined session: calls out, answers in straight to their slots.
//!
//! Must not know what an answer means.

use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::slots::Slots;
use crate::target::stream::Stream;

use super::calls::Calls;
use super::inbox::{Found, Inbox};

/// A connection.
pub(super) struct Connection {
    stream: Stream,
    inbox: Inbox,
}

impl Connection {
    /// For `slots` calls at once of at most `block` bytes.
    pub(super) fn new(socket: TcpStream, slots: usize, block: u32) -> Self {
        Self {
            stream: Stream::new(socket, slots),
            inbox: Inbox::new(block),
        }
    }

    /// The socket, to poll.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// Whether all calls are out.
    pub(super) fn all_sent(&self) -> bool {
        self.stream.all_sent()
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        self.stream.interest()
    }

    /// Makes any byte worth a wake: to be called before a poll.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.stream.release()
    }

    /// Puts a slot's call in the queue.
    pub(super) fn enqueue(&mut self, slot: u16) {
        self.stream.enqueue(slot);
    }

    /// Sends what the socket takes without blocking.
    pub(super) fn send(&mut self, calls: &Calls, slots: &Slots) -> io::Result<()> {
        self.stream.send(|slot| calls.bytes(slot, slots))
    }

    /// Lets what is worth a wake gather, with `flying` answers to come; see [`Stream::gather`].
    pub(super) fn gather(&mut self, flying: usize, patience: Duration) -> io::Result<bool> {
        let rest = self.inbox.place().map_or(0, |place| place.room);
        self.stream.gather(rest, flying, patience)
    }

    /// Takes in what has come; with `wait`, waits for it until the socket's timeout, which is `WouldBlock`.
    pub(super) fn receive(
        &mut self,
        calls: &Calls,
        slots: &mut Slots,
        wait: bool,
    ) -> io::Result<()> {
        let straight: &mut [u8] = match self.inbox.place() {
            Some(place) => calls.place(place.slot, place.got, place.room as usize, slots),
            None => &mut [],
        };
        let (straight, beside) = self.stream.receive(straight, self.inbox.room(), wait)?;
        self.inbox.received(straight as u32, beside);
        Ok(())
    }

    /// The next answer among what came in. Err says in what way the peer breaks the protocol.
    pub(super) fn next(
        &mut self,
        calls: &Calls,
        slots: &mut Slots,
    ) -> Result<Option<Found>, String> {
        let next = self.inbox.next(
            |xid| calls.expected(xid),
            |call, got, bytes| {
                calls
                    .place(call.slot, got, bytes.len(), slots)
                    .copy_from_slice(bytes);
            },
        );
        if matches!(next, Ok(Some(_))) {
            self.stream.answered();
        }
        next
    }
}
