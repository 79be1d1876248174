//! `memcpy` from and to a shared mapping of a file or of memory.
//!
//! A mapping has no error path: a page that can't be read or written ends the process with SIGBUS. So a write goes
//! into the mapping only where the file's blocks were there when the session opened, and through `pwrite`
//! otherwise (laying a new file is that); what remains is another process that cuts the file short, a copy-on-write
//! file system that runs full on overwriting, and a failing disk. Must not know: what file it is.

#![expect(
    unsafe_code,
    reason = "a shared mapping can be changed by others, so its bytes are copied through pointers"
)]

use std::fs::File;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::SeekFrom;

use crate::error::{Error, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::Slots;
use crate::target::Session;
use crate::target::local::{Engine, Opened, fault};

/// A shared mapping whose bytes are copied in and out.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
    write: bool,
}

impl Mapping {
    /// Maps all of a file, which must not be empty.
    pub fn new(file: &File, write: bool) -> std::io::Result<Self> {
        let options = MmapOptions::new();
        let map = if write {
            options.map_raw(file)?
        } else {
            options.map_raw_read_only(file)?
        };
        Ok(Self { map, write })
    }

    /// Bytes mapped.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty file can't be mapped")]
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether it was made for writing too.
    #[must_use]
    pub const fn writable(&self) -> bool {
        self.write
    }

    /// Where it lies in this process.
    #[must_use]
    pub fn address(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// Asks for huge pages and touches every page, so that no operation pays for it. Kernels that know neither
    /// lose nothing but time. Tells whether the kernel took the first as advice; what it gave is another matter.
    #[must_use]
    pub fn populate(&self) -> bool {
        // Advice: where it is refused, the first pass over the mapping pays the page faults.
        let advised = self.map.advise(Advice::HugePage).is_ok();
        let _ = self.map.advise(if self.write {
            Advice::PopulateWrite
        } else {
            Advice::PopulateRead
        });
        advised
    }

    /// Bytes from `offset` to the end of the mapping, at most `len`.
    #[inline]
    fn within(&self, offset: u64, len: usize) -> usize {
        self.len().saturating_sub(offset).min(len as u64) as usize
    }

    /// Copies out of the mapping; fewer bytes only at its end.
    #[inline]
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let bytes = self.within(offset, buffer.len());
        if bytes > 0 {
            // SAFETY: `within` keeps the range inside the mapping, which lives as long as self; `buffer` is
            // anonymous memory apart from it. Another session may write these bytes meanwhile: they are plain
            // bytes, so any mixture is a value.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.map.as_ptr().add(offset as usize),
                    buffer.as_mut_ptr(),
                    bytes,
                );
            }
        }
        bytes
    }

    /// Copies into the mapping; fewer bytes at its end, none when it was made for reading.
    #[inline]
    #[must_use]
    pub fn write(&self, data: &[u8], offset: u64) -> usize {
        if !self.write {
            return 0;
        }
        let bytes = self.within(offset, data.len());
        if bytes > 0 {
            // SAFETY: as in `read`; and the mapping was made writable.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    data.as_ptr(),
                    self.map.as_mut_ptr().add(offset as usize),
                    bytes,
                );
            }
        }
        bytes
    }

    /// Writes a range back to the file.
    fn sync(&self, offset: u64, len: usize) -> std::io::Result<()> {
        self.map.flush_range(offset as usize, len)
    }
}

/// A session at depth 1 on a mapped file.
#[derive(Debug)]
pub struct Mmap {
    opened: Opened,
    mapping: Option<Mapping>,
    /// Writes that end at or before this offset may go into the mapping.
    allocated: u64,
    /// Operations that went around the mapping.
    around: u64,
}

impl Mmap {
    /// Maps an open file at its present size.
    pub fn new(opened: Opened) -> Result<Self> {
        let error = |error: &std::io::Error| {
            let doing = format!("map {} into memory", opened.name);
            fault(Phase::Open, error, &doing, "; use engine=psync")
        };
        let size = opened.file.metadata().map_err(|cause| error(&cause))?.len();
        let mapping = if size == 0 {
            None
        } else {
            Some(Mapping::new(&opened.file, opened.write).map_err(|cause| error(&cause))?)
        };
        // Unknown counts as not allocated: slower, but no SIGBUS.
        let allocated = if size == 0 {
            0
        } else {
            rustix::fs::seek(&opened.file, SeekFrom::Hole(0)).unwrap_or(0)
        };
        Ok(Self {
            opened,
            mapping,
            allocated,
            around: 0,
        })
    }

    #[inline]
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match &self.mapping {
            Some(mapping) if offset + buffer.len() as u64 <= mapping.len() => {
                Ok(mapping.read(buffer, offset))
            }
            _ => {
                self.around += 1;
                self.opened.read(buffer, offset)
            }
        }
    }

    #[inline]
    fn write(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        match &self.mapping {
            Some(mapping) if offset + data.len() as u64 <= self.allocated.min(mapping.len()) => {
                let bytes = mapping.write(data, offset);
                if self.opened.durability.each_write() {
                    mapping.sync(offset, bytes).map_err(|error| {
                        self.opened.failed(Direction::Write, bytes, offset, &error)
                    })?;
                }
                Ok(bytes)
            }
            _ => {
                self.around += 1;
                self.opened.write(data, offset)
            }
        }
    }
}

impl Session for Mmap {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        let bytes = match op.direction {
            Direction::Read => self.read(slots.get_mut(op.slot, op.len), op.offset)?,
            Direction::Write if !self.opened.write => {
                return Err(Error::usage(format!(
                    "{} is open for reading only",
                    self.opened.name
                )));
            }
            Direction::Write => self.write(slots.get(op.slot, op.len), op.offset)?,
        };
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: bytes as u32,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(mapping) = self.mapping.as_ref().filter(|_| self.opened.write) {
            mapping.map.flush().map_err(|error| {
                let doing = format!("flush the mapping of {}", self.opened.name);
                fault(Phase::Flush, &error, &doing, "")
            })?;
        }
        self.opened.sync()
    }

    fn negotiated(&self) -> String {
        let mut words = self.opened.words(Engine::Mmap);
        if self.around > 0 {
            // Honest about what was not a memcpy.
            words.push_str(" unmapped_ops=");
            words.push_str(&self.around.to_string());
        }
        words
    }
}
