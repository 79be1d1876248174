//! fio's JSON: version 3 tells bytes and nanoseconds, version 2 KiB and microseconds under the same names.
//!
//! Must not know: its other forms.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Options, rows, trouble};
use crate::error::{Error, Result};
use crate::import::json::{Object, number, utc, whole};
use crate::import::test::{Side, Test};
use crate::import::{Imported, Input};
use crate::record::Status;

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    // With --status-interval there are several; the last one is of the whole run.
    let mut known = input
        .objects
        .iter()
        .filter(|object| object.value.get("fio version").is_some());
    let last = known.next_back()?;
    Some(run(input, last))
}

fn run(input: &Input<'_>, object: &Object<'_>) -> Result<Imported> {
    let value = &object.value;
    let jobs = value.get("jobs").or_else(|| value.get("client_stats"));
    let jobs = jobs
        .and_then(Value::as_array)
        .ok_or_else(|| Error::usage("fio's output without jobs"))?;
    let globals = value.get("global options").and_then(Value::as_object);
    let around: Vec<&str> = input.objects.iter().map(|object| object.before).collect();
    let trouble = trouble(&around.join("\n"));
    let mut notes = Vec::new();
    let mut tests = Vec::new();
    let mut settings = Map::new();
    for group in grouped(jobs) {
        let first = group[0];
        let name = first["jobname"].as_str().unwrap_or("");
        let options = options(globals, first);
        settings.insert(name.to_owned(), Value::Object(options.0.clone()));
        let numjobs = options.number("numjobs").unwrap_or(1);
        let lanes = if group.len() > 1 {
            group.len() as u64
        } else {
            numjobs
        };
        let mut test = options.test(name, input.name, u16::try_from(lanes).unwrap_or(u16::MAX));
        test.row.started_utc = started(value);
        test.cpu_s = cpu(&group);
        outcome(&mut test, &group, trouble.as_ref());
        let mut sides = Vec::new();
        for direction in ["read", "write"] {
            let clones = group
                .iter()
                .filter_map(|job| Some(side(job.get(direction)?)));
            sides.push((direction, clones.reduce(Side::with).unwrap_or_default()));
        }
        if group.len() > 1
            && sides
                .iter()
                .any(|(_, side)| side.moved() && side.bins.is_empty())
        {
            notes.push(format!(
                "{name}: {} clones are added up; their percentiles can't be (json+ would tell)",
                group.len()
            ));
        }
        tests.extend(rows(&test, &options, &sides, &mut notes));
    }
    if let Some((_, sentence)) = trouble {
        notes.push(sentence);
    }
    Ok(Imported {
        tool: value["fio version"].as_str().unwrap_or("fio").to_owned(),
        settings: Value::Object(settings),
        tests,
        judged: Vec::new(),
        notes,
    })
}

