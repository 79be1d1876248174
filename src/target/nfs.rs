//! NFS version 3: MOUNT, the namespace calls, READ, WRITE and COMMIT, through the `nfs3_client` crate over this
//! program's own connection.
//!
//! Read first: [`mount::open`] goes from a URI to a directory's handle; [`files`] is the control side on top of it,
//! [`discover`] what a server exports, [`lane`] the data side, one call at a time, and [`folder`] that of small files; [`pipe`] the data side at depth, whose bytes [`calls`], [`connection`],
//! [`inbox`] and [`frame`] make and take apart. Beneath lie [`client`] (blocking calls, one under way, each bounded in
//! time), [`dial`] (which port refused, which was silent), [`ports`] (the portmapper), [`wire`] (bytes on a socket) and
//! [`status`] (what the server's answers mean).
//!
//! Must not know: workloads, stages, other protocols. Sizes are in bytes.

use crate::error::{Error, Result};
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Caps, Ceiling, Control, Login, Protocol, Session, Threads};

mod calls;
mod client;
mod connection;
mod dial;
pub mod discover;
mod exports;
mod files;
mod folder;
mod frame;
#[cfg(test)]
mod hostile;
mod inbox;
mod lane;
mod listing;
mod mount;
mod path;
mod pipe;
mod ports;
#[cfg(test)]
mod script;
mod status;
mod wire;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "nfs",
    example: "nfs://nas/export/dir?uid=1000&gid=1000",
    options: &[
        (
            "uid",
            "the user id that the server sees; default: this process's",
        ),
        (
            "gid",
            "the group id that the server sees; default: this process's",
        ),
        (
            "mountport",
            "the port of the MOUNT service; default: asked from the portmapper (port 111)",
        ),
        (
            "engine",
            "pipelined: many calls under way on each connection (the default); crate: one on one (nfs3_client)",
        ),
        (
            "nconnect",
            "TCP connections of each session, 1 to 16; default: 1",
        ),
    ],
    check,
    caps,
    control,
    connect,
    folder: Some(folder::open),
};

/// A URI's options, read and found possible.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Options {
    uid: Option<u32>,
    gid: Option<u32>,
    mount_port: Option<u16>,
    engine: Engine,
    nconnect: Option<u16>,
}

/// Which client moves the blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Engine {
    /// The `nfs3_client` crate: a call at a time, to compare with.
    Crate,
    /// This program's own: many calls under way on each connection.
    #[default]
    Pipelined,
}

fn caps(spec: &TargetSpec) -> Caps {
    // Options that can't be read are refused by `check`, before anything is planned.
    let options = Options::of(spec).unwrap_or_default();
    let (iodepth_max, engine, ceiling) = match options.engine {
        Engine::Crate => (1, "nfs3_client", None),
        Engine::Pipelined => (1024, "pipelined", Some(Ceiling::new(1024, 2, 4))),
    };
    Caps {
        iodepth_max,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: true,
        engine,
        connections: options.connections(),
        ceiling,
    }
}

impl Options {
    fn of(spec: &TargetSpec) -> Result<Self> {
        let mount_port = spec.option::<u16>("mountport", "a port between 1 and 65535")?;
        if mount_port == Some(0) {
            return Err(Error::usage(
                "option mountport=0 is not a port between 1 and 65535",
            ));
        }
        let engine = match spec.options.get("engine").map(String::as_str) {
            None | Some("pipelined") => Engine::Pipelined,
            Some("crate") => Engine::Crate,
            Some(other) => {
                return Err(Error::usage(format!(
                    "unknown engine '{other}' for nfs; allowed: pipelined, crate"
                )));
            }
        };
        let nconnect = spec.option::<u16>("nconnect", "a number between 1 and 16")?;
        if nconnect.is_some_and(|count| count == 0 || usize::from(count) > pipe::CONNECTIONS_MAX) {
            return Err(Error::usage("option nconnect is not between 1 and 16"));
        }
        if engine == Engine::Crate && nconnect.is_some_and(|count| count > 1) {
            return Err(Error::usage(
                "nconnect needs engine=pipelined; engine=crate has one connection a session",
            ));
        }
        Ok(Self {
            uid: spec.option("uid", "a user id")?,
            gid: spec.option("gid", "a group id")?,
            mount_port,
            engine,
            nconnect,
        })
    }

    /// TCP connections that carry the data of one session.
    fn connections(&self) -> u16 {
        self.nconnect.unwrap_or(1)
    }
}

fn check(spec: &TargetSpec) -> Result<()> {
    if spec.user.is_some() || spec.domain.is_some() {
        return Err(Error::usage(
            "NFS has no user names: leave out what stands before '@', and give ?uid=N&gid=N",
        ));
    }
    if spec.hosts.len() != 1 {
        return Err(Error::usage(
            "an nfs URI takes exactly one host; give each server as a target of its own",
        ));
    }
    for part in spec.parts() {
        path::safe(part)?;
    }
    Options::of(spec).map(|_| ())
}

fn control(login: &Login) -> Result<Control> {
    let mounted = mount::open(login, client::Life::Kept, login.connect_timeout())
        .map_err(|error| error.at(&login.spec.uri))?;
    Ok(Control::Files(Box::new(files::Directory::new(mounted))))
}

fn connect(login: &Login, attach: &Attach) -> Result<Box<dyn Session>> {
    let options = Options::of(&login.spec)?;
    let session: Result<Box<dyn Session>> = match options.engine {
        Engine::Crate => {
            lane::Lane::open(login, attach, client::Life::Once).map(|lane| Box::new(lane) as _)
        }
        Engine::Pipelined => {
            pipe::Pipe::open(login, attach, options.connections()).map(|pipe| Box::new(pipe) as _)
        }
    };
    session.map_err(|error| error.at(&login.spec.uri))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn checked(text: &str) -> Result<()> {
        let spec = TargetSpec::parse(text).expect(text);
        check(&spec)
    }

    #[test]
    fn plain_and_full_uris_pass() {
        for text in [
            "nfs://nas/tank/bench",
            "nfs://[fe80::1%25eth0]:2049/a%20b/100%25?uid=0&gid=0&mountport=20048&engine=crate",
            "nfs://nas",
            "nfs://nas/",
        ] {
            checked(text).expect(text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("nfs://me@nas/x", "uid"),
            ("nfs://a,b/x", "one host"),
            ("nfs://nas/x?uid=-1", "uid=-1"),
            ("nfs://nas/x?gid=root", "gid=root"),
            ("nfs://nas/x?mountport=0", "mountport=0"),
            ("nfs://nas/x?mountport=70000", "mountport=70000"),
            ("nfs://nas/x?engine=turbo", "turbo"),
        ] {
            let error = checked(text).expect_err(text);
            assert_eq!(error.kind, Kind::Usage, "{text}");
            assert!(error.message.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_path_that_climbs_is_refused() {
        for text in ["nfs://nas/a/../b", "nfs://nas/./a", "nfs://nas/a/%2e%2e"] {
            assert_eq!(checked(text).expect_err(text).kind, Kind::Safety, "{text}");
        }
    }
}
