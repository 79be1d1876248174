//! The incoming side: messages taken apart as bytes come, payload straight into its slot.
//!
//! Payload that has not come in yet is received where it belongs; what rides in with a head is copied once. Must not
//! know: sockets, signatures, what an operation is. It is fed, and says what it found.

use super::frame::{self, Answer, HEADER, MARK, READ_HEAD, SUCCESS};

/// Bytes taken in at once beside payload that goes straight to its slot.
const BUFFER: usize = 64 << 10;
/// The same where payload is long: what rides in with a head is copied, so let it be little.
const BUFFER_BULK: usize = 8 << 10;
/// Payload from which on it is long.
const BULK: u32 = 128 << 10;
/// The longest answer without data, or head before data, that makes sense.
const HEAD_MAX: usize = 512;
/// Bytes that may follow data: padding.
const TAIL_MAX: usize = 64;

/// A request under way, as the inbox must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) slot: u16,
    pub(super) command: frame::Command,
    /// Bytes asked for.
    pub(super) count: u32,
}

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) answer: Answer,
    /// The request that it answers; None for an interim answer to anything.
    pub(super) request: Option<Expected>,
    /// Bytes of data that lie in the slot.
    pub(super) data: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before a message.
    Mark,
    /// Gathering `need` bytes of a message of `length`.
    Head { length: usize, need: usize },
    /// Payload, then its padding.
    Data { found: Found, got: u32, tail: usize },
}

/// The state of one connection.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    state: State,
    head: Box<[u8; HEAD_MAX]>,
    have: usize,
    tail: [u8; TAIL_MAX],
    padded: usize,
    /// The longest message that makes sense, in bytes.
    longest: usize,
}

impl Inbox {
    /// For payloads of at most `block` bytes.
    pub(super) fn new(block: u32) -> Self {
        let size = if block >= BULK { BUFFER_BULK } else { BUFFER };
        Self {
            buffer: vec![0; size].into_boxed_slice(),
            start: 0,
            end: 0,
            state: State::Mark,
            head: Box::new([0; HEAD_MAX]),
            have: 0,
            tail: [0; TAIL_MAX],
            padded: 0,
            longest: block as usize + HEAD_MAX + TAIL_MAX,
        }
    }

    /// Where the next payload byte goes when nothing else is buffered before it: slot, bytes there, bytes to come.
    pub(super) fn place(&self) -> Option<(u16, u32, u32)> {
        match self.state {
            State::Data { found, got, .. } if got < found.data && self.start == self.end => {
                Some((found.request?.slot, got, found.data - got))
            }
            _ => None,
        }
    }

    /// Room for bytes that have no place yet.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Notes what was received: `straight` bytes at [`Inbox::place`], then `buffered` in [`Inbox::room`].
    pub(super) fn received(&mut self, straight: u32, buffered: usize) {
        if let State::Data { got, .. } = &mut self.state {
            *got += straight;
        }
        self.end += buffered;
    }

    /// What stood before the data of the answer found last, and after it.
    pub(super) fn around(&self) -> (&[u8], &[u8]) {
        (&self.head[..self.have], &self.tail[..self.padded])
    }

