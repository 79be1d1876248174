//! Files: a directory of ours, made new, with a manifest before anything else in it.
//!
//! Layout: `nasgauge-RUN/` with `nasgauge.json` (the manifest), `data.bin`, and `laid.json` once all of the data is
//! there; small files stand beside them, as `names` calls them. A crash at any point leaves a directory that `clean`
//! recognises, or an empty one.

use crate::error::{Error, Kind, Result};
use crate::guard::{Claim, Leftover, Manifest, Object, names, same_kind};
use crate::target::Files;
use crate::units::Bytes;

mod removal;

use removal::{remove_all, stuck};

const PREFIX: &str = "nasgauge-";
const MANIFEST: &str = "nasgauge.json";
const LAID: &str = "laid.json";
const DATA: &str = "data.bin";
/// The largest manifest that is read.
const MANIFEST_LIMIT: usize = 64 << 10;
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
        /// All data is there and the run keeps it.
        kept: bool,
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
    // Small files need a directory of this run's own.
    let usable = if claim.small_files == 0 {
        leftovers_among(files, &entries)?
    } else {
        Vec::new()
    };
    for leftover in usable {
        let prepared = read_manifest(files, &format!("{}/{LAID}", leftover.name))?;
        let fits = |manifest: &Manifest| {
            manifest.size >= claim.size && same_kind(&manifest.content, &claim.content)
        };
        if let Some(manifest) = prepared.filter(fits) {
            let name = format!("{}/{DATA}", leftover.name);
            if present_size(files, &name)?.is_some_and(|size| size >= manifest.size) {
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
            Bytes(claim.room())
        ));
    }
    if let Some(snapshots) = has(SNAPSHOTS) {
        notes.push(format!(
            "there are snapshots ({snapshots}): one taken during the run keeps {} of test data",
            Bytes(claim.room())
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
            kept: false,
        },
        object,
    ))
}

