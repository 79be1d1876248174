//! What the server's answers mean, in words (RFC 1813, section 2.6 and appendix I) and as this program's kinds.
//! Pure.

use std::time::Duration;

use nfs3_client::RpcError;
use nfs3_types::mount::mountstat3;
use nfs3_types::nfs3::nfsstat3;
use nfs3_types::rpc::auth_stat;

use crate::error::{Error, Kind, Phase};

/// Why a call brought no reply that could be used.
#[derive(Debug)]
pub(super) enum Failure {
    /// The library's reason.
    Rpc(RpcError),
    /// Nothing came within this time.
    Late(Duration),
}

/// As whom the server sees this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    /// The user id sent.
    pub(super) uid: u32,
    /// The group id sent.
    pub(super) gid: u32,
    /// Whether the connection leaves from a port below 1024.
    pub(super) privileged: bool,
}

impl Who {
    /// The ways out of a refusal, as a clause to append.
    pub(super) fn ways_out(self) -> String {
        let identity = if self.uid == 0 {
            "asked as uid 0, which servers often map to nobody (root_squash): give ?uid=N&gid=N of the \
             directory's owner, let nobody write there, or export it with no_root_squash"
                .to_owned()
        } else {
            format!(
                "asked as uid {} gid {}: give ?uid=N&gid=N of the directory's owner, or change its permissions",
                self.uid, self.gid
            )
        };
        if self.privileged {
            return identity;
        }
        format!(
            "{identity}; and from a source port above 1023, which a server may refuse: run as root or with \
             CAP_NET_BIND_SERVICE, or export with 'insecure'"
        )
    }
}

impl Failure {
    /// The error, for something that was being done: "read 4096 bytes at offset 0 of 'x'".
    pub(super) fn error(&self, phase: Phase, doing: &str) -> Error {
        match self {
            Self::Late(limit) => Error::new(
                phase,
                Kind::TimedOut,
                format!("could not {doing}: no answer within {}", seconds(*limit)),
            ),
            Self::Rpc(RpcError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Error::new(
                    phase,
                    Kind::Gone,
                    format!("could not {doing}: the server closed the connection"),
                )
            }
            Self::Rpc(RpcError::Io(error)) => Error::io(phase, error, doing),
            Self::Rpc(error) => {
                let (kind, words) = reply(error);
                let phase = match (error, phase) {
                    // What the server objects to is who asks, not what for.
                    (RpcError::Auth(_), Phase::Connect | Phase::Open) => Phase::Authenticate,
                    _ => phase,
                };
                Error::new(phase, kind, format!("could not {doing}: {words}"))
            }
        }
    }
}

/// A time limit for people.
pub(super) fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

/// What a reply without a result means.
fn reply(error: &RpcError) -> (Kind, String) {
    match error {
        RpcError::Auth(auth_stat::AUTH_TOOWEAK) => (
            Kind::Denied,
            "the server wants more than user and group ids (AUTH_TOOWEAK): a source port below 1024 (run as \
             root or with CAP_NET_BIND_SERVICE, or export with 'insecure'), or Kerberos (mount the export with the \
             kernel and give that path)"
                .to_owned(),
        ),
        RpcError::Auth(why) => (
            Kind::Denied,
            format!("the server refuses the user and group ids sent ({why}); give others with ?uid=N&gid=N"),
        ),
        RpcError::ProgMismatch { low, high } if *low > 3 => (Kind::Unsupported, newer_only(*low, *high)),
        RpcError::ProgMismatch { low, high } => (
            Kind::Unsupported,
            format!("the server speaks versions {low} to {high} of it only, and nasgauge version 3"),
        ),
        RpcError::ProgUnavail => (
            Kind::Unsupported,
            "another service answers on that port; check the port".to_owned(),
        ),
        RpcError::ProcUnavail => (
            Kind::Unsupported,
            "the server does not offer that call".to_owned(),
        ),
        RpcError::SystemErr => (
            Kind::Other,
            "the server reports an internal error (SYSTEM_ERR)".to_owned(),
        ),
        RpcError::FragmentedReply => (
            Kind::Protocol,
            "the answer is not one RPC message; is this an NFS server's port?".to_owned(),
        ),
        RpcError::NotFullyParsed { .. } => (
            Kind::Protocol,
            "the answer has more in it than the protocol allows".to_owned(),
        ),
        other => (
            Kind::Protocol,
            format!("the answer breaks the protocol ({other})"),
        ),
    }
}

