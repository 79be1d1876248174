//! What the kernel keeps when a laboratory's processes are gone is written down for the guard outside, which takes it back.
//!
//! Limits of loop devices and control groups belong to no namespace, and a process that is killed can't take them back. So a
//! laboratory starts below `tests/lab/guard`, which gives it a book. Must not know: what is limited.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The directory in which the guard looks.
const BOOK: &str = "NASGAUGE_LAB_BOOK";

fn book() -> PathBuf {
    let book = std::env::var_os(BOOK).map(PathBuf::from);
    book.filter(|book| book.is_dir()).unwrap_or_else(|| {
        panic!(
            "a laboratory with disks needs its guard, or its limits would outlive it: tests/lab/run, or \
             sh tests/lab/guard sh src/servers/sandbox.sh enter cargo test .. (root)"
        )
    })
}

/// A name that the guard knows: whatever has it in its own is the laboratory's.
pub fn token() -> String {
    let book = book();
    let name = book.file_name().expect("a directory has a name");
    name.to_string_lossy().into_owned()
}

/// Writes a loop device down, as `MAJOR:MINOR`, before anything of it is limited.
pub fn note_loop(number: &str) {
    let path = book().join("loops");
    let file = OpenOptions::new().append(true).open(&path);
    let written = file.and_then(|mut file| writeln!(file, "{number}"));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
