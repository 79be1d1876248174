//! Target URIs: one syntax for every protocol, percent-decoded exactly once, never holding a password.
//!
//! Must not know: what a protocol makes of the path and the options.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A target URI taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// The URI as given, without any password: for messages and results.
    pub uri: String,
    /// The scheme: `nfs`, `smb`, `file` and so on.
    pub protocol: String,
    /// The Windows domain of `smb://domain;user@host`.
    pub domain: Option<String>,
    /// The user of `user@host`.
    pub user: Option<String>,
    /// Host names or IP literals (IPv6 without brackets); several when sessions spread over addresses.
    pub hosts: Vec<String>,
    /// The port, when given.
    pub port: Option<u16>,
    /// The decoded path: with its leading `/` after a host; what follows the scheme otherwise.
    pub path: String,
    /// The decoded options after `?`.
    pub options: BTreeMap<String, String>,
}

/// Schemes whose rest is a path, a size or nothing, rather than `//host/path`.
const LOCAL: &[&str] = &["null", "sim", "ram", "file", "block"];
/// Schemes with a host.
const REMOTE: &[&str] = &["nfs", "smb", "iscsi"];

/// What stays as it is in a user, a host or an option: nothing that a URI or a shell could take for something else.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in a path, whose slashes stand, and the colons of iSCSI names.
const PATH: &AsciiSet = &PLAIN
    .remove(b'/')
    .remove(b':')
    .remove(b',')
    .remove(b'+')
    .remove(b'=');
/// The same inside of brackets.
const LITERAL: &AsciiSet = &PLAIN.remove(b':');

impl TargetSpec {
    /// The target as a URI that [`parse`](Self::parse) takes apart into the same parts; of a protocol with a host.
    #[must_use]
    pub fn compose(&self) -> String {
        let encode = |text: &str, plain| utf8_percent_encode(text, plain).to_string();
        let mut uri = format!("{}://", self.protocol);
        if let Some(user) = &self.user {
            if let Some(domain) = &self.domain {
                uri.push_str(&encode(domain, PLAIN));
                uri.push(';');
            }
            uri.push_str(&encode(user, PLAIN));
            uri.push('@');
        }
        let host = |host: &String| {
            if host.contains(':') {
                format!("[{}]", encode(host, LITERAL))
            } else {
                encode(host, PLAIN)
            }
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        uri.push_str(&hosts.join(","));
        if let Some(port) = self.port {
            uri.push_str(&format!(":{port}"));
        }
        uri.push_str(&encode(&self.path, PATH));
        for (index, (key, value)) in self.options.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(&format!("{}={}", encode(key, PLAIN), encode(value, PLAIN)));
        }
        uri
    }

    /// Reads a URI, or a plain path as `file:`. Fails with a usage error that never repeats a password.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::usage(
                "an empty target; give a path or a URI such as nfs://nas/export/dir",
            ));
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Self::local("file", text, text);
        };
        if LOCAL.contains(&scheme) {
            return Self::local(scheme, rest, text);
        }
        if REMOTE.contains(&scheme) {
            let Some(rest) = rest.strip_prefix("//") else {
                return Err(Error::usage(format!(
                    "'{scheme}:' needs '//host' after it, as in {scheme}://nas/…"
                )));
            };
            return Self::remote(scheme, rest, text);
        }
        if text.starts_with('/') || text.starts_with('.') {
            return Self::local("file", text, text);
        }
        let known: Vec<&str> = LOCAL.iter().chain(REMOTE).copied().collect();
        Err(Error::usage(format!(
            "unknown protocol '{scheme}' in a target; one of: {}",
            known.join(", ")
        )))
    }

    fn local(scheme: &str, rest: &str, uri: &str) -> Result<Self> {
        let secret = uri.split_once('?').map_or("", |(_, options)| options);
        if scheme != "file" || uri.starts_with("file:") {
            refuse_secret(scheme, secret)?;
        }
        // A plain path is taken literally: '?' and '%' are legal in names.
        let literal = scheme == "file" && !uri.starts_with("file:");
        let (path, options) = if literal {
            (rest, "")
        } else {
            rest.split_once('?').unwrap_or((rest, ""))
        };
        let path = if literal {
            path.to_owned()
        } else {
            decode(path, uri)?
        };
        Ok(Self {
            uri: uri.to_owned(),
            protocol: scheme.to_owned(),
            path,
            options: options_of(options, uri)?,
            ..Self::default()
        })
    }

    fn remote(scheme: &str, rest: &str, uri: &str) -> Result<Self> {
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, authority),
        };
        // A password that holds '/' or '?' ends the authority early: what then looks like a port is its beginning.
        let early = login.is_none()
            && uri.contains('@')
            && address
                .rsplit_once(':')
                .is_some_and(|(_, port)| !address.ends_with(']') && port.parse::<u16>().is_err());
        if login.is_some_and(|login| login.contains(':')) || early {
            return Err(password_refused(scheme));
        }
        refuse_secret(scheme, options)?;
        let (domain, user) = match login.map(|login| {
            login
                .split_once(';')
                .map_or((None, login), |(d, u)| (Some(d), u))
        }) {
            Some((domain, user)) => (
                domain.map(|d| decode(d, uri)).transpose()?,
                Some(decode(user, uri)?),
            ),
            None => (None, None),
        };
        let (hosts, port) = hosts_of(address, uri)?;
        Ok(Self {
            uri: uri.to_owned(),
            protocol: scheme.to_owned(),
            domain,
            user,
            hosts,
            port,
            path: decode(path, uri)?,
            options: options_of(options, uri)?,
        })
    }

    /// The first host, as given.
    #[must_use]
    pub fn host(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }

    /// The decoded path's parts, without empty ones.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter(|part| !part.is_empty())
    }

    /// An option read as `T`; a usage error that names the option when it does not fit.
    pub fn option<T: std::str::FromStr>(&self, key: &str, meaning: &str) -> Result<Option<T>> {
        self.options.get(key).map_or(Ok(None), |value| {
            value.parse().map(Some).map_err(|_| {
                Error::usage(format!("option {key}={value} is not {meaning}")).at(&self.uri)
            })
        })
    }

    /// An option that is on (`1`, `true`, `yes`) or off (`0`, `false`, `no`).
    pub fn switch(&self, key: &str) -> Result<Option<bool>> {
        match self.options.get(key).map(String::as_str) {
            None => Ok(None),
            Some("1" | "true" | "yes" | "on") => Ok(Some(true)),
            Some("0" | "false" | "no" | "off") => Ok(Some(false)),
            Some(other) => {
                Err(Error::usage(format!("option {key}={other} is neither 0 nor 1")).at(&self.uri))
            }
        }
    }
}

