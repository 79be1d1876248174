//! One connection's incoming side: record marks, fragments, heads and payload, taken apart as bytes come.
//!
//! Payload that has not come in yet is received straight into its slot; what rides in with a head is copied once.
//! Must not know: what an operation is, or sockets. It is fed, and says what it found.

use nfs3_types::nfs3::{nfsstat3, stable_how, writeverf3};

use super::frame::{self, HEAD_MAX, Head};

/// Bytes taken in at once beside payload that goes straight to its slot.
const BUFFER: usize = 64 << 10;
/// Of blocks from this size on, what rides in with a head is worth less than its copy costs.
const LARGE: u32 = 128 << 10;
/// The buffer beside them.
const BESIDE_LARGE: usize = 8 << 10;

/// What came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole READ: this many bytes are in the slot.
    Read { slot: u16, count: u32, eof: bool },
    /// A WRITE's answer.
    Wrote {
        slot: u16,
        count: u32,
        committed: stable_how,
        verifier: writeverf3,
    },
    /// The server refused the call.
    Refused { slot: u16, status: nfsstat3 },
}

/// A call under way, as the inbox must know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) slot: u16,
    pub(super) write: bool,
    /// Bytes asked for.
    pub(super) count: u32,
}

/// Where payload goes: a slot, and bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u16,
    /// Bytes of this call that are there already.
    pub(super) got: u32,
    /// Bytes that may come straight into the slot now.
    pub(super) room: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Gathering `need` bytes of a head.
    Head { need: usize },
    /// Payload, then its padding.
    Data {
        call: Expected,
        got: u32,
        want: u32,
        eof: bool,
        padding: u32,
    },
    /// What is left of a message that said all.
    Rest,
}

/// The state of one connection.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes left of the fragment, and whether it is the message's last.
    fragment: u32,
    last: bool,
    /// A message has begun.
    within: bool,
    state: State,
    head: Box<[u8; HEAD_MAX]>,
    have: usize,
    /// The longest message that makes sense, in bytes.
    longest: u32,
    message: u32,
}

impl Inbox {
    /// For calls of at most `block` bytes.
    pub(super) fn new(block: u32) -> Self {
        Self {
            buffer: vec![0; if block >= LARGE { BESIDE_LARGE } else { BUFFER }].into_boxed_slice(),
            start: 0,
            end: 0,
            fragment: 0,
            last: false,
            within: false,
            state: State::Head { need: 20 },
            head: Box::new([0; HEAD_MAX]),
            have: 0,
            longest: block.saturating_add(HEAD_MAX as u32 + 3),
            message: 0,
        }
    }

