//! Paths below one directory, opened part by part so that no link leads out of it.
//!
//! Must not know: what the files are for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, fstatvfs, openat,
};
use rustix::io::Errno;

use crate::error::{Error, Kind, Phase, Result};
use crate::target::Login;
use crate::target::local::{direct, fault};

/// An open directory and what lies below it.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

/// The directory that holds an object, and the object's own name.
#[derive(Debug)]
pub struct Place<'a> {
    /// None: the URI's own directory.
    within: Option<OwnedFd>,
    tree: &'a Tree,
    /// The last part of the path.
    pub name: &'a str,
}

impl AsFd for Place<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.within
            .as_ref()
            .map_or(self.tree.root.as_fd(), OwnedFd::as_fd)
    }
}

/// The parts of a path below the directory; refuses everything that could lead out of it or mean two things.
pub fn parts(path: &str) -> Result<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts
        .iter()
        .find(|part| matches!(**part, "" | "." | "..") || part.contains('\0'))
    {
        None => Ok(parts),
        Some(part) => Err(Error::safety(format!(
            "'{}' is not a path inside the target: the part '{}' is not allowed",
            path.escape_default(),
            part.escape_default()
        ))),
    }
}

impl Tree {
    /// Opens the URI's directory, which must exist and answer in time: on a network mount whose server is away, the
    /// kernel would wait for ever.
    pub fn open(login: &Login) -> Result<Self> {
        let path = PathBuf::from(&login.spec.path);
        let limit = login.connect_timeout();
        let wanted = path.clone();
        let opened = within(limit, move || open_and_ask(&wanted)).unwrap_or(Err(Errno::TIMEDOUT));
        let root = opened.map_err(|errno| {
            let shown = path.display();
            let (kind, message) = match errno {
                Errno::NOENT => (
                    Kind::NotFound,
                    format!("there is no directory {shown}; make it, or mount what belongs there"),
                ),
                Errno::NOTDIR => (
                    Kind::Usage,
                    format!(
                        "{shown} is not a directory; a file target names the directory to test in"
                    ),
                ),
                Errno::TIMEDOUT => (
                    Kind::TimedOut,
                    format!(
                        "{shown} gave no answer within {} s; is the server of its mount away?",
                        limit.as_secs_f64()
                    ),
                ),
                errno => {
                    let doing = format!("open the directory {shown}");
                    return fault(Phase::Open, &errno.into(), &doing, "");
                }
            };
            Error::new(Phase::Open, kind, message)
        });
        Ok(Self {
            root: root.map_err(|error| error.at(&login.spec.uri))?,
            path,
        })
    }

    /// The directory as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory itself.
    #[must_use]
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// An object's name for messages.
    #[must_use]
    pub fn name(&self, object: &str) -> String {
        self.path.join(object).display().to_string()
    }

    /// Turns a system call's error on an object into words.
    #[must_use]
    pub fn error(&self, phase: Phase, errno: Errno, doing: &str, object: &str) -> Error {
        let name = self.name(object);
        if matches!(errno, Errno::LOOP | Errno::MLINK) {
            return Error::safety(format!(
                "{name} is or lies behind a symbolic link, which nasgauge does not follow inside a target; name \
                 the real place"
            ));
        }
        fault(
            phase,
            &io::Error::from(errno),
            &format!("{doing} {name}"),
            "",
        )
    }

    /// Finds the directory that holds an object.
    pub fn place<'a>(&'a self, object: &'a str, phase: Phase) -> Result<Place<'a>> {
        let parts = parts(object)?;
        let mut within: Option<OwnedFd> = None;
        let (name, above) = parts
            .split_last()
            .map_or((object, &[][..]), |(n, a)| (*n, a));
        for part in above {
            let from = within.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(from, *part, flags, Mode::empty())
                .map_err(|errno| self.error(phase, link_or(errno, from, part), "open", object))?;
            within = Some(next);
        }
        Ok(Place {
            within,
            tree: self,
            name,
        })
    }

    /// Opens a directory below, "" being the own one, to list or flush it.
    pub fn open_directory(&self, directory: &str, phase: Phase) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if directory.is_empty() {
            return openat(&self.root, ".", flags, Mode::empty())
                .map_err(|errno| self.error(phase, errno, "open", directory));
        }
        let place = self.place(directory, phase)?;
        openat(&place, place.name, flags, Mode::empty()).map_err(|errno| {
            let errno = link_or(errno, place.as_fd(), place.name);
            self.error(phase, errno, "open", directory)
        })
    }

    /// Opens an existing regular file with extra flags. One that is only read may be a user's own, named by its
    /// full path; one that is written lies below the directory and behind no link.
    pub fn open_file(&self, object: &str, write: bool, extra: OFlags) -> Result<File> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // A pipe or terminal in the file's place must not hang us: NONBLOCK until we know what it is.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | extra;
        let opened = if !write && object.starts_with('/') {
            rustix::fs::open(object, flags, Mode::empty())
        } else {
            let place = self.place(object, Phase::Open)?;
            openat(&place, place.name, flags | OFlags::NOFOLLOW, Mode::empty())
        };
        let handle = opened.map_err(|errno| match errno {
            Errno::INVAL if extra.contains(OFlags::DIRECT) => {
                direct::refused(&self.name(object), "its file system does not offer it")
            }
            Errno::NXIO | Errno::NODEV => self.not_regular(object),
            errno => self.error(Phase::Open, errno, "open", object),
        })?;
        let regular = fstat(&handle)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
        if !regular {
            return Err(self.not_regular(object));
        }
        fcntl_getfl(&handle)
            .and_then(|flags| fcntl_setfl(&handle, flags - OFlags::NONBLOCK))
            .map_err(|errno| self.error(Phase::Open, errno, "set up", object))?;
        Ok(File::from(handle))
    }

    fn not_regular(&self, object: &str) -> Error {
        Error::usage(format!(
            "{} is not a regular file; a device is tested as block:/dev/…",
            self.name(object)
        ))
    }
}

/// Opens a directory and asks its file system something that no cache answers.
fn open_and_ask(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    // Not every file system has an answer; that one comes is what counts.
    let _ = fstatvfs(&root);
    Ok(root)
}

/// The result of a call that may hang in the kernel; None when it does. Its thread is then left behind: nothing can
/// end it but the server's return or the end of this process.
fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let spawned = thread::Builder::new()
        .name("open".to_owned())
        .spawn(move || sender.send(call()).ok());
    spawned.ok()?;
    receiver.recv_timeout(limit).ok()
}

/// `ENOTDIR` is what the kernel says of a link where a directory is wanted: tells the two apart.
fn link_or(errno: Errno, within: BorrowedFd<'_>, name: &str) -> Errno {
    let is_link = || {
        rustix::fs::statat(within, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Symlink)
    };
    if errno == Errno::NOTDIR && is_link() {
        Errno::LOOP
    } else {
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_hangs_is_left_behind() {
        assert_eq!(within(Duration::from_secs(5), || 7), Some(7));
        let (_sender, receiver) = mpsc::channel::<()>();
        let hang = move || receiver.recv().is_ok();
        assert_eq!(within(Duration::from_millis(20), hang), None);
    }
}