    /// Goes on as far as the bytes reach: the next answer, or None when more must come. `expect` knows the requests
    /// by their number, `store` takes payload at a place in a slot. Err says how the peer breaks the protocol.
    pub(super) fn next(
        &mut self,
        expect: impl Fn(u64) -> Option<Expected>,
        mut store: impl FnMut(u16, u32, &[u8]),
    ) -> Result<Option<Found>, String> {
        loop {
            match self.state {
                State::Mark => {
                    let at_hand = &self.buffer[self.start..self.end];
                    let Some(mark) = at_hand.first_chunk::<MARK>() else {
                        return Ok(None);
                    };
                    let length = u32::from_be_bytes(*mark) as usize;
                    if !(HEADER + 4..=self.longest).contains(&length) {
                        return Err(format!(
                            "a message of {length} bytes, where {} to {} make sense",
                            HEADER + 4,
                            self.longest
                        ));
                    }
                    self.start += MARK;
                    (self.have, self.padded) = (0, 0);
                    let need = length.min(READ_HEAD);
                    self.state = State::Head { length, need };
                }
                State::Head { length, need } => {
                    let some = (need - self.have).min(self.end - self.start);
                    self.head[self.have..self.have + some]
                        .copy_from_slice(&self.buffer[self.start..self.start + some]);
                    self.have += some;
                    self.start += some;
                    if self.have < need {
                        return Ok(None);
                    }
                    if let Some(found) = self.headed(length, need, &expect)? {
                        return Ok(Some(found));
                    }
                }
                State::Data { found, got, tail } => {
                    let slot = found.request.map_or(0, |request| request.slot);
                    let some = ((found.data - got) as usize).min(self.end - self.start);
                    if some > 0 {
                        store(slot, got, &self.buffer[self.start..self.start + some]);
                        self.start += some;
                    }
                    let got = got + some as u32;
                    self.state = State::Data { found, got, tail };
                    if got < found.data {
                        return Ok(None);
                    }
                    let some = (tail - self.padded).min(self.end - self.start);
                    self.tail[self.padded..self.padded + some]
                        .copy_from_slice(&self.buffer[self.start..self.start + some]);
                    self.padded += some;
                    self.start += some;
                    if self.padded < tail {
                        return Ok(None);
                    }
                    self.state = State::Mark;
                    return Ok(Some(found));
                }
            }
        }
    }

