//! One TCP connection of a pipelined session: calls out in batches, answers in straight to their slots.
//!
//! The socket blocks, with a receive timeout; who must not wait says so call by call. Must not know what an answer
//! means.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};

use crate::slots::Slots;

use super::calls::Calls;
use super::group::{Group, LONGEST};
use super::inbox::{Found, Inbox};

/// Calls that go out with one system call.
const BATCH: usize = 20;
/// So many bytes of one answer that are still to come are waited for together.
const WORTH_A_WAKE: u32 = 64 << 10;
/// The most that a socket is to hold back; its buffer must have room for twice as much.
const HELD_MAX: u32 = 1 << 20;

/// A connection.
pub(super) struct Connection {
    socket: TcpStream,
    inbox: Inbox,
    /// Slots whose calls are to be sent, in order.
    queue: VecDeque<u16>,
    /// Bytes of the first one that are gone.
    sent: usize,
    group: Group,
    /// Bytes that must have come before a wait for them ends.
    held: u32,
}

impl Connection {
    /// For `slots` calls at once of at most `block` bytes.
    pub(super) fn new(socket: TcpStream, slots: usize, block: u32) -> Self {
        let queue = VecDeque::with_capacity(slots);
        Self {
            socket,
            inbox: Inbox::new(block),
            queue,
            sent: 0,
            group: Group::default(),
            held: 1,
        }
    }

    /// The socket, to poll.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether all calls are out.
    pub(super) fn all_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.all_sent());
        flags
    }

    /// Puts a slot's call in the queue.
    pub(super) fn enqueue(&mut self, slot: u16) {
        self.queue.push_back(slot);
    }

    /// Sends what the socket takes without blocking.
    pub(super) fn send(&mut self, calls: &Calls, slots: &Slots) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut pieces = [IoSlice::new(&[]); BATCH * 3];
            let mut used = 0;
            let mut skip = self.sent;
            for piece in self
                .queue
                .iter()
                .take(BATCH)
                .flat_map(|slot| calls.bytes(*slot, slots))
            {
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
                let whole: usize = calls
                    .bytes(*slot, slots)
                    .iter()
                    .map(|piece| piece.len())
                    .sum();
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

    /// Lets what is worth a wake gather, with `flying` answers to come: the rest of a large one, which can't end
    /// before it is there, or several small ones, for a short while. False when any byte is worth a wake now;
    /// `WouldBlock` when nothing more of a large answer came within `patience`.
    pub(super) fn gather(&mut self, flying: usize, patience: Duration) -> io::Result<bool> {
        let rest = self.inbox.place().map_or(0, |place| place.room);
        let large = rest >= WORTH_A_WAKE;
        let (bytes, longest) = if large {
            (rest.min(HELD_MAX), patience)
        } else {
            (self.group.bytes(flying), LONGEST)
        };
        if bytes != self.held {
            hold(&self.socket, bytes)?;
            self.held = bytes;
        }
        if bytes == 1 {
            return Ok(false);
        }
        let longest = Timespec {
            tv_sec: longest.as_secs().cast_signed(),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut socket, Some(&longest)) {
            Ok(0) if large => return Err(ErrorKind::WouldBlock.into()),
            Ok(0) => self.group.in_vain(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
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
        let room = place.map_or(0, |place| place.room as usize);
        let straight: &mut [u8] = match place {
            Some(place) => calls.place(place.slot, place.got, room, slots),
            None => &mut [],
        };
        let mut pieces = [
            IoSliceMut::new(straight),
            IoSliceMut::new(self.inbox.room()),
        ];
        match recvmsg(
            &self.socket,
            &mut pieces,
            &mut RecvAncillaryBuffer::default(),
            flags,
        ) {
            Ok(message) if message.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
            Ok(message) => {
                let got = message.bytes;
                self.group.came(got);
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
        let next = self.inbox.next(
            |xid| calls.expected(xid),
            |call, got, bytes| {
                calls
                    .place(call.slot, got, bytes.len(), slots)
                    .copy_from_slice(bytes);
            },
        );
        if matches!(next, Ok(Some(_))) {
            self.group.answered();
        }
        next
    }
}

/// A wait for bytes ends only when so many have come; a receive that does not wait takes what is there.
#[expect(unsafe_code, reason = "rustix has no SO_RCVLOWAT")]
fn hold(socket: &TcpStream, bytes: u32) -> io::Result<()> {
    let bytes = bytes.cast_signed();
    // SAFETY: the option takes an int, which the kernel reads during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as u32,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
