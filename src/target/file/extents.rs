//! How much of a file was never written: holes and allocated but unwritten extents. Reading those costs no disk.
//!
//! Must not know: why the file is there. Sizes are in bytes.

#![expect(unsafe_code, reason = "FIEMAP is an ioctl without a safe wrapper")]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

/// Extents asked for at once.
const BATCH: usize = 256;
/// Write back first, so that data not yet on disk has its extents.
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;
const EXTENT_UNWRITTEN: u32 = 0x800;

/// `struct fiemap` of linux/fiemap.h without its trailing array, whose size the ioctl's number holds.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    header: Header,
    extents: [Extent; BATCH],
}

/// Bytes of the file that were never written; None where its file system can't tell. `truthful` says that its
/// `SEEK_HOLE` can be believed when it finds no hole.
pub fn unwritten(file: &File, truthful: bool) -> io::Result<Option<u64>> {
    let metadata = file.metadata()?;
    let size = metadata.len();
    if size == 0 {
        return Ok(Some(0));
    }
    match written_by_map(file, size) {
        Ok(written) => return Ok(Some(size - written.min(size))),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS | Errno::BADR) => {}
        Err(errno) => return Err(errno.into()),
    }
    match holes(file, size) {
        Ok(holes) if holes > 0 || truthful => Ok(Some(holes)),
        // "No hole" is also what a file system says that knows none. Its blocks decide, when they suffice.
        Ok(_) if metadata.blocks().saturating_mul(512) >= size => Ok(Some(0)),
        Ok(_) | Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Bytes in written extents, by FIEMAP.
fn written_by_map(file: &File, size: u64) -> rustix::io::Result<u64> {
    const FIEMAP: rustix::ioctl::Opcode = opcode::read_write::<Header>(b'f', 11);
    let mut request = Box::new(Request {
        header: Header::default(),
        extents: [Extent::default(); BATCH],
    });
    let mut written = 0;
    let mut start = 0;
    while start < size {
        request.header = Header {
            start,
            length: size - start,
            flags: FLAG_SYNC,
            extent_count: BATCH as u32,
            ..Header::default()
        };
        // SAFETY: the number is FS_IOC_FIEMAP's; the kernel reads the header, and writes it and at most
        // `extent_count` extents after it, which is what `Request` is.
        unsafe { ioctl(file, Updater::<FIEMAP, Request>::new(&mut request)) }?;
        let count = (request.header.mapped_extents as usize).min(BATCH);
        let Some(last) = request.extents[..count].last().copied() else {
            break;
        };
        written += request.extents[..count]
            .iter()
            .filter(|extent| extent.flags & EXTENT_UNWRITTEN == 0)
            .map(|extent| within(extent, start, size))
            .sum::<u64>();
        let end = last.logical.saturating_add(last.length);
        if last.flags & EXTENT_LAST != 0 || end <= start {
            break;
        }
        start = end;
    }
    Ok(written)
}

/// The part of an extent between `start` and `size`: the first and last may reach beyond what was asked.
fn within(extent: &Extent, start: u64, size: u64) -> u64 {
    let end = extent.logical.saturating_add(extent.length).min(size);
    end.saturating_sub(extent.logical.max(start))
}

/// Bytes in holes, by `SEEK_DATA` and `SEEK_HOLE`.
fn holes(file: &File, size: u64) -> rustix::io::Result<u64> {
    let mut holes = 0;
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno),
        };
        holes += data.saturating_sub(at);
        if data >= size {
            break;
        }
        at = seek(file, SeekFrom::Hole(data))?.max(data + 1);
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn sparse() -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4 << 20).expect("it grows");
        file.write_all_at(&vec![1; 65536], 1 << 20)
            .expect("it is written");
        file
    }

    #[test]
    fn holes_are_counted() {
        let file = sparse();
        let expected = (4 << 20) - 65536;
        assert_eq!(holes(&file, 4 << 20), Ok(expected));
        assert_eq!(unwritten(&file, true).expect("it can tell"), Some(expected));
    }

    #[test]
    fn a_full_file_has_none_and_an_allocated_one_is_all_unwritten() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&vec![1; 100_001], 0)
            .expect("it is written");
        assert_eq!(unwritten(&file, true).expect("it can tell"), Some(0));
        let file = tempfile::tempfile().expect("a file");
        let flags = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, flags, 0, 1 << 20).is_ok() {
            assert_eq!(unwritten(&file, true).expect("it can tell"), Some(1 << 20));
        }
    }

    #[test]
    fn an_empty_file_is_complete() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(unwritten(&file, false).expect("it can tell"), Some(0));
    }

    #[test]
    fn extents_count_only_inside_the_question() {
        let extent = |logical, length| Extent {
            logical,
            length,
            ..Extent::default()
        };
        assert_eq!(within(&extent(0, 8192), 4096, 6000), 1904);
        assert_eq!(within(&extent(0, 4096), 4096, 6000), 0);
        assert_eq!(within(&extent(8192, 4096), 0, 6000), 0);
        assert_eq!(within(&extent(100, u64::MAX), 0, 6000), 5900);
    }
}
