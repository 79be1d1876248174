//! Tests: a server that mounts like any other and then breaks the protocol in the answers to READ and WRITE. Both
//! engines must say so in time, with no panic, no hang and no byte counted that did not come.

use std::time::{Duration, Instant};

use super::client::Life;
use super::lane::Lane;
use super::pipe::Pipe;
use super::script::{Answer, Behaviour, Then, attach, serve};
use crate::error::{Kind, Phase, Result};
use crate::op::{Completion, Direction, Durability, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};

const LEN: u32 = 6000;
const PATIENCE_MS: u64 = 1500;

/// Bytes of an answer's record mark, and of its RPC head with an empty verifier.
const MARK: usize = 4;
const ACCEPTED: usize = MARK + 20;

const fn more(bytes: Vec<u8>) -> Answer {
    Answer {
        bytes,
        then: Then::More,
    }
}

fn cut(mut bytes: Vec<u8>, at: usize, then: Then) -> Answer {
    bytes.truncate(at);
    Answer { bytes, then }
}

fn patched(mut bytes: Vec<u8>, at: usize, word: u32) -> Answer {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    more(bytes)
}

/// The answer in fragments of `size` bytes.
fn fragments(bytes: &[u8], size: usize) -> Vec<u8> {
    let message = &bytes[MARK..];
    let mut out = Vec::new();
    for (index, part) in message.chunks(size).enumerate() {
        let last = if (index + 1) * size >= message.len() {
            0x8000_0000
        } else {
            0
        };
        out.extend((part.len() as u32 | last).to_be_bytes());
        out.extend(part);
    }
    out
}

struct Manner {
    what: &'static str,
    mangles: fn(Vec<u8>) -> Answer,
    /// What the error may be.
    kinds: &'static [Kind],
}

const MANNERS: &[Manner] = &[
    Manner {
        what: "half an answer, then closed",
        mangles: |bytes| {
            let half = bytes.len() / 2;
            cut(bytes, half, Then::Close)
        },
        kinds: &[Kind::Gone],
    },
    Manner {
        what: "half an answer, then reset",
        mangles: |bytes| {
            let half = bytes.len() / 2;
            cut(bytes, half, Then::Reset)
        },
        kinds: &[Kind::Gone],
    },
    Manner {
        what: "two bytes of a record mark, then nothing",
        mangles: |bytes| cut(bytes, 2, Then::Silence),
        kinds: &[Kind::TimedOut],
    },
    Manner {
        what: "all but the last bytes, then nothing",
        mangles: |bytes| {
            let most = bytes.len() - 3;
            cut(bytes, most, Then::Silence)
        },
        kinds: &[Kind::TimedOut],
    },
    Manner {
        what: "nothing at all",
        mangles: |bytes| cut(bytes, 0, Then::Silence),
        kinds: &[Kind::TimedOut],
    },
    Manner {
        what: "a reset",
        mangles: |bytes| cut(bytes, 0, Then::Reset),
        kinds: &[Kind::Gone],
    },
    Manner {
        what: "noise",
        mangles: |bytes| more((0..bytes.len()).map(|at| (at * 89 + 41) as u8).collect()),
        kinds: &[Kind::Protocol, Kind::TimedOut],
    },
    Manner {
        what: "another call's xid",
        mangles: |bytes| patched(bytes, MARK, 0x0bad_0bad),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "a call instead of a reply",
        mangles: |bytes| patched(bytes, MARK + 4, 0),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "a call denied",
        mangles: |bytes| patched(bytes, MARK + 8, 1),
        kinds: &[Kind::Protocol, Kind::Denied],
    },
    Manner {
        what: "a verifier of 4 GB",
        mangles: |bytes| patched(bytes, MARK + 16, u32::MAX),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "an RPC status that there is not",
        mangles: |bytes| patched(bytes, ACCEPTED, 77),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "an NFS status that there is not",
        mangles: |bytes| patched(bytes, ACCEPTED + 4, 4_000_000),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "a record of 2 GB",
        mangles: |bytes| patched(bytes, 0, u32::MAX),
        // The library waits for all of it.
        kinds: &[Kind::Protocol, Kind::TimedOut],
    },
    Manner {
        what: "a record shorter than its reply",
        mangles: |bytes| patched(bytes, 0, 0x8000_001a),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "an empty record",
        mangles: |_| more(vec![0x80, 0, 0, 0]),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "empty fragments without end",
        mangles: |_| more(vec![0; 1 << 20]),
        kinds: &[Kind::Protocol],
    },
    Manner {
        what: "attributes neither there nor not",
        mangles: |bytes| patched(bytes, ACCEPTED + 8, 5),
        kinds: &[Kind::Protocol],
    },
];

