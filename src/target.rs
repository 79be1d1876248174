//! What can be measured: one file a protocol, one line each in [`PROTOCOLS`].
//!
//! Read first: a [`Protocol`] offers two ways in. The *control* side ([`Control`]) creates, inspects and removes
//! what a run needs; only `guard` uses it. The *data* side ([`Session`]) moves blocks for one worker; only the
//! engine uses it. A blocking library implements `submit` alone; one that keeps operations under way returns
//! [`Submit::Queued`] and implements `reap` too. Where a target has files, its data side has a second door
//! ([`Folder`]): whole small files, one operation at a time.
//!
//! Must not know: workloads, stages, or, within one protocol's file, any other protocol.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::op::{Completion, Durability, Op, Submit};
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;

pub mod block;
mod ceiling;
mod discovery;
pub mod file;
#[cfg(feature = "iscsi")]
pub mod iscsi;
pub mod local;
pub mod nfs;
pub mod null;
pub mod ram;
pub mod sim;
#[cfg(feature = "smb")]
pub mod smb;
mod stream;

pub use ceiling::Ceiling;
pub use discovery::{Discovery, Offer, Search};

/// Marks a HOME that nasgauge made for a child process, in which a protocol may write its library's configuration.
pub const HOME_MARKER: &str = ".nasgauge-home";

/// How many I/O timeouts a flush may take.
const FLUSH_PATIENCE: u64 = 3;

/// A way to reach storage.
pub struct Protocol {
    /// The URI scheme and the CSV key.
    pub name: &'static str,
    /// A URI that shows the form, for error messages and help.
    pub example: &'static str,
    /// The URI options it takes, each with its meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Checks a parsed URI without touching anything.
    pub check: fn(&TargetSpec) -> Result<()>,
    /// What this target can do, as far as its URI tells.
    pub caps: fn(&TargetSpec) -> Caps,
    /// Opens the control side.
    pub control: fn(&Login) -> Result<Control>,
    /// Opens the data side for one worker.
    pub connect: fn(&Login, &Attach) -> Result<Box<dyn Session>>,
    /// Opens the directory that [`Attach::object`] names, for one worker on small files; None where the target has no
    /// files.
    pub folder: Option<OpenFolder>,
}

/// Opens a directory of small files for one worker.
pub type OpenFolder = fn(&Login, &Attach) -> Result<Box<dyn Folder>>;

/// Every protocol that this build has.
pub const PROTOCOLS: &[&Protocol] = &[
    &ram::PROTOCOL,
    &file::PROTOCOL,
    &block::PROTOCOL,
    &nfs::PROTOCOL,
    #[cfg(feature = "smb")]
    &smb::PROTOCOL,
    #[cfg(feature = "iscsi")]
    &iscsi::PROTOCOL,
    &null::PROTOCOL,
    &sim::PROTOCOL,
];

/// Where a protocol's workers may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// Threads of this process.
    Shared,
    /// A process each, since the client library holds one lock for all of a process.
    PerProcess,
}

/// What a target can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Operations that one session keeps under way; 1 for a blocking library.
    pub iodepth_max: u16,
    /// Where its workers may run.
    pub threads: Threads,
    /// Where its control side may run.
    pub control: Threads,
    /// Whether a flush makes accepted writes durable; without it writes are `not_durable`.
    pub flush: bool,
    /// Whether single writes can be made durable each.
    pub sync: bool,
    /// Whether data can be read back, so that `verify` means something.
    pub stores: bool,
    /// The engine's name for the CSV: which client moved the bytes.
    pub engine: &'static str,
    /// Network connections that one session opens; 0 for a local target.
    pub connections: u16,
    /// Where to look for its ceiling first; None where none was measured.
    pub ceiling: Option<Ceiling>,
}

/// A secret that never shows.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub Option<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "<hidden>"
        } else {
            "<none>"
        })
    }
}

/// How to reach a target: its URI, the password that is not in it, and how long to wait.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Login {
    /// The parsed URI.
    pub spec: TargetSpec,
    /// The password or CHAP secret.
    pub secret: Secret,
    /// Longest wait for a connection or a control call, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Longest wait for any single operation, in milliseconds; then the server counts as lost.
    pub io_timeout_ms: u64,
}

impl Login {
    /// The longest wait for a connection or a control call.
    #[must_use]
    pub const fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    /// The longest wait for a single operation.
    #[must_use]
    pub const fn io_timeout(&self) -> Duration {
        Duration::from_millis(self.io_timeout_ms)
    }

