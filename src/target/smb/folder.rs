//! Small files: whole ones by name through libsmbclient, which keeps no answer for a later call.
//!
//! It has its own ideas of what an operation takes on the wire (a lookup before it, several requests for a rename); they
//! are part of what is measured. It can't flush, and a failing close does not show: the sizes that are looked up after
//! the phase do. Must not know: which files a run has. Units: bytes.

use std::io::{self, Read, Write};

use pavao::{SmbClient, SmbError, SmbFile, SmbOpenOptions};

use super::fault;
use super::share::{Access, Share};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Attach, Folder, Login};

/// A directory of a run.
struct Directory {
    /// None once the connection is lost: any call, its end included, would wait for the time limit again.
    client: Option<SmbClient>,
    access: Access,
    object: String,
}

/// Opens the directory that `attach` names.
pub(super) fn open(login: &Login, attach: &Attach) -> Result<Box<dyn Folder>> {
    let Share { client, access } = Share::open(login, attach.lane, login.io_timeout())?;
    // Refuses a name that could lead elsewhere.
    access.place.entry_url(&attach.object)?;
    Ok(Box::new(Directory {
        client: Some(client),
        access,
        object: attach.object.clone(),
    }))
}

impl Directory {
    fn url(&self, name: &str) -> Result<String> {
        if name.contains('/') {
            return Err(Error::safety(format!("'{name}' is not a plain name")));
        }
        self.access
            .place
            .entry_url(&format!("{}/{name}", self.object))
    }

    /// One operation, its failure in a sentence.
    fn call<T>(
        &mut self,
        doing: impl Fn() -> String,
        call: impl FnOnce(&SmbClient) -> std::result::Result<T, SmbError>,
    ) -> Result<T> {
        let Some(client) = &self.client else {
            return Err(Error::new(
                Phase::Io,
                Kind::Gone,
                "the connection was lost before",
            ));
        };
        call(client).map_err(|error| {
            let error = self.access.fault(Phase::Io, error, &doing());
            if error.server_lost() {
                std::mem::forget(self.client.take());
            }
            error
        })
    }
}

/// Gives a file up after a failure that its close would only repeat.
fn give_up(file: SmbFile<'_>, error: io::Error) -> SmbError {
    if matches!(fault::kind(&error), Kind::TimedOut | Kind::Gone) {
        std::mem::forget(file);
    }
    error.into()
}

impl Folder for Directory {
    fn create(&mut self, name: &str, content: &[u8], durable: bool) -> Result<()> {
        if durable {
            return Err(Error::new(
                Phase::Plan,
                Kind::Unsupported,
                "libsmbclient has no flush, so files can't be made durable; leave fsync out",
            ));
        }
        let url = self.url(name)?;
        self.call(
            || format!("create '{name}'"),
            |client| {
                let options = SmbOpenOptions::default()
                    .write(true)
                    .create(true)
                    .exclusive(true);
                let mut file = client.open_with(&url, options)?;
                match file.write_all(content) {
                    Ok(()) => Ok(()),
                    Err(error) => Err(give_up(file, error)),
                }
            },
        )
    }

    fn read(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize> {
        let url = self.url(name)?;
        self.call(
            || format!("read '{name}'"),
            |client| {
                let mut file = client.open_with(&url, SmbOpenOptions::default().read(true))?;
                let mut done = 0;
                while done < buffer.len() {
                    match file.read(&mut buffer[done..]) {
                        Ok(0) => break,
                        Ok(count) => done += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(give_up(file, error)),
                    }
                }
                Ok(done)
            },
        )
    }

    fn size(&mut self, name: &str) -> Result<Option<u64>> {
        let url = self.url(name)?;
        let doing = || format!("read the size of '{name}'");
        self.call(doing, |client| client.stat(&url))
            .map(|found| Some(found.size))
    }

    fn list(&mut self) -> Result<u64> {
        let url = self.access.place.directory_url(&self.object)?;
        let doing = format!("list '{}'", self.object);
        let entries = self.call(|| doing.clone(), |client| client.list_dir(&url))?;
        let own = |name: &str| !matches!(name, "." | "..");
        Ok(entries.iter().filter(|entry| own(entry.name())).count() as u64)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (self.url(from)?, self.url(to)?);
        let doing = || format!("rename '{from}'");
        self.call(doing, |client| client.rename(&old, &new))
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let url = self.url(name)?;
        let doing = || format!("remove '{name}'");
        self.call(doing, |client| client.unlink(&url))
    }

    fn negotiated(&self) -> String {
        // Whatever engine moves blocks.
        format!("engine=pavao {}", self.access.negotiated())
    }
}