/// All READs or WRITEs of the depth, as an engine would do them. Gives the bytes by slot.
fn moves(
    session: &mut dyn Session,
    slots: &mut Slots,
    direction: Direction,
    depth: u16,
) -> Result<Vec<u32>> {
    let mut bytes = vec![0; usize::from(depth)];
    let mut done = Vec::new();
    let mut ended = 0;
    for slot in 0..depth {
        let offset = u64::from(slot) * u64::from(LEN);
        let op = Op {
            direction,
            offset,
            len: LEN,
            slot,
        };
        if let Submit::Done(completion) = session.submit(op, slots)? {
            done.push(completion);
        }
    }
    loop {
        for Completion { slot, bytes: moved } in done.drain(..) {
            bytes[usize::from(slot)] = moved;
            ended += 1;
        }
        if ended == depth {
            return Ok(bytes);
        }
        session.reap(None, slots, &mut done)?;
    }
}

/// Opens each engine on a server of its own, and says what became of its READs or WRITEs.
fn each_engine(
    behaviour: &Behaviour,
    direction: Direction,
    mut check: impl FnMut(&str, Result<Vec<u32>>, Duration),
) {
    for (engine, depth, connections) in [("crate", 1, 1), ("pipelined", 1, 1), ("pipelined", 4, 2)]
    {
        let mut login: Login = serve(behaviour.clone());
        login.io_timeout_ms = PATIENCE_MS;
        let attach = Attach {
            iodepth: depth,
            block_max: LEN,
            ..attach(Durability::Flush)
        };
        let mut session: Box<dyn Session> = if engine == "crate" {
            Box::new(Lane::open(&login, &attach, Life::Once).expect("open"))
        } else {
            Box::new(Pipe::open(&login, &attach, connections).expect("open"))
        };
        let mut slots = Slots::new(depth, LEN as usize).expect("slots");
        let begun = Instant::now();
        let moved = moves(session.as_mut(), &mut slots, direction, depth);
        check(
            &format!("{engine}, depth {depth}, {direction:?}"),
            moved,
            begun.elapsed(),
        );
    }
}

#[test]
fn what_breaks_the_protocol_is_an_error_in_time() {
    std::thread::scope(|scope| {
        for manner in MANNERS {
            scope.spawn(move || {
                for direction in [Direction::Read, Direction::Write] {
                    let behaviour = Behaviour {
                        mangles: manner.mangles,
                        content: u64::from(LEN) * 4,
                        ..Behaviour::default()
                    };
                    each_engine(&behaviour, direction, |who, moved, took| {
                        let what = manner.what;
                        let error = moved.expect_err(&format!("{who}: {what}"));
                        assert_eq!(error.phase, Phase::Io, "{who}: {what}: {error}");
                        assert!(
                            manner.kinds.contains(&error.kind),
                            "{who}: {what}: {:?}: {error}",
                            error.kind
                        );
                        assert!(error.target.starts_with("nfs://"), "{who}: {what}: {error}");
                        assert!(took < Duration::from_secs(20), "{who}: {what}: {took:?}");
                    });
                }
            });
        }
    });
}

#[test]
fn a_reply_in_many_fragments_is_whole() {
    for size in [1, 7, 64, 5000] {
        for direction in [Direction::Read, Direction::Write] {
            let behaviour = Behaviour {
                mangles: match size {
                    1 => |bytes| more(fragments(&bytes, 1)),
                    7 => |bytes| more(fragments(&bytes, 7)),
                    64 => |bytes| more(fragments(&bytes, 64)),
                    _ => |bytes| more(fragments(&bytes, 5000)),
                },
                content: u64::from(LEN) * 4,
                ..Behaviour::default()
            };
            each_engine(&behaviour, direction, |who, moved, _| {
                let moved = match moved {
                    // The library takes one fragment only.
                    Err(error) if who.starts_with("crate") && error.kind == Kind::Protocol => {
                        return;
                    }
                    moved => moved.unwrap_or_else(|error| panic!("{who}, {size}: {error}")),
                };
                assert!(moved.iter().all(|bytes| *bytes == LEN), "{who}: {moved:?}");
            });
        }
    }
}
