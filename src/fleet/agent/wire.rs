//! The words between this program and its agent on another computer: JSON, one message a line.
//!
//! Both greet first ([`Hello`]); then each [`Ask`] is answered under its number by one or more [`Tell`]s, of which the
//! last one is told by [`Answer::last`]. Must not know: what carries the lines, or who serves them. Times are in
//! seconds, sizes in bytes.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::Tally;
use crate::error::{Error, Kind, Phase, Result};
use crate::probe::cgroup::Throttle;
use crate::probe::sockets::Connection;
use crate::probe::{Counters, Snapshot};
use crate::spec::workload;

/// Counts up with every change of the words below: two builds of one version may differ.
pub const WORDS: u32 = 3;
/// The longest line that either side takes, in bytes; a report with a full histogram is a tenth of it.
pub const LINE_MAX: usize = 4 << 20;
/// How often an agent says [`Answer::Working`] while a request takes its time, in seconds.
pub const WORKING_PERIOD: u64 = 1;
/// The most bytes that a proof compares.
pub const PROOF_BYTES_MAX: usize = 4096;

/// The first line of either side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The program's version.
    pub nasgauge: String,
    /// [`WORDS`].
    pub words: u32,
}

impl Hello {
    /// This program's own.
    #[must_use]
    pub fn own() -> Self {
        Self {
            nasgauge: env!("CARGO_PKG_VERSION").to_owned(),
            words: WORDS,
        }
    }

    /// Refuses a peer of another version; `peer` names it in the sentence.
    pub fn check(&self, peer: &str) -> Result<()> {
        let own = Self::own();
        if *self == own {
            return Ok(());
        }
        let words = if self.nasgauge == own.nasgauge {
            format!(" (words {} and {})", self.words, own.words)
        } else {
            String::new()
        };
        // What a peer calls its version is shown, so it may not hold anything but a version.
        let theirs: String = self.nasgauge.chars().take(40).collect();
        Err(Error::new(
            Phase::Connect,
            Kind::Unsupported,
            format!(
                "{peer} is nasgauge {} and this is nasgauge {}{words}; use the same build on both computers, or \
                 let --agent ssh:[user@]host send it",
                theirs.escape_default(),
                own.nasgauge
            ),
        ))
    }
}

/// A numbered request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Chosen by the asker; answers carry it.
    pub id: u64,
    /// What is wanted.
    pub request: Request,
}

/// What an agent can be asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Facts about the agent's computer.
    Facts,
    /// What moves there: asked before and after a run.
    Counters,
    /// How often groups of its processes were stopped, their share of the processor used up. Apart from the counters, since
    /// there may be thousands of groups.
    Throttle,
    /// The TCP connections of this port of the agent's computer, as its kernel sees them.
    Connections(u16),
    /// One test port; answered by [`Answer::Listening`], and by the last word when the test is over.
    Port(Port),
    /// A run on the agent's own storage.
    Storage(Box<Storage>),
    /// Whether what the client made is there; answered by [`Answer::Found`].
    Find(Marker),
    /// Whether these bytes stand there; answered by [`Answer::Same`].
    Compare(Sample),
    /// Makes the agent's computer forget what it caches of its disks.
    DropCaches,
    /// Makes it forget what it caches of this file or device.
    Forget(String),
    /// Ends the request of this number at once. It is answered by its own last word.
    Cancel(u64),
}

/// A port for one test, of one peer, until a deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// What is served there.
    pub service: Service,
    /// The one address of the agent's computer to listen on.
    pub address: IpAddr,
    /// The port's number; None for one that is free.
    pub port: Option<u16>,
    /// The only address that sees the port at all.
    pub peer: IpAddr,
    /// When it closes, whatever happens, counted from now.
    pub seconds: u64,
}

/// What a one-test port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// One TCP test of an iperf3 client.
    Iperf3,
    /// Requests and answers until the deadline.
    RoundTrip,
}

/// A run on the agent's storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// A directory, in which a file without a name is made and used; or a file or block device, which is read.
    pub path: String,
    /// What to do. A file of `size` is laid first where it will be read, or written in random order.
    pub phase: workload::Phase,
    /// Seed of the pattern and the content.
    pub seed: u64,
    /// When it is given up, the laying included.
    pub seconds: u64,
}

/// What a run on the agent's storage found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageReport {
    /// Reads, with the histogram of their latencies.
    pub read: Tally,
    /// Writes, with the histogram of their latencies.
    pub write: Tally,
    /// From the start to the last completion.
    pub elapsed_ns: u64,
    /// The flush after it; None when nothing was flushed.
    pub flush_ns: Option<u64>,
    /// CPU time of the workers.
    pub cpu_ns: u64,
    /// Bytes that the run fetched from its devices, where the kernel tells (`/proc/self/io`): less than it read when the
    /// cache answered. 0 on ZFS proves nothing, since ZFS does not count there.
    pub device_read_bytes: Option<u64>,
    /// Bytes that the run sent to its devices, in the same way.
    pub device_write_bytes: Option<u64>,
    /// How the file was used, as `key=value` words.
    pub negotiated: String,
}

