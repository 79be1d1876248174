//! smbd over directories: SMB 3.1.1 with one user, as many shares as asked.
//!
//! It forks a process per connection, all in its process group. Its passwords lie in a private database; the user
//! must be known to the system too, which is why the sandbox has `bench`.
//!
//! Must not know: the other servers.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    Daemon, daemon_methods, helper_ok, plain_path, server_port, state_dir, version, write,
};
use crate::error::{Error, Result};
use crate::servers::packages::program;
use crate::servers::{Server, sandbox};

/// A directory under a name.
#[derive(Debug, Clone, Default)]
pub struct Share {
    /// The share's name.
    pub name: String,
    /// What it serves.
    pub directory: PathBuf,
    /// For reading only.
    pub read_only: bool,
    /// Only for clients that encrypt.
    pub encrypt: bool,
    /// Without a password too.
    pub guest: bool,
}

impl Share {
    /// A share for reading and writing by the user.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            ..Self::default()
        }
    }
}

/// How to start smbd.
#[derive(Clone)]
pub struct SmbOptions {
    /// The shares; the first is the one of [`Server::uri`].
    pub shares: Vec<Share>,
    /// Who may log in; a user of the sandbox's `/etc/passwd`.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// The port; a free one when None.
    pub port: Option<u16>,
    /// `server signing`: `auto`, `mandatory`, `disabled`.
    pub signing: String,
    /// `aio read size`: 0 reads at once (best over RAM), 1 hands every read to a thread (best over disks).
    pub aio_read_size: u32,
    /// More lines for `[global]`.
    pub global_lines: String,
}

impl Default for SmbOptions {
    fn default() -> Self {
        Self {
            shares: Vec::new(),
            user: sandbox::USER.to_owned(),
            password: "bench-secret".to_owned(),
            port: None,
            signing: "auto".to_owned(),
            aio_read_size: 0,
            global_lines: String::new(),
        }
    }
}

/// A running smbd; dropping it stops it.
pub struct Smb {
    daemon: Daemon,
    version: String,
    share: String,
    user: String,
    password: String,
    port: u16,
}

daemon_methods!(Smb);

impl Smb {
    /// Starts it with its state below `work`; returns when it serves.
    pub fn start(work: &Path, options: &SmbOptions) -> Result<Self> {
        let share = options
            .shares
            .first()
            .ok_or_else(|| Error::usage("smbd needs a share at least"))?
            .name
            .clone();
        let state = state_dir(work, "smb")?;
        let port = options.port.map_or_else(server_port, Ok)?;
        for part in DIRECTORIES {
            std::fs::create_dir(state.0.join(part.1)).map_err(|error| {
                Error::io(
                    crate::error::Phase::Prepare,
                    &error,
                    "create smbd's directories",
                )
            })?;
        }
        let config = state.0.join("smb.conf");
        write(
            &config,
            &configuration(options, plain_path(&state.0)?, port)?,
        )?;
        let both = format!("{0}\n{0}\n", options.password);
        helper_ok(
            Command::new(program("smbpasswd")?)
                .arg("-c")
                .arg(&config)
                .args(["-s", "-a", &options.user]),
            &both,
        )?;
        let mut command = Command::new(program("smbd")?);
        command
            .args(["--foreground", "--no-process-group", "--debug-stdout", "-s"])
            .arg(&config);
        let mut daemon = Daemon::spawn("smbd", state, &mut command)?;
        daemon.listens(port)?;
        Ok(Self {
            daemon,
            version: version("smbd", "--version")?.replace("Version", "smbd"),
            share,
            user: options.user.clone(),
            password: options.password.clone(),
            port,
        })
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A target URI for one of its shares.
    #[must_use]
    pub fn uri_of(&self, share: &str) -> String {
        let (user, share) = (
            super::super::encode(&self.user),
            super::super::encode(share),
        );
        format!("smb://{user}@127.0.0.1:{}/{share}", self.port)
    }
}

impl Server for Smb {
    fn protocol(&self) -> &'static str {
        "smb"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn uri(&self) -> String {
        self.uri_of(&self.share)
    }

