//! The control side: what is in the URI's directory, and the files of a run.
//!
//! Nothing existing is ever opened for change: CREATE goes out as GUARDED, which the server itself refuses where
//! the name is taken. No symbolic link is followed.

use nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, FSSTAT3args, MKDIR3args, Nfs3Option, Nfs3Result, READ3args,
    REMOVE3args, RMDIR3args, WRITE3args, createhow3, fattr3, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_types::xdr_codec::Opaque;

use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Entry, Facts, Files};
use crate::units::Bytes;

use super::client::{entry, given};
use super::listing::Listing;
use super::mount::Mounted;
use super::path;

/// The URI's directory.
pub(super) struct Directory {
    mounted: Mounted,
    listing: Listing,
}

/// A file system's room, in bytes and files, where the server tells.
#[derive(Default)]
struct Space {
    free: Option<u64>,
    total: Option<u64>,
    free_files: Option<u64>,
}

impl Directory {
    pub(super) const fn new(mounted: Mounted) -> Self {
        Self {
            mounted,
            listing: Listing::new(),
        }
    }

    fn tied(&self, error: Error) -> Error {
        error.at(self.mounted.client.uri())
    }

    fn find(&mut self, phase: Phase, path: &str) -> Result<nfs_fh3> {
        let names = path::parts(path).map_err(|error| self.tied(error))?;
        let Mounted {
            client, directory, ..
        } = &mut self.mounted;
        client.walk(phase, directory, &names)
    }

    /// The handle of a path's directory, and its last name.
    fn place<'p>(&mut self, phase: Phase, path: &'p str) -> Result<(nfs_fh3, &'p str)> {
        let (names, last) = path::split_last(path).map_err(|error| self.tied(error))?;
        let Mounted {
            client, directory, ..
        } = &mut self.mounted;
        Ok((client.walk(phase, directory, &names)?, last))
    }

    fn attributes(&mut self, path: &str) -> Result<(nfs_fh3, fattr3)> {
        let handle = self.find(Phase::Open, path)?;
        let attributes = self.mounted.client.attributes(Phase::Open, &handle, path)?;
        Ok((handle, attributes))
    }

    /// Makes an empty file that was not there, and opens it.
    fn make(&mut self, path: &str) -> Result<nfs_fh3> {
        let (directory, name) = self.place(Phase::Prepare, path)?;
        let args = CREATE3args {
            where_: entry(&directory, name),
            how: createhow3::GUARDED(sattr3 {
                mode: Nfs3Option::Some(0o644),
                ..sattr3::default()
            }),
        };
        let doing = || format!("create '{path}'");
        let client = &mut self.mounted.client;
        let made = client.call(Phase::Prepare, doing, async |nfs| nfs.create(&args).await)?;
        match given(made.obj) {
            Some(handle) => Ok(handle),
            None => client.walk(Phase::Prepare, &directory, &[name]),
        }
    }

    /// Writes a new file's content, at most `most` bytes a call.
    fn fill(&mut self, path: &str, file: &nfs_fh3, content: &[u8], most: usize) -> Result<()> {
        let client = &mut self.mounted.client;
        let mut done = 0;
        let mut stable = true;
        while done < content.len() {
            let part = &content[done..content.len().min(done + most)];
            let args = WRITE3args {
                file: file.clone(),
                offset: done as u64,
                count: part.len() as u32,
                stable: stable_how::FILE_SYNC,
                data: Opaque::borrowed(part),
            };
            let doing = || format!("write {} bytes of '{path}'", part.len());
            let wrote = client.call(Phase::Prepare, doing, async |nfs| nfs.write(&args).await)?;
            let count = wrote.count as usize;
            if count == 0 || count > part.len() {
                let message = format!(
                    "could not write '{path}': the server claims {count} of {} bytes written",
                    part.len()
                );
                return Err(self.tied(Error::new(Phase::Prepare, Kind::Protocol, message)));
            }
            stable &= wrote.committed == stable_how::FILE_SYNC;
            done += count;
        }
        if !stable {
            let args = COMMIT3args {
                file: file.clone(),
                offset: 0,
                count: 0,
            };
            let doing = || format!("make '{path}' durable");
            client.call(Phase::Prepare, doing, async |nfs| nfs.commit(&args).await)?;
        }
        Ok(())
    }

    /// What is free for this user and all that the file system has, where the server tells.
    fn space(&mut self) -> Result<Space> {
        let args = FSSTAT3args {
            fsroot: self.mounted.directory.clone(),
        };
        let doing = || "ask for the free space (FSSTAT)".to_owned();
        let answer = self.mounted.client.call(Phase::Open, doing, async |nfs| {
            match nfs.fsstat(&args).await {
                Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_JUKEBOX, fail))) => {
                    Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_JUKEBOX, fail)))
                }
                Ok(Nfs3Result::Ok(space)) => Ok(Nfs3Result::Ok(Some(space))),
                Ok(Nfs3Result::Err(_)) => Ok(Nfs3Result::Ok(None)),
                Err(error) => Err(error),
            }
        })?;
        // A file system of no size at all is one that the server knows nothing of.
        Ok(match answer.filter(|space| space.tbytes > 0) {
            Some(space) => Space {
                free: Some(space.abytes),
                total: Some(space.tbytes),
                free_files: Some(space.afiles).filter(|_| space.tfiles > 0),
            },
            None => Space::default(),
        })
    }
}

