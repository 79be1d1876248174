//! What an `smb:` URI means, and how libsmbclient wants it spelt. Pure.
//!
//! libsmbclient percent-decodes every part of a URL itself, cuts it at `?` and `@`, and takes a backslash for a
//! slash; so everything but plain letters and digits is escaped, and what would mean something else on a share
//! is refused. Must not know: the network, the client.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{Error, Result};
use crate::spec::uri::TargetSpec;

/// The port of SMB over TCP.
pub(super) const PORT: u16 = 445;
/// libsmbclient copies user, password and domain into buffers of 256 bytes and would cut longer ones in silence.
const CREDENTIAL_MAX: usize = 255;
/// What stays as it is in a URL for libsmbclient. An IPv6 address must have its colons escaped: brackets fail.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Characters that no SMB name holds: wildcards of both kinds, the stream separator, and separators.
const FORBIDDEN: &[char] = &['\\', '/', ':', '*', '?', '"', '<', '>', '|', '\0'];

/// Which client moves the blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Engine {
    /// Samba's libsmbclient: a request at a time.
    #[default]
    Pavao,
    /// Many requests under way on a connection.
    Smb2,
}

impl Engine {
    /// The engine that a URI asks for; None for a word that names none.
    pub fn of(spec: &TargetSpec) -> Option<Self> {
        match spec.options.get("engine").map(String::as_str) {
            None | Some("pavao") => Some(Self::Pavao),
            Some("smb2") => Some(Self::Smb2),
            Some(_) => None,
        }
    }
}

/// A directory on a share, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    hosts: Vec<String>,
    /// The TCP port.
    pub port: u16,
    /// The Windows domain; empty when none was given.
    pub domain: String,
    /// The user; None logs in as guest.
    pub user: Option<String>,
    /// The share's name.
    pub share: String,
    /// Path parts of the URI's directory in the share.
    directory: Vec<String>,
    /// Refuse to run unencrypted.
    pub encrypt: bool,
    /// Sign every message.
    pub sign: bool,
}

impl Place {
    /// Reads the URI; touches nothing.
    pub fn of(spec: &TargetSpec) -> Result<Self> {
        let engine = Engine::of(spec).ok_or_else(|| {
            let name = spec.options.get("engine").map_or("", String::as_str);
            Error::usage(format!(
                "unknown engine '{name}' for smb; allowed: pavao, smb2"
            ))
        })?;
        let mut parts = spec.parts();
        let share = parts.next().ok_or_else(|| {
            Error::usage(format!(
                "a server without a share: add its name, as in smb://{}/share/dir",
                spec.host()
            ))
        })?;
        check_part(share)?;
        let directory = parts
            .map(|part| check_part(part).map(|()| part.to_owned()))
            .collect::<Result<_>>()?;
        let user = spec.user.clone().filter(|user| !user.is_empty());
        let domain = spec.domain.clone().unwrap_or_default();
        for (what, text) in [
            ("user name", user.as_deref().unwrap_or("")),
            ("domain", &domain),
        ] {
            check_length(what, text)?;
        }
        let encrypt = spec.switch("encrypt")?.unwrap_or(false);
        let sign = spec.switch("sign")?;
        if engine == Engine::Smb2 && encrypt {
            return Err(Error::usage(
                "engine=smb2 can't encrypt; take engine=pavao for encrypt=1",
            ));
        }
        if engine == Engine::Smb2 && user.is_some() && sign == Some(false) {
            return Err(Error::usage(
                "engine=smb2 signs every message of a user's session; take engine=pavao for sign=0, or a guest share",
            ));
        }
        let sign = sign.unwrap_or(false);
        // Measured: with "required", libsmbclient moves a guest's data unencrypted and says so on stdout only.
        if user.is_none() && (encrypt || sign) {
            let option = if encrypt { "encrypt" } else { "sign" };
            return Err(Error::usage(format!(
                "{option}=1 needs a user, since a guest session has no key to {option} with: \
                 smb://user@{}/{share}",
                spec.host()
            )));
        }
        Ok(Self {
            hosts: spec.hosts.clone(),
            port: spec.port.unwrap_or(PORT),
            domain,
            user,
            share: share.to_owned(),
            directory,
            encrypt,
            sign,
        })
    }

    /// The address that a lane uses: sessions take turns over several.
    pub fn host(&self, lane: u16) -> &str {
        self.hosts
            .get(usize::from(lane) % self.hosts.len().max(1))
            .map_or("", String::as_str)
    }

