//! The paths that the agent may touch: those of `--allow`, and nothing else.
//!
//! A request's path is resolved as the system does, links included; what it comes to must lie inside an allowed path,
//! and is then opened part by part from that path's open descriptor, following no link: nothing that changes in between
//! leads out of it. Must not know: what the files are for.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::error::{Error, Kind, Phase, Result};

/// One allowed path.
#[derive(Debug, Clone)]
struct Root {
    /// As it was given.
    given: PathBuf,
    /// Without links.
    path: PathBuf,
    handle: Arc<OwnedFd>,
    directory: bool,
}

/// What was allowed.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowed {
    roots: Vec<Root>,
}

/// A place inside an allowed path.
#[derive(Debug)]
pub(super) struct Place<'a> {
    root: &'a Root,
    below: PathBuf,
    /// As it was asked for, for messages.
    name: String,
}

impl Allowed {
    /// Opens the allowed paths, which must be there.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self> {
        let roots = paths.iter().map(|given| {
            let failed = |error: std::io::Error| {
                let message = format!(
                    "--allow {}: {}",
                    given.display(),
                    Error::io(Phase::Plan, &error, "open it").message
                );
                Error::usage(message)
            };
            let path = given.canonicalize().map_err(failed)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = rustix::fs::open(&path, flags, Mode::empty())
                .map_err(|errno| failed(errno.into()))?;
            let status = fstat(&handle).map_err(|errno| failed(errno.into()))?;
            let directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
            Ok(Root {
                given: given.clone(),
                path,
                handle: Arc::new(handle),
                directory,
            })
        });
        Ok(Self {
            roots: roots.collect::<Result<_>>()?,
        })
    }

    /// Finds a path among what is allowed.
    pub(super) fn place(&self, path: &str) -> Result<Place<'_>> {
        let name = path.escape_default().to_string();
        if self.roots.is_empty() {
            return Err(Error::safety(format!(
                "the agent was started without --allow, so it touches no path; start it with --allow and the directory \
                 that may be tested to let it use {name}"
            )));
        }
        let asked = Path::new(path);
        let refused = || {
            let roots: Vec<String> = self
                .roots
                .iter()
                .map(|root| root.given.display().to_string())
                .collect();
            Error::safety(format!(
                "{name} is not inside what the agent was allowed to use: {}",
                roots.join(", ")
            ))
        };
        if !asked.is_absolute() || path.contains('\0') {
            return Err(refused());
        }
        match asked.canonicalize() {
            Ok(real) => {
                let within = self.roots.iter().find_map(|root| {
                    let below = real.strip_prefix(&root.path).ok()?;
                    Some((root, below.to_owned()))
                });
                let (root, below) = within.ok_or_else(refused)?;
                Ok(Place { root, below, name })
            }
            // Whether something exists is told of allowed paths only.
            Err(error) if self.would_hold(asked) => {
                Err(Error::io(Phase::Open, &error, &format!("open {name}")))
            }
            Err(_) => Err(refused()),
        }
    }

    /// Whether a path that can't be resolved reads as if it lay inside.
    fn would_hold(&self, asked: &Path) -> bool {
        let climbs = asked.components().any(|part| part == Component::ParentDir);
        let inside = |root: &Root| asked.starts_with(&root.given) || asked.starts_with(&root.path);
        !climbs && self.roots.iter().any(inside)
    }
}

