//! Small files through the kernel's system calls: what any program does on a disk or a mount.
//!
//! The kernel remembers names, attributes and pages. Sizes are asked for with `AT_STATX_FORCE_SYNC`, which makes a
//! network mount ask its server; names and local disks' attributes may still come from memory, which the row says.
//! Must not know: which files a run has. Sizes are in bytes.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, StatxFlags, openat, renameat, statat, statx, unlinkat,
};
use rustix::io::Errno;

use crate::error::{Error, Phase, Result};
use crate::target::file::tree::{Tree, parts};
use crate::target::local::fault;
use crate::target::{Attach, Folder, Login};

/// A directory of a run, open.
struct Handles {
    tree: Tree,
    directory: OwnedFd,
    object: String,
}

/// Opens the directory that `attach` names.
pub(super) fn open(login: &Login, attach: &Attach) -> Result<Box<dyn Folder>> {
    let tree = Tree::open(login)?;
    let directory = tree.open_directory(&attach.object, Phase::Open)?;
    Ok(Box::new(Handles {
        tree,
        directory,
        object: attach.object.clone(),
    }))
}

impl Handles {
    fn shown(&self, name: &str) -> String {
        self.tree.name(&format!("{}/{name}", self.object))
    }

    fn error(&self, errno: Errno, doing: &str, name: &str) -> Error {
        self.tree
            .error(Phase::Io, errno, doing, &format!("{}/{name}", self.object))
    }

    fn failed(&self, error: &std::io::Error, doing: &str, name: &str) -> Error {
        fault(
            Phase::Io,
            error,
            &format!("{doing} {}", self.shown(name)),
            "",
        )
    }
}

/// A name that stays in its directory.
fn plain(name: &str) -> Result<&str> {
    match parts(name)?.as_slice() {
        [one] => Ok(one),
        _ => Err(Error::safety(format!("'{name}' is not a plain name"))),
    }
}

/// Closes a file and tells what only the close can: a network mount sends what is left then.
fn close(file: File) -> rustix::io::Result<()> {
    // SAFETY: the descriptor is owned here, since `into_raw_fd` gave it up, and is used nowhere after.
    #[expect(
        unsafe_code,
        reason = "the standard library's close swallows its error"
    )]
    unsafe {
        rustix::io::try_close(file.into_raw_fd())
    }
}

impl Folder for Handles {
    fn create(&mut self, name: &str, content: &[u8], durable: bool) -> Result<()> {
        // EXCL follows no link either: whatever has that name makes it fail.
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(
            &self.directory,
            plain(name)?,
            flags,
            Mode::from_raw_mode(0o644),
        )
        .map_err(|errno| self.error(errno, "create", name))?;
        let mut file = File::from(handle);
        file.write_all(content)
            .map_err(|error| self.failed(&error, "write", name))?;
        if durable {
            file.sync_all()
                .map_err(|error| self.failed(&error, "flush", name))?;
        }
        close(file).map_err(|errno| self.error(errno, "close", name))
    }

    fn read(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let handle = openat(&self.directory, plain(name)?, flags, Mode::empty())
            .map_err(|errno| self.error(errno, "open", name))?;
        let mut file = File::from(handle);
        let mut done = 0;
        while done < buffer.len() {
            match file.read(&mut buffer[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error, "read", name)),
            }
        }
        Ok(done)
    }

    fn size(&mut self, name: &str) -> Result<Option<u64>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let asked = statx(&self.directory, plain(name)?, flags, StatxFlags::SIZE);
        match asked {
            Ok(found) => Ok(Some(found.stx_size)),
            // Kernels and sandboxes without the call.
            Err(Errno::NOSYS) => statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|found| u64::try_from(found.st_size).ok())
                .map_err(|errno| self.error(errno, "read the size of", name)),
            Err(errno) => Err(self.error(errno, "read the size of", name)),
        }
    }

    fn list(&mut self) -> Result<u64> {
        let failed = |errno| self.tree.error(Phase::Io, errno, "list", &self.object);
        let mut count = 0;
        for entry in Dir::read_from(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            count += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(count)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        renameat(&self.directory, plain(from)?, &self.directory, plain(to)?)
            .map_err(|errno| self.error(errno, "rename", from))
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        unlinkat(&self.directory, plain(name)?, AtFlags::empty())
            .map_err(|errno| self.error(errno, "remove", name))
    }

    fn negotiated(&self) -> String {
        "engine=psync".into()
    }
}
