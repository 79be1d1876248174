//! What `file:` and `block:` share: an open file of the kernel and the three ways to move its bytes.
//!
//! Read first: [`Opened`] is the file with all that a data path must know of it; [`Engine`] is the user's choice
//! between `psync` (one blocking call an operation), `io_uring` (many under way) and `mmap` (copies from and to a
//! mapping). A blocking call on a hung device or hard mount can't be cut short: only `io_uring` keeps the I/O
//! timeout. Must not know: directories, devices, or how either is inspected. Sizes and offsets are in bytes.

pub mod direct;
pub mod mmap;
pub mod psync;
pub mod uring;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Direction, Durability};
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Session};

/// The most operations that one `io_uring` session keeps under way.
pub const URING_DEPTH_MAX: u16 = 1024;

/// A way to move the bytes of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// `pread` and `pwrite`, one after the other.
    Psync,
    /// `io_uring`, as many under way as the workload asks for.
    IoUring,
    /// `memcpy` from and to a shared mapping.
    Mmap,
}

impl Engine {
    /// The key in URIs and the CSV.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::IoUring => "io_uring",
            Self::Mmap => "mmap",
        }
    }

    /// The URI's `engine` option, which must be one of `allowed`; None when it is not given.
    pub fn of(spec: &TargetSpec, allowed: &[Self]) -> Result<Option<Self>> {
        let Some(wanted) = spec.options.get("engine") else {
            return Ok(None);
        };
        let found = allowed.iter().copied().find(|one| one.key() == wanted);
        found.map(Some).ok_or_else(|| {
            let known: Vec<&str> = allowed.iter().map(|one| one.key()).collect();
            Error::usage(format!(
                "engine={wanted} is not one of {} for {}",
                known.join(", "),
                spec.protocol
            ))
            .at(&spec.uri)
        })
    }

    /// Operations that one session of this choice keeps under way on this kernel.
    #[must_use]
    pub fn depth_max(choice: Option<Self>) -> u16 {
        match choice {
            None | Some(Self::IoUring) if uring::permitted() => URING_DEPTH_MAX,
            _ => 1,
        }
    }

    /// What a session uses: the user's choice, else `psync` at depth 1 and `io_uring` above.
    fn resolve(choice: Option<Self>, iodepth: u16) -> Result<Self> {
        let engine = choice.unwrap_or(if iodepth > 1 {
            Self::IoUring
        } else {
            Self::Psync
        });
        if engine != Self::IoUring && iodepth > 1 {
            return Err(Error::usage(format!(
                "engine {} keeps one operation under way, not {iodepth}; use engine=io_uring or more lanes",
                engine.key()
            )));
        }
        if engine == Self::IoUring && !uring::permitted() {
            return Err(Error::new(
                Phase::Open,
                Kind::Unsupported,
                "this kernel does not permit io_uring (older than 5.11, kernel.io_uring_disabled, or a \
                 container's seccomp filter); use engine=psync with more lanes",
            ));
        }
        Ok(engine)
    }
}

/// An open file and what its data path must know.
#[derive(Debug)]
pub struct Opened {
    /// The file, opened with all flags that its use needs.
    pub file: File,
    /// Its name for error messages.
    pub name: String,
    /// Whether it was opened for writing.
    pub write: bool,
    /// With `O_DIRECT`: the alignment of offsets and lengths in bytes, 1 when none is needed. None when buffered.
    pub direct: Option<u64>,
    /// When a write counts as written; `Datasync` and `Sync` mean that the file was opened so.
    pub durability: Durability,
    /// Longest wait for one operation.
    pub io_timeout: Duration,
    /// Kept open as long as the file: what makes it ours alone.
    pub companion: Option<Arc<OwnedFd>>,
}

impl Opened {
    /// Starts a session with the user's choice of engine, after checking what direct I/O asks for.
    pub fn start(self, choice: Option<Engine>, attach: &Attach) -> Result<Box<dyn Session>> {
        let engine = Engine::resolve(choice, attach.iodepth)?;
        if let Some(alignment) = self.direct {
            self.check_direct(engine, alignment, attach.block_max)?;
        }
        Ok(match engine {
            Engine::Psync => Box::new(psync::Psync::new(self)),
            Engine::IoUring => Box::new(uring::Uring::new(self, attach.iodepth)?),
            Engine::Mmap => Box::new(mmap::Mmap::new(self)?),
        })
    }

