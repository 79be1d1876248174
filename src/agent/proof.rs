//! Proofs that a path of the agent's computer is what the client's target shows, and the dropping of its cache.
//!
//! The client makes something with a random name, or knows what stands at an offset; the agent says whether that is
//! there too. It tells yes or no, and where: never what stands in a file. Must not know: who made what is looked for.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use super::allowed::Allowed;
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::agent::wire::{Marker, PROOF_BYTES_MAX, Sample};

/// A name that is looked for has at least this many bytes: shorter ones prove nothing.
const NAME_MIN: usize = 16;
/// Directories below the path that are searched.
const DEPTH_MAX: usize = 8;
/// Entries that are looked at.
const ENTRIES_MAX: u64 = 500_000;
/// How long a search may take.
const SEARCH_TIME: Duration = Duration::from_secs(20);
/// The kernel's switch for its caches: 3 drops pages, names and inodes (Documentation/admin-guide/sysctl/vm.rst).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A directory that is to be searched, with its path below the first one.
struct Open {
    handle: OwnedFd,
    below: String,
    depth: usize,
}

/// Where below the path the marker is; None when it is not there.
pub(super) fn find(allowed: &Allowed, marker: &Marker) -> Result<Option<String>> {
    let plain = !marker.name.contains(['/', '\0']);
    let bounded = marker.content.len() <= PROOF_BYTES_MAX;
    if !plain || marker.name.len() < NAME_MIN || !bounded {
        return Err(Error::usage(format!(
            "a marker is a name of at least {NAME_MIN} bytes, with no more than {PROOF_BYTES_MAX} bytes in it"
        )));
    }
    let deadline = Instant::now() + SEARCH_TIME;
    let mut entries = 0;
    let mut left = vec![Open {
        handle: allowed.place(&marker.path)?.directory()?,
        below: String::new(),
        depth: 0,
    }];
    while let Some(here) = left.pop() {
        if is_it(&here.handle, marker) {
            return Ok(Some(join(&here.below, &marker.name)));
        }
        if here.depth == DEPTH_MAX {
            continue;
        }
        // A directory that can't be listed is one in which the marker was not found.
        let Ok(list) = Dir::read_from(&here.handle) else {
            continue;
        };
        for entry in list.flatten() {
            entries += 1;
            if entries > ENTRIES_MAX || Instant::now() > deadline {
                let message = format!(
                    "{} holds too much to search for the marker; name the directory itself that is exported, by \
                     --server-path",
                    marker.path.escape_default()
                );
                return Err(Error::new(Phase::Open, Kind::Other, message));
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if matches!(name.as_str(), "." | "..") {
                continue;
            }
            if !is_directory(&here.handle, &entry) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(handle) = openat(&here.handle, entry.file_name(), flags, Mode::empty()) {
                left.push(Open {
                    handle,
                    below: join(&here.below, &name),
                    depth: here.depth + 1,
                });
            }
            // Descriptors are bounded too; a wide tree is searched no further than they reach.
            if left.len() > 500 {
                break;
            }
        }
    }
    Ok(None)
}

fn join(below: &str, name: &str) -> String {
    if below.is_empty() {
        name.to_owned()
    } else {
        format!("{below}/{name}")
    }
}

fn is_directory(within: &OwnedFd, entry: &rustix::fs::DirEntry) -> bool {
    match entry.file_type() {
        FileType::Unknown => statat(within, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory),
        kind => kind == FileType::Directory,
    }
}

/// Whether the marker is in this directory.
fn is_it(within: impl AsFd, marker: &Marker) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if marker.content.is_empty() {
        // Its name alone is the proof; it may be a directory.
        return statat(within, &marker.name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    }
    let Ok(handle) = openat(within, &marker.name, flags, Mode::empty()) else {
        return false;
    };
    let mut found = Vec::new();
    let limit = marker.content.len() as u64;
    let read = std::fs::File::from(handle)
        .take(limit)
        .read_to_end(&mut found);
    read.is_ok() && found == marker.content.as_bytes()
}

/// Whether these bytes stand at this offset of a file or device.
pub(super) fn same(allowed: &Allowed, sample: &Sample) -> Result<bool> {
    if !(NAME_MIN..=PROOF_BYTES_MAX).contains(&sample.content.len()) {
        return Err(Error::usage(format!(
            "a sample has {NAME_MIN} to {PROOF_BYTES_MAX} bytes"
        )));
    }
    let place = allowed.place(&sample.path)?;
    let file = place.read(OFlags::empty())?;
    // What the page cache holds of a device is not what another computer wrote to it since.
    let _ = rustix::fs::fadvise(
        &file,
        sample.offset,
        std::num::NonZeroU64::new(sample.content.len() as u64),
        rustix::fs::Advice::DontNeed,
    );
    let mut found = vec![0; sample.content.len()];
    match file.read_exact_at(&mut found, sample.offset) {
        Ok(()) => Ok(found == sample.content),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => {
            let doing = format!("read {} at {}", place.name(), sample.offset);
            Err(Error::io(Phase::Open, &error, &doing))
        }
    }
}

/// Makes the kernel forget what it caches of one file or device, after bringing it to the disks. Nothing is changed, and nothing
/// else is forgotten; ZFS keeps what it has.
pub(super) fn forget(allowed: &Allowed, path: &str) -> Result<()> {
    let place = allowed.place(path)?;
    let file = place.read(OFlags::empty())?;
    let failed = |errno: rustix::io::Errno| {
        let doing = format!("bring {} to the disks", place.name());
        Error::io(Phase::Prepare, &errno.into(), &doing)
    };
    rustix::fs::fdatasync(&file).map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(failed)
}

/// Makes the kernel forget what it caches, after bringing it to the disks.
pub(super) fn drop_caches(allowed: bool) -> Result<()> {
    if !allowed {
        return Err(Error::safety(
            "the agent was started without --allow-drop-caches, so it leaves the server's cache alone",
        ));
    }
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, "3\n").map_err(|error| {
        let mut made = Error::io(Phase::Prepare, &error, "drop the server's cache");
        made.message.push_str("; that needs root on the server");
        made
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(path: &std::path::Path, name: &str, content: &str) -> Marker {
        Marker {
            path: path.display().to_string(),
            name: name.into(),
            content: content.into(),
        }
    }

    #[test]
    fn a_marker_is_found_by_name_and_content_and_links_are_not_followed() {
        let base = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        let name = "nasgauge-0123456789abcdef";
        std::fs::create_dir_all(base.path().join("a/b")).expect("made");
        std::fs::write(base.path().join("a/b").join(name), "token and more").expect("written");
        std::fs::write(outside.path().join("nasgauge-fedcba9876543210"), "x").expect("written");
        std::os::unix::fs::symlink(outside.path(), base.path().join("out")).expect("linked");
        let allowed = Allowed::open(&[base.path().to_owned()]).expect("allowed");
        let find = |name: &str, content: &str| {
            find(&allowed, &marker(base.path(), name, content)).expect("searched")
        };
        assert_eq!(find(name, "token"), Some(format!("a/b/{name}")));
        assert_eq!(find(name, ""), Some(format!("a/b/{name}")));
        assert_eq!(find(name, "tokens"), None);
        assert_eq!(find("nasgauge-fedcba9876543210", ""), None);
        assert_eq!(find("nasgauge-0000000000000000", ""), None);
        for name in ["short", "../../../../etc/passwd"] {
            let marker = marker(base.path(), name, "");
            let error = super::find(&allowed, &marker).expect_err(name);
            assert_eq!(error.kind, Kind::Usage);
        }
    }

    #[test]
    fn a_sample_is_compared_and_never_shown() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("lun");
        std::fs::write(&path, [7; 8192]).expect("written");
        let allowed = Allowed::open(&[base.path().to_owned()]).expect("allowed");
        let sample = |offset, byte| {
            let sample = Sample {
                path: path.display().to_string(),
                offset,
                content: vec![byte; 512],
            };
            same(&allowed, &sample).expect("compared")
        };
        assert!(sample(4096, 7));
        assert!(!sample(4096, 8));
        assert!(!sample(8000, 7), "beyond the end");
    }

    #[test]
    fn what_is_forgotten_stays_as_it_is() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("data.bin");
        std::fs::write(&path, [7; 8192]).expect("written");
        let allowed = Allowed::open(&[base.path().to_owned()]).expect("allowed");
        forget(&allowed, &path.display().to_string()).expect("forgotten");
        assert_eq!(std::fs::read(&path).expect("there"), [7; 8192]);
        forget(&allowed, "/etc/hostname").expect_err("not allowed");
    }

    #[test]
    fn the_cache_is_dropped_only_on_permission() {
        assert_eq!(drop_caches(false).expect_err("refused").kind, Kind::Safety);
    }
}
