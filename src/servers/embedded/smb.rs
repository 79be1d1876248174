//! SMB 2 and 3 over RAM: the `smb-server` crate with a storage backend of our own.
//!
//! The crate's own backend keeps a directory on disk, which a killed process would leave behind. Leases and durable
//! handles are off: nothing may be cached on the client, or kept open for one that is gone.
//!
//! Must not know: the other servers.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use smb_server::{
    Access, BackendCapabilities, Bytes, DirEntry, FileInfo, FileTimes, Handle, OpenAction,
    OpenIntent, OpenOptions, Share, ShareBackend, SmbError, SmbPath, SmbResult, SmbServer,
    VolumeInfo,
};

use super::tree::{Fault, Node, ROOT, Tree};
use super::{Serving, Shared, lock};
use crate::error::{Error, Kind, Phase, Result};
use crate::servers::Server;

/// The share's name.
pub const SHARE: &str = "bench";
/// The user who may log in.
pub const USER: &str = "bench";
/// The most bytes that one READ or WRITE carries, as smbd's default.
const MAX_TRANSFER: u32 = 8 << 20;
/// Seconds from 1601, where SMB's clock starts, to 1970.
const SECONDS_TO_1970: u64 = 11_644_473_600;

/// A running SMB server; dropping it stops it.
pub struct Smb {
    port: u16,
    password: String,
    _serving: Serving,
}

impl Smb {
    /// Starts one that may hold `capacity` bytes, with a password made up for this run.
    pub fn start(capacity: u64) -> Result<Self> {
        let password = made_up_password();
        let backend = Files {
            tree: Shared::new(Tree::new(capacity).into()),
        };
        let share = Share::new(SHARE, backend)
            .user(USER, Access::ReadWrite)
            .leases(false)
            .durable_handles(false)
            .change_notify(false);
        let server = SmbServer::builder()
            .listen((Ipv4Addr::LOCALHOST, 0).into())
            .user(USER, &password)
            .max_read_size(MAX_TRANSFER)
            .max_write_size(MAX_TRANSFER)
            // A test that gives a wrong password must not lock out the next one.
            .logon_throttle(0, Duration::from_secs(1))
            .share(share)
            .build()
            .map_err(|error| {
                let message = format!("could not set up the embedded smb server: {error}");
                Error::new(Phase::Prepare, Kind::Other, message)
            })?;
        let bind = async move {
            let address = server.bind().await?;
            Ok((address, async move { server.serve().await }))
        };
        let (serving, address) = Serving::start("smb", bind)?;
        Ok(Self {
            port: address.port(),
            password,
            _serving: serving,
        })
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Server for Smb {
    fn protocol(&self) -> &'static str {
        "smb"
    }

    fn version(&self) -> &'static str {
        "smb-server 0.8 (embedded)"
    }

    fn uri(&self) -> String {
        format!("smb://{USER}@127.0.0.1:{}/{SHARE}", self.port)
    }

    fn password(&self) -> Option<&str> {
        Some(&self.password)
    }
}

/// A password that nobody else on this machine can guess: each hasher of the standard library has random keys.
fn made_up_password() -> String {
    use std::hash::BuildHasher;
    let part = || std::collections::hash_map::RandomState::new().hash_one(SystemTime::now());
    format!("{:016x}{:016x}", part(), part())
}

impl From<Fault> for SmbError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotFound | Fault::Stale => Self::NotFound,
            Fault::Exists => Self::Exists,
            Fault::NotDirectory => Self::NotADirectory,
            Fault::IsDirectory => Self::IsDirectory,
            Fault::NotEmpty => Self::NotEmpty,
            Fault::NoSpace => Self::DiskFull,
            Fault::Invalid => Self::NameInvalid,
        }
    }
}

struct Files {
    tree: Shared,
}

/// The directory that holds a path's last part, and that part's name.
fn place<'a>(tree: &Tree, path: &'a SmbPath) -> SmbResult<(u64, &'a str)> {
    let (name, above) = path
        .components()
        .split_last()
        .ok_or(SmbError::AccessDenied)?;
    let mut directory = ROOT;
    for part in above {
        directory = tree.lookup(directory, part).map_err(|fault| match fault {
            Fault::NotFound => SmbError::PathNotFound,
            other => other.into(),
        })?;
    }
    Ok((directory, name))
}