    fn password(&self) -> Option<&str> {
        Some(&self.password)
    }
}

/// smbd's own directories: the option and the name below the state directory.
const DIRECTORIES: &[(&str, &str)] = &[
    ("private dir", "private"),
    ("lock directory", "lock"),
    ("state directory", "state"),
    ("cache directory", "cache"),
    ("pid directory", "pid"),
    ("ncalrpc dir", "ncalrpc"),
];

/// What never changes. `bind interfaces only` with `lo` keeps it off any other network.
const FIXED: &str = "\
workgroup = WORKGROUP
netbios name = NASGAUGE
server role = standalone server
security = user
log level = 0
interfaces = lo
bind interfaces only = yes
disable netbios = yes
disable spoolss = yes
load printers = no
printing = bsd
printcap name = /dev/null
usershare max shares = 0
rpc start on demand helpers = no
map to guest = Bad User
guest account = nobody
server min protocol = SMB3_11
server multi channel support = yes
use sendfile = no
aio write size = 1
";

fn configuration(options: &SmbOptions, state: &str, port: u16) -> Result<String> {
    let mut text = format!("[global]\n{FIXED}smb ports = {port}\n");
    // Writing to a String can't fail.
    for (option, directory) in DIRECTORIES {
        let _ = writeln!(text, "{option} = {state}/{directory}");
    }
    let _ = writeln!(text, "passdb backend = tdbsam:{state}/private/passdb.tdb");
    let _ = writeln!(text, "server signing = {}", options.signing);
    let _ = writeln!(text, "aio read size = {}", options.aio_read_size);
    let _ = writeln!(text, "{}", options.global_lines);
    for share in &options.shares {
        let yes = |on: bool| if on { "yes" } else { "no" };
        let path = plain_path(&share.directory)?;
        let (read_only, guest) = (yes(share.read_only), yes(share.guest));
        let _ = writeln!(
            text,
            "[{}]\npath = {path}\nread only = {read_only}\nguest ok = {guest}\nforce user = root",
            share.name
        );
        if share.encrypt {
            text.push_str("smb encrypt = required\n");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::testing;

    #[test]
    fn options_reach_the_configuration() {
        let options = SmbOptions {
            shares: vec![
                Share::new("a", "/srv/a"),
                Share {
                    encrypt: true,
                    read_only: true,
                    guest: true,
                    ..Share::new("b", "/srv/b")
                },
            ],
            signing: "mandatory".to_owned(),
            global_lines: "deadtime = 9".to_owned(),
            ..SmbOptions::default()
        };
        let text = configuration(&options, "/state", 44500).expect("plain paths");
        for part in [
            "smb ports = 44500\n",
            "private dir = /state/private\n",
            "server signing = mandatory\n",
            "deadtime = 9\n",
            "[a]\npath = /srv/a\nread only = no\nguest ok = no\n",
            "[b]\npath = /srv/b\nread only = yes\nguest ok = yes\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.ends_with("smb encrypt = required\n"));
        assert!(!text.contains(&options.password));
    }

    #[test]
    fn a_directory_that_would_break_the_file_is_refused() {
        let options = SmbOptions {
            shares: vec![Share::new("a", "/srv/a\nforce user = x")],
            ..SmbOptions::default()
        };
        assert!(configuration(&options, "/state", 1).is_err());
    }

    fn sharing(work: &Path) -> SmbOptions {
        let directory = work.join("share dir");
        std::fs::create_dir_all(&directory).expect("new");
        SmbOptions {
            shares: vec![
                Share::new("bench", &directory),
                Share {
                    encrypt: true,
                    ..Share::new("enc", &directory)
                },
            ],
            ..SmbOptions::default()
        }
    }

    #[cfg(feature = "smb")]
    #[test]
    #[ignore = "needs root and servers"]
    fn files_come_and_go_encrypted_or_not() {
        let work = testing::work("smb");
        let started = std::time::Instant::now();
        let server = Smb::start(work.path(), &sharing(work.path())).expect("starts");
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        assert!(
            server.version().starts_with("smbd 4"),
            "{}",
            server.version()
        );
        testing::smb::round_trip(&server);
        testing::smb::wrong_password(&server);
        let client = testing::smb::client(&server.uri_of("enc"), &server.password);
        client.stat("/").expect("encrypts by itself");
        let client = testing::smb::client(&server.uri_of("nothing"), &server.password);
        assert!(client.stat("/").is_err());
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn a_pause_and_a_kill_reach_the_process_of_each_connection() {
        use std::net::TcpStream;
        let work = testing::work("smb-kill");
        let mut server = Smb::start(work.path(), &sharing(work.path())).expect("starts");
        let _open = TcpStream::connect(("127.0.0.1", server.port())).expect("listens");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while server.processes().len() < 2 {
            assert!(
                std::time::Instant::now() < deadline,
                "no process for the connection"
            );
            std::thread::yield_now();
        }
        server.pause().expect("pauses");
        assert!(
            server
                .processes()
                .iter()
                .all(|process| process.state == 'T')
        );
        server.resume().expect("resumes");
        server.kill();
        testing::assert_closed(server.port());
        assert!(server.processes().is_empty());
    }
}
