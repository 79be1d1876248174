//! The one error of everything that touches a target: what was being done, to what, and what to do about it.
//!
//! It crosses process boundaries (a worker may be a child process), so it is plain data. Must not know: any
//! protocol.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a connection or a run had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading what the user asked for, before anything is touched.
    Plan,
    /// Turning a host name into addresses.
    Resolve,
    /// Opening the TCP connection.
    Connect,
    /// Logging in.
    Authenticate,
    /// Opening the export, share, LUN, directory or file.
    Open,
    /// Laying the test file.
    Prepare,
    /// Reading and writing under measurement.
    Io,
    /// Making writes durable.
    Flush,
    /// Removing what was laid.
    Cleanup,
    /// Writing down what was measured, on this computer.
    Results,
}

/// What kind of failure it is; decides the row's status and the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request itself is wrong; nothing was touched.
    Usage,
    /// Going on could harm data; nothing was touched.
    Safety,
    /// Nobody listens there.
    Refused,
    /// No answer in time.
    TimedOut,
    /// The peer vanished in the middle.
    Gone,
    /// Wrong user, password or address range.
    Denied,
    /// No such export, share, LUN, directory or file.
    NotFound,
    /// It is there already.
    Exists,
    /// The medium is full or over its quota.
    NoSpace,
    /// The bytes read are not the bytes written.
    Corrupt,
    /// This server, kernel or build can't do it.
    Unsupported,
    /// The peer broke its protocol.
    Protocol,
    /// Stopped on request.
    Interrupted,
    /// Anything else.
    Other,
}

/// A failure, in a sentence a user can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    /// How far it had come.
    pub phase: Phase,
    /// What kind of failure.
    pub kind: Kind,
    /// The target as a URI without secrets; empty when no target is concerned.
    pub target: String,
    /// What went wrong and what to do.
    pub message: String,
}

/// The result of anything that touches a target.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "planning",
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Authenticate => "logging in",
            Self::Open => "opening",
            Self::Prepare => "laying the test file",
            Self::Io => "reading and writing",
            Self::Flush => "flushing",
            Self::Cleanup => "removing the test data",
            Self::Results => "writing the results",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.phase == Phase::Plan || matches!(self.kind, Kind::Usage | Kind::Safety) {
            if !self.target.is_empty() {
                write!(f, "{}: ", self.target)?;
            }
            return f.write_str(&self.message);
        }
        if !self.target.is_empty() {
            write!(f, "{}: ", self.target)?;
        }
        write!(f, "failed while {}: {}", self.phase, self.message)
    }
}

impl Error {
    /// A failure in `phase` of `kind`, not yet tied to a target.
    pub fn new(phase: Phase, kind: Kind, message: impl Into<String>) -> Self {
        Self {
            phase,
            kind,
            target: String::new(),
            message: message.into(),
        }
    }

    /// The request itself is wrong (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Phase::Plan, Kind::Usage, message)
    }

    /// Going on could harm data (exit code 2).
    pub fn safety(message: impl Into<String>) -> Self {
        Self::new(Phase::Plan, Kind::Safety, message)
    }

    /// A system call's error; `doing` says what and where: `read 4096 bytes at offset 0 of /mnt/x`.
    #[must_use]
    pub fn io(phase: Phase, error: &std::io::Error, doing: &str) -> Self {
        Self::new(
            phase,
            Kind::of_io(error),
            format!("could not {doing}: {}", plain(error)),
        )
    }

    /// The same failure, tied to a target unless it already is.
    #[must_use]
    pub fn at(mut self, target: &str) -> Self {
        if self.target.is_empty() {
            target.clone_into(&mut self.target);
        }
        self
    }

    /// True when nothing was touched: a usage error or a refusal.
    #[must_use]
    pub const fn before_anything(&self) -> bool {
        matches!(self.kind, Kind::Usage | Kind::Safety)
    }

    /// True when the server itself seems to be away.
    #[must_use]
    pub const fn server_lost(&self) -> bool {
        matches!(self.kind, Kind::Gone | Kind::TimedOut | Kind::Refused)
    }
}

/// The operating system's words without Rust's "(os error N)" tail.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

impl Kind {
    /// The kind that an operating system error stands for.
    #[must_use]
    pub fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Os;
        match error.kind() {
            Os::ConnectionRefused => Self::Refused,
            Os::TimedOut | Os::WouldBlock => Self::TimedOut,
            Os::ConnectionReset
            | Os::ConnectionAborted
            | Os::BrokenPipe
            | Os::UnexpectedEof
            | Os::NotConnected
            | Os::NetworkUnreachable
            | Os::HostUnreachable
            | Os::NetworkDown => Self::Gone,
            Os::PermissionDenied | Os::ReadOnlyFilesystem => Self::Denied,
            Os::NotFound => Self::NotFound,
            Os::AlreadyExists => Self::Exists,
            Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => Self::NoSpace,
            Os::Unsupported => Self::Unsupported,
            Os::Interrupted => Self::Interrupted,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_target_phase_and_cause() {
        let cause = std::io::Error::from_raw_os_error(111);
        let error = Error::io(Phase::Connect, &cause, "reach port 2049").at("nfs://nas/tank");
        assert_eq!(
            error.to_string(),
            "nfs://nas/tank: failed while connecting: could not reach port 2049: Connection refused"
        );
        assert!(error.server_lost());
    }

    #[test]
    fn the_first_target_named_stays() {
        assert_eq!(Error::usage("x").at("a").at("b").target, "a");
    }
}
