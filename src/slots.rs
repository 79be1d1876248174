//! The buffers of one worker: one page-aligned slot an outstanding operation, laid out once, never moved.
//!
//! Must not know: what is in them, or who fills them.

#![expect(
    unsafe_code,
    reason = "slots that the kernel fills must not be covered by a reference to the whole mapping"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use memmap2::{Advice, MmapMut, MmapRaw};

/// Alignment of every slot in bytes: enough for `O_DIRECT` on any common device.
pub const ALIGNMENT: usize = 4096;

/// A fixed set of equally sized buffers in one anonymous mapping.
#[derive(Debug)]
pub struct Slots {
    map: Arc<MmapRaw>,
    stride: usize,
    count: u16,
    /// Where two threads have them: whose each slot is, and who this is.
    hands: Option<(Arc<[AtomicU8]>, u8)>,
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
            hands: None,
        })
    }

    /// The same slots for two threads, who pass them to one another by [`hand_over`](Self::hand_over); at first all are the
    /// first one's.
    pub fn pair(count: u16, len: usize) -> std::io::Result<(Self, Self)> {
        let mut first = Self::new(count, len)?;
        let owners: Arc<[AtomicU8]> = (0..count.max(1)).map(|_| AtomicU8::new(0)).collect();
        first.hands = Some((Arc::clone(&owners), 0));
        let second = Self {
            map: Arc::clone(&first.map),
            hands: Some((owners, 1)),
            ..first
        };
        Ok((first, second))
    }

    /// Gives a slot to the other one of a [`pair`](Self::pair), who may use it from now on; panics when it is not one's own.
    pub fn hand_over(&mut self, slot: u16) {
        self.start(slot, 0);
        if let Some((owners, me)) = &self.hands {
            // What was written to the slot is seen by whoever sees that it is theirs.
            owners[usize::from(slot)].store(1 - me, Ordering::Release);
        }
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
        if let Some((owners, me)) = &self.hands {
            let owner = owners[usize::from(slot)].load(Ordering::Acquire);
            assert!(owner == *me, "slot {slot} is in the other hand");
        }
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
        // `Hold` gives no access, and of a pair only the one that owns a slot has got past `start`: to hand it over it had
        // to give up its references first, since that borrows it mutably.
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

    #[test]
    fn a_slot_is_in_one_hand_at_a_time() {
        let (mut one, mut other) = Slots::pair(2, 8).expect("two small slots");
        one.get_mut(0, 8).fill(5);
        one.hand_over(0);
        assert_eq!(other.get(0, 8), [5; 8]);
        assert!(other.held_by(&one.hold()));
        let refused = |slots: &Slots, slot| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slots.get(slot, 1).len()))
                .is_err()
        };
        assert!(refused(&one, 0) && refused(&other, 1));
        assert!(!refused(&one, 1) && !refused(&other, 0));
        other.hand_over(0);
        assert!(!refused(&one, 0) && refused(&other, 0));
    }
}
