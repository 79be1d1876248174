//! The data side: one open file, read and written through libsmbclient.
//!
//! libsmbclient exports nothing that sends FLUSH. It goes through a second handle on the same file, on a connection of
//! [`Pipe`]'s: a server's FLUSH is for the file, whoever wrote it (measured: smbd calls fsync). Where that connection
//! can't be had (only libsmbclient encrypts), writes stay accepted, not durable. Must not know: how it logged in, or
//! who made the file. Units: bytes.

use std::io::{self, Read, Seek, SeekFrom, Write};

use pavao::{SmbClient, SmbFile, SmbOpenOptions};

use super::pipe::Pipe;
use super::share::{Access, Share};
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Durability, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};

/// A file on a share.
pub(super) struct FileSession {
    /// None once the connection is lost: closing a file on a dead connection waits for the time limit again.
    file: Option<SmbFile<'static>>,
    /// What flushes; None where nothing is to be flushed or nothing can.
    flusher: Option<Pipe>,
    access: Access,
    name: String,
    /// Where the library's own offset stands.
    position: u64,
    requests: u64,
}

impl FileSession {
    /// Logs in and opens the file.
    pub fn open(login: &Login, attach: &Attach) -> Result<Self> {
        if attach.durability.each_write() {
            return Err(Error::new(
                Phase::Plan,
                Kind::Unsupported,
                "libsmbclient can't make single writes durable; set durability to none",
            ));
        }
        let Share { client, access } = Share::open(login, attach.lane, login.io_timeout())?;
        let url = access.place.entry_url(&attach.object)?;
        // A file borrows its client, and a session owns both. Its process has this one session, so the client may
        // as well stay to the end of it: what is leaked is one connection.
        let client: &'static SmbClient = Box::leak(Box::new(client));
        let options = SmbOpenOptions::default().read(true).write(attach.write);
        let file = client.open_with(url, options).map_err(|error| {
            access.fault(
                Phase::Open,
                error,
                &format!("open '{}' on share '{}'", attach.object, access.place.share),
            )
        })?;
        Ok(Self {
            file: Some(file),
            flusher: flusher(login, attach, &access)?,
            access,
            name: attach.object.clone(),
            position: 0,
            requests: 0,
        })
    }

    /// Gives the file up after a failure that its close would only repeat.
    fn fail(&mut self, op: Op, error: &io::Error) -> Error {
        let verb = match op.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let error = self.access.io_fault(
            Phase::Io,
            error,
            &format!(
                "{verb} {} bytes at offset {} of '{}'",
                op.len, op.offset, self.name
            ),
        );
        if error.server_lost() {
            std::mem::forget(self.file.take());
        }
        error
    }
}

/// A second handle on the file that will be written, to flush it with. A server that is lost meanwhile is an error; one that
/// refuses it is not.
fn flusher(login: &Login, attach: &Attach, access: &Access) -> Result<Option<Pipe>> {
    if !attach.write || attach.durability != Durability::Flush || access.place.encrypt {
        return Ok(None);
    }
    let alone = Attach {
        iodepth: 1,
        block_max: 1,
        ..attach.clone()
    };
    match Pipe::open(login, &alone) {
        Ok(flusher) => Ok(Some(flusher)),
        Err(error) if error.server_lost() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Moves all of a block, or, reading, as much as the file holds.
fn move_block(
    file: &mut SmbFile<'static>,
    op: Op,
    slots: &mut Slots,
    position: &mut u64,
) -> io::Result<u32> {
    // The library's seek is local, but takes its lock.
    if *position != op.offset {
        file.seek(SeekFrom::Start(op.offset))?;
        *position = op.offset;
    }
    let mut done = 0_usize;
    while done < op.len as usize {
        let moved = match op.direction {
            Direction::Read => file.read(&mut slots.get_mut(op.slot, op.len)[done..]),
            Direction::Write => file.write(&slots.get(op.slot, op.len)[done..]),
        };
        match moved {
            Ok(0) if op.direction == Direction::Read => break,
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => {
                done += moved;
                *position += moved as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done as u32)
}

impl Session for FileSession {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        let Some(file) = &mut self.file else {
            return Err(Error::new(
                Phase::Io,
                Kind::Gone,
                "the connection was lost before",
            ));
        };
        match move_block(file, op, slots, &mut self.position) {
            Ok(bytes) => {
                let largest = match op.direction {
                    Direction::Read => self.access.server.max_read,
                    Direction::Write => self.access.server.max_write,
                };
                self.requests += u64::from(op.len.div_ceil(largest.max(1)));
                Ok(Submit::Done(Completion {
                    slot: op.slot,
                    bytes,
                }))
            }
            Err(error) => Err(self.fail(op, &error)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.flusher {
            Some(flusher) => flusher.flush(),
            None => Err(Error::new(
                Phase::Flush,
                Kind::Unsupported,
                "libsmbclient has no flush, and no second connection that has could be made, so what it wrote can't be made durable",
            )),
        }
    }

    fn flushes(&self) -> bool {
        self.flusher.is_some()
    }

    /// The library's own split at the server's limit; it may split finer when a server grants few credits.
    fn wire_ops(&self) -> Option<u64> {
        Some(self.requests)
    }

    fn negotiated(&self) -> String {
        let mut words = self.access.negotiated();
        if self.flusher.is_some() {
            words.push_str(" flush=second_handle");
        }
        words
    }
}
