//! Which mount a path is on, from `/proc/self/mountinfo` (proc(5)).
//!
//! Must not know: what is done with the path.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The kernel's number for this mount.
    pub id: u64,
    /// Major and minor number of the file system's device; major 0 means no block device of its own.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// The file system type: `ext4`, `nfs4`, `cifs`.
    pub kind: String,
    /// What is mounted: a device, `server:/export`, `//server/share`.
    pub source: String,
    /// Options of the file system, which is where NFS and SMB keep what they negotiated.
    pub super_options: String,
}

/// File system types whose data is on another computer. FUSE types are told by their subtype.
const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "afs",
    "lustre",
    "beegfs",
    "glusterfs",
    "ncpfs",
    "coda",
    "orangefs",
    "pvfs2",
    "davfs",
    "sshfs",
    "rclone",
    "s3fs",
    "davfs2",
    "gcsfuse",
    "mfs",
    "moosefs",
    "juicefs",
    "goofys",
];

impl Mount {
    /// Whether the data is on another computer.
    #[must_use]
    pub fn is_network(&self) -> bool {
        let kind = self.kind.strip_prefix("fuse.").unwrap_or(&self.kind);
        NETWORK.contains(&kind)
    }

    /// Whether the data is in this computer's memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "hugetlbfs")
    }

    /// Reads one line; None when it is not one of mountinfo.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let id = left.next()?.parse().ok()?;
        let (major, minor) = left.nth(1)?.split_once(':')?;
        let root = unescape(left.next()?);
        let point = PathBuf::from(unescape(left.next()?));
        let options = unescape(left.next()?);
        let mut right = right.split(' ');
        Some(Self {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            root,
            point,
            options,
            kind: unescape(right.next()?),
            source: unescape(right.next()?),
            super_options: right.next().map(unescape).unwrap_or_default(),
        })
    }
}

/// Undoes the kernel's octal escapes (`\040` for a space); anything else stays.
#[must_use]
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| {
            first == b'\\' && digits[0] < b'4' && digits.iter().all(|d| (b'0'..b'8').contains(d))
        });
        if let Some(digits) = octal {
            bytes.push(digits.iter().fold(0, |sum, d| sum * 8 + (d - b'0')));
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All mounts in the order of the text: a later one may cover an earlier one.
#[must_use]
pub fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(Mount::parse).collect()
}

/// The mounts of this process.
#[must_use]
pub fn all() -> Vec<Mount> {
    std::fs::read("/proc/self/mountinfo")
        .map(|bytes| parse(&String::from_utf8_lossy(&bytes)))
        .unwrap_or_default()
}

/// The mount that an absolute path without links is on, by the longest mount point; the last of equals lies on top.
#[must_use]
pub fn by_path<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// The mount that an existing path is on. The kernel is asked by number, so neither links nor covered mounts
/// mislead it; nothing is opened for reading.
#[must_use]
pub fn of(path: &Path) -> Option<Mount> {
    let handle = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::PATH.bits().cast_signed())
        .open(path)
        .ok()?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
    let mounts = all();
    let by_id = id_of(&info).and_then(|id| mounts.iter().find(|mount| mount.id == id));
    if let Some(mount) = by_id {
        return Some(mount.clone());
    }
    by_path(&mounts, &path.canonicalize().ok()?).cloned()
}

/// The mount's number from the text of `/proc/self/fdinfo/N`.
fn id_of(fdinfo: &str) -> Option<u64> {
    let line = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:35 / /mnt/my\\040nas rw,relatime shared:5 master:1 - nfs4 nas:/tank/a\\040b rw,vers=4.2,rsize=1048576
41 27 0:36 / /mnt rw - tmpfs tmpfs rw
42 40 0:37 /sub /mnt/my\\040nas/deep ro,nosuid - cifs //nas/share rw,vers=3.1.1
43 27 0:38 / /mnt/my\\040nas rw - fuse.sshfs me@host:/ rw
44 27 0:39 / /mnt/ssd rw - fuseblk /dev/sdb1 rw
broken line
";

    #[test]
    fn escapes_and_optional_fields_are_read() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 6);
        let nfs = &mounts[1];
        assert_eq!(nfs.point, Path::new("/mnt/my nas"));
        assert_eq!(
            (nfs.kind.as_str(), nfs.source.as_str()),
            ("nfs4", "nas:/tank/a b")
        );
        assert_eq!(nfs.super_options, "rw,vers=4.2,rsize=1048576");
        assert_eq!((nfs.id, nfs.device), (40, (0, 35)));
        assert_eq!(mounts[3].root, "/sub");
        assert!(nfs.is_network() && mounts[3].is_network() && mounts[4].is_network());
        assert!(!mounts[0].is_network() && !mounts[5].is_network() && mounts[2].is_memory());
    }

    #[test]
    fn a_path_is_on_the_longest_and_last_mount() {
        let mounts = parse(TEXT);
        let on = |path: &str| by_path(&mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(on("/home/x"), Some(27));
        assert_eq!(on("/mnt/other"), Some(41));
        assert_eq!(on("/mnt/my nas/file"), Some(43), "the later mount covers");
        assert_eq!(on("/mnt/my nas/deep/f"), Some(42));
        assert_eq!(on("/mnt/my nas2"), Some(41), "whole names only");
    }

    #[test]
    fn only_the_kernels_escapes_are_undone() {
        assert_eq!(unescape(r"a\134b\011c"), "a\\b\tc");
        assert_eq!(unescape(r"a\9x\04"), r"a\9x\04");
        assert_eq!(unescape(r"\303\251"), "é");
        assert_eq!(unescape(r"\777"), r"\777");
    }

    #[test]
    fn this_machine_has_mounts() {
        let root = of(Path::new("/proc")).expect("/proc is mounted");
        assert_eq!(root.kind, "proc");
        assert!(of(Path::new("/does/not/exist")).is_none());
    }

    #[test]
    fn the_number_stands_in_fdinfo() {
        assert_eq!(
            id_of("pos:\t0\nflags:\t0100000\nmnt_id:\t24\nino:\t3\n"),
            Some(24)
        );
        assert_eq!(id_of("pos:\t0\n"), None);
    }
}
