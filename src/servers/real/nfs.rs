//! nfs-ganesha over a directory (VFS): NFS version 3 on TCP, with its own NFS and MOUNT ports.
//!
//! It registers with the sandbox's rpcbind, without which it gives up; when several run, the portmapper knows the
//! one that started last. The directory must lie on a filesystem with
//! file handles (tmpfs, ext4, xfs, btrfs; not overlayfs).
//!
//! Must not know: the other servers.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Daemon, daemon_methods, plain_path, server_port, state_dir, version, write};
use crate::error::{Error, Kind, Phase, Result};
use crate::servers::Server;
use crate::servers::packages::program;
use crate::servers::sandbox::Sandbox;

/// How to start nfs-ganesha.
#[derive(Debug, Clone, Default)]
pub struct NfsOptions {
    /// The directory to export, under its own path.
    pub directory: PathBuf,
    /// The NFS port; a free one when None.
    pub port: Option<u16>,
    /// The MOUNT port; a free one when None.
    pub mount_port: Option<u16>,
    /// The most bytes that a READ may ask for (`MaxRead`, its default 64 MiB).
    pub max_read: Option<u32>,
    /// The most bytes that a WRITE may carry (`MaxWrite`, its default 64 MiB).
    pub max_write: Option<u32>,
    /// Exported for reading only.
    pub read_only: bool,
    /// Root is nobody (`Root_Squash`) rather than root.
    pub root_squash: bool,
    /// Calls must come from a port below 1024.
    pub privileged_port: bool,
    /// More lines for the EXPORT block, as `Anonymous_uid = 61000;`.
    pub export_lines: String,
}

/// A running nfs-ganesha; dropping it stops it.
pub struct Nfs {
    daemon: Daemon,
    version: String,
    export: String,
    port: u16,
    mount_port: u16,
}

daemon_methods!(Nfs);

impl Nfs {
    /// Starts it with its state below `work`; returns when it serves.
    pub fn start(work: &Path, options: &NfsOptions) -> Result<Self> {
        let state = state_dir(work, "nfs")?;
        let export = plain_path(&options.directory)?.to_owned();
        let port = options.port.map_or_else(server_port, Ok)?;
        let mount_port = options.mount_port.map_or_else(server_port, Ok)?;
        let config = state.0.join("ganesha.conf");
        write(
            &config,
            &configuration(options, &export, port, mount_port, plain_path(&state.0)?),
        )?;
        wait_for_rpcbind()?;
        // Each clears rpcbind's entries before it sets its own, and gives up when another did so in between.
        let one_by_one = File::create(Sandbox::work_dir().join("ganesha.lock"))
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| Error::io(Phase::Prepare, &error, "lock the start of nfs-ganesha"))?;
        let mut command = Command::new(program("ganesha.nfsd")?);
        command
            .args(["-F", "-N", "NIV_EVENT", "-L", "STDERR"])
            .arg("-f")
            .arg(&config)
            .arg("-p")
            .arg(state.0.join("pid"));
        let mut daemon = Daemon::spawn("nfs-ganesha", state, &mut command)?;
        daemon.says("NFS SERVER INITIALIZED")?;
        drop(one_by_one);
        Ok(Self {
            daemon,
            version: version("ganesha.nfsd", "-v")?,
            export,
            port,
            mount_port,
        })
    }

    /// The NFS port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The MOUNT port.
    #[must_use]
    pub const fn mount_port(&self) -> u16 {
        self.mount_port
    }
}

impl Server for Nfs {
    fn protocol(&self) -> &'static str {
        "nfs"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn uri(&self) -> String {
        let (port, mount_port) = (self.port, self.mount_port);
        let path = super::super::encode(&self.export);
        format!("nfs://127.0.0.1:{port}{path}?mountport={mount_port}")
    }

    fn password(&self) -> Option<&str> {
        None
    }
}

