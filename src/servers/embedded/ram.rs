//! The RAM behind the embedded servers: sparse byte ranges under one budget, and a tree of files made of them.
//!
//! Memory is taken page by page as it is written and given back on removal, so a big sparse file costs nothing,
//! and a full budget answers as a full disk does. Nothing is ever on disk, so nothing can be left behind.
//!
//! Must not know: any protocol. Sizes and offsets are in bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Bytes that are allocated at a time.
const PAGE: u64 = 64 * 1024;

/// Why a change or a look-up was refused; each server has its own code for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No entry of that name.
    NotFound,
    /// The object was removed meanwhile.
    Stale,
    /// The name is taken.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A file was needed.
    IsDirectory,
    /// The directory holds something.
    NotEmpty,
    /// The budget is used up.
    NoSpace,
    /// The name or the range makes no sense.
    Invalid,
}

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

    /// Whether the size is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
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

/// What a node is.
#[derive(Debug)]
pub enum Content {
    /// A file's bytes.
    File(Pages),
    /// A directory's entries: name to node number.
    Directory(BTreeMap<String, u64>),
}

/// A file or a directory.
#[derive(Debug)]
pub struct Node {
    /// Its number, never used again.
    pub id: u64,
    /// The directory that holds it; the root holds itself.
    pub parent: u64,
    /// Its bytes or entries.
    pub content: Content,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Last change of content.
    pub modified: SystemTime,
    /// The verifier of an exclusive creation, by which a repeated request is known.
    pub verifier: Option<[u8; 8]>,
}

impl Node {
    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }

    /// Size and bytes really held.
    #[must_use]
    pub fn size_and_held(&self) -> (u64, u64) {
        match &self.content {
            Content::File(pages) => (pages.len(), pages.held()),
            Content::Directory(entries) => (entries.len() as u64, 0),
        }
    }

    /// Its bytes.
    pub const fn file(&self) -> Result<&Pages, Fault> {
        match &self.content {
            Content::File(pages) => Ok(pages),
            Content::Directory(_) => Err(Fault::IsDirectory),
        }
    }

    /// Its entries.
    pub const fn entries(&self) -> Result<&BTreeMap<String, u64>, Fault> {
        match &self.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Fault::NotDirectory),
        }
    }
}

/// A tree of files in RAM.
#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
    budget: Budget,
}

/// The root directory's number.
pub const ROOT: u64 = 1;

