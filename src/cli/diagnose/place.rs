//! What a target is: a server's share by its URI, or a path, whose mount tells the server, the protocol and the export.

use std::path::Path;
use std::time::Duration;

use crate::discover::iperf3::{Answer, PORT, ask};
use crate::error::{Error, Result};
use crate::probe::mount::{self, Mount};
use crate::probe::mount_options::option;
use crate::run::Watch;
use crate::spec::network::Host;
use crate::spec::uri::TargetSpec;

/// How long an iperf3 server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a target is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The server's name or address; None where the target is on this computer.
    pub(super) server: Option<String>,
    /// What our own client calls the export of a mount.
    pub(super) own_client: Option<String>,
}

/// Looks at a target; nothing is opened. `credentials` says that a password can be had without asking.
pub(super) fn find(target: &str, credentials: bool, watch: &mut dyn Watch) -> Result<Place> {
    let spec = TargetSpec::parse(target)?;
    if !spec.hosts.is_empty() {
        return Ok(Place {
            server: spec.hosts.first().cloned(),
            own_client: None,
        });
    }
    if spec.protocol != "file" {
        return Ok(Place::default());
    }
    let path = std::fs::canonicalize(&spec.path)
        .map_err(|error| Error::usage(format!("{}: {error}", spec.path)))?;
    let Some(mount) = mount::of(&path).filter(Mount::is_network) else {
        return Ok(Place::default());
    };
    let place = of_mount(&mount, &path);
    let secret = credentials || std::env::var_os("NASGAUGE_PASSWORD").is_some();
    let needs = place
        .own_client
        .as_ref()
        .is_some_and(|uri| uri.contains('@'));
    if needs && !secret {
        watch.note(
            "nasgauge's own client is not tried beside this mount: it needs the password too (NASGAUGE_PASSWORD, or --credentials FILE)",
        );
        return Ok(Place {
            own_client: None,
            ..place
        });
    }
    Ok(place)
}

/// The server behind a mount, and the URI of the directory for our own client where it knows the protocol.
fn of_mount(mount: &Mount, path: &Path) -> Place {
    let options = &mount.super_options;
    let below = path.strip_prefix(&mount.point).unwrap_or(Path::new(""));
    let join = |base: &str| {
        let parts = [base, mount.root.as_str(), &below.to_string_lossy()];
        let parts = parts.iter().map(|part| part.trim_matches('/'));
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        format!("/{}", parts.join("/"))
    };
    let uri = |scheme: &str, user: Option<String>, host: &str, path: String| {
        TargetSpec {
            protocol: scheme.to_owned(),
            user,
            hosts: vec![host.to_owned()],
            path,
            ..TargetSpec::default()
        }
        .compose()
    };
    let address = option(options, "addr").map(ToOwned::to_owned);
    match mount.kind.as_str() {
        "nfs" | "nfs4" => {
            let Some((host, export)) = mount.source.rsplit_once(":/") else {
                return Place {
                    server: address,
                    own_client: None,
                };
            };
            let host = address.unwrap_or_else(|| host.trim_matches(['[', ']']).to_owned());
            // The root of an NFS mount is the exported directory, which the source names already.
            let below = below.to_string_lossy();
            let path = format!("/{export}/{below}");
            let third = option(options, "vers").is_none_or(|version| version.starts_with('3'));
            Place {
                own_client: third.then(|| uri("nfs", None, &host, clean(&path))),
                server: Some(host),
            }
        }
        "cifs" | "smb3" => {
            let share = mount.source.trim_start_matches('/');
            let (host, share) = share.split_once('/').unwrap_or((share, ""));
            let host = address.unwrap_or_else(|| host.to_owned());
            let user = option(options, "username").map(ToOwned::to_owned);
            Place {
                own_client: Some(uri("smb", user, &host, join(share))),
                server: Some(host),
            }
        }
        _ => Place {
            server: address,
            own_client: None,
        },
    }
}

fn clean(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// The iperf3 server of a host, if one answers.
pub(super) fn iperf3(server: &str, watch: &mut dyn Watch) -> Option<Host> {
    match ask(server, PORT, PATIENCE) {
        Ok(Answer::Ready) => Some(Host {
            host: server.to_owned(),
            port: PORT,
        }),
        Ok(Answer::Busy) => {
            watch.note(&format!(
                "the iperf3 server on {server} is busy with someone else's test: the network is not measured apart"
            ));
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &str, path: &str) -> Place {
        of_mount(&Mount::parse(line).expect("a mount"), Path::new(path))
    }

    #[test]
    fn a_mount_names_the_server_and_the_export() {
        let nfs = "50 28 0:45 / /mnt/nas rw shared:1 - nfs nas:/mnt/tank/media rw,vers=3,proto=tcp,addr=10.0.0.5,mountport=20048";
        assert_eq!(
            place(nfs, "/mnt/nas/films/new"),
            Place {
                server: Some("10.0.0.5".into()),
                own_client: Some("nfs://10.0.0.5/mnt/tank/media/films/new".into()),
            }
        );
        let fourth = "50 28 0:45 / /mnt/nas rw - nfs4 [fd00::5]:/tank rw,vers=4.2,addr=fd00::5";
        assert_eq!(
            place(fourth, "/mnt/nas"),
            Place {
                server: Some("fd00::5".into()),
                own_client: None,
            }
        );
        let smb = "60 28 0:46 /sub /mnt/s rw - cifs //nas/media rw,vers=3.1.1,username=anna,addr=10.0.0.5";
        assert_eq!(
            place(smb, "/mnt/s/x y").own_client.as_deref(),
            Some("smb://anna@10.0.0.5/media/sub/x%20y")
        );
        let other = "61 28 0:47 / /mnt/c rw - ceph 10.0.0.9:6789:/ rw,addr=10.0.0.9";
        assert_eq!(place(other, "/mnt/c").server.as_deref(), Some("10.0.0.9"));
    }
}
