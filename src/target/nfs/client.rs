//! Blocking NFS calls on one connection: one under way, each bounded in time, each failure a sentence.
//!
//! Must not know what a file or a workload is; handles in, results out.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nfs3_client::{Nfs3Client, RpcError};
use nfs3_types::nfs3::{
    GETATTR3args, LOOKUP3args, Nfs3Option, Nfs3Result, diropargs3, fattr3, filename3, nfs_fh3,
    nfsstat3,
};
use nfs3_types::rpc::opaque_auth;
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};

use super::dial::{Dialer, Service};
use super::status::{self, Who};
use super::wire::{self, From, Io};

/// How long a connection is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Over long idle times: servers close idle connections, so it is opened anew where it went.
    Kept,
    /// For one run: its loss is a finding.
    Once,
}

/// Pause before a call that the server put off is made again.
const PUT_OFF: Duration = Duration::from_millis(100);

/// A server's NFS service, ready for calls.
pub(super) struct Client {
    dialer: Dialer,
    service: Service,
    credential: opaque_auth<'static>,
    nfs: Nfs3Client<Io>,
    watch: OwnedFd,
    life: Life,
    lost: bool,
    limit: Duration,
    who: Who,
    uri: String,
}

impl Client {
    /// Connects. `limit` bounds each call.
    pub(super) fn open(
        dialer: Dialer,
        service: Service,
        credential: opaque_auth<'static>,
        who: Who,
        life: Life,
        limit: Duration,
        uri: &str,
    ) -> Result<Self> {
        let (nfs, watch) = reach(&dialer, &service, &credential)?;
        Ok(Self {
            dialer,
            service,
            credential,
            nfs,
            watch,
            life,
            lost: false,
            limit,
            who,
            uri: uri.to_owned(),
        })
    }

    /// The server and its NFS port, for people.
    pub(super) fn peer(&self) -> String {
        self.dialer.name(&self.service)
    }

    /// The server's address.
    pub(super) fn address(&self) -> String {
        self.dialer.address().ip().to_string()
    }

    /// The URI, for errors.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// As whom calls are made.
    pub(super) const fn who(&self) -> Who {
        self.who
    }

    /// What proves to the server who calls.
    pub(super) const fn credential(&self) -> &opaque_auth<'static> {
        &self.credential
    }

    /// One more connection to the same service, as a bare socket.
    pub(super) fn another_socket(&self) -> Result<std::net::TcpStream> {
        let io = self.dialer.dial(&self.service, From::Privileged)?;
        io.into_socket().map_err(|error| {
            let doing = format!("use the connection to {}", self.peer());
            Error::io(Phase::Connect, &error, &doing).at(&self.uri)
        })
    }

    /// From now on each call may take this long.
    pub(super) const fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Makes a call until it has an answer that is not "later". `doing` is asked for only by a failure:
    /// "read 4096 bytes at offset 0 of 'x'".
    pub(super) fn call<T, E>(
        &mut self,
        phase: Phase,
        doing: impl Fn() -> String,
        mut call: impl AsyncFnMut(
            &mut Nfs3Client<Io>,
        ) -> std::result::Result<Nfs3Result<T, E>, RpcError>,
    ) -> Result<T> {
        self.stand(phase, &doing)?;
        let mut give_up = None;
        loop {
            let answer = self.dialer.wait(self.limit, call(&mut self.nfs));
            let status = match answer {
                Ok(Nfs3Result::Ok(value)) => return Ok(value),
                Ok(Nfs3Result::Err((status, _))) => status,
                Err(failure) => {
                    // Half a message may be on its way: nothing can follow it.
                    self.lost = true;
                    let mut error = failure.error(phase, &doing());
                    if error.server_lost() {
                        error.message = format!("{} ({})", error.message, self.peer());
                    }
                    return Err(error.at(&self.uri));
                }
            };
            let now = Instant::now();
            let late = now >= *give_up.get_or_insert(now + self.limit);
            if status != nfsstat3::NFS3ERR_JUKEBOX || late {
                return Err(status::refused(phase, status, &doing(), self.who).at(&self.uri));
            }
            std::thread::sleep(PUT_OFF);
        }
    }

    /// Makes sure that there is a connection to call on.
    fn stand(&mut self, phase: Phase, doing: &dyn Fn() -> String) -> Result<()> {
        match self.life {
            Life::Once if self.lost => {
                let message = format!("could not {}: the connection was lost before", doing());
                Err(Error::new(phase, Kind::Gone, message).at(&self.uri))
            }
            Life::Kept if self.lost || !wire::idle_and_open(&self.watch) => {
                let (nfs, watch) = reach(&self.dialer, &self.service, &self.credential)
                    .map_err(|error| error.at(&self.uri))?;
                self.nfs = nfs;
                self.watch = watch;
                self.lost = false;
                Ok(())
            }
            Life::Once | Life::Kept => Ok(()),
        }
    }

    /// Finds names beneath a directory one after the other. No symbolic link is followed.
    pub(super) fn walk(
        &mut self,
        phase: Phase,
        directory: &nfs_fh3,
        names: &[&str],
    ) -> Result<nfs_fh3> {
        let mut handle = directory.clone();
        for (depth, name) in names.iter().enumerate() {
            let args = LOOKUP3args {
                what: entry(&handle, name),
            };
            let doing = || format!("find '{}'", names[..=depth].join("/"));
            let found = self.call(phase, doing, async |nfs| nfs.lookup(&args).await)?;
            handle = found.object;
        }
        Ok(handle)
    }

    /// The attributes of an object; `name` is for messages.
    pub(super) fn attributes(
        &mut self,
        phase: Phase,
        object: &nfs_fh3,
        name: &str,
    ) -> Result<fattr3> {
        let args = GETATTR3args {
            object: object.clone(),
        };
        let doing = || format!("read the attributes of '{name}'");
        let found = self.call(phase, doing, async |nfs| nfs.getattr(&args).await)?;
        Ok(found.obj_attributes)
    }
}

/// A name in a directory, as calls want it.
pub(super) fn entry<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: directory.clone(),
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

/// What is there, of what the server may leave out.
pub(super) fn given<T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack>(
    value: Nfs3Option<T>,
) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}

fn reach(
    dialer: &Dialer,
    service: &Service,
    credential: &opaque_auth<'static>,
) -> Result<(Nfs3Client<Io>, OwnedFd)> {
    let io = dialer.dial(service, From::Privileged)?;
    let watch = io.watch().map_err(|error| {
        Error::io(
            Phase::Connect,
            &error,
            &format!("watch the connection to {}", dialer.name(service)),
        )
    })?;
    let nfs = Nfs3Client::new_with_auth(io, credential.clone(), opaque_auth::default());
    Ok((nfs, watch))
}