fn configuration(
    options: &NfsOptions,
    export: &str,
    port: u16,
    mount_port: u16,
    state: &str,
) -> String {
    let access = if options.read_only { "RO" } else { "RW" };
    let squash = if options.root_squash {
        "Root_Squash"
    } else {
        "No_Root_Squash"
    };
    let privileged = options.privileged_port;
    let mut text = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false; Enable_RQUOTA = false; \
         Enable_UDP = false; Protocols = 3; mount_path_pseudo = false; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {state}; }}\n\
         EXPORT {{\n  Export_Id = 77;\n  Path = \"{export}\";\n  Pseudo = \"/bench\";\n  Access_Type = {access};\n  \
         Squash = {squash};\n  SecType = sys;\n  Transports = TCP;\n  Protocols = 3;\n  \
         PrivilegedPort = {privileged};\n  FSAL {{ Name = VFS; }}\n"
    );
    for (key, value) in [
        ("MaxRead", options.max_read),
        ("MaxWrite", options.max_write),
    ] {
        if let Some(value) = value {
            // Writing to a String can't fail.
            let _ = writeln!(text, "  {key} = {value};");
        }
    }
    let _ = writeln!(text, "{}\n}}", options.export_lines);
    text
}

/// Waits for the rpcbind that the sandbox starts.
fn wait_for_rpcbind() -> Result<()> {
    program("rpcbind")?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while !Path::new("/run/rpcbind.sock").exists() {
        if Instant::now() > deadline {
            let said = std::fs::read_to_string("/run/nasgauge/rpcbind.log").unwrap_or_default();
            return Err(Error::new(
                Phase::Prepare,
                Kind::TimedOut,
                format!(
                    "rpcbind, which nfs-ganesha needs, does not run in the sandbox; it said: {}",
                    said.trim()
                ),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::testing;

    #[test]
    fn options_reach_the_configuration() {
        let options = NfsOptions {
            max_read: Some(65536),
            read_only: true,
            root_squash: true,
            export_lines: "Anonymous_uid = 7;".to_owned(),
            ..NfsOptions::default()
        };
        let text = configuration(&options, "/srv/x y", 1, 2, "/state");
        for part in [
            "NFS_Port = 1;",
            "MNT_Port = 2;",
            "Path = \"/srv/x y\";",
            "Access_Type = RO;",
            "Squash = Root_Squash;",
            "MaxRead = 65536;",
            "Anonymous_uid = 7;",
            "RecoveryRoot = /state;",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("MaxWrite"));
    }

    fn exporting(work: &Path) -> NfsOptions {
        let directory = work.join("export dir");
        std::fs::create_dir_all(&directory).expect("new");
        NfsOptions {
            directory,
            ..NfsOptions::default()
        }
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn files_come_and_go_and_two_run_side_by_side() {
        let work = testing::work("nfs");
        let started = Instant::now();
        let server = Nfs::start(work.path(), &exporting(work.path())).expect("starts");
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
        assert!(server.version().contains("V4"), "{}", server.version());
        let other = Nfs::start(&work.path().join("b"), &exporting(&work.path().join("b")));
        let other = other.expect("starts beside the first");
        testing::nfs::round_trip(&server);
        testing::nfs::round_trip(&other);
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn read_only_refuses_and_a_killed_server_leaves_nothing() {
        let work = testing::work("nfs-ro");
        let options = NfsOptions {
            read_only: true,
            ..exporting(work.path())
        };
        let mut server = Nfs::start(work.path(), &options).expect("starts");
        let mut client = testing::nfs::Client::try_mount(&server.uri()).expect("mounts");
        let new = nfs3_types::nfs3::createhow3::GUARDED(nfs3_types::nfs3::sattr3::default());
        let refused = client.create("a", new).expect_err("read only");
        assert_eq!(refused, nfs3_types::nfs3::nfsstat3::NFS3ERR_ROFS);
        let wrong = server.uri().replace("export", "other");
        assert!(testing::nfs::Client::try_mount(&wrong).is_err());
        server.pause().expect("pauses");
        let states: Vec<char> = server
            .processes()
            .iter()
            .map(|process| process.state)
            .collect();
        assert_eq!(states, ['T']);
        server.resume().expect("resumes");
        server.kill();
        testing::assert_closed(server.port());
        assert!(server.processes().is_empty());
        drop(server);
        let left: Vec<_> = std::fs::read_dir(work.path())
            .expect("there")
            .flatten()
            .collect();
        assert_eq!(left.len(), 1, "only the export: {left:?}");
    }
}
