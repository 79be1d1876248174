//! The socket of one session: requests out in batches, answers in straight to their slots, signatures checked.
//!
//! Must not know: what an answer means.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use super::calls::Calls;
use super::inbox::{Found, Inbox};
use super::seal::Seal;
use crate::slots::Slots;
use crate::target::stream::Stream;

/// A connection.
pub(super) struct Wire {
    stream: Stream,
    seal: Option<Seal>,
    inbox: Inbox,
}

impl Wire {
    /// For `slots` requests at once of at most `block` bytes.
    pub(super) fn new(socket: TcpStream, seal: Option<Seal>, slots: u16, block: u32) -> Self {
        Self {
            // One more for FLUSH or CLOSE.
            stream: Stream::new(socket, usize::from(slots) + 1),
            seal,
            inbox: Inbox::new(block),
        }
    }

    /// The key that messages are signed with.
    pub(super) const fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// Makes all requests that can be paid for and puts them in the queue.
    pub(super) fn enqueue(&mut self, calls: &mut Calls, slots: &Slots) -> Result<(), String> {
        while let Some(slot) = calls.make(self.seal.as_ref(), slots)? {
            self.stream.enqueue(slot);
        }
        Ok(())
    }

    /// Sends what the socket takes without blocking.
    pub(super) fn send(&mut self, calls: &Calls, slots: &Slots) -> io::Result<()> {
        self.stream.send(|slot| calls.bytes(slot, slots))
    }

    /// Waits until there is something to receive, or room to send what is left; false when the time was over.
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<bool> {
        self.stream.wait(longest)
    }

    /// What stands before the data of the answer that came last.
    pub(super) fn answer(&self) -> &[u8] {
        self.inbox.around().0
    }

    /// Whether all requests are out.
    pub(super) fn all_sent(&self) -> bool {
        self.stream.all_sent()
    }

    /// Takes in what has come; with `wait`, waits for it until the socket's timeout, which is `WouldBlock`.
    pub(super) fn receive(
        &mut self,
        calls: &Calls,
        slots: &mut Slots,
        wait: bool,
    ) -> io::Result<()> {
        let straight: &mut [u8] = match self.inbox.place() {
            Some((slot, got, room)) => calls.place(slot, got, room as usize, slots),
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
        let found = self.inbox.next(
            |id| calls.expected(id),
            |slot, at, bytes| {
                calls
                    .place(slot, at, bytes.len(), slots)
                    .copy_from_slice(bytes);
            },
        )?;
        if let (Some(seal), Some(found)) = (&self.seal, &found)
            && let Some(request) = found.request
        {
            let (head, tail) = self.inbox.around();
            let data: &[u8] = if found.data > 0 {
                calls.brought(request.slot, found.data, slots)
            } else {
                &[]
            };
            if !seal.holds(found.answer.id, head, [data, tail]) {
                return Err(format!(
                    "an answer with a wrong signature (status {})",
                    smb2::types::status::NtStatus(found.answer.status)
                ));
            }
        }
        Ok(found)
    }
}
