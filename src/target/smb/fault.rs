//! What libsmbclient's error numbers mean here: phase, kind and a sentence.
//!
//! Must not know: how a call is made.

use std::io;
use std::time::Duration;

use pavao::SmbError;

use crate::error::{Error, Kind, Phase};

/// What the first call after a connection broke gets, as Linux counts it; std has no kind for it. Later calls get
/// `ECONNABORTED`.
const ENETRESET: i32 = 102;

/// The operating system's error in pavao's. Its wrappers for a null pointer drop the number, which is still there.
pub(super) fn cause(error: SmbError) -> io::Error {
    match error {
        SmbError::Io(error) => error,
        SmbError::BadFileDescriptor => io::Error::last_os_error(),
        other => io::Error::other(other.to_string()),
    }
}

/// The kind of failure.
pub(super) fn kind(error: &io::Error) -> Kind {
    match error.raw_os_error() {
        Some(ENETRESET) => Kind::Gone,
        _ => Kind::of_io(error),
    }
}

/// A failed call; `doing` says what and where: `read 4096 bytes at offset 0 of 'x'`.
pub(super) fn fault(
    phase: Phase,
    error: &io::Error,
    address: &str,
    waited: Duration,
    doing: &str,
) -> Error {
    let kind = kind(error);
    let message = match kind {
        Kind::TimedOut => format!(
            "could not {doing}: {address} did not answer within {waited:?}; the server or the network has stopped"
        ),
        Kind::Gone => format!(
            "could not {doing}: {address} closed the connection; the SMB server was stopped or restarted"
        ),
        Kind::Refused => format!(
            "could not {doing}: nobody listens at {address} any more; the SMB server was stopped"
        ),
        Kind::NoSpace => format!("could not {doing}: the share is full or its quota is used up"),
        Kind::Denied => {
            format!("could not {doing}: this user has no right to, or the share is read-only")
        }
        // How libsmbclient renders a sharing violation.
        _ if error.kind() == io::ErrorKind::ResourceBusy => format!(
            "could not {doing}: it is open elsewhere, maybe still by a session that was cut off; \
             try again in a minute"
        ),
        _ => {
            return Error {
                kind,
                ..Error::io(phase, error, doing)
            };
        }
    };
    Error::new(phase, kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_kinds_and_sentences() {
        for (number, expected, word) in [
            (110, Kind::TimedOut, "within 3s"),
            (102, Kind::Gone, "nas:445 closed"),
            (103, Kind::Gone, "nas:445 closed"),
            (104, Kind::Gone, "nas:445 closed"),
            (28, Kind::NoSpace, "full"),
            (122, Kind::NoSpace, "quota"),
            (13, Kind::Denied, "read-only"),
            (1, Kind::Denied, "right"),
            (17, Kind::Exists, "File exists"),
            (21, Kind::Other, "Is a directory"),
            (2, Kind::NotFound, "No such file"),
            (111, Kind::Refused, "nobody listens at nas:445"),
            (16, Kind::Other, "open elsewhere"),
            (5, Kind::Other, "error"),
        ] {
            let error = fault(
                Phase::Io,
                &io::Error::from_raw_os_error(number),
                "nas:445",
                Duration::from_secs(3),
                "read 'x'",
            );
            assert_eq!(error.kind, expected, "{number}");
            assert!(error.message.starts_with("could not read 'x'"));
            assert!(error.message.contains(word), "{number}: {error}");
        }
    }
}
