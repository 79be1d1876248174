//! An iSCSI URI taken apart and checked: portal, target name, LUN and options.
//!
//! Must not know: libiscsi's calls, sockets. Touches nothing.

use crate::error::{Error, Result};
use crate::spec::uri::TargetSpec;

/// The port of iSCSI's registration with IANA.
pub const DEFAULT_PORT: u16 = 3260;
/// RFC 3720, 3.2.6.1: an iSCSI name has at most 223 bytes.
const NAME_MAX: usize = 223;
/// The largest LUN of SAM's flat space addressing, the longest form that libiscsi can carry.
const LUN_MAX: u16 = 0x3fff;
/// LUNs below this use the peripheral form, which every target understands.
const LUN_FLAT: u16 = 256;

/// The most sessions of one lane.
pub const SESSIONS_MAX: usize = 16;

/// Whether each header carries a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digest {
    /// No checksum.
    None,
    /// CRC32C, or no session at all.
    Crc32c,
}

/// What to ask the target for at the login; None takes libiscsi's choice. The lengths of bursts are not among them:
/// libiscsi always proposes 256 KiB, and the target may lower it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Header digest; libiscsi leaves the choice to the target.
    pub digest: Option<Digest>,
    /// Whether a write command carries its first data itself; libiscsi asks for it.
    pub immediate_data: Option<bool>,
    /// Whether more data waits until the target asks (R2T); libiscsi asks that it need not.
    pub initial_r2t: Option<bool>,
}

impl Wishes {
    /// What was wished for: the option as the user writes it, the key of the login, and the value hoped for.
    pub fn each(self) -> impl Iterator<Item = (String, &'static str, &'static str)> {
        let yes = |flag| if flag { "Yes" } else { "No" };
        let digest = self.digest.map(|digest| match digest {
            Digest::None => ("header_digest=none".to_owned(), "HeaderDigest", "None"),
            Digest::Crc32c => ("header_digest=crc32c".to_owned(), "HeaderDigest", "CRC32C"),
        });
        let switch = |option: &str, key, wish: Option<bool>| {
            wish.map(|flag| (format!("{option}={}", u8::from(flag)), key, yes(flag)))
        };
        let immediate = switch("immediate_data", "ImmediateData", self.immediate_data);
        let r2t = switch("initial_r2t", "InitialR2T", self.initial_r2t);
        [digest, immediate, r2t].into_iter().flatten()
    }
}

/// Where a LUN is, and how to ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP literal, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The target's name: `iqn.…`, `eui.…` or `naa.…`.
    pub target: String,
    /// The logical unit's number.
    pub lun: u16,
    /// The CHAP user.
    pub user: Option<String>,
    /// The initiator name to log in under; None for one made from the host name.
    pub initiator: Option<String>,
    /// What the URI asks of the target.
    pub wishes: Wishes,
    /// Sessions over which a lane spreads its operations, each a connection of its own.
    pub sessions: u16,
}

impl Address {
    /// Reads `iscsi://[user@]host[:port]/iqn/lun[?initiator=&sessions=&header_digest=&immediate_data=&initial_r2t=]`.
    pub fn of(spec: &TargetSpec) -> Result<Self> {
        if spec.hosts.len() > 1 {
            return Err(Error::usage(
                "one host only: an iSCSI session has one portal; give each portal as a target of its own",
            ));
        }
        if spec.domain.is_some() {
            return Err(Error::usage(
                "iSCSI users have no domain; leave out 'domain;'",
            ));
        }
        let parts: Vec<&str> = spec.parts().collect();
        let [target, lun] = parts[..] else {
            return Err(Error::usage(format!(
                "'{}' is not a target name and a LUN: iscsi://host/iqn.2001-05.com.example:disk/1",
                spec.path
            )));
        };
        Ok(Self {
            host: spec.host().to_owned(),
            port: spec.port.unwrap_or(DEFAULT_PORT),
            target: name_of(target, "target")?,
            lun: lun_of(lun)?,
            user: spec.user.clone().filter(|user| !user.is_empty()),
            initiator: spec
                .options
                .get("initiator")
                .map(|name| name_of(name, "initiator"))
                .transpose()?,
            wishes: Wishes {
                digest: digest_of(spec.options.get("header_digest").map(String::as_str))?,
                immediate_data: spec.switch("immediate_data")?,
                initial_r2t: spec.switch("initial_r2t")?,
            },
            sessions: sessions_of(spec)?,
        })
    }

    /// The first two bytes of the eight-byte LUN field, as libiscsi takes them.
    #[must_use]
    pub const fn wire_lun(&self) -> i32 {
        let lun = if self.lun < LUN_FLAT {
            self.lun
        } else {
            0x4000 | self.lun
        };
        lun as i32
    }

