//! The RAM behind the embedded servers: sparse byte ranges under one budget.
//!
//! Memory is taken page by page as it is written and given back on removal, so a big sparse range costs nothing, and
//! a full budget answers as a full disk does. Nothing is ever on disk, so nothing can be left behind.
//!
//! Must not know: files, names, any protocol. Sizes and offsets are in bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tree::Fault;

/// Bytes that are allocated at a time.
pub const PAGE: u64 = 64 * 1024;

/// The memory that a server may hold, shared by all its files.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    used: Arc<AtomicU64>,
}

impl Budget {
    /// A budget of `limit` bytes, rounded up to whole pages.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            limit: limit.next_multiple_of(PAGE),
            used: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Total and free bytes.
    #[must_use]
    pub fn total_and_free(&self) -> (u64, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (self.limit, self.limit.saturating_sub(used))
    }

    fn take_page(&self) -> Result<(), Fault> {
        self.used
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(PAGE).filter(|used| *used <= self.limit)
            })
            .map(|_| ())
            .map_err(|_| Fault::NoSpace)
    }

    fn give_back(&self, pages: u64) {
        self.used.fetch_sub(pages * PAGE, Ordering::Relaxed);
    }
}

/// A sparse range of bytes: what was never written reads as zeros and costs nothing.
#[derive(Debug)]
pub struct Pages {
    chunks: HashMap<u64, Box<[u8]>>,
    len: u64,
    budget: Budget,
}

impl Pages {
    /// An empty range of `len` bytes.
    #[must_use]
    pub fn new(len: u64, budget: Budget) -> Self {
        Self {
            chunks: HashMap::new(),
            len,
            budget,
        }
    }

    /// The size in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Bytes really held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.chunks.len() as u64 * PAGE
    }

    /// Up to `count` bytes from `offset` on; fewer at the end.
    #[must_use]
    pub fn read(&self, offset: u64, count: u64) -> Vec<u8> {
        let end = offset.saturating_add(count).min(self.len);
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let (page, start) = (at / PAGE, (at % PAGE) as usize);
            let take = (PAGE - at % PAGE).min(end - at) as usize;
            match self.chunks.get(&page) {
                Some(bytes) => out.extend_from_slice(&bytes[start..start + take]),
                None => out.resize(out.len() + take, 0),
            }
            at += take as u64;
        }
        out
    }

    /// Puts `data` at `offset`, growing the range; a full budget may leave the first part written.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or(Fault::Invalid)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let start = (at % PAGE) as usize;
            let take = (PAGE as usize - start).min(data.len() - done);
            let page = self.page(at / PAGE)?;
            page[start..start + take].copy_from_slice(&data[done..done + take]);
            done += take;
        }
        self.len = self.len.max(end);
        Ok(())
    }

    /// Cuts or extends the range to `len` bytes.
    pub fn resize(&mut self, len: u64) -> Result<(), Fault> {
        if i64::try_from(len).is_err() {
            return Err(Fault::Invalid);
        }
        if len < self.len {
            let before = self.chunks.len();
            self.chunks.retain(|page, _| page * PAGE < len);
            self.budget.give_back((before - self.chunks.len()) as u64);
            // What is cut must read as zeros when the range grows again.
            if let Some(last) = self.chunks.get_mut(&(len / PAGE)) {
                last[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
        Ok(())
    }

    fn page(&mut self, index: u64) -> Result<&mut [u8], Fault> {
        match self.chunks.entry(index) {
            std::collections::hash_map::Entry::Occupied(page) => Ok(page.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => {
                self.budget.take_page()?;
                Ok(free.insert(vec![0; PAGE as usize].into_boxed_slice()))
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.budget.give_back(self.chunks.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_holes_are_zeros() {
        let mut pages = Pages::new(0, Budget::new(1 << 20));
        let data: Vec<u8> = (0..200_001_u32).map(|n| (n % 251) as u8).collect();
        let far = 5 << 30;
        pages.write(far + 7, &data).expect("fits");
        assert_eq!(pages.len(), far + 7 + data.len() as u64);
        assert_eq!(pages.read(far + 7, data.len() as u64), data);
        assert_eq!(pages.read(far - 3, 10), [0; 10]);
        assert!(pages.held() <= 5 * PAGE, "sparse: {}", pages.held());
        assert_eq!(
            pages.read(pages.len() - 1, 100).len(),
            1,
            "short at the end"
        );
        assert_eq!(pages.read(u64::MAX, 100).len(), 0);
    }

    #[test]
    fn a_cut_range_grows_back_as_zeros_and_gives_memory_back() {
        let budget = Budget::new(4 * PAGE);
        let mut pages = Pages::new(0, budget.clone());
        pages.write(0, &vec![9; 3 * PAGE as usize]).expect("fits");
        pages.resize(10).expect("cut");
        assert_eq!(budget.total_and_free(), (4 * PAGE, 3 * PAGE));
        pages.resize(PAGE).expect("grow");
        assert_eq!(pages.read(9, 3), [9, 0, 0]);
        drop(pages);
        assert_eq!(budget.total_and_free().1, 4 * PAGE);
    }
}
