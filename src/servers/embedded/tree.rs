//! A tree of files in RAM, for the embedded servers that serve files.
//!
//! Must not know: any protocol. Sizes and offsets are in bytes.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use super::pages::{Budget, Pages};

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

    const PAGE: u64 = super::super::pages::PAGE;

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
