//! From a portal to a session: probe, connect, log in, follow a redirect; and what the peers agreed on.
//!
//! libiscsi has no calls that tell the negotiated parameters or the status of a refused login, but repeats both in
//! its log: the log of a login is the source here. Must not know: SCSI commands.

use std::net::SocketAddr;
use std::time::Duration;

use super::address::{Address, DEFAULT_PORT, default_initiator};
use super::context::Context;
use super::fault::{Fault, Refusal};
use super::portal;
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::target::Login;

/// Parameters worth a place in the results, in the order of writing. `MaxRecvDataSegmentLength` is the target's.
const REPORTED: &[&str] = &[
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "ImmediateData",
    "InitialR2T",
    "MaxOutstandingR2T",
    "HeaderDigest",
];
/// How many times a login may be sent elsewhere.
const REDIRECTS_MAX: u8 = 4;
/// The longest wait in nanoseconds for the list of targets, which only explains a failure.
const DISCOVERY_NS: u64 = 3_000_000_000;

/// What a target said during a login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// Status class and detail when it refused.
    pub refusal: Option<u16>,
    /// Its keys with the values agreed on.
    pub keys: Vec<(String, String)>,
}

impl Heard {
    /// Reads libiscsi's log of a login.
    #[must_use]
    pub fn from_log(lines: &[String]) -> Self {
        let mut heard = Self {
            refusal: None,
            // RFC 7143, 13.12: a side that declares nothing takes 8192 bytes.
            keys: vec![("MaxRecvDataSegmentLength".into(), "8192".into())],
        };
        for line in lines {
            // libiscsi appends " [target name]" to each line.
            let line = line
                .rsplit_once(" [")
                .map_or(line.as_str(), |(text, _)| text);
            if let Some((_, rest)) = line.split_once("Failed to log in to target. Status: ") {
                heard.refusal = rest
                    .rsplit_once('(')
                    .and_then(|(_, code)| code.trim_end_matches([')', '.']).parse().ok());
            } else if let Some((key, value)) = line
                .split_once("TargetLoginReply: ")
                .and_then(|(_, pair)| pair.split_once('='))
            {
                heard.keys.retain(|(known, _)| known != key);
                heard.keys.push((key.to_owned(), value.to_owned()));
            }
        }
        heard
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// `key=value` words for the results.
    #[must_use]
    pub fn words(&self) -> String {
        let known: Vec<String> = REPORTED
            .iter()
            .filter_map(|key| self.get(key).map(|value| format!("{key}={value}")))
            .collect();
        known.join(" ")
    }
}

/// A session that is logged in.
pub struct Connected {
    /// Its libiscsi context.
    pub context: Context,
    /// What the target said.
    pub heard: Heard,
}

/// Logs in to the target of `address`; all of it ends by `deadline`.
pub fn log_in(address: &Address, login: &Login, deadline: u64) -> Result<Connected> {
    if address.user.is_some() && login.secret.0.is_none() {
        return Err(Error::new(
            Phase::Authenticate,
            Kind::Denied,
            format!(
                "the URI names CHAP user '{}' but no secret was given; set NASGAUGE_PASSWORD or use --credentials FILE",
                address.user.as_deref().unwrap_or("")
            ),
        ));
    }
    let initiator = initiator_of(address);
    let mut portal = numeric(portal::reach(
        &address.host,
        address.port,
        login.connect_timeout(),
    )?);
    let peer = address.portal();
    for _ in 0..=REDIRECTS_MAX {
        let mut context = prepared(address, login, &initiator, Some(&address.target))?;
        context
            .connect(&portal, deadline)
            .map_err(|fault| connecting(&fault, &peer, login))?;
        let (result, heard) = context.login(deadline);
        let Err(fault) = result else {
            as_asked(address, &heard)?;
            return Ok(Connected { context, heard });
        };
        if matches!(heard.refusal, Some(0x0101 | 0x0102)) || redirected(&fault) {
            let Some((host, port)) = context.redirect().as_deref().and_then(portal_of) else {
                break;
            };
            let left = deadline.saturating_sub(monotonic_ns());
            portal = portal::reach(&host, port, Duration::from_nanos(left))
                .map(numeric)
                .map_err(|mut error| {
                    error.message = format!("{} ({peer} sent the login there)", error.message);
                    error
                })?;
            continue;
        }
        return Err(refused(address, login, &initiator, &portal, &fault, &heard));
    }
    Err(Error::new(
        Phase::Connect,
        Kind::Protocol,
        format!(
            "{peer} sends the login to {} on and on to other portals",
            address.target
        ),
    ))
}

fn redirected(fault: &Fault) -> bool {
    matches!(fault, Fault::Status(0x0101))
}

/// The name to log in under.
pub fn initiator_of(address: &Address) -> String {
    address
        .initiator
        .clone()
        .unwrap_or_else(|| default_initiator(&rustix::system::uname().nodename().to_string_lossy()))
}

/// A context with everything set that a login needs.
fn prepared(
    address: &Address,
    login: &Login,
    initiator: &str,
    target: Option<&str>,
) -> Result<Context> {
    let mut context =
        Context::new(initiator, target, address.wishes).map_err(|fault| local(&fault))?;
    if let (Some(user), Some(secret)) = (&address.user, &login.secret.0) {
        context
            .authenticate_as(user, secret)
            .map_err(|fault| local(&fault))?;
    }
    Ok(context)
}

/// A failure before anything was sent.
fn local(fault: &Fault) -> Error {
    fault.error(Phase::Connect, "set up an iSCSI session", "", 0.0)
}

fn connecting(fault: &Fault, peer: &str, login: &Login) -> Error {
    let waited = login.connect_timeout().as_secs_f64();
    fault.error(Phase::Connect, "open an iSCSI connection", peer, waited)
}

/// Refuses a session that is not what the URI asked for: its figures would be those of another one.
fn as_asked(address: &Address, heard: &Heard) -> Result<()> {
    for (option, key, wanted) in address.wishes.each() {
        if let Some(agreed) = heard.get(key).filter(|agreed| *agreed != wanted) {
            return Err(Error::new(
                Phase::Connect,
                Kind::Unsupported,
                format!(
                    "{} does not take {option} (it answered {key}={agreed}); allow it at the target or leave the option out",
                    address.target
                ),
            ));
        }
    }
    Ok(())
}

/// Why a login failed, with the list of targets when the one asked for is not there.
fn refused(
    address: &Address,
    login: &Login,
    initiator: &str,
    portal: &str,
    fault: &Fault,
    heard: &Heard,
) -> Error {
    let peer = address.portal();
    let Some(status) = heard.refusal else {
        return unheard(&peer, fault, login);
    };
    let refusal = Refusal {
        status,
        portal: &peer,
        target: &address.target,
        user: address.user.as_deref(),
        initiator,
    };
    let mut error = refusal.error();
    if refusal.no_such_target() {
        let until = monotonic_ns() + DISCOVERY_NS;
        match targets(address, login, initiator, portal, until) {
            Some(names) if names.is_empty() => {
                error
                    .message
                    .push_str("; it shows this computer no targets");
            }
            Some(names) => {
                error.message.push_str("; it has: ");
                error.message.push_str(&names.join(", "));
            }
            None => {}
        }
    }
    error
}

/// The targets that the portal of `address` shows; all of it ends by `deadline`. Its target and LUN do not matter.
pub fn discover(address: &Address, login: &Login, deadline: u64) -> Result<Vec<String>> {
    let timeout = login.connect_timeout();
    let portal = numeric(portal::reach(&address.host, address.port, timeout)?);
    let peer = address.portal();
    let mut context = prepared(address, login, &initiator_of(address), None)?;
    context
        .connect(&portal, deadline)
        .map_err(|fault| connecting(&fault, &peer, login))?;
    let (result, heard) = context.login(deadline);
    if let Err(fault) = result {
        let Some(status) = heard.refusal else {
            return Err(unheard(&peer, &fault, login));
        };
        let message = format!("{peer} refuses to tell its targets (login status {status:#06x})");
        return Err(Error::new(Phase::Authenticate, Kind::Denied, message));
    }
    let names = context.discover(deadline).map_err(|fault| {
        let waited = timeout.as_secs_f64();
        fault.error(Phase::Open, "list the targets", &peer, waited)
    })?;
    context.logout(deadline);
    Ok(names)
}

/// A login that was not answered.
fn unheard(peer: &str, fault: &Fault, login: &Login) -> Error {
    let waited = login.connect_timeout().as_secs_f64();
    let (kind, message) = match fault {
        Fault::TimedOut => (
            Kind::TimedOut,
            format!(
                "{peer} accepted the connection but did not answer the iSCSI login within {waited:.1} s; is it an iSCSI target, and is it running?"
            ),
        ),
        Fault::Gone(_) => (
            Kind::Gone,
            format!(
                "{peer} ended the connection during the iSCSI login; is it an iSCSI target, and does it let this computer in?"
            ),
        ),
        _ => return fault.error(Phase::Authenticate, "log in", peer, waited),
    };
    Error::new(Phase::Connect, kind, message)
}

/// The targets that a portal shows, when it does.
fn targets(
    address: &Address,
    login: &Login,
    initiator: &str,
    portal: &str,
    until: u64,
) -> Option<Vec<String>> {
    let mut context = prepared(address, login, initiator, None).ok()?;
    context.connect(portal, until).ok()?;
    context.login(until).0.ok()?;
    let names = context.discover(until).ok()?;
    context.logout(until);
    Some(names)
}

/// Host and port of a redirect: `host[:port][,portal group]`.
fn portal_of(text: &str) -> Option<(String, u16)> {
    let text = text.split_once(',').map_or(text, |(portal, _)| portal);
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, tail)) => (host, tail.strip_prefix(':')),
        None => text
            .rsplit_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
    (!host.is_empty() && port > 0).then(|| (host.to_owned(), port))
}

