//! The probe's protocol: fixed heads, numbers with the highest byte first.
//!
//! | who | bytes | what |
//! |---|---|---|
//! | client, once | 16 | `nasgauge`, version (2), 0 (2), the largest block that it will ask for (4) |
//! | server, once | 16 | `nasgauge`, version (2), [`Welcome`] (2), the largest block that it serves (4) |
//! | client, any number under way | 12 | `r` or `w`, 0 (3), a tag (4), length (4); then, for `w`, as many bytes |
//! | server, in the order of the requests | 8 | the tag (4), length (4); then, for `r`, as many bytes; 0 for `w` |
//!
//! What comes from a peer is checked here before anything is done with it. Must not know: sockets.

use crate::op::Direction;

/// Changes when the bytes do; peers must be equal.
pub const VERSION: u16 = 1;
/// Bytes of a greeting.
pub const GREETING: usize = 16;
/// Bytes of a request without its payload.
pub const REQUEST: usize = 12;
/// Bytes of an answer without its payload.
pub const ANSWER: usize = 8;
/// The largest block that is served, in bytes: what the largest workload asks for.
pub const BLOCK_MAX: u32 = 256 << 20;

const MAGIC: [u8; 8] = *b"nasgauge";

/// What a server makes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// Requests may come.
    Yes,
    /// The versions differ.
    OtherVersion,
    /// It asks for larger blocks than are served.
    TooLarge,
    /// Too many connections.
    Full,
}

/// The first bytes on a connection, either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The speaker's [`VERSION`].
    pub version: u16,
    /// The server's word; a client says [`Welcome::Yes`].
    pub welcome: Welcome,
    /// The largest block in bytes that will be asked for, or is served.
    pub block_max: u32,
}

/// One request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Read: the server sends the payload. Write: it follows this head.
    pub direction: Direction,
    /// What the answer will be marked with.
    pub tag: u32,
    /// Bytes of payload, 1 at least.
    pub len: u32,
}

/// One answer's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The request's.
    pub tag: u32,
    /// Bytes of payload that follow: all that were asked for, or none after a write.
    pub len: u32,
}

impl Greeting {
    /// This program's, with the server's word.
    #[must_use]
    pub const fn new(welcome: Welcome, block_max: u32) -> Self {
        Self {
            version: VERSION,
            welcome,
            block_max,
        }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING] {
        let word: u16 = match self.welcome {
            Welcome::Yes => 0,
            Welcome::OtherVersion => 1,
            Welcome::TooLarge => 2,
            Welcome::Full => 3,
        };
        let mut bytes = [0; GREETING];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_be_bytes());
        bytes[10..12].copy_from_slice(&word.to_be_bytes());
        bytes[12..].copy_from_slice(&self.block_max.to_be_bytes());
        bytes
    }

    /// From bytes; Err says what is wrong with them. What another version says after its number is not looked at.
    pub fn decode(bytes: &[u8; GREETING]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("it does not greet as nasgauge does".into());
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Ok(Self {
                version,
                welcome: Welcome::OtherVersion,
                block_max: 0,
            });
        }
        let welcome = match u16::from_be_bytes([bytes[10], bytes[11]]) {
            0 => Welcome::Yes,
            1 => Welcome::OtherVersion,
            2 => Welcome::TooLarge,
            3 => Welcome::Full,
            other => return Err(format!("its greeting holds {other}, which means nothing")),
        };
        Ok(Self {
            version,
            welcome,
            block_max: word(&bytes[12..]),
        })
    }
}

