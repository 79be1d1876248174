//! The control side of `file:`: a directory and the files of a run in it.
//!
//! Nothing here truncates or overwrites; nothing that is written lies behind a link. Must not know: markers, or
//! when something may be removed. Sizes are in bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{
    Advice, AtFlags, Dir, FileType, Mode, OFlags, fadvise, fstatvfs, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::{Kind, Phase, Result};
use crate::probe::disk::Disk;
use crate::probe::mount::{self, Mount};
use crate::target::file::extents;
use crate::target::file::tree::Tree;
use crate::target::local::{direct, fault};
use crate::target::{Entry, Facts, Files};
use crate::units::Bytes;

/// File systems that tell holes truly: where they find none, there is none.
const TRUTHFUL: &[&str] = &[
    "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "zfs", "tmpfs", "gfs2", "ocfs2",
];

/// The files below one directory.
#[derive(Debug)]
pub struct Directory {
    tree: Tree,
}

impl Directory {
    /// Works in an open directory.
    #[must_use]
    pub const fn new(tree: Tree) -> Self {
        Self { tree }
    }

    fn create_new(&self, path: &str) -> Result<File> {
        let place = self.tree.place(path, Phase::Prepare)?;
        // EXCL follows no link either: whatever has that name makes it fail.
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(&place, place.name, flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| self.tree.error(Phase::Prepare, errno, "create", path))?;
        Ok(File::from(handle))
    }

    /// Makes the directory entry of a file durable. Network file systems that can't are asked in vain.
    fn sync_parent(&self, path: &str) -> Result<()> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let handle: OwnedFd = self.tree.open_directory(parent, Phase::Prepare)?;
        match rustix::fs::fsync(&handle) {
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF) => Ok(()),
            Err(errno) => {
                Err(self
                    .tree
                    .error(Phase::Prepare, errno, "flush the directory of", path))
            }
        }
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> Result<()> {
        let place = self.tree.place(path, Phase::Cleanup)?;
        unlinkat(&place, place.name, flags)
            .map_err(|errno| self.tree.error(Phase::Cleanup, errno, "remove", path))
    }

    fn open_to_read(&self, path: &str) -> Result<File> {
        self.tree.open_file(path, false, OFlags::empty())
    }
}

/// The mount that an open file is on.
fn mount_of(file: &impl AsFd) -> Option<Mount> {
    let number = file.as_fd().as_raw_fd();
    mount::of(&PathBuf::from(format!("/proc/self/fd/{number}")))
}

