//! What a server's refusals mean here: kind and a sentence. Must not know: how a request is made.

use smb2::types::status::NtStatus;

use crate::error::{Error, Kind, Phase};

/// A request that the server refused; `doing` says what: `read 4096 bytes at offset 0 of 'x'`.
pub(super) fn refused(phase: Phase, status: NtStatus, address: &str, doing: &str) -> Error {
    let kind = kind(status);
    let why = match kind {
        Kind::NoSpace => "the share is full or its quota is used up".to_owned(),
        Kind::Denied => "this user has no right to, or the share is read-only".to_owned(),
        Kind::NotFound => "it is not there".to_owned(),
        Kind::Gone => format!("{address} ended the session ({status})"),
        _ if is_in_use(status) => {
            "it is open elsewhere, maybe still by a session that was cut off; \
             try again in a minute"
                .to_owned()
        }
        _ => format!("{address} answered {status}"),
    };
    Error::new(phase, kind, format!("could not {doing}: {why}"))
}

/// The kind of failure.
pub(in crate::target::smb) fn kind(status: NtStatus) -> Kind {
    match status.0 {
        // Disk full, quota exceeded.
        0xc000_007f | 0xc000_0044 => Kind::NoSpace,
        // Access denied, logon failures, media write protected, network access denied.
        0xc000_0022
        | 0xc000_006a..=0xc000_0072
        | 0xc000_00a2
        | 0xc000_00ca
        | 0xc000_015b
        | 0xc000_0234 => Kind::Denied,
        // No such file, name or path not found, bad network name.
        0xc000_000f | 0xc000_0034 | 0xc000_003a | 0xc000_00cc => Kind::NotFound,
        0xc000_0035 => Kind::Exists,
        // Handle closed, session deleted or expired, tree gone, connection lost.
        0xc000_0128 | 0xc000_0203 | 0xc000_035c | 0xc000_00c9 | 0xc000_020c | 0xc000_020d => {
            Kind::Gone
        }
        // Not supported, invalid request, not implemented.
        0xc000_00bb | 0xc000_0010 | 0xc000_0002 => Kind::Unsupported,
        _ => Kind::Other,
    }
}

/// Sharing violation, lock conflict.
const fn is_in_use(status: NtStatus) -> bool {
    matches!(status.0, 0xc000_0043 | 0xc000_0054)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_kinds_and_sentences() {
        for (status, expected, word) in [
            (0xc000_007f, Kind::NoSpace, "full"),
            (0xc000_0022, Kind::Denied, "read-only"),
            (0xc000_0034, Kind::NotFound, "not there"),
            (0xc000_0203, Kind::Gone, "nas:445 ended"),
            (0xc000_0043, Kind::Other, "open elsewhere"),
            (0xc000_009a, Kind::Other, "nas:445 answered"),
            (0xc000_00bb, Kind::Unsupported, "nas:445 answered"),
        ] {
            let error = refused(Phase::Io, NtStatus(status), "nas:445", "read 'x'");
            assert_eq!(error.kind, expected, "{status:x}");
            assert!(error.message.starts_with("could not read 'x'"), "{error}");
            assert!(error.message.contains(word), "{status:x}: {error}");
        }
    }
}