impl Tree {
    /// An empty tree that may hold `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let mut tree = Self {
            nodes: HashMap::new(),
            next: ROOT,
            budget: Budget::new(limit),
        };
        tree.add(ROOT, Content::Directory(BTreeMap::new()));
        tree
    }

    /// The memory it may hold.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A node by its number.
    pub fn node(&self, id: u64) -> Result<&Node, Fault> {
        self.nodes.get(&id).ok_or(Fault::Stale)
    }

    /// A node by its number, to change its attributes.
    pub fn node_mut(&mut self, id: u64) -> Result<&mut Node, Fault> {
        self.nodes.get_mut(&id).ok_or(Fault::Stale)
    }

    /// The number of `name` in a directory.
    pub fn lookup(&self, directory: u64, name: &str) -> Result<u64, Fault> {
        let node = self.node(directory)?;
        let entries = node.entries()?;
        match name {
            "." => Ok(directory),
            ".." => Ok(node.parent),
            _ => entries.get(name).copied().ok_or(Fault::NotFound),
        }
    }

    /// A new empty file; fails when the name is taken.
    pub fn create(&mut self, directory: u64, name: &str) -> Result<u64, Fault> {
        let pages = Pages::new(0, self.budget.clone());
        self.put(directory, name, Content::File(pages))
    }

    /// A new empty directory; fails when the name is taken.
    pub fn mkdir(&mut self, directory: u64, name: &str) -> Result<u64, Fault> {
        self.put(directory, name, Content::Directory(BTreeMap::new()))
    }

    /// Removes a file or an empty directory.
    pub fn remove(&mut self, directory: u64, name: &str) -> Result<(), Fault> {
        check_name(name)?;
        let id = self.lookup(directory, name)?;
        if let Content::Directory(entries) = &self.node(id)?.content
            && !entries.is_empty()
        {
            return Err(Fault::NotEmpty);
        }
        self.entries_mut(directory)?.remove(name);
        self.nodes.remove(&id);
        Ok(())
    }

    /// Gives an entry another name or directory; an existing entry there is replaced only when `replace` allows it.
    pub fn rename(
        &mut self,
        from: (u64, &str),
        to: (u64, &str),
        replace: bool,
    ) -> Result<(), Fault> {
        check_name(to.1)?;
        let id = self.lookup(from.0, from.1)?;
        if from == to {
            return Ok(());
        }
        // A directory must not become its own ancestor.
        let mut above = to.0;
        while above != ROOT {
            if above == id {
                return Err(Fault::Invalid);
            }
            above = self.node(above)?.parent;
        }
        match self.lookup(to.0, to.1) {
            Ok(_) if !replace => return Err(Fault::Exists),
            Ok(there) if self.node(there)?.is_directory() != self.node(id)?.is_directory() => {
                return Err(Fault::Exists);
            }
            Ok(_) => self.remove(to.0, to.1)?,
            Err(Fault::NotFound) => {}
            Err(fault) => return Err(fault),
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_owned(), id);
        self.node_mut(id)?.parent = to.0;
        Ok(())
    }

    /// Writes into a file.
    pub fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let node = self.node_mut(id)?;
        node.modified = SystemTime::now();
        match &mut node.content {
            Content::File(pages) => pages.write(offset, data),
            Content::Directory(_) => Err(Fault::IsDirectory),
        }
    }

    /// Cuts or extends a file.
    pub fn resize(&mut self, id: u64, len: u64) -> Result<(), Fault> {
        let node = self.node_mut(id)?;
        node.modified = SystemTime::now();
        match &mut node.content {
            Content::File(pages) => pages.resize(len),
            Content::Directory(_) => Err(Fault::IsDirectory),
        }
    }

    fn put(&mut self, directory: u64, name: &str, content: Content) -> Result<u64, Fault> {
        check_name(name)?;
        match self.lookup(directory, name) {
            Err(Fault::NotFound) => {}
            Ok(_) => return Err(Fault::Exists),
            Err(fault) => return Err(fault),
        }
        let id = self.add(directory, content);
        self.entries_mut(directory)?.insert(name.to_owned(), id);
        Ok(id)
    }

    fn add(&mut self, parent: u64, content: Content) -> u64 {
        let id = self.next;
        self.next += 1;
        let mode = match content {
            Content::File(_) => 0o644,
            Content::Directory(_) => 0o777,
        };
        let node = Node {
            id,
            parent,
            content,
            uid: 0,
            gid: 0,
            mode,
            modified: SystemTime::now(),
            verifier: None,
        };
        self.nodes.insert(id, node);
        id
    }

    fn entries_mut(&mut self, directory: u64) -> Result<&mut BTreeMap<String, u64>, Fault> {
        let node = self.node_mut(directory)?;
        node.modified = SystemTime::now();
        match &mut node.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Fault::NotDirectory),
        }
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    let bad = matches!(name, "" | "." | "..") || name.contains(['/', '\0']) || name.len() > 255;
    if bad { Err(Fault::Invalid) } else { Ok(()) }
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

    #[test]
    fn a_full_budget_is_a_full_disk() {
        let mut tree = Tree::new(2 * PAGE);
        let file = tree.create(ROOT, "a").expect("new");
        let data = vec![1; 2 * PAGE as usize];
        tree.write(file, 0, &data).expect("fits");
        assert_eq!(tree.write(file, 2 * PAGE, &[1]), Err(Fault::NoSpace));
        tree.remove(ROOT, "a").expect("there");
        assert_eq!(tree.budget().total_and_free().1, 2 * PAGE);
    }

    #[test]
    fn names_are_taken_once_and_full_directories_stay() {
        let mut tree = Tree::new(PAGE);
        let dir = tree.mkdir(ROOT, "d").expect("new");
        let file = tree.create(dir, "f").expect("new");
        assert_eq!(tree.create(dir, "f"), Err(Fault::Exists));
        assert_eq!(tree.mkdir(ROOT, "d"), Err(Fault::Exists));
        assert_eq!(tree.remove(ROOT, "d"), Err(Fault::NotEmpty));
        assert_eq!(tree.lookup(dir, ".."), Ok(ROOT));
        assert_eq!(tree.lookup(file, "x"), Err(Fault::NotDirectory));
        tree.remove(dir, "f").expect("there");
        assert_eq!(tree.node(file).map(|node| node.id), Err(Fault::Stale));
        for bad in ["", ".", "..", "a/b", "a\0b"] {
            assert_eq!(tree.create(dir, bad), Err(Fault::Invalid), "{bad:?}");
        }
    }

    #[test]
    fn a_rename_replaces_only_when_asked_and_never_makes_a_loop() {
        let mut tree = Tree::new(PAGE);
        let outer = tree.mkdir(ROOT, "outer").expect("new");
        let inner = tree.mkdir(outer, "inner").expect("new");
        let from = (ROOT, "outer");
        assert_eq!(tree.rename(from, (inner, "x"), true), Err(Fault::Invalid));
        let file = tree.create(ROOT, "a").expect("new");
        tree.create(inner, "b").expect("new");
        assert_eq!(
            tree.rename((ROOT, "a"), (inner, "b"), false),
            Err(Fault::Exists)
        );
        tree.rename((ROOT, "a"), (inner, "b"), true)
            .expect("replaced");
        assert_eq!(tree.lookup(inner, "b"), Ok(file));
        assert_eq!(tree.lookup(ROOT, "a"), Err(Fault::NotFound));
    }
}
