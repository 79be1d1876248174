//! From a URI to a directory's handle: find the ports, have the server open the export, walk down the rest.
//!
//! Where an export ends and a directory in it begins does not show in a path. So the whole path is asked for
//! first, then its parents; what is left is looked up.

use std::net::SocketAddr;
use std::time::Duration;

use nfs3_types::nfs3::{FSINFO3args, FSINFO3resok, ftype3, nfs_fh3};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};
use crate::target::Login;

use super::Options;
use super::client::{Client, Life};
use super::dial::Dialer;
use super::exports::Mounting;
use super::path;
use super::ports;
use super::status::Who;
use crate::probe::names;

/// The smallest block that is worth a measurement; NFS version 2 had it as its largest.
const BLOCK_MIN: u32 = 8 << 10;
/// A larger block does not fit an RPC message with its header.
const BLOCK_MAX: u32 = 1 << 30;

/// A directory on a server, open.
pub(super) struct Mounted {
    /// Calls on the server's NFS service.
    pub(super) client: Client,
    /// The URI's directory.
    pub(super) directory: nfs_fh3,
    /// What the server opened: the export or a directory in it.
    pub(super) export: String,
    /// Names from there to the URI's directory.
    pub(super) beneath: String,
    /// The port that opened it.
    pub(super) mount_port: u16,
    /// What the server takes at once.
    pub(super) limits: FSINFO3resok,
}

impl Mounted {
    /// The largest read in bytes.
    pub(super) fn read_max(&self) -> Result<u32> {
        block(self.limits.rtmax, self.limits.rtmult, "rtmax", "read")
    }

    /// The largest write in bytes.
    pub(super) fn write_max(&self) -> Result<u32> {
        block(self.limits.wtmax, self.limits.wtmult, "wtmax", "write")
    }
}

fn block(max: u32, multiple: u32, name: &str, verb: &str) -> Result<u32> {
    if max < BLOCK_MIN {
        return Err(Error::new(
            Phase::Open,
            Kind::Unsupported,
            format!(
                "the server offers to {verb} at most {max} bytes at once ({name}), and less than {BLOCK_MIN} \
                 is not worth a measurement: raise its transfer size, or check whether the export is usable at all"
            ),
        ));
    }
    let max = max.min(BLOCK_MAX);
    Ok(match max.checked_rem(multiple) {
        Some(rest) if rest < max => max - rest,
        _ => max,
    })
}

/// Opens the directory of a login's URI. `limit` bounds each call made on it afterwards.
pub(super) fn open(login: &Login, life: Life, limit: Duration) -> Result<Mounted> {
    let mut worst: Option<Error> = None;
    for address in names::resolve(login.spec.host(), login.connect_timeout())? {
        match open_at(login, address, life, limit) {
            // A name may have an address that this server does not listen on.
            Err(error) if error.phase == Phase::Connect => {
                if worst.as_ref().is_none_or(Error::server_lost) {
                    worst = Some(error);
                }
            }
            done => return done,
        }
    }
    Err(worst.unwrap_or_else(|| {
        let message = format!("'{}' has no address", login.spec.host());
        Error::new(Phase::Resolve, Kind::NotFound, message)
    }))
}

fn open_at(login: &Login, address: SocketAddr, life: Life, limit: Duration) -> Result<Mounted> {
    let spec = &login.spec;
    let options = Options::of(spec)?;
    let dialer = Dialer::new(spec.host(), address, login.connect_timeout())?;
    let ports = ports::find(&dialer, spec.port, options.mount_port)?;
    let names = spec.parts().collect::<Vec<_>>();
    for name in &names {
        path::safe(name)?;
    }
    let (who, credential) = identity(&options);
    let mut mounting = Mounting::new(&dialer, &ports.mount, who, &credential)
        .map_err(|error| ports::without_mount(&dialer, &ports.nfs, error))?;
    let (root, export, rest) = mounting.longest(&names)?;
    let who = mounting.who;
    // The dialer moves on to the NFS service; asking for the exports needs one until the walk is over.
    let walker = Dialer::new(spec.host(), address, login.connect_timeout())?;
    let uri = &spec.uri;
    let mut client = Client::open(
        walker,
        ports.nfs,
        credential,
        who,
        life,
        login.connect_timeout(),
        uri,
    )?;
    let directory = client
        .walk(Phase::Open, &root, rest)
        .map_err(|error| mounting.with_exports(error, &export))?;
    is_directory(&mut client, &directory, &spec.path)?;
    let args = FSINFO3args {
        fsroot: directory.clone(),
    };
    let doing = || "ask what the server takes at once (FSINFO)".to_owned();
    let limits = client.call(Phase::Open, doing, async |nfs| nfs.fsinfo(&args).await)?;
    client.set_limit(limit);
    Ok(Mounted {
        client,
        directory,
        export,
        beneath: rest.join("/"),
        mount_port: ports.mount.port,
        limits,
    })
}

fn is_directory(client: &mut Client, handle: &nfs_fh3, path: &str) -> Result<()> {
    let what = match client.attributes(Phase::Open, handle, path)?.type_ {
        ftype3::NF3DIR => return Ok(()),
        ftype3::NF3LNK => "a symbolic link (give the path that it points to)",
        ftype3::NF3REG => "a file",
        _ => "neither a file nor a directory",
    };
    Err(Error::new(
        Phase::Open,
        Kind::NotFound,
        format!("'{path}' is {what}, and a directory is needed"),
    ))
}

/// The ids to show the server: the URI's, else this process's with its groups.
pub(super) fn identity(options: &Options) -> (Who, opaque_auth<'static>) {
    let uid = options
        .uid
        .unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let gid = options
        .gid
        .unwrap_or_else(|| rustix::process::getegid().as_raw());
    let mut gids = Vec::new();
    if options.uid.is_none() && options.gid.is_none() {
        let groups = rustix::process::getgroups().unwrap_or_default();
        // AUTH_SYS has room for 16.
        gids = groups.iter().map(|group| group.as_raw()).take(16).collect();
    }
    let mut machine = rustix::system::uname().nodename().to_bytes().to_vec();
    machine.truncate(255);
    let credential = opaque_auth::auth_unix(&auth_unix {
        stamp: 0,
        machinename: Opaque::owned(machine),
        uid,
        gid,
        gids,
    });
    let who = Who {
        uid,
        gid,
        privileged: false,
    };
    (who, credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_blocks_are_refused_and_odd_ones_rounded() {
        for bad in [0, 1, 4096, 8191] {
            let error = block(bad, 1, "rtmax", "read").expect_err("too small");
            assert_eq!(
                (error.phase, error.kind),
                (Phase::Open, Kind::Unsupported),
                "{bad}"
            );
            assert!(
                error.message.contains(&format!("{bad} bytes at once")),
                "{error}"
            );
        }
        assert_eq!(block(8192, 0, "rtmax", "read").expect("just enough"), 8192);
        assert_eq!(block(10_000, 4096, "rtmax", "read").expect("rounded"), 8192);
        assert_eq!(
            block(u32::MAX, 1, "wtmax", "write").expect("capped"),
            BLOCK_MAX
        );
        assert_eq!(
            block(8192, 1 << 20, "wtmax", "write").expect("a multiple beyond the maximum"),
            8192
        );
    }
}
