//! What a ring was told beforehand: its file and its buffers, so that no operation looks either up.
//!
//! A registered buffer is pinned once, not page by page at every direct transfer, and counts against the user's limit of
//! locked memory. Where the kernel refuses (that limit, or its age), operations name file and memory themselves: same
//! bytes, more processor time. Must not know: operations under way.

#![expect(unsafe_code, reason = "the kernel is given the addresses of slots")]

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use crate::op::Direction;
use crate::slots::Slots;

/// The place of our file in the ring's table.
const PLACE: i32 = 0;

/// The kernel's `struct iovec`.
#[repr(C)]
struct Area {
    base: *mut u8,
    len: usize,
}

/// What one ring knows of its file and buffers.
#[derive(Debug)]
pub struct Registered {
    file: Fd,
    flags: squeue::Flags,
    buffers: bool,
}

/// What is left of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    /// Which way.
    pub direction: Direction,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Its memory, inside the slot.
    pub memory: *mut u8,
    /// Bytes left.
    pub len: u32,
    /// The slot, which is the buffer's number too.
    pub slot: u16,
}

impl Registered {
    /// Registers the file; buffers come later, once they are known.
    pub fn file(ring: &IoUring, file: &File) -> Self {
        let number = file.as_raw_fd();
        let (file, flags) = match ring.submitter().register_files(&[number]) {
            Ok(()) => (Fd(PLACE), squeue::Flags::FIXED_FILE),
            Err(_) => (Fd(number), squeue::Flags::empty()),
        };
        Self {
            file,
            flags,
            buffers: false,
        }
    }

    /// Registers every slot as the buffer of its number.
    pub fn buffers(&mut self, ring: &IoUring, slots: &mut Slots) {
        self.forget_buffers(ring);
        let len = slots.stride();
        let whole = u32::try_from(len).unwrap_or(u32::MAX);
        let areas: Vec<Area> = (0..slots.count())
            .map(|slot| Area {
                base: slots.get_mut(slot, whole).as_mut_ptr(),
                len,
            })
            .collect();
        // SAFETY: `Area` is laid out as `iovec`. The areas are slots, whose mapping the session holds as long as the
        // ring; the kernel writes into them only for operations, under the contract of `Session::submit`.
        self.buffers = unsafe {
            let areas = std::slice::from_raw_parts(areas.as_ptr().cast(), areas.len());
            ring.submitter().register_buffers(areas)
        }
        .is_ok();
    }

    /// Takes the buffers back.
    pub fn forget_buffers(&mut self, ring: &IoUring) {
        if std::mem::take(&mut self.buffers) {
            // The kernel lets go of a buffer when no operation uses it any more.
            let _ = ring.submitter().unregister_buffers();
        }
    }

    /// Takes file and buffers back at once: the end of a ring alone would do it some time later, and until then the file
    /// counts as open and the memory as locked.
    pub fn forget(&mut self, ring: &IoUring) {
        self.forget_buffers(ring);
        if !self.flags.is_empty() {
            let _ = ring.submitter().unregister_files();
        }
    }

    /// The entry for what is left of an operation.
    #[inline]
    pub fn entry(&self, rest: Rest) -> squeue::Entry {
        let Rest {
            direction,
            offset,
            memory,
            len,
            slot,
        } = rest;
        let entry = match (direction, self.buffers) {
            (Direction::Read, true) => opcode::ReadFixed::new(self.file, memory, len, slot)
                .offset(offset)
                .build(),
            (Direction::Write, true) => opcode::WriteFixed::new(self.file, memory, len, slot)
                .offset(offset)
                .build(),
            (Direction::Read, false) => opcode::Read::new(self.file, memory, len)
                .offset(offset)
                .build(),
            (Direction::Write, false) => opcode::Write::new(self.file, memory, len)
                .offset(offset)
                .build(),
        };
        entry.flags(self.flags).user_data(u64::from(slot))
    }

    /// What is registered, as a word for the CSV.
    pub fn word(&self) -> &'static str {
        match (self.flags.is_empty(), self.buffers) {
            (false, true) => "registered=file+buffers",
            (false, false) => "registered=file",
            (true, true) => "registered=buffers",
            (true, false) => "registered=none",
        }
    }
}