    /// Where the next payload byte goes, when it can go there straight: nothing else is buffered before it.
    pub(super) fn place(&self) -> Option<Place> {
        match self.state {
            State::Data {
                call, got, want, ..
            } if got < want && self.start == self.end && self.fragment > 0 => Some(Place {
                slot: call.slot,
                got,
                room: (want - got).min(self.fragment),
            }),
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
        self.fragment -= straight;
        self.end += buffered;
    }

    /// Goes on as far as the bytes reach: the next thing found, or None when more must come. `expect` knows the
    /// calls by their xid; `slot` lends a call's bytes. Err says in what way the peer breaks the protocol.
    pub(super) fn next(
        &mut self,
        expect: impl Fn(u32) -> Option<Expected>,
        mut store: impl FnMut(Expected, u32, &[u8]),
    ) -> Result<Option<Found>, String> {
        loop {
            if let Some(found) = self.finished() {
                return Ok(Some(found));
            }
            if self.fragment == 0 && !self.next_fragment()? {
                return Ok(None);
            }
            match self.state {
                State::Head { need } => {
                    if !self.gather(need) {
                        if self.fragment == 0 {
                            continue;
                        }
                        return Ok(None);
                    }
                    if let Some(found) = self.head(&expect)? {
                        return Ok(Some(found));
                    }
                }
                State::Data {
                    call,
                    got,
                    want,
                    eof,
                    padding,
                } => {
                    let some = self.available().min((want - got) as usize);
                    store(call, got, &self.buffer[self.start..self.start + some]);
                    self.consume(some);
                    let got = got + some as u32;
                    let fill = if got == want {
                        self.available().min(padding as usize)
                    } else {
                        0
                    };
                    self.consume(fill);
                    let padding = padding - fill as u32;
                    self.state = State::Data {
                        call,
                        got,
                        want,
                        eof,
                        padding,
                    };
                    if self.fragment > 0 && (got < want || padding > 0) {
                        return Ok(None);
                    }
                }
                State::Rest => {
                    let some = self.available();
                    self.consume(some);
                    if self.fragment > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// A read whose payload and padding are all there; its message may hold no more.
    fn finished(&mut self) -> Option<Found> {
        match self.state {
            State::Data {
                call,
                got,
                want,
                eof,
                padding: 0,
            } if got == want => {
                self.state = State::Rest;
                Some(Found::Read {
                    slot: call.slot,
                    count: want,
                    eof,
                })
            }
            _ => None,
        }
    }

    /// Bytes at hand of the current fragment.
    fn available(&self) -> usize {
        (self.end - self.start).min(self.fragment as usize)
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.fragment -= bytes as u32;
    }

    /// Enters the next fragment or message; false when its mark has not come in.
    fn next_fragment(&mut self) -> Result<bool, String> {
        if self.within && self.last {
            if !matches!(self.state, State::Rest) {
                return Err("a reply ended before it was whole".into());
            }
            self.within = false;
        }
        let Some(mark) = self.buffer[self.start..self.end].first_chunk::<4>() else {
            return Ok(false);
        };
        let (length, last) = frame::fragment(*mark);
        if !self.within {
            self.message = 0;
            self.have = 0;
            self.state = State::Head { need: 20 };
        }
        // An empty fragment counts too: there may not be any number of them.
        self.message = self.message.saturating_add(length.max(1));
        if self.message > self.longest {
            return Err(format!(
                "a reply of {} bytes, where {} are the most",
                self.message, self.longest
            ));
        }
        self.start += 4;
        self.fragment = length;
        self.last = last;
        self.within = true;
        Ok(true)
    }

    /// Brings the head to `need` bytes; false when they have not all come in.
    fn gather(&mut self, need: usize) -> bool {
        let some = self.available().min(need - self.have);
        self.head[self.have..self.have + some]
            .copy_from_slice(&self.buffer[self.start..self.start + some]);
        self.have += some;
        self.consume(some);
        self.have == need
    }

    fn head(&mut self, expect: &impl Fn(u32) -> Option<Expected>) -> Result<Option<Found>, String> {
        let head = &self.head[..self.have];
        let xid = frame::xid(head).unwrap_or_default();
        let call = expect(xid).ok_or_else(|| format!("an answer to no call (xid {xid:#x})"))?;
        let slot = call.slot;
        let found = match frame::decode(head, call.write)? {
            Head::Need(need) if need <= HEAD_MAX => {
                self.state = State::Head { need };
                return Ok(None);
            }
            Head::Need(need) => return Err(format!("a head of {need} bytes")),
            Head::Read { count, .. } | Head::Write { count, .. } if count > call.count => {
                return Err(format!(
                    "{count} bytes, where {} were asked for",
                    call.count
                ));
            }
            Head::Read { count, eof } => {
                let padding = frame::padding(count);
                self.state = State::Data {
                    call,
                    got: 0,
                    want: count,
                    eof,
                    padding,
                };
                return Ok(None);
            }
            Head::Write {
                count,
                committed,
                verifier,
            } => Found::Wrote {
                slot,
                count,
                committed,
                verifier,
            },
            Head::Refused(status) => Found::Refused { slot, status },
        };
        self.state = State::Rest;
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::{any, prop_assert_eq, proptest};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const BLOCK: usize = 64;

    /// The reply to a READ of slot `slot`, as one message without its marks.
    fn reply(slot: u32, data: &[u8], attributes: bool) -> Vec<u8> {
        let words = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        let mut bytes = words(&[slot, 1, 0, 0, 0, 0, 0, u32::from(attributes)]);
        if attributes {
            bytes.extend([7; 84]);
        }
        bytes.extend(words(&[data.len() as u32, 0, data.len() as u32]));
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Splits a message into marked fragments.
    fn marked(message: &[u8], sizes: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = message;
        for size in sizes.iter().chain(std::iter::repeat(&usize::MAX)) {
            let (part, after) = rest.split_at((*size).min(rest.len()));
            let last = if after.is_empty() { 0x8000_0000 } else { 0 };
            bytes.extend((part.len() as u32 | last).to_be_bytes());
            bytes.extend(part);
            rest = after;
            if rest.is_empty() {
                return bytes;
            }
        }
        bytes
    }

    /// Feeds bytes in chunks, straight to the slots where that is offered; gives what was found and the slots.
    fn feed(bytes: &[u8], chunks: &[usize]) -> Result<(Vec<Found>, Vec<[u8; BLOCK]>), String> {
        let mut inbox = Inbox::new(BLOCK as u32);
        let mut slots = vec![[0u8; BLOCK]; 8];
        let mut found = Vec::new();
        let mut rest = bytes;
        let mut sizes = chunks.iter().copied().cycle();
        while !rest.is_empty() {
            let (now, after) =
                rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
            rest = after;
            let place = inbox.place();
            let straight = place.map_or(0, |place| now.len().min(place.room as usize));
            if let Some(place) = place {
                let from = place.got as usize;
                slots[usize::from(place.slot)][from..from + straight]
                    .copy_from_slice(&now[..straight]);
            }
            let buffered = &now[straight..];
            inbox.room()[..buffered.len()].copy_from_slice(buffered);
            inbox.received(straight as u32, buffered.len());
            let expect = |xid: u32| {
                (xid < 8).then_some(Expected {
                    slot: xid as u16,
                    write: false,
                    count: BLOCK as u32,
                })
            };
            while let Some(one) = inbox.next(expect, |call, got, bytes| {
                let from = got as usize;
                slots[usize::from(call.slot)][from..from + bytes.len()].copy_from_slice(bytes);
            })? {
                found.push(one);
            }
        }
        Ok((found, slots))
    }

    proptest! {
        #[test]
        fn replies_come_apart_however_they_were_cut(
            lengths in proptest::collection::vec(0usize..=BLOCK, 1..8),
            fragments in proptest::collection::vec(1usize..120, 0..6),
            chunks in proptest::collection::vec(1usize..300, 1..6),
            attributes: bool,
        ) {
            let mut bytes = Vec::new();
            for (slot, length) in lengths.iter().enumerate() {
                let data: Vec<u8> = (0..*length).map(|at| (at * 7 + slot) as u8 | 1).collect();
                bytes.extend(marked(&reply(slot as u32, &data, attributes), &fragments));
            }
            let (found, slots) = feed(&bytes, &chunks).expect("good replies");
            prop_assert_eq!(found.len(), lengths.len());
            for (slot, length) in lengths.iter().enumerate() {
                prop_assert_eq!(found[slot], Found::Read { slot: slot as u16, count: *length as u32, eof: false });
                for (at, byte) in slots[slot].iter().enumerate() {
                    let expected = if at < *length { (at * 7 + slot) as u8 | 1 } else { 0 };
                    prop_assert_eq!(*byte, expected);
                }
            }
        }

        #[test]
        fn garbage_is_an_error_or_waits_for_more_and_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 1..600),
            chunks in proptest::collection::vec(1usize..100, 1..4),
        ) {
            let _ = feed(&bytes, &chunks);
        }

        #[test]
        fn a_damaged_reply_never_panics(at in 0usize..100, byte: u8, chunk in 1usize..200) {
            let mut bytes = marked(&reply(1, &[9; BLOCK], true), &[40, 50]);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = feed(&bytes, &[chunk]);
        }
    }

    /// A few bytes, words or stretches of a stream changed.
    fn damage(stream: &mut Vec<u8>, rng: &mut SmallRng) {
        const WORDS: [u32; 8] = [0, 1, 3, 65, 0x7fff_ffff, 0x8000_0000, 0x8000_0004, u32::MAX];
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..stream.len());
            let upto = rng.random_range(at..=stream.len().min(at + 200));
            match rng.random_range(0..5) {
                0 => stream[at] ^= 1 << rng.random_range(0..8),
                1 => {
                    let word = WORDS[rng.random_range(0..WORDS.len())].to_be_bytes();
                    let at = at / 4 * 4;
                    for (byte, new) in stream[at..].iter_mut().zip(word) {
                        *byte = new;
                    }
                }
                2 if upto - at < stream.len() => drop(stream.drain(at..upto)),
                3 => {
                    let again = stream[at..upto].to_vec();
                    stream.splice(at..at, again);
                }
                _ => drop(stream.splice(at..at, (0..upto - at).map(|_| rng.random::<u8>()))),
            }
        }
    }

    /// Two seconds, or ten minutes with the slow tests. [`feed`] panics where a byte would land outside its slot.
    #[test]
    fn damaged_streams_do_no_harm() {
        let slow = std::env::var_os("NASGAUGE_FULL_TESTS").is_some();
        let time = Duration::from_secs(if slow { 600 } else { 2 });
        let begun = Instant::now();
        let (mut streams, mut refused, mut found_all) = (0u64, 0u64, 0u64);
        while begun.elapsed() < time {
            // The seed is all that a finding needs to be seen again.
            let seed = streams;
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut stream = Vec::new();
            let replies = rng.random_range(1..6);
            for slot in 0..replies {
                let data = vec![rng.random(); rng.random_range(0..=BLOCK)];
                let sizes: Vec<usize> = (0..rng.random_range(0..4))
                    .map(|_| rng.random_range(1..120))
                    .collect();
                stream.extend(marked(&reply(slot, &data, rng.random()), &sizes));
            }
            damage(&mut stream, &mut rng);
            let chunks: Vec<usize> = (0..3).map(|_| rng.random_range(1..300)).collect();
            let fed = std::panic::catch_unwind(|| feed(&stream, &chunks));
            match fed.unwrap_or_else(|_| panic!("stream {seed} broke the reader")) {
                Err(what) => {
                    assert!(!what.is_empty(), "stream {seed}");
                    refused += 1;
                }
                Ok((found, _)) => {
                    for one in &found {
                        if let Found::Read { count, .. } = one {
                            assert!(*count as usize <= BLOCK, "stream {seed}: {one:?}");
                        }
                    }
                    found_all += u64::from(found.len() == replies as usize);
                }
            }
            streams += 1;
        }
        assert!(refused > 0 && found_all > 0, "both kinds were met");
    }

    #[test]
    fn what_breaks_the_protocol_is_said() {
        let good = |slot| reply(slot, &[9; 8], false);
        let mut huge = marked(&good(1), &[]);
        huge[..4].copy_from_slice(&0xbfff_ffff_u32.to_be_bytes());
        let cut = marked(&good(1)[..30], &[]);
        let mut more = good(1);
        more[32..36].copy_from_slice(&65u32.to_be_bytes());
        for (bytes, word) in [
            (huge, "are the most"),
            ([cut, marked(&good(1), &[])].concat(), "before it was whole"),
            (marked(&good(99), &[]), "no call"),
            (marked(&more, &[]), "65"),
        ] {
            let error = feed(&bytes, &[1000]).expect_err(word);
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
