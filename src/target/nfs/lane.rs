//! The data side: blocks of one file on one connection, one call under way.
//!
//! Blocks larger than the server takes go as several calls; short counts are continued. Writes are UNSTABLE, so a
//! restart of the server before the COMMIT may lose them: it shows in the write verifier.

use std::time::Duration;

use nfs3_types::nfs3::{
    COMMIT3args, READ3args, WRITE3args, ftype3, nfs_fh3, stable_how, writeverf3,
};
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Durability, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};

use super::client::Life;
use super::mount::{self, Mounted};
use super::path;

/// One worker's file.
pub(super) struct Lane {
    pub(super) mounted: Mounted,
    pub(super) object: String,
    /// Lent to each call and taken back: the library's types would copy it.
    pub(super) file: nfs_fh3,
    pub(super) writes: bool,
    pub(super) stable: stable_how,
    pub(super) read_max: u32,
    pub(super) write_max: u32,
    wire_ops: u64,
    pub(super) restarts: Restarts,
    pub(super) io_timeout: Duration,
    flush_timeout: Duration,
}

/// Whether all writes since the last flush went to one life of the server.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    verifier: Option<writeverf3>,
    seen: bool,
}

impl Restarts {
    /// Takes note of a reply to a write that is not durable yet, or of the flush.
    pub(super) fn note(&mut self, verifier: writeverf3) {
        match self.verifier {
            None => self.verifier = Some(verifier),
            Some(known) => self.seen |= known != verifier,
        }
    }

    /// Whether a restart was seen since the last call.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(self).seen
    }
}

impl Lane {
    pub(super) fn open(login: &Login, attach: &Attach, life: Life) -> Result<Self> {
        // Before anything is sent.
        let names = path::parts(&attach.object)?;
        let mut mounted = mount::open(login, life, login.io_timeout())?;
        let Mounted {
            client, directory, ..
        } = &mut mounted;
        let file = client.walk(Phase::Open, directory, &names)?;
        let found = client.attributes(Phase::Open, &file, &attach.object)?;
        if found.type_ != ftype3::NF3REG {
            return Err(Error::new(
                Phase::Open,
                Kind::Unsupported,
                format!("'{}' is not a regular file", attach.object),
            ));
        }
        let read_max = mounted.read_max()?;
        let write_max = if attach.write {
            mounted.write_max()?
        } else {
            0
        };
        Ok(Self {
            mounted,
            object: attach.object.clone(),
            file,
            writes: attach.write,
            stable: match attach.durability {
                Durability::Sync => stable_how::FILE_SYNC,
                Durability::Datasync => stable_how::DATA_SYNC,
                Durability::Flush | Durability::None => stable_how::UNSTABLE,
            },
            read_max,
            write_max,
            wire_ops: 0,
            restarts: Restarts::default(),
            io_timeout: login.io_timeout(),
            flush_timeout: login.flush_timeout(),
        })
    }

    fn read(&mut self, op: Op, slots: &mut Slots) -> Result<u32> {
        let Self {
            mounted,
            object,
            file,
            wire_ops,
            read_max,
            ..
        } = self;
        let mut args = READ3args {
            file: std::mem::take(file),
            offset: op.offset,
            count: 0,
        };
        let mut done = 0;
        let outcome = loop {
            if done == op.len {
                break Ok(());
            }
            args.offset = op.offset + u64::from(done);
            args.count = (op.len - done).min(*read_max);
            *wire_ops += 1;
            let doing = || {
                format!(
                    "read {} bytes at offset {} of '{object}'",
                    args.count, args.offset
                )
            };
            let client = &mut mounted.client;
            let read = match client.call(Phase::Io, doing, async |nfs| nfs.read(&args).await) {
                Ok(read) => read,
                Err(error) => break Err(error),
            };
            let count = read.data.len();
            if count > args.count as usize || (count == 0 && !read.eof) {
                break Err(broken(&doing(), &format!("the server sent {count} bytes")));
            }
            let slot = slots.get_mut(op.slot, op.len);
            slot[done as usize..done as usize + count].copy_from_slice(&read.data);
            done += count as u32;
            if read.eof {
                break Ok(());
            }
        };
        *file = args.file;
        outcome.map(|()| done)
    }

