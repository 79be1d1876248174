//! Marks on rows: what a reader must know before believing a figure, each with advice.
//!
//! Pure. Must not know: how a mark was found.

use serde::{Deserialize, Serialize};

/// A mark on a row, with advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// This computer's page cache answered.
    ClientCached,
    /// This computer's kernel keeps names and attributes, and may have answered.
    NamesCached,
    /// The server's memory can hold all of it.
    ServerCached,
    /// Accepted by the target but never flushed.
    NotDurable,
    /// The payload compresses or deduplicates.
    Compressible,
    /// Too little time or too few operations for a figure.
    TooShort,
    /// Making the payload was not clearly faster than writing it.
    GeneratorBound,
    /// Client and server share this machine.
    Loopback,
    /// Blocks were split for the wire.
    BlockSplit,
    /// Cut short.
    Interrupted,
    /// The server went away.
    ServerLost,
    /// The size stored differs from the size written, or files from those made or removed.
    WrongSizeStored,
    /// A user's own file or device was read.
    UserFile,
    /// The server is nasgauge's own: a functional check, not a ceiling.
    Embedded,
    /// The session is a guest's: neither signed nor encrypted.
    GuestSession,
    /// The system is a guest of Windows: figures include its virtual network.
    Wsl,
    /// Later repeats were steadily faster or slower than earlier ones.
    Trend,
    /// Parts of it were far slower than the rest.
    NotSteady,
    /// Faster than the link here can be.
    AboveLineRate,
    /// The interface here is one of software.
    VirtualLink,
    /// Segments are smaller than the MTU here.
    MtuMismatch,
    /// The kernel's counters did not see the bytes.
    CountersDisagree,
    /// It began much faster than it went on.
    CacheCliff,
    /// The best of several runs.
    Max,
}

impl Flag {
    /// The CSV key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::ClientCached => "client_cached",
            Self::NamesCached => "names_cached",
            Self::ServerCached => "server_cached",
            Self::NotDurable => "not_durable",
            Self::Compressible => "compressible",
            Self::TooShort => "too_short",
            Self::GeneratorBound => "generator_bound",
            Self::Loopback => "loopback",
            Self::BlockSplit => "block_split",
            Self::Interrupted => "interrupted",
            Self::ServerLost => "server_lost",
            Self::WrongSizeStored => "wrong_size_stored",
            Self::UserFile => "user_file",
            Self::Embedded => "embedded",
            Self::GuestSession => "guest_session",
            Self::Wsl => "wsl",
            Self::Trend => "trend",
            Self::NotSteady => "not_steady",
            Self::AboveLineRate => "above_line_rate",
            Self::VirtualLink => "virtual_link",
            Self::MtuMismatch => "mtu_mismatch",
            Self::CountersDisagree => "counters_disagree",
            Self::CacheCliff => "cache_cliff",
            Self::Max => "max",
        }
    }

    /// What it means for the reader, in a sentence.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::ClientCached => {
                "this computer's memory answered, not the storage: use --direct 1 or a --size beyond its memory"
            }
            Self::NamesCached => {
                "this computer's kernel keeps names and attributes in memory and may have answered: compare \
                 with nfs:// or smb://, which keep nothing"
            }
            Self::ServerCached => {
                "the server's memory can hold the whole file: use a --size of twice its memory for the disks"
            }
            Self::NotDurable => {
                "the writes were accepted, but nothing proves that they reached stable storage"
            }
            Self::Compressible => {
                "the payload compresses or deduplicates, so this is no figure of the disks"
            }
            Self::TooShort => {
                "under 3 s or under 100 operations: use a longer --runtime, or more files"
            }
            Self::GeneratorBound => {
                "making the data was not clearly faster than writing it: the target may be faster than shown"
            }
            Self::Loopback => {
                "client and server share this machine's processor: no figure of a network"
            }
            Self::BlockSplit => "the server takes smaller requests than the block size asked for",
            Self::Interrupted => "stopped before its end",
            Self::ServerLost => "the server stopped answering",
            Self::WrongSizeStored => "the server does not hold what it accepted",
            Self::UserFile => {
                "your own data was read, as it is: its compressibility and cache state are unknown"
            }
            Self::Embedded => {
                "measured against nasgauge's own demonstration server: a check that all works, not a ceiling"
            }
            Self::GuestSession => {
                "a guest session is not signed: compare it only with other unsigned ones"
            }
            Self::Wsl => {
                "WSL2 reaches the network through a virtual switch of Windows: native figures may be higher"
            }
            Self::NotSteady => {
                "parts of it were far slower than the rest: look at intervals.csv, and measure for longer"
            }
            Self::AboveLineRate => {
                "faster than the link here can be: its named speed is not the truth, or the data took another way"
            }
            Self::VirtualLink => {
                "the interface is one of software (veth, bridge, a virtual machine's): no figure of a cable or a switch"
            }
            Self::MtuMismatch => {
                "packets on the way are smaller than this PC's MTU: make both ends and the switches agree"
            }
            Self::Trend => {
                "something fills, warms up or throttles, so the mean depends on how long it went on: look at the single \
                 repeats, try a longer --settle or --ramp-time"
            }
            Self::CountersDisagree => {
                "this computer's own counters of its network or disk differ by more than 5 % from the bytes claimed: a cache \
                 or compression stood in between, or the figure is wrong; don't rely on it"
            }
            Self::CacheCliff => {
                "it began much faster than it went on: a cache took the first part, and what lasts is the slower rate"
            }
            Self::Max => {
                "the best of several runs, not a mean: compare it only with other best ones"
            }
        }
    }
}
