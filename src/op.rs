//! The vocabulary of the data path: one operation, its completion, and what "written" means.
//!
//! Must not know: protocols, workloads, clocks.

use serde::{Deserialize, Serialize};

/// Which way bytes move, seen from this computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the target to this computer.
    Read,
    /// From this computer to the target.
    Write,
}

/// One read or write of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// Read or write.
    pub direction: Direction,
    /// First byte in the object (file, LUN, mapping), in bytes.
    pub offset: u64,
    /// Length in bytes; never more than the slot holds.
    pub len: u32,
    /// The buffer that it fills or empties.
    pub slot: u16,
}

/// An operation that ended well; a failure ends the session instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the operation that ended.
    pub slot: u16,
    /// Bytes moved: the operation's length, or less at the end of a file.
    pub bytes: u32,
}

/// One operation on a whole small file, or on the directory that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOp {
    /// Make a file that was not there, write its content, close it.
    Create,
    /// Open a file, read all of it, close it.
    Open,
    /// Ask for a file's size by its name.
    Stat,
    /// List the whole directory.
    List,
    /// Give a file another name in its directory.
    Rename,
    /// Remove a file.
    Remove,
}

/// What became of a submitted operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submit {
    /// It ended already.
    Done(Completion),
    /// It is under way; `reap` will report it.
    Queued,
}

/// When a write counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Accepted by the target; never flushed.
    None,
    /// Accepted, then one flush (fsync, COMMIT, SYNCHRONIZE CACHE) timed apart at the end.
    #[default]
    Flush,
    /// The data of each write is stable before the next (`O_DSYNC`, `DATA_SYNC`, FUA).
    Datasync,
    /// Each write is stable before the next, times and other attributes too (`O_SYNC`, `FILE_SYNC`, FUA).
    Sync,
}

impl Direction {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl FileOp {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    /// Which counters it goes to: what changes the directory counts as writing, what only asks as reading.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Create | Self::Rename | Self::Remove => Direction::Write,
            Self::Open | Self::Stat | Self::List => Direction::Read,
        }
    }

    /// Whether a file's content moves.
    #[must_use]
    pub const fn moves_content(self) -> bool {
        matches!(self, Self::Create | Self::Open)
    }

    /// Whether each file allows it once only, so that the work has an end whatever the time.
    #[must_use]
    pub const fn finite(self) -> bool {
        matches!(self, Self::Create | Self::Remove)
    }
}

impl Durability {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Flush => "flush",
            Self::Datasync => "datasync",
            Self::Sync => "sync",
        }
    }

    /// Whether each write is durable by itself, so that none waits for a flush.
    #[must_use]
    pub const fn each_write(self) -> bool {
        matches!(self, Self::Datasync | Self::Sync)
    }
}
