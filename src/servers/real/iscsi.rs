//! tgtd over files: one target, LUNs from 1 on (LUN 0 is tgtd's controller), set up by tgtadm.
//!
//! tgtd ignores SIGTERM and is killed; its control socket has a number of its own. Left alone it negotiates 8 KiB
//! segments and asks for every write, which makes it three times slower than it is: [`IscsiOptions::parameters`]
//! starts with better ones. Its memory allocator is told to keep its memory, which doubles 1 MiB transfers.
//!
//! Must not know: the other servers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::{
    Daemon, daemon_methods, helper, helper_ok, plain_path, server_port, state_dir, version,
};
use crate::error::{Error, Kind, Phase, Result};
use crate::servers::Server;
use crate::servers::packages::program;

/// A file as a disk.
#[derive(Debug, Clone, Default)]
pub struct Lun {
    /// The file; it must exist, and its size is the disk's.
    pub file: PathBuf,
    /// For reading only.
    pub read_only: bool,
}

impl Lun {
    /// A disk for reading and writing.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            read_only: false,
        }
    }
}

/// How to start tgtd.
#[derive(Clone)]
pub struct IscsiOptions {
    /// The disks, numbered from 1; the first is the one of [`Server::uri`].
    pub luns: Vec<Lun>,
    /// The target's name.
    pub target: String,
    /// The address to listen on.
    pub address: String,
    /// The port; a free one when None.
    pub port: Option<u16>,
    /// tgtd's way to the file: `rdwr`, or `aio` (`O_DIRECT`).
    pub bstype: String,
    /// CHAP user and secret, made up for a test: tgtadm takes the secret as an argument, which `ps` shows.
    pub chap: Option<(String, String)>,
    /// Negotiation parameters.
    pub parameters: Vec<(&'static str, String)>,
    /// tgtd's threads per disk.
    pub threads: u16,
}

impl Default for IscsiOptions {
    fn default() -> Self {
        let parameters = [
            ("MaxRecvDataSegmentLength", "262144"),
            ("MaxXmitDataSegmentLength", "262144"),
            ("FirstBurstLength", "262144"),
            ("MaxBurstLength", "1048576"),
            ("ImmediateData", "Yes"),
            ("InitialR2T", "No"),
            ("MaxOutstandingR2T", "8"),
        ];
        Self {
            luns: Vec::new(),
            target: "iqn.2026-11.dev.nasgauge:real".to_owned(),
            address: "127.0.0.1".to_owned(),
            port: None,
            bstype: "rdwr".to_owned(),
            chap: None,
            parameters: parameters
                .map(|(key, value)| (key, value.to_owned()))
                .to_vec(),
            threads: 4,
        }
    }
}

/// A running tgtd; dropping it stops it.
pub struct Iscsi {
    daemon: Daemon,
    version: String,
    options: IscsiOptions,
    port: u16,
    control: String,
}

daemon_methods!(Iscsi);

impl Iscsi {
    /// Starts it with its state below `work`; returns when it serves.
    pub fn start(work: &Path, options: &IscsiOptions) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let state = state_dir(work, "iscsi")?;
        let port = options.port.map_or_else(server_port, Ok)?;
        let control = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let mut command = Command::new(program("tgtd")?);
        command
            .args(["-f", "-C", &control, "-t", &options.threads.to_string()])
            .args([
                "--iscsi",
                &format!("portal={}:{port}", bracketed(&options.address)),
            ])
            .env("MALLOC_TRIM_THRESHOLD_", "1073741824")
            .env("MALLOC_MMAP_THRESHOLD_", "33554432")
            .env("MALLOC_TOP_PAD_", "67108864");
        let daemon = Daemon::spawn("tgtd", state, &mut command)?;
        let mut iscsi = Self {
            daemon,
            version: format!("tgtd {}", version("tgtd", "-V")?),
            options: options.clone(),
            port,
            control,
        };
        iscsi.wait_for_control()?;
        iscsi.set_up()?;
        Ok(iscsi)
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A target URI for one of its disks.
    #[must_use]
    pub fn uri_of(&self, lun: usize) -> String {
        let user = self
            .options
            .chap
            .as_ref()
            .map(|(user, _)| format!("{}@", super::super::encode(user)));
        let (user, address) = (user.unwrap_or_default(), bracketed(&self.options.address));
        format!(
            "iscsi://{user}{address}:{}/{}/{lun}",
            self.port, self.options.target
        )
    }

