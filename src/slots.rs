//! The buffers of one worker: one page-aligned slot an outstanding operation, laid out once, never moved.
//!
//! Must not know: what is in them, or who fills them.

#![expect(
    unsafe_code,
    reason = "slots that the kernel fills must not be covered by a reference to the whole mapping"
)]

use std::sync::Arc;

use memmap2::{Advice, MmapMut, MmapRaw};

/// Alignment of every slot in bytes: enough for `O_DIRECT` on any common device.
pub const ALIGNMENT: usize = 4096;

/// A fixed set of equally sized buffers in one anonymous mapping.
#[derive(Debug)]
pub struct Slots {
    map: Arc<MmapRaw>,
    stride: usize,
    count: u16,
}

/// Keeps the memory of some [`Slots`] mapped: a session whose operations the kernel fills on its own holds one,
/// so that the order in which an engine drops its parts can't make the kernel write into freed memory.
#[derive(Debug)]
pub struct Hold(Arc<MmapRaw>);

impl Slots {
    /// `count` slots of at least `len` bytes each, their pages already touched, so that the first operation
    /// pays no page fault.
    pub fn new(count: u16, len: usize) -> std::io::Result<Self> {
        let stride = len.max(1).next_multiple_of(ALIGNMENT);
        let mut map = MmapMut::map_anon(stride * usize::from(count.max(1)))?;
        // Fewer pages to pin and to look up where the kernel has huge ones; it may refuse.
        let _ = map.advise(Advice::HugePage);
        for page in map.chunks_mut(ALIGNMENT) {
            page[0] = std::hint::black_box(0);
        }
        Ok(Self {
            map: Arc::new(map.into()),
            stride,
            count,
        })
    }

    /// How many slots there are.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Bytes in one slot: the length asked for, rounded up to [`ALIGNMENT`].
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Keeps the memory alive beyond the slots themselves.
    #[must_use]
    pub fn hold(&self) -> Hold {
        Hold(Arc::clone(&self.map))
    }

    /// Whether `hold` is of these very slots.
    #[must_use]
    pub fn held_by(&self, hold: &Hold) -> bool {
        Arc::ptr_eq(&self.map, &hold.0)
    }

    /// Where a slot starts in the mapping, in bytes; panics when `len` bytes there are not all its own.
    #[inline]
    fn start(&self, slot: u16, len: u32) -> usize {
        assert!(
            slot < self.count.max(1) && len as usize <= self.stride,
            "slot {slot} with {len} bytes is outside the slots"
        );
        usize::from(slot) * self.stride
    }

    /// The first `len` bytes of a slot.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: u16, len: u32) -> &[u8] {
        let start = self.start(slot, len);
        // SAFETY: `start` checked that the range lies inside the mapping, which lives as long as self; it was
        // initialised by the kernel, and only `get_mut` (which borrows self mutably) hands out writable memory.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(start), len as usize) }
    }

    /// The first `len` bytes of a slot, to fill.
    #[inline]
    pub fn get_mut(&mut self, slot: u16, len: u32) -> &mut [u8] {
        let start = self.start(slot, len);
        // SAFETY: as in `get`, and self is borrowed mutably, so that no other reference to a slot exists; a
        // `Hold` gives no access.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(start), len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_and_apart() {
        let mut slots = Slots::new(3, 4097).expect("three small slots");
        assert_eq!(slots.stride(), 8192);
        slots.get_mut(1, 4097).fill(7);
        assert_eq!(slots.get(0, 4097)[4096], 0);
        assert_eq!(slots.get(1, 4097)[4096], 7);
        assert_eq!(slots.get(2, 1).as_ptr() as usize % ALIGNMENT, 0);
    }
}
