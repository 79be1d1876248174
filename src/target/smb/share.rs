//! One login to one share: the server is asked, libsmbclient configured, its client made, and the share seen.
//!
//! Must not know: files, the engine. Units: bytes.

use std::io;
use std::time::Duration;

use pavao::{SmbClient, SmbCredentials, SmbEncryptionLevel, SmbError, SmbOptions};

use super::place::{Place, check_password};
use super::server::Server;
use super::{fault, home, refusal};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::Login;

/// A share that let us in.
pub(super) struct Share {
    /// The connection.
    pub client: SmbClient,
    /// Who and where.
    pub access: Access,
}

/// What is known of a login beside the connection itself.
pub(super) struct Access {
    /// The URI's meaning.
    pub place: Place,
    /// What the server said.
    pub server: Server,
    /// The server and port in use.
    pub address: String,
    /// The longest wait for one answer.
    pub timeout: Duration,
    /// Whether no settings but ours hold, so that unsigned is known to be unsigned.
    isolated: bool,
}

impl Share {
    /// Logs in. libsmbclient fixes the longest wait for an answer when it connects, hence `timeout` here.
    pub fn open(login: &Login, lane: u16, timeout: Duration) -> Result<Self> {
        let place = Place::of(&login.spec)?;
        let address = place.address(lane);
        let password = login.secret.0.as_deref().unwrap_or("");
        check_password(password)?;
        let server = Server::ask(
            place.host(lane),
            place.port,
            &address,
            login.connect_timeout(),
        )?;
        if place.encrypt && server.cipher().is_none() {
            return Err(Error::new(
                Phase::Connect,
                Kind::Unsupported,
                format!(
                    "{address} can't encrypt (SMB {}); leave encrypt=1 out, or enable encryption on the server",
                    server.dialect()
                ),
            ));
        }
        let isolated = home::configure(place.sign)?;
        let access = Access {
            place,
            server,
            address,
            timeout,
            isolated,
        };
        let client = client(&access.place, lane, password, timeout)
            .map_err(|error| access.fault(Phase::Connect, error, "prepare libsmbclient"))?;
        let share = Self { client, access };
        share.look()?;
        Ok(share)
    }

    /// Asks at the other addresses of the URI too: one where nobody answers is told before anything is written.
    pub fn others_answer(&self, timeout: Duration) -> Result<()> {
        let place = &self.access.place;
        for lane in 1..place.hosts() as u16 {
            Server::ask(place.host(lane), place.port, &place.address(lane), timeout)?;
        }
        Ok(())
    }

    /// The first call connects; asked of the share itself, it tells a missing share from a missing file.
    fn look(&self) -> Result<()> {
        let Err(error) = self.client.stat("/") else {
            return Ok(());
        };
        let cause = fault::cause(error);
        let Access { place, address, .. } = &self.access;
        let share = &place.share;
        Err(match fault::kind(&cause) {
            Kind::NotFound => refusal::no_share(address, share),
            Kind::Denied => refusal::not_let_in(address, place),
            _ => self.access.fault(
                Phase::Authenticate,
                SmbError::Io(cause),
                &format!("log in to share '{share}' as {}", place.login_name()),
            ),
        })
    }
}

impl Access {
    /// A failed call in a sentence.
    pub fn fault(&self, phase: Phase, error: SmbError, doing: &str) -> Error {
        self.io_fault(phase, &fault::cause(error), doing)
    }

    /// A failed read or write in a sentence.
    pub fn io_fault(&self, phase: Phase, error: &io::Error, doing: &str) -> Error {
        fault::fault(phase, error, &self.address, self.timeout, doing)
    }

    /// Whether data is encrypted, where that is known: a server may demand it without libsmbclient telling.
    pub fn encrypted(&self) -> Option<bool> {
        match (self.place.encrypt, self.server.cipher()) {
            (true, _) => Some(true),
            (false, None) => Some(false),
            (false, Some(_)) => None,
        }
    }

    /// Whether messages are signed, where that is known and means anything: encrypted ones carry their own proof.
    pub fn signed(&self) -> Option<bool> {
        if self.place.encrypt {
            return None;
        }
        if self.place.user.is_none() {
            return Some(false);
        }
        if self.place.sign || self.server.signing_required {
            return Some(true);
        }
        self.isolated.then_some(false)
    }

    /// What the peers agreed on, for the CSV.
    pub fn negotiated(&self) -> String {
        let mut words = vec![format!("dialect={}", self.server.dialect())];
        let on_off = |on: bool| if on { "on" } else { "off" };
        if let Some(on) = self.encrypted() {
            words.push(format!("encryption={}", on_off(on)));
            if let Some(cipher) = self.server.cipher().filter(|_| on) {
                words.push(format!("cipher={cipher}"));
            }
        }
        if let Some(on) = self.signed() {
            words.push(format!("signing={}", on_off(on)));
        }
        words.push(format!("max_read={}", self.server.max_read));
        words.push(format!("max_write={}", self.server.max_write));
        words.join(" ")
    }
}

/// All clients of a process must have the same dialect bounds, so none are set.
fn client(
    place: &Place,
    lane: u16,
    password: &str,
    timeout: Duration,
) -> std::result::Result<SmbClient, SmbError> {
    let credentials = SmbCredentials::default()
        .server(place.server_url(lane))
        .share(place.share_url())
        .username(place.user.as_deref().unwrap_or(""))
        .password(if place.user.is_some() { password } else { "" })
        .workgroup(&place.domain);
    let encryption = if place.encrypt {
        SmbEncryptionLevel::Require
    } else {
        SmbEncryptionLevel::None
    };
    // Without it, a refused user silently becomes a guest, whose data is neither signed nor encrypted.
    let options = SmbOptions::default()
        .no_auto_anonymous_login(true)
        .one_share_per_server(true)
        .encryption_level(encryption);
    let client = SmbClient::new(credentials, options)?;
    client.set_timeout(timeout)?;
    Ok(client)
}