/// The sentence for a server without version 3.
pub(super) fn newer_only(low: u32, high: u32) -> String {
    let versions = if low == high {
        format!("version {low}")
    } else {
        format!("versions {low} to {high}")
    };
    format!(
        "the server speaks NFS {versions} only, and nasgauge's own client version 3: mount the export with the \
         kernel (mount -t nfs4 HOST:/EXPORT /mnt/nas) and give that path as the target (file:/mnt/nas)"
    )
}

/// The error for an NFS status.
pub(super) fn refused(phase: Phase, status: nfsstat3, doing: &str, who: Who) -> Error {
    let (kind, words) = meaning(status);
    let mut message = format!("could not {doing}: {words} ({status})");
    if matches!(status, nfsstat3::NFS3ERR_ACCES | nfsstat3::NFS3ERR_PERM) {
        message = format!("{message}; {}", who.ways_out());
    }
    Error::new(phase, kind, message)
}

/// An NFS status as a kind and in words.
pub(super) const fn meaning(status: nfsstat3) -> (Kind, &'static str) {
    use nfsstat3 as S;
    match status {
        S::NFS3_OK => (Kind::Protocol, "the server reports success as a failure"),
        S::NFS3ERR_PERM => (
            Kind::Denied,
            "not the owner, or not allowed for this user or port",
        ),
        S::NFS3ERR_NOENT => (Kind::NotFound, "there is no such file or directory"),
        S::NFS3ERR_IO => (Kind::Other, "the server's own disk reports an I/O error"),
        S::NFS3ERR_NXIO => (Kind::Other, "the server's device does not answer"),
        S::NFS3ERR_ACCES => (Kind::Denied, "permission denied"),
        S::NFS3ERR_EXIST => (Kind::Exists, "something of that name exists"),
        S::NFS3ERR_XDEV => (Kind::Unsupported, "it would cross file systems"),
        S::NFS3ERR_NODEV => (Kind::Unsupported, "the server has no such device"),
        S::NFS3ERR_NOTDIR => (
            Kind::NotFound,
            "a part of the path is not a directory (a symbolic link is not followed)",
        ),
        S::NFS3ERR_ISDIR => (Kind::Unsupported, "it is a directory"),
        S::NFS3ERR_INVAL => (
            Kind::Unsupported,
            "the server takes the request for invalid",
        ),
        S::NFS3ERR_FBIG => (
            Kind::NoSpace,
            "the file would be larger than the server's file system allows",
        ),
        S::NFS3ERR_NOSPC => (Kind::NoSpace, "the server's file system is full"),
        S::NFS3ERR_ROFS => (
            Kind::Denied,
            "the export or its file system is read-only; export it with 'rw'",
        ),
        S::NFS3ERR_MLINK => (Kind::Unsupported, "too many links"),
        S::NFS3ERR_NAMETOOLONG => (
            Kind::Unsupported,
            "the name is longer than the server allows",
        ),
        S::NFS3ERR_NOTEMPTY => (Kind::Exists, "the directory is not empty"),
        S::NFS3ERR_DQUOT => (Kind::NoSpace, "the quota on the server is used up"),
        S::NFS3ERR_STALE => (
            Kind::NotFound,
            "the file was removed, or its export was taken away, since it was opened",
        ),
        S::NFS3ERR_REMOTE => (Kind::Unsupported, "the path leads to a third machine"),
        S::NFS3ERR_BADHANDLE => (
            Kind::Protocol,
            "the server no longer knows its own file handle",
        ),
        S::NFS3ERR_NOT_SYNC => (Kind::Other, "the file changed meanwhile"),
        S::NFS3ERR_BAD_COOKIE => (
            Kind::Other,
            "the directory changed while it was listed; try again",
        ),
        S::NFS3ERR_NOTSUPP => (Kind::Unsupported, "the server does not support it"),
        S::NFS3ERR_TOOSMALL => (
            Kind::Protocol,
            "the server wants larger replies than were asked for",
        ),
        S::NFS3ERR_SERVERFAULT => (
            Kind::Other,
            "the server failed without saying why; see its log",
        ),
        S::NFS3ERR_BADTYPE => (
            Kind::Unsupported,
            "the server does not make files of that type",
        ),
        S::NFS3ERR_JUKEBOX => (
            Kind::TimedOut,
            "the server kept asking to try again later (busy, or fetching from slow storage)",
        ),
    }
}