impl Place<'_> {
    /// As it was asked for.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn failed(&self, errno: Errno) -> Error {
        if matches!(errno, Errno::LOOP | Errno::MLINK | Errno::NOTDIR) {
            return Error::safety(format!(
                "{} changed while it was opened, or lies behind a link; nothing was touched",
                self.name
            ));
        }
        Error::io(Phase::Open, &errno.into(), &format!("open {}", self.name))
    }

    /// Opens it with these flags, which never create anything.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parts: Vec<Component<'_>> = self.below.components().collect();
        let Some((last, above)) = parts.split_last() else {
            return self.open_root(flags);
        };
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut within: Option<OwnedFd> = None;
        for part in above {
            let from = within.as_ref().unwrap_or(&self.root.handle);
            let next = openat(from, part.as_os_str(), step, Mode::empty())
                .map_err(|errno| self.failed(errno))?;
            within = Some(next);
        }
        let from = within.as_ref().unwrap_or(&self.root.handle);
        openat(from, last.as_os_str(), flags, Mode::empty()).map_err(|errno| self.failed(errno))
    }

    /// The allowed path itself.
    fn open_root(&self, flags: OFlags) -> Result<OwnedFd> {
        if self.root.directory {
            return openat(&self.root.handle, ".", flags, Mode::empty())
                .map_err(|errno| self.failed(errno));
        }
        let handle = rustix::fs::open(&self.root.path, flags, Mode::empty())
            .map_err(|errno| self.failed(errno))?;
        let same = fstat(&handle)
            .and_then(|now| {
                let then = statat(&*self.root.handle, "", AtFlags::EMPTY_PATH)?;
                Ok(now.st_dev == then.st_dev && now.st_ino == then.st_ino)
            })
            .map_err(|errno| self.failed(errno))?;
        if same {
            Ok(handle)
        } else {
            Err(self.failed(Errno::LOOP))
        }
    }

    /// Opens it as a directory.
    pub(super) fn directory(&self) -> Result<OwnedFd> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|error| match error.kind {
                Kind::Safety => Error::usage(format!("{} is not a directory", self.name)),
                _ => error,
            })
    }

    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> Result<bool> {
        let handle = self.open(OFlags::PATH)?;
        let status = fstat(&handle).map_err(|errno| self.failed(errno))?;
        Ok(FileType::from_raw_mode(status.st_mode) == FileType::Directory)
    }

    /// Opens a file or block device for reading.
    pub(super) fn read(&self, extra: OFlags) -> Result<File> {
        // A pipe in its place must not hang us.
        let handle = self.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | extra)?;
        let status = fstat(&handle).map_err(|errno| self.failed(errno))?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => Ok(handle.into()),
            _ => Err(Error::usage(format!(
                "{} is neither a file nor a block device",
                self.name
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn allowed(path: &Path) -> Allowed {
        Allowed::open(&[path.to_owned()]).expect("a path")
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        for path in ["/", "/tmp", "/etc/passwd", "", "tank"] {
            let error = Allowed::default().place(path).expect_err("refused");
            assert_eq!(error.kind, Kind::Safety);
            assert!(error.message.contains("--allow"), "{error}");
        }
    }

    #[test]
    fn what_leads_out_is_refused_in_one_sentence_whether_it_exists_or_not() {
        let base = tempfile::tempdir().expect("a directory");
        let inside = base.path().join("inside");
        std::fs::create_dir_all(inside.join("deep")).expect("made");
        std::fs::write(base.path().join("secret"), "x").expect("written");
        std::fs::write(inside.join("deep/file"), "x").expect("written");
        symlink("../secret", inside.join("out")).expect("linked");
        symlink("/", inside.join("root")).expect("linked");
        symlink("deep", inside.join("in")).expect("linked");
        let allowed = allowed(&inside);
        let at = |below: &str| format!("{}/{below}", inside.display());
        for path in [
            at("../secret"),
            at("../nothing"),
            at("out"),
            at("root/etc/passwd"),
            format!("{}/insider", base.path().display()),
            "/etc/passwd".to_owned(),
            "inside".to_owned(),
            "deep/file".to_owned(),
            at("deep/../../secret"),
        ] {
            let error = allowed.place(&path).expect_err(&path);
            assert_eq!(error.kind, Kind::Safety, "{path}: {error}");
            assert!(error.message.contains("is not inside"), "{error}");
        }
        for path in [at("deep/file"), at("in/file"), at("./deep/../deep/file")] {
            let place = allowed.place(&path).expect(&path);
            place.read(OFlags::empty()).expect(&path);
        }
        assert!(
            allowed
                .place(&at(""))
                .expect("itself")
                .is_directory()
                .expect("told")
        );
        let missing = allowed.place(&at("deep/none")).expect_err("missing");
        assert_eq!(missing.kind, Kind::NotFound);
    }

    #[test]
    fn a_link_that_comes_in_between_is_not_followed() {
        let base = tempfile::tempdir().expect("a directory");
        let inside = base.path().join("inside");
        std::fs::create_dir_all(inside.join("deep")).expect("made");
        std::fs::create_dir(base.path().join("deep")).expect("made");
        std::fs::write(inside.join("deep/file"), "x").expect("written");
        std::fs::write(base.path().join("deep/file"), "secret").expect("written");
        let allowed = allowed(&inside);
        let path = format!("{}/deep/file", inside.display());
        let place = allowed.place(&path).expect("a place");
        std::fs::rename(inside.join("deep"), inside.join("gone")).expect("renamed");
        symlink("../deep", inside.join("deep")).expect("linked");
        let error = place.read(OFlags::empty()).expect_err("a link");
        assert_eq!(error.kind, Kind::Safety, "{error}");
    }

    #[test]
    fn an_allowed_file_is_that_file() {
        let base = tempfile::tempdir().expect("a directory");
        let file = base.path().join("disk");
        std::fs::write(&file, "x").expect("written");
        let allowed = allowed(&file);
        let path = file.display().to_string();
        let place = allowed.place(&path).expect("a place");
        place.read(OFlags::empty()).expect("read");
        std::fs::rename(&file, base.path().join("old")).expect("renamed");
        std::fs::write(&file, "another").expect("written");
        let error = place.read(OFlags::empty()).expect_err("another file");
        assert_eq!(error.kind, Kind::Safety, "{error}");
    }
}