    /// The longest wait for a flush: a server may have gigabytes of accepted writes to bring to its disks.
    #[must_use]
    pub const fn flush_timeout(&self) -> Duration {
        Duration::from_millis(self.io_timeout_ms.saturating_mul(FLUSH_PATIENCE))
    }
}

/// What a session works on, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The file, relative to the URI's directory (or whatever the control side named it); empty for a device. For a
    /// [`Folder`] the directory.
    pub object: String,
    /// Opened for writing too.
    pub write: bool,
    /// Bypass this computer's page cache, where the protocol has one.
    pub direct: bool,
    /// When a write counts as written.
    pub durability: Durability,
    /// Operations that the engine will keep under way.
    pub iodepth: u16,
    /// The largest operation in bytes.
    pub block_max: u32,
    /// Which of the workload's sessions this is, from 0: a protocol may spread them over addresses.
    pub lane: u16,
    /// The round, from 1, 0 before the first: a simulated target changes with it.
    pub round: u32,
}

/// One worker's connection to the data.
pub trait Session {
    /// Learns the slots that operations will use, once, before the measured time: a chance to do then what need not be
    /// done for each. A session that was told nothing works too.
    fn prepare(&mut self, _slots: &mut Slots) -> Result<()> {
        Ok(())
    }

    /// Starts one operation on a slot that the engine keeps aside until it completes.
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit>;

    /// Waits for queued operations: returns once at least one completion is in `done`, or, with `until`, when
    /// that time of [`Session::clock`] has passed. Fails when nothing came within the I/O timeout.
    fn reap(
        &mut self,
        _until: Option<u64>,
        _slots: &mut Slots,
        _done: &mut Vec<Completion>,
    ) -> Result<()> {
        Ok(())
    }

    /// Makes all accepted writes durable.
    fn flush(&mut self) -> Result<()>;

    /// Whether [`flush`](Self::flush) can do that. A target whose `caps` promise it may find out at the open that this
    /// server does not let it; then its writes are `not_durable`.
    fn flushes(&self) -> bool {
        true
    }

    /// Requests sent to the peer so far: more than the engine's operations where blocks were split.
    /// None where there is no wire or the library hides it.
    fn wire_ops(&self) -> Option<u64> {
        None
    }

    /// What the peers agreed on, as `key=value` words for the CSV; empty where there is no peer. The word `engine`
    /// names the client where the depth decided it.
    fn negotiated(&self) -> String {
        String::new()
    }

    /// The clock that times this session.
    fn clock(&self) -> Clock {
        Clock::Monotonic
    }
}

/// One worker's connection to a run's directory of small files. Names are plain: the directory is the one of
/// [`Attach::object`], and nothing outside of it can be meant. Each call is one operation under the clock, so it does
/// what a program does for it and nothing besides, and nothing of this program's own remembers an answer.
pub trait Folder {
    /// Makes a file that was not there, writes all of `content` and closes it; with `durable`, it is on stable storage
    /// when this returns. Fails with `Exists` when anything of that name is there.
    fn create(&mut self, name: &str, content: &[u8], durable: bool) -> Result<()>;
    /// Opens a file, reads `buffer.len()` bytes or what there is, closes it; gives how many were read.
    fn read(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize>;
    /// The size in bytes of the file of this name, as the server has it; None of a target that stores nothing.
    fn size(&mut self, name: &str) -> Result<Option<u64>>;
    /// Lists the whole directory; gives the number of entries, `.` and `..` left out.
    fn list(&mut self) -> Result<u64>;
    /// Gives a file a name that no other has.
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> Result<()>;

    /// Requests sent to the peer so far; None where there is no wire or the library hides it.
    fn wire_ops(&self) -> Option<u64> {
        None
    }

    /// What the peers agreed on, as [`Session::negotiated`] has it; its word `engine` names the client of small files
    /// where it is another than that of blocks.
    fn negotiated(&self) -> String {
        String::new()
    }

    /// The clock that times it.
    fn clock(&self) -> Clock {
        Clock::Monotonic
    }
}

/// The control side, by the nature of the target.
pub enum Control {
    /// A directory in which files can be made.
    Files(Box<dyn Files>),
    /// One addressable medium: a block device or a LUN.
    Device(Box<dyn Device>),
    /// Memory that ends with the run; nothing of a user's can be harmed.
    Volatile(Box<dyn Volatile>),
}

/// What `inspect` shows, as label and value pairs in reading order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Label and value, for people.
    pub lines: Vec<(String, String)>,
    /// Bytes that can still be written, where known.
    pub free_bytes: Option<u64>,
    /// Files that can still be made, where known and bounded.
    pub free_files: Option<u64>,
    /// The server's name and version, where it tells.
    pub server: Option<String>,
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name, without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
}