/// Jobs, with the clones of one that ran at the same time together.
fn grouped(jobs: &[Value]) -> Vec<Vec<&Value>> {
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    let mut places: HashMap<(String, u64), usize> = HashMap::new();
    for job in jobs.iter().filter(|job| job["jobname"] != "All clients") {
        let name = job["jobname"].as_str().unwrap_or("").to_owned();
        let group = whole(&job["groupid"]).unwrap_or(0);
        let place = *places.entry((name, group)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(job);
    }
    groups
}

/// A job's options over those of all.
fn options(globals: Option<&Map<String, Value>>, job: &Value) -> Options {
    let mut all = globals.cloned().unwrap_or_default();
    if let Some(own) = job.get("job options").and_then(Value::as_object) {
        all.extend(own.clone());
    }
    Options(all)
}

fn started(value: &Value) -> String {
    let millis = whole(&value["timestamp_ms"]).map(|millis| millis / 1000);
    let seconds = millis.or_else(|| whole(&value["timestamp"]));
    seconds.map_or_else(String::new, utc)
}

/// Processor time of all clones: their percentages are of the wall clock of each.
fn cpu(group: &[&Value]) -> Option<f64> {
    let mut sum = 0.0;
    for job in group {
        let percent = number(&job["usr_cpu"])? + number(&job["sys_cpu"])?;
        let seconds = whole(&job["job_runtime"])? as f64 / 1e3;
        // With group_reporting the runtimes of all clones are summed already.
        sum += percent / 100.0 * seconds;
    }
    (sum > 0.0).then_some(sum)
}

/// How it ended: neither the error field nor the exit code alone tells.
fn outcome(test: &mut Test, group: &[&Value], trouble: Option<&(Status, String)>) {
    let error = group
        .iter()
        .find_map(|job| whole(&job["error"]).filter(|error| *error > 0));
    let total: u64 = group
        .iter()
        .filter_map(|job| whole(&job["total_err"]))
        .sum();
    if let Some((status, sentence)) = trouble {
        test.row.status = *status;
        test.row.error = Some(sentence.clone());
    }
    if let Some(error) = error {
        test.row.status = Status::Failed;
        let sentence = format!("fio ended with error {error}");
        test.row.error.get_or_insert(sentence);
    }
    test.row.errors = match test.row.status {
        Status::Failed => total.max(1),
        _ => total,
    };
}

/// One direction. Version 2 calls KiB `io_bytes`: time and rate tell which they are.
fn side(value: &Value) -> Side {
    let millis = whole(&value["runtime"]).filter(|millis| *millis > 0);
    let seconds = millis.map(|millis| millis as f64 / 1e3);
    let told = whole(&value["io_bytes"]).unwrap_or(0);
    let kib_per_s = number(&value["bw"]);
    let exact = number(&value["bw_bytes"]);
    let kib = kib_per_s.zip(seconds).map(|(rate, seconds)| rate * seconds);
    let is_kib = exact.is_none() && kib.is_some_and(|kib| (told as f64) < 32.0 * kib);
    let ops = whole(&value["total_ios"]);
    let by_rate = number(&value["iops"])
        .zip(seconds)
        .map(|(iops, seconds)| (iops * seconds).round() as u64);
    let latency = |names: [&str; 2]| {
        // Version 2 has microseconds under the shorter name.
        let [nanos, micros] = names;
        let nanos = value.get(nanos).map(|found| (found, 1.0));
        nanos.or_else(|| value.get(micros).map(|found| (found, 1e3)))
    };
    let whole_way = latency(["lat_ns", "lat"]);
    let completion = latency(["clat_ns", "clat"]);
    let of = |field: &str| {
        let (found, factor) = whole_way?;
        number(&found[field]).map(|value| value * factor)
    };
    let percentiles = percentiles(whole_way).or_else(|| percentiles(completion));
    let bins = bins(whole_way).or_else(|| bins(completion));
    Side {
        bytes: if is_kib {
            told.saturating_mul(1024)
        } else {
            told
        },
        ops: ops.or(by_rate).unwrap_or(0),
        seconds,
        printed: exact
            .or(kib_per_s.map(|kib| kib * 1024.0))
            .filter(|rate| *rate > 0.0),
        mean_ns: of("mean").filter(|mean| *mean > 0.0),
        max_ns: of("max")
            .filter(|max| *max > 0.0)
            .map(|max| max.round() as u64),
        percentiles: percentiles.unwrap_or_default(),
        bins: bins.unwrap_or_default(),
    }
}

fn percentiles(latency: Option<(&Value, f64)>) -> Option<Vec<(f64, u64)>> {
    let (found, factor) = latency?;
    let table = found.get("percentile")?.as_object()?;
    let pairs = table.iter().filter_map(|(at, value)| {
        let nanos = number(value)? * factor;
        Some((at.parse::<f64>().ok()?, nanos.round() as u64))
    });
    Some(
        pairs
            .filter(|(at, nanos)| *at > 0.0 && *nanos > 0)
            .collect(),
    )
}

fn bins(latency: Option<(&Value, f64)>) -> Option<Vec<(u64, u64)>> {
    let (found, factor) = latency?;
    let table = found.get("bins")?.as_object()?;
    let pairs = table.iter().filter_map(|(at, count)| {
        let nanos = at.parse::<f64>().ok()? * factor;
        Some((nanos.round() as u64, whole(count)?))
    });
    Some(pairs.collect())
}
