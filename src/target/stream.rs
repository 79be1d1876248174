//! One TCP connection with many requests under way: out in batches from their slots, answers in straight to theirs.
//!
//! The socket blocks, with a receive timeout; who must not wait says so call by call. [`group`] decides when small
//! answers are worth a wake. No allocation after the start. Bytes only: must not know any protocol.

mod group;

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

use group::{Group, LONGEST};

/// Pieces of memory that go out with one system call.
const PIECES: usize = 60;
/// So many bytes of one answer that are still to come are waited for together.
const WORTH_A_WAKE: u32 = 64 << 10;
/// The most that a socket is to hold back; its buffer must have room for twice as much.
const HELD_MAX: u32 = 1 << 20;

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    /// Slots whose requests are to be sent, in order.
    queue: VecDeque<u16>,
    /// Bytes of the first one that are gone.
    sent: usize,
    group: Group,
    /// Bytes that must have come before a wait for them ends.
    held: u32,
}

impl Stream {
    /// For `requests` at once.
    pub(super) fn new(socket: TcpStream, requests: usize) -> Self {
        Self {
            socket,
            queue: VecDeque::with_capacity(requests),
            sent: 0,
            group: Group::default(),
            held: 1,
        }
    }

    /// The socket, to poll.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether all requests are out.
    pub(super) fn all_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests that are not all out: the last so many that were put in the queue.
    pub(super) fn unsent(&self) -> usize {
        self.queue.len()
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.all_sent());
        flags
    }

    /// Puts a slot's request in the queue.
    pub(super) fn enqueue(&mut self, slot: u16) {
        self.queue.push_back(slot);
    }

    /// Sends what the socket takes without blocking; `bytes` are those of a slot's request.
    pub(super) fn send<'a, const N: usize>(
        &mut self,
        bytes: impl Fn(u16) -> [&'a [u8]; N],
    ) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let mut used = 0;
            let mut skip = self.sent;
            let batch = self.queue.iter().take(PIECES / N);
            for piece in batch.flat_map(|slot| bytes(*slot)) {
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
                let whole: usize = bytes(*slot).iter().map(|piece| piece.len()).sum();
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
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<bool> {
        self.release()?;
        let socket = PollFd::new(&self.socket, self.interest());
        match poll(&mut [socket], Some(&timespec(longest))) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets what is worth a wake gather: the `rest` of a large answer, which can't end before it is there, or several
    /// of `flying` small ones, for a short while. False when any byte is worth a wake now; `WouldBlock` when nothing
    /// more of a large answer came within `patience`.
    pub(super) fn gather(
        &mut self,
        rest: u32,
        flying: usize,
        patience: Duration,
    ) -> io::Result<bool> {
        let large = rest >= WORTH_A_WAKE;
        let (bytes, longest) = if large {
            (rest.min(HELD_MAX), patience)
        } else {
            (self.group.bytes(flying), LONGEST)
        };
        self.hold(bytes)?;
        if bytes == 1 {
            return Ok(false);
        }
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut socket, Some(&timespec(longest))) {
            Ok(0) if large => return Err(ErrorKind::WouldBlock.into()),
            Ok(0) => self.group.in_vain(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Makes any byte worth a wake again: to be called before the socket is polled elsewhere.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.hold(1)
    }

    fn hold(&mut self, bytes: u32) -> io::Result<()> {
        if bytes != self.held {
            hold(&self.socket, bytes)?;
            self.held = bytes;
        }
        Ok(())
    }

    /// Notes that a whole answer was found in what came.
    pub(super) fn answered(&mut self) {
        self.group.answered();
    }

    /// Takes in what has come, first `straight`, then `beside`: how many bytes of each. With `wait`, waits for it until
    /// the socket's timeout, which is `WouldBlock`.
    pub(super) fn receive(
        &mut self,
        straight: &mut [u8],
        beside: &mut [u8],
        wait: bool,
    ) -> io::Result<(usize, usize)> {
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        let room = straight.len();
        let mut pieces = [IoSliceMut::new(straight), IoSliceMut::new(beside)];
        let control = &mut RecvAncillaryBuffer::default();
        match recvmsg(&self.socket, &mut pieces, control, flags) {
            Ok(message) if message.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
            Ok(message) => {
                let got = message.bytes;
                self.group.came(got);
                Ok((got.min(room), got.saturating_sub(room)))
            }
            Err(Errno::AGAIN) if !wait => Ok((0, 0)),
            Err(Errno::INTR) => Ok((0, 0)),
            Err(error) => Err(error.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: i64::from(duration.subsec_nanos()),
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    fn connected() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (peer, _) = listener.accept().expect("accepted");
        (Stream::new(socket, 32), peer)
    }

    /// Knows from experience that answers have 100 bytes.
    fn experienced(stream: &mut Stream) {
        for _ in 0..64 {
            stream.group.came(100);
            stream.answered();
        }
    }

    #[test]
    fn small_answers_are_waited_for_together_but_not_for_long() {
        let (mut stream, mut peer) = connected();
        let patience = Duration::from_mins(1);
        assert!(!stream.gather(0, 32, patience).expect("not yet known"));
        experienced(&mut stream);
        peer.write_all(&[1; 100]).expect("sent");
        let begun = Instant::now();
        assert!(stream.gather(0, 32, patience).expect("in vain"));
        assert!(begun.elapsed() >= LONGEST);
        assert!(!stream.gather(0, 32, patience).expect("not again soon"));
        let mut bytes = [0; 200];
        assert_eq!(
            stream.receive(&mut [], &mut bytes, true).expect("there"),
            (0, 100)
        );
    }

    #[test]
    fn a_large_answer_is_waited_for_as_long_as_any() {
        let (mut stream, mut peer) = connected();
        peer.write_all(&[1; 1000]).expect("sent");
        let patience = Duration::from_millis(20);
        let error = stream
            .gather(1 << 20, 1, patience)
            .expect_err("the rest is missing");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(peer);
        assert!(
            stream
                .gather(1 << 20, 1, Duration::from_mins(1))
                .expect("an end is news")
        );
    }

    #[test]
    fn a_wait_for_anything_ends_with_any_byte() {
        let (mut stream, mut peer) = connected();
        experienced(&mut stream);
        assert!(stream.gather(0, 32, LONGEST).expect("in vain"));
        assert!(stream.held > 1, "or this test tests nothing");
        peer.write_all(&[1]).expect("sent");
        assert!(stream.wait(Duration::from_mins(1)).expect("a byte"));
    }
}
