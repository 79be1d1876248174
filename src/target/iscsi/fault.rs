//! What can go wrong on an iSCSI session, as sentences: login status codes, SCSI status and sense data.
//!
//! libiscsi's own text may be left over from an earlier failure: status codes decide, its text is only an extra.
//! Must not know: libiscsi's types.

use crate::error::{Error, Kind, Phase};

/// Sense data of a failed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: u8,
    /// Additional sense code and qualifier.
    pub code: u16,
}

/// How a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The target answered with sense data.
    Sense(Sense),
    /// The target answered with another SCSI status than good.
    Status(u32),
    /// No answer in time.
    TimedOut,
    /// The connection ended; the library's last words, if any.
    Gone(Option<String>),
    /// An earlier failure ended the session.
    Closed,
    /// The peers no longer understand one another; the library's words, if any.
    Broken(Option<String>),
    /// The library would not start it: its words.
    Rejected(String),
}

/// SCSI status codes, as SAM numbers them.
const BUSY: u32 = 0x08;
const RESERVATION_CONFLICT: u32 = 0x18;
const TASK_SET_FULL: u32 = 0x28;
const TASK_ABORTED: u32 = 0x40;

/// Sense keys, as SPC numbers them.
const NOT_READY: u8 = 2;
const MEDIUM_ERROR: u8 = 3;
const HARDWARE_ERROR: u8 = 4;
const ILLEGAL_REQUEST: u8 = 5;
const UNIT_ATTENTION: u8 = 6;
const DATA_PROTECT: u8 = 7;
const ABORTED: u8 = 0xb;

impl Sense {
    /// An event that the target reports once in place of running the command.
    #[must_use]
    pub const fn unit_attention(self) -> bool {
        self.key == UNIT_ATTENTION
    }

    /// The unit will be ready by itself.
    #[must_use]
    pub const fn becoming_ready(self) -> bool {
        self.key == NOT_READY && self.code == 0x0401
    }

    /// Nothing has that LUN.
    #[must_use]
    pub const fn no_such_unit(self) -> bool {
        self.key == ILLEGAL_REQUEST && self.code == 0x2500
    }

    /// Kind and words, for a write when `write`.
    fn meaning(self, write: bool) -> (Kind, &'static str) {
        match (self.key, self.code) {
            (DATA_PROTECT, 0x2707) => (
                Kind::NoSpace,
                "the thin pool behind the LUN is full (space allocation failed)",
            ),
            (DATA_PROTECT, _) => (
                Kind::Denied,
                "the LUN is write protected; allow writing at the target, or run reads only",
            ),
            (_, 0x0404 | 0x3a00..=0x3a02) => (Kind::NotFound, "the LUN has no medium"),
            (NOT_READY, _) => (Kind::Other, "the LUN is not ready"),
            (MEDIUM_ERROR, _) if write => (
                Kind::Other,
                "medium error on a write; possibly the backing store is full: check its free space at the target, then its disks",
            ),
            (MEDIUM_ERROR, _) => (
                Kind::Other,
                "medium error: the target could not read its disk",
            ),
            (HARDWARE_ERROR, _) => (Kind::Other, "hardware error at the target"),
            (_, 0x2500) => (Kind::NotFound, "the target has no such LUN (any more)"),
            (ILLEGAL_REQUEST, 0x2100) => (Kind::Other, "the address is beyond the end of the LUN"),
            (ILLEGAL_REQUEST, 0x2000) => {
                (Kind::Unsupported, "the target does not know the command")
            }
            (ILLEGAL_REQUEST, _) => (Kind::Unsupported, "the target refuses the request"),
            (UNIT_ATTENTION, _) => (Kind::Other, "the target reported events again and again"),
            (ABORTED, _) => (Kind::Other, "the target aborted the command"),
            _ => (Kind::Other, "the target reported a failure"),
        }
    }
}

impl Fault {
    /// Nothing more can be asked on this session.
    #[must_use]
    pub const fn ends_session(&self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::Gone(_) | Self::Closed | Self::Broken(_)
        )
    }

    /// The error: `doing` says what and where, as `write 4096 bytes at offset 0`; `peer` names the portal.
    #[must_use]
    pub fn error(&self, phase: Phase, doing: &str, peer: &str, waited_s: f64) -> Error {
        let write = doing.starts_with("write");
        let (kind, why) = match self {
            Self::Sense(sense) => {
                let (kind, words) = sense.meaning(write);
                let (key, code) = (sense.key, sense.code);
                (kind, format!("{words} (sense key {key}, code {code:#06x})"))
            }
            Self::Status(status) => status_meaning(*status),
            Self::TimedOut => (
                Kind::TimedOut,
                format!("{peer} did not answer within {waited_s:.1} s"),
            ),
            Self::Gone(words) => (
                Kind::Gone,
                match words {
                    Some(words) => format!("{peer} ended the connection ({words})"),
                    None => format!("{peer} ended the connection"),
                },
            ),
            Self::Closed => (
                Kind::Gone,
                format!("the session with {peer} ended with an earlier failure"),
            ),
            Self::Broken(words) => (
                Kind::Protocol,
                match words {
                    Some(words) => format!("{peer} answered against the protocol ({words})"),
                    None => format!("{peer} answered against the protocol"),
                },
            ),
            Self::Rejected(words) => (Kind::Other, format!("libiscsi refused it: {words}")),
        };
        Error::new(phase, kind, format!("could not {doing}: {why}"))
    }
}