fn password_refused(scheme: &str) -> Error {
    Error::usage(format!(
        "a password does not belong in a target URI (it would show in process lists and results); \
         leave it out of the {scheme} URI and set NASGAUGE_PASSWORD, use --credentials FILE, or answer the prompt"
    ))
}

/// Refuses options whose name says that they hold a secret, without repeating them.
fn refuse_secret(scheme: &str, options: &str) -> Result<()> {
    const SECRETS: &[&str] = &[
        "pass",
        "passwd",
        "password",
        "passphrase",
        "pw",
        "pwd",
        "secret",
    ];
    let secret = options.split('&').any(|pair| {
        let key = pair.split('=').next().unwrap_or("");
        let key = percent_decode_str(key)
            .decode_utf8_lossy()
            .to_ascii_lowercase();
        key.split(['-', '_']).any(|word| SECRETS.contains(&word))
    });
    if secret {
        return Err(password_refused(scheme));
    }
    Ok(())
}

fn decode(text: &str, uri: &str) -> Result<String> {
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Error::usage(format!("'{text}' does not decode to UTF-8")).at(uri))?;
    if decoded.contains('\0') {
        return Err(Error::usage("a zero byte in a target").at(uri));
    }
    Ok(decoded.into_owned())
}

fn options_of(text: &str, uri: &str) -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Error::usage(format!("option '{pair}' has no '=value'")).at(uri))?;
        // As in flags, '_' equals '-': options are stored with '_'.
        let key = decode(key, uri)?.replace('-', "_");
        if options.insert(key.clone(), decode(value, uri)?).is_some() {
            return Err(Error::usage(format!("option '{key}' is given twice")).at(uri));
        }
    }
    Ok(options)
}