impl Request {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[0] = match self.direction {
            Direction::Read => b'r',
            Direction::Write => b'w',
        };
        bytes[4..8].copy_from_slice(&self.tag.to_be_bytes());
        bytes[8..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From bytes, of a client that may ask for `block_max` at most; Err says what is wrong with them.
    pub fn decode(bytes: &[u8; REQUEST], block_max: u32) -> Result<Self, String> {
        let direction = match bytes[..4] {
            [b'r', 0, 0, 0] => Direction::Read,
            [b'w', 0, 0, 0] => Direction::Write,
            _ => return Err("a request that is neither a read nor a write".into()),
        };
        let len = word(&bytes[8..]);
        if len == 0 || len > block_max {
            return Err(format!(
                "a request for {len} bytes, where 1 to {block_max} were agreed on"
            ));
        }
        Ok(Self {
            direction,
            tag: word(&bytes[4..8]),
            len,
        })
    }
}

impl Answer {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&self.tag.to_be_bytes());
        bytes[4..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From bytes, to the oldest request that has none yet; Err says what is wrong with them.
    pub fn decode(bytes: &[u8; ANSWER], to: &Request) -> Result<Self, String> {
        let answer = Self {
            tag: word(bytes),
            len: word(&bytes[4..]),
        };
        let len = match to.direction {
            Direction::Read => to.len,
            Direction::Write => 0,
        };
        if answer.tag != to.tag {
            return Err(format!(
                "an answer to request {}, where {} is next",
                answer.tag, to.tag
            ));
        }
        if answer.len != len {
            return Err(format!(
                "an answer of {} bytes, where {len} were asked for",
                answer.len
            ));
        }
        Ok(answer)
    }
}

/// The first four bytes as a number; 0 where there are fewer, which no caller has.
fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |chunk| u32::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const READ: Request = Request {
        direction: Direction::Read,
        tag: 7,
        len: 4096,
    };

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(tag: u32, len in 1..=BLOCK_MAX, write: bool, block_max: u32) {
            let direction = if write { Direction::Write } else { Direction::Read };
            let request = Request { direction, tag, len };
            prop_assert_eq!(Request::decode(&request.encode(), BLOCK_MAX), Ok(request));
            let answer = Answer { tag, len: if write { 0 } else { len } };
            prop_assert_eq!(Answer::decode(&answer.encode(), &request), Ok(answer));
            for welcome in [Welcome::Yes, Welcome::OtherVersion, Welcome::TooLarge, Welcome::Full] {
                let greeting = Greeting::new(welcome, block_max);
                prop_assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
            }
        }

        #[test]
        fn any_bytes_are_a_small_request_or_an_error(bytes: [u8; REQUEST], block_max: u32) {
            if let Ok(request) = Request::decode(&bytes, block_max) {
                prop_assert!((1..=block_max).contains(&request.len));
            }
        }

        #[test]
        fn any_bytes_are_a_greeting_or_an_error(bytes in any::<[u8; GREETING]>()) {
            let mut bytes = bytes;
            prop_assert!(Greeting::decode(&bytes).is_err(), "chance would be a fine thing");
            bytes[..8].copy_from_slice(&MAGIC);
            let _ = Greeting::decode(&bytes);
        }
    }

    #[test]
    fn another_version_is_seen_whatever_else_it_says() {
        let mut bytes = [0xff; GREETING];
        bytes[..8].copy_from_slice(&MAGIC);
        let greeting = Greeting::decode(&bytes).expect("a greeting");
        assert_eq!(
            (greeting.version, greeting.welcome),
            (0xffff, Welcome::OtherVersion)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |request: Request| Request::decode(&request.encode(), 4096);
        assert_eq!(wrong(READ), Ok(READ));
        for len in [0, 4097, u32::MAX] {
            let message = wrong(Request { len, ..READ }).expect_err("a bad length");
            assert!(message.contains(&format!("{len} bytes")), "{message}");
        }
        let answer = Answer { tag: 8, len: 4096 };
        let message = Answer::decode(&answer.encode(), &READ).expect_err("another's");
        assert!(message.contains("8, where 7"), "{message}");
        let answer = Answer { tag: 7, len: 0 };
        let message = Answer::decode(&answer.encode(), &READ).expect_err("nothing in it");
        assert!(message.contains("4096 were asked"), "{message}");
    }
}
