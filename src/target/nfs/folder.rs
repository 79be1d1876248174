//! Small files: whole ones by name, one call under way, over the `nfs3_client` crate whatever the engine of blocks.
//!
//! Create is CREATE (GUARDED: the server refuses a name that is taken) and WRITE; made durable, the last WRITE of a file
//! that fits in one is `FILE_SYNC`, as the kernel's client has it, and a longer file gets a COMMIT. Open is LOOKUP and
//! READ; stat is LOOKUP, whose reply has the attributes, and GETATTR where the server leaves them out. Version 3 has no
//! open and no close. Must not know: which files a run has.

use nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, LOOKUP3args, Nfs3Option, READ3args, REMOVE3args, RENAME3args,
    WRITE3args, createhow3, nfs_fh3, sattr3, stable_how,
};
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Attach, Folder, Login};

use super::client::{Life, entry, given};
use super::lane::{Restarts, promise};
use super::listing::{Cursor, Listing};
use super::mount::{self, Mounted};
use super::path;

/// A directory of a run.
struct Directory {
    mounted: Mounted,
    handle: nfs_fh3,
    object: String,
    listing: Listing,
    read_max: u32,
    write_max: u32,
    calls: u64,
}

/// Opens the directory that `attach` names.
pub(super) fn open(login: &Login, attach: &Attach) -> Result<Box<dyn Folder>> {
    let opened = || {
        let names = path::parts(&attach.object)?;
        let mut mounted = mount::open(login, Life::Once, login.io_timeout())?;
        let Mounted {
            client, directory, ..
        } = &mut mounted;
        let handle = client.walk(Phase::Open, directory, &names)?;
        Ok(Directory {
            read_max: mounted.read_max()?,
            write_max: mounted.write_max()?,
            mounted,
            handle,
            object: attach.object.clone(),
            listing: Listing::new(),
            calls: 0,
        })
    };
    match opened() {
        Ok(directory) => Ok(Box::new(directory)),
        Err(error) => {
            let error: Error = error;
            Err(error.at(&login.spec.uri))
        }
    }
}

impl Directory {
    fn wrong(&self, message: String) -> Error {
        Error::new(Phase::Io, Kind::Protocol, message).at(self.mounted.client.uri())
    }

    /// The handle of a name, and its size where the server sends it along.
    fn look(&mut self, name: &str) -> Result<(nfs_fh3, Option<u64>)> {
        let args = LOOKUP3args {
            what: entry(&self.handle, path::safe(name)?),
        };
        self.calls += 1;
        let client = &mut self.mounted.client;
        let doing = || format!("find '{name}'");
        let found = client.call(Phase::Io, doing, async |nfs| nfs.lookup(&args).await)?;
        let size = given(found.obj_attributes).map(|known| known.size);
        Ok((found.object, size))
    }

    /// Writes a new file's content; true when all of it is durable. `restarts` learns which life of the server took it.
    fn fill(
        &mut self,
        name: &str,
        file: &nfs_fh3,
        content: &[u8],
        stable: stable_how,
        restarts: &mut Restarts,
    ) -> Result<bool> {
        let mut done = 0;
        let mut all_durable = true;
        while done < content.len() {
            let part = &content[done..content.len().min(done + self.write_max as usize)];
            let args = WRITE3args {
                file: file.clone(),
                offset: done as u64,
                count: part.len() as u32,
                stable,
                data: Opaque::borrowed(part),
            };
            self.calls += 1;
            let doing = || format!("write {} bytes of '{name}'", part.len());
            let client = &mut self.mounted.client;
            let wrote = client.call(Phase::Io, doing, async |nfs| nfs.write(&args).await)?;
            let count = wrote.count as usize;
            if count == 0 || count > part.len() {
                return Err(self.wrong(format!(
                    "could not write '{name}': the server claims {count} of {} bytes written",
                    part.len()
                )));
            }
            let durable = promise(stable, wrote.committed)
                .map_err(|claim| self.wrong(format!("could not write '{name}': {claim}")))?;
            if !durable {
                restarts.note(wrote.verf);
            }
            all_durable &= durable;
            done += count;
        }
        Ok(all_durable)
    }