    fn write(&mut self, op: Op, slots: &Slots) -> Result<u32> {
        let Self {
            mounted,
            object,
            file,
            wire_ops,
            write_max,
            stable,
            restarts,
            ..
        } = self;
        let block = slots.get(op.slot, op.len);
        let mut args = WRITE3args {
            file: std::mem::take(file),
            offset: op.offset,
            count: 0,
            stable: *stable,
            data: Opaque::borrowed(&[]),
        };
        let mut done = 0;
        let outcome = loop {
            if done == op.len {
                break Ok(());
            }
            args.offset = op.offset + u64::from(done);
            args.count = (op.len - done).min(*write_max);
            args.data = Opaque::borrowed(&block[done as usize..(done + args.count) as usize]);
            *wire_ops += 1;
            let doing = || {
                format!(
                    "write {} bytes at offset {} of '{object}'",
                    args.count, args.offset
                )
            };
            let client = &mut mounted.client;
            let wrote = match client.call(Phase::Io, doing, async |nfs| nfs.write(&args).await) {
                Ok(wrote) => wrote,
                Err(error) => break Err(error),
            };
            if wrote.count == 0 || wrote.count > args.count {
                let claim = format!("the server claims {} bytes written", wrote.count);
                break Err(broken(&doing(), &claim));
            }
            match promise(*stable, wrote.committed) {
                Ok(true) => {}
                Ok(false) => restarts.note(wrote.verf),
                Err(claim) => break Err(broken(&doing(), &claim)),
            }
            done += wrote.count;
        };
        *file = args.file;
        outcome.map(|()| done)
    }

    fn tied(&self, error: Error) -> Error {
        error.at(self.mounted.client.uri())
    }
}

/// Whether a write that asked for `asked` is durable by the server's answer `committed`; Err when the server gave less
/// than was asked for (RFC 1813, 3.3.7).
pub(super) fn promise(
    asked: stable_how,
    committed: stable_how,
) -> std::result::Result<bool, String> {
    let rank = |stable| match stable {
        stable_how::UNSTABLE => 0,
        stable_how::DATA_SYNC => 1,
        stable_how::FILE_SYNC => 2,
    };
    if rank(committed) < rank(asked) {
        return Err(format!("the server answers {committed} to {asked}"));
    }
    // Data that is stable needs no COMMIT, whatever its attributes do.
    Ok(rank(committed) > 0)
}

fn broken(doing: &str, claim: &str) -> Error {
    Error::new(
        Phase::Io,
        Kind::Protocol,
        format!("could not {doing}: {claim}, which breaks the protocol"),
    )
}

impl Session for Lane {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        let moved = match op.direction {
            Direction::Read => self.read(op, slots),
            Direction::Write if self.writes => self.write(op, slots),
            Direction::Write => Err(Error::new(
                Phase::Io,
                Kind::Safety,
                format!("'{}' is open for reading only", self.object),
            )),
        };
        match moved {
            Ok(bytes) => Ok(Submit::Done(Completion {
                slot: op.slot,
                bytes,
            })),
            Err(error) => Err(self.tied(error)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        let object = &self.object;
        let args = COMMIT3args {
            file: std::mem::take(&mut self.file),
            offset: 0,
            count: 0,
        };
        self.wire_ops += 1;
        let doing = || format!("make the writes to '{object}' durable (COMMIT)");
        let client = &mut self.mounted.client;
        client.set_limit(self.flush_timeout);
        let committed = client.call(Phase::Flush, doing, async |nfs| nfs.commit(&args).await);
        client.set_limit(self.io_timeout);
        self.file = args.file;
        let committed = committed?;
        if self.restarts.verifier.is_some() {
            self.restarts.note(committed.verf);
        }
        if self.restarts.take() {
            return Err(self.tied(Error::new(
                Phase::Flush,
                Kind::Gone,
                format!(
                    "the server restarted while '{}' was being written (its write verifier changed), so writes \
                     that it had accepted may be lost: measure again on a server that stays up",
                    self.object
                ),
            )));
        }
        Ok(())
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.wire_ops)
    }

