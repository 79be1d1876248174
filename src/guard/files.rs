//! Files: a directory of ours, made new, with a manifest before anything else in it.
//!
//! Layout: `nasgauge-RUN/` with `nasgauge.json` (the manifest), `data.bin`, and `laid.json` once all of the data is
//! there. A crash at any point leaves a directory that `clean` recognises, or an empty one.

use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};
use crate::guard::{Claim, Leftover, Manifest, Object, same_kind};
use crate::target::Files;
use crate::units::Bytes;

const PREFIX: &str = "nasgauge-";
const MANIFEST: &str = "nasgauge.json";
const LAID: &str = "laid.json";
const DATA: &str = "data.bin";
/// The largest manifest that is read.
const MANIFEST_LIMIT: usize = 64 << 10;
/// How long what is in the way of a removal may take to pass.
const PASSING: Duration = Duration::from_secs(4);
/// Pause before a removal is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// Names of recycle bins that keep what is removed.
const BINS: &[&str] = &[
    "#recycle",
    ".recycle",
    "@Recycle",
    "$RECYCLE.BIN",
    ".Trash-1000",
];
/// Snapshot directories: what was written stays in them.
const SNAPSHOTS: &[&str] = &[
    ".zfs",
    ".snapshots",
    "@Recently-Snapshot",
    "#snapshot",
    ".snapshot",
];

