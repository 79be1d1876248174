//! What direct I/O on an open file asks for.
//!
//! The kernel tells from Linux 6.1 on (`STATX_DIOALIGN`); before that the disk's logical block is what it asks for.
//! That `open` accepted `O_DIRECT` proves nothing: tmpfs takes it at any alignment and still is memory. Must not
//! know: what is read or written. Sizes are in bytes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::disk::{Disk, numbers};
use crate::probe::mount;
use crate::slots::ALIGNMENT;

/// What most file systems ask for at most: the answer where nothing tells.
const USUAL: u64 = 4096;

/// The alignment that offsets and lengths need, 1 when none; fails when direct I/O is impossible on this file.
pub fn alignment(file: &File, name: &str) -> Result<u64> {
    let status = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told = status.ok().filter(|status| {
        StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN)
    });
    match told {
        Some(status) => judge(status.stx_dio_mem_align, status.stx_dio_offset_align)
            .map_err(|why| refused(name, &why)),
        None => Ok(guess(file)),
    }
}

/// The alignment in bytes that new files of a directory will need, as far as it can be told without one.
#[must_use]
pub fn of_directory(directory: &File) -> u64 {
    // The kernel tells of regular files only.
    guess(directory)
}

/// Makes the error for a file that can't take direct I/O.
#[must_use]
pub fn refused(name: &str, why: &str) -> Error {
    Error::new(
        Phase::Open,
        Kind::Unsupported,
        format!("direct I/O on {name} is not possible: {why}; use direct=0"),
    )
}

/// Judges the kernel's two figures, for memory and for offsets.
fn judge(memory: u32, offset: u32) -> std::result::Result<u64, String> {
    if offset == 0 || memory == 0 {
        return Err("its file system does not offer it here".to_owned());
    }
    if memory as usize > ALIGNMENT {
        return Err(format!(
            "it needs buffers aligned to {memory} bytes, and nasgauge aligns to {ALIGNMENT}"
        ));
    }
    Ok(u64::from(offset))
}

/// Without the kernel's word: nothing over a network or in memory, the disk's block, else the usual.
fn guess(file: &File) -> u64 {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mount = mount::of(&path);
    if mount.is_some_and(|mount| mount.is_network() || mount.is_memory()) {
        return 1;
    }
    let disk = file
        .metadata()
        .ok()
        .and_then(|metadata| Disk::of_device(numbers(metadata.dev())));
    disk.and_then(|disk| disk.logical_block())
        .map_or(USUAL, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_judged() {
        assert_eq!(judge(4, 512), Ok(512));
        assert_eq!(
            judge(4096, 65536),
            Ok(65536),
            "offsets may ask for more than memory"
        );
        assert!(judge(0, 0).is_err());
        assert!(judge(8192, 8192).is_err_and(|why| why.contains("8192")));
    }

    #[test]
    fn files_in_proc_fall_back() {
        let file = File::open("/proc/self/stat").expect("proc is there");
        assert_eq!(guess(&file), USUAL);
    }
}