/// A MOUNT status as a kind and in words.
pub(super) const fn mount_meaning(status: mountstat3) -> (Kind, &'static str) {
    use mountstat3 as S;
    match status {
        S::MNT3_OK => (Kind::Protocol, "the server reports success as a failure"),
        S::MNT3ERR_PERM | S::MNT3ERR_ACCES => {
            (Kind::Denied, "the server refuses it to this computer")
        }
        S::MNT3ERR_NOENT => (Kind::NotFound, "there is no such directory"),
        S::MNT3ERR_IO => (Kind::Other, "the server's own disk reports an I/O error"),
        S::MNT3ERR_NOTDIR => (Kind::NotFound, "it is not a directory"),
        S::MNT3ERR_INVAL => (Kind::Unsupported, "the server takes the path for invalid"),
        S::MNT3ERR_NAMETOOLONG => (
            Kind::Unsupported,
            "the path is longer than the server allows",
        ),
        S::MNT3ERR_NOTSUPP => (Kind::Unsupported, "the server does not support it"),
        S::MNT3ERR_SERVERFAULT => (
            Kind::Other,
            "the server failed without saying why; see its log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Who = Who {
        uid: 0,
        gid: 0,
        privileged: true,
    };

    #[test]
    fn statuses_have_their_kinds() {
        for (status, kind) in [
            (nfsstat3::NFS3ERR_NOSPC, Kind::NoSpace),
            (nfsstat3::NFS3ERR_DQUOT, Kind::NoSpace),
            (nfsstat3::NFS3ERR_FBIG, Kind::NoSpace),
            (nfsstat3::NFS3ERR_ACCES, Kind::Denied),
            (nfsstat3::NFS3ERR_PERM, Kind::Denied),
            (nfsstat3::NFS3ERR_ROFS, Kind::Denied),
            (nfsstat3::NFS3ERR_NOENT, Kind::NotFound),
            (nfsstat3::NFS3ERR_STALE, Kind::NotFound),
            (nfsstat3::NFS3ERR_EXIST, Kind::Exists),
            (nfsstat3::NFS3ERR_JUKEBOX, Kind::TimedOut),
        ] {
            let error = refused(Phase::Io, status, "write", ROOT);
            assert_eq!((error.kind, error.phase), (kind, Phase::Io), "{status}");
            assert!(error.message.contains(&status.to_string()), "{error}");
        }
    }

    #[test]
    fn a_refusal_names_the_ways_out() {
        let doing = "make 'x'";
        let root = refused(Phase::Prepare, nfsstat3::NFS3ERR_ACCES, doing, ROOT).message;
        assert!(root.contains("no_root_squash") && !root.contains("insecure"));
        let user = Who {
            uid: 1000,
            gid: 100,
            privileged: false,
        };
        let user = refused(Phase::Prepare, nfsstat3::NFS3ERR_PERM, doing, user).message;
        for word in [
            "uid 1000 gid 100",
            "?uid=",
            "CAP_NET_BIND_SERVICE",
            "insecure",
        ] {
            assert!(user.contains(word), "{user}");
        }
    }

    #[test]
    fn transport_failures_have_their_kinds() {
        let io = |kind: std::io::ErrorKind| Failure::Rpc(RpcError::Io(kind.into()));
        for (failure, kind, word) in [
            (
                Failure::Late(Duration::from_millis(1500)),
                Kind::TimedOut,
                "1.5 s",
            ),
            (
                io(std::io::ErrorKind::UnexpectedEof),
                Kind::Gone,
                "closed the connection",
            ),
            (
                io(std::io::ErrorKind::ConnectionReset),
                Kind::Gone,
                "connection reset",
            ),
            (
                io(std::io::ErrorKind::ConnectionRefused),
                Kind::Refused,
                "refused",
            ),
            (
                Failure::Rpc(RpcError::FragmentedReply),
                Kind::Protocol,
                "NFS server's port",
            ),
            (
                Failure::Rpc(RpcError::Auth(auth_stat::AUTH_TOOWEAK)),
                Kind::Denied,
                "1024",
            ),
            (
                Failure::Rpc(RpcError::ProgMismatch { low: 4, high: 4 }),
                Kind::Unsupported,
                "file:/mnt",
            ),
        ] {
            let error = failure.error(Phase::Io, "read");
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(word), "{error}");
        }
    }
}
