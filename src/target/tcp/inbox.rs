//! One connection's incoming side: heads and payload, taken apart as bytes come.
//!
//! Payload that has not come in yet is received straight into its slot; what rides in with a head is copied once. Must
//! not know: sockets, slots. It is fed, and says when an answer is whole. Sizes are in bytes.

use crate::round_trip::wire::{ANSWER, Answer, Request};

/// Bytes taken in at once beside payload that goes straight to its slot.
const BUFFER: usize = 64 << 10;
/// Of blocks from this size on, what rides in with a head is worth less than its copy costs.
const LARGE: u32 = 128 << 10;
/// The buffer beside them.
const BESIDE_LARGE: usize = 8 << 10;

/// The state of one connection.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    /// What of the buffer is not looked at yet.
    start: usize,
    end: usize,
    /// The answer that has begun: payload that is in its slot, and all of it.
    payload: Option<(u32, u32)>,
}

impl Inbox {
    /// For blocks of at most `block_max` bytes.
    pub(super) fn new(block_max: u32) -> Self {
        let size = if block_max >= LARGE {
            BESIDE_LARGE
        } else {
            BUFFER
        };
        Self {
            buffer: vec![0; size].into_boxed_slice(),
            start: 0,
            end: 0,
            payload: None,
        }
    }

    /// Of the answer that has begun, the bytes that are in its slot and all of them, when the next ones may go straight
    /// there.
    pub(super) fn missing(&self) -> Option<(u32, u32)> {
        self.payload
            .filter(|(got, want)| self.start == self.end && got < want)
    }

    /// Room for what comes beside.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.buffer[self.end..]
    }

    /// Notes what came: bytes that went straight to the slot, and bytes in the room.
    pub(super) fn received(&mut self, straight: u32, beside: usize) {
        if let Some((got, _)) = &mut self.payload {
            *got += straight;
        }
        self.end += beside;
    }

    /// Whether all that came belongs to answers that are whole.
    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end && self.payload.is_none()
    }

    /// Goes on with the answer to `request`, the oldest that has none; true when it is whole. `store` gets payload and
    /// how many bytes of it were there before. Err says in what way the peer breaks the protocol.
    pub(super) fn next(
        &mut self,
        request: &Request,
        store: impl FnOnce(u32, &[u8]),
    ) -> Result<bool, String> {
        let (got, want) = if let Some(payload) = self.payload {
            payload
        } else {
            let Some(head) = self.buffer[self.start..self.end].first_chunk::<ANSWER>() else {
                return Ok(false);
            };
            let answer = Answer::decode(head, request)?;
            self.start += ANSWER;
            (0, answer.len)
        };
        let here = (self.end - self.start).min((want - got) as usize);
        if here > 0 {
            store(got, &self.buffer[self.start..self.start + here]);
            self.start += here;
        }
        let got = got + here as u32;
        let whole = got == want;
        self.payload = if whole { None } else { Some((got, want)) };
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::op::Direction;

    const BLOCK: u32 = 64;

    fn request(tag: u32, len: u32) -> Request {
        Request {
            // Of a write comes a head alone.
            direction: if len == 0 {
                Direction::Write
            } else {
                Direction::Read
            },
            tag,
            len: len.max(1),
        }
    }

    /// Feeds bytes in chunks, straight to the slots where that is offered; gives the blocks of whole answers.
    fn feed(bytes: &[u8], requests: &[Request], chunks: &[usize]) -> Result<Vec<Vec<u8>>, String> {
        let mut inbox = Inbox::new(BLOCK);
        let mut slot = vec![0; BLOCK as usize];
        let mut blocks = Vec::new();
        let mut rest = bytes;
        let mut sizes = chunks.iter().copied().cycle();
        while !rest.is_empty() {
            let (now, after) =
                rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
            rest = after;
            let mut straight = 0;
            if let Some((got, want)) = inbox.missing() {
                straight = now.len().min((want - got) as usize);
                slot[got as usize..][..straight].copy_from_slice(&now[..straight]);
            }
            let beside = &now[straight..];
            inbox.room()[..beside.len()].copy_from_slice(beside);
            inbox.received(straight as u32, beside.len());
            while let Some(request) = requests.get(blocks.len()) {
                let whole = inbox.next(request, |got, bytes| {
                    slot[got as usize..][..bytes.len()].copy_from_slice(bytes);
                })?;
                if !whole {
                    break;
                }
                let read = request.direction == Direction::Read;
                let len = if read { request.len as usize } else { 0 };
                blocks.push(slot[..len].to_vec());
            }
        }
        if blocks.len() == requests.len() && !inbox.is_empty() {
            return Err("more came than was asked for".into());
        }
        Ok(blocks)
    }

    proptest! {
        #[test]
        fn answers_come_apart_however_they_were_cut(
            lens in proptest::collection::vec(0..=BLOCK, 1..9),
            chunks in proptest::collection::vec(1usize..200, 1..6),
        ) {
            let mut bytes = Vec::new();
            let mut wanted = Vec::new();
            let requests: Vec<Request> =
                lens.iter().enumerate().map(|(tag, len)| request(tag as u32, *len)).collect();
            for (tag, len) in lens.iter().enumerate() {
                let data: Vec<u8> = (0..*len).map(|at| (at * 7 + tag as u32) as u8 | 1).collect();
                bytes.extend(Answer { tag: tag as u32, len: *len }.encode());
                bytes.extend(&data);
                wanted.push(data);
            }
            prop_assert_eq!(feed(&bytes, &requests, &chunks), Ok(wanted));
        }

        #[test]
        fn garbage_is_an_error_or_waits_for_more(
            bytes in proptest::collection::vec(any::<u8>(), 8..300),
            chunks in proptest::collection::vec(1usize..100, 1..4),
        ) {
            let requests = [request(0x0102_0304, 64), request(9, 0)];
            let fed = feed(&bytes, &requests, &chunks);
            prop_assert!(fed.is_err(), "{fed:?} by chance");
        }
    }
}
