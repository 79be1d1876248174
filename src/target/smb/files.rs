//! The control side: directories and small files on a share.
//!
//! Must not know: measuring. Units: bytes.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use pavao::{SmbClient, SmbDirentType, SmbError, SmbMode, SmbOpenOptions};

use super::share::{Access, Share};
use super::{fault, identity};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Entry, Facts, Files};

/// How long a removed file may stay in its directory: until the server has seen that a session which was ended by force,
/// and so closed nothing, is gone.
const LINGERS: Duration = Duration::from_secs(2);

/// The URI's directory on a share.
pub(super) struct ShareFiles {
    /// None once an answer failed to come: any call, its end included, would wait for the time limit again.
    client: Option<SmbClient>,
    access: Access,
}

impl ShareFiles {
    /// Sees that the URI's directory is there.
    pub fn open(share: Share) -> Result<Self> {
        let Share { client, access } = share;
        let mut files = Self {
            client: Some(client),
            access,
        };
        let place = files.access.place.clone();
        let (name, url) = (place.directory_name(), place.directory_url("")?);
        let doing = || format!("open directory '{name}' on share '{}'", place.share);
        let found = files.call(Phase::Open, doing, |client| client.stat(&url));
        match found {
            Ok(found) if found.mode.is_dir() => Ok(files),
            Ok(_) => Err(Error::new(
                Phase::Open,
                Kind::NotFound,
                format!(
                    "'{name}' on share '{}' is a file; name a directory",
                    place.share
                ),
            )),
            Err(error) if error.kind == Kind::NotFound => Err(Error::new(
                Phase::Open,
                Kind::NotFound,
                format!(
                    "share '{}' has no directory '{name}'; make it there, or name another",
                    place.share
                ),
            )),
            Err(error) => Err(error),
        }
    }

    /// One call to the library, its failure in a sentence.
    fn call<T>(
        &mut self,
        phase: Phase,
        doing: impl Fn() -> String,
        call: impl FnOnce(&SmbClient) -> std::result::Result<T, SmbError>,
    ) -> Result<T> {
        let Some(client) = &self.client else {
            return Err(Error::new(
                phase,
                Kind::Gone,
                format!(
                    "could not {}: {} had stopped answering before",
                    doing(),
                    self.access.address
                ),
            ));
        };
        call(client).map_err(|error| {
            let error = self.access.fault(phase, error, &doing());
            // A closed connection is another matter: the next call makes a new one, or is refused at once.
            if error.kind == Kind::TimedOut {
                std::mem::forget(self.client.take());
            }
            error
        })
    }

    /// Makes a file that was not there, with this content. Nothing sends a flush: the close hands it to the server.
    fn lay(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let url = self.access.place.entry_url(path)?;
        let doing = || format!("create file '{path}'");
        self.call(Phase::Prepare, doing, |client| {
            let options = SmbOpenOptions::default()
                .write(true)
                .create(true)
                .exclusive(true);
            let mut file = client.open_with(&url, options).map_err(in_the_way)?;
            let Err(error) = file.write_all(content) else {
                return Ok(());
            };
            if matches!(fault::kind(&error), Kind::TimedOut | Kind::Gone) {
                // Closing would wait for the time limit once more.
                std::mem::forget(file);
            } else {
                // Made here, a moment ago, and exclusively.
                drop(file);
                let _ = client.unlink(&url);
            }
            Err(error.into())
        })
    }

    /// Whether a directory is there; libsmbclient's unlink removes an empty one, measured.
    fn is_directory(&mut self, phase: Phase, doing: &str, url: &str) -> Result<bool> {
        self.call(phase, || doing.to_owned(), |client| client.stat(url))
            .map(|found| found.mode.is_dir())
    }
}

/// A directory where a file was to be made: the name is taken.
fn in_the_way(error: SmbError) -> SmbError {
    match error {
        SmbError::Io(error) if error.kind() == io::ErrorKind::IsADirectory => {
            SmbError::Io(io::ErrorKind::AlreadyExists.into())
        }
        other => other,
    }
}

