//! Removing what is ours: everything else first, the manifest last, then the directory.
//!
//! Must not know: how it was decided what is ours.

use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};
use crate::guard::files::{DATA, LAID, MANIFEST};
use crate::target::Files;

/// How long what is in the way of a removal may take to pass.
const PASSING: Duration = Duration::from_millis(if cfg!(test) { 30 } else { 4_000 });
/// Pause before a removal is tried again.
const AGAIN: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 100 });
/// Removes files of ours, the manifest last, then their directory. While anything stays, so does the manifest: by it
/// `clean` knows the directory.
pub(super) fn remove_all(
    files: &mut dyn Files,
    name: &str,
    ours: &[&str],
    manifest: &[u8],
) -> Result<()> {
    for file in ours.iter().filter(|file| **file != MANIFEST) {
        insist(|| files.remove(&format!("{name}/{file}")))?;
    }
    let mut unmarked = Ok(());
    if ours.contains(&MANIFEST) {
        unmarked = insist(|| files.remove(&format!("{name}/{MANIFEST}")));
    }
    let Err(error) = insist(|| files.remove_directory(name)) else {
        // With the directory went whatever was in it.
        return Ok(());
    };
    if !error.server_lost() && !holds_a_twin(files, name, ours) {
        // It is empty, or holds what is not ours. If this fails too, nothing of ours is left in it.
        let _ = files.put(&format!("{name}/{MANIFEST}"), manifest);
    }
    // What kept the manifest says more than "not empty".
    unmarked.and(Err(error))
}

/// Whether the directory holds a file of a name of ours that is not: with a manifest beside it `clean` would take it.
fn holds_a_twin(files: &mut dyn Files, name: &str, ours: &[&str]) -> bool {
    let twin = |entry: &crate::target::Entry| {
        let name = entry.name.as_str();
        [LAID, DATA, MANIFEST].contains(&name) && !ours.contains(&name)
    };
    files
        .list(name)
        .is_ok_and(|entries| entries.iter().any(twin))
}

/// Removes something, again for a while where what is in the way may pass: an SMB server keeps a file open for a
/// session that was cut off, a network mount keeps a directory filled while a file in it is still open. What is gone
/// already needs no removing.
fn insist(mut remove: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + PASSING;
    loop {
        match remove() {
            Err(error) if error.kind == Kind::NotFound => return Ok(()),
            Err(error)
                if matches!(error.kind, Kind::Other | Kind::Gone) && Instant::now() < deadline => {}
            result => return result,
        }
        std::thread::sleep(AGAIN);
    }
}

pub(super) fn stuck(error: &Error, name: &str) -> Error {
    let message = format!(
        "{} (directory {name}); 'nasgauge clean URI' removes it later",
        error.message
    );
    Error::new(Phase::Cleanup, error.kind, message)
}
