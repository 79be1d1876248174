//! fio's terse lines, versions 3 to 5: one line a job, its fields by place. They tell no settings.
//!
//! Must not know: its other forms.

use serde_json::json;

use super::{Options, rows, trouble};
use crate::error::{Error, Result};
use crate::import::test::Side;
use crate::import::{Imported, Input};
use crate::record::Status;

/// Fields of a direction: 4 of its whole, 4 of slat, 4 of clat, 20 percentiles, 4 of lat, 5 of its rate.
const FIELDS: usize = 41;
/// Version 5 adds the number of samples, and 5 of IOPS.
const FIELDS_5: usize = FIELDS + 6;
/// Version, fio's version, name, group, error.
const HEAD: usize = 5;

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let mut jobs = input.text.lines().filter_map(fields).peekable();
    jobs.peek()?;
    Some(run(input, jobs))
}

/// The fields of a line of a known version.
fn fields(line: &str) -> Option<(u32, Vec<&str>)> {
    let fields: Vec<&str> = line.trim().split(';').collect();
    let version = fields.first()?.parse().ok()?;
    let fits = (3..=5).contains(&version) && fields.get(1)?.starts_with("fio-");
    (fits && fields.len() > HEAD + 2 * FIELDS).then_some((version, fields))
}

fn run<'a>(input: &Input<'_>, jobs: impl Iterator<Item = (u32, Vec<&'a str>)>) -> Result<Imported> {
    let trouble = trouble(input.text);
    let mut notes = vec![
        "fio's terse form tells no settings: block size, depth, engine and durability are unknown"
            .to_owned(),
    ];
    let mut tests = Vec::new();
    let mut tool = String::new();
    for (version, fields) in jobs {
        fields[1].clone_into(&mut tool);
        let options = Options::default();
        let mut test = options.test(fields[2], input.name, 0);
        test.row.engine = "fio".into();
        let error: u64 = parsed(fields[4]).unwrap_or(0);
        if let Some((status, sentence)) = &trouble {
            test.row.status = *status;
            test.row.error = Some(sentence.clone());
        }
        if error > 0 {
            test.row.status = Status::Failed;
            let sentence = format!("fio ended with error {error}");
            test.row.error.get_or_insert(sentence);
        }
        test.row.errors = u64::from(test.row.status == Status::Failed);
        let each = if version == 5 { FIELDS_5 } else { FIELDS };
        let part = |at: usize| fields.get(HEAD + at * each..HEAD + (at + 1) * each);
        let (Some(read), Some(write)) = (part(0), part(1)) else {
            return Err(Error::usage(format!(
                "a terse line of version {version} is cut"
            )));
        };
        let sides = [("read", side(read)), ("write", side(write))];
        tests.extend(rows(&test, &options, &sides, &mut notes));
    }
    Ok(Imported {
        tool,
        settings: json!({ "format": "terse" }),
        tests,
        judged: Vec::new(),
        notes,
    })
}

fn parsed<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn side(fields: &[&str]) -> Side {
    let millis = parsed::<u64>(fields[3]).filter(|millis| *millis > 0);
    let seconds = millis.map(|millis| millis as f64 / 1e3);
    let micros = |at: usize| {
        let value: f64 = parsed(fields.get(at)?)?;
        (value.is_finite() && value > 0.0).then_some(value * 1e3)
    };
    let iops = parsed::<f64>(fields[2]).filter(|iops| iops.is_finite());
    let ops = iops
        .zip(seconds)
        .map(|(iops, seconds)| (iops * seconds).round() as u64);
    let percentiles = fields[12..32].iter().filter_map(|field| {
        let (at, micros) = field.split_once("%=")?;
        let micros: f64 = parsed(micros)?;
        Some((parsed::<f64>(at)?, (micros * 1e3).round() as u64))
    });
    let kib = |at: usize| parsed::<u64>(fields[at]).unwrap_or(0);
    Side {
        bytes: kib(0).saturating_mul(1024),
        ops: ops.unwrap_or(0),
        seconds,
        printed: Some(kib(1) as f64 * 1024.0).filter(|rate| *rate > 0.0),
        mean_ns: micros(34),
        max_ns: micros(33).map(|max| max.round() as u64),
        percentiles: percentiles
            .filter(|(at, nanos)| *at > 0.0 && *nanos > 0)
            .collect(),
        bins: Vec::new(),
    }
}