impl Files for Directory {
    fn facts(&mut self) -> Result<Facts> {
        let Space {
            free,
            total,
            free_files,
        } = self.space()?;
        let mounted = &self.mounted;
        let limits = &mounted.limits;
        let who = mounted.client.who();
        let port = if who.privileged {
            "below 1024"
        } else {
            "any (below 1024 needs root or CAP_NET_BIND_SERVICE)"
        };
        let mut lines = vec![
            ("server", mounted.client.peer()),
            ("address", mounted.client.address()),
            ("MOUNT port", mounted.mount_port.to_string()),
            ("source port", port.to_owned()),
            ("export", mounted.export.clone()),
            ("directory in it", mounted.beneath.clone()),
            ("protocol", "NFS version 3 over TCP, sec=sys".to_owned()),
            ("user and group", format!("uid {} gid {}", who.uid, who.gid)),
            ("largest read", Bytes(limits.rtmax.into()).to_string()),
            ("preferred read", Bytes(limits.rtpref.into()).to_string()),
            ("largest write", Bytes(limits.wtmax.into()).to_string()),
            ("preferred write", Bytes(limits.wtpref.into()).to_string()),
            ("largest file", Bytes(limits.maxfilesize).to_string()),
        ];
        if let (Some(free), Some(total)) = (free, total) {
            let space = format!("{} of {}", Bytes(free).both(), Bytes(total).both());
            lines.push(("free space", space));
        }
        Ok(Facts {
            lines: lines
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(label, value)| (label.to_owned(), value))
                .collect(),
            free_bytes: free,
            free_files,
            server: None,
        })
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        let handle = self.find(Phase::Open, directory)?;
        let shown = if directory.is_empty() { "." } else { directory };
        self.listing.list(&mut self.mounted.client, &handle, shown)
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        let (directory, name) = self.place(Phase::Prepare, path)?;
        let args = MKDIR3args {
            where_: entry(&directory, name),
            attributes: sattr3 {
                mode: Nfs3Option::Some(0o755),
                ..sattr3::default()
            },
        };
        let doing = || format!("make the directory '{path}'");
        let client = &mut self.mounted.client;
        client.call(Phase::Prepare, doing, async |nfs| nfs.mkdir(&args).await)?;
        Ok(())
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.make(path).map(drop)
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let most = self.mounted.write_max().map_err(|error| self.tied(error))?;
        let file = self.make(path)?;
        let filled = self.fill(path, &file, content, most as usize);
        if filled.is_err() {
            // Half a file of ours must not pass for a whole one; the first failure is the one to tell.
            drop(self.remove(path));
        }
        filled
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let file = self.find(Phase::Open, path)?;
        let most = self.mounted.read_max().map_err(|error| self.tied(error))? as usize;
        let mut content = Vec::new();
        while content.len() < limit {
            let offset = content.len();
            let args = READ3args {
                file: file.clone(),
                offset: offset as u64,
                count: (limit - offset).min(most) as u32,
            };
            let doing = || format!("read '{path}' at offset {offset}");
            let client = &mut self.mounted.client;
            let read = client.call(Phase::Open, doing, async |nfs| nfs.read(&args).await)?;
            if read.data.len() > args.count as usize {
                let message = format!("could not read '{path}': the server sends more than asked");
                return Err(self.tied(Error::new(Phase::Open, Kind::Protocol, message)));
            }
            content.extend_from_slice(&read.data);
            if read.eof || read.data.is_empty() {
                break;
            }
        }
        Ok(content)
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        self.attributes(path).map(|(_, attributes)| attributes.size)
    }

    fn unwritten(&mut self, _path: &str) -> Result<Option<u64>> {
        // Version 3 has no word for holes, and `used` counts blocks after compression.
        Ok(None)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let (directory, name) = self.place(Phase::Cleanup, path)?;
        let args = REMOVE3args {
            object: entry(&directory, name),
        };
        let doing = || format!("remove '{path}'");
        let client = &mut self.mounted.client;
        client.call(Phase::Cleanup, doing, async |nfs| nfs.remove(&args).await)?;
        Ok(())
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        let (directory, name) = self.place(Phase::Cleanup, path)?;
        let args = RMDIR3args {
            object: entry(&directory, name),
        };
        let doing = || format!("remove the directory '{path}'");
        let client = &mut self.mounted.client;
        client.call(Phase::Cleanup, doing, async |nfs| nfs.rmdir(&args).await)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Life;
    use super::super::mount;
    use super::super::script::{Behaviour, serve};
    use super::*;

    #[test]
    fn a_connection_that_went_is_opened_anew() {
        let behaviour = Behaviour {
            closes: true,
            ..Behaviour::default()
        };
        let login = serve(behaviour);
        let mounted = mount::open(&login, Life::Kept, login.connect_timeout()).expect("open");
        let mut files = Directory::new(mounted);
        for _ in 0..2 {
            assert_eq!(files.size("f").expect("a call on a new connection"), 0);
            let error = files.get("f", 10).expect_err("the server closes on READ");
            assert_eq!((error.phase, error.kind), (Phase::Open, Kind::Gone));
        }
    }

    #[test]
    fn a_server_that_lists_bare_names_is_asked_for_their_kind() {
        let login = serve(Behaviour::default());
        let mounted = mount::open(&login, Life::Kept, login.connect_timeout()).expect("open");
        let mut files = Directory::new(mounted);
        for _ in 0..2 {
            let found = files.list("").expect("three pages");
            let found: Vec<_> = found
                .iter()
                .map(|entry| (entry.name.as_str(), entry.directory))
                .collect();
            assert_eq!(found, [("f", false), ("d", true)]);
        }
    }

    #[test]
    fn a_listing_without_progress_ends() {
        let login = serve(Behaviour {
            nothing: true,
            ..Behaviour::default()
        });
        let mounted = mount::open(&login, Life::Kept, login.connect_timeout()).expect("open");
        let error = Directory::new(mounted).list("").expect_err("nothing comes");
        assert_eq!(error.kind, Kind::Protocol);
    }

    #[test]
    fn climbing_paths_never_leave() {
        let login = serve(Behaviour::default());
        let mounted = mount::open(&login, Life::Kept, login.connect_timeout()).expect("open");
        let mut files = Directory::new(mounted);
        // The server panics on a call that it does not expect, which would show as a lost connection.
        for path in ["../x", "a/../../x", "/x", "", ".."] {
            for refused in [
                files.create(path).expect_err(path),
                files.put(path, b"x").expect_err(path),
                files.make_directory(path).expect_err(path),
                files.remove(path).expect_err(path),
                files.remove_directory(path).expect_err(path),
            ] {
                assert_eq!(refused.kind, Kind::Safety, "{path}: {refused}");
                assert_eq!(refused.target, login.spec.uri);
            }
        }
    }
}
