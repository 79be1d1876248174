//! Results of other tools as rows of our own, with the settings that they were measured with.
//!
//! Each format is one file and one line of [`FORMATS`]: it knows its own output and reads it. What a tool does not tell stays
//! unknown; what its figures can't bear (an error beside a plausible rate, a percentile of too few) is not taken over. Pure: bytes in,
//! rows out. Must not know: where files and results are.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::recompute::{Writing, decoded};
use crate::record::{Interval, Row};
use crate::verdict::case::Case;

pub mod cases;
mod crystaldiskmark;
mod diskspd;
mod elbencho;
mod fio;
mod iperf3;
mod json;
mod own;
mod test;

/// What a file held.
#[derive(Debug)]
pub struct Imported {
    /// The tool and its version.
    pub tool: String,
    /// The settings as the tool tells them.
    pub settings: Value,
    /// Its tests with their samples; the run's id is for the caller to set.
    pub tests: Vec<(Row, Vec<Interval>)>,
    /// Cases that were judged already, of our own diagnoses.
    pub judged: Vec<Case>,
    /// What must be said of them.
    pub notes: Vec<String>,
}

/// A file as formats see it.
struct Input<'a> {
    /// Its name, for targets that a tool does not name.
    name: &'a str,
    text: &'a str,
    /// JSON objects in it, each with the text in front of it.
    objects: &'a [json::Object<'a>],
    writing: Writing,
}

/// A format: its name, and how it is read; None where the file is of another one.
type Format = (&'static str, fn(&Input<'_>) -> Option<Result<Imported>>);

/// Every format; the first that knows the file has it.
const FORMATS: &[Format] = &[
    ("nasgauge's own record.json", own::read),
    ("fio (json, json+)", fio::json),
    ("iperf3 (-J)", iperf3::read),
    ("fio (terse)", fio::terse),
    ("diskspd", diskspd::read),
    ("CrystalDiskMark", crystaldiskmark::read),
    ("elbencho (--csvfile)", elbencho::read),
    ("fio (normal)", fio::text),
];

/// Reads what a tool wrote. `name` is the file's, without its folder.
pub fn import(name: &str, bytes: &[u8], writing: Writing) -> Result<Imported> {
    let text = decoded(bytes).map_err(|error| error.at(name))?;
    let objects = json::objects(&text);
    let input = Input {
        name,
        text: &text,
        objects: &objects,
        writing,
    };
    let read = FORMATS.iter().find_map(|(_, read)| read(&input));
    let imported = read.unwrap_or_else(|| {
        let formats: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        Err(Error::usage(format!(
            "nothing in it is known; what is read: {}",
            formats.join(", ")
        )))
    });
    let imported = imported.map_err(|error| error.at(name))?;
    if imported.tests.is_empty() {
        let error = Error::usage(format!("{} measured nothing in it", imported.tool));
        return Err(error.at(name));
    }
    Ok(imported)
}

#[cfg(test)]
mod tests;