    /// `host:port`, IPv6 in brackets: for messages.
    #[must_use]
    pub fn portal(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// An iSCSI name; lower case, as RFC 3722 folds it.
fn name_of(text: &str, whose: &str) -> Result<String> {
    let name = text.to_lowercase();
    let prefix = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if !prefix || name.len() > NAME_MAX || name.contains(char::is_whitespace) {
        return Err(Error::usage(format!(
            "'{text}' is not an iSCSI {whose} name: it starts with iqn., eui. or naa. and has at most {NAME_MAX} bytes, \
             as iqn.2001-05.com.example:disk"
        )));
    }
    Ok(name)
}

fn lun_of(text: &str) -> Result<u16> {
    text.parse()
        .ok()
        .filter(|lun| *lun <= LUN_MAX && text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| {
            Error::usage(format!(
                "'{text}' is not a LUN: a number between 0 and {LUN_MAX}"
            ))
        })
}

fn sessions_of(spec: &TargetSpec) -> Result<u16> {
    let meaning = format!("a number between 1 and {SESSIONS_MAX}");
    let sessions = spec.option::<u16>("sessions", &meaning)?.unwrap_or(1);
    if sessions == 0 || usize::from(sessions) > SESSIONS_MAX {
        return Err(Error::usage(format!(
            "option sessions={sessions} is not {meaning}"
        )));
    }
    Ok(sessions)
}

fn digest_of(text: Option<&str>) -> Result<Option<Digest>> {
    match text.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("none") => Ok(Some(Digest::None)),
        Some("crc32c") => Ok(Some(Digest::Crc32c)),
        Some(other) => Err(Error::usage(format!(
            "option header_digest={other} is neither none nor crc32c"
        ))),
    }
}

/// An initiator name for this computer: `iqn.2026-11.org.nasgauge:<host>`, with what an iSCSI name can't hold
/// replaced by '-'.
#[must_use]
pub fn default_initiator(node: &str) -> String {
    let host: String = node
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '-'
            }
        })
        .take(100)
        .collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("iqn.2026-11.org.nasgauge:{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address> {
        Address::of(&TargetSpec::parse(text).expect(text))
    }

    #[test]
    fn a_uri_comes_apart() {
        let address = address(
            "iscsi://me@nas:3261/iqn.2026-01.lab%3At1/1?initiator=iqn.1993-08.org.debian:01&header_digest=CRC32C",
        )
        .expect("a full URI");
        assert_eq!((address.host.as_str(), address.port), ("nas", 3261));
        assert_eq!(
            (address.target.as_str(), address.lun),
            ("iqn.2026-01.lab:t1", 1)
        );
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(
            address.initiator.as_deref(),
            Some("iqn.1993-08.org.debian:01")
        );
        assert_eq!(address.wishes.digest, Some(Digest::Crc32c));
        assert_eq!(address.sessions, 1);
    }

    #[test]
    fn wishes_and_sessions_are_read() {
        let address = address("iscsi://nas/iqn.a:b/1?sessions=4&immediate_data=0&initial_r2t=yes")
            .expect("options");
        assert_eq!(address.sessions, 4);
        let wishes: Vec<_> = address.wishes.each().collect();
        assert_eq!(
            wishes,
            [
                ("immediate_data=0".to_owned(), "ImmediateData", "No"),
                ("initial_r2t=1".to_owned(), "InitialR2T", "Yes")
            ]
        );
    }

    #[test]
    fn defaults_and_ipv6() {
        let address = address("iscsi://[fe80::1%25eth0]/iqn.2026-01.lab:a:b/0").expect("defaults");
        assert_eq!(address.port, DEFAULT_PORT);
        assert_eq!(address.portal(), "[fe80::1%eth0]:3260");
        assert_eq!(address.target, "iqn.2026-01.lab:a:b");
        assert_eq!((address.user, address.initiator), (None, None));
        assert_eq!(address.wishes, Wishes::default());
    }

    #[test]
    fn luns_above_255_use_the_flat_form() {
        for (lun, wire) in [("0", 0), ("255", 255), ("256", 0x4100), ("16383", 0x7fff)] {
            let address = address(&format!("iscsi://h/iqn.a:b/{lun}")).expect(lun);
            assert_eq!(address.wire_lun(), wire, "{lun}");
        }
    }

    #[test]
    fn bad_uris_say_what_is_wrong() {
        for (text, word) in [
            ("iscsi://h", "target name and a LUN"),
            ("iscsi://h/iqn.a:b", "target name and a LUN"),
            ("iscsi://h/iqn.a:b/1/2", "target name and a LUN"),
            ("iscsi://h/disk/1", "iqn."),
            ("iscsi://h/iqn.a%20b/1", "iqn."),
            ("iscsi://h/iqn.a:b/x", "not a LUN"),
            ("iscsi://h/iqn.a:b/+1", "not a LUN"),
            ("iscsi://h/iqn.a:b/16384", "not a LUN"),
            ("iscsi://a,b/iqn.a:b/1", "one host"),
            ("iscsi://d;u@a/iqn.a:b/1", "domain"),
            ("iscsi://a/iqn.a:b/1?header_digest=md5", "crc32c"),
            ("iscsi://a/iqn.a:b/1?initiator=me", "initiator name"),
            ("iscsi://a/iqn.a:b/1?sessions=0", "between 1 and 16"),
            ("iscsi://a/iqn.a:b/1?sessions=17", "between 1 and 16"),
            ("iscsi://a/iqn.a:b/1?sessions=two", "between 1 and 16"),
            ("iscsi://a/iqn.a:b/1?immediate_data=2", "neither 0 nor 1"),
            ("iscsi://a/iqn.a:b/1?initial_r2t=maybe", "neither 0 nor 1"),
        ] {
            let error = address(text).expect_err(text);
            assert!(error.before_anything());
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn the_own_name_is_a_legal_one() {
        assert_eq!(
            default_initiator("My_PC.lan"),
            "iqn.2026-11.org.nasgauge:my-pc.lan"
        );
        assert_eq!(default_initiator(""), "iqn.2026-11.org.nasgauge:localhost");
    }
}
