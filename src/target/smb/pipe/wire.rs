//! The socket of one session: requests out in batches, answers in straight to their slots, signatures checked.
//!
//! Must not know: what an answer means.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};

use super::calls::Calls;
use super::inbox::{Found, Inbox};
use super::seal::Seal;
use crate::slots::Slots;
use crate::units::SECOND;

/// Requests that go out with one system call.
const BATCH: usize = 32;

/// A connection.
pub(super) struct Wire {
    socket: TcpStream,
    seal: Option<Seal>,
    inbox: Inbox,
    /// Slots whose requests are to be sent, in order.
    queue: VecDeque<u16>,
    /// Bytes of the first one that are gone.
    sent: usize,
}

impl Wire {
    /// For `slots` requests at once of at most `block` bytes.
    pub(super) fn new(socket: TcpStream, seal: Option<Seal>, slots: u16, block: u32) -> Self {
        Self {
            socket,
            seal,
            inbox: Inbox::new(block),
            queue: VecDeque::with_capacity(usize::from(slots) + 1),
            sent: 0,
        }
    }

    /// The key that messages are signed with.
    pub(super) const fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// Makes all requests that can be paid for and puts them in the queue.
    pub(super) fn enqueue(&mut self, calls: &mut Calls, slots: &Slots) -> Result<(), String> {
        while let Some(slot) = calls.make(self.seal.as_ref(), slots)? {
            self.queue.push_back(slot);
        }
        Ok(())
    }

    /// Sends what the socket takes without blocking.
    pub(super) fn send(&mut self, calls: &Calls, slots: &Slots) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut pieces = [IoSlice::new(&[]); BATCH * 2];
            let mut used = 0;
            let mut skip = self.sent;
            let batch = self.queue.iter().take(BATCH);
            for piece in batch.flat_map(|slot| calls.bytes(*slot, slots)) {
                let from = skip.min(piece.len());
                skip -= from;
                pieces[used] = IoSlice::new(&piece[from..]);
                used += 1;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let control = &mut SendAncillaryBuffer::default();
            let mut gone = match sendmsg(&self.socket, &pieces[..used], control, flags) {
                Ok(gone) => gone + self.sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            while let Some(slot) = self.queue.front() {
                let pieces = calls.bytes(*slot, slots);
                let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
                if gone < whole {
                    break;
                }
                gone -= whole;
                self.queue.pop_front();
            }
            self.sent = gone;
        }
        Ok(())
    }

    /// Waits until there is something to receive, or room to send what is left; false when the time was over.
    pub(super) fn wait(&self, longest: Duration) -> io::Result<bool> {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, !self.queue.is_empty());
        let nanoseconds = longest.as_nanos() as u64;
        let timeout = Timespec {
            tv_sec: (nanoseconds / SECOND).cast_signed(),
            tv_nsec: (nanoseconds % SECOND).cast_signed(),
        };
        match poll(&mut [PollFd::new(&self.socket, interest)], Some(&timeout)) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// What stands before the data of the answer that came last.
    pub(super) fn answer(&self) -> &[u8] {
        self.inbox.around().0
    }

    /// Whether all requests are out.
    pub(super) fn all_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes in what has come; with `wait`, waits for it until the socket's timeout, which is `WouldBlock`.
    pub(super) fn receive(
        &mut self,
        calls: &Calls,
        slots: &mut Slots,
        wait: bool,
    ) -> io::Result<()> {
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        let place = self.inbox.place();
        let room = place.map_or(0, |(_, _, room)| room as usize);
        let straight: &mut [u8] = match place {
            Some((slot, got, _)) => calls.place(slot, got, room, slots),
            None => &mut [],
        };
        let mut pieces = [
            IoSliceMut::new(straight),
            IoSliceMut::new(self.inbox.room()),
        ];
        let control = &mut RecvAncillaryBuffer::default();
        match recvmsg(&self.socket, &mut pieces, control, flags) {
            Ok(message) if message.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
            Ok(message) => {
                let got = message.bytes;
                self.inbox
                    .received(got.min(room) as u32, got.saturating_sub(room));
                Ok(())
            }
            Err(Errno::AGAIN) if !wait => Ok(()),
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