impl Files for Directory {
    fn facts(&mut self) -> Result<Facts> {
        let path = self.tree.path();
        let shown = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut lines = vec![("directory".to_owned(), shown.display().to_string())];
        let mut add = |label: &str, value: String| lines.push((label.to_owned(), value));
        if let Some(mount) = mount_of(&self.tree.root()) {
            let place = match (mount.is_network(), mount.is_memory()) {
                (true, _) => "on another computer (network mount)",
                (_, true) => "in this computer's memory",
                _ => "on this computer",
            };
            add("file system", format!("{}, {place}", mount.kind));
            add("mounted from", mount.source.clone());
            add("mounted at", mount.point.display().to_string());
            add(
                "mount options",
                format!("{}; {}", mount.options, mount.super_options),
            );
        }
        if let Some(disk) = Disk::behind(path) {
            let model = disk
                .parent()
                .map_or_else(|| disk.clone(), |(whole, _)| whole);
            let model = crate::probe::line(&model.directory().join("device/model"));
            let model = model.map(|model| format!(" ({model})")).unwrap_or_default();
            add("disk", format!("{}{model}", disk.name));
        }
        let space = fstatvfs(self.tree.root())
            .ok()
            .filter(|space| space.f_blocks > 0);
        let bytes = |blocks: u64, unit: u64| blocks.saturating_mul(unit);
        let free = space
            .as_ref()
            .map(|space| bytes(space.f_bavail, space.f_frsize));
        if let (Some(space), Some(free)) = (&space, free) {
            add("free", Bytes(free).both());
            add("size", Bytes(bytes(space.f_blocks, space.f_frsize)).both());
        }
        Ok(Facts {
            lines,
            free_bytes: free,
            // File systems that make inodes as they need them tell none at all.
            free_files: space
                .as_ref()
                .filter(|space| space.f_files > 0)
                .map(|space| space.f_favail),
            server: None,
        })
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        let handle = self.tree.open_directory(directory, Phase::Open)?;
        let error = |errno| self.tree.error(Phase::Open, errno, "list", directory);
        let mut found = Vec::new();
        for entry in Dir::read_from(&handle).map_err(error)? {
            let entry = entry.map_err(error)?;
            let raw = entry.file_name();
            if matches!(raw.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => statat(&handle, raw, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |status| {
                        FileType::from_raw_mode(status.st_mode)
                    }),
                kind => kind,
            };
            found.push(Entry {
                name: raw.to_string_lossy().into_owned(),
                directory: kind == FileType::Directory,
            });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        let place = self.tree.place(path, Phase::Prepare)?;
        mkdirat(&place, place.name, Mode::from_raw_mode(0o755)).map_err(|errno| {
            self.tree
                .error(Phase::Prepare, errno, "make the directory", path)
        })
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.create_new(path).map(drop)
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let mut file = self.create_new(path)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // Ours since a moment ago; half of it is worse than none.
            let _ = self.unlink(path, AtFlags::empty());
            let doing = format!("write {} bytes to {}", content.len(), self.tree.name(path));
            return Err(fault(Phase::Prepare, &error, &doing, ""));
        }
        self.sync_parent(path)
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open_to_read(path)?
            .take(limit as u64)
            .read_to_end(&mut content)
            .map_err(|error| {
                let doing = format!("read {}", self.tree.name(path));
                fault(Phase::Open, &error, &doing, "")
            })?;
        Ok(content)
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        let file = self.open_to_read(path)?;
        let metadata = file.metadata().map_err(|error| {
            let doing = format!("read the size of {}", self.tree.name(path));
            fault(Phase::Open, &error, &doing, "")
        })?;
        Ok(metadata.size())
    }

    fn unwritten(&mut self, path: &str) -> Result<Option<u64>> {
        let file = self.open_to_read(path)?;
        let truthful = mount_of(&file).is_some_and(|mount| TRUTHFUL.contains(&mount.kind.as_str()));
        extents::unwritten(&file, truthful).map_err(|error| {
            let doing = format!("look for holes in {}", self.tree.name(path));
            fault(Phase::Open, &error, &doing, "")
        })
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.unlink(path, AtFlags::empty())
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    fn direct_alignment(&mut self, path: &str) -> Result<Option<u64>> {
        let alignment = match self.open_to_read(path) {
            Ok(file) => direct::alignment(&file, &self.tree.name(path))?,
            // A run asks before it makes its file.
            Err(error) if error.kind == Kind::NotFound => {
                let root = self.tree.open_directory("", Phase::Open)?;
                direct::of_directory(&File::from(root))
            }
            Err(error) => return Err(error),
        };
        Ok(Some(alignment).filter(|alignment| *alignment > 1))
    }

    /// Writes back and lets go of clean pages. Memory file systems keep theirs, and a page that another program
    /// maps stays: it is a request, no proof of a cold cache.
    fn write_back(&mut self, path: &str) -> Result<()> {
        let file = self.open_to_read(path)?;
        rustix::fs::syncfs(&file)
            .map_err(|errno| self.tree.error(Phase::Flush, errno, "write back", path))
    }

    fn drop_cache(&mut self, path: &str) -> Result<()> {
        let file = self.open_to_read(path)?;
        let doing = "drop the cache of";
        match rustix::fs::fdatasync(&file) {
            Ok(()) | Err(Errno::INVAL | Errno::ROFS) => {}
            Err(errno) => return Err(self.tree.error(Phase::Prepare, errno, doing, path)),
        }
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|errno| self.tree.error(Phase::Prepare, errno, doing, path))
    }
}
