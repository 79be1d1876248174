//! The buffers of one worker: one page-aligned slot an outstanding operation, laid out once, never moved.
//!
//! Must not know: what is in them, or who fills them.

use memmap2::MmapMut;

/// Alignment of every slot in bytes: enough for `O_DIRECT` on any common device.
pub const ALIGNMENT: usize = 4096;

/// A fixed set of equally sized buffers in one anonymous mapping.
#[derive(Debug)]
pub struct Slots {
    map: MmapMut,
    stride: usize,
    count: u16,
}

impl Slots {
    /// `count` slots of at least `len` bytes each, their pages already touched, so that the first operation
    /// pays no page fault.
    pub fn new(count: u16, len: usize) -> std::io::Result<Self> {
        let stride = len.max(1).next_multiple_of(ALIGNMENT);
        let mut map = MmapMut::map_anon(stride * usize::from(count.max(1)))?;
        for page in map.chunks_mut(ALIGNMENT) {
            page[0] = std::hint::black_box(0);
        }
        Ok(Self { map, stride, count })
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

    /// The first `len` bytes of a slot.
    #[must_use]
    pub fn get(&self, slot: u16, len: u32) -> &[u8] {
        let start = usize::from(slot) * self.stride;
        &self.map[start..start + len as usize]
    }

    /// The first `len` bytes of a slot, to fill.
    pub fn get_mut(&mut self, slot: u16, len: u32) -> &mut [u8] {
        let start = usize::from(slot) * self.stride;
        &mut self.map[start..start + len as usize]
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
