//! Host `b` as a NAS over a directory: real servers in their control groups, an agent beside them, and what host `a` calls it.
//!
//! nfs-ganesha, smbd and tgtd are started on the host by a thread that is in the groups already, so that all that they do and
//! start counts there; the agent and iperf3 are never in them. Must not know: what the disks can do.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use nasgauge::servers::Server as Served;
use nasgauge::servers::real::iscsi::Lun;
use nasgauge::servers::real::smb::Share;
use nasgauge::servers::real::{Iscsi, IscsiOptions, Nfs, NfsOptions, Smb, SmbOptions};
use nasgauge::servers::sandbox::{Disk as Memory, Sandbox};

use super::cgroup::Group;
use super::forward;
use super::lab::{Lab, run};

/// How the NAS is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Nfs,
    Smb,
    Iscsi,
}

impl Protocol {
    /// Its key in scenarios and options.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Smb => "smb",
            Self::Iscsi => "iscsi",
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Nfs, Self::Smb, Self::Iscsi];
        let found = all.into_iter().find(|one| one.key() == text);
        found.ok_or_else(|| format!("{text} is none of nfs, smb and iscsi"))
    }
}

/// What a NAS is made of.
pub struct Parts<'a> {
    /// What it serves.
    pub directory: &'a Path,
    /// Bytes of a LUN in it.
    pub lun_bytes: u64,
    /// Where its servers run.
    pub group: &'a Group,
    /// Bytes per second of a slow way before the server's port.
    pub forward: Option<u64>,
    /// Whether there is a share in memory too.
    pub memory: bool,
    /// Whether a client of SMB keeps to one connection.
    pub one_connection: bool,
}

/// A running NAS.
pub struct Nas {
    /// Its share, as host `a` calls it.
    pub target: String,
    /// A share in its memory, the same way.
    pub memory: Option<String>,
    /// The password of both.
    pub password: Option<String>,
    /// The share on the server: a directory, or a LUN's file.
    pub server_path: PathBuf,
    /// What the agent may use.
    allowed: PathBuf,
    namespace: String,
    _servers: Vec<Box<dyn Served>>,
    _memory: Option<Memory>,
}

impl Nas {
    /// Starts it on host `b`.
    pub fn start(lab: &Lab, protocol: Protocol, parts: &Parts<'_>) -> Self {
        let memory = parts.memory.then(|| {
            let path = Sandbox::work_dir().join("lab-memory");
            Memory::mount(path, 256 << 20).expect("memory is there")
        });
        let address = lab.b.address.to_string();
        let directories = [Some(parts.directory), memory.as_ref().map(Memory::path)];
        let mut servers = Vec::new();
        let mut uris = Vec::new();
        let mut server_path = parts.directory.to_owned();
        for (at, directory) in directories.into_iter().flatten().enumerate() {
            let lun = (protocol == Protocol::Iscsi).then(|| {
                // A LUN in memory need only be read again and again.
                let bytes = if at == 0 { parts.lun_bytes } else { 200 << 20 };
                lay(directory, bytes)
            });
            if let (0, Some(lun)) = (at, &lun) {
                server_path.clone_from(lun);
            }
            let (server, port, forwarded) = lab.b.inside(|| {
                parts.group.join();
                let (server, port) = serve(protocol, directory, lun.as_deref());
                let forwarded = parts.forward.map(|rate| forward::start(port, rate));
                (server, port, forwarded)
            });
            let uri = server.uri();
            let uri = uri
                .replace("127.0.0.1", &address)
                .replace("0.0.0.0", &address);
            let mut uri = forwarded.map_or_else(
                || uri.clone(),
                |other| uri.replacen(&format!(":{port}/"), &format!(":{other}/"), 1),
            );
            if parts.one_connection && protocol == Protocol::Smb {
                uri.push_str("?engine=smb2");
            }
            uris.push(uri);
            servers.push(server);
        }
        Self {
            target: uris[0].clone(),
            memory: uris.get(1).cloned(),
            password: servers[0].password().map(str::to_owned),
            server_path,
            allowed: parts.directory.to_owned(),
            namespace: lab.b.namespace().to_owned(),
            _servers: servers,
            _memory: memory,
        }
    }

    /// The command that reaches an agent on it.
    pub fn agent(&self, program: &Path) -> String {
        format!(
            "ip netns exec {} {} agent --allow {} --allow-write",
            self.namespace,
            program.display(),
            self.allowed.display()
        )
    }
}

/// A file of zeros as a LUN, each block written.
fn lay(directory: &Path, bytes: u64) -> PathBuf {
    let path = directory.join("lun");
    run(Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "status=none", "conv=fsync"])
        .arg(format!("count={}", bytes >> 20))
        .arg(format!("of={}", path.display())));
    // What a cache holds of it was nobody's reading.
    let file = File::open(&path).expect("just written");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
    path
}

fn serve(protocol: Protocol, directory: &Path, lun: Option<&Path>) -> (Box<dyn Served>, u16) {
    let work = Sandbox::work_dir();
    let started = "a server that is installed starts in the sandbox";
    match protocol {
        Protocol::Nfs => {
            let options = NfsOptions {
                directory: directory.to_owned(),
                ..NfsOptions::default()
            };
            let server = Nfs::start(&work, &options).expect(started);
            let port = server.port();
            (Box::new(server), port)
        }
        Protocol::Smb => {
            let options = SmbOptions {
                shares: vec![Share::new("bench", directory)],
                // Each read to a thread, as over disks.
                aio_read_size: 1,
                global_lines: "interfaces = lo eth0".to_owned(),
                ..SmbOptions::default()
            };
            let server = Smb::start(&work, &options).expect(started);
            let port = server.port();
            (Box::new(server), port)
        }
        Protocol::Iscsi => {
            let options = IscsiOptions {
                luns: lun.map(Lun::new).into_iter().collect(),
                address: "0.0.0.0".to_owned(),
                ..IscsiOptions::default()
            };
            let server = Iscsi::start(&work, &options).expect(started);
            let port = server.port();
            (Box::new(server), port)
        }
    }
}