/// The size of a file; None when it is not there.
fn present_size(files: &mut dyn Files, path: &str) -> Result<Option<u64>> {
    match files.size(path) {
        Ok(size) => Ok(Some(size)),
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn foreign(files: &mut dyn Files, claim: &Claim, path: &str) -> Result<(Directory, Object)> {
    let strange = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if path.split('/').any(strange) {
        return Err(Error::safety(format!(
            "'{path}' is not a path below the target's directory: no part may be empty, '.' or '..'"
        )));
    }
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

/// Free space with a margin of a twentieth, at least 16 MiB; and room for the names of small files.
fn check_space(files: &mut dyn Files, claim: &Claim) -> Result<()> {
    let facts = files.facts()?;
    // The manifests and the directory itself.
    let names = u64::from(claim.small_files) + 4;
    if let Some(free) = facts
        .free_files
        .filter(|free| claim.small_files > 0 && *free < names)
    {
        return Err(Error::usage(format!(
            "{} files would not fit: the file system has inodes for {free} more; give a smaller --nrfiles",
            claim.small_files
        )));
    }
    let Some(free) = facts.free_bytes else {
        return Ok(());
    };
    let needed = claim.room();
    let margin = (needed / 20).max(16 << 20);
    if free < needed.saturating_add(margin) {
        let smaller = if claim.small_room > claim.size {
            "a smaller --nrfiles or --filesize"
        } else {
            "a smaller --size"
        };
        return Err(Error::usage(format!(
            "{} of test data would not fit: {} are free, and {} must stay so; give {smaller}",
            Bytes(needed).both(),
            Bytes(free),
            Bytes(margin)
        )));
    }
    Ok(())
}

/// Small files of one run in its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Small {
    /// The number of each, and whether it has its second name.
    pub present: Vec<(u32, bool)>,
    /// Everything in the directory: these files, the manifest, the test file.
    pub entries: u64,
}

impl Claim {
    /// Bytes that all test data takes.
    fn room(&self) -> u64 {
        self.size.saturating_add(self.small_room)
    }
}

impl Directory {
    /// Makes the directory, the manifest, then the empty data file.
    pub(super) fn enter(
        &mut self,
        files: &mut dyn Files,
        claim: &Claim,
        object: &mut Object,
    ) -> Result<()> {
        let Self::New { name, made, .. } = self else {
            return Ok(());
        };
        let manifest = Manifest::of(claim, &object.content, claim.room()).bytes()?;
        note(made, Made::Directory, files.make_directory(name))?;
        let put = files.put(&format!("{name}/{MANIFEST}"), &manifest);
        note(made, Made::File(MANIFEST), put)?;
        if claim.size == 0 {
            return Ok(());
        }
        note(made, Made::File(DATA), files.create(&object.name))
    }

    /// The directory in which small files may be made.
    pub(super) fn folder(&self) -> Option<&str> {
        match self {
            Self::New { name, .. } => Some(name),
            Self::Foreign | Self::Prepared => None,
        }
    }

    /// The small files of this run that are there; None where there can be none.
    pub(super) fn small_files(
        &self,
        files: &mut dyn Files,
        claim: &Claim,
    ) -> Result<Option<Small>> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        let entries = files.list(folder)?;
        let present = entries.iter().filter(|entry| !entry.directory);
        Ok(Some(Small {
            present: present
                .filter_map(|entry| names::read(&claim.run_id, &entry.name))
                .collect(),
            entries: entries.len() as u64,
        }))
    }

    /// Records that all data is there, for a run that keeps it.
    pub(super) fn laid(&mut self, files: &mut dyn Files, claim: &Claim) -> Result<()> {
        let Self::New { name, made, kept } = self else {
            return Ok(());
        };
        if claim.keep && !*kept {
            let manifest = Manifest::of(claim, &claim.content, claim.size).bytes()?;
            let put = files.put(&format!("{name}/{LAID}"), &manifest);
            note(made, Made::File(LAID), put)?;
            *kept = true;
        }
        Ok(())
    }

    /// Removes what this run made, last things first; goes on after a failure and reports the first.
    pub(super) fn leave(&mut self, files: &mut dyn Files, claim: &Claim) -> Result<Option<String>> {
        let Self::New { name, made, kept } = self else {
            return Ok(None);
        };
        if *kept {
            return Ok(Some(format!(
                "{} of test data stay in {name} for the next run",
                Bytes(claim.size)
            )));
        }
        let manifest = Manifest::of(claim, &claim.content, claim.room()).bytes()?;
        if !made.contains(&Made::Directory) {
            return Ok(None);
        }
        let mut small = Vec::new();
        if claim.small_files > 0 {
            let entries = files
                .list(name)
                .or_else(gone)
                .map_err(|error| stuck(&error, name))?;
            small = small_among(&entries, &claim.run_id);
        }
        let marks = [LAID, DATA, MANIFEST]
            .into_iter()
            .filter(|file| made.contains(&Made::File(file)));
        let mut ours: Vec<&str> = small.iter().map(String::as_str).collect();
        for mark in marks {
            ours.push(mark);
        }
        remove_all(files, name, &ours, &manifest).map_err(|error| stuck(&error, name))?;
        made.clear();
        Ok(None)
    }
}

/// Nothing is in a directory that is gone.
fn gone(error: Error) -> Result<Vec<crate::target::Entry>> {
    if error.kind == Kind::NotFound {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}

/// The names of a run's small files among entries of its directory.
fn small_among(entries: &[crate::target::Entry], run_id: &str) -> Vec<String> {
    entries
        .iter()
        .filter(|entry| !entry.directory && names::read(run_id, &entry.name).is_some())
        .map(|entry| entry.name.clone())
        .collect()
}

/// Notes what was made. A failure may come after the deed (an answer that got lost, a file half written), so that
/// is noted too, but for what was there before or surely never came to be.
fn note(made: &mut Vec<Made>, what: Made, done: Result<()>) -> Result<()> {
    let surely_not = |error: &Error| match what {
        Made::File(_) => error.kind == Kind::Exists,
        Made::Directory => !matches!(
            error.kind,
            Kind::TimedOut | Kind::Gone | Kind::Interrupted | Kind::Protocol | Kind::Other
        ),
    };
    if !done.as_ref().is_err_and(surely_not) {
        made.push(what);
    }
    done
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
        .filter(|entry| entry.directory && is_our_name(&entry.name))
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
    let manifest = if is_our_name(name) {
        read_manifest(files, &format!("{name}/{MANIFEST}"))?
    } else {
        None
    };
    let Some(manifest) = manifest else {
        return Err(Error::safety(format!(
            "'{name}' has no manifest of nasgauge's; it stays"
        )));
    };
    let entries = files.list(name)?;
    let small = small_among(&entries, &manifest.run_id);
    let marks = |name: &str| [LAID, DATA, MANIFEST].contains(&name);
    if let Some(foreign) = entries.iter().find(|entry| {
        let small_file = !entry.directory && names::read(&manifest.run_id, &entry.name).is_some();
        !marks(&entry.name) && !small_file
    }) {
        return Err(Error::safety(format!(
            "'{name}' also holds '{}', which is not nasgauge's; it stays",
            foreign.name
        )));
    }
    let there = [LAID, DATA, MANIFEST]
        .into_iter()
        .filter(|file| entries.iter().any(|entry| entry.name == *file));
    let mut ours: Vec<&str> = small.iter().map(String::as_str).collect();
    ours.extend(there);
    remove_all(files, name, &ours, &manifest.bytes()?)
}

/// A directory name that a run makes. A server that lists others can't lead us elsewhere.
fn is_our_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(plain))
}

#[cfg(test)]
mod tests;