fn open(tree: &mut Tree, path: &SmbPath, options: OpenOptions) -> SmbResult<(u64, OpenAction)> {
    if path.is_root() {
        return match options.intent {
            _ if options.non_directory => Err(SmbError::IsDirectory),
            OpenIntent::Create => Err(SmbError::Exists),
            _ => Ok((ROOT, OpenAction::Opened)),
        };
    }
    let (directory, name) = place(tree, path)?;
    let id = match tree.lookup(directory, name) {
        Ok(id) => id,
        Err(Fault::NotFound) => {
            if matches!(options.intent, OpenIntent::Open | OpenIntent::Truncate) {
                return Err(SmbError::NotFound);
            }
            let id = if options.directory {
                tree.mkdir(directory, name)?
            } else {
                tree.create(directory, name)?
            };
            return Ok((id, OpenAction::Created));
        }
        Err(fault) => return Err(fault.into()),
    };
    let is_directory = tree.node(id)?.is_directory();
    match options.intent {
        OpenIntent::Create => Err(SmbError::Exists),
        _ if options.directory && !is_directory => Err(SmbError::NotADirectory),
        _ if options.non_directory && is_directory => Err(SmbError::IsDirectory),
        OpenIntent::Open | OpenIntent::OpenOrCreate => Ok((id, OpenAction::Opened)),
        OpenIntent::Truncate | OpenIntent::OverwriteOrCreate => {
            tree.resize(id, 0)?;
            Ok((id, OpenAction::Overwritten))
        }
        _ => Err(SmbError::NotSupported),
    }
}

#[async_trait]
impl ShareBackend for Files {
    async fn open(
        &self,
        path: &SmbPath,
        options: OpenOptions,
    ) -> SmbResult<(Box<dyn Handle>, OpenAction)> {
        let (id, action) = open(&mut lock(&self.tree), path, options)?;
        let opened = Opened {
            tree: self.tree.clone(),
            id,
            name: path.file_name().unwrap_or(SHARE).to_owned(),
        };
        Ok((Box::new(opened), action))
    }

    async fn unlink(&self, path: &SmbPath) -> SmbResult<()> {
        let mut tree = lock(&self.tree);
        let (directory, name) = place(&tree, path)?;
        Ok(tree.remove(directory, name)?)
    }

    async fn rename(&self, from: &SmbPath, to: &SmbPath, replace: bool) -> SmbResult<()> {
        let mut tree = lock(&self.tree);
        let (from, to) = (place(&tree, from)?, place(&tree, to)?);
        if let Ok(there) = tree.lookup(to.0, to.1)
            && tree.node(there)?.is_directory()
        {
            return Err(SmbError::AccessDenied);
        }
        Ok(tree.rename(from, to, replace)?)
    }

    fn capabilities(&self) -> BackendCapabilities {
        let mut capabilities = BackendCapabilities::default();
        capabilities.case_sensitive = true;
        capabilities
    }

    async fn volume_info(&self) -> SmbResult<VolumeInfo> {
        let (total, free) = lock(&self.tree).budget().total_and_free();
        let mut volume = VolumeInfo::default();
        let unit = u64::from(volume.bytes_per_sector * volume.sectors_per_allocation_unit);
        volume.total_allocation_units = total / unit;
        volume.caller_available_allocation_units = free / unit;
        volume.actual_available_allocation_units = free / unit;
        Ok(volume)
    }
}

/// An open file or directory.
struct Opened {
    tree: Shared,
    id: u64,
    name: String,
}

/// SMB's clock: steps of 100 ns since 1601.
fn filetime(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() + SECONDS_TO_1970) * 10_000_000 + u64::from(since.subsec_nanos()) / 100
}