impl Files for ShareFiles {
    fn facts(&mut self) -> Result<Facts> {
        let url = self.access.place.directory_url("")?;
        // In units of clusters: libsmbclient puts sectors per cluster into `frsize`, and their bytes into `bsize`.
        let free_bytes = self
            .call(
                Phase::Open,
                || "read the free space".to_owned(),
                |client| client.statvfs(&url),
            )
            .ok()
            .and_then(|volume| {
                volume
                    .bavail
                    .checked_mul(volume.frsize)?
                    .checked_mul(volume.bsize)
            });
        let library = self.call(
            Phase::Open,
            || "read libsmbclient's version".to_owned(),
            SmbClient::get_version,
        )?;
        Ok(Facts {
            lines: lines(&self.access, &library),
            free_bytes,
            free_files: None,
            server: identity::ask(
                self.access.place.host(0),
                self.access.place.port,
                self.access.timeout,
            ),
        })
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        let url = self.access.place.directory_url(directory)?;
        let doing = format!("list directory '{directory}'");
        // A failed listing tells no reason, a failed look does.
        if !self.is_directory(Phase::Open, &doing, &url)? {
            return Err(Error::new(
                Phase::Open,
                Kind::NotFound,
                format!("could not {doing}: it is a file"),
            ));
        }
        let entries = self.call(
            Phase::Open,
            || doing.clone(),
            |client| client.list_dir(&url),
        )?;
        Ok(entries
            .into_iter()
            .map(|entry| Entry {
                name: entry.name().to_owned(),
                directory: entry.get_type() == SmbDirentType::Dir,
            })
            .collect())
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        let url = self.access.place.entry_url(path)?;
        self.call(
            Phase::Prepare,
            || format!("make directory '{path}'"),
            |client| client.mkdir(&url, SmbMode::from(0o755)),
        )
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.lay(path, &[])
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.lay(path, content)
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let url = self.access.place.entry_url(path)?;
        let doing = || format!("read file '{path}'");
        self.call(Phase::Open, doing, |client| {
            let mut file = client.open_with(&url, SmbOpenOptions::default().read(true))?;
            let mut content = Vec::new();
            let read = (&mut file).take(limit as u64).read_to_end(&mut content);
            let Err(error) = read else {
                return Ok(content);
            };
            if matches!(fault::kind(&error), Kind::TimedOut | Kind::Gone) {
                std::mem::forget(file);
            }
            Err(error.into())
        })
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        let url = self.access.place.entry_url(path)?;
        let doing = || format!("read the size of '{path}'");
        self.call(Phase::Open, doing, |client| client.stat(&url))
            .map(|found| found.size)
    }

    /// SMB has a request for it, libsmbclient has not.
    fn unwritten(&mut self, _path: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let url = self.access.place.entry_url(path)?;
        let doing = format!("remove file '{path}'");
        if self.is_directory(Phase::Cleanup, &doing, &url)? {
            return Err(Error::safety(format!(
                "'{path}' is a directory, not the file to remove; nothing was touched"
            )));
        }
        self.call(
            Phase::Cleanup,
            || doing.clone(),
            |client| client.unlink(&url),
        )
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        let url = self.access.place.entry_url(path)?;
        self.call(
            Phase::Cleanup,
            || format!("remove directory '{path}'"),
            |client| {
                let give_up = Instant::now() + LINGERS;
                loop {
                    match client.rmdir(&url) {
                        Err(SmbError::Io(error))
                            if error.kind() == io::ErrorKind::DirectoryNotEmpty
                                && Instant::now() < give_up =>
                        {
                            std::thread::sleep(LINGERS / 100);
                        }
                        ended => return ended,
                    }
                }
            },
        )
    }
}

/// What `inspect` shows.
fn lines(access: &Access, library: &str) -> Vec<(String, String)> {
    let Access { place, server, .. } = access;
    let signed = match access.signed() {
        Some(true) => "yes",
        Some(false) => "no",
        None if place.encrypt => "encrypted instead",
        None => "only if this computer's Samba settings demand it",
    };
    let encrypted = match (access.encrypted(), server.cipher()) {
        (Some(true), Some(cipher)) => format!("yes ({cipher})"),
        (Some(false), _) => "no; the server can't".to_owned(),
        (_, cipher) => format!(
            "only if the share demands it ({})",
            cipher.unwrap_or("no cipher")
        ),
    };
    [
        ("server", access.address.clone()),
        ("share", place.share.clone()),
        ("directory", format!("/{}", place.directory_name())),
        ("login", place.login_name()),
        ("dialect", format!("SMB {}", server.dialect())),
        ("encrypted", encrypted),
        ("signed", signed.to_owned()),
        ("largest read", format!("{} bytes", server.max_read)),
        ("largest write", format!("{} bytes", server.max_write)),
        (
            "multichannel",
            if server.multichannel {
                "offered; this engine uses one connection a session".to_owned()
            } else {
                "not offered".to_owned()
            },
        ),
        ("engine", format!("pavao on libsmbclient {library}")),
    ]
    .into_iter()
    .map(|(label, value)| (label.to_owned(), value))
    .collect()
}