fn status_meaning(status: u32) -> (Kind, String) {
    let (kind, words) = match status {
        BUSY => (Kind::Other, "the target is busy; lower iodepth or lanes"),
        RESERVATION_CONFLICT => (
            Kind::Denied,
            "another initiator has reserved the LUN; release the reservation first",
        ),
        TASK_SET_FULL => (
            Kind::Other,
            "the target's queue is full; lower iodepth or lanes",
        ),
        TASK_ABORTED => (Kind::Other, "another initiator made the target abort it"),
        _ => (Kind::Protocol, "the answer makes no sense"),
    };
    (kind, format!("{words} (SCSI status {status:#x})"))
}

/// Why a login was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Status class and detail of the login response.
    pub status: u16,
    /// The portal, for the message.
    pub portal: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// The CHAP user given.
    pub user: Option<&'a str>,
    /// The name logged in under.
    pub initiator: &'a str,
}

impl Refusal<'_> {
    /// No target of that name is there: a discovery can tell which are.
    #[must_use]
    pub const fn no_such_target(&self) -> bool {
        matches!(self.status, 0x0203 | 0x0204)
    }

    /// The error, in words.
    #[must_use]
    pub fn error(&self) -> Error {
        let Self {
            status,
            portal,
            target,
            user,
            initiator,
        } = *self;
        let (phase, kind, message) = match status {
            0x0201 => (
                Phase::Authenticate,
                Kind::Denied,
                match user {
                    Some(user) => format!(
                        "{portal} refused CHAP user '{user}' for {target}; check the user and its secret"
                    ),
                    None => format!(
                        "{target} at {portal} wants a CHAP login; name the user in the URI (iscsi://user@host/…) and give its secret"
                    ),
                },
            ),
            0x0202 => (
                Phase::Authenticate,
                Kind::Denied,
                format!(
                    "{portal} does not let initiator {initiator} use {target}; allow that name at the target, or log in under an allowed one (initiator=)"
                ),
            ),
            0x0203 | 0x0204 => (
                Phase::Open,
                Kind::NotFound,
                format!("{portal} has no target {target}"),
            ),
            0x0206 => (
                Phase::Connect,
                Kind::Refused,
                format!("{portal} accepts no more sessions; use fewer lanes"),
            ),
            0x0300..=0x03ff => (
                Phase::Connect,
                Kind::Refused,
                format!(
                    "{portal} can't serve {target} now (login status {status:#06x}); look at the target's log"
                ),
            ),
            _ => (
                Phase::Authenticate,
                Kind::Protocol,
                format!("{portal} refused the login to {target} with status {status:#06x}"),
            ),
        };
        Error::new(phase, kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: u8, code: u16, doing: &str) -> Error {
        Fault::Sense(Sense { key, code }).error(Phase::Io, doing, "nas:3260", 1.0)
    }

    #[test]
    fn sense_keys_become_kinds() {
        for (key, code, doing, kind, word) in [
            (
                7,
                0x2700,
                "write 512 bytes",
                Kind::Denied,
                "write protected",
            ),
            (7, 0x2707, "write 512 bytes", Kind::NoSpace, "full"),
            (
                3,
                0x1100,
                "write 512 bytes",
                Kind::Other,
                "possibly the backing store is full",
            ),
            (
                3,
                0x1100,
                "read 512 bytes",
                Kind::Other,
                "could not read its disk",
            ),
            (5, 0x2500, "read 512 bytes", Kind::NotFound, "no such LUN"),
            (5, 0x2000, "flush", Kind::Unsupported, "does not know"),
            (2, 0x3a00, "read 512 bytes", Kind::NotFound, "no medium"),
        ] {
            let error = of(key, code, doing);
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(word), "{error}");
            assert!(error.message.contains(doing), "{error}");
        }
    }

    #[test]
    fn a_lost_server_is_named_as_such() {
        let at = |fault: Fault| fault.error(Phase::Io, "read 1 byte", "nas:3260", 2.0);
        assert_eq!(at(Fault::TimedOut).kind, Kind::TimedOut);
        assert!(at(Fault::TimedOut).message.contains("2.0 s"));
        let gone = at(Fault::Gone(Some("reset".into())));
        assert!(gone.server_lost() && gone.message.contains("reset"));
        assert!(
            at(Fault::Status(TASK_SET_FULL))
                .message
                .contains("lower iodepth")
        );
    }

    #[test]
    fn login_refusals_name_target_and_user() {
        let mut refusal = Refusal {
            status: 0x0201,
            portal: "nas:3260",
            target: "iqn.a:b",
            user: Some("me"),
            initiator: "iqn.x:y",
        };
        let error = refusal.error();
        assert_eq!(
            (error.phase, error.kind),
            (Phase::Authenticate, Kind::Denied)
        );
        assert!(error.message.contains("'me'") && error.message.contains("iqn.a:b"));
        refusal.user = None;
        assert!(refusal.error().message.contains("wants a CHAP login"));
        refusal.status = 0x0202;
        assert!(refusal.error().message.contains("iqn.x:y"));
        refusal.status = 0x0203;
        assert_eq!(
            (refusal.error().phase, refusal.error().kind),
            (Phase::Open, Kind::NotFound)
        );
        assert!(refusal.no_such_target());
        refusal.status = 0x0301;
        assert_eq!(refusal.error().kind, Kind::Refused);
        refusal.status = 0x0999;
        assert_eq!(refusal.error().kind, Kind::Protocol);
    }
}