    /// `need` bytes of a message are there: more of it is needed, or data follows, or it is whole.
    fn headed(
        &mut self,
        length: usize,
        need: usize,
        expect: &impl Fn(u64) -> Option<Expected>,
    ) -> Result<Option<Found>, String> {
        let head = &self.head[..need];
        let answer = frame::decode(head)?;
        let interim = answer.status == frame::PENDING && answer.parted;
        let request = expect(answer.id);
        let named = request.filter(|request| request.command as u16 == answer.command);
        if named.is_none() && !interim {
            return Err(format!(
                "an answer to a request that was not made (command {}, message {})",
                answer.command, answer.id
            ));
        }
        let found = Found {
            answer,
            request: named.filter(|_| !interim),
            data: 0,
        };
        let reads = found
            .request
            .filter(|request| request.command == frame::Command::Read);
        if let (Some(request), SUCCESS) = (reads, answer.status) {
            let (from, data) = frame::read_data(head).ok_or("a READ's answer without its body")?;
            let tail = length
                .checked_sub(from + data as usize)
                .filter(|tail| from >= READ_HEAD && *tail <= TAIL_MAX)
                .ok_or_else(|| {
                    format!("{data} bytes of data at {from} in a message of {length} bytes")
                })?;
            if data > request.count {
                return Err(format!(
                    "{data} bytes of data, where {} were asked for",
                    request.count
                ));
            }
            if need < from {
                self.state = State::Head { length, need: from };
                return Ok(None);
            }
            let found = Found { data, ..found };
            self.state = State::Data {
                found,
                got: 0,
                tail,
            };
            return Ok(None);
        }
        if length > HEAD_MAX {
            return Err(format!("a message of {length} bytes without data"));
        }
        if need < length {
            self.state = State::Head {
                length,
                need: length,
            };
            return Ok(None);
        }
        self.state = State::Mark;
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 5000;

    fn answer(status: u32, command: u16, id: u64, body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[..4].copy_from_slice(b"\xfeSMB");
        message[8..12].copy_from_slice(&status.to_le_bytes());
        message[12..14].copy_from_slice(&command.to_le_bytes());
        message[14] = 3;
        message[16] = if status == frame::PENDING { 3 } else { 1 };
        message[24..32].copy_from_slice(&id.to_le_bytes());
        message.extend_from_slice(body);
        let mut framed = (message.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(&message);
        framed
    }

    fn read_answer(id: u64, from: u8, data: &[u8], tail: usize) -> Vec<u8> {
        let mut body = vec![0; (usize::from(from) - HEADER).max(16)];
        body[2] = from;
        body[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(data);
        body.extend_from_slice(&vec![0; tail]);
        answer(0, 8, id, &body)
    }

    fn expect(id: u64) -> Option<Expected> {
        let command = match id {
            1..=9 => frame::Command::Read,
            10 => frame::Command::Write,
            _ => return None,
        };
        Some(Expected {
            slot: id as u16,
            command,
            count: BLOCK,
        })
    }

    /// Feeds `bytes` in steps; gives what was found and the payload of each slot.
    fn fed(bytes: &[u8], step: usize) -> Result<(Vec<Found>, Vec<Vec<u8>>), String> {
        let mut inbox = Inbox::new(BLOCK);
        let mut slots = vec![vec![0; BLOCK as usize]; 11];
        let mut all = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut some = rest.len().min(step);
            let mut straight = 0;
            if let Some((slot, got, room)) = inbox.place() {
                straight = some.min(room as usize);
                slots[usize::from(slot)][got as usize..got as usize + straight]
                    .copy_from_slice(&rest[..straight]);
                rest = &rest[straight..];
                some -= straight;
            }
            let room = inbox.room();
            some = some.min(room.len());
            room[..some].copy_from_slice(&rest[..some]);
            rest = &rest[some..];
            inbox.received(straight as u32, some);
            while let Some(found) = inbox.next(expect, |slot, at, bytes| {
                slots[usize::from(slot)][at as usize..at as usize + bytes.len()]
                    .copy_from_slice(bytes);
            })? {
                all.push(found);
            }
        }
        Ok((all, slots))
    }

    #[test]
    fn answers_come_out_however_the_bytes_come_in() {
        let data: Vec<u8> = (0..BLOCK).map(|at| (at * 13) as u8).collect();
        let mut stream = answer(frame::PENDING, 8, 2, &[0; 9]);
        stream.extend(read_answer(2, 80, &data, 0));
        stream.extend(answer(0, 9, 10, &[0; 17]));
        stream.extend(read_answer(3, 96, &data[..100], 7));
        stream.extend(answer(frame::END_OF_FILE, 8, 4, &[0; 9]));
        stream.extend(read_answer(5, 80, &[], 0));
        for step in [1, 3, 80, 84, 1000, 4999, 100_000] {
            let (found, slots) = fed(&stream, step).expect("sound");
            let told: Vec<(u64, u32, u32)> = found
                .iter()
                .map(|found| (found.answer.id, found.answer.status, found.data))
                .collect();
            assert_eq!(
                told,
                [
                    (2, frame::PENDING, 0),
                    (2, 0, BLOCK),
                    (10, 0, 0),
                    (3, 0, 100),
                    (4, frame::END_OF_FILE, 0),
                    (5, 0, 0)
                ],
                "{step}"
            );
            assert_eq!(found[0].request, None);
            assert!(slots[2] == data && slots[3][..100] == data[..100], "{step}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_once() {
        let mut other = read_answer(2, 80, &[1; 10], 0);
        other[MARK] = b'X';
        for (bytes, word) in [
            (b"HTTP/1.1 400 Bad".to_vec(), "make sense"),
            (vec![0, 0, 0, 3, 1, 2, 3], "3 bytes"),
            (vec![0, 255, 255, 255], "make sense"),
            (answer(0, 8, 77, &[0; 17]), "not made"),
            (answer(0, 9, 2, &[0; 17]), "not made"),
            (
                read_answer(2, 80, &vec![1; BLOCK as usize + 1], 0),
                "asked for",
            ),
            (read_answer(2, 70, &[1; 10], 0), "at 70"),
            (read_answer(2, 80, &[1; 10], 65), "bytes of data"),
            (answer(5, 8, 2, &[0; 600]), "without data"),
            (other, "not SMB"),
        ] {
            for step in [1, 100_000] {
                let error = fed(&bytes, step).expect_err(word);
                assert!(error.contains(word), "{word}: {error}");
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let data = [9; 300];
        let good = read_answer(2, 80, &data, 0);
        for at in 0..good.len() - data.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                bad.extend_from_slice(&good);
                let _ = fed(&bad, 64);
            }
        }
    }
}