    fn check_direct(&self, engine: Engine, alignment: u64, block: u32) -> Result<()> {
        if engine == Engine::Mmap {
            return Err(Error::usage(
                "engine=mmap goes through the page cache by nature: leave direct out, or use engine=psync or io_uring",
            ));
        }
        if !u64::from(block).is_multiple_of(alignment) {
            return Err(Error::usage(format!(
                "a block of {block} bytes is not a multiple of {alignment}, as direct I/O on {} needs; change the \
                 block size or use direct=0",
                self.name
            )));
        }
        Ok(())
    }

    /// The words about this session for the CSV.
    fn words(&self, engine: Engine) -> String {
        match self.direct {
            None => format!("engine={} direct=0", engine.key()),
            Some(alignment) => format!("engine={} direct=1 align={alignment}", engine.key()),
        }
    }

    /// Whether a direct transfer that stopped after `done` bytes of an operation can only have met the file's end:
    /// going on from an unaligned offset would be refused.
    #[inline]
    fn stopped_unaligned(&self, done: usize) -> bool {
        self.direct
            .is_some_and(|alignment| !(done as u64).is_multiple_of(alignment))
    }

    /// Fills `buffer` from `offset`; fewer bytes only at the end of the file.
    #[inline]
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() && !self.stopped_unaligned(done) {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(self.failed(
                        Direction::Read,
                        buffer.len() - done,
                        offset + done as u64,
                        &error,
                    ));
                }
            }
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`.
    #[inline]
    pub fn write(&self, data: &[u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let error = match self.file.write_at(&data[done..], offset + done as u64) {
                Ok(0) => io::Error::from(ErrorKind::WriteZero),
                Ok(bytes) => {
                    done += bytes;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(self.failed(
                Direction::Write,
                data.len() - done,
                offset + done as u64,
                &error,
            ));
        }
        Ok(done)
    }

    /// Makes accepted writes durable: data, and the metadata that is needed to find it.
    pub fn sync(&self) -> Result<()> {
        loop {
            match self.file.sync_data() {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Opened for reading on a file system that then has nothing to write back.
                Err(error) if !self.write && error.kind() == ErrorKind::InvalidInput => {
                    return Ok(());
                }
                Err(error) => {
                    return Err(fault(
                        Phase::Flush,
                        &error,
                        &format!("flush {}", self.name),
                        "",
                    ));
                }
            }
        }
    }

    /// The error of one operation, in words.
    #[cold]
    #[must_use]
    pub fn failed(
        &self,
        direction: Direction,
        bytes: usize,
        offset: u64,
        error: &io::Error,
    ) -> Error {
        let doing = format!(
            "{} {bytes} bytes at offset {offset} of {}",
            direction.key(),
            self.name
        );
        let advice = match (error.kind(), self.direct) {
            (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => {
                "; free some space or use a smaller size"
            }
            (ErrorKind::InvalidInput, Some(_)) => {
                "; direct I/O refused this offset or length: use another block size or direct=0"
            }
            (ErrorKind::StaleNetworkFileHandle, _) => {
                "; the server no longer knows the file: was it removed, or the export changed?"
            }
            _ => "",
        };
        fault(Phase::Io, error, &doing, advice)
    }
}

/// A system call's error with advice after it, and the kinds that only local files and devices show.
#[cold]
#[must_use]
pub fn fault(phase: Phase, error: &io::Error, doing: &str, advice: &str) -> Error {
    use rustix::io::Errno;
    let mut made = Error::io(phase, error, doing);
    made.message.push_str(advice);
    made.kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::STALE | Errno::NODEV | Errno::NXIO | Errno::HOSTDOWN | Errno::NOTCONN) => {
            Kind::Gone
        }
        Some(Errno::OPNOTSUPP) => Kind::Unsupported,
        _ => made.kind,
    };
    made
}

#[cfg(test)]
pub(crate) mod tests;