/// A directory on a target. Paths are relative to the URI's directory, with `/` between parts; names that hold
/// `/`, or are `.` or `..`, never reach it.
pub trait Files {
    /// What is there, and what was negotiated. Nothing is written.
    fn facts(&mut self) -> Result<Facts>;
    /// Names in a directory, "" being the URI's own.
    fn list(&mut self, directory: &str) -> Result<Vec<Entry>>;
    /// Makes a directory; fails with `Exists` when it is there.
    fn make_directory(&mut self, path: &str) -> Result<()>;
    /// Makes an empty file; fails with `Exists` when anything of that name is there. Never truncates.
    fn create(&mut self, path: &str) -> Result<()>;
    /// Makes a small file with this content, durable; fails with `Exists` as [`Files::create`] does.
    fn put(&mut self, path: &str, content: &[u8]) -> Result<()>;
    /// The first `limit` bytes of a file.
    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>>;
    /// The size of a file in bytes, as the server has it.
    fn size(&mut self, path: &str) -> Result<u64>;
    /// Bytes of the file that are holes or unwritten extents; None where the target can't tell.
    fn unwritten(&mut self, path: &str) -> Result<Option<u64>>;
    /// Removes a file.
    fn remove(&mut self, path: &str) -> Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&mut self, path: &str) -> Result<()>;
    /// The alignment in bytes that direct I/O needs, where it is known and more than 1.
    fn direct_alignment(&mut self, _path: &str) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Brings to storage what this computer still holds of the file and of its file system; used between cells. Nothing
    /// where this computer holds nothing.
    fn write_back(&mut self, _path: &str) -> Result<()> {
        Ok(())
    }
    /// Forgets what this computer caches of the file, where it can; used before cold reads.
    fn drop_cache(&mut self, _path: &str) -> Result<()> {
        Ok(())
    }
}

/// Who a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The serial number that `--destroy` must name; empty when the device has none.
    pub serial: String,
    /// Vendor, model or kind.
    pub model: String,
    /// Bytes on the medium.
    pub capacity: u64,
    /// Bytes in a logical block.
    pub block: u32,
    /// Whether the device refuses writes.
    pub write_protected: bool,
}

/// A block device or LUN. Offsets and lengths are multiples of the logical block.
pub trait Device {
    /// What is there, and what was negotiated. Nothing is written.
    fn facts(&mut self) -> Result<Facts>;
    /// Serial, size and block length of the device that is open.
    fn identity(&mut self) -> Result<Identity>;
    /// Why this computer's system needs the device: mounts, holders, swap. Empty when nothing does.
    fn holders(&mut self) -> Result<Vec<String>>;
    /// Reads a few blocks.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Writes a few blocks.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes them durable.
    fn flush(&mut self) -> Result<()>;
}

/// Memory, or nothing at all.
pub trait Volatile {
    /// What is there.
    fn facts(&mut self) -> Result<Facts>;
    /// Makes room for `size` bytes and names the object that sessions attach to.
    fn provide(&mut self, size: u64) -> Result<String>;
}

/// The protocol of a URI.
pub fn find(spec: &TargetSpec) -> Result<&'static Protocol> {
    PROTOCOLS
        .iter()
        .copied()
        .find(|protocol| protocol.name == spec.protocol)
        .ok_or_else(|| {
            // The URI parser knows every scheme, also those that a build leaves out.
            let message = format!(
                "this build of nasgauge has no {} (cargo feature '{0}')",
                spec.protocol
            );
            Error::usage(message).at(&spec.uri)
        })
}

/// Checks a URI against its protocol's options and form; touches nothing.
pub fn check(spec: &TargetSpec) -> Result<&'static Protocol> {
    let protocol = find(spec)?;
    for key in spec.options.keys() {
        if !protocol.options.iter().any(|(name, _)| name == key) {
            let known: Vec<&str> = protocol.options.iter().map(|(name, _)| *name).collect();
            let allowed = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Error::usage(format!(
                "unknown option '{key}' for {}; allowed: {allowed}; as in {}",
                protocol.name, protocol.example
            ))
            .at(&spec.uri));
        }
    }
    (protocol.check)(spec).map_err(|error| error.at(&spec.uri))?;
    Ok(protocol)
}
