//! Other people's machines for tests: trees of /proc and /sys from `fixtures/machines/KIND/net.txt`, and saved netlink
//! answers. Must not know: what is in them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The kinds of machine that there are trees of, an empty one at last.
pub const KINDS: &[&str] = &["vm", "bare-metal", "zfs-nas", "empty"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/machines")
}

/// The tree of one kind of machine, in a directory that ends with the test.
pub fn tree(kind: &str) -> TempDir {
    unpack(&text(kind))
}

/// The text of a tree, as [`unpack`] takes it.
pub fn text(kind: &str) -> String {
    match kind {
        "empty" => String::new(),
        _ => fs::read_to_string(fixtures().join(kind).join("net.txt")).expect("a fixture"),
    }
}

/// The same tree with `body` in every file.
pub fn damaged(tree: &str, body: &str) -> String {
    let heads = tree.lines().filter(|line| line.starts_with("=== "));
    heads
        .map(|head| {
            if head.contains(" -> ") {
                format!("{head}\n")
            } else {
                format!("{head}\n{body}\n")
            }
        })
        .collect()
}

/// Lays out `=== PATH` with the text after it, and `=== PATH -> TARGET`.
pub fn unpack(text: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for part in text.split("=== ").skip(1) {
        let (head, body) = part.split_once('\n').expect("a path and a line break");
        let (path, target) = head.split_once(" -> ").unwrap_or((head, ""));
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("room");
        if target.is_empty() {
            fs::write(path, body).expect("room");
        } else {
            symlink(target, path).expect("room");
        }
    }
    root
}

/// A saved answer: `fixtures/machines/KIND/netlink/NAME.bin`.
pub fn answer(kind: &str, name: &str) -> Vec<u8> {
    let path = fixtures().join(kind).join("netlink").join(name);
    fs::read(path.with_extension("bin")).expect("a fixture")
}