    fn admin(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program("tgtadm")?);
        command
            .args(["-C", &self.control, "--lld", "iscsi"])
            .args(arguments);
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        helper_ok(&mut self.admin(arguments)?, "")
    }

    fn wait_for_control(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            self.daemon.alive()?;
            let mut show = self.admin(&["--mode", "sys", "--op", "show"])?;
            if helper(&mut show, "")?.status.success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said = self.daemon.last_words();
                let message = format!("tgtd does not answer tgtadm; it said: {said}");
                return Err(Error::new(Phase::Prepare, Kind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn set_up(&self) -> Result<()> {
        let target = ["--mode", "target", "--tid", "1", "--op"];
        let with = |more: &[&str]| self.run(&[&target, more].concat());
        with(&["new", "-T", &self.options.target])?;
        for (key, value) in &self.options.parameters {
            with(&["update", "-n", key, "-v", value])?;
        }
        for (number, lun) in (1..).zip(&self.options.luns) {
            self.add(&format!("{number}"), lun)?;
        }
        if let Some((user, secret)) = &self.options.chap {
            let account = ["--mode", "account", "--user", user.as_str(), "--op"];
            self.run(&[&account[..], &["new", "--password", secret]].concat())?;
            self.run(&[&account[..], &["bind", "--tid", "1"]].concat())?;
        }
        with(&["bind", "-I", "ALL"])
    }

    fn add(&self, number: &str, lun: &Lun) -> Result<()> {
        let unit = [
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            number,
            "--op",
        ];
        let file = plain_path(&lun.file)?;
        self.run(
            &[
                &unit[..],
                &["new", "--bstype", &self.options.bstype, "-b", file],
            ]
            .concat(),
        )?;
        if lun.read_only {
            self.run(&[&unit[..], &["update", "--params", "readonly=1"]].concat())?;
        }
        Ok(())
    }
}

/// An IPv6 address in brackets, anything else as it is.
fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    }
}

impl Server for Iscsi {
    fn protocol(&self) -> &'static str {
        "iscsi"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn uri(&self) -> String {
        self.uri_of(1)
    }

    fn password(&self) -> Option<&str> {
        self.options
            .chap
            .as_ref()
            .map(|(_, secret)| secret.as_str())
    }
}

#[cfg(all(test, feature = "iscsi"))]
mod tests {
    use super::*;
    use crate::servers::testing;
    use crate::servers::testing::iscsi::Client;

    fn disk(work: &Path, name: &str, size: u64) -> Lun {
        let file = work.join(name);
        std::fs::File::create_new(&file)
            .and_then(|disk| disk.set_len(size))
            .expect("new");
        Lun::new(file)
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn blocks_come_back_and_a_read_only_disk_refuses() {
        let work = testing::work("iscsi");
        let options = IscsiOptions {
            luns: vec![
                disk(work.path(), "a", 6 << 30),
                Lun {
                    read_only: true,
                    ..disk(work.path(), "b", 1 << 20)
                },
            ],
            ..IscsiOptions::default()
        };
        let started = Instant::now();
        let server = Iscsi::start(work.path(), &options).expect("starts");
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        assert!(
            server.version().starts_with("tgtd 1"),
            "{}",
            server.version()
        );
        testing::iscsi::round_trip(&server);
        let mut protected = Client::try_login(&server.uri_of(2), None).expect("logs in");
        assert!(!protected.write(0, &[1; 512]), "a read-only disk");
        assert_eq!(protected.read(0, 512), [0; 512]);
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn chap_lets_only_the_right_secret_in_and_a_killed_one_is_gone() {
        let work = testing::work("iscsi-chap");
        let secret = "a-secret-of-16-ch";
        let options = IscsiOptions {
            luns: vec![disk(work.path(), "a", 1 << 20)],
            chap: Some(("tester".to_owned(), secret.to_owned())),
            ..IscsiOptions::default()
        };
        let mut server = Iscsi::start(work.path(), &options).expect("starts");
        let uri = server.uri();
        assert!(Client::try_login(&uri, Some(secret)).is_ok());
        assert!(Client::try_login(&uri, Some("another-secret-16")).is_err());
        assert!(Client::try_login(&uri.replace("tester@", ""), None).is_err());
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
    }
}