/// `host`, `host:port`, `[::1]:port`, `a,b:port`.
fn hosts_of(address: &str, uri: &str) -> Result<(Vec<String>, Option<u16>)> {
    let mut hosts = Vec::new();
    let mut port = None;
    for one in address.split(',') {
        let (host, tail) = if let Some(inner) = one.strip_prefix('[') {
            let (host, tail) = inner
                .split_once(']')
                .ok_or_else(|| Error::usage("an IPv6 address without its closing ']'").at(uri))?;
            (host, tail.strip_prefix(':'))
        } else {
            match one.matches(':').count() {
                0 => (one, None),
                1 => one
                    .split_once(':')
                    .map_or((one, None), |(host, port)| (host, Some(port))),
                _ => {
                    return Err(Error::usage(format!(
                        "write the IPv6 address in brackets: [{one}]"
                    ))
                    .at(uri));
                }
            }
        };
        if host.is_empty() {
            return Err(Error::usage("a target without a host").at(uri));
        }
        if let Some(text) = tail {
            let number = text.parse::<u16>().ok().filter(|port| *port > 0);
            let number = number.ok_or_else(|| {
                Error::usage(format!("'{text}' is not a port between 1 and 65535")).at(uri)
            })?;
            port = Some(number);
        }
        hosts.push(decode(host, uri)?);
    }
    Ok((hosts, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TargetSpec {
        TargetSpec::parse(text).expect(text)
    }

    #[test]
    fn paths_are_files_taken_literally() {
        let spec = parse("/mnt/100% [a]?.bin");
        assert_eq!(
            (spec.protocol.as_str(), spec.path.as_str()),
            ("file", "/mnt/100% [a]?.bin")
        );
        assert_eq!(parse("file:/mnt/a%20b?direct=1").path, "/mnt/a b");
    }

    #[test]
    fn a_remote_uri_comes_apart() {
        let spec = parse(
            "smb://WORK;me%40home@nas:4450/My%20M%C3%A9di%C3%A1/sub%2520dir?engine=smb2&max-read=1",
        );
        assert_eq!(spec.domain.as_deref(), Some("WORK"));
        assert_eq!(spec.user.as_deref(), Some("me@home"));
        assert_eq!((spec.host(), spec.port), ("nas", Some(4450)));
        assert_eq!(spec.path, "/My Médiá/sub%20dir", "decoded once, not twice");
        assert_eq!(spec.options["max_read"], "1");
    }

    #[test]
    fn ipv6_literals_stand_in_brackets_everywhere() {
        for (text, host, port) in [
            ("nfs://[::1]/export", "::1", None),
            ("iscsi://[::1]:3261/iqn/1", "::1", Some(3261)),
            ("smb://u@[fe80::1%25eth0]/share", "fe80::1%eth0", None),
        ] {
            let spec = parse(text);
            assert_eq!((spec.host(), spec.port), (host, port), "{text}");
        }
        assert!(TargetSpec::parse("nfs://::1/export").is_err());
    }

    #[test]
    fn several_hosts_share_a_port() {
        let spec = parse("smb://u@a,b:445/s");
        assert_eq!((spec.hosts.len(), spec.port), (2, Some(445)));
    }

    #[test]
    fn a_password_is_refused_and_not_echoed() {
        for text in [
            "smb://me:hunter2@nas/share",
            "iscsi://u@h/i/0?password=hunter2",
            "nfs://h/e?chap-secret=hunter2",
            "iscsi://h/i/0?uid=1&CHAP_Secret=hunter2",
            "smb://h/s?%70assword=hunter2",
            "smb://me:hunter2/more@nas/share",
            "smb://me:hunter2?more@nas/share",
            "file:/x?password=hunter2",
            "sim:?pw=hunter2",
        ] {
            let error = TargetSpec::parse(text).expect_err(text);
            assert!(error.before_anything());
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn bad_uris_say_what_is_wrong() {
        for (text, word) in [
            ("ftp://x/y", "unknown protocol"),
            ("nfs:/x", "//host"),
            ("nfs:///x", "without a host"),
            ("nfs://h:99999/x", "port"),
            ("nfs://h/x?uid", "=value"),
            ("nfs://h/x?uid=1&uid=2", "twice"),
            ("", "empty"),
        ] {
            let error = TargetSpec::parse(text).expect_err(text);
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
    }
}

#[cfg(test)]
mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = TargetSpec::parse(&text);
        }

        #[test]
        fn no_uri_like_text_makes_the_parser_panic(
            text in r"(nfs|smb|iscsi|file|ram|sim|null|block|x)?:?/{0,3}[\[\]a-z0-9:@;,.%?&=_ é/\-]{0,40}"
        ) {
            let _ = TargetSpec::parse(&text);
        }

        #[test]
        fn a_password_after_the_user_is_never_repeated(
            scheme in "nfs|smb|iscsi", password in "[A-Z][A-Z0-9/?%&=]{6,12}Q", rest in "[a-z]{0,8}(/[a-z]{0,8})?"
        ) {
            let uri = format!("{scheme}://user:{password}@host/{rest}");
            let error = TargetSpec::parse(&uri).expect_err("a password");
            prop_assert!(!format!("{error:?}{error}").contains(&password), "{error:?}");
        }

        #[test]
        fn what_is_composed_reads_back(
            scheme in "nfs|smb|iscsi", path in "(/[^\0]{0,30})?", login in proptest::option::of(("[^\0]{1,12}", proptest::option::of("[^\0]{1,8}"))),
            host in r"[^\x00]{1,12}", port in proptest::option::of(1_u16..), value in "[^\0]{0,8}"
        ) {
            let (user, domain) = login.map_or((None, None), |(user, domain)| (Some(user), domain));
            let mut spec = TargetSpec {
                protocol: scheme,
                domain,
                user,
                hosts: vec![host],
                port,
                path,
                options: BTreeMap::from([("mountport".to_owned(), value)]),
                ..TargetSpec::default()
            };
            spec.uri = spec.compose();
            prop_assert_eq!(TargetSpec::parse(&spec.uri).expect("a URI"), spec);
        }

        #[test]
        fn what_is_percent_encoded_comes_back(path in "[a-zA-Z0-9 %?&=#+äß/]{0,30}") {
            let mut encoded = String::new();
            for byte in path.bytes() {
                encoded.push_str(&format!("%{byte:02x}"));
            }
            let spec = TargetSpec::parse(&format!("nfs://h/{encoded}")).expect("a URI");
            prop_assert_eq!(spec.path, format!("/{path}"));
        }
    }
}
