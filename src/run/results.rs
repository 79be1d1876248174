//! The result directory: appended row by row and synced, so that what was measured survives whatever follows.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Phase, Result};
use crate::record::{Interval, Row};
use crate::report::csv;
use crate::run::Out;
use crate::spec::repeats::Repeats;
use serde::Serialize;

/// An open result directory.
pub struct Results {
    directory: PathBuf,
    summary: File,
    intervals: File,
    latency: File,
}

/// Every file of a result directory: none of them may be there before.
const NAMES: &[&str] = &[
    "summary.csv",
    "intervals.csv",
    "latency.csv",
    "aggregate.csv",
    "plan.toml",
    "environment.json",
    "record.json",
    "ladder.csv",
    "verdict.csv",
];

fn failed(error: &std::io::Error, doing: &str, path: &Path) -> Error {
    Error::io(
        Phase::Results,
        error,
        &format!("{doing} {}", path.display()),
    )
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).map_err(|error| failed(&error, "write", path))
}

impl Results {
    /// Makes the directory with the plan, the environment and the CSV headers in it.
    pub fn create(
        out: &Out,
        run_id: &str,
        name: &str,
        plan: &impl Serialize,
        environment: &serde_json::Value,
    ) -> Result<Self> {
        let directory = match out {
            Out::Below(parent) => parent.join(format!("{run_id}-{name}")),
            Out::Exactly(directory) => directory.clone(),
        };
        let usage = |error: Error| {
            let place = directory.display();
            Error::usage(format!("results can't go to {place}: {}", error.message))
        };
        fs::create_dir_all(&directory)
            .map_err(|error| usage(failed(&error, "make the directory", &directory)))?;
        if let Some(taken) = NAMES.iter().find(|name| directory.join(name).exists()) {
            return Err(Error::usage(format!(
                "{} holds a {taken} already; name another --out",
                directory.display()
            )));
        }
        let saved = toml::to_string(plan)
            .map_err(|error| Error::usage(format!("the plan can't be saved: {error}")))?;
        put(&directory.join("plan.toml"), saved.as_bytes()).map_err(usage)?;
        let facts = serde_json::to_vec_pretty(environment).unwrap_or_default();
        put(&directory.join("environment.json"), &facts).map_err(usage)?;
        let open =
            |name: &str, header: &[&str]| Self::start(&directory.join(name), header).map_err(usage);
        Ok(Self {
            summary: open("summary.csv", csv::SUMMARY)?,
            intervals: open("intervals.csv", csv::INTERVALS)?,
            latency: open("latency.csv", csv::LATENCY)?,
            directory,
        })
    }

    fn start(path: &Path, header: &[&str]) -> Result<File> {
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)
            .map_err(|error| failed(&error, "create", path))?;
        file.write_all(&csv::line(header))
            .map_err(|error| failed(&error, "write", path))?;
        Ok(file)
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends one interval sample; `row` gives its place.
    pub fn interval(&mut self, row: &Row, interval: &Interval) -> Result<()> {
        let path = &self.directory;
        self.intervals
            .write_all(&csv::line(&csv::interval(row, interval)))
            .map_err(|e| failed(&e, "write to", path))
    }

    /// Appends a finished row and its histogram, and syncs all three files.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        let path = &self.directory;
        let mut histogram = Vec::new();
        for line in csv::latency(row) {
            histogram.extend(csv::line(&line));
        }
        self.summary
            .write_all(&csv::line(&csv::summary(row)))
            .and_then(|()| self.latency.write_all(&histogram))
            .and_then(|()| self.latency.sync_data())
            .and_then(|()| self.intervals.sync_data())
            .and_then(|()| self.summary.sync_data())
            .map_err(|error| failed(&error, "write to", path))
    }

    /// Writes a file that only some runs have; its name is one of [`NAMES`].
    pub fn put(&self, name: &str, content: &[u8]) -> Result<()> {
        put(&self.directory.join(name), content)
    }

    /// Writes what needs all rows: aggregate.csv and record.json.
    pub fn finish(
        &mut self,
        rows: &[Row],
        repeats: Repeats,
        record: &impl Serialize,
    ) -> Result<()> {
        let mut aggregate = csv::line(csv::AGGREGATE);
        for line in csv::aggregates(rows, repeats) {
            aggregate.extend(csv::line(&line));
        }
        put(&self.directory.join("aggregate.csv"), &aggregate)?;
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| Error::usage(format!("the record can't be saved: {error}")))?;
        put(&self.directory.join("record.json"), &json)
    }
}
