//! The MOUNT service: opening an export, and the list of exports that explains a refusal.

use nfs3_client::{MountClient, MountError};
use nfs3_types::mount::{dirpath, mountres3_ok, mountstat3};
use nfs3_types::nfs3::nfs_fh3;
use nfs3_types::rpc::opaque_auth;
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};

use super::dial::{Dialer, Service};
use super::path;
use super::status::{self, Who};
use super::wire::{From, Io};

/// `AUTH_NONE` and `AUTH_SYS` among an export's flavours.
const FLAVOURS: [u32; 2] = [0, 1];
/// So many exports are named in a message.
const NAMED: usize = 12;

/// A conversation with the MOUNT service.
pub(super) struct Mounting<'a> {
    dialer: &'a Dialer,
    name: String,
    client: MountClient<Io>,
    /// As whom it is asked.
    pub(super) who: Who,
}

/// An export and the hosts that may mount it.
pub(super) struct Export {
    pub(super) path: String,
    pub(super) hosts: Vec<String>,
}

impl<'a> Mounting<'a> {
    pub(super) fn new(
        dialer: &'a Dialer,
        service: &Service,
        who: Who,
        credential: &opaque_auth<'static>,
    ) -> Result<Self> {
        let io = dialer.dial(service, From::Privileged)?;
        let who = Who {
            privileged: io.privileged,
            ..who
        };
        let verifier = opaque_auth::default();
        Ok(Self {
            dialer,
            name: dialer.name(service),
            client: MountClient::new_with_auth(io, credential.clone(), verifier),
            who,
        })
    }

    /// Opens the longest beginning of a path that the server takes: handle, its path, the names left over.
    pub(super) fn longest<'n>(
        &mut self,
        names: &'n [&'n str],
    ) -> Result<(nfs_fh3, String, &'n [&'n str])> {
        let mut first = None;
        for (path, rest) in path::cuts(names) {
            match self.mount(&path)? {
                Ok(opened) => {
                    self.speaks_sys(&path, &opened.auth_flavors)?;
                    let handle = nfs_fh3 {
                        data: opened.fhandle.0,
                    };
                    return Ok((handle, path, rest));
                }
                Err(status) => {
                    first.get_or_insert((path, status));
                }
            }
        }
        let (path, status) = first.unwrap_or_else(|| ("/".to_owned(), mountstat3::MNT3ERR_NOENT));
        Err(self.refused(&path, status))
    }

    fn mount(
        &mut self,
        path: &str,
    ) -> Result<std::result::Result<mountres3_ok<'static>, mountstat3>> {
        let Self { dialer, client, .. } = self;
        let answer = dialer.wait(dialer.limit(), async {
            match client.mnt(dirpath(Opaque::borrowed(path.as_bytes()))).await {
                Ok(opened) => Ok(Ok(opened)),
                Err(MountError::Denied(status)) => Ok(Err(status)),
                Err(MountError::Rpc(error)) => Err(error),
            }
        });
        let doing = || format!("open '{path}' with {}", self.name);
        answer.map_err(|failure| failure.error(Phase::Connect, &doing()))
    }

    fn speaks_sys(&self, path: &str, flavours: &[u32]) -> Result<()> {
        if flavours.is_empty() || flavours.iter().any(|flavour| FLAVOURS.contains(flavour)) {
            return Ok(());
        }
        Err(Error::new(
            Phase::Authenticate,
            Kind::Unsupported,
            format!(
                "{} takes '{path}' only with Kerberos (flavours {flavours:?}), and nasgauge's own client offers \
                 sec=sys: export it with sec=sys, or mount it with the kernel and give that path",
                self.name
            ),
        ))
    }

    /// Why no beginning of the path was taken, with what the list of exports tells.
    fn refused(&mut self, path: &str, status: mountstat3) -> Error {
        let (kind, words) = status::mount_meaning(status);
        let exports = self.exports();
        let listed = exports.as_deref().unwrap_or_default();
        let holder = listed
            .iter()
            .filter(|export| path::beneath(path, &export.path))
            .max_by_key(|export| export.path.len());
        match holder {
            Some(export) if kind == Kind::Denied => {
                let hosts = if export.hosts.is_empty() {
                    String::new()
                } else {
                    format!(" (it is exported to {})", export.hosts.join(", "))
                };
                let message = format!(
                    "{} does not let this computer mount '{path}' ({status}), though it exports '{}'{hosts}; {}",
                    self.name,
                    export.path,
                    self.who.ways_out()
                );
                Error::new(Phase::Open, kind, message)
            }
            // Some servers call a path that they do not export "denied".
            None if kind == Kind::Denied && !listed.is_empty() => {
                let message = format!(
                    "{} shows this computer no export that holds '{path}' ({status}){}",
                    self.name,
                    shown(listed)
                );
                Error::new(Phase::Open, Kind::NotFound, message)
            }
            _ => {
                let ways = if kind == Kind::Denied {
                    format!("; {}", self.who.ways_out())
                } else {
                    String::new()
                };
                let message = format!(
                    "{} did not open '{path}': {words} ({status}){}{ways}",
                    self.name,
                    shown(listed)
                );
                Error::new(Phase::Open, kind, message)
            }
        }
    }

    /// Adds to "not found" which export was open and what others there are.
    pub(super) fn with_exports(&mut self, mut error: Error, export: &str) -> Error {
        if error.kind == Kind::NotFound {
            let exports = self.exports().unwrap_or_default();
            error.message = format!(
                "{} (in '{export}', which the server opened){}",
                error.message,
                shown(&exports)
            );
        }
        error
    }

    /// The server's list of exports; None where it does not tell.
    fn exports(&mut self) -> Option<Vec<Export>> {
        self.list().ok()
    }

    /// Tells the server that a mount was only a look, so that its own list of mounts stays true.
    pub(super) fn leave(&mut self, path: &str) {
        let Self { dialer, client, .. } = self;
        let path = dirpath(Opaque::borrowed(path.as_bytes()));
        // A server that does not listen keeps a line in a list that nothing depends on.
        let _ = dialer.wait(dialer.limit(), client.umnt(path));
    }

    /// The server's list of exports.
    pub(super) fn list(&mut self) -> Result<Vec<Export>> {
        let Self { dialer, client, .. } = self;
        let listed = dialer.wait(dialer.limit(), client.export());
        let doing = || format!("list the exports of {}", self.name);
        let listed = listed.map_err(|failure| failure.error(Phase::Open, &doing()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let nodes = listed.into_inner().into_iter();
        Ok(nodes
            .map(|node| Export {
                path: text(&node.ex_dir.0),
                hosts: node
                    .ex_groups
                    .into_inner()
                    .iter()
                    .map(|host| text(&host.0))
                    .collect(),
            })
            .collect())
    }
}

fn shown(exports: &[Export]) -> String {
    if exports.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = exports
        .iter()
        .take(NAMED)
        .map(|export| export.path.as_str())
        .collect();
    let more = exports.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("; its exports: {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_shown_in_bounds() {
        let export = |path: String| Export {
            path,
            hosts: Vec::new(),
        };
        assert_eq!(shown(&[]), "");
        let many: Vec<Export> = (0..14).map(|n| export(format!("/e{n}"))).collect();
        let text = shown(&many);
        assert!(
            text.starts_with("; its exports: /e0, /e1") && text.ends_with("/e11 and 2 more"),
            "{text}"
        );
    }
}