    /// Server and port as people write them.
    pub fn address(&self, lane: u16) -> String {
        let host = self.host(lane);
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The server as libsmbclient's URL.
    pub fn server_url(&self, lane: u16) -> String {
        format!("smb://{}:{}", escaped(self.host(lane)), self.port)
    }

    /// The share as libsmbclient's URL has it after the server.
    pub fn share_url(&self) -> String {
        format!("/{}", escaped(&self.share))
    }

    /// A directory below the URI's own (`""` being that one), as libsmbclient's URL has it after the share.
    pub fn directory_url(&self, relative: &str) -> Result<String> {
        let mut url = String::new();
        for part in &self.directory {
            let _ = write!(url, "/{}", escaped(part));
        }
        if !relative.is_empty() {
            for part in relative.split('/') {
                check_part(part)?;
                let _ = write!(url, "/{}", escaped(part));
            }
        }
        if url.is_empty() {
            url.push('/');
        }
        Ok(url)
    }

    /// A file or directory below the URI's own, never that one itself.
    pub fn entry_url(&self, relative: &str) -> Result<String> {
        if relative.is_empty() {
            return Err(Error::safety("an empty name; nothing was touched"));
        }
        self.directory_url(relative)
    }

    /// A file below the URI's own directory as SMB itself spells it: from the share, with backslashes.
    pub fn entry_name(&self, relative: &str) -> Result<String> {
        self.entry_url(relative)?;
        let parts = self.directory.iter().map(String::as_str);
        let parts: Vec<&str> = parts.chain(relative.split('/')).collect();
        Ok(parts.join("\\"))
    }

    /// How many addresses sessions take turns over.
    pub const fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The URI's directory for people: `dir/sub`, empty for the share's root.
    pub fn directory_name(&self) -> String {
        self.directory.join("/")
    }

    /// Who logs in, for people.
    pub fn login_name(&self) -> String {
        match (&self.user, self.domain.as_str()) {
            (None, _) => "guest".to_owned(),
            (Some(user), "") => format!("user {user}"),
            (Some(user), domain) => format!("user {domain}\\{user}"),
        }
    }
}

/// Refuses a password that libsmbclient would cut.
pub(super) fn check_password(password: &str) -> Result<()> {
    check_length("password", password)
}

fn check_length(what: &str, text: &str) -> Result<()> {
    if text.len() > CREDENTIAL_MAX {
        return Err(Error::usage(format!(
            "the {what} is longer than the {CREDENTIAL_MAX} bytes that libsmbclient takes"
        )));
    }
    Ok(())
}

/// Refuses path parts that lead elsewhere, or that no SMB server has.
fn check_part(part: &str) -> Result<()> {
    if part.is_empty() || part == "." || part == ".." {
        return Err(Error::safety(format!(
            "'{part}' is no name for a file or directory here; nothing was touched"
        )));
    }
    if let Some(bad) = part
        .chars()
        .find(|c| FORBIDDEN.contains(c) || c.is_control())
    {
        return Err(Error::safety(format!(
            "'{}' can't be a name on an SMB share because of its {bad:?}; nothing was touched",
            part.escape_debug()
        )));
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn place(uri: &str) -> Place {
        Place::of(&TargetSpec::parse(uri).expect(uri)).expect(uri)
    }

    fn refusal(uri: &str) -> Error {
        Place::of(&TargetSpec::parse(uri).expect(uri)).expect_err(uri)
    }

    #[test]
    fn a_uri_becomes_what_libsmbclient_takes() {
        let place =
            place("smb://WORK;me@nas:4450/My%20M%C3%A9di%C3%A1%20Share/sub%20dir?encrypt=1");
        assert_eq!(place.server_url(0), "smb://nas:4450");
        assert_eq!(place.share_url(), "/My%20M%C3%A9di%C3%A1%20Share");
        assert_eq!(place.directory_url("").expect("root"), "/sub%20dir");
        assert_eq!(
            place.entry_url("a/100% [a].bin").expect("file"),
            "/sub%20dir/a/100%25%20%5Ba%5D.bin"
        );
        assert_eq!(
            place.entry_name("a/100% [a].bin").expect("file"),
            r"sub dir\a\100% [a].bin"
        );
        assert_eq!(place.login_name(), "user WORK\\me");
        assert!(place.encrypt && !place.sign);
    }

    #[test]
    fn ports_addresses_and_lanes() {
        let v6 = place("smb://u@[fe80::1%25eth0]/s");
        assert_eq!(v6.server_url(7), "smb://fe80%3A%3A1%25eth0:445");
        assert_eq!(v6.address(0), "[fe80::1%eth0]:445");
        assert_eq!(v6.directory_url("").expect("root"), "/");
        let two = place("smb://a,b/s");
        assert_eq!(
            (two.host(0), two.host(1), two.host(2), two.user.as_deref()),
            ("a", "b", "a", None)
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let place = place("smb://u@h/s/dir");
        for name in [
            "", "/", "a//b", ".", "..", "a/../b", "a\\b", "a*", "a?", "a:b", "x\0", "<", "a\n",
        ] {
            let error = place.entry_url(name).expect_err(name);
            assert_eq!(error.kind, Kind::Safety, "{name:?}");
            assert!(place.entry_name(name).is_err(), "{name:?}");
        }
        assert_eq!(refusal("smb://u@h/s/..").kind, Kind::Safety);
        assert_eq!(refusal("smb://u@h/s%5Ct").kind, Kind::Safety);
    }

    #[test]
    fn bad_requests_say_what_to_do() {
        for (uri, word) in [
            ("smb://u@h", "smb://h/share"),
            ("smb://u@h/s?engine=smb3", "'smb3'"),
            ("smb://u@h/s?engine=smb2&encrypt=1", "can't encrypt"),
            ("smb://u@h/s?engine=smb2&sign=0", "signs every"),
            ("smb://u@h/s?sign=maybe", "sign=maybe"),
            ("smb://h/s?encrypt=1", "needs a user"),
            ("smb://h/s?sign=1", "needs a user"),
        ] {
            let error = refusal(uri);
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.message.contains(word), "{uri}: {error}");
        }
        assert!(check_password(&"x".repeat(256)).is_err());
        let long = refusal(&format!("smb://{}@h/s", "u".repeat(256)));
        assert!(long.message.contains("user name"));
    }
}