fn info(node: &Node, name: &str) -> FileInfo {
    let mut info = FileInfo::new(name);
    let (size, held) = node.size_and_held();
    if !node.is_directory() {
        info.end_of_file = size;
        info.allocation_size = held;
    }
    let at = filetime(node.modified);
    info.creation_time = at;
    info.last_access_time = at;
    info.last_write_time = at;
    info.change_time = at;
    info.is_directory = node.is_directory();
    info.file_index = node.id;
    info
}

/// Whether a name fits a pattern of `*` and `?` and their DOS forms, whatever the letters' case.
fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*' | '<', rest)), _) => {
            fits(rest, name)
                || name
                    .split_first()
                    .is_some_and(|(_, tail)| fits(pattern, tail))
        }
        (Some(('?' | '>', rest)), Some((_, tail))) | (Some(('"', rest)), Some(('.', tail))) => {
            fits(rest, tail)
        }
        (Some((want, rest)), Some((have, tail))) => {
            want.to_lowercase().eq(have.to_lowercase()) && fits(rest, tail)
        }
        _ => false,
    }
}

#[async_trait]
impl Handle for Opened {
    async fn read(&self, offset: u64, len: u32) -> SmbResult<Bytes> {
        let tree = lock(&self.tree);
        Ok(tree.node(self.id)?.file()?.read(offset, len.into()).into())
    }

    async fn write(&self, offset: u64, data: &[u8]) -> SmbResult<u32> {
        lock(&self.tree).write(self.id, offset, data)?;
        Ok(data.len() as u32)
    }

    async fn flush(&self) -> SmbResult<()> {
        Ok(())
    }

    async fn stat(&self) -> SmbResult<FileInfo> {
        Ok(info(lock(&self.tree).node(self.id)?, &self.name))
    }

    async fn set_times(&self, _times: FileTimes) -> SmbResult<()> {
        lock(&self.tree).node_mut(self.id)?.modified = SystemTime::now();
        Ok(())
    }

    async fn set_attributes(&self, attributes: u32) -> SmbResult<()> {
        // ARCHIVE is accepted and not kept, as most servers without a place for it do.
        const ARCHIVE: u32 = 0x20;
        if attributes & !ARCHIVE == 0 {
            Ok(())
        } else {
            Err(SmbError::NotSupported)
        }
    }

    async fn truncate(&self, len: u64) -> SmbResult<()> {
        Ok(lock(&self.tree).resize(self.id, len)?)
    }

    async fn list_dir(&self, pattern: Option<&str>) -> SmbResult<Vec<DirEntry>> {
        let pattern: Option<Vec<char>> = pattern.map(|pattern| pattern.chars().collect());
        let tree = lock(&self.tree);
        let mut listing = Vec::new();
        for (name, id) in tree.node(self.id)?.entries()? {
            let letters: Vec<char> = name.chars().collect();
            if pattern
                .as_ref()
                .is_none_or(|pattern| fits(pattern, &letters))
            {
                listing.push(DirEntry {
                    info: info(tree.node(*id)?, name),
                });
            }
        }
        Ok(listing)
    }

    async fn close(self: Box<Self>) -> SmbResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "smb")]
    #[test]
    fn files_come_and_go() {
        let server = Smb::start(64 << 20).expect("starts");
        crate::servers::testing::smb::round_trip(&server);
        crate::servers::testing::smb::wrong_password(&server);
    }

    #[test]
    fn a_stopped_server_is_gone() {
        let server = Smb::start(1 << 20).expect("starts");
        let port = server.port();
        crate::servers::testing::assert_loopback_only(port);
        drop(server);
        crate::servers::testing::assert_closed(port);
    }

    #[test]
    fn patterns_fit_as_a_listing_asks() {
        let fits = |pattern: &str, name: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<char>>();
            super::fits(&letters(pattern), &letters(name))
        };
        for (pattern, name, expected) in [
            ("*", "anything.x", true),
            ("run-*", "RUN-7", true),
            ("run-?", "run-12", false),
            ("*.bin", "a.b.bin", true),
            ("*.bin", "a.bin.old", false),
            ("a", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn passwords_differ_from_run_to_run() {
        assert_ne!(made_up_password(), made_up_password());
    }
}