/// Something with a random name that the client made on its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The directory below which it may be.
    pub path: String,
    /// Its name, without a directory.
    pub name: String,
    /// What its content begins with; empty when the name alone is the proof.
    pub content: String,
}

/// Bytes that the client knows to stand on its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The file or block device.
    pub path: String,
    /// Where in it.
    pub offset: u64,
    /// What stands there.
    pub content: Vec<u8>,
}

/// A numbered answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tell {
    /// The request's number.
    pub id: u64,
    /// What is said.
    pub answer: Answer,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is under way; more follows.
    Working,
    /// The port is open under this number; more follows when the test is over.
    Listening(u16),
    /// It is over, and well.
    Done,
    /// It is over, and not well.
    Failed(Error),
    /// Facts about the agent's computer.
    Facts(Box<Snapshot>),
    /// What moved on it up to now.
    Counters(Box<Counters>),
    /// All groups with a limit together; None where there are none.
    Throttle(Option<Throttle>),
    /// What its kernel tells of the connections of one port.
    Connections(Vec<Connection>),
    /// What a run on the agent's storage found.
    Storage(Box<StorageReport>),
    /// Where below its path the marker is; None when it is not.
    Found(Option<String>),
    /// Whether the bytes are those.
    Same(bool),
}

impl Answer {
    /// Whether nothing more follows under this number.
    #[must_use]
    pub const fn last(&self) -> bool {
        !matches!(self, Self::Working | Self::Listening(_))
    }
}

/// A message as a line.
pub fn line(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message).map_err(|error| {
        let message = format!("a message can't be written down: {error}");
        Error::new(Phase::Io, Kind::Other, message)
    })?;
    line.push(b'\n');
    Ok(line)
}

/// A line as a message; None when it is none.
#[must_use]
pub fn message<M: DeserializeOwned>(line: &[u8]) -> Option<M> {
    serde_json::from_slice(line).ok()
}

/// A line of more than [`LINE_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// What a [`Lines`] gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A line, without its break.
    Line(Vec<u8>),
    /// Longer than [`LINE_MAX`] without a break; nothing after it is read.
    TooLong,
    /// The end, with what stood behind the last break.
    End(Vec<u8>),
}

/// Cuts a stream of bytes into lines, and keeps no more than [`LINE_MAX`] of it.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// Bytes of `held` in which no break was found.
    searched: usize,
}

impl Lines {
    /// Adds bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next line, if a whole one is there.
    pub fn pop(&mut self) -> std::result::Result<Option<Vec<u8>>, TooLong> {
        let found = self.held[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        match found {
            Some(at) if self.searched + at <= LINE_MAX => {
                let rest = self.held.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.held.len() <= LINE_MAX => {
                self.searched = self.held.len();
                Ok(None)
            }
            _ => Err(TooLong),
        }
    }

    /// What stands behind the last break.
    #[must_use]
    pub fn rest(self) -> Vec<u8> {
        self.held
    }

    /// Reads `from` until a piece is whole.
    pub fn next(&mut self, from: &mut impl Read) -> Piece {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.pop() {
                Ok(Some(line)) => return Piece::Line(line),
                Err(TooLong) => return Piece::TooLong,
                Ok(None) => {}
            }
            match from.read(&mut bytes) {
                Ok(0) => return Piece::End(std::mem::take(self).rest()),
                Ok(count) => self.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Piece::End(std::mem::take(self).rest()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_told_from_another_build() {
        assert_eq!(Hello::own().check("the agent"), Ok(()));
        let other = |nasgauge: &str, words| {
            let hello = Hello {
                nasgauge: nasgauge.into(),
                words,
            };
            hello.check("the agent").expect_err("refused").to_string()
        };
        let version = other("99.1.0", WORDS);
        assert!(
            version.contains("the agent is nasgauge 99.1.0"),
            "{version}"
        );
        let build = other(env!("CARGO_PKG_VERSION"), WORDS + 1);
        assert!(build.contains("words"), "{build}");
        let hostile = other("1\u{1b}[2J", 1);
        assert!(!hostile.contains('\u{1b}'), "{hostile}");
    }

    #[test]
    fn lines_are_cut_whatever_the_pieces() {
        let mut lines = Lines::default();
        for byte in b"one\n\ntw" {
            lines.push(&[*byte]);
        }
        assert_eq!(lines.pop(), Ok(Some(b"one".to_vec())));
        assert_eq!(lines.pop(), Ok(Some(Vec::new())));
        assert_eq!(lines.pop(), Ok(None));
        lines.push(b"o\n");
        assert_eq!(lines.pop(), Ok(Some(b"two".to_vec())));
        assert_eq!(lines.rest(), b"");
    }

    #[test]
    fn an_endless_line_is_not_kept() {
        let mut endless = std::io::repeat(b'x');
        let mut lines = Lines::default();
        assert_eq!(lines.next(&mut endless), Piece::TooLong);
        assert!(lines.held.len() <= LINE_MAX + (16 << 10));
        let mut cut = &b"half"[..];
        assert_eq!(
            Lines::default().next(&mut cut),
            Piece::End(b"half".to_vec())
        );
    }
}