    /// Makes a file that was accepted durable.
    fn commit(&mut self, name: &str, file: nfs_fh3, mut restarts: Restarts) -> Result<()> {
        let args = COMMIT3args {
            file,
            offset: 0,
            count: 0,
        };
        self.calls += 1;
        let client = &mut self.mounted.client;
        let doing = || format!("make '{name}' durable");
        let committed = client.call(Phase::Io, doing, async |nfs| nfs.commit(&args).await)?;
        restarts.note(committed.verf);
        if restarts.take() {
            let message = format!(
                "the server restarted while '{name}' was being written (its write verifier changed), so it may be lost"
            );
            return Err(Error::new(Phase::Io, Kind::Gone, message).at(client.uri()));
        }
        Ok(())
    }
}

impl Folder for Directory {
    fn create(&mut self, name: &str, content: &[u8], durable: bool) -> Result<()> {
        let args = CREATE3args {
            where_: entry(&self.handle, path::safe(name)?),
            how: createhow3::GUARDED(sattr3 {
                mode: Nfs3Option::Some(0o644),
                ..sattr3::default()
            }),
        };
        self.calls += 1;
        let client = &mut self.mounted.client;
        let doing = || format!("create '{name}'");
        let made = client.call(Phase::Io, doing, async |nfs| nfs.create(&args).await)?;
        let file = match given(made.obj) {
            Some(file) => file,
            None => self.look(name)?.0,
        };
        let whole = content.len() <= self.write_max as usize;
        let stable = if durable && whole {
            stable_how::FILE_SYNC
        } else {
            stable_how::UNSTABLE
        };
        let mut restarts = Restarts::default();
        let all_durable = self.fill(name, &file, content, stable, &mut restarts)?;
        if durable && !all_durable {
            self.commit(name, file, restarts)?;
        }
        Ok(())
    }

    fn read(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize> {
        let (file, _) = self.look(name)?;
        let mut done = 0;
        while done < buffer.len() {
            let args = READ3args {
                file: file.clone(),
                offset: done as u64,
                count: (buffer.len() - done).min(self.read_max as usize) as u32,
            };
            self.calls += 1;
            let doing = || format!("read '{name}' at offset {done}");
            let client = &mut self.mounted.client;
            let read = client.call(Phase::Io, doing, async |nfs| nfs.read(&args).await)?;
            let count = read.data.len();
            if count > args.count as usize || (count == 0 && !read.eof) {
                return Err(self.wrong(format!(
                    "could not read '{name}': the server sent {count} bytes"
                )));
            }
            buffer[done..done + count].copy_from_slice(&read.data);
            done += count;
            if read.eof {
                break;
            }
        }
        Ok(done)
    }

    fn size(&mut self, name: &str) -> Result<Option<u64>> {
        let (file, size) = self.look(name)?;
        if size.is_some() {
            return Ok(size);
        }
        self.calls += 1;
        let found = self.mounted.client.attributes(Phase::Io, &file, name)?;
        Ok(Some(found.size))
    }

    fn list(&mut self) -> Result<u64> {
        let mut cursor = Cursor::default();
        let mut count = 0;
        while let Some(names) = self.listing.page(
            &mut self.mounted.client,
            Phase::Io,
            &self.handle,
            &self.object,
            &mut cursor,
        )? {
            self.calls += 1;
            count += names.len() as u64;
        }
        Ok(count)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let args = RENAME3args {
            from: entry(&self.handle, path::safe(from)?),
            to: entry(&self.handle, path::safe(to)?),
        };
        self.calls += 1;
        let doing = || format!("rename '{from}'");
        let client = &mut self.mounted.client;
        client.call(Phase::Io, doing, async |nfs| nfs.rename(&args).await)?;
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let args = REMOVE3args {
            object: entry(&self.handle, path::safe(name)?),
        };
        self.calls += 1;
        let doing = || format!("remove '{name}'");
        let client = &mut self.mounted.client;
        client.call(Phase::Io, doing, async |nfs| nfs.remove(&args).await)?;
        Ok(())
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.calls)
    }

    fn negotiated(&self) -> String {
        format!(
            "vers=3 engine=nfs3_client rtmax={} wtmax={} sec=sys",
            self.mounted.limits.rtmax, self.mounted.limits.wtmax
        )
    }
}
