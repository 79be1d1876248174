//! The shipped workloads: each file in workloads/, embedded; a new one is one file and no code.

use include_dir::{Dir, include_dir};

use crate::error::{Error, Result};
use crate::spec::workload::{PhaseFile, Workload};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/workloads");

/// The names of the shipped workloads, sorted.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FILES
        .files()
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|extension| extension == "toml")
        })
        .filter_map(|file| file.path().file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// All shipped workloads.
pub fn all() -> Result<Vec<Workload>> {
    names()
        .into_iter()
        .map(|name| load(name, &PhaseFile::default()))
        .collect()
}

/// The text of a workload and the place it came from: a shipped name, or the path of a file.
pub fn text(name: &str) -> Result<(String, String)> {
    if let Some(file) = FILES.get_file(format!("{name}.toml")) {
        let text = file.contents_utf8().unwrap_or_default();
        return Ok((text.to_owned(), format!("workload {name}")));
    }
    if name.contains('/') || std::path::Path::new(name).extension().is_some() {
        let text = std::fs::read_to_string(name)
            .map_err(|error| Error::usage(format!("workload file {name}: {error}")))?;
        return Ok((text, name.to_owned()));
    }
    Err(Error::usage(format!(
        "no workload '{name}'; one of: {}; or the path of a workload file",
        names().join(", ")
    )))
}

/// A workload by name or path, with keys of the command line over its own.
pub fn load(name: &str, overrides: &PhaseFile) -> Result<Workload> {
    let (text, place) = text(name)?;
    let stem = std::path::Path::new(name)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or(name);
    Workload::parse(stem, &text, &place, overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_workload_is_sound_and_described_in_a_line() {
        let all = all().expect("shipped workloads");
        assert!(!all.is_empty());
        for workload in all {
            assert!(
                (10..=100).contains(&workload.description.len()),
                "{}",
                workload.name
            );
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = text("seq-reed").expect_err("unknown").to_string();
        assert!(error.contains("seq-read-1m"), "{error}");
    }
}