    fn negotiated(&self) -> String {
        format!(
            "vers=3 rtmax={} wtmax={} sec=sys",
            self.mounted.limits.rtmax, self.mounted.limits.wtmax
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Behaviour, attach, serve};
    use super::*;

    const LEN: u32 = 20_000;

    fn lane(behaviour: Behaviour, durability: Durability) -> (Lane, Slots) {
        let lane = Lane::open(&serve(behaviour), &attach(durability), Life::Once).expect("open");
        let mut slots = Slots::new(2, LEN as usize).expect("two slots");
        for (at, byte) in slots.get_mut(0, LEN).iter_mut().enumerate() {
            *byte = (at * 31 % 251) as u8;
        }
        (lane, slots)
    }

    const fn op(direction: Direction, len: u32) -> Op {
        Op {
            direction,
            offset: 5,
            len,
            slot: match direction {
                Direction::Write => 0,
                Direction::Read => 1,
            },
        }
    }

    fn moved(lane: &mut Lane, slots: &mut Slots, op: Op) -> u32 {
        match lane.submit(op, slots).expect("moved") {
            Submit::Done(done) => done.bytes,
            Submit::Queued => panic!("this engine has nothing under way"),
        }
    }

    #[test]
    fn blocks_are_split_and_short_counts_continued() {
        for (short, calls) in [(u32::MAX, 3), (3000, 7)] {
            let behaviour = Behaviour {
                short,
                later: 1,
                ..Behaviour::default()
            };
            let (mut lane, mut slots) = lane(behaviour, Durability::Flush);
            assert_eq!(moved(&mut lane, &mut slots, op(Direction::Write, LEN)), LEN);
            assert_eq!(lane.wire_ops(), Some(calls));
            assert_eq!(moved(&mut lane, &mut slots, op(Direction::Read, LEN)), LEN);
            assert_eq!(lane.wire_ops(), Some(2 * calls));
            assert!(slots.get(0, LEN) == slots.get(1, LEN), "short {short}");
            lane.flush().expect("flushed");
        }
    }

    #[test]
    fn a_read_ends_with_the_file() {
        let (mut lane, mut slots) = lane(Behaviour::default(), Durability::Flush);
        assert_eq!(moved(&mut lane, &mut slots, op(Direction::Read, LEN)), 0);
        moved(&mut lane, &mut slots, op(Direction::Write, 9000));
        assert_eq!(moved(&mut lane, &mut slots, op(Direction::Read, LEN)), 9000);
    }

    #[test]
    fn a_restart_before_the_flush_is_lost_data() {
        // Between two writes, and between the last write and the flush.
        for restart_after in [1, 2] {
            let behaviour = Behaviour {
                restart_after: Some(restart_after),
                ..Behaviour::default()
            };
            let (mut lane, mut slots) = lane(behaviour, Durability::Flush);
            moved(&mut lane, &mut slots, op(Direction::Write, 10));
            lane.flush().expect("one life so far");
            for _ in 0..3 {
                moved(&mut lane, &mut slots, op(Direction::Write, 10));
            }
            let flushed = lane.flush();
            if restart_after == 1 {
                flushed.expect("all three in the second life");
                continue;
            }
            let error = flushed.expect_err("the first of the three is lost");
            assert_eq!((error.phase, error.kind), (Phase::Flush, Kind::Gone));
            lane.flush().expect("told once");
        }
    }

    #[test]
    fn a_server_that_moves_nothing_is_an_error() {
        for direction in [Direction::Read, Direction::Write] {
            let behaviour = Behaviour {
                nothing: true,
                ..Behaviour::default()
            };
            let (mut lane, mut slots) = lane(behaviour, Durability::Flush);
            let error = lane
                .submit(op(direction, 100), &mut slots)
                .expect_err("no progress");
            assert_eq!((error.phase, error.kind), (Phase::Io, Kind::Protocol));
        }
    }

    #[test]
    fn a_durable_write_must_be_durable() {
        for (asked, committed, good) in [
            (Durability::Sync, stable_how::UNSTABLE, false),
            (Durability::Sync, stable_how::DATA_SYNC, false),
            (Durability::Sync, stable_how::FILE_SYNC, true),
            (Durability::Datasync, stable_how::UNSTABLE, false),
            (Durability::Datasync, stable_how::DATA_SYNC, true),
            (Durability::Datasync, stable_how::FILE_SYNC, true),
        ] {
            let behaviour = Behaviour {
                committed,
                ..Behaviour::default()
            };
            let (mut lane, mut slots) = lane(behaviour, asked);
            let wrote = lane.submit(op(Direction::Write, 100), &mut slots);
            assert_eq!(wrote.is_ok(), good, "{asked:?} {committed}: {wrote:?}");
        }
    }

    #[test]
    fn a_lost_connection_stays_lost() {
        let behaviour = Behaviour {
            closes: true,
            ..Behaviour::default()
        };
        let (mut lane, mut slots) = lane(behaviour, Durability::Flush);
        for _ in 0..2 {
            let error = lane
                .submit(op(Direction::Write, 100), &mut slots)
                .expect_err("closed");
            assert_eq!((error.phase, error.kind), (Phase::Io, Kind::Gone));
            assert!(error.target.starts_with("nfs://127.0.0.1"), "{error}");
        }
        assert_eq!(lane.flush().expect_err("closed").phase, Phase::Flush);
    }

    #[test]
    fn a_server_of_tiny_blocks_is_refused() {
        let behaviour = Behaviour {
            most: 4096,
            ..Behaviour::default()
        };
        let error = Lane::open(&serve(behaviour), &attach(Durability::Flush), Life::Once)
            .err()
            .expect("too small");
        assert_eq!((error.phase, error.kind), (Phase::Open, Kind::Unsupported));
    }

    #[test]
    fn a_changed_verifier_is_a_restart_once() {
        let (one, two) = (writeverf3([1; 8]), writeverf3([2; 8]));
        let mut restarts = Restarts::default();
        for verifier in [one, one, one] {
            restarts.note(verifier);
        }
        assert!(!restarts.take(), "one life");
        restarts.note(two);
        assert!(!restarts.take(), "what was flushed before is safe");
        for verifier in [one, two, two] {
            restarts.note(verifier);
        }
        assert!(restarts.take());
        assert!(!restarts.take(), "told once");
    }
}