/// An address as libiscsi wants it: numeric, IPv6 in brackets, always with a port.
fn numeric(address: SocketAddr) -> String {
    address.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Heard {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Heard::from_log(&lines)
    }

    #[test]
    fn keys_are_read_from_the_log() {
        let heard = heard(&[
            "set log level to 6",
            "TargetLoginReply: HeaderDigest=None [iqn.a:b]",
            "TargetLoginReply: MaxBurstLength=262144 [iqn.a:b]",
            "TargetLoginReply: InitialR2T=No [iqn.a:b]",
            "TargetLoginReply: CHAP_C=0xdead [iqn.a:b]",
            "login successful [iqn.a:b]",
        ]);
        assert_eq!(
            heard.words(),
            "MaxRecvDataSegmentLength=8192 MaxBurstLength=262144 InitialR2T=No HeaderDigest=None"
        );
        assert_eq!(heard.refusal, None);
    }

    #[test]
    fn what_was_asked_for_must_be_agreed_on() {
        let uri = "iscsi://nas/iqn.a:b/1?header_digest=crc32c&immediate_data=1&initial_r2t=0";
        let spec = crate::spec::uri::TargetSpec::parse(uri).expect(uri);
        let address = Address::of(&spec).expect(uri);
        let answer = |digest: &str, immediate: &str, r2t: &str| {
            let lines = [
                format!("TargetLoginReply: HeaderDigest={digest} [iqn.a:b]"),
                format!("TargetLoginReply: ImmediateData={immediate} [iqn.a:b]"),
                format!("TargetLoginReply: InitialR2T={r2t} [iqn.a:b]"),
            ];
            as_asked(&address, &Heard::from_log(&lines))
        };
        assert_eq!(answer("CRC32C", "Yes", "No"), Ok(()));
        for (refused, option) in [
            (answer("None", "Yes", "No"), "header_digest=crc32c"),
            (answer("CRC32C", "No", "No"), "immediate_data=1"),
            (answer("CRC32C", "Yes", "Yes"), "initial_r2t=0"),
        ] {
            let error = refused.expect_err(option);
            assert_eq!(error.kind, Kind::Unsupported);
            assert!(error.message.contains(option), "{error}");
        }
        assert_eq!(
            as_asked(&address, &Heard::default()),
            Ok(()),
            "nothing said"
        );
    }

    #[test]
    fn a_refusal_has_its_status() {
        let heard = heard(&[
            "Failed to log in to target. Status: Authentication failure(513) [iqn.a:b]",
            "iscsi_service_reconnect_if_loggedin. Can not reconnect right now.\n [iqn.a:b]",
        ]);
        assert_eq!(heard.refusal, Some(0x0201));
    }

    #[test]
    fn redirects_name_a_portal() {
        for (text, host, port) in [
            ("10.0.0.2:3261,1", "10.0.0.2", 3261),
            ("[fe80::1]:3261,12", "fe80::1", 3261),
            ("[::1]", "::1", 3260),
            ("nas", "nas", 3260),
        ] {
            assert_eq!(portal_of(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["", ":3260", "nas:x", "nas:0"] {
            assert_eq!(portal_of(text), None, "{text}");
        }
    }

    #[test]
    fn ipv6_portals_are_bracketed_for_libiscsi() {
        for (address, text) in [
            ("127.0.0.1:3260", "127.0.0.1:3260"),
            ("[::1]:3261", "[::1]:3261"),
        ] {
            assert_eq!(numeric(address.parse().expect(address)), text);
        }
    }
}
