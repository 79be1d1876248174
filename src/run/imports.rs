//! Results of other tools, kept as a run of our own would be.
//!
//! Must not know: formats, how anything is shown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::import::{Imported, import};
use crate::recompute::Writing;
use crate::record::{Row, SCHEMA_VERSION, Status};
use crate::run::{Out, Results, new_run_id};
use crate::spec::repeats::Repeats;

/// Version of `plan.toml` of imported results.
const IMPORT_PLAN_VERSION: u32 = 1;
/// More than any tool writes.
const LONGEST: u64 = 256 << 20;

/// What was imported, as plan.toml has it: there is nothing to run again.
#[derive(Debug, Serialize)]
struct ImportPlan {
    #[serde(rename = "import_plan_version")]
    version: u32,
    nasgauge_version: &'static str,
    files: Vec<String>,
    decimal_comma: bool,
}

#[derive(Serialize)]
struct ImportRecord<'a> {
    schema_version: u32,
    run_id: &'a str,
    nasgauge_version: &'static str,
    plan: &'a ImportPlan,
    environment: &'a Value,
    rows: &'a [Row],
}

/// What an import came to.
#[derive(Debug)]
pub struct Outcome {
    /// All rows.
    pub rows: Vec<Row>,
    /// What must be said, each with its file.
    pub notes: Vec<String>,
    /// The result directory.
    pub directory: PathBuf,
}

impl Outcome {
    /// The exit code of CONTRACT: 0 all ok, 1 a row is not.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(self.rows.iter().any(|row| row.status != Status::Ok))
    }
}

/// Whether a `plan.toml` is of imported results.
#[must_use]
pub fn is_one(plan: &str) -> bool {
    plan.contains("import_plan_version")
}

/// Reads a file, or the record of a result directory.
pub fn read(path: &Path, writing: Writing) -> Result<Imported> {
    let path = if path.is_dir() {
        path.join("record.json")
    } else {
        path.to_owned()
    };
    let place = path.display().to_string();
    let told = |error: std::io::Error| Error::usage(error.to_string()).at(&place);
    let length = std::fs::metadata(&path).map_err(told)?.len();
    if length > LONGEST {
        let error = Error::usage("longer than 256 MiB: no result of a tool that is known");
        return Err(error.at(&place));
    }
    let bytes = std::fs::read(&path).map_err(told)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    import(&name, &bytes, writing).map_err(|error| Error {
        target: place,
        ..error
    })
}

/// Reads files and keeps their rows in a result directory; Err when nothing was kept. A layer that the user names becomes the stage
/// of rows that are of no network test.
pub fn keep(
    files: &[PathBuf],
    writing: Writing,
    stage: Option<&str>,
    out: &Out,
) -> Result<Outcome> {
    let mut all = Vec::new();
    for path in files {
        all.push((path.display().to_string(), read(path, writing)?));
    }
    let id = new_run_id();
    let plan = ImportPlan {
        version: IMPORT_PLAN_VERSION,
        nasgauge_version: env!("CARGO_PKG_VERSION"),
        files: all.iter().map(|(name, _)| name.clone()).collect(),
        decimal_comma: writing.decimal_comma,
    };
    let sources: Vec<Value> = all
        .iter()
        .map(|(file, one)| {
            json!({ "file": file, "tool": one.tool, "settings": one.settings, "notes": one.notes })
        })
        .collect();
    let environment = json!({
        "nasgauge_version": plan.nasgauge_version,
        "client": Value::Null,
        "imported": sources,
    });
    let mut results = Results::create(out, &id, "import", &plan, &environment)?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut repeats: HashMap<[String; 4], u32> = HashMap::new();
    for (file, one) in all {
        notes.extend(one.notes.iter().map(|note| format!("{file}: {note}")));
        for (mut row, samples) in one.tests {
            row.run_id.clone_from(&id);
            if let (Some(stage), "run") = (stage, row.stage.as_str()) {
                stage.clone_into(&mut row.stage);
            }
            let cell = [&row.stage, &row.target, &row.workload, &row.direction].map(Clone::clone);
            let repeat = repeats.entry(cell).or_insert(0);
            *repeat += 1;
            row.repeat = *repeat;
            for sample in &samples {
                results.interval(&row, sample)?;
            }
            results.row(&row)?;
            rows.push(row);
        }
    }
    let record = ImportRecord {
        schema_version: SCHEMA_VERSION,
        run_id: &id,
        nasgauge_version: plan.nasgauge_version,
        plan: &plan,
        environment: &environment,
        rows: &rows,
    };
    let most = repeats.values().copied().max().unwrap_or(1);
    results.finish(&rows, Repeats::Fixed(most), &record)?;
    Ok(Outcome {
        rows,
        notes,
        directory: results.directory().to_owned(),
    })
}