/// What a run has in a directory.
pub(super) enum Directory {
    /// A user's file, read only: nothing of ours.
    Foreign,
    /// A directory of ours that an earlier run prepared; it stays.
    Prepared,
    /// One to be made.
    New {
        name: String,
        /// What has been made so far, in order.
        made: Vec<Made>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Directory,
    File(&'static str),
}

/// Looks for prepared data, checks space; nothing is written.
pub(super) fn examine(
    files: &mut dyn Files,
    claim: &Claim,
    notes: &mut Vec<String>,
) -> Result<(Directory, Object)> {
    if let Some(path) = &claim.read_existing {
        return foreign(files, claim, path);
    }
    let entries = files.list("")?;
    for leftover in leftovers_among(files, &entries)? {
        let prepared = read_manifest(files, &format!("{}/{LAID}", leftover.name))?;
        let fits = |manifest: &Manifest| {
            manifest.size >= claim.size && same_kind(&manifest.content, &claim.content)
        };
        if let Some(manifest) = prepared.filter(fits) {
            let name = format!("{}/{DATA}", leftover.name);
            if files.size(&name)? >= manifest.size {
                notes.push(format!(
                    "using the {} prepared in {}",
                    Bytes(manifest.size),
                    leftover.name
                ));
                let object = Object {
                    name,
                    base: 0,
                    content: manifest.content,
                    laid: true,
                    foreign: false,
                };
                return Ok((Directory::Prepared, object));
            }
        }
    }
    check_space(files, claim)?;
    let has = |names: &[&str]| {
        entries
            .iter()
            .find(|entry| names.contains(&entry.name.as_str()))
            .map(|e| e.name.clone())
    };
    if let Some(bin) = has(BINS) {
        notes.push(format!(
            "there is a recycle bin ({bin}): the {} of test data may land in it when removed; empty it afterwards",
            Bytes(claim.size)
        ));
    }
    if let Some(snapshots) = has(SNAPSHOTS) {
        notes.push(format!(
            "there are snapshots ({snapshots}): one taken during the run keeps {} of test data",
            Bytes(claim.size)
        ));
    }
    let name = format!("{PREFIX}{}", claim.run_id);
    let object = Object {
        name: format!("{name}/{DATA}"),
        base: 0,
        content: claim.content.clone(),
        laid: false,
        foreign: false,
    };
    Ok((
        Directory::New {
            name,
            made: Vec::new(),
        },
        object,
    ))
}

fn foreign(files: &mut dyn Files, claim: &Claim, path: &str) -> Result<(Directory, Object)> {
    if claim.writes {
        return Err(Error::safety(format!(
            "'{path}' is your own file and will only be read; the workload writes"
        )));
    }
    let size = files.size(path)?;
    if size < claim.size {
        return Err(Error::usage(format!(
            "'{path}' holds {}, less than the size {} asked for; give --size",
            Bytes(size),
            Bytes(claim.size)
        )));
    }
    if let Some(unwritten) = files.unwritten(path)?.filter(|bytes| *bytes > 0) {
        return Err(Error::usage(format!(
            "{} of '{path}' are holes or were never written: reading them measures no storage",
            Bytes(unwritten)
        )));
    }
    let object = Object {
        name: path.to_owned(),
        base: 0,
        content: claim.content.clone(),
        laid: true,
        foreign: true,
    };
    Ok((Directory::Foreign, object))
}

/// Free space with a margin of a twentieth, at least 16 MiB.
fn check_space(files: &mut dyn Files, claim: &Claim) -> Result<()> {
    let Some(free) = files.facts()?.free_bytes else {
        return Ok(());
    };
    let margin = (claim.size / 20).max(16 << 20);
    if free < claim.size.saturating_add(margin) {
        return Err(Error::usage(format!(
            "{} of test data would not fit: {} are free, and {} must stay so; give a smaller --size",
            Bytes(claim.size).both(),
            Bytes(free),
            Bytes(margin)
        )));
    }
    Ok(())
}

impl Directory {
    /// Makes the directory, the manifest, then the empty data file.
    pub(super) fn enter(
        &mut self,
        files: &mut dyn Files,
        claim: &Claim,
        object: &mut Object,
    ) -> Result<()> {
        let Self::New { name, made } = self else {
            return Ok(());
        };
        files.make_directory(name)?;
        made.push(Made::Directory);
        let manifest = Manifest::of(claim, &object.content, claim.size).bytes()?;
        // Noted before it is made: a failure half-way may leave a part of it.
        made.push(Made::File(MANIFEST));
        files.put(&format!("{name}/{MANIFEST}"), &manifest)?;
        files.create(&object.name)?;
        made.push(Made::File(DATA));
        Ok(())
    }

    /// Records that all data is there, for a run that keeps it.
    pub(super) fn laid(&mut self, files: &mut dyn Files, claim: &Claim) -> Result<()> {
        let Self::New { name, made } = self else {
            return Ok(());
        };
        if claim.keep && !made.contains(&Made::File(LAID)) {
            made.push(Made::File(LAID));
            files.put(
                &format!("{name}/{LAID}"),
                &Manifest::of(claim, &claim.content, claim.size).bytes()?,
            )?;
        }
        Ok(())
    }

    /// Removes what this run made, last things first; goes on after a failure and reports the first.
    pub(super) fn leave(&mut self, files: &mut dyn Files, claim: &Claim) -> Result<Option<String>> {
        let Self::New { name, made } = self else {
            return Ok(None);
        };
        if claim.keep && made.contains(&Made::File(LAID)) {
            return Ok(Some(format!(
                "{} of test data stay in {name} for the next run",
                Bytes(claim.size)
            )));
        }
        let mut first = Ok(None);
        // The manifest goes last of the files: until then `clean` knows the directory.
        let order = [
            Made::File(LAID),
            Made::File(DATA),
            Made::File(MANIFEST),
            Made::Directory,
        ];
        for thing in order {
            if !made.contains(&thing) {
                continue;
            }
            let removed = insist(|| match thing {
                Made::File(file) => files.remove(&format!("{name}/{file}")),
                Made::Directory => files.remove_directory(name),
            });
            match removed {
                Ok(()) => made.retain(|other| *other != thing),
                Err(error) => {
                    let lost = error.server_lost();
                    if first.is_ok() {
                        first = Err(stuck(&error, name));
                    }
                    // Each further call would wait as long.
                    if lost {
                        break;
                    }
                }
            }
        }
        first
    }
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

fn stuck(error: &Error, name: &str) -> Error {
    let message = format!(
        "{} (directory {name}); 'nasgauge clean URI' removes it later",
        error.message
    );
    Error::new(Phase::Cleanup, error.kind, message)
}

/// Directories of ours.
pub(super) fn leftovers(files: &mut dyn Files) -> Result<Vec<Leftover>> {
    let entries = files.list("")?;
    leftovers_among(files, &entries)
}

fn leftovers_among(
    files: &mut dyn Files,
    entries: &[crate::target::Entry],
) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.directory && entry.name.starts_with(PREFIX))
    {
        if let Some(manifest) = read_manifest(files, &format!("{}/{MANIFEST}", entry.name))? {
            found.push(Leftover {
                name: entry.name.clone(),
                manifest,
            });
        }
    }
    Ok(found)
}

/// The manifest at a path; None when there is none or it is not ours.
fn read_manifest(files: &mut dyn Files, path: &str) -> Result<Option<Manifest>> {
    match files.get(path, MANIFEST_LIMIT) {
        Ok(bytes) => Ok(Manifest::read(&bytes)),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::Denied) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a directory of ours: only names that we make, and only where the manifest is ours.
pub(super) fn clean(files: &mut dyn Files, name: &str) -> Result<()> {
    if !name.starts_with(PREFIX) || read_manifest(files, &format!("{name}/{MANIFEST}"))?.is_none() {
        return Err(Error::safety(format!(
            "'{name}' has no manifest of nasgauge's; it stays"
        )));
    }
    let entries = files.list(name)?;
    if let Some(foreign) = entries
        .iter()
        .find(|entry| ![LAID, DATA, MANIFEST].contains(&entry.name.as_str()))
    {
        return Err(Error::safety(format!(
            "'{name}' also holds '{}', which is not nasgauge's; it stays",
            foreign.name
        )));
    }
    for file in [LAID, DATA, MANIFEST] {
        if entries.iter().any(|entry| entry.name == file) {
            insist(|| files.remove(&format!("{name}/{file}")))?;
        }
    }
    insist(|| files.remove_directory(name))
}
