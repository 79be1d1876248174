//! Our own record.json: its rows as they are.
//!
//! Must not know: other formats.

use serde::Deserialize;
use serde_json::Value;

use super::{Imported, Input};
use crate::error::{Error, Result};
use crate::record::{Row, SCHEMA_VERSION};
use crate::verdict::case::Case;

#[derive(Deserialize)]
struct Record {
    schema_version: u32,
    nasgauge_version: String,
    #[serde(default)]
    plan: Value,
    rows: Vec<Row>,
    #[serde(default)]
    judged: Vec<Judged>,
}

/// A workload of a diagnosis.
#[derive(Deserialize)]
struct Judged {
    case: Case,
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let object = input.objects.first()?;
    let known = object.value.get("schema_version").is_some() && object.value.get("rows").is_some();
    known.then(|| record(&object.value))
}

fn record(value: &Value) -> Result<Imported> {
    let record = Record::deserialize(value)
        .map_err(|error| Error::usage(format!("no record of nasgauge: {error}")))?;
    if record.schema_version > SCHEMA_VERSION {
        return Err(Error::usage(format!(
            "written by nasgauge {} in version {} of its form; this one reads up to {SCHEMA_VERSION}",
            record.nasgauge_version, record.schema_version
        )));
    }
    Ok(Imported {
        tool: format!("nasgauge {}", record.nasgauge_version),
        settings: record.plan,
        tests: record
            .rows
            .into_iter()
            .map(|row| (row, Vec::new()))
            .collect(),
        judged: record
            .judged
            .into_iter()
            .map(|judged| judged.case)
            .collect(),
        notes: Vec::new(),
    })
}
