//! elbencho's CSV (`--csvfile`): one line a phase. The last worker's figures are the whole; the first one's leave out the slower ones.
//!
//! Must not know: other formats.

use serde_json::{Map, Value};

use super::test::{Side, Test};
use super::{Imported, Input};
use crate::error::{Error, Result};
use crate::record::Row;

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let begins = |line: &str| {
        let line = line.trim_start_matches('"').to_lowercase();
        line.starts_with("iso date") && line.contains("mib/s [last]")
    };
    let mut at = 0;
    for line in input.text.split_inclusive('\n') {
        if begins(line) {
            return Some(phases(input, &input.text[at..]));
        }
        at += line.len();
    }
    None
}

/// A line by its columns' names.
struct Phase<'a> {
    header: &'a csv::StringRecord,
    fields: csv::StringRecord,
    comma: bool,
}

impl Phase<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let at = self
            .header
            .iter()
            .position(|column| column.trim() == name)?;
        self.fields
            .get(at)
            .map(str::trim)
            .filter(|field| !field.is_empty())
    }

    fn number(&self, name: &str) -> Option<f64> {
        let text = self.text(name)?;
        let number = if self.comma {
            text.replace(',', ".")
        } else {
            text.to_owned()
        };
        number
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }

    fn whole(&self, name: &str) -> Option<u64> {
        self.number(name).map(|number| number.round() as u64)
    }
}

fn phases(input: &Input<'_>, table: &str) -> Result<Imported> {
    let semicolons = table.lines().next().is_some_and(|line| line.contains(';'));
    let comma = input.writing.decimal_comma;
    if comma && !semicolons {
        return Err(Error::usage(
            "decimal commas need semicolons between the columns",
        ));
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(if semicolons { b';' } else { b',' })
        .flexible(true)
        .from_reader(table.as_bytes());
    let wrong = |error: csv::Error| Error::usage(format!("its lines can't be read: {error}"));
    let header = reader.headers().map_err(wrong)?.clone();
    let mut tests = Vec::new();
    let mut notes = Vec::new();
    let mut skipped: Vec<String> = Vec::new();
    let mut settings = Map::new();
    for fields in reader.records() {
        let phase = Phase {
            header: &header,
            fields: fields.map_err(wrong)?,
            comma,
        };
        let operation = phase.text("operation").unwrap_or("").to_owned();
        if settings.is_empty() {
            let columns = header
                .iter()
                .take_while(|column| column.trim() != "operation");
            settings.extend(columns.filter_map(|column| {
                let value = phase.text(column.trim())?;
                Some((column.trim().to_owned(), Value::String(value.to_owned())))
            }));
        }
        let direction = match operation.as_str() {
            "READ" => "read",
            "WRITE" => "write",
            _ => {
                skipped.push(operation);
                continue;
            }
        };
        let side = side(&phase);
        let label = phase.text("label").unwrap_or(&operation).to_owned();
        let measured = test(&phase, &label, direction, input.name);
        notes.extend(
            side.contradiction()
                .map(|said| format!("{operation}: {said}")),
        );
        tests.push((measured.row(direction, &side), Vec::new()));
    }
    if !skipped.is_empty() {
        skipped.dedup();
        notes.push(format!(
            "not taken over, since no bytes move in them: {}",
            skipped.join(", ")
        ));
    }
    Ok(Imported {
        tool: "elbencho".into(),
        settings: Value::Object(settings),
        tests,
        judged: Vec::new(),
        notes,
    })
}

/// Whole MiB and milliseconds: of tests shorter than seconds the rate that it prints is the finer one.
fn side(phase: &Phase<'_>) -> Side {
    let block = phase.whole("block size").filter(|block| *block > 0);
    let mebibytes = phase.whole("MiB [last]").unwrap_or(0);
    let seconds = phase.number("time ms [last]").map(|millis| millis / 1e3);
    let bytes = mebibytes << 20;
    let by_rate = phase
        .number("IOPS [last]")
        .zip(seconds)
        .map(|(iops, seconds)| (iops * seconds).round() as u64);
    let ops = block
        .map(|block| bytes / block)
        .filter(|ops| *ops > 0)
        .or(by_rate);
    let nanos = |name: &str| {
        phase
            .number(name)
            .filter(|micros| *micros > 0.0)
            .map(|micros| micros * 1e3)
    };
    Side {
        bytes,
        ops: ops.unwrap_or(0),
        seconds,
        printed: phase
            .number("MiB/s [last]")
            .map(|rate| rate * 1_048_576.0)
            .filter(|rate| *rate > 0.0),
        mean_ns: nanos("IO lat us [avg]"),
        max_ns: nanos("IO lat us [max]").map(|max| max.round() as u64),
        ..Side::default()
    }
}

fn test(phase: &Phase<'_>, label: &str, direction: &str, name: &str) -> Test {
    let is_set = |column: &str| phase.whole(column).is_some_and(|value| value > 0);
    let random = is_set("random");
    let small = |column: &str| {
        phase
            .whole(column)
            .and_then(|value| u16::try_from(value).ok())
    };
    let hosts = u64::from(small("hosts").unwrap_or(1).max(1));
    let threads = phase
        .whole("threads")
        .map_or(0, |threads| threads.saturating_mul(hosts));
    Test {
        row: Row {
            target: name.to_owned(),
            protocol: if phase.text("path type") == Some("blockdev") {
                "block"
            } else {
                "file"
            }
            .into(),
            engine: "elbencho".into(),
            workload: label.to_owned(),
            pattern: format!("{}{direction}", if random { "rand" } else { "" }),
            block_size_bytes: phase.whole("block size"),
            iodepth: small("IO depth").unwrap_or(0),
            lanes: u16::try_from(threads).unwrap_or(u16::MAX),
            size_bytes: phase
                .whole("MiB [last]")
                .map_or(0, |mebibytes| mebibytes << 20),
            payload: "unknown".into(),
            durability: Some("none".into()),
            negotiated: if is_set("direct IO") {
                "direct".into()
            } else {
                String::new()
            },
            ..Row::blank()
        },
        cpu_s: None,
    }
}
