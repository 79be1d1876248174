//! One connection after its greeting: requests in, answers out, until the peer ends it or breaks the protocol.
//!
//! No allocation per request. What came in is looked through to its end before the answers go out together. Must not
//! know: deadlines (whoever holds the socket closes it).

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::op::Direction;
use crate::round_trip::wire::{ANSWER, Answer, REQUEST, Request};

/// Bytes taken in at once.
const INPUT: usize = 256 << 10;
/// Answers that wait to be sent together at most.
const ANSWERS: usize = 64;
/// Pieces of memory that go out with one system call.
const PIECES: usize = 64;

/// A connection that has greeted.
pub(super) struct Conversation<'a> {
    socket: &'a TcpStream,
    /// What reads are answered from, over and over.
    data: &'a [u8],
    block_max: u32,
    input: Box<[u8]>,
    /// What of the input is not looked at yet.
    start: usize,
    end: usize,
    /// Bytes that are to come of a write's payload, and its tag.
    write: Option<(u32, u32)>,
    outbox: Outbox,
    answered: u64,
}

impl<'a> Conversation<'a> {
    /// With a client that may ask for `block_max` bytes at most.
    pub(super) fn new(socket: &'a TcpStream, data: &'a [u8], block_max: u32) -> Self {
        Self {
            socket,
            data,
            block_max,
            input: vec![0; INPUT].into_boxed_slice(),
            start: 0,
            end: 0,
            write: None,
            outbox: Outbox::default(),
            answered: 0,
        }
    }

    /// Requests answered so far.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Goes on until the peer ends it between two requests; anything else is an error.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        loop {
            self.look_through()?;
            self.send()?;
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let between = self.end == 0 && self.write.is_none();
            match self.socket.read(&mut self.input[self.end..]) {
                Ok(0) if between => return Ok(()),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes in what has come but for a head that is not whole.
    fn look_through(&mut self) -> io::Result<()> {
        loop {
            if let Some((tag, rest)) = self.write {
                let here = (self.end - self.start).min(rest as usize);
                self.start += here;
                let rest = rest - here as u32;
                if rest > 0 {
                    self.write = Some((tag, rest));
                    return Ok(());
                }
                self.write = None;
                self.answer(Answer { tag, len: 0 })?;
            }
            let Some(head) = self.input[self.start..self.end].first_chunk::<REQUEST>() else {
                return Ok(());
            };
            let request = Request::decode(head, self.block_max).map_err(io::Error::other)?;
            self.start += REQUEST;
            match request.direction {
                Direction::Write => self.write = Some((request.tag, request.len)),
                Direction::Read => self.answer(Answer {
                    tag: request.tag,
                    len: request.len,
                })?,
            }
        }
    }

    fn answer(&mut self, answer: Answer) -> io::Result<()> {
        if self.outbox.full() {
            self.send()?;
        }
        self.outbox.push(answer);
        self.answered += 1;
        Ok(())
    }

    /// Sends all answers, waiting where the peer does not take them.
    fn send(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let used = self.outbox.pieces(self.data, &mut pieces);
            let control = &mut SendAncillaryBuffer::default();
            match sendmsg(self.socket, &pieces[..used], control, SendFlags::NOSIGNAL) {
                Ok(sent) => self.outbox.sent(sent, self.data.len()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Answers on their way out.
struct Outbox {
    heads: [[u8; ANSWER]; ANSWERS],
    /// Bytes of each answer's payload.
    lens: [u32; ANSWERS],
    /// The first answer that is not gone, and one past the last.
    first: usize,
    count: usize,
    /// Bytes of the first answer that are gone, its head included.
    gone: usize,
    /// Where in the data the payload goes on.
    at: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            heads: [[0; ANSWER]; ANSWERS],
            lens: [0; ANSWERS],
            first: 0,
            count: 0,
            gone: 0,
            at: 0,
        }
    }
}

impl Outbox {
    const fn is_empty(&self) -> bool {
        self.first == self.count
    }

    const fn full(&self) -> bool {
        self.count == ANSWERS
    }

    /// Puts an answer behind the others; there must be room.
    fn push(&mut self, answer: Answer) {
        self.heads[self.count] = answer.encode();
        self.lens[self.count] = answer.len;
        self.count += 1;
    }

    /// The next bytes to send, as far as there are pieces for them; gives how many pieces.
    fn pieces<'a>(&'a self, data: &'a [u8], pieces: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut at = self.at;
        let mut gone = self.gone;
        for index in self.first..self.count {
            let head = &self.heads[index][gone.min(ANSWER)..];
            if !head.is_empty() {
                let Some(piece) = pieces.get_mut(used) else {
                    return used;
                };
                *piece = IoSlice::new(head);
                used += 1;
            }
            let mut rest = self.lens[index] as usize - gone.saturating_sub(ANSWER);
            while rest > 0 {
                let Some(piece) = pieces.get_mut(used) else {
                    return used;
                };
                let here = rest.min(data.len() - at);
                *piece = IoSlice::new(&data[at..at + here]);
                used += 1;
                rest -= here;
                at = (at + here) % data.len();
            }
            gone = 0;
        }
        used
    }

    /// Notes that so many bytes are gone.
    fn sent(&mut self, bytes: usize, data_len: usize) {
        let mut rest = bytes;
        while rest > 0 && !self.is_empty() {
            let whole = ANSWER + self.lens[self.first] as usize;
            let here = rest.min(whole - self.gone);
            let heads = ANSWER.saturating_sub(self.gone).min(here);
            self.at = (self.at + here - heads) % data_len;
            self.gone += here;
            rest -= here;
            if self.gone == whole {
                self.gone = 0;
                self.first += 1;
            }
        }
        if self.is_empty() {
            self.first = 0;
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn answers_go_out_whole_and_in_order_however_they_are_cut(
            lens in proptest::collection::vec(0u32..5000, 1..40),
            cuts in proptest::collection::vec(1usize..3000, 1..8),
            pieces_max in 1usize..9,
        ) {
            let data: Vec<u8> = (0..1000u32).map(|at| (at % 251) as u8).collect();
            let mut outbox = Outbox::default();
            let mut wanted = Vec::new();
            let mut at = 0;
            for (tag, len) in lens.iter().enumerate() {
                let answer = Answer { tag: tag as u32, len: *len };
                outbox.push(answer);
                wanted.extend(answer.encode());
                for _ in 0..*len {
                    wanted.push(data[at % data.len()]);
                    at += 1;
                }
            }
            let mut out: Vec<u8> = Vec::new();
            for cut in cuts.iter().cycle() {
                let mut pieces = [IoSlice::new(&[]); PIECES];
                let used = outbox.pieces(&data, &mut pieces[..pieces_max]);
                let bytes: Vec<u8> = pieces[..used].iter().flat_map(|piece| piece.to_vec()).collect();
                if bytes.is_empty() {
                    break;
                }
                let sent = bytes.len().min(*cut);
                out.extend(&bytes[..sent]);
                outbox.sent(sent, data.len());
            }
            prop_assert_eq!(out, wanted);
        }
    }
}
